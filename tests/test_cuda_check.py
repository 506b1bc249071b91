"""cuda/check.py reads ptxas's reports: architectures, and kernels that keep values in local memory."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

REPORT = """
[1/2] Building CUDA object CMakeFiles/snnlib_cuda.dir/cuda/pool.cu.o
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4goodv' for 'sm_90'
ptxas info    : Function properties for _Z4goodv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 56 registers, used 0 barriers
ptxas info    : Compiling entry function '_Z3badv' for 'sm_75'
ptxas info    : Function properties for _Z3badv
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 8 bytes cumulative stack size
"""


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", Path(__file__).parents[1] / "cuda" / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_spill_is_found(check: ModuleType) -> None:
    architectures, found = check.spills(REPORT)
    assert architectures == {"sm_75", "sm_90"}
    assert found == ["_Z3badv for sm_75: 8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads"]


def test_registers_of_one_architecture(check: ModuleType) -> None:
    assert check.registers(REPORT, "sm_90") == {"_Z4goodv": 56}


ASSEMBLY = """
\t\tFunction : void pair_forward_kernel<float, 4, false, true>(PairPool)
        /*0000*/                   LDG.E.128 R4, [R2] ;
        /*0010*/                   FADD R4, R4, R5 ;
        /*0020*/                   STG.E.EF.64 [R2], R4 ;
        /*0030*/                   EXIT ;
        /*0040*/                   BRA 0x40 ;
        /*0050*/                   NOP ;
"""


def test_instructions_per_window_and_widths_of_loads(check: ModuleType) -> None:
    kernels = check.instructions(ASSEMBLY)
    assert check.check_pools(kernels) == [
        "pair_forward_kernel<float, 4, false, true>: 2.0 instructions per window, 1 loads of 16 bytes"
    ]
    with pytest.raises(SystemExit, match="whole vectors"):
        check.check_pools(check.instructions(ASSEMBLY.replace(".128", "")))
    many = "        /*0010*/                   FADD R4, R4, R5 ;\n" * 60
    with pytest.raises(SystemExit, match="at most 30"):
        check.check_pools(
            check.instructions(ASSEMBLY.replace("        /*0010*/", many + "        /*0010*/", 1))
        )
    with pytest.raises(SystemExit, match="got none"):
        check.check_pools({})


def test_without_nvcc_it_says_so(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    check.main()
    assert capsys.readouterr().out == "cuda-check skipped: there is no nvcc on the PATH\n"
