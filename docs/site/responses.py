"""Draws what a neuron does: an input current, its states, and its spikes."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import Tensor

from snnlib.neurons import Neuron

STEPS = 120
# A pulse alone, three pulses close together, and a constant current from here on.
_PULSES, _CONSTANT_FROM = (5, 25, 28, 31), 50
# The height of the input is the least of these that makes the neuron fire at least this often. None holds a potential
# at the threshold, where rounding would decide.
_HEIGHTS = (0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4)
_LEAST_SPIKES = 6
# Gives every build the same bytes.
mpl.rcParams["svg.hashsalt"] = "snnlib"


def draw(neuron: Neuron, file: Path) -> None:
    """Write an SVG of the neuron's response, a row each for input, every state and the output."""
    current, states, value = response(neuron)
    rows = [("input", current), *zip(neuron.state_names, states, strict=True)]
    figure = Figure(figsize=(7.5, 1.1 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), sharex=True)
    for axis, (label, values) in zip(axes, rows, strict=True):
        axis.plot(values, color="#5c6bc0", linewidth=1.4)
        axis.set_ylabel(label, rotation=0, ha="right", va="center")
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    fired = value.nonzero().flatten()
    if neuron.state_names and not torch.equal(value, states[0]):
        axes[1].plot(
            fired, states[0].max().clamp(min=0).expand(len(fired)) * 1.08, ".", color="#d81b60", markersize=5
        )
    axes[-1].set_xlabel("time step")
    figure.savefig(file, transparent=True, metadata={"Date": None})


@torch.no_grad()
def response(neuron: Neuron) -> tuple[Tensor, list[Tensor], Tensor]:
    """Current `[T]`, states `[T]` each, and output `[T]`.

    The first state, where it is the potential, is the one before the reset of its step: spikes stand over a curve that
    reaches the threshold.
    """
    for height in _HEIGHTS:
        current = torch.zeros(STEPS)
        current[list(_PULSES)] = 2 * height
        current[_CONSTANT_FROM:] = height / 2
        state, rows, values = None, [], []
        for step in current:
            out = neuron.run(step.view(1, 1, 1), state)
            state = out.state
            values.append(out.value.flatten())
            rows.append(torch.cat([part.flatten() for part in state])[: len(neuron.state_names)])
        states, value = list(torch.stack(rows).unbind(1)), torch.cat(values)
        potential, silent = neuron.potential(current.view(-1, 1, 1)).flatten(), value == 0
        if states and torch.allclose(potential[silent], states[0][silent], atol=1e-5):
            states[0] = potential
        if int(value.count_nonzero()) >= _LEAST_SPIKES:
            break
    return current, states, value
