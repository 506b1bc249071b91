"""The CUDA kernels as loops on the CPU: builds `_C_emulated` where a compiler and CUDA's headers are, and loads it."""

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
# "address,undefined" tests the build of `make cuda-emulation-asan`.
SANITIZE = os.environ.get("SNNLIB_SANITIZE", "")


def tool(name: str) -> str | None:
    """A program of this environment, or of the system."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_without_preload())
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )


def _without_preload() -> dict[str, str]:
    """A sanitizer that is loaded into Python need not be loaded into the compiler."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


@cache
def module() -> ModuleType:
    """The module, built into `build/` and only again where a source changed; skips the test where it cannot be."""
    cmake, ninja = tool("cmake"), tool("ninja")
    headers = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include", "cuda_fp16.h")
    if cmake is None or ninja is None or shutil.which("c++") is None:
        pytest.skip("needs cmake, ninja and a C++ compiler")
    if not headers.exists():
        pytest.skip(f"needs the headers of a CUDA toolkit: no {headers}; set CUDA_HOME")
    pybind11 = importlib.util.find_spec("pybind11")
    if pybind11 is None or not pybind11.submodule_search_locations:
        pytest.skip("needs pybind11")
    build = ROOT / "build" / f"emulation-{SANITIZE.replace(',', '-')}".rstrip("-")
    build.mkdir(parents=True, exist_ok=True)
    # Workers of one run build in the same folder.
    with FileLock(build / "lock"):
        _run(
            *(cmake, "-S", ROOT, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"),
            *("-DSNNLIB_CUDA=OFF", "-DSNNLIB_EMULATION=ON", f"-DSNNLIB_SANITIZE={SANITIZE}"),
            f"-Dpybind11_DIR={pybind11.submodule_search_locations[0]}/share/cmake/pybind11",
            *(f"-DPYTHON_EXECUTABLE={sys.executable}", f"-DPython_EXECUTABLE={sys.executable}"),
        )
        _run(cmake, "--build", build, "--target", "_C_emulated")
    (file,) = build.glob("_C_emulated*.so")
    spec = importlib.util.spec_from_file_location("_C_emulated", file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def counting(*names: str) -> tuple[SimpleNamespace, list[str]]:
    """The kernels, and a list to which each call of those that are named adds its name."""
    kernels, calls = module(), list[str]()
    found = SimpleNamespace(**vars(kernels))
    for name in names:

        def counted(name: str = name, **arguments: Any) -> Any:
            calls.append(name)
            return getattr(kernels, name)(**arguments)

        setattr(found, name, counted)
    return found, calls
