"""Nets beside torch's other tools: `torch.export` with dynamic T and N, `torch.func`, explanations of any layer."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import snnlib
from snnlib import neurons, surrogate


def _events(steps: int, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(steps)
    return (torch.rand(steps, batch, 2, 8, 8, generator=generator) < 0.3).float()


def _srm() -> nn.Sequential:
    return nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3), snnlib.SpikeAvgPool2d(2), snnlib.SRMLinear(36, 5), snnlib.SRMReadout(5, 3)
    )


NETS: dict[str, Callable[[], nn.Module]] = {
    "srm": _srm,
    "fused": lambda: snnlib.fuse_(_srm()),
    "standardised": lambda: snnlib.nn.standardize_weights_(_srm()),
    "lif": lambda: nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3),
        snnlib.AvgPool2d(2),
        snnlib.SpikingLinear(36, 3, neuron=neurons.CubaLIF()),
    ),
    "torch layers": lambda: nn.Sequential(
        snnlib.PerStep(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)),
        neurons.LIF(),
        snnlib.PerStep(nn.Flatten(), nn.Linear(4 * 36, 3)),
        neurons.Integrator(),
    ),
}


# torch's own, inside its exporter.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", NETS)
def test_exported_nets_take_any_number_of_steps_and_samples(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name]().eval()
    dynamic = ({0: Dim("T"), 1: Dim("N")},)
    program = torch.export.export(net, (_events(10, 3),), dynamic_shapes=dynamic).module()
    for x in (_events(10, 3), _events(17, 5)):
        assert torch.equal(program(x), net(x))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_batch_first_nets_are_exported_and_stored(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, batch_first=True),
        snnlib.AvgPool2d(2),
        snnlib.SRMLinear(36, 5, batch_first=True),
        snnlib.SpikingRNN(5, 6, batch_first=True),
    ).eval()
    x, other = (_events(steps, batch).transpose(0, 1).contiguous() for steps, batch in ((10, 3), (17, 5)))
    program = torch.export.export(net, (x,), dynamic_shapes=({0: Dim("N"), 1: Dim("T")},))
    torch.export.save(program, tmp_path / "net.pt2")
    stored = torch.export.load(tmp_path / "net.pt2").module()
    for events in (x, other):
        assert torch.equal(stored(events), net(events)) and stored(events).stride() == net(events).stride()


@pytest.mark.parametrize("name", ["srm", "fused", "lif"])
def test_function_transforms_are_refused_in_one_sentence(name: str) -> None:
    net = NETS[name]()
    with pytest.raises(
        RuntimeError, match=r"expected a call outside torch.func.vmap.*batch dimension N of \[T, N, "
    ):
        torch.func.vmap(net)(torch.stack([_events(5, 2)] * 2))


@pytest.mark.parametrize(
    ("neuron", "backward"),
    [
        (lambda: neurons.LIF(surrogate=surrogate.Triangle(width=0.3)), "sparse"),
        (neurons.LIF, "everywhere"),
        (lambda: neurons.LIF(learnable=("tau",)), "everywhere"),
        (neurons.CubaLIF, "everywhere"),
        (neurons.SRM, "sparse"),
    ],
)
def test_algorithms_of_any_layer_are_explained(neuron: Callable[[], neurons.Neuron], backward: str) -> None:
    torch.manual_seed(0)
    layer = snnlib.SpikingConv2d(2, 32, 5, neuron=neuron())
    x = (torch.rand(20, 4, 2, 24, 24, generator=torch.Generator().manual_seed(1)) < 0.02).float()
    explanation = snnlib.explain_dispatch(layer, x)
    assert explanation.forward.path == "events"
    assert explanation.rate == pytest.approx(float(layer(x).detach().mean()))
    if backward == "everywhere":
        assert explanation.entries == 1
    else:
        assert explanation.rate <= explanation.entries < 0.3
    assert "of their steps have a gradient" in str(explanation)
