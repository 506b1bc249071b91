"""The only importer of the compiled module, and the place that decides which path an op takes.

Every op has two paths. `native` calls the compiled kernels of `snnlib._C`; it needs the module and a CPU tensor, or a
CUDA tensor and a module built with CUDA. `reference` is the readable torch code of `snnlib.reference`; it runs
wherever torch does. `auto`, the default, takes `native` where it can. The environment variable `SNNLIB_PATH` sets the
choice of a process, `use_path` that of a block.
"""

from __future__ import annotations

import importlib
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from snnlib.backends.process_setting import ProcessSetting
from snnlib.checks import KERNEL_DTYPES, warn_caller

Path = Literal["auto", "native", "reference"]

# Sources of the module's functions, beside an editable installation.
_BINDINGS = pathlib.Path(__file__).parents[2] / "cpp" / "bindings"

# Codes of `DType` in cpp/include/snnlib/core/dtype.h.
DTYPE_CODES = {dtype: code for code, dtype in enumerate(KERNEL_DTYPES)}

_module: ModuleType | None = None
load_error = ""
try:
    _module = importlib.import_module("snnlib._C")
except ImportError as error:
    load_error = str(error)

# The kernels of each type of device: modules with functions of the same names and arguments.
_kernels: dict[str, ModuleType] = {} if _module is None else {"cpu": _module}
if hasattr(_module, "cuda"):
    _kernels["cuda"] = _module.cuda  # type: ignore[union-attr]


# GPUs that kernels run on. Why they do not is asked every time: some reasons pass, such as memory that was full.
_usable_gpus: set[int] = set()

_path: ProcessSetting[Path] = ProcessSetting("SNNLIB_PATH", get_args(Path))
_warned = False

if _module is not None and os.environ.get("SNNLIB_ISA"):
    try:
        _module.select_isa(os.environ["SNNLIB_ISA"])
    except ValueError as error:
        raise ValueError(f"environment variable SNNLIB_ISA: {error}") from None


def state_dtype(sequence: Tensor) -> torch.dtype:
    """Returns the dtype of states and currents in kernels and references: float32 for half precision."""
    return torch.float64 if sequence.dtype == torch.float64 else torch.float32


@contextmanager
def use_path(path: Path) -> Iterator[None]:
    """Runs every op of a `with` block on one path: `"auto"`, `"native"` or `"reference"`.

    `"native"` raises an error with the reason if the kernels cannot run. The choice holds for the whole process; of
    blocks in several threads, the one that began last decides.

    >>> import torch, snnlib
    >>> with snnlib.use_path("reference"):
    ...     spikes = snnlib.functional.srm_neuron(torch.full((4, 1, 1), 2.0))
    >>> spikes.flatten().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    with _path.use(path, "path"):
        yield


def _missing(device: str, name: str = "") -> str:
    """Returns why a type of device has no kernel `name`, or none at all; empty if it has."""
    if device in _kernels:
        lacks = name and not hasattr(_kernels[device], name)
        return f"there is no {name} kernel for device {device}" if lacks else ""
    if _module is None:
        return f"the compiled module is not available ({load_error})"
    if device == "cuda":
        return "the compiled module was built without CUDA"
    return f"there are no native kernels for device {device}"


def _cuda_problem(index: int | None) -> str:
    """Returns why the module's CUDA kernels cannot run on a GPU (default: the current one); empty if they can."""
    if not torch.cuda.is_available():
        return str(_kernels["cuda"].info()["problem"]) or "torch sees no CUDA device"
    index = torch.cuda.current_device() if index is None else index
    if index in _usable_gpus:
        return ""
    with torch.cuda.device(index):
        _kernels["cuda"].use_device(index)
        problem = str(_kernels["cuda"].problem())
    if problem:
        return f"CUDA kernels cannot run on this GPU: {problem}"
    _usable_gpus.add(index)
    return ""


# A compiler keeps the answer, as it cannot trace the module's functions: `torch.compiler.assume_constant_result` does
# this, and imports the compiler, which takes as long as torch itself.
_cuda_problem._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _unsupported(name: str, tensor: Tensor) -> str:
    """Returns why the kernel `name` cannot take this tensor; empty if it can."""
    device = tensor.device.type
    unsupported = _missing(device, name)
    if not unsupported and device == "cuda":
        unsupported = _cuda_problem(tensor.device.index)
    if not unsupported and tensor.dtype not in DTYPE_CODES:
        unsupported = f"there are no native kernels for {tensor.dtype}"
    return unsupported


def has_kernel(name: str, tensor: Tensor) -> bool:
    """Returns whether `kernel` gives a compiled function; never warns or raises, and may be traced by a compiler."""
    return _path.value != "reference" and not _unsupported(name, tensor)


def fuses_multiply_add() -> bool:
    """Returns whether the kernels in use on the CPU have an instruction that multiplies and adds."""
    return _module is not None and _module.isa() in ("avx2", "avx512")


def kernel(name: str, tensor: Tensor, **others: Tensor | None) -> Callable[..., Any] | None:
    """The compiled function `name` for the device of `tensor` if this call takes the native path, else None.

    It takes the fields of its struct in cpp/include/snnlib by keyword, tensors as such and None for no tensor, and runs
    on torch's number of CPU threads, or on torch's current stream of the tensor's GPU. `others` are the call's further
    tensors by the names of their arguments: one on another device is a ValueError on any path.
    """
    for argument, other in others.items():
        if other is not None and other.device != tensor.device:
            raise ValueError(f"{argument}: expected a tensor on {tensor.device}, got one on {other.device}")
    if _path.value == "reference":
        return None
    unsupported = _unsupported(name, tensor)
    if not unsupported:
        function = getattr(_kernels[tensor.device.type], name)
        return _on_cuda(function, tensor.device) if tensor.device.type == "cuda" else _on_cpu(function)
    if _path.value == "native":
        raise RuntimeError(f"path 'native' was asked for, but {unsupported}")
    if _module is None:
        _warn_once(f"{unsupported}. Install it with a C++ compiler at hand")
    elif tensor.device.type == "cuda" and not _missing("cuda", name) and _cuda_problem(tensor.device.index):
        _warn_once(f"{unsupported}. Build it for this GPU and driver (docs/cuda.md)")
    return None


def prepare(name: str, **fields: Any) -> Callable[..., Any]:
    """Returns the CPU's compiled function `name` with these fields, as a function of those that are a `slot`.

    Arguments are tensors, None, or numbers, in the order of the slots, from 1 on. What a memo keeps of prepared
    functions has `cpu_kernels()` in its key.
    """
    function = getattr(_module, f"prepare_{name}")(**fields, executor=slot(0))
    return lambda *tensors: function(torch.get_num_threads(), *tensors)


def cpu_kernels() -> ModuleType | None:
    """Returns the compiled module where the CPU takes its kernels; None on the reference path."""
    return None if _path.value == "reference" or _kernels.get("cpu") is not _module else _module


def slot(place: int) -> Any:
    """Returns what stands for a field that the calls of a prepared function give, as this argument."""
    assert _module is not None
    return _module.Slot(place)


def dense(dtype: torch.dtype, **tensors: Tensor | None) -> dict[str, Tensor | None]:
    """Returns arguments of a kernel, contiguous and of this dtype; None stays."""
    return {name: x if x is None else x.to(dtype).contiguous() for name, x in tensors.items()}


def scan_takes_half(tensor: Tensor) -> bool:
    """Returns whether scan kernels of a tensor's device read half precision themselves, for neurons of one state."""
    return bool(getattr(_kernels.get(tensor.device.type), "scan_takes_half", False))


def scan_pools_any_layout(tensor: Tensor) -> bool:
    """Returns whether the kernels of a scan with pooling take any dtype and layout, on the tensor's device."""
    return bool(getattr(_kernels.get(tensor.device.type), "scan_pools_any_layout", False))


def most_recurrent_neurons(tensor: Tensor) -> int | None:
    """Neurons of the largest recurrent layer that kernels of the tensor's device take; None where any will do.

    Where there is a limit, a block of threads has a sample, and backward needs room for what it keeps of every step.
    """
    most = getattr(_kernels.get(tensor.device.type), "most_recurrent_neurons", None)
    return None if most is None else most // (2 if tensor.dtype == torch.float64 else 1)


def plain_function(name: str) -> Callable[..., Any] | None:
    """The compiled function `name` of work without tensors, like the decoders of event files; None as from `kernel`."""
    if _path.value == "reference":
        return None
    function: Callable[..., Any] | None = getattr(_module, name, None)
    if function is None and _path.value == "native":
        raise RuntimeError(f"path 'native' was asked for, but {_missing('cpu', name)}")
    return function


def pack_words(words: Tensor) -> Any:
    """Packed blocks of an int32 tensor (`PackedBlocks` of cpp/bindings/pack.cpp); None on the reference path."""
    function = plain_function("pack_words") if words.device.type == "cpu" else None
    return None if function is None else function(words.data_ptr(), len(words), torch.get_num_threads())


def unpack_words(packed: int, starts: int, words: int, count: int) -> None:
    """The words again, from and to these addresses, whatever the path is by now."""
    assert _module is not None
    _module.unpack_words(
        packed=packed, starts=starts, words=words, count=count, executor=torch.get_num_threads()
    )


def _warn_once(problem: str) -> None:
    global _warned  # noqa: PLW0603
    if not _warned:
        _warned = True
        warn_caller(
            f"snnlib runs on its slow reference path: {problem}, or set SNNLIB_PATH=reference to choose this path.",
            RuntimeWarning,
        )


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **arguments: function(**arguments, executor=torch.get_num_threads())


def _on_cuda(function: Callable[..., None], device: torch.device) -> Callable[..., None]:
    def run(**arguments: object) -> None:
        with torch.cuda.device(device):
            # The module's copy of the runtime may know nothing of torch's choice in a thread that it has not met.
            _kernels["cuda"].use_device(device.index)
            function(**arguments, executor=torch.cuda.current_stream(device).cuda_stream)

    return run


def asked_path() -> Path:
    """The path that the environment or `use_path` asks for."""
    return _path.value


def surrogates() -> dict[str, bool]:
    """Shapes of surrogate gradients in the order of their numbers, and whether each is zero away from the threshold."""
    return {} if _module is None else dict(_module.surrogates)


def program_ops() -> dict[str, int]:
    """Returns the codes of the operations of programs by name; empty without the compiled module."""
    return (
        {}
        if _module is None
        else {name: code for code, name in enumerate(getattr(_module, "program_ops", ()))}
    )


def cudnn() -> ModuleType | None:
    """The module's door to cuDNN, where it was built with CUDA."""
    return getattr(_module, "cudnn", None)


def cpu_memory() -> ModuleType | None:
    """The module's part for the memory of tensors on the CPU."""
    return getattr(_module, "cpu_memory", None)


def explain_path(device: str = "cpu", name: str = "") -> tuple[Path, str]:
    """The path that float32 tensors on `device` take now (through the kernel `name`), and the reason."""
    if _path.value == "reference":
        return "reference", "asked for by SNNLIB_PATH or use_path"
    missing = _missing(device, name) or (_cuda_problem(None) if device == "cuda" else "")
    if missing:
        return "reference", missing
    if device == "cuda":
        return "native", "CUDA kernels, current stream"
    return "native", f"{_kernels['cpu'].isa()} kernels, {torch.get_num_threads()} threads"


def module_info() -> dict[str, str]:
    """Facts about the compiled module for `snnlib doctor`."""
    if _module is None:
        return {"native module": f"not available: {load_error}"}
    return {
        "native module": f"{_module.__file__}{_age(pathlib.Path(str(_module.__file__)))}",
        "instruction sets": f"{', '.join(_module.available_isas())} (in use: {_module.isa()})",
        "OpenMP": "yes" if _module.openmp else "no",
        "CUDA": _cuda_info(),
    }


def _age(module: pathlib.Path, sources: pathlib.Path = _BINDINGS) -> str:
    """A note where the sources beside an editable installation changed after the module was built."""
    newer = sorted(
        path.name for path in sources.glob("*.cpp") if path.stat().st_mtime > module.stat().st_mtime
    )
    return f", older than cpp/bindings/{newer[0]}: build it again" if newer else ""


# The oldest driver for Linux that runs what a major version of CUDA has made (NVIDIA, CUDA Compatibility, section 2).
_DRIVERS = {12: 525, 13: 580}
# The major version of CUDA that wheels with kernels are built with.
_WHEELS = 13


def least_driver() -> int:
    """Returns the oldest driver that runs the kernels of this module; those of a wheel if it has none."""
    cuda = _kernels.get("cuda")
    major = _WHEELS if cuda is None else cuda.info()["runtime"] // 1000
    return _DRIVERS.get(major, _DRIVERS[_WHEELS])


def _cuda_info() -> str:
    cuda = _kernels.get("cuda")
    if cuda is None:
        return "built without CUDA"
    info = cuda.info()
    driver = f"driver takes up to {_version(info['driver'])}" if info["driver"] else "no driver"
    state = info["problem"] or f"{info['devices']} usable device{'s' * (info['devices'] != 1)}"
    major = info["runtime"] // 1000
    if info["driver"] // 1000 < major and major in _DRIVERS:
        state = f"needs a driver of {least_driver()} or newer"
    return f"built with {_version(info['runtime'])} for {cuda.architectures}; {driver}; {state}"


def _version(number: int) -> str:
    """CUDA's 13020 is 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"
