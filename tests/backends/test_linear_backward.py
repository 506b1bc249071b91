"""Fully connected layers of surrogate neurons: all backward algorithms agree, and the choice follows the data."""

import copy

import pytest
import torch
from compare import assert_bits
from torch import Tensor, nn

import snnlib
from snnlib.backends import algorithm, native
from snnlib.backends.algorithm import BackwardAlgorithms
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.functional.operators import FullyConnected
from snnlib.functional.plan import layer_currents
from snnlib.ops import conv_call

pytestmark = pytest.mark.skipif(native._module is None, reason="needs the compiled module")

# Part of a vector of inputs and of outputs at the end.
INPUTS, OUTPUTS = 45, 21
LIF = snnlib.neurons.LIF(2.0, surrogate=snnlib.surrogate.Triangle())


def _sample() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(12, 5, INPUTS, generator=generator) < 0.2).float()
    weight = torch.randn(OUTPUTS, INPUTS, generator=generator) * 0.4
    return x, weight, torch.randn(12, 5, OUTPUTS, generator=generator)


def _gradients(apart: bool = False) -> list[Tensor]:
    """Spikes, and gradients by the weight and by the inputs."""
    x, weight, gradient = _sample()
    x.requires_grad_(), weight.requires_grad_()
    if apart:
        spikes = LIF(layer_currents(x, weight, FullyConnected()))
    else:
        options = {"return_state": False}
        spikes = snnlib.functional.spiking_layer(x, weight, FullyConnected(), LIF, **options).value
    return [spikes.detach(), *torch.autograd.grad(spikes, (weight, x), gradient)]


@pytest.mark.parametrize("weight", ["taps", "spikes", "dense"])
@pytest.mark.parametrize("field", ["spikes", "dense"])
def test_every_algorithm_gives_the_gradients_of_the_layer_apart(
    weight: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = BackwardAlgorithms(weight, field)  # type: ignore[arg-type]
    monkeypatch.setattr(algorithm, "decide_for_entries", lambda *_: chosen)
    monkeypatch.setattr(algorithm, "decide_for_signal", lambda *_: weight)
    (spikes, *gradients), (expected, *answers) = _gradients(), _gradients(apart=True)
    assert 0.05 < expected.mean() < 0.5
    assert_bits(spikes, expected)
    for gradient, answer, kind in zip(gradients, answers, chosen, strict=True):
        assert (gradient - answer).abs().max() <= 1e-5 * answer.abs().max()
        # The layer apart has the same signal for the same kernels; "dense" is a product of torch.
        if kind == "taps":
            assert_bits(gradient, answer)


def test_pooled_layer_by_input_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal has the neurons' size, not that of the pooled output."""
    monkeypatch.setattr(algorithm, "decide_for_entries", lambda *_: BackwardAlgorithms("dense", "dense"))
    monkeypatch.setattr(algorithm, "decide_for_signal", lambda *_: "inputs")
    torch.manual_seed(0)
    x = (torch.rand(6, 2, 12, 16, 16) < 0.2).float()
    net = nn.Sequential(snnlib.SpikingConv2d(12, 64, 5, neuron=LIF), snnlib.AvgPool2d(2))
    fused = snnlib.fuse_(copy.deepcopy(net))
    gradients = []
    for each in (net, fused):
        (weight,) = each.parameters()
        gradients += torch.autograd.grad(each(x).square().sum(), weight)
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-4)


def test_input_gradient_has_the_same_bits_by_scatter_and_by_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = BackwardAlgorithms("spikes", "spikes")
    monkeypatch.setattr(algorithm, "decide_for_entries", lambda *_: chosen)
    by_gather = _gradients()[2]
    monkeypatch.setattr(conv_call, "scatters_back", lambda _: True)
    # Not the kernel that was prepared for the same kind of call.
    monkeypatch.setattr(conv_call, "_backward", conv_call._backward.__wrapped__)
    assert_bits(_gradients()[2], by_gather)


def _chosen(inputs: int, outputs: int, density: float, entries: float) -> BackwardAlgorithms:
    x = torch.rand(20, 32, inputs, 1, 1, generator=torch.Generator().manual_seed(6)).lt(density).float()
    g = geometry(x, torch.empty(outputs, inputs, 1, 1), ConvOptions((1, 1), (0, 0), (1, 1), 1))
    return algorithm.decide_for_entries(x, g, int(entries * g.neuron_steps))


def test_choice_follows_the_rates() -> None:
    assert _chosen(700, 256, 0.03, 0.15) == ("taps", "spikes")
    assert _chosen(700, 256, 0.03, 1.0) == ("taps", "dense")
    assert _chosen(700, 256, 0.8, 0.01) == ("spikes", "spikes")
    assert _chosen(700, 256, 0.8, 1.0) == ("dense", "dense")


def test_explanation_names_the_algorithms_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = snnlib.SpikingLinear(200, 64, neuron=LIF)
    x = torch.rand(20, 16, 200, generator=torch.Generator().manual_seed(0)).lt(0.05).float()
    explained, ran = snnlib.explain_dispatch(layer, x).gradients, []
    decide = algorithm.decide_for_entries
    monkeypatch.setattr(algorithm, "decide_for_entries", lambda *given: ran.append(decide(*given)) or ran[-1])
    layer(x.requires_grad_()).sum().backward()
    assert ran == [explained]
