"""A layer that reads sequences in both directions, with separate weights."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from snnlib.checks import check_floating, check_lengths, check_no_state, check_rank
from snnlib.neurons import Output
from snnlib.ops.sequence_layout import cat
from snnlib.sequences.lengths import lengths_of_call
from snnlib.sequences.time_first import runs_time_first, time_first

__all__ = ["Bidirectional"]


def reversed_in_time(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Reverses the steps of sequences `[T, N, ...]`, within each sample's length; padding stays in place.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1).expand(3, 2, 1)
    >>> snnlib.nn.recurrent.bidirectional.reversed_in_time(x, torch.tensor([3, 2]))[..., 0].tolist()
    [[3.0, 2.0], [2.0, 1.0], [1.0, 3.0]]
    """
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(len(x), device=x.device)
    back = lengths[:, None] - 1 - steps
    back = torch.where(back >= 0, back, steps)
    samples = torch.arange(len(lengths), device=x.device)
    return x[back.t(), samples]


class Bidirectional(nn.Module):
    """Two copies of a layer, one of which reads the sequence backwards: `[T, N, ...]` to `[T, N, 2 H, ...]`.

    ::

        y[t] = (forwards(x)[t], reversed(backwards(reversed(x)))[t])      concatenated along the channels

    The net sees the whole sequence at every step, so it cannot run in chunks: a stream or a given state is an error.

    Args:
        layer: any module over sequences whose `forward` takes `[T, N, ...]`; `SpikingRNN` and layers with a
            `run(x, state, lengths)` also take lengths. The second direction gets a copy with newly drawn weights.
        batch_first: whether sequences are `[N, T, ...]`; None: as in the layer. Default None.

    Raises:
        TypeError: the layer is not a module, or lengths are given and its `run` does not take lengths.
        ValueError: a state is given.

    Source: Schuster and Paliwal, "Bidirectional recurrent neural networks", IEEE Trans. Signal Processing 45, 1997.

    >>> import torch, snnlib
    >>> layer = snnlib.Bidirectional(snnlib.SpikingRNN(20, 32))
    >>> x = (torch.rand(50, 4, 20) < 0.1).float()
    >>> layer(x).shape
    torch.Size([50, 4, 64])
    >>> layer.run(x, lengths=torch.tensor([50, 40, 30, 20])).value.shape
    torch.Size([50, 4, 64])
    """

    # Its output at a step depends on later ones, up to each sample's own last step.
    mixes_time: ClassVar[bool] = True
    takes_padding: ClassVar[bool] = True

    def __init__(self, layer: nn.Module, *, batch_first: bool | None = None) -> None:
        super().__init__()
        if not isinstance(layer, nn.Module):
            raise TypeError(f"layer: expected a module over sequences, got {type(layer).__name__}")
        self.batch_first = bool(getattr(layer, "batch_first", False)) if batch_first is None else batch_first
        self.forwards, self.backwards = layer, copy.deepcopy(layer)
        for module in self.backwards.modules():
            if callable(getattr(module, "reset_parameters", None)):
                module.reset_parameters()  # type: ignore[operator]

    @runs_time_first
    def forward(self, x: Tensor, *state: Any) -> Tensor:
        """Runs both directions; all samples have T steps, except in calls by `snnlib.run_ragged`."""
        check_no_state(self, state)
        lengths, order = lengths_of_call(x), self.batch_first
        # Reports list the two in this order.
        first = time_first(self.forwards(time_first(x, order)), order)
        back = self.backwards(time_first(reversed_in_time(x, lengths), order))
        return cat((first, reversed_in_time(time_first(back, order), lengths)), x, 2)

    @runs_time_first
    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Runs both directions with the number of steps of each sample `[N]`; returns the last states of both.

        The backward direction starts at each sample's own last step. The states are those of the forward direction,
        then those of the backward direction, which has read the sequence down to its first step.
        """
        if state is not None:
            raise ValueError(
                "state: expected None, as a sequence read in both directions has no chunks, got a state"
            )
        if lengths is not None:
            check_floating("x", x)
            check_rank("x", x, "[T, N, ...]", at_least=3)
            lengths = check_lengths(lengths, x)
        outputs, order = [], self.batch_first
        for direction, layer in enumerate((self.forwards, self.backwards)):
            run = getattr(layer, "run", None)
            if not callable(run):
                raise TypeError(
                    f"layer: expected one with run(x, state, lengths), got {type(layer).__name__}"
                )
            read = reversed_in_time(x, lengths) if direction else x
            value, after = run(time_first(read, order), None, lengths)
            outputs.append((time_first(value, order), after))
        (first, states), (second, others) = outputs
        return Output(cat((first, reversed_in_time(second, lengths)), x, 2), (*states, *others))

    def extra_repr(self) -> str:
        """Options that differ from the defaults."""
        return "batch_first=True" if self.batch_first else ""
