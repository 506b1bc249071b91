"""Random calls, right and wrong, and what must hold of them; here the raw ops with arguments changed at random.

Everything follows from a seed. Tensors are small; a wrong size is either small as well or beyond any memory, so that no
call takes long. Layers are in `fuzz_layers.py`, files in `fuzz_files.py`.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from compare import assert_close
from opdb import DTYPES, OPS
from torch import Tensor

import snnlib

HUGE = 2**62
# Tensors of integers, flags and bytes are no sequences, and complex numbers nothing at all.
OTHER_DTYPES = (torch.int64, torch.int16, torch.bool, torch.uint8, torch.complex64)
# Words of torch for a size beyond any memory.
TOO_LARGE = re.compile(r"allocate|memory|overflow|too large|out of range|negative dimension", re.IGNORECASE)


@dataclass(frozen=True)
class Case:
    """A call, what it may name in an error, and whether native and reference may only differ by rounding."""

    name: str
    call: Callable[[], list[Tensor]]
    arguments: frozenset[str]
    tolerance: float
    # True if the arguments have one right result. A record of spikes that are not the output's has none.
    defined: bool = True
    # True if there are indices that kernels read, and check, in part, and the reference wholly.
    partly_read: bool = False


def check(case: Case) -> bool:
    """Returns whether there is a result; raises if native and reference disagree or an error names no argument."""
    native, reference = (_outcome(case, path) for path in ("native", "reference"))
    for outcome in (native, reference):
        if isinstance(outcome, Exception):
            _check_error(case, outcome)
    if case.partly_read and isinstance(reference, ValueError) and re.match("starts|targets", str(reference)):
        return False
    if isinstance(native, Exception) or isinstance(reference, Exception):
        assert isinstance(native, Exception) and isinstance(reference, Exception), (
            f"{case.name}: native {native!r:.300}, reference {reference!r:.300}"
        )
        return False
    for number, (out, expected) in enumerate(zip(native, reference, strict=True)):
        assert (out.shape, out.dtype) == (expected.shape, expected.dtype), f"{case.name}, output {number}"
        if not case.defined:
            continue
        same = (out == expected) | (out.isnan() & expected.isnan())
        finite = expected.isfinite() & ~same
        assert_close(out[finite], expected[finite].double(), case.tolerance, f"{case.name}, output {number}")
        assert bool((same | finite).all()), f"{case.name}, output {number}: other NaN or infinite elements"
    return True


def _outcome(case: Case, path: str) -> list[Tensor] | Exception:
    with snnlib.use_path(path):  # type: ignore[arg-type]
        try:
            return case.call()
        except (TypeError, ValueError, RuntimeError, MemoryError) as error:
            return error


def _check_error(case: Case, error: Exception) -> None:
    text = str(error)
    named = {word for word in re.findall(r"\w+", text) if word in case.arguments}
    assert named or isinstance(error, MemoryError) or TOO_LARGE.search(text), (
        f"{case.name}: the error names no argument: {type(error).__name__}: {text}"
    )


def generator_of(rng: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(rng.getrandbits(32))


def other_layout(rng: random.Random, x: Tensor) -> Tensor:
    """Copies the values to other places in memory."""
    if x.dim() < 2 or rng.random() < 0.4:
        return x
    a, b = rng.sample(range(x.dim()), 2)
    if rng.random() < 0.7:
        return x.transpose(a, b).contiguous().transpose(a, b)
    return torch.cat((x, x), a).narrow(a, x.shape[a], x.shape[a])


def changed_tensor(rng: random.Random, x: Tensor) -> Tensor | None:
    """Another rank, size or dtype, or other numbers in the place of indices; rarely None."""
    dim = rng.randrange(x.dim()) if x.dim() else 0
    changes: list[Callable[[], Tensor | None]] = [
        lambda: x.unsqueeze(dim),
        lambda: x.to(rng.choice(DTYPES + OTHER_DTYPES)),
        lambda: x.new_empty(0),
        lambda: x.reshape(-1),
        lambda: None,
    ]
    if x.dim():
        changes += [
            lambda: x.narrow(dim, 0, max(x.shape[dim] - 1, 0)),
            lambda: x.narrow(dim, 0, 0),
            lambda: torch.cat((x, x[(slice(None),) * dim + (slice(0, 1),)]), dim),
            lambda: x.movedim(dim, 0),
            lambda: x.sum(dim) if x.is_floating_point() else x.amax(dim) if x.shape[dim] else x,
        ]
    if not x.is_floating_point():
        low = rng.choice([-(2**15), -1, 0])
        changes += [lambda: torch.randint(low, 2**15, x.shape, generator=generator_of(rng)).to(x.dtype)] * 4
        changes += [lambda: x + rng.choice([-1, 1, 3]), lambda: x.flip(0) if x.dim() else x]
        changes += [lambda: _changed_element(rng, x)] * 2
    return rng.choice(changes)()


def _changed_element(rng: random.Random, x: Tensor) -> Tensor:
    if not x.numel():
        return x
    x, limits = x.clone(), torch.iinfo(x.dtype)
    values = [value for value in (-(2**15), -1, 0, 1, 2**15 - 1) if limits.min <= value <= limits.max]
    x[tuple(map(rng.randrange, x.shape))] = rng.choice(values)
    return x


def _changed_sizes(rng: random.Random, sizes: list[int]) -> list[int]:
    if rng.random() < 0.4 or not sizes:
        return rng.choice([[], sizes[:-1], [*sizes, 1]])
    sizes[rng.randrange(len(sizes))] = rng.choice([-3, -1, 0, 1, 2, 3, 9, HUGE])
    return sizes


def _changed(rng: random.Random, value: Any) -> Any:
    # bool before int, which it is as well.
    changes: dict[Any, Callable[[], Any]] = {
        Tensor: lambda: changed_tensor(rng, value),
        bool: lambda: not value,
        int: lambda: rng.choice([-2, -1, 0, 1, 2, 3, 5, HUGE, -HUGE]),
        float: lambda: rng.choice([float("nan"), float("inf"), -1.0, 0.0, 0.5, 1.0, 1e300]),
        list | tuple: lambda: _changed_sizes(rng, list(value)),
        type(None): lambda: rng.choice([torch.zeros(3), torch.zeros(()), 1]),
    }
    return next(change for kind, change in changes.items() if isinstance(value, kind))()


def _as_list(out: Any) -> list[Any]:
    return [out] if isinstance(out, Tensor) else list(out)


def op_case(seed: int) -> Case:
    """A sample of tests/helpers/opdb.py with none to two of its arguments changed."""
    rng = random.Random(seed)
    case = OPS[rng.choice(list(OPS))]
    sample = rng.choice(case.samples)
    dtype = rng.choice(DTYPES)
    call = case.resolve(
        *(other_layout(rng, x) if isinstance(x, Tensor) else x for x in sample.arguments(dtype))
    )
    names, arguments = call.names, list(call.arguments)
    # The window of a fused pool goes by the name that users gave it, constants of neurons by their own.
    aliases = {"kernel_size"} if "pool" in names else set()
    if "taus" in names:
        aliases |= {"threshold", "coefficients", "tau_m", "tau_s", "tau_grad", "grad_clamp"}
    sparse = "targets" in names and arguments[names.index("starts")] is not None
    # `exact` only says whether unwritten numbers follow the record; a sample may leave out arguments with defaults.
    free = [i for i in range(len(arguments)) if names[i] != "exact"]
    changed = rng.sample(free, rng.choice([0, 1, 1, 1, 2]))
    for i in changed:
        arguments[i] = _changed(rng, arguments[i])
    # Results have the precision of the coarsest argument.
    dtypes = {dtype, *(x.dtype for x in arguments if isinstance(x, Tensor))}
    tolerance = max(case.tolerance.get(of, 0.0) for of in dtypes)
    what = f"seed {seed}: {case.name}, {sample.name}, {dtype}, changed {[names[i] for i in changed]}"
    of_output = "pool" in names and arguments[names.index("pool")] != [1, 1]
    altered = {names[i] for i in changed}
    # A target that comes twice in a row loses a sum, and kernels give no gradient to a state that is not given.
    of_list = sparse and altered & {"starts", "targets", "state"}
    defined = not (of_output and "bits" in altered) and not of_list
    changed_call = replace(call, arguments=tuple(arguments))
    return Case(
        what, lambda: _as_list(changed_call()), frozenset(names) | aliases, 4 * tolerance, defined, sparse
    )
