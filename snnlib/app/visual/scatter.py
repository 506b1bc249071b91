"""Predicted numbers against their targets."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from snnlib.app.visual.canvas import FAINT, PALETTE, check_some, grid_of_panels, heading, tidy

# More points hide each other and take long to draw.
_MOST_POINTS = 5000


def predictions(
    pairs: Mapping[str, tuple[Tensor, Tensor]], *, title: str = "Predicted against true values"
) -> Figure:
    """A panel per output with a point per sample: the target on the x axis, the prediction on the y axis.

    The dashed line is where both are equal. Of more than 5000 points evenly spaced ones are drawn.

    Args:
        pairs: name of an output to its targets and predictions, both `[samples]`.
        title: what the reader should see.

    Raises:
        ValueError: no outputs, or numbers of predictions and targets that differ.

    >>> import torch
    >>> predictions({"speed": (torch.tensor([1.0, 2.0]), torch.tensor([1.5, 2.0]))}).axes[0].get_xlabel()
    'true'
    """
    check_some("pairs", "output", pairs)
    figure, panels = grid_of_panels(len(pairs), 3.4, 3.4, title)
    for number, (axes, (name, pair)) in enumerate(zip(panels, pairs.items(), strict=True)):
        if pair[0].shape != pair[1].shape:
            raise ValueError(
                f"pairs: expected as many predictions as targets, got {len(pair[1])} and {len(pair[0])}"
            )
        known = pair[0].isfinite() & pair[1].isfinite()
        target, answer = pair[0][known], pair[1][known]
        step = -(-len(target) // _MOST_POINTS) or 1
        # Fainter where there are many, so that dense places show.
        alpha = min(1.0, 8 / max(len(target[::step]), 1) ** 0.5)
        colour = PALETTE[number % len(PALETTE)]
        tidy(axes).scatter(
            target[::step].numpy(), answer[::step].numpy(), s=14, color=colour, alpha=alpha, linewidths=0
        )
        if len(target):
            low, high = float(target.min()), float(target.max())
            axes.plot((low, high), (low, high), color=FAINT, linestyle="--", zorder=0)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        heading(axes, name)
        axes.set_xlabel("true")
        axes.set_ylabel("predicted")
    return figure
