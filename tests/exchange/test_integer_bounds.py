"""Numbers of integer nets beyond their widths: thresholds and resets saturate, sums that do not fit are refused."""

import pytest
import torch
from torch import nn

import snnlib
from snnlib.neurons import IF, LIF, Integrator


def linear(neuron: snnlib.neurons.Neuron, bias: float | None = None) -> nn.Sequential:
    """Three inputs with weights of 1 to each of two neurons."""
    layer = nn.Linear(3, 2, bias=bias is not None)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        if bias is not None:
            layer.bias.fill_(bias)
    return nn.Sequential(snnlib.PerStep(layer), neuron).eval()


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("threshold", [1e5, 1e8, 1e9, 1e12, 1e30])
@pytest.mark.parametrize("compare", [">", ">="])
def test_a_threshold_beyond_the_state_is_never_reached(threshold: float, bits: int, compare: str) -> None:
    net = linear(IF(threshold=threshold, compare=compare))
    x = torch.full((40, 1, 3), 255.0)
    small = snnlib.to_integers(net, x, state_bits=bits)
    with snnlib.use_path("reference"):
        expected = small.integers(x)
    assert not net(x).any() and not expected.any() and not small.integers(x).any()


def test_states_have_room_for_a_reset_beyond_32_bits_of_the_measurement() -> None:
    net = linear(LIF(tau=10.0, threshold=0.5, reset_value=-3e6, decay_input=False))
    (layer,) = snnlib.to_integers(net, torch.full((40, 1, 3), 255.0), state_bits=32).layers
    assert layer.reset is not None
    assert (layer.reset * layer.scale * 2.0**-layer.fraction).tolist() == pytest.approx([-3e6, -3e6])


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("value", [-3.0, -20.0, -100.0, -1e6, -1e12])
def test_a_reset_far_below_is_within_the_range_of_states(value: float, bits: int) -> None:
    net = linear(LIF(tau=10.0, threshold=0.5, reset_value=value))
    x = torch.poisson(torch.full((60, 4, 3), 1.0), generator=torch.Generator().manual_seed(0))
    small = snnlib.to_integers(net, x, state_bits=bits)
    with snnlib.use_path("reference"):
        expected = small.integers(x)
    assert torch.equal(small.integers(x), expected)
    # A unit of 1 / 127 leaves -20 and less no place in 16 bits: such a membrane saturates.
    if bits == 32 or value > -20:
        assert torch.equal(small(x), net(x))


@pytest.mark.parametrize("bias", [-1e12, -1e9, 1e9, 1e12])
def test_a_bias_beyond_the_sums_is_refused(bias: float) -> None:
    with pytest.raises(ValueError, match=r"0\.0: expected sums within 32 bits, got up to .* smaller bias"):
        snnlib.to_integers(linear(IF(), bias), torch.ones(3, 1, 3))


def test_inputs_whose_sums_pass_32_bits_are_refused() -> None:
    x = torch.full((2, 1, 1, 300, 300), 255.0)
    net = nn.Sequential(snnlib.SpikingConv2d(1, 1, 300, neuron=Integrator(1.0, decay_input=False))).eval()
    with torch.no_grad():
        net[0].weight.fill_(1.0)
    with pytest.raises(
        ValueError, match=r"0: expected sums within 32 bits, got up to 2\.91e\+09 from inputs"
    ):
        snnlib.to_integers(net, x)
    # As many that fit, to the last bit.
    with torch.no_grad():
        net[0].weight.mul_(torch.rand(net[0].weight.shape) < 0.7)
    small = snnlib.to_integers(net, x)
    with snnlib.use_path("reference"):
        expected = small.integers(x)
    assert int(expected.max()) > 2**30 and torch.equal(small.integers(x), expected)
    # A layer behind spikes, which count 1, takes them all.
    behind = nn.Sequential(snnlib.SpikingConv2d(1, 1, 1, neuron=IF(threshold=0.5)), *net).eval()
    with torch.no_grad():
        behind[0].weight.fill_(1.0)
        behind[1].weight.fill_(1.0)
    assert snnlib.to_integers(behind, x).integers(x).count_nonzero() == 2
