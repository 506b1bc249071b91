"""What docs/extending.md shows, done to a copy of the sources: each patch applies, and its tests pass.

A patch that no longer applies is made again, so that the page stays true: change the files by hand as it says there,
then `git diff --cached -U1 > tests/extending/NAME.patch`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snnlib import _C

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent
# By patch: the most files that it takes, tests included.
MOST_FILES = {"neuron": 3, "layer": 3, "loss": 3, "event_format": 2, "data_set": 3}
# Those that change the kernels, which are then built: `make test-slow`.
MOST_FILES_OF_KERNELS = {"flag": 8, "kernel": 15}
# Tests of all ops that take up a kernel's case.
OPS, NEW_KERNELS = ("tests/ops/test_ops.py", "tests/ops/test_invariance.py"), "through_floor or first_spike"
# Tests of all neurons and of all formats that take up new ones by themselves.
GENERAL = ("tests/neurons/test_neurons.py", "tests/data/formats/test_formats_round_trip.py")
NEW = "eif or difference or margin or columns or poker"
# The sources of the copy, and not those that are installed to be edited.
RUN = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "scikit_build" not in type(finder).__name__.lower()
                    and "editable" not in type(finder).__module__]
sys.path.insert(0, ".")
import pytest, snnlib
from snnlib import _C
assert snnlib.__file__.startswith(sys.argv[1]) and _C.__file__.startswith(sys.argv[1]), snnlib.__file__
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]]))
"""


def files_of(patch: Path) -> list[str]:
    return re.findall(r"^diff --git a/\S+ b/(\S+)$", patch.read_text(), re.MULTILINE)


def apply(patch: Path, tree: Path) -> None:
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    command = ["git", "apply", "--whitespace=error", str(patch)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{patch.name}: {done.stderr}"


def sources(tree: Path) -> None:
    """The Python files of the library and of its tests, with their times, so that what is compiled stays good."""
    for folder in ("snnlib", "pytest_snnlib", "tests"):
        for path in (ROOT / folder).rglob("*.py*"):
            if path.suffix in (".py", ".pyc"):
                place = tree / path.relative_to(ROOT)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, place)
    shutil.copyfile(ROOT / "pyproject.toml", tree / "pyproject.toml")
    kernels = Path(_C.__file__)
    (tree / "snnlib" / kernels.name).symlink_to(kernels)


def run_tests(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tree), *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(("name", "most"), [*MOST_FILES.items(), *MOST_FILES_OF_KERNELS.items()])
def test_takes_few_files(name: str, most: int) -> None:
    patch = PATCHES / f"{name}.patch"
    assert len(files_of(patch)) <= most
    page = (ROOT / "docs" / "extending.md").read_text()
    for file in files_of(patch):
        assert file in page, f"docs/extending.md says nothing of {file}"


def test_patched_sources_pass(tmp_path: Path) -> None:
    sources(tmp_path)
    added = []
    for name in MOST_FILES:
        patch = PATCHES / f"{name}.patch"
        before = {file for file in files_of(patch) if (tmp_path / file).exists()}
        apply(patch, tmp_path)
        added += [file for file in files_of(patch) if file not in before]
    shown = run_tests(tmp_path, "-k", NEW, *added, *GENERAL)
    passed = re.search(r"(\d+) passed", shown)
    # Those of the patches, and for the neuron and the format those that all of them have.
    assert passed is not None and int(passed[1]) > 30, shown


def native_sources(tree: Path) -> None:
    """C++ and CUDA, and no compiled module."""
    for folder in ("cpp", "cmake", "cuda"):
        shutil.copytree(ROOT / folder, tree / folder)
    for path in (ROOT / "CMakeLists.txt", *(ROOT / "snnlib").rglob("*.h")):
        shutil.copyfile(path, tree / path.relative_to(ROOT))
    (tree / "snnlib" / Path(_C.__file__).name).unlink()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_patched_kernels_pass(tmp_path: Path) -> None:
    sources(tmp_path)
    native_sources(tmp_path)
    patches = [PATCHES / f"{name}.patch" for name in MOST_FILES_OF_KERNELS]
    for patch in patches:
        apply(patch, tmp_path)
    python = sys.executable
    environment = {**os.environ, "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"}
    pybind11 = subprocess.check_output([python, "-m", "pybind11", "--cmakedir"], text=True).strip()
    options = [f"-DPython_EXECUTABLE={python}", f"-DPYTHON_EXECUTABLE={python}", f"-Dpybind11_DIR={pybind11}"]
    for command in (
        ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DSNNLIB_CUDA=OFF", *options],
        ["cmake", "--build", "build", "--target", "_C"],
    ):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    (module,) = (tmp_path / "build").glob("_C.*")
    shutil.copyfile(module, tmp_path / "snnlib" / module.name)
    added = [file for patch in patches for file in files_of(patch) if Path(file).name.startswith("test_")]
    shown = run_tests(tmp_path, "-k", NEW_KERNELS, *added, *OPS)
    passed = re.search(r"(\d+) passed", shown)
    assert passed is not None and int(passed[1]) > 15, shown
