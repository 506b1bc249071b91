"""ONNX graphs: the same spikes in ONNX's own reference evaluator, for any number of steps and samples."""

from pathlib import Path

import numpy as np
import pytest
import torch
from integer_nets import NETS, built, counts
from torch import Tensor, nn

import snnlib
from snnlib.exchange import export_onnx
from snnlib.neurons import CubaLIF, Integrator


def test_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(
        ImportError,
        match=r"ONNX graphs need the package onnx, which is not installed: pip install 'snnlib\[onnx\]'",
    ):
        export_onnx(nn.Sequential(snnlib.SpikingLinear(3, 2)), tmp_path / "a.onnx", torch.zeros(2, 1, 3))


def _each_channel_its_own() -> tuple[nn.Module, Tensor]:
    taus = torch.tensor([1.0, 2.0, 4.0, 8.0])
    layer = snnlib.SpikingLinear(12, 4, neuron=CubaLIF(taus, taus.flip(0), reset="subtract"))
    nn.init.uniform_(layer.weight, 0.0, 2.0)
    net = nn.Sequential(layer, snnlib.SpikingLinear(4, 4, neuron=Integrator(taus, tau_s=taus)))
    return net, counts(25, 4, 12)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (make, _) in NETS.items()
        if not any(isinstance(m, snnlib.Delays) for m in make().modules())
    ]
    + ["time constants"],
)
def test_the_graph_is_the_net(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="runs an ONNX graph; the package onnx is not installed")
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

    net, x = _each_channel_its_own() if name == "time constants" else built(name)
    export_onnx(net, tmp_path / "net.onnx", x)
    evaluator = ReferenceEvaluator(str(tmp_path / "net.onnx"))
    for steps, batch in ((25, 4), (7, 2)):
        part = x[:steps, :batch]
        with torch.no_grad():
            expected = net(part).numpy()
        (found,) = evaluator.run(None, {"x": part.numpy()})
        assert found.shape == expected.shape
        if set(np.unique(expected)) <= {0.0, 1.0}:
            assert (found == expected).mean() > 0.999 and (steps < 25 or expected.any())
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_what_has_no_counterpart_is_named(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="writes an ONNX graph; the package onnx is not installed")
    late = nn.Sequential(snnlib.SpikingLinear(12, 4, delays=snnlib.Delays(3)))
    with pytest.raises(ValueError, match="0: delays have no counterpart in a dense graph"):
        export_onnx(late, tmp_path / "a.onnx", counts(5, 2, 12))
    branch = nn.Sequential(snnlib.nn.Residual(snnlib.SpikingLinear(12, 12)))
    with pytest.raises(
        ValueError, match=r"0 \(Residual\): a module that is no layer, neuron or pool of a chain"
    ):
        export_onnx(branch, tmp_path / "a.onnx", counts(5, 2, 12))
    assert not list(tmp_path.iterdir())
