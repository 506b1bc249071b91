"""The confusion matrix: which class was taken for which."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from snnlib.visual.canvas import INK, new_figure


def confusion_matrix(counts: Tensor, classes: Sequence[str], *, title: str = "Confusion matrix") -> Figure:
    """Samples by true class (row) and predicted class (column), written into the cells.

    Colours show shares of a row, so that small classes count as much as large ones.

    Args:
        counts: samples `[classes, classes]`, rows are true classes.
        classes: names of the classes.
        title: what the reader should see.

    Raises:
        ValueError: `counts` is not square or has not one row per class.

    >>> import torch
    >>> figure = confusion_matrix(torch.eye(2), ["cat", "dog"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['1', '1']
    """
    number = len(classes)
    if tuple(counts.shape) != (number, number):
        raise ValueError(
            f"counts: expected shape {(number, number)} for {number} classes, got {tuple(counts.shape)}"
        )
    shares = counts.double() / counts.sum(1, keepdim=True).clamp(min=1)
    figure = new_figure(6.4, 5.6)
    axes = figure.add_subplot()
    image = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    for row, column in counts.nonzero().tolist():
        axes.text(
            column,
            row,
            f"{int(counts[row, column])}",
            ha="center",
            va="center",
            color="white" if shares[row, column] > 0.5 else INK,
            fontsize=9,
        )
    axes.set_xticks(range(number), classes)
    axes.set_yticks(range(number), classes)
    # Thin white lines between cells.
    axes.set_xticks([place - 0.5 for place in range(1, number)], minor=True)
    axes.set_yticks([place - 0.5 for place in range(1, number)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.set_title(title, color=INK, loc="left")
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8).outline.set_visible(False)
    return figure
