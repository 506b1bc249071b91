"""Fuzz of the raw ops and the public layers: a result that the reference gives too, or an error that names an argument.

2000 cases, always the same. `python -m pytest tests/test_fuzz.py` under sanitizers is `make sanitize`; other cases by
SNNLIB_FUZZ_SEED, a number to start from.
"""

import os
import re
from collections.abc import Callable

import fuzz
import pytest
import torch
from compare import assert_close
from torch import Tensor

import snnlib

FIRST = int(os.environ.get("SNNLIB_FUZZ_SEED", "0"))
CASES, BATCH = 1000, 50
# What torch says where a size is beyond any memory.
TOO_LARGE = re.compile(r"allocate|memory|overflow|too large|out of range|negative dimension", re.IGNORECASE)


def _outcome(case: fuzz.Case, path: str) -> list[Tensor] | Exception:
    with snnlib.use_path(path):  # type: ignore[arg-type]
        try:
            return case.call()
        # IndexError is what a segment out of range has always been.
        except (TypeError, ValueError, RuntimeError, MemoryError, IndexError) as error:
            return error


def _check_error(case: fuzz.Case, error: Exception) -> None:
    text = str(error)
    named = {word for word in re.findall(r"\w+", text) if word in case.arguments}
    assert named or isinstance(error, MemoryError) or TOO_LARGE.search(text), (
        f"{case.name}: the error names no argument: {type(error).__name__}: {text}"
    )


def _check(case: fuzz.Case) -> bool:
    """Whether there is a result; raises where paths disagree or an error names nothing."""
    native, reference = (_outcome(case, path) for path in ("native", "reference"))
    for outcome in (native, reference):
        if isinstance(outcome, Exception):
            _check_error(case, outcome)
    if isinstance(native, Exception) or isinstance(reference, Exception):
        assert isinstance(native, Exception) and isinstance(reference, Exception), (
            f"{case.name}: native {native!r:.300}, reference {reference!r:.300}"
        )
        return False
    for number, (out, expected) in enumerate(zip(native, reference, strict=True)):
        assert (out.shape, out.dtype) == (expected.shape, expected.dtype), f"{case.name}, output {number}"
        same = (out == expected) | (out.isnan() & expected.isnan())
        finite = expected.isfinite() & ~same
        assert_close(out[finite], expected[finite].double(), case.tolerance, f"{case.name}, output {number}")
        assert bool((same | finite).all()), f"{case.name}, output {number}: other NaN or infinite elements"
    return True


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, BATCH))
@pytest.mark.parametrize("make", [fuzz.op_case, fuzz.layer_case], ids=["ops", "layers"])
def test_fuzz(make: Callable[[int], fuzz.Case], first: int) -> None:
    before = torch.get_num_threads()
    # The first batch on two threads, so that errors cross them; calls as small as these are faster on one.
    torch.set_num_threads(2 if first == FIRST else 1)
    try:
        results = sum(_check(make(seed)) for seed in range(first, first + BATCH))
    finally:
        torch.set_num_threads(before)
    # Neither all right nor all wrong: that would test little.
    assert 0.2 * BATCH < results < 0.95 * BATCH
