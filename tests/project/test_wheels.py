"""Wheels with CUDA kernels: their version, and what they are built for."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def toolkit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "release")
    return importlib.import_module("cuda_toolkit")


def test_the_version_tells_a_wheel_with_kernels(toolkit: ModuleType, tmp_path: Path) -> None:
    source = (ROOT / "snnlib" / "__init__.py").read_text()
    copy = tmp_path / "snnlib" / "__init__.py"
    copy.parent.mkdir()
    copy.write_text(source)
    toolkit.mark(tmp_path)
    lines = zip(source.splitlines(), copy.read_text().splitlines(), strict=True)
    ((before, after),) = (pair for pair in lines if pair[0] != pair[1])
    assert after == before[:-1] + '+cu130"'
    with pytest.raises(ValueError, match="expected one line with a version without suffix, got 0"):
        toolkit.mark(tmp_path)


def test_the_workflow_builds_for_the_same_gpus(toolkit: ModuleType) -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    for name, value in toolkit.SETTINGS.items():
        assert f"cmake.define.{name}={value}\n" in workflow
