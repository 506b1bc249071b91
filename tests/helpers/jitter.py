"""Pytest option `--jitter`: moves the results that torch sums on the CPU by one unit in the last place.

The order in which torch adds depends on the processor: on its vectors, its library of matrix products, its cores. So do
the last bits of matrix products, convolutions, means and sums. A test that passes with `--jitter` does not depend on
these bits.

The plugin replaces the kernels of `SUMS` in torch's dispatcher. It so reaches calls of C++, of autograd's backward
passes, of other threads and of compiled functions. snnlib's own kernels add in one order on every processor and stay as
they are. Kernels of torch that add in one plain loop (`cumsum`, `index_add`, pooling) stay too.

Each element of a result goes up by one unit in the last place, goes down by one, or stays. The direction depends on the
operator, its shapes, its numbers and the bits of its inputs. A repeated call gives the same bits, as on a real
processor; a call on half of a batch gives other bits than a call on the whole batch.

Elements that have the same bits in every order stay:

- sums with at most one nonzero term, and sums of two terms that are exact before they are added;
- sums on a grid: all terms are multiples of one power of two, and the sum of their absolute values is below 2^24
  times that power (2^53 times in float64), so that no partial sum is rounded. Counts of events and weights that are
  small multiples of 1/64 lie on such a grid.

Norms, variances and softmax divide and take roots between their sums. Their elements stay where float32 and
float64 give the same number, and where they are zero.
"""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

# A term is a product of arguments, which stand here by their positions; a result is a sum of terms of one or two kinds.
Terms = tuple[tuple[int, ...], ...]

_SUM: tuple[Terms, ...] = (((0,),),)
_PRODUCT: tuple[Terms, ...] = (((0, 1),),)
_SUM_AND_PRODUCT: tuple[Terms, ...] = (((0,), (1, 2)),)
_UNKNOWN: tuple[Terms, ...] = ()

# Terms of every result, by kernel; without them no element is known to be the same in every order.
SUMS: dict[str, tuple[Terms, ...]] = {
    "sum.dim_IntList": _SUM,
    "sum.IntList_out": _SUM,
    "nansum": _SUM,
    "mean.dim": _SUM,
    "mean.out": _SUM,
    "dot": _PRODUCT,
    "mm": _PRODUCT,
    "mm.out": _PRODUCT,
    "bmm": _PRODUCT,
    "bmm.out": _PRODUCT,
    "addmv": _SUM_AND_PRODUCT,
    "addmv.out": _SUM_AND_PRODUCT,
    "addmv_": _SUM_AND_PRODUCT,
    "addmm": _SUM_AND_PRODUCT,
    "addmm.out": _SUM_AND_PRODUCT,
    "addmm_": _SUM_AND_PRODUCT,
    "addbmm": _SUM_AND_PRODUCT,
    "baddbmm": _SUM_AND_PRODUCT,
    "baddbmm.out": _SUM_AND_PRODUCT,
    "baddbmm_": _SUM_AND_PRODUCT,
    "convolution": (((0, 1), (2,)),),
    "convolution_backward": (((0, 2),), ((0, 1),), ((0,),)),
} | dict.fromkeys(
    (
        "linalg_vector_norm",
        "linalg_vector_norm.out",
        "norm.ScalarOpt_dim",
        "var.correction",
        "var.correction_out",
        "var_mean.correction",
        "std.correction",
        "std.correction_out",
        "std_mean.correction",
        "native_batch_norm",
        "native_batch_norm_backward",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit.no_stats",
        "_batch_norm_with_update",
        "batch_norm_backward",
        "native_layer_norm",
        "native_layer_norm_backward",
        "native_group_norm",
        "native_group_norm_backward",
        "logsumexp",
        "_softmax",
        "_softmax_backward_data",
        "_log_softmax",
        "_log_softmax_backward_data",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    _UNKNOWN,
)
# Kernels that sum the absolute values of the terms, where they have another name.
_FUNCTIONAL = {"sum": "sum.dim_IntList", "mean": "sum.dim_IntList"}

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Bits of the sums of each type: half types are added in float32.
_BITS = {torch.float16: 24, torch.bfloat16: 24, torch.float32: 24, torch.float64: 53}

_running = threading.local()
_library: list[torch.library.Library] = []


def add_option(parser: pytest.Parser) -> None:
    """Declares `--jitter`."""
    parser.addoption(
        "--jitter", action="store_true", help="change the last bits of what torch sums on the CPU"
    )


def install() -> bool:
    """Replaces the CPU kernels of `SUMS`, in this process and those that it forks; returns False if done before."""
    if _library:
        return False
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name, outputs in SUMS.items():
            library.impl(name, _changed(name, outputs), "CPU", with_keyset=True)
    _library.append(library)
    return True


def remove() -> None:
    """Gives torch its kernels back."""
    while _library:
        _library.pop()._destroy()


def in_child() -> str:
    """Returns the lines by which a Python program that a test starts sums as the test itself."""
    if not _library:
        return ""
    return (
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport jitter\njitter.install()\n"
    )


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Has this thread compute what torch computes."""
    before, _running.inside = getattr(_running, "inside", False), True
    try:
        yield
    finally:
        _running.inside = before


def _changed(name: str, outputs: tuple[Terms, ...]) -> Callable[..., Any]:
    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")
    packet, _, overload = name.partition(".")
    schema = getattr(getattr(torch.ops.aten, packet), overload or "default")._schema
    given = {argument.name for argument in schema.arguments if not argument.is_out}
    # Running statistics, which the kernel changes and does not return.
    statistics = [i for i, argument in enumerate(schema.arguments) if argument.name.startswith("running_")]
    functional = packet.rstrip("_")
    functional = _FUNCTIONAL.get(functional, functional) if outputs else name
    functional_kernel = torch.library.get_kernel(f"aten::{functional}", "CPU")
    # Not where the caller gives the memory of the result, and with it the type.
    retypes = not outputs and len(given) == len(schema.arguments)

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        # A kernel of this list may call another one.
        if getattr(_running, "inside", False):
            return kernel.call_boxed(keys, *args, **kwargs)
        with paused():
            # With beta = 0 the first argument may be memory that nobody has written.
            read = (torch.zeros_like(args[0]), *args[1:]) if kwargs.get("beta") == 0 else args
            options = {key: value for key, value in kwargs.items() if key in given}
            seed = _digest(name, [*read, *options.values()])

            def compute(*args: Any) -> Sequence[Any]:
                result = functional_kernel.call_boxed(keys, *args, **({} if outputs else options))
                return result if isinstance(result, tuple | list) else (result,)

            exact: Sequence[Tensor | None] = ()
            if outputs and options.get("alpha", 1) == 1 and options.get("beta", 1) in (0, 1):
                bits = _BITS.get(options.get("dtype") or args[0].dtype, 24)
                exact = _exact(compute, read, outputs, bits)
            retyped = _retyped(compute, read) if retypes else ()
            before = {i: args[i].clone() for i in statistics if i < len(args) and isinstance(args[i], Tensor)}
            result = kernel.call_boxed(keys, *args, **kwargs)
            results = [*(result if isinstance(result, tuple | list) else (result,))]
            if retyped:
                exact = [
                    v if v is None else (v == r) | (r == 0) for v, r in zip(retyped, results, strict=True)
                ]
            results += [args[i] for i, value in before.items() if (value != args[i]).sum().tolist()]
            for place, value in enumerate(results):
                if isinstance(value, Tensor) and value.dtype in _BITS and value.numel():
                    _move(value, seed + place, exact[place] if place < len(exact) else None)
            return result

    return run


def _digest(name: str, inputs: Sequence[Any]) -> int:
    """Returns the same number for inputs that a power of two scales, since sums then scale to the bit, too."""
    digest = zlib.crc32(name.encode())
    for value in _flat(inputs):
        if isinstance(value, Tensor):
            digest = zlib.crc32(repr((value.shape, value.dtype)).encode(), digest)
            bits = value.detach().contiguous().reshape(-1)
            if value.dtype in _BITS and value.numel():
                numbers = bits.double().numpy()
                largest = np.frexp(np.max(np.abs(numbers)))[1]
                digest = zlib.crc32(np.ldexp(numbers, -largest).tobytes(), digest)
            else:
                digest = zlib.crc32(bits.view(torch.uint8).numpy().tobytes(), digest)
        else:
            digest = zlib.crc32(repr(value).encode(), digest)
    return digest


def _retyped(compute: Callable[..., Sequence[Any]], args: Sequence[Any]) -> Sequence[Any]:
    """Returns the results in another type, which equal those in the given type where nothing is rounded."""
    tensors = [value for value in args if isinstance(value, Tensor) and value.dtype in _BITS]
    other = torch.float32 if any(value.dtype == torch.float64 for value in tensors) else torch.float64
    copies = [value.to(other) if any(value is each for each in tensors) else value for value in args]
    return [value if isinstance(value, Tensor) else None for value in compute(*copies)]


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flat(value)
        else:
            yield value


def _move(value: Tensor, seed: int, exact: Tensor | None) -> None:
    # A generator of numpy: where `vmap` runs, torch refuses random numbers.
    steps = torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, tuple(value.shape), np.int64))
    # Infinity would become NaN; zero has nothing below it in the order of the bits.
    steps[~value.isfinite()] = 0
    if exact is None:
        steps[value == 0] = 0
    else:
        steps = torch.where(value == 0, steps.abs(), steps)
        steps[exact.expand(value.shape)] = 0
    integers = _INTEGERS[value.element_size()]
    value.view(integers).add_(steps.to(integers))


def _exact(
    compute: Callable[..., Sequence[Any]], args: Sequence[Any], outputs: tuple[Terms, ...], bits: int
) -> list[Tensor | None]:
    """Returns which elements of each result are the same in every order of the sum."""
    places = {place for terms in outputs for kind in terms for place in kind}
    tensors = {place: args[place].detach() for place in places if _is(args, place)}
    if any(value.is_complex() for value in tensors.values()):
        return []
    # Sums of absolute values on a grid are exact below the bound, in float32 too, which is ten times as fast.
    wide = torch.float64 if any(value.dtype == torch.float64 for value in tensors.values()) else torch.float32
    absolute = {place: value.to(wide).abs() for place, value in tensors.items()}
    used = {place: (value != 0).to(wide) for place, value in tensors.items()}
    sums, counts = (
        compute(*(tensors.get(place, value) for place, value in enumerate(args)))
        for tensors in (absolute, used)
    )
    grids = {place: _grid(value) for place, value in absolute.items()}
    exact: list[Tensor | None] = []
    for terms, largest, count in zip(outputs, sums, counts, strict=True):
        factors = [
            [grids[place] for place in kind] for kind in terms if all(place in tensors for place in kind)
        ]
        if largest is None or count is None or not factors:
            exact.append(None)
            continue
        grid = min(math.prod(step for step, _ in kind) for kind in factors)
        # A product of p and q bits has p + q, or as many as one factor if the other one is a power of two.
        widths = [[width for _, width in kind] for kind in factors]
        rounded = any(len(pair) == 2 and min(pair) > 1 and sum(pair) > bits for pair in widths)
        exact.append((largest < 2.0**bits * grid) | (count <= (1 if rounded else 2)))
    return exact


def _is(args: Sequence[Any], place: int) -> bool:
    return place < len(args) and isinstance(args[place], Tensor)


def _grid(value: Tensor) -> tuple[float, int]:
    """Returns the largest power of two that divides all elements, and the most bits that an element needs."""
    mantissas, exponents = np.frexp(value.numpy().ravel())
    used = (mantissas != 0) & np.isfinite(mantissas)
    if not used.any():
        return math.inf, 0
    integers = np.ldexp(mantissas[used].astype(np.float64), 53).astype(np.int64)
    lowest = np.frexp((integers & -integers).astype(np.float64))[1] - 1
    return 2.0 ** int((exponents[used] - 53 + lowest).min()), int((53 - lowest).max())
