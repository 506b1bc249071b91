"""Fixed delays of whole steps, different for each channel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from snnlib import ops
from snnlib.checks import (
    check_count,
    check_flag,
    check_floating,
    check_no_state,
    check_rank,
    check_shape,
    first_state,
)
from snnlib.neurons import Output
from snnlib.nn.layers.delays import Delays
from snnlib.ops.sequence_layout import cat
from snnlib.sequences.history import joined, last_steps
from snnlib.sequences.lengths import run_with_lengths
from snnlib.sequences.time_first import runs_time_first

__all__ = ["DelayLine"]


class DelayLine(nn.Module):
    """Delays the channels of sequences `[T, N, C, ...]` by different numbers of whole steps, after zeros.

    ::

        y[t, c] = x[t - d_c, c],                    d_c = c mod (max_delay + 1)
        y[t, C d + c] = x[t - d, c]                 with `every`, for each d from 0 to max_delay

    The next layer sees `max_delay + 1` steps at once, at the cost of one, if neighbouring channels carry similar
    signals. Use it before `PerStep` of a linear map or convolution, which cannot take `Delays`; `to_integers` converts
    it to axonal delays.

    Args:
        channels: C.
        max_delay: longest delay in time steps.
        every: whether each channel is repeated with every delay, which multiplies the channels by `max_delay + 1`; not
            supported by integer nets. Default False.
        batch_first: whether sequences are `[N, T, C, ...]`. Default False.

    Raises:
        ValueError: a number below 1, or in a call a sequence with another number of channels.

    Source: Shrestha and Orchard, "SLAYER: spike layer error reassignment in time", NeurIPS 2018 (axonal delays).

    >>> import torch, snnlib
    >>> x = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]).unsqueeze(1)   # [T, N, C]
    >>> snnlib.nn.DelayLine(2, 1)(x).squeeze(1).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """

    def __init__(
        self, channels: int, max_delay: int, *, every: bool = False, batch_first: bool = False
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        steps = torch.arange(channels, dtype=torch.float32) % (max_delay + 1)
        self.delays = Delays(max_delay, initial=steps, learnable=False)
        self.delays.build(channels, steps)
        self.copies = max_delay + 1 if check_flag("every", every) else 1
        self.batch_first = batch_first

    @runs_time_first
    def forward(self, x: Tensor, *state: Any) -> Tensor:
        """Returns the delayed sequence, starting from silence."""
        check_no_state(self, state)
        self._check(x)
        return self._late(x, len(x))

    @runs_time_first
    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Runs a chunk from the last steps of the chunk before, `([max_delay + 1, N, ...],)`, which are the state."""
        self._check(x)
        if lengths is not None:
            return Output(*run_with_lengths(self._run, x, state, lengths))
        return self._run(x, state)

    def _run(self, x: Tensor, state: tuple[Tensor, ...] | None) -> Output:
        history = self.delays.history
        before = joined(x, first_state(state), history)
        return Output(self._late(before, len(x)), (last_steps(before, history),))

    def _check(self, x: Tensor) -> None:
        check_floating("x", x)
        check_rank("x", x, "[T, N, C, ...]", at_least=3)
        check_shape("x", x, (*x.shape[:2], len(self.delays.steps), *x.shape[3:]), "channels as in shape")

    def _late(self, x: Tensor, steps: int) -> Tensor:
        """Returns the last steps of a sequence, delayed."""
        if self.copies == 1:
            late: Tensor = ops.delay.delay_forward(x, self.delays(), True)
            return late[len(late) - steps :]
        missing = max(steps + self.delays.max_delay - len(x), 0)
        x = cat((x.new_zeros(missing, *x.shape[1:]), x), x)
        first = len(x) - steps
        return cat([x.narrow(0, first - delay, steps) for delay in range(self.copies)], x, 2)
