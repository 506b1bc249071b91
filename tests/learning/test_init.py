"""`calibrate_firing_rate_` brings every layer to its rate, from any scale, through parametrizations, repeatably."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

import snnlib
from snnlib.learning.preparing.calibration import calibrate_firing_rate_

calibrate = calibrate_firing_rate_


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        snnlib.SRMConv2d(2, 8, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(8, 8, 3, threshold=torch.linspace(0.5, 2, 8)),
        nn.Dropout(0.5),
        nn.Flatten(2),
        snnlib.SRMLinear(8 * 4 * 4, 20),
    )


def _batch() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(20, 8, 2, 12, 12, generator=generator) < 0.1).float()


def _rates(net: nn.Module, x: Tensor) -> dict[str, float]:
    """Measured from outside, with hooks, in eval mode."""
    rates: dict[str, float] = {}
    handles = [
        layer.register_forward_hook(lambda _m, _i, out, name=name: rates.update({name: float(out.mean())}))
        for name, layer in net.named_modules()
        if isinstance(layer, snnlib.nn.SRMLayer)
    ]
    mode = net.training
    net.eval()
    with torch.no_grad():
        net(x)
    net.train(mode)
    for handle in handles:
        handle.remove()
    return rates


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("target", [0.03, 0.1])
def test_reaches_the_target_from_any_scale(scale: float, target: float) -> None:
    net, x = _net(), _batch()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(scale)
    returned = calibrate(net, x, target)
    measured = _rates(net, x)
    assert set(returned) == {"0", "2", "5"}
    for name, rate in measured.items():
        assert rate == pytest.approx(target, rel=0.05), name
        # Weights are rounded once after the search; a spike at the threshold may flip.
        assert returned[name] == pytest.approx(rate, rel=0.02)


def test_one_target_per_layer() -> None:
    net, x = _net(), _batch()
    untouched = net[2].weight.clone()
    assert set(calibrate(net, x, {"0": 0.15, "5": 0.1})) == {"0", "5"}
    rates = _rates(net, x)
    assert rates["0"] == pytest.approx(0.15, rel=0.05)
    assert rates["5"] == pytest.approx(0.1, rel=0.05)
    assert torch.equal(net[2].weight, untouched)


def test_repeatable_and_quiet() -> None:
    """Same weights bit for bit; training flags, hooks, gradients and the random generator stay as they were."""
    nets, x = [_net(), _net()], _batch()
    nets[0][3].eval()
    modes = [module.training for module in nets[0].modules()]
    random_state = torch.get_rng_state()
    for net in nets:
        calibrate(net, x)
    assert torch.equal(torch.get_rng_state(), random_state)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.grad is None
        assert a.requires_grad
    assert [module.training for module in nets[0].modules()] == modes
    assert all(not module._forward_pre_hooks for module in nets[0].modules())


class _Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight / 2


class _UnitRows(nn.Module):
    """Throws the scale away."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / weight.flatten(1).norm(dim=1)[:, None]


def _linear() -> tuple[snnlib.SRMLinear, Tensor]:
    x = (torch.rand(20, 8, 30, generator=torch.Generator().manual_seed(2)) < 0.1).float()
    return snnlib.SRMLinear(30, 40), x


@pytest.mark.parametrize("kind", ["inverse", "weight norm", "standardised"])
def test_parametrized_weights(kind: str) -> None:
    net, x = _linear()
    if kind == "weight norm":
        weight_norm(net)
    elif kind == "inverse":
        parametrize.register_parametrization(net, "weight", _Doubled())
    else:
        snnlib.nn.standardize_weights_(net)
    calibrate(net, x, 0.1)
    assert net(x).mean().item() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("step", [_UnitRows(), snnlib.WeightStandardization(40)])
def test_parametrization_that_loses_the_weight(step: nn.Module) -> None:
    net, x = _linear()
    parametrize.register_parametrization(net, "weight", step)
    with pytest.raises(ValueError, match="expected a parametrization that keeps the weight it is given"):
        calibrate(net, x, 0.1)


def test_every_channel_fires() -> None:
    net, x = _net(), _batch()
    calibrate(net, x, 0.05)
    with torch.no_grad():
        rates = net[0](x).transpose(0, 2).flatten(1).mean(1)
    torch.testing.assert_close(rates, torch.full((8,), 0.05), rtol=0.1, atol=0)


def test_spread() -> None:
    """The potential that the neurons would have without spikes is `spread` thresholds, before the shift."""
    layer, x = _linear()
    wide = copy.deepcopy(layer)
    calibrate(layer, x, 0.05, spread=1.0)
    calibrate(wide, x, 0.05, spread=3.0)
    deviation = [module.weight.detach().std(1).mean() for module in (layer, wide)]
    assert (deviation[1] / deviation[0]).item() == pytest.approx(3.0, rel=1e-3)
    for spread in (0.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"spread: expected a finite number > 0, got {spread}"):
            calibrate(layer, x, 0.05, spread=spread)


def test_empty_batch_is_refused() -> None:
    layer, x = _linear()
    with pytest.raises(ValueError, match="x: expected a batch with events, got shape"):
        calibrate(layer, x[:0], 0.05)


def test_batch_first_layer() -> None:
    torch.manual_seed(0)
    layer = snnlib.SRMLinear(30, 40, batch_first=True)
    x = (torch.rand(8, 20, 30) < 0.1).float()
    calibrate(layer, x, 0.1)
    assert layer(x).mean().item() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, float("nan")])
def test_target_range(target: float) -> None:
    with pytest.raises(ValueError, match=rf"target: expected a rate in \(0, 1\), got {target}"):
        calibrate(_net(), _batch(), target)


def test_target_out_of_reach() -> None:
    """Without events in its field a neuron cannot fire: an error, not absurd weights."""
    net = _net()
    before = net[0].weight.clone()
    with pytest.raises(ValueError, match=r"target: expected at most 0\.\d+ for layer 0, .* got 0\.9"):
        calibrate(net, _batch(), 0.9)
    assert torch.equal(net[0].weight, before)


def test_unknown_layer() -> None:
    with pytest.raises(ValueError, match="target: expected names among 0, 2, 5, got 'conv9'"):
        calibrate(_net(), _batch(), {"conv9": 0.1})


@pytest.mark.parametrize("broken", ["silent input", "zero weight", "nan weight"])
def test_a_layer_that_cannot_fire_is_named(broken: str) -> None:
    net, x = _net(), _batch()
    modes = [module.training for module in net.modules()]
    with torch.no_grad():
        if broken == "silent input":
            x.zero_()
        else:
            net[2].weight.fill_(0 if broken == "zero weight" else torch.nan)
    name = "0" if broken == "silent input" else "2"
    before = copy.deepcopy(net[5].weight)
    with pytest.raises(
        ValueError, match=rf"^{name}: expected events and a weight that can make neurons fire"
    ):
        calibrate(net, x)
    assert torch.equal(net[5].weight, before)
    assert [module.training for module in net.modules()] == modes
    assert all(not module._forward_pre_hooks for module in net.modules())


def test_a_layer_alone_is_named_net() -> None:
    layer, x = _linear()
    with pytest.raises(ValueError, match=r"^net: expected events and a weight that can make neurons fire"):
        calibrate(layer, 0 * x)
