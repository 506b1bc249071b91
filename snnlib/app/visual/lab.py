"""Experiments of an electrophysiologist on a single neuron: current clamp and f-I curve."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from snnlib.app.visual.canvas import FAINT, PALETTE, column_of_panels, mark_spikes, new_figure, tidy
from snnlib.checks import as_tensor, check_floating, check_positive_number, check_rank, check_shape
from snnlib.neurons import Neuron


def current_clamp(
    neuron: Neuron,
    current: Tensor,
    *,
    dt: float,
    units: tuple[str, str] = ("mV", "pA"),
    title: str = "Current clamp",
) -> Figure:
    """Draws the membrane potential of a neuron above the current that is injected into it, over time in ms.

    The potential is `neuron.potential(x)`, before the reset of its step. Marks along the upper edge are spikes.

    Args:
        neuron: the neuron, with one value per constant.
        current: the injected current `[T]`, or `[T, K]` for K repetitions, each in its colour.
        dt: length of a time step in ms.
        units: of potential and current, for the axes. Default mV and pA, as in a recording.
        title: title of the figure.

    Raises:
        TypeError: `neuron` is not a neuron of snnlib, or `current` not floating-point.
        ValueError: `current` of another shape, `dt` not above 0, or a neuron whose potential is unknown.

    >>> import torch, snnlib
    >>> figure = current_clamp(snnlib.neurons.LIF(tau=20.0), torch.full((300,), 1.5), dt=0.5, units=("1", "1"))
    >>> figure.axes[0].get_ylabel(), figure.axes[1].get_xlabel()
    ('potential (1)', 'time (ms)')
    """
    check_positive_number("dt", dt)
    check_floating("current", current)
    check_rank("current", current, "[T] or [T, K]", at_least=1, at_most=2)
    traces = current if current.dim() == 2 else current[:, None]
    cell = _time_first(neuron)
    spikes = _spikes(cell, traces)
    with torch.no_grad():
        potential = cell.potential(traces[..., None])[..., 0]
    steps = torch.arange(len(traces) + 1) * dt
    figure, (above, below) = column_of_panels(2, 9.5, 2.1, title)
    for row, (v, fired, injected) in enumerate(zip(potential.T, spikes.T, traces.T, strict=True)):
        colour = PALETTE[row % len(PALETTE)]
        # A step gives the potential at its end, and the current is constant within a step.
        tidy(above).plot(steps[1:].numpy(), v.numpy(), color=colour, linewidth=1.4)
        mark_spikes(above, steps[1:][fired].tolist(), row, colour)
        tidy(below).stairs(injected.numpy(), steps.numpy(), color=colour, baseline=None)
    low, high = above.get_ylim()
    above.set_ylim(low, high + (high - low) * 0.09 * (traces.shape[1] + 1))
    above.set_ylabel(f"potential ({units[0]})")
    below.set_ylabel(f"current ({units[1]})")
    below.set_xlabel("time (ms)")
    below.set_xlim(0, float(steps[-1]))
    return figure


def f_i_curve(
    neuron: Neuron,
    currents: Tensor,
    *,
    dt: float,
    duration: float = 1000.0,
    theory: Sequence[float] | None = None,
    unit: str = "pA",
    title: str = "f-I curve",
) -> Figure:
    """Draws the firing rate of a neuron against constant currents: of its first interval, and once it has adapted.

    ::

        f = 1000 / (dt interval)           in Hz: interval in steps, the first one or the mean of the settled ones

    Settled intervals end in the second half of the run. A current without such an interval has the rate 0, so slow
    firing needs a long `duration`: 1000 ms show rates of 2 Hz and more. The lines of `figure.axes[0]` hold the rates,
    settled and first.

    Args:
        neuron: the neuron, with one value per constant.
        currents: constant currents `[K]`.
        dt: length of a time step in ms.
        duration: length of the run in ms. Default 1000.
        theory: rates in Hz `[K]` to draw behind the measured ones. Default None.
        unit: of the currents, for the axis. Default pA.
        title: title of the figure.

    Raises:
        TypeError: `neuron` is not a neuron of snnlib, or `currents` not floating-point.
        ValueError: `currents` or `theory` of another shape, `dt` or `duration` not above 0.

    >>> import torch, snnlib
    >>> figure = f_i_curve(snnlib.neurons.LIF(tau=20.0), torch.tensor([0.5, 2.0]), dt=1.0, unit="threshold")
    >>> settled, first = figure.axes[0].lines
    >>> [round(float(rate), 1) for rate in settled.get_ydata()]
    [0.0, 71.4]
    """
    check_positive_number("dt", dt)
    check_positive_number("duration", duration)
    check_floating("currents", currents)
    check_rank("currents", currents, "[K]", exactly=1)
    steps = max(round(duration / dt), 1)
    settled, first = [], []
    for train in _spikes(_time_first(neuron), currents.expand(steps, -1)).T:
        ends = train.nonzero().flatten().double()
        intervals = dt * ends.diff()
        late = intervals[ends[1:] >= steps / 2]
        first.append(1000 / float(intervals[0]) if len(intervals) else 0.0)
        settled.append(1000 / float(late.mean()) if len(late) else 0.0)
    figure = new_figure(7.5, 4.2, title)
    axes = tidy(figure.add_subplot())
    axes.plot(currents.numpy(), settled, "o-", color=PALETTE[0], markersize=4, label="settled")
    axes.plot(currents.numpy(), first, "--", color=PALETTE[1], label="first interval")
    if theory is not None:
        check_shape("theory", rates := as_tensor("theory", theory), currents.shape, "the shape of currents")
        axes.plot(currents.numpy(), rates.numpy(), color=FAINT, linewidth=5, zorder=0, label="theory")
    axes.set_xlabel(f"current ({unit})")
    axes.set_ylabel("rate (Hz)")
    axes.legend(frameon=False)
    return figure


def _time_first(neuron: Neuron) -> Neuron:
    """Returns the neuron for currents `[T, K, 1]`."""
    if not isinstance(neuron, Neuron):
        raise TypeError(f"neuron: expected an instance of snnlib.neurons.Neuron, got {neuron!r}")
    cell = copy.copy(neuron)
    cell.batch_first = False
    return cell


@torch.no_grad()
def _spikes(cell: Neuron, traces: Tensor) -> Tensor:
    """Returns where the neuron fires, bool `[T, K]`, in K runs with currents `[T, K]`; an Integrator never does."""
    return (cell.run(traces[..., None]).value[..., 0] != 0) & cell.gives_spikes
