"""A section of a report: a heading, a text, and a figure; and what layers are called in figures."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations


@dataclass(frozen=True)
class Section:
    """A heading, its text, and a figure to draw below it under the file name `file`."""

    file: str
    title: str
    text: str
    figure: Figure


def label(name: str, layer: nn.Module) -> str:
    """Returns the label of a layer in figures: its name, and its type if the name is only a number.

    >>> label("conv1", nn.ReLU()), label("0", nn.ReLU())
    ('conv1', '0: ReLU')
    """
    kind = type_before_parametrizations(layer).__name__
    return f"{name}: {kind}" if name.rpartition(".")[2].isdigit() else name
