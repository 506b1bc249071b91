"""Scaling of gradients: passes values unchanged and damps, stops or reverses their gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from snnlib.checks import check_device, check_floating, check_number

__all__ = ["grad_scale"]


class _GradScale(torch.autograd.Function):
    # Plain torch operations that only look like the identity, such as x.detach() + scale * (x - x.detach()), turn
    # infinite values into NaN or -0 into 0.
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, _scale: float | Tensor) -> Tensor:
        # A copy: autograd forbids changing a view of x in place.
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float | Tensor], output: Tensor) -> None:
        _, scale = inputs
        ctx.number = None if isinstance(scale, Tensor) else scale
        if isinstance(scale, Tensor):
            ctx.save_for_backward(scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        scale = ctx.saved_tensors[0] if ctx.number is None else ctx.number
        scaled = gradient * scale
        if ctx.number is None or ctx.number == 0:
            # 0 times infinity is NaN.
            zero = scale == 0 if isinstance(scale, Tensor) else scaled.new_ones((), dtype=torch.bool)
            scaled = torch.where(zero, 0.0, scaled)
        return scaled.to(gradient.dtype), None


def grad_scale(x: Tensor, scale: float | Tensor) -> Tensor:
    """The identity, with the gradient multiplied by `scale`.

    Forward `y = x`, bit for bit, in new memory; backward::

        dL/dx = scale * dL/dy        exactly 0 where scale is 0, even if dL/dy is infinite or NaN

    A scale of 1 changes nothing, a scale below 1 damps (0.85 before every layer multiplies the gradient by 0.85^L at
    depth L), 0 stops the gradient, -1 reverses it (adversarial training). Every differentiation scales again: with
    `L = f(y)` the second derivative with respect to x is `scale^2 f''`.

    Works under `torch.compile(fullgraph=True)`, `torch.func.vmap` and `torch.func.grad`, also nested; not in forward
    mode (`torch.func.jvp`).

    Args:
        x: any shape and floating dtype.
        scale: a finite number, or a tensor that broadcasts to the shape of x, such as `[C, 1, 1]` for one factor per
            channel of `[T, N, C, H, W]`. It gets no gradient.

    Raises:
        TypeError: x is not a floating-point tensor.
        ValueError: `scale` is not finite, or has a shape or device that does not fit x.

    Source: Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 2016 (-1); Qiao et al., "DeFRCN:
    Decoupled Faster R-CNN for Few-Shot Object Detection", ICCV 2021 (0 to 1).

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    >>> y = snnlib.functional.grad_scale(x, 0.5)
    >>> y.tolist()
    [1.0, -2.0, 3.0]
    >>> y.backward(torch.tensor([1.0, 2.0, -4.0]))
    >>> x.grad.tolist()
    [0.5, 1.0, -2.0]
    """
    check_floating("x", x)
    if isinstance(scale, Tensor):
        check_device("scale", scale, x)
        trailing = zip(reversed(scale.shape), reversed(x.shape), strict=False)
        if scale.dim() > x.dim() or any(size not in (1, other) for size, other in trailing):
            raise ValueError(
                f"scale: expected a number or a tensor that broadcasts to {tuple(x.shape)}, "
                f"got shape {tuple(scale.shape)}"
            )
        scale = scale.detach()
    else:
        check_number("scale", scale)
        if not math.isfinite(scale):
            raise ValueError(f"scale: expected a finite number, got {scale}")
    scaled: Tensor = _GradScale.apply(x, scale)  # type: ignore[no-untyped-call]
    return scaled
