"""Gradients of spike times through up to three hidden layers, against the closed form of continuous time.

The closed form is differentiated by autograd: in weights and delays, and in the times of the inputs, which tells
samples apart. Samples in which a potential comes within 1e-3 of the threshold without a spike are left out: there the
derivative has no bound, and a step decides whether there is a spike; so are those whose derivative is large since a
spike only just happens, a few in a hundred. A derivative also jumps where an input arrives just at a spike. In steps
such samples are off for good, and fewer of them the shorter the steps are: so it is the median sample whose error has
to shrink with the step.
"""

import math

import pytest
import torch
from closed_form import first_spikes
from torch import Tensor, nn

import snnlib
from snnlib import encoding, readout
from snnlib.data import YinYang
from snnlib.neurons import CubaLIF

GRID, END, LONGEST, SAMPLES, HIDDEN = 0.005, 4.5, 0.5, 60, 30
# Samples whose gradient is so many times that of the median one hang on a spike that only just happens.
STEEP = 5.0
CASES = [
    (1, "plain"),
    (2, "plain"),
    (3, "plain"),
    *[(2, kind) for kind in ("chunks", "fused", "channel", "connection")],
]


def _weights(depth: int) -> list[Tensor]:
    """Weights spread as those of trained nets, with which most neurons fire."""
    generator = torch.Generator().manual_seed(depth)
    spreads = [(4, 1.4, 0.7), *[(HIDDEN, 0.5, 0.35)] * (depth - 1), (HIDDEN, 2.2, 1.0)]
    sizes = [*[HIDDEN] * depth, 3]
    return [
        torch.randn(outputs, inputs, generator=generator, dtype=torch.float64) * spread + mean
        for outputs, (inputs, spread, mean) in zip(sizes, spreads, strict=True)
    ]


def _delays(weights: list[Tensor], per: str) -> list[Tensor] | None:
    if per not in ("channel", "connection"):
        return None
    generator = torch.Generator().manual_seed(0)
    shapes = [weight.shape if per == "connection" else weight.shape[1:] for weight in weights]
    drawn = [torch.rand(shape, generator=generator, dtype=torch.float64) * LONGEST for shape in shapes]
    return [(delay / GRID).round() * GRID for delay in drawn]


def _inputs() -> Tensor:
    points = YinYang("test", dtype=torch.float64).samples[:SAMPLES]
    return ((0.15 + 1.85 * points) / GRID).round() * GRID


def _net(weights: list[Tensor], delays: list[Tensor] | None, variant: str, dt: float) -> nn.Module:
    layers: list[nn.Module] = []
    for index, weight in enumerate(weights):
        neuron = CubaLIF.from_continuous(
            2.0, 1.0, dt, gradient="event", input_gradient="time", refractory=math.inf, grad_clamp=math.inf
        )
        outputs, inputs = weight.shape
        late = None
        if delays is not None:
            late = snnlib.Delays(round(LONGEST / dt) + 1, variant, initial=(delays[index] / dt).round())
        if variant == "fused":
            layer: nn.Module = snnlib.SpikingConv2d(inputs, outputs, 1, neuron=neuron, dtype=torch.float64)
        else:
            layer = snnlib.SpikingLinear(inputs, outputs, neuron=neuron, delays=late, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(weight.view_as(layer.weight))
        layers.append(layer)
        if variant == "fused":
            # All cells of a frame are alike, and so is their mean.
            layers.append(snnlib.SpikeAvgPool2d((1, 2)))
    net = nn.Sequential(*layers)
    return snnlib.fuse_(net) if variant == "fused" else net


def _gradients(
    weights: list[Tensor], delays: list[Tensor] | None, variant: str, dt: float, use: Tensor, pull: Tensor
) -> list[Tensor]:
    """Gradients of `L = sum of pull t` over output spikes, by input times `[N, 4]`, weights and delays."""
    net = _net(weights, delays, variant, dt)
    x = encoding.at_times(_inputs(), round(END / dt), dt=dt).requires_grad_()
    inputs = x
    if variant == "fused":
        x = x[..., None, None].expand(*x.shape, 1, 2 ** len(weights))
    spikes = snnlib.checkpoint_time(net, x, steps=60) if variant == "chunks" else net(x)
    times = (readout.first_spike_time(spikes.flatten(2), no_spike=math.inf) + 1) * dt
    # The closed form and the grid have to agree on who fires.
    assert bool(times.isfinite()[use].all())
    torch.where(use, pull * torch.where(use, times, 0.0), 0.0).sum().backward()
    layers = [layer for layer in net if hasattr(layer, "neuron")]
    found = [layer.weight.grad.view_as(weight) for layer, weight in zip(layers, weights, strict=True)]
    # dL/ds means "earlier", by a step; all inputs come once.
    by_input = -inputs.grad.sum(0) / dt
    return [by_input, *found] + [
        layer.delays.steps.grad.double() / dt for layer in layers if layer.delays is not None
    ]


def _closed(
    weights: list[Tensor], delays: list[Tensor] | None, pull: Tensor, clear: Tensor
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Gradients by input times, weights and delays, outputs in use, and samples that no potential just misses."""
    leaves = [part.clone().requires_grad_() for part in (*weights, *(delays or []))]
    inputs = _inputs().requires_grad_()
    times = inputs
    for index in range(len(weights)):
        late = 0.0 if delays is None else leaves[len(weights) + index]
        first = first_spikes(times[:, None].expand(-1, len(weights[index]), -1) + late, leaves[index])
        times, clear = first.times, clear & (first.miss > 1e-3).all(1)
    use = (times < END - 4 * GRID) & clear[:, None]
    torch.where(use, pull * torch.where(use, times, 0.0), 0.0).sum().backward()
    return [part.grad for part in (inputs, *leaves) if part.grad is not None], use, clear


@pytest.mark.parametrize(("depth", "variant"), CASES)
def test_gradients_of_spike_times(depth: int, variant: str) -> None:
    weights = _weights(depth)
    delays = _delays(weights, variant)
    pull = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    all_of_them = torch.ones(SAMPLES, dtype=torch.bool)
    (by_input, *_), _, clear = _closed(weights, delays, pull, all_of_them)
    size = by_input.norm(dim=1)
    flat = size <= STEEP * size[size > 0].median()
    exact, use, _ = _closed(weights, delays, pull, flat)
    left_out = f"{int((~clear).sum())} samples that just miss and {int((~flat).sum())} steep ones"
    assert use.double().mean() > 0.5
    errors = []
    for dt in (GRID, GRID / 2) if variant == "plain" else (GRID,):
        by_input, *found = _gradients(weights, delays, variant, dt, use, pull)
        moved = exact[0].norm(dim=1) > 0
        off = ((by_input - exact[0]).norm(dim=1) / exact[0].norm(dim=1))[moved]
        errors.append(float(off.median()))
        for number, (own, expected) in enumerate(zip(found, exact[1:], strict=True)):
            cosine = float((own * expected).sum() / (own.norm() * expected.norm()))
            size = float(own.norm() / expected.norm())
            what = "weights" if number < len(weights) else "delays"
            print(f"depth {depth} {variant} dt {dt}, {what}: cosine {cosine:.5f}, size {size:.4f}")
            if dt == GRID and what == "weights":
                assert cosine >= 0.97
                assert abs(size - 1) <= 0.25
    print(f"depth {depth} {variant}: {left_out} left out, error of the median sample {errors}")
    assert errors[0] < 0.01
    if variant == "plain":
        assert errors[1] < errors[0] / 1.6
