"""`snnlib nir show` and `verify`."""

import sys
from pathlib import Path

import numpy as np
import pytest
from command import run
from nir_graphs import nir, single
from torch import nn

import snnlib
from snnlib import SpikingLinear
from snnlib.neurons import IF


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code of `snnlib nir`, and what it said."""
    code, out, err = run(capsys, "nir", *arguments)
    return code, out + err


def test_the_command_shows_a_graph_and_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.nir"
    nir.write(path, snnlib.to_nir(nn.Sequential(SpikingLinear(6, 4, neuron=IF()))))
    assert "0.neuron  IF" in command(capsys, "show", path)[1]
    monkeypatch.setitem(sys.modules, "norse.torch", None)
    monkeypatch.setitem(sys.modules, "norse", None)
    code, said = command(capsys, "verify", path, "--target", "norse")
    assert code == 2
    assert "needs the package norse, which is not installed: pip install norse" in " ".join(said.split())
    nir.write(path, single(nir.IF(r=np.ones(3), v_threshold=np.ones(3)), (3,)))
    code, said = command(capsys, "verify", path, "--target", "norse")
    assert code == 2 and said.startswith("error: --dt: expected a step at which the graph's neurons fire")
    code, said = command(capsys, "show", tmp_path / "none.nir")
    assert code == 2 and said.startswith("error: ")


def test_the_command_writes_the_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for library in ("snntorch", "sinabs"):
        pytest.importorskip(library, reason=f"compares with {library}, which is not installed")
    path = tmp_path / "net.nir"
    nir.write(path, snnlib.to_nir(nn.Sequential(SpikingLinear(6, 4, neuron=IF()))))
    code, said = command(capsys, "verify", path, "--target", "snntorch")
    assert code == 0 and "a variant of the graph is exact there" in said
    assert (tmp_path / "net.snntorch.nir").exists()
    assert command(capsys, "verify", path, "--target", "sinabs")[0] == 1
