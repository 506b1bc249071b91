"""True and predicted classes at every step, as bands of colour over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from snnlib.app.visual.canvas import PALETTE, check_some, heading, new_figure, span_time, tidy, time_unit


def labels_over_time(
    rows: Mapping[str, tuple[Tensor, Tensor]],
    classes: Sequence[str],
    *,
    step_ms: float | None = None,
    no_label: int = -1,
    title: str = "Classes over time: true (upper line), predicted (lower line)",
) -> Figure:
    """Draws a panel per sequence with two bands: the true and the predicted class of every step.

    Args:
        rows: name to the labels and the predictions of a sequence, both `[T]`.
        classes: names of the classes.
        step_ms: length of a time step in milliseconds; None to count steps.
        no_label: label of steps that have none; they stay white in both bands.
        title: what the reader should see.

    Raises:
        ValueError: no sequences, labels and predictions of different lengths, or a class without a name.

    >>> import torch
    >>> rows = {"first": (torch.tensor([0, 0, 1, -1]), torch.tensor([0, 1, 1, 1]))}
    >>> figure = labels_over_time(rows, ["rest", "wave"])
    >>> figure.axes[0].get_xlabel(), [text.get_text() for text in figure.legends[0].get_texts()]
    ('time step', ['rest', 'wave'])
    """
    check_some("rows", "sequence", rows)
    length, unit = time_unit(step_ms)
    few = len(classes) <= len(PALETTE)
    colours = PALETTE[: len(classes)] if few else colormaps["hsv"](np.linspace(0, 0.95, len(classes)))
    figure = new_figure(9.5, 1.0 * len(rows) + 1.2, title)
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axes, (name, (labels, answers)) in zip(panels, rows.items(), strict=True):
        if labels.shape != answers.shape:
            raise ValueError(
                f"rows: expected as many predictions as labels, got {len(answers)} and {len(labels)} for {name!r}"
            )
        bands = np.stack((labels.numpy(), answers.numpy()))
        known = bands[0] != no_label
        if known.any() and not 0 <= bands[:, known].min() <= bands[:, known].max() < len(classes):
            raise ValueError(
                f"classes: expected a name for every label, got {len(classes)} for up to {bands[:, known].max()}"
            )
        tidy(axes).imshow(
            np.ma.masked_array(bands, mask=np.stack((~known, ~known))),
            cmap=ListedColormap(colours),
            vmin=-0.5,
            vmax=len(classes) - 0.5,
            aspect="auto",
            interpolation="nearest",
            extent=(0, len(labels) * length, 2, 0),
        )
        span_time(axes, len(labels), step_ms)
        axes.set_yticks([0.5, 1.5], ["true", "predicted"], fontsize=8)
        axes.tick_params(axis="y", length=0)
        right = float((bands[0] == bands[1])[known].mean()) if known.any() else float("nan")
        heading(axes, f"{name}: {right:.1%} of the labelled steps right")
    panels[-1].set_xlabel(unit)
    keys = [Patch(color=colour, label=name) for colour, name in zip(colours, classes, strict=True)]
    figure.legend(
        handles=keys, loc="outside lower center", ncols=min(len(classes), 10), fontsize=8, frameon=False
    )
    return figure
