"""Membrane potentials of single neurons over time, with their threshold and spikes."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from torch import Tensor

from snnlib.app.visual.canvas import (
    FAINT,
    PALETTE,
    check_some,
    column_of_panels,
    heading,
    mark_spikes,
    span_time,
    tidy,
    time_unit,
)

# Thresholds below which a curve is cut off: one strongly inhibited neuron would flatten all others.
_LOWEST = -3.0


def membrane_potentials(
    layers: Mapping[str, Mapping[str, tuple[Tensor, Tensor]]],
    *,
    step_ms: float | None = None,
    title: str = "Membrane potentials",
) -> Figure:
    """Draws a panel per layer: potentials of chosen neurons in units of their threshold, spikes as marks on top.

    Axes end at -3 thresholds, so that a strongly inhibited neuron leaves the others visible.

    Args:
        layers: for each layer name, neuron names with the potential before each reset, divided by the threshold, `[T]`,
            and the spikes `[T]`.
        step_ms: length of a time step in milliseconds; None to count steps.
        title: title of the figure.

    Raises:
        ValueError: no layers.

    >>> import torch
    >>> u = torch.tensor([0.4, 0.9, 1.6])
    >>> membrane_potentials({"fc1": {"neuron 0": (u, u >= 1)}}).axes[0].get_ylabel()
    'potential / threshold'
    """
    check_some("layers", "", layers)
    length, unit = time_unit(step_ms)
    figure, panels = column_of_panels(len(layers), 9.5, 2.1, title)
    for axes, (name, neurons) in zip(panels, layers.items(), strict=True):
        tidy(axes).axhline(1, color=FAINT, linestyle="--", zorder=0)
        steps, highest = 0, 1.0
        for number, (neuron, (potential, spikes)) in enumerate(neurons.items()):
            steps, colour = len(potential), PALETTE[number % len(PALETTE)]
            time = [(step + 0.5) * length for step in range(steps)]
            axes.plot(time, potential.float().numpy(), color=colour, linewidth=1.4, label=neuron)
            highest = max([highest, *potential[potential.isfinite()].tolist()])
            at = [time[step] for step in (spikes != 0).nonzero().flatten().tolist()]
            mark_spikes(axes, at, number, colour)
        span_time(axes, steps, step_ms)
        low = max(axes.get_ylim()[0], _LOWEST)
        # The marks have the part above the curves to themselves.
        axes.set_ylim(low, highest + (highest - low) * (0.1 + 0.09 * len(neurons)))
        axes.set_ylabel("potential / threshold", fontsize=9)
        heading(axes, name)
        axes.legend(
            frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderpad=0.1
        )
    panels[-1].set_xlabel(unit)
    return figure
