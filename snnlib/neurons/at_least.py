"""Lower bound `max(x, low)` with one gradient in every version of torch."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least(x: Tensor, low: float) -> Tensor:
    """Returns `y = max(x, low)`, shape and dtype of x, with `dL/dx = 0` where `x < low` and `dL/dy` elsewhere.

    At the bound itself the gradient passes, as in the kernels: a time constant that starts at one step can learn, and
    a membrane at rest on its floor sees its input. At the bound `torch.clamp` passes the gradient up to torch 2.13 and
    stops it in 2.15. NaN stays NaN.

    >>> x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    >>> y = at_least(x, 0.0)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([0.0, 0.0, 2.0], [0.0, 1.0, 1.0])
    """
    return torch.where(x < low, torch.full_like(x, low), x)
