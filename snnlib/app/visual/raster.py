"""The raster plot: every step in which a neuron fires as a mark over time, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from snnlib.app.visual.canvas import (
    FAINT,
    INK,
    PALETTE,
    check_some,
    heading,
    new_figure,
    span_time,
    tidy,
    time_unit,
)
from snnlib.app.visual.events import draw_accumulated

# Up to this many neurons get a row each with its name; more are drawn as a cloud.
_FEW_NEURONS = 20
# Across half of a raster, fewer than there are.
_PIXELS = 800
# Names of neurons, channels or outputs that fit beside a raster of the usual height.
_MOST_NAMES = 11


def raster(
    sequences: Mapping[str, Tensor],
    *,
    step_ms: float | None = None,
    title: str = "Spikes of one sample",
    classes: Sequence[str] | None = None,
    label: int | None = None,
    potentials: Tensor | None = None,
    every_step: bool = False,
    decides: bool = True,
) -> Figure:
    """Spikes of one sample through a net: events as pictures, a raster per layer, the outputs' scores as bars.

    Neurons are drawn in the order of their index, so those of one channel of a convolutional layer lie together: each
    channel is a band, with its number beside it.

    Args:
        sequences: layer name to spike train `[T, ...]` of one sample, in the order of the net. The first is the input;
            if it is `[T, 2, H, W]` it is shown as pictures as well. The last is the output; its counts are drawn,
            unless there are `potentials`.
        step_ms: length of a time step in milliseconds; None to count steps.
        title: what the reader should see.
        classes: names of the output neurons; their numbers if None.
        label: the true class, marked among the bars.
        potentials: `[T, classes]`, of output neurons that do not fire (`SRMReadout`): curves over time, and bars of
            their means.
        every_step: whether the highest potential decides at each step, not the highest mean; the bars are then shares
            of the steps.
        decides: whether the outputs are classes of which one is the answer; else none is in colour.

    Raises:
        ValueError: no sequences.

    >>> import torch
    >>> figure = raster({"input": torch.ones(4, 2, 3, 3), "output": torch.eye(4)}, step_ms=10.0, label=1)
    >>> [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]
    ['time (ms)', 'output spikes']
    """
    check_some("sequences", "layer", sequences)
    layers = list(sequences.items())
    first, output = layers[0][1], layers[-1][1] if potentials is None else None
    has_pictures = first.dim() == 4 and first.shape[1] == 2
    rows = has_pictures + len(layers) + (potentials is not None)
    figure = new_figure(9.5, 2.2 * rows)
    figure.suptitle(title, color=INK, fontsize=13)
    grid = figure.add_gridspec(rows, 2, width_ratios=(4, 1))
    if has_pictures:
        row = grid[0, 0].subgridspec(1, 3)
        draw_accumulated([figure.add_subplot(row[0, column]) for column in range(3)], first, step_ms)
        _write(figure.add_subplot(grid[0, 1]), "input events", "red: became brighter\nblue: became darker")
    for number, (name, sequence) in enumerate(layers, start=int(has_pictures)):
        axes = figure.add_subplot(grid[number, 0])
        colour = PALETTE[number % len(PALETTE)]
        _draw_spikes(axes, name, sequence, step_ms, colour)
        axes.tick_params(labelbottom=sequence is output)
        if sequence is output:
            axes.set_xlabel(time_unit(step_ms)[1])
            counts = output.flatten(1).sum(0)
            bars = _draw_scores(figure.add_subplot(grid[number, 1]), counts, classes, label, colour, decides)
            bars.set_xlabel("output spikes")
            if decides:
                heading(bars, "most spikes decide")
        else:
            fires = sequence != 0
            # An input may hold amplitudes.
            spikes = fires if sequence is first else sequence
            _write(
                figure.add_subplot(grid[number, 1]),
                "",
                f"{fires[0].numel():,} neurons\n{int(spikes.sum()):,} spikes\n"
                f"{float(fires.double().mean()):.1%} of neurons\nfire in a time step",
            )
    if potentials is not None:
        colour = PALETTE[rows % len(PALETTE)]
        highest = potentials == potentials.max(1, keepdim=True).values
        scores = highest.double().mean(0) if every_step else potentials.mean(0)
        best = int(scores.argmax()) if decides else None
        _draw_potentials(figure.add_subplot(grid[-1, 0]), potentials, best, step_ms, colour)
        bars = _draw_scores(figure.add_subplot(grid[-1, 1]), scores, classes, label, colour, decides)
        bars.set_xlabel("share of the steps" if every_step else "mean output potential")
        if decides:
            how = "highest of a step decides" if every_step else "highest mean decides"
            heading(bars, how)
    return figure


def _draw_potentials(
    axes: Axes, potentials: Tensor, best: int | None, step_ms: float | None, colour: str
) -> None:
    length, unit = time_unit(step_ms)
    time = [(step + 0.5) * length for step in range(len(potentials))]
    for number, potential in enumerate(potentials.T):
        answer = best is None or number == best
        tidy(axes).plot(time, potential.numpy(), color=colour if answer else FAINT, zorder=2 + answer)
    span_time(axes, len(potentials), step_ms)
    axes.set_xlabel(unit)
    axes.set_ylabel("potential")
    answer_shown = "" if best is None else ", those of the answer in colour"
    heading(axes, f"output: membrane potentials{answer_shown}", 11, colour)


def _draw_spikes(axes: Axes, name: str, sequence: Tensor, step_ms: float | None, colour: str) -> None:
    spikes, length = sequence.flatten(1) != 0, time_unit(step_ms)[0]
    steps, neurons = spikes.shape
    time, neuron = spikes.nonzero(as_tuple=True)
    few = neurons <= _FEW_NEURONS
    # As wide as the time step, but for a gap that shows the steps; no narrower than a pixel.
    half = max(0.45, steps / _PIXELS)
    tidy(axes).hlines(
        neuron,
        (time + 0.5 - half) * length,
        (time + 0.5 + half) * length,
        colors=colour,
        linewidth=5 if few else 0.6,
        # Several of many neurons share a line of pixels: fainter marks let it show how many of them fire.
        alpha=1.0 if few else min(0.5, 1500 / neurons),
        rasterized=True,
    )
    span_time(axes, steps, step_ms)
    axes.set_ylim(-0.7, neurons - 0.3)
    if sequence.dim() > 2 and sequence.shape[1] > 1 and not few:
        _draw_channels(axes, sequence.shape[1], neurons // sequence.shape[1])
    else:
        axes.set_ylabel("neuron")
        if few:
            axes.set_yticks(range(0, neurons, -(-neurons // _MOST_NAMES)))
    heading(axes, name, 11, colour)


def _draw_channels(axes: Axes, channels: int, neurons: int) -> None:
    """Shade every second channel, `neurons` rows each, and name as many of them as there is room for."""
    for channel in range(1, channels, 2):
        low = channel * neurons - 0.5
        axes.axhspan(low, low + neurons, color=FAINT, alpha=0.25, linewidth=0, zorder=0)
    named = range(0, channels, -(-channels // _MOST_NAMES))
    axes.set_yticks([(channel + 0.5) * neurons - 0.5 for channel in named], list(map(str, named)))
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("channel")


def _write(axes: Axes, title: str, text: str) -> None:
    axes.axis("off")
    heading(axes, title)
    axes.text(0, 0.95, text, transform=axes.transAxes, va="top", color=INK, linespacing=1.5)


def _draw_scores(
    axes: Axes, scores: Tensor, classes: Sequence[str] | None, label: int | None, colour: str, decides: bool
) -> Axes:
    names = [str(number) for number in range(len(scores))] if classes is None else list(classes)
    bars = tidy(axes).barh(range(len(scores)), scores.numpy(), color=FAINT)
    if decides:
        bars[int(scores.argmax())].set_color(colour)
    # Names and numbers of many outputs would lie over each other: some keep their name, none its number.
    apart = -(-len(scores) // _MOST_NAMES)
    for row, score in enumerate(scores.tolist() if apart == 1 else []):
        # On the right of bars to the left, too, where they do not meet the classes' names.
        place = max(score, 0.0) if math.isfinite(score) else 0.0
        style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8}
        axes.annotate(f"{score:.3g}", (place, row), (3, 0), **style)
    named = sorted({*range(0, len(scores), apart)} | ({label} if label is not None else set()))
    axes.set_yticks(named, [names[place] for place in named])
    axes.set_ylim(-0.7, len(scores) - 0.3)
    finite = scores[scores.isfinite()].tolist()
    low, high = min([*finite, 0.0]), max([*finite, 0.0])
    span = high - low or 1.0
    # Room for the numbers at the ends of the bars.
    axes.set_xlim(low - 0.05 * span * (low < 0), high + 0.45 * span)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.set_ylabel("class" if decides else "output")
    if label is not None:
        # The true class in bold, also where it has no bar.
        axes.get_yticklabels()[named.index(label)].set_fontweight("bold")
    return axes
