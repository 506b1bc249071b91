"""No result of an op moves by a bit: `op_bits.py` says what is stored."""

import json

import pytest
import torch
from op_bits import FILE, bits, dtypes, keys, stored, torch_instructions
from opdb import OPS

from snnlib.backends import native


# One dtype always, the others by `make test-slow`.
@pytest.mark.parametrize("only", [torch.float32, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [case.name for case in OPS.values() if case.own_kernels])
def test_bits_are_those_stored(name: str, only: torch.dtype | None) -> None:
    module = native._module
    if module is None or native.explain_path()[0] != "native":
        pytest.skip("the reference adds some sums in another order")
    whole = json.loads(FILE.read_text(encoding="utf-8"))
    if torch_instructions() != whole["torch"]:
        pytest.skip(
            f"stored where torch computes with {whole['torch']}, here it does with {torch_instructions()}"
        )
    if module.isa() not in whole["bits"]:
        pytest.skip(f"nothing is stored of {module.isa()} kernels")
    before, case = stored(module.isa())[name], OPS[name]
    assert set(before) == set(keys(case))
    for number, key in enumerate(keys(case)):
        for dtype, wanted in zip(dtypes(case), before[key], strict=True):
            if only in (None, dtype):
                assert bits(case, number, dtype) == wanted, f"{name}: {key}, {dtype}"


def test_another_result_has_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    case, dtype = OPS["scan_forward"], torch.float32
    before = bits(case, 0, dtype)
    call = type(case).__call__
    monkeypatch.setattr(
        type(case), "__call__", lambda self, *args: [out.nextafter(out + 1) for out in call(self, *args)]
    )
    assert bits(case, 0, dtype) != before
