"""A block of a state-space model: linear recurrent units between linear maps, a gate and a residual connection.

    h = norm(x);   y = C lru(B h) + d h
    out = x + a sigmoid(b),   (a, b) = W gelu(y)

Source: Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences", ICML 2023, figure 1 and appendix A.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from snnlib.checks import check_count, check_flag, check_floating, check_no_state
from snnlib.neurons import LRU, Neuron, Output

__all__ = ["StateSpaceBlock"]


class StateSpaceBlock(nn.Module):
    """Block of a deep state-space model: sequences `[T, N, C]` to sequences of the same shape.

    ::

        h = norm(x);   y = C neuron(B h) + d h
        out = x + a sigmoid(b),   (a, b) = W gelu(y)

    Layer normalisation acts on each step, so a net of blocks can stream. Maps are linear and have a bias.

    Args:
        width: C, channels of input and output.
        units: number of recurrent units. Default `width`.
        neuron: the units, any neuron of the library; with `LRU.ring(units, threshold=1.0)` the units spike. Default
            `LRU.ring(units)`.
        batch_first: whether sequences are `[N, T, C]`. Default False.

    Raises:
        ValueError: a number out of its range, or an input of another shape.
        TypeError: a `neuron` that is not a `Neuron`.

    >>> import torch, snnlib
    >>> block = snnlib.nn.StateSpaceBlock(16, units=32)
    >>> block(torch.rand(100, 4, 16)).shape
    torch.Size([100, 4, 16])
    """

    def __init__(
        self, width: int, units: int | None = None, *, neuron: Neuron | None = None, batch_first: bool = False
    ) -> None:
        super().__init__()
        units = width if units is None else units
        check_count("width", width)
        check_count("units", units)
        check_flag("batch_first", batch_first)
        if neuron is not None and not isinstance(neuron, Neuron):
            raise TypeError(f"neuron: expected an instance of snnlib.neurons.Neuron, got {neuron!r}")
        self.norm = nn.LayerNorm(width)
        self.enter = nn.Linear(width, units)
        self.neuron = LRU.ring(units) if neuron is None else neuron
        self.neuron.batch_first = batch_first
        self.leave = nn.Linear(units, width)
        self.skip = nn.Parameter(torch.ones(width))
        self.gate = nn.Linear(width, 2 * width)

    @property
    def batch_first(self) -> bool:
        """Returns whether sequences are `[N, T, C]`, an option of the neurons."""
        return self.neuron.batch_first

    def forward(self, x: Tensor, *state: Any) -> Tensor:
        """Returns the output for a sequence from the initial state."""
        check_no_state(self, state)
        h = self._normalised(x)
        return self._joined(x, h, self.neuron(self.enter(h)))

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Runs a sequence from a state; returns output and last state. See `Neuron.run`.

        After a sample's last step, which `lengths` `[N]` gives, the units output 0.
        """
        h = self._normalised(x)
        value, after = self.neuron.run(self.enter(h), state, lengths)
        return Output(self._joined(x, h, value), after)

    def _normalised(self, x: Tensor) -> Tensor:
        check_floating("x", x)
        width = len(self.skip)
        if x.dim() != 3 or x.shape[2] != width:
            order = "[N, T, C]" if self.batch_first else "[T, N, C]"
            raise ValueError(f"x: expected a sequence {order} with C = {width}, got shape {tuple(x.shape)}")
        return self.norm(x)  # type: ignore[no-any-return]

    def _joined(self, x: Tensor, h: Tensor, values: Tensor) -> Tensor:
        y = self.leave(values) + self.skip * h
        return x + nn.functional.glu(self.gate(nn.functional.gelu(y)), -1)
