"""`prepare_` for nets of every kind: one input channel, neurons of one's own, recurrence, and few passes for all."""

import math
import sys
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, prepare_, surrogate
from snnlib.learning.preparing.checks import torch_modules_checked
from snnlib.learning.preparing.report import LayerPreparation
from snnlib.neurons.base import Params, State
from snnlib.nn import PerStep
from snnlib.nn.layers.spiking_layer import SpikingLayer


class Leaky(neurons.Neuron):
    """The neuron of one's own of docs/neurons.md: `step` in torch and no dynamics."""

    state_names = ("v",)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        v = params["beta"] * state[0] + current
        spike = surrogate.spike(v - 1, torch.ones(()), surrogate.Triangle())
        return spike, (v - spike.detach(),)


def _leaky() -> Leaky:
    return Leaky({"beta": 0.9})


def _events(*shape: int, rate: float = 0.3) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(1)) < rate).float()


def _read_out(layer: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    """The layer before potentials of three outputs, and its input."""
    with torch.no_grad():
        features = layer(x)[0, 0].numel()
    return nn.Sequential(layer, snnlib.SRMReadout(features, 3)), x


ONE_CHANNEL: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "SpikingRNN": lambda: _read_out(snnlib.SpikingRNN(1, 32), _events(30, 8, 1)),
    "SRMLinear": lambda: _read_out(snnlib.SRMLinear(1, 12), _events(30, 8, 1)),
    "SpikingLinear": lambda: _read_out(
        snnlib.SpikingLinear(1, 12), torch.rand(30, 8, 1, generator=torch.Generator().manual_seed(1))
    ),
    "SpikingConv2d": lambda: _read_out(snnlib.SpikingConv2d(1, 8, 1), _events(20, 4, 1, 6, 6)),
    "depthwise": lambda: _read_out(snnlib.SpikingConv2d(4, 4, 1, groups=4), _events(20, 4, 4, 6, 6)),
}
OWN: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "SpikingLinear": lambda: _read_out(snnlib.SpikingLinear(20, 30, neuron=_leaky()), _events(20, 8, 20)),
    "SpikingConv2d": lambda: _read_out(
        snnlib.SpikingConv2d(2, 6, 3, neuron=_leaky()), _events(12, 4, 2, 6, 6)
    ),
    "SpikingRNN": lambda: _read_out(snnlib.SpikingRNN(20, 30, neuron=_leaky()), _events(20, 8, 20)),
}
COMPACT = surrogate.Triangle(width=0.5, height=0.4)


def _check(make: Callable[[], tuple[nn.Module, Tensor]]) -> tuple[LayerPreparation, Tensor, Tensor]:
    torch.manual_seed(0)
    net, x = make()
    drawn = _first(net).weight.detach().clone()
    report = prepare_(net, x, 0.1)
    hidden = report.layers[0]
    # A channel goes no further than half the rate that its largest factor gives, and may be drawn to inhibit.
    assert 0.04 < hidden.rate < 0.11
    assert report.without_gradient == []
    once = {name: value.clone() for name, value in net.state_dict().items()}
    prepare_(net, x, 0.1, again=True)
    assert all(torch.equal(value, once[name]) for name, value in net.state_dict().items())
    return hidden, drawn, _first(net).effective_weight.detach()


def _first(net: nn.Module) -> SpikingLayer:
    return next(layer for layer in net.modules() if isinstance(layer, SpikingLayer))


@pytest.mark.parametrize("kind", ONE_CHANNEL)
def test_one_input_channel(kind: str) -> None:
    """A factor per layer: channels with one weight keep their differences, and weights the usual scale."""
    _, drawn, weight = _check(ONE_CHANNEL[kind])
    factor = (weight / drawn).flatten()
    torch.testing.assert_close(factor, factor[:1].expand_as(factor))


@pytest.mark.parametrize("kind", OWN)
def test_neurons_of_ones_own_inside_layers(kind: str) -> None:
    hidden, *_ = _check(OWN[kind])
    # A recurrent neuron may be held down by the others.
    assert hidden.dead <= 0.05 * hidden.channels


@pytest.mark.parametrize("layer", [snnlib.SpikingLinear, snnlib.SpikingRNN, snnlib.SRMLinear])
def test_one_unit_with_a_weight_that_inhibits_is_turned(layer: Callable[..., nn.Module]) -> None:
    net = nn.Sequential(layer(1, 1), snnlib.SRMReadout(1, 3))
    nn.init.constant_(_first(net).weight, -0.3)
    report = prepare_(net, _events(30, 8, 1), 0.1)
    assert 0.06 < report.layers[0].rate < 0.15 and math.isfinite(report.layers[0].gain)


def test_copies_and_gains_far_off_are_named() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(20, 6), snnlib.SRMReadout(6, 3))
    with torch.no_grad():
        net[0].weight.copy_(net[0].weight[:1].expand(6, -1))
    assert "0: all 6 channels have the same weights" in str(prepare_(net, _events(20, 8, 20)))
    net = nn.Sequential(snnlib.SpikingLinear(20, 6), snnlib.SRMReadout(6, 3))
    x = torch.rand(20, 8, 20, generator=torch.Generator().manual_seed(1)) * 1e-6
    report = prepare_(net, x, standardize=False)
    assert any("0 has a gain of" in finding for finding in report.findings()) or report.layers[0].gain == 4


@pytest.mark.parametrize("amplitudes", [False, True])
def test_both_weights_of_a_recurrent_layer_learn_at_one_pace(amplitudes: bool) -> None:
    """Both are stored with one spread, so that one learning rate suits both; what was drawn is only shifted."""
    torch.manual_seed(0)
    rnn = snnlib.SpikingRNN(40, 32)
    layer = rnn.layers[0]
    drawn = layer.weight.detach().clone()
    x = _events(30, 16, 40, rate=0.05)
    if amplitudes:
        x = torch.rand(30, 16, 40, generator=torch.Generator().manual_seed(1))
    prepare_(nn.Sequential(rnn, snnlib.SRMReadout(32, 3)), x, 0.08)
    shift = (layer.effective_weight - drawn).detach()
    torch.testing.assert_close(shift, shift[:, :1].expand_as(shift), rtol=0, atol=1e-5)
    if amplitudes:
        assert float(layer.gain) <= 4
    else:
        ratio = float((layer.weight.std() / layer.recurrent_weight.std()).detach())
        assert 2**-0.51 <= ratio <= 2**0.51


def test_recurrent_layers_stay_as_drawn_where_they_fire() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(snnlib.SpikingRNN(40, 32), snnlib.SRMReadout(32, 3))
    layer = net[0].layers[0]
    drawn = layer.weight.detach().clone()
    x = _events(30, 16, 40, rate=0.05)
    report = prepare_(net, x)
    assert report.findings() == []
    assert report.layers[0].target == pytest.approx(report.layers[0].rate)
    assert torch.equal(layer.effective_weight, drawn)
    assert float(layer.gain) > 1
    # Weights that leave it silent are set as before.
    with torch.no_grad():
        layer.weight *= 1e-3
    assert prepare_(net, x, again=True).layers[0].rate > 0.05


def test_no_large_gain_for_dense_amplitudes() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(3, 12), snnlib.SRMReadout(12, 3))
    prepare_(net, torch.rand(30, 16, 3, generator=torch.Generator().manual_seed(1)))
    assert float(net[0].gain) <= 4


def test_read_outs_of_a_chip_do_not_overflow() -> None:
    """Weights of 1 would fill states of 23 bits."""
    membrane = neurons.LoihiIntegrator(8.0, tau_s=4.0)
    hidden = snnlib.SpikingLinear(20, 900, neuron=neurons.LoihiLIF())
    net = nn.Sequential(hidden, snnlib.SpikingLinear(900, 3, neuron=membrane))
    report = prepare_(net, (torch.rand(30, 8, 20) < 0.2).float(), 0.3)
    assert report.layers[1].potential == pytest.approx(1, rel=0.1)


def test_without_gain_weights_act_as_they_are_stored() -> None:
    torch.manual_seed(0)
    nets = []
    x = _events(20, 16, 40, rate=0.1)
    for gain in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(snnlib.SRMLinear(40, 60), snnlib.SRMReadout(60, 4))
        prepare_(net, x, gain=gain)
        nets.append(net)
    assert float(nets[0][0].gain) > 1
    for with_gain, without in zip(*nets, strict=True):
        assert float(without.gain) == 1
        assert torch.equal(without.weight, with_gain.effective_weight)


def _learn(gain: bool, batches: int) -> float:
    """Accuracy of momentum SGD at torch's usual rate on four kinds of noise."""
    labels = torch.arange(64) % 4
    rate = torch.where(torch.arange(40) // 10 == labels[:, None], 0.25, 0.05)
    x = (torch.rand(20, 64, 40, generator=torch.Generator().manual_seed(0)) < rate).float()
    torch.manual_seed(0)
    lif = [neurons.LIF(tau=4.0) for _ in range(2)]
    net = nn.Sequential(
        snnlib.SpikingLinear(40, 60, neuron=lif[0]), snnlib.SpikingLinear(60, 4, neuron=lif[1])
    )
    prepare_(net, x, gain=gain)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(batches):
        loss = nn.functional.cross_entropy(snnlib.readout.spike_count(net(x)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float((net(x).sum(0).argmax(1) == labels).float().mean())


def test_sgd_learns_without_gain_and_is_warned_of_with_it() -> None:
    assert _learn(gain=False, batches=60) > 0.85
    with pytest.warns(UserWarning, match=r"from one batch to the next the weights changed by .*gain=False"):
        _learn(gain=True, batches=4)


NETS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    **{f"one channel, {name}": make for name, make in ONE_CHANNEL.items()},
    **{f"own neuron, {name}": make for name, make in OWN.items()},
    "convolutions": lambda: (
        nn.Sequential(
            snnlib.SRMConv2d(2, 8, 3),
            snnlib.SpikeAvgPool2d(2),
            snnlib.SpikingConv2d(8, 6, 3, neuron=neurons.LIF()),
            snnlib.SRMLinear(6 * 9, 5),
        ),
        _events(15, 4, 2, 12, 12),
    ),
    "alone": lambda: (
        nn.Sequential(
            PerStep(nn.Conv2d(2, 5, 3, bias=False), nn.BatchNorm2d(5)),
            neurons.LIF(),
            PerStep(nn.Flatten(), nn.Linear(5 * 16, 4)),
            neurons.CubaLIF(),
        ),
        _events(15, 6, 2, 6, 6),
    ),
    "adaptive": lambda: _read_out(
        snnlib.SpikingRNN(20, 24, neuron=neurons.AdLIF(a=0.5, b=1.0, surrogate=COMPACT)), _events(20, 8, 20)
    ),
}


@pytest.mark.parametrize("kind", NETS)
def test_few_passes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 3 of the net, and 21 of each layer's neurons alone for a search."""
    torch.manual_seed(0)
    net, x = NETS[kind]()
    passes, alone = [], {}
    net.register_forward_hook(lambda *_: passes.append(1))

    def counted(module: nn.Module, name: str) -> None:
        run = getattr(module, name)

        def count(*args: object) -> object:
            alone[module] = alone.get(module, 0) + 1
            return run(*args)

        monkeypatch.setattr(module, name, count, raising=False)

    for module in net.modules():
        if isinstance(module, SpikingLayer):
            counted(module, "fire")
        elif isinstance(module, neurons.Neuron):
            counted(module, "forward")
    prepare_(net, x)
    assert len(passes) <= 3
    for module, count in alone.items():
        # Neurons that stand alone also run in the net's passes.
        within = len(passes) if isinstance(module, neurons.Neuron) else 0
        assert count - within <= 21, module


def test_what_takes_long_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seconds, terminal in ((60.0, True), (0.0, False), (0.0, True)):
        net, x = NETS["convolutions"]()
        monkeypatch.setattr("snnlib.learning.preparing.course._SILENT_SECONDS", seconds)
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        prepare_(net, x)
        said = "prepare_: 3 of 3 layers, now behind 3" in capsys.readouterr().err
        assert said == (terminal and not seconds)


def _slow_waves(steps: int, samples: int) -> Tensor:
    """Sequences whose neighbouring steps are alike."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(steps + 5, samples, 30, generator=generator)
    return (sum(noise[i : i + steps] for i in range(6)) > 2).float()


def test_batch_and_time_that_are_exchanged_are_noticed() -> None:
    x = _slow_waves(24, 16)

    def net(**options: bool) -> nn.Module:
        return nn.Sequential(snnlib.SRMLinear(30, 20, **options), snnlib.SRMLinear(20, 3, **options))

    with pytest.warns(UserWarning, match=r"^x: expected \[T, N, ...\], got .* looks like \[N, T, ...\]"):
        prepare_(net(), x.transpose(0, 1))
    with pytest.warns(UserWarning, match=r"^x: expected \[N, T, ...\], got .* looks like \[T, N, ...\]"):
        prepare_(net(batch_first=True), x)
    picture = torch.rand(16, 1, 30, generator=torch.Generator().manual_seed(0)).expand(-1, 24, -1)
    with pytest.warns(UserWarning, match="looks like"):
        prepare_(net(), picture)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare_(net(), x)
        prepare_(net(batch_first=True), x.transpose(0, 1))
        prepare_(net(), picture.transpose(0, 1))
        prepare_(net(), _events(24, 16, 30))


def test_pixels_and_what_layers_share_are_noticed() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(30, 20), snnlib.SRMReadout(20, 3))
    with pytest.warns(UserWarning, match="values up to 255; divide pixels by 255"):
        prepare_(net, _events(10, 8, 30) * 255)
    neuron = neurons.LIF()
    net = nn.Sequential(*(snnlib.SpikingLinear(a, b, neuron=neuron) for a, b in ((30, 20), (20, 5))))
    with pytest.warns(UserWarning, match="layers 0, 1 share one neuron object"):
        prepare_(net, _events(10, 8, 30))
    net = nn.Sequential(*(snnlib.SpikingLinear(30, 30) for _ in range(2)))
    net[1].weight = net[0].weight
    with pytest.warns(UserWarning, match="layers 0, 1 share one weight, so that the last one sets the rates"):
        prepare_(net, _events(10, 8, 30))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv2d(2, 4, 3), (10, 8, 2, 6, 6)),
        (nn.MaxPool2d(2), (10, 8, 2, 6, 6)),
        (nn.BatchNorm2d(2), (10, 8, 2, 6, 6)),
        (nn.Flatten(), (10, 8, 2, 6, 6)),
        (nn.BatchNorm1d(8), (10, 8, 30)),
    ],
)
def test_modules_of_torch_on_sequences_are_named(module: nn.Module, shape: tuple[int, ...]) -> None:
    size = 30 if len(shape) == 3 else 72
    net = nn.Sequential(module, nn.Flatten(2), snnlib.SRMLinear(size, 5))
    name = type(module).__name__
    with pytest.raises(ValueError, match=rf"^0: torch's {name} ran on a sequence .*PerStep\({name}"):
        prepare_(net, _events(*shape))
    within = nn.Sequential(PerStep(module))
    if name != "BatchNorm1d":
        with torch_modules_checked(within, _events(*shape)):
            within(_events(*shape))


@pytest.mark.parametrize("layer", [snnlib.SRMLinear, snnlib.SpikingLinear, snnlib.SpikingConv2d])
def test_constants_of_neurons_are_no_attributes_of_a_layer(layer: Callable[..., nn.Module]) -> None:
    made = layer(3, 4, 1) if layer is snnlib.SpikingConv2d else layer(3, 4)
    with pytest.raises(
        AttributeError, match=r"^tau_m: expected an attribute of .*, got a constant of its neurons"
    ):
        made.tau_m = 20.0
