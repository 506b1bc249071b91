"""cuda/check.py reads ptxas's reports: architectures, and kernels that keep values in local memory."""

import math
import re
from pathlib import Path
from types import ModuleType

import pytest
from script import script

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
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "cuda")
    return script("cuda/check.py")


def test_a_spill_is_found(check: ModuleType) -> None:
    architectures, found = check.spills(REPORT)
    assert architectures == {"sm_75", "sm_90"}
    assert found == ["_Z3badv for sm_75: 8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads"]


def test_registers_of_one_architecture(check: ModuleType) -> None:
    assert check.registers(REPORT, "sm_90") == {"_Z4goodv": 56}


def test_quotients_by_constants_round_once() -> None:
    root = Path(__file__).parents[2]
    files = [file for folder in ("cpp/include", "cuda") for file in sorted((root / folder).rglob("*"))]
    sources = [file for file in files if file.suffix in {".h", ".cu"}]
    found = {
        f"{file.name}: {line}"
        for file in sources
        for line in file.read_text(encoding="utf-8").splitlines()
        for divisor in re.findall(r"/ [A-Z]\(([0-9.]+)\)", line)
        if math.frexp(float(divisor))[0] != 0.5
    }
    # nvcc makes them products with a reciprocal; `quotient` of neurons/surrogate.h keeps them.
    assert len(sources) > 30 and not found


ASSEMBLY = """
\t\tFunction : void pair_forward_kernel<float, 4, false, true>(PairPool)
        /*0000*/                   LDG.E.128 R4, [R2] ;
        /*0010*/                   FADD R4, R4, R5 ;
        /*0020*/                   STG.E.64 [R2], R4 ;
        /*0030*/                   EXIT ;
        /*0040*/                   BRA 0x40 ;
        /*0050*/                   NOP ;
"""


def test_instructions_per_window_and_widths_of_loads(check: ModuleType) -> None:
    kernels = check.functions(ASSEMBLY)
    assert check.check_pools(kernels) == [
        "pair_forward_kernel<float, 4, false, true>: 2.0 instructions per window, 1 loads of 16 bytes"
    ]
    with pytest.raises(SystemExit, match="whole vectors"):
        check.check_pools(check.functions(ASSEMBLY.replace(".128", "")))
    many = "        /*0010*/                   FADD R4, R4, R5 ;\n" * 60
    with pytest.raises(SystemExit, match="at most 30"):
        check.check_pools(check.functions(ASSEMBLY.replace("        /*0010*/", many + "        /*0010*/", 1)))
    with pytest.raises(SystemExit, match="got none"):
        check.check_pools({})


LOOP = """
		Function : kernel1
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E R4, desc[UR4][R2.64] ;
        /*0020*/                   FADD R4, R4, R5 ;
        /*0030*/                   STG.E desc[UR4][R2.64], R4 ;
        /*0040*/                   LDG.E R5, desc[UR4][R2.64+0x4] ;
        /*0050*/               @P0 BRA 0x10 ;
        /*0060*/               @P1 BRA 0x0 ;
        /*0070*/                   EXIT ;
"""


def test_instructions_per_step_are_those_of_the_innermost_loop(check: ModuleType) -> None:
    (kernel,) = check.functions(LOOP).values()
    assert check.per_step(kernel, check.FORWARD) == 5 / 2
    with pytest.raises(ValueError, match="expected a loop with LDGSTS, got none"):
        check.per_step(kernel, check.BACKWARD)


def test_a_scan_above_its_bound_is_refused(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = check.Bound("Copy", r"(kernel)(\d)", check.FORWARD, {"kernel": 1}, 2, {"kernel": 3})
    monkeypatch.setattr(check, "BOUNDS", (bound,))
    kernels = check.functions(LOOP)
    assert check.check_scans(kernels) == [
        "Copy, kernel: 2.5 instructions per neuron-step, 4 bytes, 95% of a copy expected"
    ]
    monkeypatch.setattr(check, "BOUNDS", (bound._replace(most={"kernel": 2}),))
    with pytest.raises(SystemExit, match="expected at most 2: Copy"):
        check.check_scans(kernels)
    for others in ({}, {"kernel2": kernels["kernel1"]}):
        with pytest.raises(SystemExit, match="Copy: expected kernels for kernel, got none"):
            check.check_scans(others)


def test_a_sum_above_its_bound_is_refused(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LOOP.replace("STG.E desc[UR4][R2.64], R4", "FMUL R4, R4, R5").replace("FADD R4", "LDS R4")
    adds = check.functions(loop)
    monkeypatch.setattr(check, "SUMS", (("sum", "kernel1", 3),))
    assert check.check_sums(adds) == ["sum: 2.5 instructions"]
    with pytest.raises(SystemExit, match="expected one kernel kernel1, got 0"):
        check.check_sums({})
    monkeypatch.setattr(check, "SUMS", (("sum", "kernel1", 2),))
    with pytest.raises(SystemExit, match="expected at most 2: sum"):
        check.check_sums(adds)


def test_evict_first_stores_and_integer_divisions_are_refused(check: ModuleType) -> None:
    check.check_all(check.functions(LOOP))
    with pytest.raises(SystemExit, match="stay in the cache"):
        check.check_all(check.functions(LOOP.replace("STG.E", "STG.E.EF")))
    divides = LOOP.replace("FADD R4, R4, R5", "I2F.U32.RP R4, R5")
    with pytest.raises(SystemExit, match="got 1 of integers in kernel"):
        check.check_all(check.functions(divides))
    check.check_all(check.functions(divides.replace("kernel", "snnlib::pool_forward_kernel")))


def test_without_nvcc_it_says_so(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    check.main()
    assert capsys.readouterr().out == "cuda-check skipped: there is no nvcc on the PATH\n"


def test_instructions_of_delays(check: ModuleType) -> None:
    body = ASSEMBLY.partition("\n")[2].partition("\n")[2]
    names = [(elements, earlier) for elements in (1, 4) for earlier in ("false", "true")]
    assembly = "".join(
        f"\t\tFunction : void delay_shift_kernel<float, unsigned int, {elements}, {earlier}>(long)\n{body}"
        for elements, earlier in names
    )
    lines = check.check_shifts(check.functions(assembly))
    assert lines[0] == (
        "delayed sequence, 1 at a time: 4.0 instructions per element, 8 bytes, 95% of a copy expected"
    )
    assert [line.partition(" instructions")[0][-3:] for line in lines] == ["4.0", "4.0", "1.0", "1.0"]
    with pytest.raises(SystemExit, match="expected kernels"):
        check.check_shifts(check.functions(assembly.replace("4, true", "8, tru")))
    add = "FADD R4, R4, R5 ;\n"
    many = assembly.replace(add, add + f"        /*0010*/   {add}" * 100)
    with pytest.raises(SystemExit, match="at most 80"):
        check.check_shifts(check.functions(many))
