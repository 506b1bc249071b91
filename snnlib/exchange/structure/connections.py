"""Connections of a layer in explicit numbers: weights, sizes, delays and recurrence, and the sums over its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Shape = tuple[int, int, int]


@dataclass(kw_only=True)
class Connections:
    """A convolution, or a linear map as one with a kernel as large as its input, and the pool behind its neurons.

    Args:
        name: path of the layer in the net.
        weight: `[O, I, kh, kw]`, groups filled with zeros.
        bias: `[O]` or None.
        recurrent: weights `[O, O]` from the last step's spikes, or None.
        stride, padding, dilation: per axis.
        input: shape of the input frame `[C, H, W]`.
        resets_all: whether a spike clears the synaptic current as well.
        pool: windows whose spikes are averaged for the next stage.
        delay: whole steps that each cell of the input waits `[C, H, W]`, or None.
        weight_delay: those of each weight, in its shape, or None.
        recurrent_delay: those of each recurrent weight, beyond the one step that spikes take to return, or None.
        axes: of space that the frames behind it have in the net, 0 for none.
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    recurrent: Tensor | None = None
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    input: Shape
    resets_all: bool = False
    pool: tuple[int, int] = (1, 1)
    delay: Tensor | None = None
    weight_delay: Tensor | None = None
    recurrent_delay: Tensor | None = None
    axes: int = 0

    @property
    def neurons(self) -> Shape:
        """Channels, height and width of the neurons."""
        sizes = [
            (size + 2 * p - d * (k - 1) - 1) // s + 1
            for size, k, s, p, d in zip(
                self.input[1:], self.weight.shape[2:], self.stride, self.padding, self.dilation, strict=True
            )
        ]
        return self.weight.shape[0], sizes[0], sizes[1]

    @property
    def output(self) -> Shape:
        """Shape of the frame that the next stage reads."""
        channels, height, width = self.neurons
        return channels, height // self.pool[0], width // self.pool[1]

    def products(self, frames: Tensor) -> Tensor:
        """Sums of inputs times weights `[T, B, O, H, W]`, without the bias, of frames `[T, B, C, H, W]`."""
        x, weight = frames, self.weight.to(frames)
        if self.delay is not None:
            x = torch.stack([_later(x, step) * (self.delay == step) for step in _values(self.delay)]).sum(0)
        if self.weight_delay is None:
            return self._convolved(x, weight)
        steps = self.weight_delay
        parts = [self._convolved(_later(x, step), weight * (steps == step)) for step in _values(steps)]
        return torch.stack(parts).sum(0)

    def _convolved(self, x: Tensor, weight: Tensor) -> Tensor:
        sums = F.conv2d(x.flatten(0, 1), weight, None, self.stride, self.padding, self.dilation)
        return sums.view(*x.shape[:2], *self.neurons)

    def returned(self, spikes: list[Tensor]) -> Tensor:
        """Returns what the neurons' own spikes `[B, O, 1, 1]`, the newest first, bring in the next step `[B, O]`."""
        assert self.recurrent is not None
        weight = self.recurrent.double()
        steps = torch.zeros_like(weight) if self.recurrent_delay is None else self.recurrent_delay
        total = spikes[0].new_zeros(spikes[0].flatten(1).shape, dtype=torch.float64)
        for step in _values(steps):
            if step < len(spikes):
                total += spikes[step].flatten(1).double() @ (weight * (steps == step)).t()
        return total


def _values(steps: Tensor) -> list[int]:
    return sorted({int(step) for step in steps.flatten().tolist()})


def _later(x: Tensor, steps: int) -> Tensor:
    """A sequence `[T, ...]` so many steps later."""
    return torch.cat((torch.zeros_like(x[:steps]), x[: max(len(x) - steps, 0)]))
