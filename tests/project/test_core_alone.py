"""Core without the folders of the other parts: builds as a wheel, and passes its own tests."""

import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
# Files beside the parts that a build or a test reads.
KEPT = ("cmake/", "release/", "tests/conftest.py", "tests/helpers/", "tests/stored/")
# Packages of other parts in pyproject.toml, and the plugin of one of them.
OF_OTHERS = (', "snnlib_command", "pytest_snnlib"', '"-ppytest_snnlib", ')

# An editable installation finds its own sources before Python looks into PYTHONPATH.
NO_EDITABLE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
"""


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "release")
    return importlib.import_module("house")


def copied(house: ModuleType, folder: Path) -> list[str]:
    """Copies core, its tests and what both are built with; returns the names of the copied files."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    own = house.House(ROOT)
    tests = tuple(f"tests/{name}/" for name in (*house.PARTS["core"].modules.split(), "native"))
    files = [
        name
        for name in listed.stdout.splitlines()
        if own.part_of(ROOT / name) in ("core", "none") or name.startswith((*KEPT, *tests)) or "/" not in name
    ]
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    project = folder / "pyproject.toml"
    text = project.read_text()
    for words in OF_OTHERS:
        assert words in text
        text = text.replace(words, "")
    project.write_text(text)
    (folder / "sitecustomize.py").write_text(NO_EDITABLE)
    return files


def environment(source: Path) -> dict[str, str]:
    """Returns variables with which Python imports snnlib from a folder, not from where it is installed."""
    return os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def test_the_copy_has_no_other_part(house: ModuleType, tmp_path: Path) -> None:
    files = copied(house, tmp_path)
    assert "snnlib/nn/__init__.py" in files and "tests/nn/test_fuse.py" in files
    for part in (
        "snnlib/data",
        "snnlib/exchange",
        "snnlib/app",
        "snnlib/explain",
        "cpp/data",
        "cpp/exchange",
    ):
        assert (ROOT / part).is_dir() and not (tmp_path / part).exists()
    command = [sys.executable, "-c", "from snnlib import *; print(*sorted(globals()))"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment(tmp_path), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert {"SpikingLinear", "neurons"} <= {*names}
    assert not {"convert", "data", "exchange", "explain", "to_nir"} & {*names}


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_core_alone_builds_and_passes_its_tests(house: ModuleType, tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    copied(house, source)
    build = ("pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", tmp_path)
    options = ("-Ccmake.define.SNNLIB_INSTRUCTION_SETS=NATIVE", "-Ccmake.define.SNNLIB_CUDA=OFF")
    subprocess.run([sys.executable, "-m", *build, *options], cwd=source, check=True)
    (wheel,) = tmp_path.glob("snnlib-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert next(site.glob("snnlib/_C*")) and not (site / "snnlib" / "data").exists()
    # The sources, whose examples are tests, run with the module of the wheel.
    shutil.copy(next(site.glob("snnlib/_C*")), source / "snnlib")
    tests = (
        "-m",
        "pytest",
        "-q",
        "-m",
        "not slow",
        "--part",
        "core",
        "--numprocesses",
        "auto",
        "--dist",
        "loadfile",
    )
    done = subprocess.run(
        [sys.executable, *tests],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        env=environment(source),
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
