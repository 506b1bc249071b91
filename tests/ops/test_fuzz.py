"""Fuzz of the raw ops and the public layers: a result that the reference gives too, or an error that names an argument.

2000 calls, always the same; others by SNNLIB_FUZZ_SEED, a number to start from, and for as long as one likes by
`make fuzz`. Under sanitizers it is part of `make sanitize`.
"""

import os
from collections.abc import Callable

import fuzz
import fuzz_layers
import pytest
import torch

FIRST = int(os.environ.get("SNNLIB_FUZZ_SEED", "0"))
CASES, BATCH = 1000, 50


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, BATCH))
@pytest.mark.parametrize("make", [fuzz.op_case, fuzz_layers.layer_case], ids=["ops", "layers"])
def test_fuzz(make: Callable[[int], fuzz.Case], first: int) -> None:
    # The first batch on two threads, so that errors cross them; calls as small as these are faster on one.
    torch.set_num_threads(2 if first == FIRST else 1)
    results = sum(fuzz.check(make(seed)) for seed in range(first, first + BATCH))
    # Neither all right nor all wrong: that would test little.
    assert 0.2 * BATCH < results < 0.95 * BATCH
