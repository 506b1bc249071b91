"""Currents of a convolution or a full matrix without torch's dispatcher, by a plan that a kind of call makes once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.arguments import LayerArgs
from snnlib.backends.memo import MOST
from snnlib.checks import autocast_dtype, differentiable_once
from snnlib.functional.currents import SequenceMap
from snnlib.functional.operators import Convolution, FullyConnected, reached_part
from snnlib.ops import conv_layout


class DirectPlan:
    """Views of input and weight, and the passes, of calls of one kind; holds no tensors."""

    def __init__(self, x: Tensor, weight: Tensor, operator: Convolution | FullyConnected) -> None:
        self.operator = operator
        whole = operator.unfolded(x, weight)
        part = reached_part(whole.x, whole.weight, whole.options)
        # Slices of pixels and of kernel elements where the others see padding alone.
        self._part: tuple[tuple[slice, ...], tuple[slice, ...]] | None = None if part is None else part[:2]
        options = whole.options if part is None else part[2]
        self._sizes = tuple(whole.x.shape), tuple(whole.weight.shape)
        self._is_plain = part is None and self._sizes == (tuple(x.shape), tuple(weight.shape))
        self._passes = ops.currents.plan_of(LayerArgs(*self._viewed(x, weight), options, (1, 1)))
        g = self._passes.geometry
        self._full = *x.shape[:2], g.channels, *g.space
        self._shape = *self._full[:3], *self._full[3 + max(2 - whole.axes, 0) :]

    def currents(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the currents `[T, N, C, ...]`, with gradients."""
        if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
            return _Currents.apply(x, weight, self)  # type: ignore[no-any-return, no-untyped-call]
        return self.forward(x, weight)

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the currents."""
        if self._is_plain:
            return self._passes.forward(x, weight)
        return self._passes.forward(*self._viewed(x, weight)).view(self._shape)

    def _viewed(self, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = x.reshape(self._sizes[0]), weight.reshape(self._sizes[1])
        if self._part is None:
            return x, weight
        elements = weight[self._part[1]]
        # Kernels read the elements several times, which lie far apart in the whole weight unless channels are last.
        return x[self._part[0]], elements if conv_layout.is_channels_last(weight) else elements.contiguous()

    def backward(
        self, signal: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Returns dL/dx and dL/dW; None where it is not needed."""
        if self._is_plain:
            return self._passes.backward(signal, x, weight, *needs)
        found = self._passes.backward(signal.view(self._full), *self._viewed(x, weight), *needs)
        whole: list[Tensor | None] = []
        for place, (grad, like) in enumerate(zip(found, (x, weight), strict=True)):
            if grad is not None and self._part is not None:
                part, grad = grad, torch.zeros_like(like.reshape(self._sizes[place]))  # noqa: PLW2901
                grad[self._part[place]] = part
            whole.append(None if grad is None else grad.reshape(like.shape))
        return whole[0], whole[1]


class _Currents(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, plan: DirectPlan) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.plan = plan
        return plan.forward(x, weight)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, signal: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[:2]
        if ops.direct.is_direct(signal):
            return *ctx.plan.backward(signal, *ctx.saved_tensors, needs), None
        # Gradients under `vmap` have no memory of their own.
        with torch.enable_grad():
            currents = SequenceMap(ctx.plan.operator, True).currents(*ctx.saved_tensors)
        inputs = [one for one, need in zip(ctx.saved_tensors, needs, strict=True) if need]
        wanted = iter(torch.autograd.grad(currents, inputs, signal))
        return *(next(wanted) if need else None for need in needs), None


_PLANS: dict[Any, DirectPlan] = {}


def kind_of(x: Tensor, weight: Tensor, operator: Any) -> Any:
    """Returns the kind of a call, or None where the dispatcher is needed or no plan can be made."""
    if not ops.direct.is_direct(x, weight) or x is None or not (x.is_cpu and weight.is_cpu):
        return None
    if (
        autocast_dtype(x) is not None
        or x.layout is not torch.strided
        or x.is_nested
        or type(operator) not in (Convolution, FullyConnected)
    ):
        return None
    sizes = x.shape, x.stride(), x.dtype, weight.shape, weight.stride(), weight.dtype
    return *sizes, type(operator), operator.key, native.cpu_kernels()


def plan_of(kind: Any) -> DirectPlan | None:
    """Returns the plan of a kind of call, if it was made."""
    return _PLANS.get(kind)


def add_plan(kind: Any, x: Tensor, weight: Tensor, operator: Convolution | FullyConnected) -> None:
    """Makes the plan for a kind of call whose arguments were checked."""
    # Zeros at one end, which only "same" has, are a copy of the input.
    if isinstance(operator, Convolution) and operator.same:
        return
    if len(_PLANS) >= MOST:
        _PLANS.clear()
    _PLANS[kind] = DirectPlan(x.detach(), weight.detach(), operator)
