"""`prepare_` on nets of torch's layers with neurons between them."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.learning.preparing.report import Preparation
from snnlib.nn import PerStep


def _events() -> Tensor:
    return (torch.rand(15, 6, 2, 8, 8, generator=torch.Generator().manual_seed(1)) < 0.2).float()


def _normalised() -> nn.Sequential:
    return nn.Sequential(
        PerStep(nn.Conv2d(2, 5, 3, bias=False), nn.BatchNorm2d(5)),
        neurons.LIF(),
        PerStep(nn.Flatten(), nn.Linear(5 * 36, 4)),
        neurons.CubaLIF(),
    )


def _plain() -> nn.Sequential:
    """Biases, no biases, a readout, a model whose potential is not known."""
    return nn.Sequential(
        PerStep(nn.Conv2d(2, 5, 3)),
        neurons.KLIF(),
        PerStep(nn.Flatten(), nn.Linear(5 * 36, 20, bias=False)),
        neurons.LIF(),
        PerStep(nn.Linear(20, 4)),
        neurons.Integrator(),
    )


NETS: dict[str, Callable[[], nn.Sequential]] = {"normalised": _normalised, "plain": _plain}


def _rates(net: nn.Sequential) -> dict[str, float]:
    counter, x = {}, _events()
    with torch.no_grad():
        for name, layer in net.named_children():
            x = layer(x)
            if isinstance(layer, neurons.Neuron):
                counter[name] = float(x.mean())
    return counter


def test_graded_neurons_are_saturated_by_steps_and_not_by_spikes() -> None:
    torch.manual_seed(0)
    layer = snnlib.SpikingLinear(40, 30, neuron=neurons.LIF(tau=2.0, levels=8))
    net = nn.Sequential(layer, snnlib.SpikingLinear(30, 3, neuron=neurons.Integrator(3.0)))
    x = (torch.rand(20, 16, 40) < 0.2).float()
    report = snnlib.prepare_(net, x, target_rate=0.8)
    assert report.layers[0].rate == pytest.approx(0.8, rel=0.1)
    assert layer(x).clamp(max=1).mean() < 0.5
    assert report.layers[0].saturated == 0
    assert not report.findings()


@pytest.mark.parametrize("kind", NETS)
def test_rates_are_set_by_the_modules_before(kind: str) -> None:
    torch.manual_seed(0)
    net = NETS[kind]()
    before = copy.deepcopy(net)
    report = snnlib.prepare_(net, _events(), target_rate=0.1)
    assert not report.findings()
    expected = {"normalised": {"1": 0.1, "3": 0.5}, "plain": {"1": 0.1, "3": 0.1}}[kind]
    # Nothing but weights: no parameter more or less, batch statistics and modes as they were.
    keys = [key for key in net.state_dict() if not key.endswith("prepared")]
    assert keys == list(before.state_dict())
    for (name, one), other in zip(net.named_buffers(), before.named_buffers(), strict=True):
        assert torch.equal(one, other[1]), name
    rates = _rates(net.train())
    for name, rate in expected.items():
        assert rates[name] == pytest.approx(rate, rel=0.15)
    if kind == "plain":
        with torch.no_grad():
            assert float(net(_events()).square().mean().sqrt()) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("shift", [0.0, -4.0])
@pytest.mark.parametrize("surrogate", [snnlib.surrogate.ATan(), snnlib.surrogate.Triangle()])
def test_batch_norm_keeps_a_net_that_fires_and_whose_neurons_learn_when_silent(
    surrogate: snnlib.surrogate.Surrogate, shift: float
) -> None:
    torch.manual_seed(0)
    net = snnlib.models.from_notation(
        "6C3-P2-10", (2, 8, 8), neuron=neurons.LIF(surrogate=surrogate), batch_norm=True
    )
    nn.init.constant_(net.conv1[1].bias, shift)
    with torch.no_grad():
        # As drawn for so few inputs it hardly fires.
        net.fc1.weight *= 3
    before = copy.deepcopy(net.state_dict())
    report = snnlib.prepare_(net, _events())
    assert report.findings() == []
    stays = all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    assert stays == (shift == 0 and isinstance(surrogate, snnlib.surrogate.ATan))
    if stays:
        assert all(0.02 < layer.rate < 0.3 and layer.rate == layer.target for layer in report.layers)
        # Where a rate is asked for it is set.
        assert snnlib.prepare_(net, _events(), 0.05, again=True).layers[0].rate == pytest.approx(
            0.05, rel=0.1
        )


def test_neurons_behind_a_sum_are_left_and_reported() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.lif = PerStep(nn.Linear(6, 4)), PerStep(nn.Linear(6, 4)), neurons.LIF()

        def forward(self, x: Tensor) -> Tensor:
            return self.lif(1e-3 * (self.a(x) + self.b(x)))

    torch.manual_seed(0)
    net = Sum()
    before = copy.deepcopy(net.state_dict())
    report = snnlib.prepare_(net, torch.ones(5, 2, 6))
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    assert any("lif fires at 0.0%" in finding for finding in report.findings())


@pytest.mark.parametrize(
    "make", [neurons.SRM, lambda: neurons.CubaLIF(gradient="event")], ids=["SRM", "CubaLIF"]
)
def test_layers_with_an_event_driven_gradient(make: Callable[[], neurons.Neuron]) -> None:
    """Their potential is known as well, though no surrogate neuron of that model runs."""
    torch.manual_seed(0)
    layer = snnlib.SpikingConv2d(2, 6, 3, neuron=make())
    report = snnlib.prepare_(nn.Sequential(layer, snnlib.SRMReadout(6 * 36, 3)), _events(), 0.05)
    border = "0 learns from a gradient by the time of its spikes, and 1, a module with weights,"
    assert all(finding.startswith(border) for finding in report.findings())
    assert bool(report.findings()) == layer.neuron.exact_times
    assert layer(_events()).mean().item() == pytest.approx(0.05, rel=0.1)


def test_a_single_integrator_keeps_the_weights_that_it_reads_with() -> None:
    torch.manual_seed(0)
    x = (torch.rand(20, 8, 12) < 0.2).float()
    net = nn.Sequential(snnlib.SpikingRNN(12, 16), nn.Linear(16, 1), neurons.Integrator(tau=20.0))
    readout = copy.deepcopy(net[1])
    report = snnlib.prepare_(net, x)
    assert torch.equal(net[1].weight, readout.weight) and torch.equal(net[1].bias, readout.bias)
    assert report.layers[-1].name == "2" and report.layers[-1].rate is None


@pytest.mark.parametrize("largest", [1, 30])
@pytest.mark.parametrize("kind", ["layers", "sparse", "recurrent", "alone"])
def test_fixed_point_fires_as_floating_point_and_within_its_bits(kind: str, largest: int) -> None:
    """A search for rates tries weights whose states no bits hold."""

    def prepared(cuba: neurons.Neuron, readout: neurons.Neuron) -> Preparation:
        torch.manual_seed(0)
        first: dict[str, Callable[[], nn.Module]] = {
            "layers": lambda: snnlib.SpikingLinear(128, 60, neuron=cuba),
            "sparse": lambda: snnlib.SpikingLinear(
                128, 60, neuron=cuba, connections=snnlib.Sparse(density=0.5)
            ),
            "recurrent": lambda: snnlib.SpikingRNN(128, 60, neuron=cuba),
            "alone": lambda: nn.Sequential(PerStep(nn.Linear(128, 60)), cuba),
        }
        hidden = snnlib.SpikingLinear(60, 20, neuron=copy.copy(cuba))
        net = nn.Sequential(first[kind](), hidden, snnlib.SpikingLinear(20, 3, neuron=readout))
        return snnlib.prepare_(net, largest * _events().flatten(2))

    slope = snnlib.surrogate.Triangle(width=0.5, height=0.4)
    cuba = neurons.CubaLIF(32.0, 4.0, threshold=1.25, decay_input=False, surrogate=slope)
    floating = prepared(cuba, neurons.Integrator(32.0, decay_input=False))
    fixed = prepared(neurons.LoihiCubaLIF(surrogate=slope), neurons.LoihiIntegrator())
    for ours, other in zip(fixed.layers[:2], floating.layers[:2], strict=True):
        assert ours.rate == pytest.approx(other.rate, rel=0.1), (ours, other)
    assert fixed.layers[2].potential == pytest.approx(1, rel=0.05)


def test_fixed_point_starts_where_the_wanted_rate_is_beyond_reach() -> None:
    """The few spikes of the layer before fire nothing at half of the steps, whatever the weights."""
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 8, 3, neuron=neurons.LoihiCubaLIF()),
        snnlib.SpikeAvgPool2d(2),
        nn.Flatten(2),
        snnlib.SpikingLinear(8 * 9, 10, neuron=neurons.LoihiCubaLIF()),
    )
    last = snnlib.prepare_(net, (torch.rand(20, 4, 2, 8, 8) < 0.05).float()).layers[-1]
    assert 0.1 < last.rate < last.target


@pytest.mark.parametrize("model", [neurons.LoihiLIF, neurons.LoihiCubaLIF])
def test_fixed_point_with_a_surrogate_of_ones_own(model: type[neurons.Neuron]) -> None:
    """Such neurons run by `step`; their potential is that of the same model with any surrogate."""

    def prepared(gradient: object) -> Preparation:
        torch.manual_seed(0)
        layers = (snnlib.SpikingLinear(128, 60, neuron=model(surrogate=gradient)), snnlib.SRMReadout(60, 3))
        return snnlib.prepare_(nn.Sequential(*layers), _events().flatten(2))

    own, known = prepared(lambda u: (u.abs() < 0.5).float()), prepared(snnlib.surrogate.Rectangle())
    assert own.layers[0].rate == pytest.approx(known.layers[0].rate, rel=0.05)
    assert own.layers[0].gain == known.layers[0].gain
