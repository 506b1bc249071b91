"""The difference of a sequence from step to step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snnlib.checks import check_device, check_floating, check_rank, first_state
from snnlib.neurons import Output
from snnlib.sequences.time_first import runs_time_first

__all__ = ["Difference"]


class Difference(nn.Module):
    """Difference of successive steps: `y[t] = x[t] - x[t-1]`, with `x[-1] = 0`.

    Args:
        batch_first: whether the batch dimension comes before time. Default False.

    Shape:
        x and y: `[T, N, ...]`, `[N, T, ...]` with `batch_first`; any floating dtype. State: the last step, `[N, ...]`.

    Raises:
        TypeError: x is no floating tensor.
        ValueError: a shape or device that does not fit.

    >>> import torch, snnlib
    >>> snnlib.nn.Difference()(torch.tensor([1.0, 3.0, 3.0]).view(3, 1, 1)).flatten().tolist()
    [1.0, 2.0, 0.0]
    """

    def __init__(self, batch_first: bool = False) -> None:
        super().__init__()
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        """The differences of a whole sequence."""
        return self.run(x).value

    @runs_time_first
    def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> Output:
        """`forward` from the last step of an earlier chunk, `([N, ...],)`, and with its own last step."""
        check_floating("x", x)
        check_rank("x", x, "[T, N, ...]", at_least=2)
        last = first_state(state)
        if last is None:
            last = torch.zeros_like(x[0])
        elif last.shape != x.shape[1:]:
            raise ValueError(f"state: expected shape {tuple(x.shape[1:])}, got {tuple(last.shape)}")
        check_device("state", last, x)
        before = torch.cat((last[None], x))
        return Output(before[1:] - before[:-1], (before[-1],))

    def extra_repr(self) -> str:
        """Options, for `print(net)`."""
        return "batch_first=True" if self.batch_first else ""
