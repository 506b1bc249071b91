"""A shortcut around any modules, added to their output or joined as spikes (SEW residual nets)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from snnlib.checks import check_choice
from snnlib.functional.residual import spike_add

__all__ = ["Residual"]

# Joins of a branch and a shortcut, by name.
JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "and": torch.mul,
    "iand": lambda branch, shortcut: (1 - branch) * shortcut,
    "event_add": spike_add,
}


class Residual(nn.Module):
    """`y = join(body(x), shortcut(x))` over sequences `[T, N, ...]`.

    The position of the neurons decides the kind of residual net::

        Residual(Sequential(PerStep(conv, norm), LIF(), PerStep(conv, norm))), LIF()     currents are added
        Residual(Sequential(PerStep(conv, norm), LIF(), PerStep(conv, norm), LIF()))     spikes are joined (SEW)

    Args:
        body: the branch with weights.
        shortcut: the other branch, such as `PerStep(nn.Conv2d(..., 1, stride=2), norm)` where the body changes the
            shape. Default None: x itself.
        join: `"add"`: a + b, which is 0, 1 or 2 for spikes; `"and"`: a b; `"iand"`: (1 - a) b with a from the body;
            `"event_add"`: a + b with the event-time gradient of `functional.spike_add`, for neurons that learn from
            spike times. Default `"add"`.

    Raises:
        ValueError: an unknown join, or branches of different shapes.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; Fang et al., "Deep Residual Learning
    in Spiking Neural Networks", NeurIPS 2021 (SEW: add, and, iand).

    >>> import torch, snnlib
    >>> conv = snnlib.PerStep(torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4))
    >>> block = snnlib.nn.Residual(torch.nn.Sequential(conv, snnlib.neurons.LIF()))
    >>> block(torch.ones(3, 2, 4, 6, 6)).shape
    torch.Size([3, 2, 4, 6, 6])
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, join: str = "add") -> None:
        super().__init__()
        check_choice("join", join, *JOINS)
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        self.join = join

    def forward(self, x: Tensor) -> Tensor:
        """Returns the joined branches."""
        branch, shortcut = self.body(x), self.shortcut(x)
        if branch.shape != shortcut.shape:
            raise ValueError(
                f"shortcut: expected the shape of the body's output, {tuple(branch.shape)}, "
                f"got {tuple(shortcut.shape)}"
            )
        return JOINS[self.join](branch, shortcut)

    def extra_repr(self) -> str:
        """Returns how the branches are joined."""
        return f"join={self.join!r}"
