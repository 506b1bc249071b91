"""Dropout of neurons for a whole sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from snnlib.checks import check_device, check_floating, check_no_state, check_rank, check_shape, first_state
from snnlib.neurons import Output
from snnlib.sequences.time_first import runs_time_first

__all__ = ["SpikeDropout"]


class SpikeDropout(nn.Module):
    """Dropout that silences the same neurons at every time step of a sequence.

    `y[t] = x[t] * mask / (1 - p)` with one mask `[N, ...]` for all t, whose elements are 1 with probability 1 - p; in
    eval mode and for p = 0, `y = x`. `torch.nn.Dropout` draws a new mask for every step, which averages out over time
    and regularises less. Otherwise values and the gradient `dL/dx = dL/dy * mask / (1 - p)` are those of
    `torch.nn.Dropout`; p = 1 gives zeros.

    Args:
        p: probability that a neuron is silenced, 0 to 1. Default 0.5, as in `torch.nn.Dropout`.
        batch_first: whether the batch dimension comes before time.

    Shape:
        x and y: `[T, N, ...]`, `[N, T, ...]` with `batch_first`; any floating dtype. mask: `[N, ...]`, bool.

    Raises:
        TypeError: x is not a floating-point tensor, or the state not a bool tensor.
        ValueError: p outside 0 to 1, or a shape or device that does not fit.

    Source: Lee et al., "Enabling Spike-based Backpropagation for Training Deep Neural Network Architectures", 2020.

    >>> import torch, snnlib
    >>> dropout = snnlib.SpikeDropout(0.5)
    >>> y = dropout(torch.ones(4, 1, 6))
    >>> sorted(set(y.flatten().tolist())) in ([0.0, 2.0], [0.0], [2.0]), torch.equal(y[0], y[3])
    (True, True)
    """

    def __init__(self, p: float = 0.5, batch_first: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p: expected a probability from 0 to 1, got {p}")
        self.p = p
        self.batch_first = batch_first

    def forward(self, x: Tensor, *state: Any) -> Tensor:
        """Returns the sequence with silenced neurons; torch's generator draws the mask."""
        check_no_state(self, state)
        return self.run(x).value

    @runs_time_first
    def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> Output:
        """Runs a chunk with the mask of an earlier chunk, `([N, ...],)`; the state is the mask, in eval mode ones."""
        check_floating("x", x)
        check_rank("x", x, "[T, N, ...]", at_least=2)
        given = first_state(state)
        mask = self._mask(x) if given is None else self._checked(given, x)
        spikes = x
        if self.training and self.p > 0:
            # For p = 1 the mask is all zeros and the scale plays no part.
            scale = 1 / (1 - self.p) if self.p < 1 else 1.0
            spikes = x * (mask.to(x.dtype) * scale)
        return Output(spikes, (mask,))

    def _mask(self, x: Tensor) -> Tensor:
        shape = x.shape[1:]
        if self.training:
            return torch.rand(shape, device=x.device) >= self.p
        return torch.ones(shape, dtype=torch.bool, device=x.device)

    def _checked(self, state: Tensor, x: Tensor) -> Tensor:
        if state.dtype != torch.bool:
            raise TypeError(f"state: expected a mask of torch.bool, got {state.dtype}")
        check_shape("state", state, x.shape[1:], "a mask of shape")
        check_device("state", state, x)
        return state

    def extra_repr(self) -> str:
        """Options, for `print(net)`."""
        return f"p={self.p:g}" + (", batch_first=True" if self.batch_first else "")
