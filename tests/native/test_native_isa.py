"""`SNNLIB_INSTRUCTION_SETS=NATIVE` compiles the kernels that the module would choose: cmake/native_isa.cmake."""

import subprocess
from pathlib import Path

import pytest
from emulation import tool

from snnlib.backends import native

SCRIPT = Path(__file__).parents[2] / "cmake" / "native_isa.cmake"
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(native LANGUAGES CXX)
include("{script}")
message("<${{SNNLIB_NATIVE_ISA}}>")
"""


def test_native_isa_is_what_the_module_chooses(tmp_path: Path) -> None:
    cmake, ninja, module = tool("cmake"), tool("ninja"), native._module
    if cmake is None or ninja is None or module is None:
        pytest.skip("needs cmake, ninja and the native module")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(script=SCRIPT.as_posix()))
    done = subprocess.run(
        [cmake, "-S", tmp_path, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"],
        capture_output=True,
        text=True,
        check=True,
    )
    widest = module.available_isas()[-1]
    # Nothing is added to the portable kernels where no wider ones fit.
    assert f"<{widest if widest != 'portable' else ''}>" in done.stderr
