"""Stages of check.py for recurrent layers: their bits beside the CPU's, and their time beside step by step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import snnlib
from snnlib import neurons, surrogate
from snnlib.functional import spiking_recurrent

from .stages import Setting, note
from .timings import captured, median_ms
from .tools import Results, assert_bits, assert_close, signals

MODELS = {
    "LIF": neurons.LIF(),
    "LIF, triangle": neurons.LIF(surrogate=surrogate.Triangle(0.5)),
    "LIF, next": neurons.LIF(reset_time="next", detach_reset=False),
    "LIF, learned": neurons.LIF(learnable=("tau", "threshold")),
    "CubaLIF": neurons.CubaLIF(),
    "AdLIF": neurons.AdLIF(),
    "KLIF": neurons.KLIF(),
    "Izhikevich": neurons.Izhikevich(a=0.5, b=0.25),
    "Alpha, learned": neurons.Alpha(learnable=("threshold",)),
}


def _numbers(*shape: int) -> tuple[Tensor, Tensor]:
    """Currents and weights by which neurons fire now and then."""
    generator = torch.Generator().manual_seed(sum(shape))
    current = torch.randn(shape, generator=generator) * 1.5 + 0.6
    weight = torch.randn(shape[2], shape[2], generator=generator) / math.sqrt(shape[2])
    return current, weight


def _outputs(
    neuron: neurons.Neuron, current: Tensor, weight: Tensor, lengths: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Spikes, states and gradients; the gradients of constants, which torch sums over neurons, apart."""
    leaves = [tensor.detach().requires_grad_() for tensor in (current, weight)]
    value, state = spiking_recurrent(*leaves, neuron, lengths=lengths)  # type: ignore[arg-type]
    grads = torch.autograd.grad(
        (value * signals(value)).sum() + state[0].sum(), [*leaves, *neuron.parameters()]
    )
    return [value.detach(), *(part.detach() for part in state), *grads[:2]], list(grads[2:])


def recurrent(run: Setting) -> Results:
    """Spikes, states, and gradients of currents and weights have the CPU's bits; each run gives them again."""
    compared = 0
    for name, neuron in MODELS.items():
        for size in (20, 200, 600) if not run.small else (20,):
            current, weight = _numbers(40, 5, size)
            lengths = torch.tensor([40, 0, 7, 39, 40]) if size == 200 else None
            exact, summed = _outputs(neuron.cpu(), current, weight, lengths)
            on_device = (current.to(run.device), weight.to(run.device))
            there = None if lengths is None else lengths.to(run.device)
            for _ in range(3):
                got, got_sums = _outputs(neuron.to(run.device), *on_device, there)
                for number, (out, expected) in enumerate(zip(got, exact, strict=True)):
                    assert_bits(out.cpu(), expected, f"{name}, {size} neurons, output {number}")
                    compared += 1
                # Sums of 120,000 terms of both signs, in another order.
                for out, expected in zip(got_sums, summed, strict=True):
                    assert_close(out.cpu(), expected.double(), 1e-3, f"{name}, {size} neurons, a constant")
    return {"outputs of recurrent neurons equal to the CPU's": compared}


def recurrent_speed(run: Setting) -> Results:
    """Milliseconds, T = 100, and how many times as long the definition takes, step by step and as a graph.

    Backward multiplies where the surrogate is not zero: at few steps by the triangle, at all by ATan.
    """
    rates: Results = {}
    triangle, everywhere = surrogate.Triangle(width=0.5, height=0.4), surrogate.ATan()
    sizes = ((64, 128), (256, 128), (64, 512), (256, 512), (256, 1024))
    for (batch, size), gradient in [*((pair, triangle) for pair in sizes), ((256, 256), everywhere)]:
        steps, n, h = (5, 2, 16) if run.small else (100, batch, size)
        current, weight = (tensor.to(run.device) for tensor in _numbers(steps, n, h))
        neuron = neurons.CubaLIF(surrogate=gradient)
        leaves = [current.requires_grad_(), weight.requires_grad_()]

        def forward(x: Tensor = leaves[0], w: Tensor = leaves[1], neuron: neurons.Neuron = neuron) -> Tensor:
            return spiking_recurrent(x, w, neuron).value

        def step(leaves: list[Tensor] = leaves) -> None:
            torch.autograd.grad(forward(*leaves).sum(), leaves)

        def infer() -> None:
            with torch.no_grad():
                forward()

        what = f"recurrent CubaLIF, {type(gradient).__name__}, N = {batch}, H = {size}"
        for kind, call in (("forward", infer), ("both passes", step)):
            # A graph: the host takes longer to call both passes than median_ms keeps the device busy.
            fast = median_ms(run, captured(run, call), 10)
            with snnlib.use_path("reference" if run.on_gpu else "auto"):
                slow = median_ms(run, call, 3, with_host=True)
                times = {"ms": round(fast, 3), "definition, times as long": round(slow / fast, 2)}
                note({f"{what}, {kind}, {name}": time for name, time in times.items()})
                launched = median_ms(run, captured(run, call), 3)
                note({f"{what}, {kind}, definition as a graph, times as long": round(launched / fast, 2)})
        rates[f"{what}, spikes per neuron and step"] = round(forward().detach().mean().item(), 3)
    return rates
