"""The confusion matrix: which class was taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from snnlib.app.visual.canvas import INK, new_figure


def recall_precision(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Recall and precision of each class `[classes]`; NaN for a class without samples, or one never predicted.

    >>> import torch
    >>> recall, precision = recall_precision(torch.tensor([[3, 1], [0, 4]]))
    >>> recall.tolist(), precision.tolist()
    ([0.75, 1.0], [1.0, 0.8])
    """
    right = counts.diagonal().double()
    return right / counts.sum(1), right / counts.sum(0)


def _write_beside(axes: Axes, number: int, recall: Tensor, precision: Tensor) -> None:
    """Recall on the right of each row, precision below each column's name on top."""
    style: dict[str, Any] = {"fontsize": 8, "color": INK, "annotation_clip": False}
    for index in range(number):
        for text, xy, place in (
            (recall[index], (number - 0.4, index), ("left", "center")),
            (precision[index], (index, -0.6), ("center", "bottom")),
        ):
            share = "-" if text.isnan() else f"{float(text):.0%}"
            axes.annotate(share, xy, ha=place[0], va=place[1], **style)
    axes.annotate("recall", (number - 0.4, -0.6), ha="left", va="bottom", weight="bold", **style)
    axes.annotate("precision", (-0.6, -0.6), ha="right", va="bottom", weight="bold", **style)


def confusion_matrix(counts: Tensor, classes: Sequence[str], *, title: str = "Confusion matrix") -> Figure:
    """Samples by true class (row) and predicted class (column), written into the cells.

    Colours show shares of a row, so that small classes count as much as large ones. On the right stands each class's
    recall, the share of its samples that were recognised, and on top its precision, the share of its predictions
    that were right.

    Args:
        counts: samples `[classes, classes]`, rows are true classes.
        classes: names of the classes.
        title: what the reader should see.

    Raises:
        ValueError: `counts` is not square or has not one row per class.

    >>> import torch
    >>> figure = confusion_matrix(torch.eye(2), ["cat", "dog"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['1', '1', '100%', '100%', '100%', '100%', 'recall', 'precision']
    """
    number = len(classes)
    if tuple(counts.shape) != (number, number):
        raise ValueError(
            f"counts: expected shape {(number, number)} for {number} classes, got {tuple(counts.shape)}"
        )
    shares = counts.double() / counts.sum(1, keepdim=True).clamp(min=1)
    # Cells of half an inch up to a size that fits a page; numbers where they can be read.
    cell = min(0.5, 9 / number)
    readable, names = cell >= 0.3, cell >= 0.14
    figure = new_figure(max(6.4, cell * number + 2.4), max(5.6, cell * number + 1.6))
    axes = figure.add_subplot()
    image = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    for row, column in counts.nonzero().tolist() if readable else ():
        axes.text(
            column,
            row,
            f"{int(counts[row, column])}",
            ha="center",
            va="center",
            color="white" if shares[row, column] > 0.5 else INK,
            fontsize=9,
        )
    long_names = max(map(len, classes), default=0) > 3
    axes.set_xticks(
        range(number) if names else [], classes if names else [], rotation=60 if long_names else 0
    )
    axes.set_yticks(range(number) if names else [], classes if names else [])
    # Thin white lines between cells.
    axes.set_xticks([place - 0.5 for place in range(1, number)], minor=True)
    axes.set_yticks([place - 0.5 for place in range(1, number)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5 if readable else 0.3)
    if readable:
        recall, precision = recall_precision(counts)
        _write_beside(axes, number, recall, precision)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.set_title(title, color=INK, loc="left", pad=30 if readable else None)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.6, pad=0.1).outline.set_visible(
        False
    )
    return figure
