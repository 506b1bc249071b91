"""No result of an op moves by a bit: `op_bits.py` says what is stored."""

import pytest
import scan_samples
import torch
from op_bits import bits, dtypes, keys, random_numbers, stored
from opdb import OPS
from released import UNRELEASED

from snnlib.backends import native
from snnlib.neurons import MODELS

REMEDY = "where this is meant, run `python tests/helpers/op_bits.py --write` and say why in the commit"


# Float32 always, the other dtypes by `make test-slow`.
@pytest.mark.parametrize("only", [torch.float32, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [case.name for case in OPS.values() if case.own_kernels])
def test_bits_are_those_stored(name: str, only: torch.dtype | None) -> None:
    if native.explain_path()[0] != "native":
        pytest.skip("the reference adds some sums in another order")
    whole = stored()
    if random_numbers() != whole["random numbers"]:
        pytest.skip("torch draws other samples on this processor")
    before, case = whole["bits"][name], OPS[name]
    # A new model gets its bits with the next release.
    new = {scan_samples.sample_name(model) for model in MODELS} if UNRELEASED else set()
    changed = set(before) ^ set(keys(case))
    assert set(before) <= set(keys(case)) and changed <= new, f"{sorted(changed)}: {REMEDY}"
    for number, key in enumerate(keys(case)):
        if key not in before:
            continue
        for dtype, wanted in zip(dtypes(case), before[key], strict=True):
            if only in (None, dtype):
                assert bits(case, number, dtype) == wanted, f"{name}: {key}, {dtype}: {REMEDY}"


def test_another_result_has_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    case, dtype = OPS["scan_forward"], torch.float32
    before = bits(case, 0, dtype)
    call = type(case).__call__
    monkeypatch.setattr(
        type(case), "__call__", lambda self, *args: [out.nextafter(out + 1) for out in call(self, *args)]
    )
    assert bits(case, 0, dtype) != before
