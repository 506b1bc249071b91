"""The gradient of a sum of losses is the sum of their gradients: no bound cuts a part by its sign or size."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import snnlib
from snnlib import neurons

SEQUENCE, FRAMES = (12, 3, 8), (12, 3, 2, 8, 8)


def _bounded() -> nn.Module:
    neuron = neurons.CubaLIF(tau_m=[2.0, 200.0, 5.0, 30.0], learnable=("tau_m", "tau_s"), channels=4)
    return snnlib.SpikingLinear(8, 4, neuron=neurons.bound_(neuron, tau_m=(2.0, 200.0), tau_s=(1.0, 100.0)))


def _standardized() -> nn.Module:
    return snnlib.nn.standardize_weights_(snnlib.SpikingLinear(8, 4))


def _quantized() -> nn.Module:
    """Weights at, within and beyond the largest integer."""
    layer = snnlib.SpikingLinear(8, 4)
    parametrize.register_parametrization(layer, "weight", snnlib.Quantizer(4))
    layer(_events(SEQUENCE))
    layer.eval()
    with torch.no_grad():
        layer.weight *= 1.5
    return layer


def _delayed(bound: float, **options: object) -> Callable[[], nn.Module]:
    return lambda: snnlib.SpikingLinear(8, 4, delays=snnlib.Delays(3, initial=bound), **options)  # type: ignore[arg-type]


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **{name: (model, SEQUENCE) for name, model in neurons.MODELS.items() if "PSN" not in name},
    "PSN": (lambda: neurons.PSN(12), SEQUENCE),
    "MaskedPSN": (lambda: neurons.MaskedPSN(4, 12), SEQUENCE),
    "learned": (lambda: neurons.LIF(learnable=("tau", "threshold")), SEQUENCE),
    "floor": (lambda: neurons.LIF(floor=-0.1), SEQUENCE),
    "levels": (lambda: neurons.IF(levels=3), SEQUENCE),
    "levels, one peak": (
        lambda: neurons.IF(levels=3, surrogate=snnlib.surrogate.StraightThrough()),
        SEQUENCE,
    ),
    "refractory": (lambda: neurons.LIF(refractory=2), SEQUENCE),
    "event": (lambda: neurons.CubaLIF(gradient="event", grad_clamp=0.1), SEQUENCE),
    "SRM, clamped": (lambda: snnlib.SRMLinear(8, 4, grad_clamp=0.5), SEQUENCE),
    "bounded": (_bounded, SEQUENCE),
    "standardized": (_standardized, SEQUENCE),
    "quantized": (_quantized, SEQUENCE),
    "delays at 0": (_delayed(0.0), SEQUENCE),
    "delays at the longest": (_delayed(3.0), SEQUENCE),
    "delays of spike times": (_delayed(0.0, neuron=neurons.SRM()), SEQUENCE),
    "delay line": (lambda: snnlib.nn.DelayLine(8, 3), SEQUENCE),
    "recurrent": (lambda: snnlib.SpikingRNN(8, 4, recurrent_delays=snnlib.Delays(3, initial=0.0)), SEQUENCE),
    "e-prop": (lambda: snnlib.SpikingRNN(8, 4, recurrent_gradient="eprop"), SEQUENCE),
    "random feedback": (lambda: snnlib.nn.RandomFeedback(nn.Linear(8, 4)), SEQUENCE),
    "readout": (lambda: snnlib.SRMReadout(8, 4), SEQUENCE),
    "sparse": (lambda: snnlib.SpikingLinear(8, 4, connections=snnlib.Sparse(density=0.5)), SEQUENCE),
    "state space": (lambda: snnlib.nn.StateSpaceBlock(8), SEQUENCE),
    "convolution": (lambda: snnlib.SpikingConv2d(2, 3, 3), FRAMES),
    "SRM pool": (
        lambda: snnlib.fuse_(nn.Sequential(snnlib.SRMConv2d(2, 3, 3), snnlib.SpikeAvgPool2d(2))),
        FRAMES,
    ),
    "max pool": (lambda: snnlib.SpikeMaxPool2d(2), FRAMES),
}


def _events(shape: tuple[int, ...]) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5).float()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_two_losses_add_up(kind: str) -> None:
    torch.manual_seed(0)
    make, shape = KINDS[kind]
    module, x = make(), _events(shape)
    leaf = (x * 4 if kind in neurons.MODELS else x).requires_grad_()
    out = module(leaf)
    generator = torch.Generator().manual_seed(2)
    first, second = (torch.randn(out.shape, generator=generator).to(out) for _ in range(2))
    learned = [leaf, *(part for part in module.parameters() if part.requires_grad)]
    parts = [
        torch.autograd.grad(out, learned, signal, retain_graph=True, allow_unused=True)
        for signal in (first, second, first + second)
    ]
    assert any(grad is not None and bool(grad.any()) for grad in parts[2])
    for a, b, both in zip(*parts, strict=True):
        if both is not None:
            assert a is not None and b is not None
            scale = max(float(part.abs().max()) for part in (a, b, both))
            assert (a + b - both).abs().max() <= 1e-5 * max(scale, 1e-30)
