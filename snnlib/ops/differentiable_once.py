"""Gradients without a derivative of their own: differentiating them again raises an error instead of giving zero."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _functions

_MESSAGE = (
    b"gradients of a spiking layer: expected one backward pass, got a derivative of them (create_graph=True); "
    b"the gradients of spikes are rules without a derivative"
)


def differentiable_once(
    backward: Callable[..., tuple[Tensor | None, ...]],
) -> Callable[..., tuple[Tensor | None, ...]]:
    """A `backward` of a `torch.autograd.Function` whose gradients fail where they are differentiated again.

    `torch.autograd.function.once_differentiable` gives gradients that count as constants where the incoming gradient is
    one, as that of a sum is. They depend on inputs and weights all the same, so a penalty on them would do nothing.
    """

    @functools.wraps(backward)
    def guarded(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.compiler.is_compiling():
            return backward(ctx, *grads)
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return found
        marked = [None if grad is None else grad.detach().requires_grad_() for grad in found]
        # Its stub knows tensors alone; an argument without gradient has none.
        failing: tuple[Tensor | None, ...] = _functions.DelayedError(_MESSAGE, len(marked))(*marked)  # type: ignore[arg-type]
        return failing

    return guarded
