"""Backward convolutions straight through cuDNN's graph API, for CUDA tensors.

The library is found when the first call comes: the copy that torch has loaded, else the `nvidia-cudnn` package's, else
the system's. Every new geometry asks cuDNN for its engines, best guess first; the one chosen at the first run is kept.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends import native
from snnlib.backends.cudnn_flags import CudnnFlags

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Geometries whose engines are kept; a net uses two per layer and batch shape.
_KEPT = 4096
# Runs per engine that are timed together.
_TIMED_RUNS = 3
_LIBRARY = "libcudnn.so.9"


class UnavailableError(RuntimeError):
    """cuDNN cannot take a call; the message says why."""


def _packaged_libraries() -> Iterator[str]:
    try:
        spec = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        return
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, "lib", _LIBRARY)
        if path.exists():
            yield str(path)


@functools.cache
def unsupported() -> str:
    """Returns why cuDNN cannot be called in this process; empty if it can. Loads the library."""
    module = native.cudnn()
    if module is None:
        return native.load_error or "the compiled module was built without CUDA"
    problems = []
    for path in ("", *_packaged_libraries(), _LIBRARY):
        try:
            module.load(path)
        except RuntimeError as error:
            problems.append(str(error))
        else:
            return ""
    return f"cuDNN was not found: {'; '.join(problems)}"


def describe() -> str:
    """Returns a line for `snnlib doctor`."""
    if unsupported():
        return f"not used: {unsupported()}"
    version = native.cudnn().version()  # type: ignore[union-attr]
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


class _Geometry(NamedTuple):
    """The arguments of `_C.cudnn.ConvBackward`."""

    to_input: bool
    dtype: int
    channels_last: bool
    x: Sequence[int]
    weight: Sequence[int]
    grad_output: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    alignments: Sequence[int]


class _Solver:
    """Runs one geometry on one device with the engine that its first run chose."""

    def __init__(self, geometry: _Geometry, device: int, flags: CudnnFlags) -> None:
        self._convolution: Any = native.cudnn().ConvBackward(*geometry)  # type: ignore[union-attr]
        self._engines = self._convolution.find_engines(device, flags.deterministic, flags.allow_tf32)
        self._hopeless: set[int] = set()
        self._benchmark = flags.benchmark
        self._plan: Any = None
        self._problem = "no engine fits the geometry and the flags"

    def run(self, *tensors: Tensor) -> None:
        """Start the chosen engine on (x, weight, grad_output)."""
        if torch.cuda.is_current_stream_capturing():
            if self._plan is None:
                raise RuntimeError(
                    "convolution_backward: expected a run of this geometry before the capture of a CUDA graph, "
                    "as cuDNN looks for its engine in the first one and cannot inside a capture; run the step once"
                )
            _captured.add(self)
        if self._plan is None:
            self._plan = self._chosen_plan(*tensors)
        else:
            self._start(self._plan, *tensors)

    def _chosen_plan(self, *tensors: Tensor) -> Any:
        """The engine to keep, after it ran on the tensors."""
        plans = self._plans_that_run(*tensors)
        if not self._benchmark:
            plan = next(plans, None)
        else:
            limit = torch.backends.cudnn.benchmark_limit or None
            times = [(self._milliseconds(plan, *tensors), plan) for plan in islice(plans, limit)]
            plan = min(times, key=lambda pair: pair[0])[1] if times else None
            if plan is not None:
                self._start(plan, *tensors)
        if plan is None:
            raise UnavailableError(f"cuDNN: {self._problem}")
        return plan

    def _plans_that_run(self, *tensors: Tensor) -> Iterator[Any]:
        """Engines from the best guess down, each after one run; engines that fail are left out, from now on."""
        for engine in range(self._engines):
            if engine in self._hopeless:
                continue
            try:
                plan = self._convolution.plan(engine)
                self._start(plan, *tensors)
            except torch.OutOfMemoryError as error:
                # There may be room another time.
                self._problem = str(error)
            except RuntimeError as error:
                self._problem = str(error)
                self._hopeless.add(engine)
            else:
                yield plan

    def _start(self, plan: Any, *tensors: Tensor) -> None:
        device = tensors[0].device
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=device)
        stream = torch.cuda.current_stream(device).cuda_stream
        plan.run(*(x.data_ptr() for x in tensors), workspace.data_ptr(), stream)

    def _milliseconds(self, plan: Any, *tensors: Tensor) -> float:
        start, end = _event(), _event()
        start.record()
        for _ in range(_TIMED_RUNS):
            self._start(plan, *tensors)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))


# Solvers that are part of a CUDA graph, which starts their code again at any time.
_captured: set[_Solver] = set()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


@functools.lru_cache(maxsize=_KEPT)
def _solver(geometry: _Geometry, device: int, flags: CudnnFlags) -> _Solver:
    return _Solver(geometry, device, flags)


def _alignment(tensor: Tensor) -> int:
    """The power of two that divides the address, up to 16: wider loads do not exist."""
    address = tensor.data_ptr()
    return min(address & -address, 16)


def _is_channels_last(tensors: Sequence[Tensor]) -> bool:
    # Where tensors are dense in both layouts, the strides of either are right.
    if all(x.is_contiguous() for x in tensors):
        return False
    if all(x.is_contiguous(memory_format=torch.channels_last) for x in tensors):
        return True
    raise ValueError("x, weight, grad_output: expected all contiguous or all channels last")


def _check_on_gpu(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.device.type != "cuda":
            raise ValueError(f"{name}: expected a CUDA tensor, got one on {tensor.device}")
        if tensor.device != tensors["x"].device:
            raise ValueError(
                f"{name}: expected a tensor on {tensors['x'].device}, got one on {tensor.device}"
            )


def convolution_backward(
    to_input: bool,
    x: Tensor,
    weight: Tensor,
    grad_output: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    flags: CudnnFlags,
) -> None:
    """Writes the gradient of the input into `x`, or of the weight into `weight`; reads the other two.

    Tensors are dense in one layout; the number of groups follows from their channels. Work is queued on torch's
    current stream, the workspace comes from torch's allocator.

    Raises:
        ValueError: a tensor is not on the GPU, has no element, or layouts differ.
        UnavailableError: no CUDA in the module, no cuDNN, another dtype than `DTYPES`, or no engine for the geometry.
    """
    named = {"x": x, "weight": weight, "grad_output": grad_output}
    tensors = (x, weight, grad_output)
    _check_on_gpu(named)
    for name, tensor in named.items():
        if tensor.numel() == 0:
            raise ValueError(f"{name}: expected at least one element, got shape {tuple(tensor.shape)}")
    if unsupported():
        raise UnavailableError(unsupported())
    if x.dtype not in DTYPES or any(tensor.dtype != x.dtype for tensor in tensors):
        kinds = ", ".join(str(tensor.dtype) for tensor in tensors)
        raise UnavailableError(f"cuDNN convolves float32, bfloat16 and float16, each alone, not {kinds}")
    geometry = _Geometry(
        to_input,
        native.DTYPE_CODES[x.dtype],
        _is_channels_last(tensors),
        tuple(x.shape),
        tuple(weight.shape),
        tuple(grad_output.shape),
        tuple(stride),
        tuple(padding),
        tuple(dilation),
        tuple(_alignment(tensor) for tensor in tensors),
    )
    # tf32 is a way to round float32.
    flags = flags._replace(allow_tf32=flags.allow_tf32 or x.dtype != torch.float32)
    with torch.cuda.device(x.device):
        try:
            solver = _solver(geometry, torch.cuda.current_device(), flags)
        except RuntimeError as error:
            raise UnavailableError(str(error)) from error
        solver.run(*tensors)
