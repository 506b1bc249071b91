"""`prepare_(standardize=True)`: weights of mean 0, one factor per layer, where only its own spikes teach a layer."""

import math

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import prepare_
from snnlib.nn.weights.stored_weight import standardization_of


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        snnlib.SRMConv2d(1, 6, 5, tau_m=5.0, tau_s=3.0),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMLinear(6 * 4 * 4, 80, tau_m=5.0, tau_s=3.0),
        snnlib.SRMLinear(80, 10, tau_m=5.0, tau_s=3.0),
    )


def _images() -> Tensor:
    """Currents of both signs, the same at every step."""
    image = torch.rand(30, 1, 12, 12, generator=torch.Generator().manual_seed(1)) * 3 - 1
    return image.expand(6, *image.shape)


NETS = {
    "plain": _net,
    "fused": lambda: snnlib.fuse_(_net()),
    "standardised": lambda: snnlib.nn.standardize_weights_(_net()),
    "double": lambda: _net().double(),
}


@pytest.mark.parametrize("name", NETS)
def test_mean_zero_no_offset_and_one_factor_per_layer(name: str) -> None:
    net, drawn = NETS[name](), _net()
    x = _images().to(next(net.parameters()).dtype)
    report = prepare_(net, x, standardize=True)
    assert report.findings() == []
    layers = [module for module in net.modules() if isinstance(module, snnlib.SRMConv2d | snnlib.SRMLinear)]
    for layer, before, result in zip(layers, (drawn[0], drawn[2], drawn[3]), report.layers, strict=True):
        step = standardization_of(layer)
        assert step is not None and float(layer.gain) == 1
        assert float(step.bias.detach().abs().max()) < 1e-5
        assert torch.equal(step.gain, torch.ones_like(step.gain))
        weight, old = layer.weight.detach().flatten(1), before.weight.detach().flatten(1)
        centred = (old - old.mean(1, keepdim=True)).to(weight.dtype)
        factor = float((weight * centred).sum() / centred.square().sum())
        assert factor > 0
        torch.testing.assert_close(weight, factor * centred, rtol=0, atol=1e-4 * float(weight.abs().max()))
        # The weight that learns is at a third of torch's usual scale.
        original = layer.parametrizations.weight.original.detach().flatten(1)
        third = torch.full((len(original),), 1 / math.sqrt(27 * original.shape[1]), dtype=original.dtype)
        torch.testing.assert_close(original.std(1), third, rtol=1e-4, atol=0)
        assert result.target == 0.08
        # The least that the layer can do is a spike more or less.
        assert result.rate == pytest.approx(result.target, rel=0.02)


def test_rates_by_number_and_by_name() -> None:
    report = prepare_(_net(), _images(), 0.15, standardize=True)
    assert [layer.target for layer in report.layers] == [0.15, 0.15, 0.15]
    report = prepare_(_net(), _images(), {"3": 0.12}, standardize=True)
    assert [layer.target for layer in report.layers] == [0.08, 0.08, 0.12]
    assert report.layers[2].rate == pytest.approx(0.12, rel=0.02)


def test_layers_that_learn_otherwise_are_prepared_as_ever() -> None:
    def mixed() -> nn.Sequential:
        torch.manual_seed(0)
        frozen = snnlib.SRMLinear(30, 30)
        frozen.weight.requires_grad_(False)
        return nn.Sequential(
            snnlib.SpikingLinear(20, 30), snnlib.SpikingRNN(30, 30), frozen, snnlib.SRMReadout(30, 3)
        )

    x = (torch.rand(20, 8, 20, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    nets = mixed(), mixed()
    prepare_(nets[0], x)
    prepare_(nets[1], x, standardize=True)
    states = [net.state_dict() for net in nets]
    assert states[0].keys() == states[1].keys()
    assert all(
        torch.equal(value, states[1][key]) for key, value in states[0].items() if not key.endswith("prepared")
    )


def test_the_prepared_weight_is_in_files_for_plain_nets() -> None:
    net, plain = _net(), _net()
    prepare_(net, _images(), standardize=True)
    plain.load_state_dict(net.state_dict())
    assert torch.equal(plain(_images()), net(_images()))
    # A weight that is assigned later is stored at the same scale.
    layer = net[3]
    before = layer.parametrizations.weight.original.detach().clone()
    with torch.no_grad():
        layer.weight = 3 * layer.weight
    torch.testing.assert_close(layer.parametrizations.weight.original.detach(), before)


def test_constant_weights_and_silent_input_are_named() -> None:
    net = _net()
    nn.init.ones_(net[2].weight)
    with pytest.raises(
        ValueError, match="2: expected a weight drawn at random, got one whose channels are constant"
    ):
        prepare_(net, _images(), standardize=True)
    with pytest.raises(ValueError, match="x: expected"):
        prepare_(_net(), torch.zeros(6, 3, 1, 12, 12), standardize=True)


def test_potentials_behind_standardised_layers_are_warned_of() -> None:
    net = _net()
    net[3] = snnlib.SRMReadout(80, 10)
    with pytest.warns(
        UserWarning, match=r"^net: expected spiking outputs .* potentials of layer 3, .*SRMLinear"
    ):
        report = prepare_(net, _images())
    assert report.start == "standardised" and "desired=5, undesired=1" in report.advice


@pytest.mark.parametrize("share", [0.0, 0.19, 1.0])
def test_amplitudes_decide_on_the_start_and_not_how_many_there_are(share: float) -> None:
    """MNIST / 255 has 19 % of values other than 0; pools make fractions of spikes, and are no input of the net."""
    generator = torch.Generator().manual_seed(0)
    shown = torch.rand(6, 20, 1, 12, 12, generator=generator) < max(share, 0.1)
    x = shown * (torch.rand(shown.shape, generator=generator) if share else 3.0)
    report = prepare_(_net(), x)
    assert report.start == ("standardised" if share else "calibrated")
    assert ("grey" if share else "spikes or counts") in str(report)
    assert prepare_(_net(), x, standardize=False).start == "calibrated"
