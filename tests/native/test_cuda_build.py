"""CUDA kernels are built by default only where an NVIDIA driver is: cmake/nvidia_driver.cmake looks for its files."""

import subprocess
from pathlib import Path

import pytest
from emulation import tool

SCRIPT = Path(__file__).parents[2] / "cmake" / "nvidia_driver.cmake"


DRIVER = (
    "proc/driver/nvidia/version",
    "dev/nvidiactl",
    "usr/lib/wsl/lib/libcuda.so.1",
    "Windows/System32/nvcuda.dll",
)
OTHER = ("usr/local/cuda/bin/nvcc", "dev/null")


@pytest.mark.parametrize("file", [*DRIVER, *OTHER])
def test_driver_is_found_by_its_files(file: str, tmp_path: Path) -> None:
    cmake = tool("cmake")
    if cmake is None:
        pytest.skip("needs cmake")
    root = f"{tmp_path.as_posix()}/"
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    call = tmp_path / "call.cmake"
    call.write_text(
        f'include("{SCRIPT.as_posix()}")\nsnnlib_find_nvidia_driver("{root}" found)\nmessage("<${{found}}>")'
    )
    done = subprocess.run([cmake, "-P", call], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == (f"<{root}{file}>" if file in DRIVER else "<>")
