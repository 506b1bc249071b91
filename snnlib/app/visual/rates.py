"""Firing rates: how they are distributed over neurons, and how they change over the time of a sample."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from torch import Tensor

from snnlib.app.visual.canvas import (
    PALETTE,
    check_some,
    column_of_panels,
    grid_of_panels,
    heading,
    span_time,
    tidy,
    time_unit,
)

_BINS = 40


def rate_histograms(rates: Mapping[str, Tensor], *, title: str = "Firing rates of the neurons") -> Figure:
    r"""Draws a histogram per layer of its neurons' firing rates; dead neurons, which never fire, are counted apart.

    Args:
        rates: layer name to spikes per time step of each neuron.
        title: what the reader should see.

    Raises:
        ValueError: no layers.

    >>> import torch
    >>> figure = rate_histograms({"fc1": torch.tensor([0.0, 0.1, 0.2])})
    >>> figure.axes[0].get_title(loc="left")
    'fc1\n1 of 3 neurons dead'
    """
    check_some("rates", "layer", rates)
    figure, panels = grid_of_panels(len(rates), 3.4, 2.5, title)
    for number, (axes, (name, rate)) in enumerate(zip(panels, rates.items(), strict=True)):
        firing = rate[rate > 0].flatten()
        dead = rate.numel() - firing.numel()
        # Two lines, as a heading in one line is longer than its panel where names are.
        heading(axes, f"{name}\n{dead:,} of {rate.numel():,} neurons dead")
        tidy(axes).set_xlabel("spikes per time step")
        axes.set_ylabel("neurons")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        if firing.numel():
            high = float(firing.max())
            axes.hist(firing.numpy(), bins=_BINS, range=(0, high), color=PALETTE[number % len(PALETTE)])
            axes.set_xlim(0, high)
    return figure


def rates_over_time(
    rates: Mapping[str, Tensor],
    *,
    step_ms: float | None = None,
    title: str = "Spikes per neuron in each time step",
) -> Figure:
    """Draws a panel per layer: spikes per neuron in each time step.

    Args:
        rates: layer name to spikes per neuron `[T]`, such as means over a data set.
        step_ms: length of a time step in milliseconds; None to count steps.
        title: what the reader should see.

    Raises:
        ValueError: no layers.

    >>> import torch
    >>> rates_over_time({"fc1": torch.tensor([0.0, 0.1, 0.2])}).axes[0].get_xlabel()
    'time step'
    """
    check_some("rates", "layer", rates)
    length, unit = time_unit(step_ms)
    figure, panels = column_of_panels(len(rates), 8.5, 1.5, title)
    for number, (axes, (name, rate)) in enumerate(zip(panels, rates.items(), strict=True)):
        colour = PALETTE[number % len(PALETTE)]
        tidy(axes).stairs(
            rate.numpy(), [step * length for step in range(len(rate) + 1)], color=colour, fill=True
        )
        span_time(axes, len(rate), step_ms)
        axes.set_ylim(0, (float(rate.max()) or 1.0) * 1.05)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        heading(axes, name, colour=colour)
    panels[-1].set_xlabel(unit)
    return figure
