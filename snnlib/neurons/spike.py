"""The spike: a step of the membrane potential forwards, a surrogate's bump as its derivative backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from snnlib.backends.reference.surrogate import SHAPES


class Surrogate:
    """A bump `height * f(scale * u)` with one of the shapes that run natively; see the subclasses."""

    kind: ClassVar[str]

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(height, scale)` for a neuron's threshold, in units of the membrane potential."""
        raise NotImplementedError

    @property
    def has_shape(self) -> bool:
        """Whether it is one of the shapes, with these arguments; neurons with others run by `step`."""
        return True

    def derivative(self, u: Tensor, threshold: Tensor) -> Tensor:
        """`ds/du` at `u = h - threshold`."""
        height, scale = self.coefficients(threshold)
        return height * SHAPES[self.kind]((u * scale).abs())


# One of `snnlib.surrogate`, or a user's own function from `u = h - threshold` to `ds/du`.
SurrogateLike = Surrogate | Callable[[Tensor], Tensor]


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, slope: Tensor, strict: bool) -> Tensor:
        ctx.save_for_backward(slope)
        fired = u > 0 if strict else u >= 0
        # `u - u` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
        return torch.where(fired, torch.ones_like(u), u - u)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None


def spike(u: Tensor, threshold: Tensor, surrogate: SurrogateLike, strict: bool = False) -> Tensor:
    """Spikes 0/1 where `u = h - threshold` reaches 0 (`strict`: exceeds it), with the surrogate as their gradient.

    >>> import torch
    >>> from snnlib.surrogate import Triangle, spike
    >>> u = torch.tensor([-0.25, 0.0, 2.0], requires_grad=True)
    >>> s = spike(u, torch.tensor(1.0), Triangle())
    >>> s.sum().backward()
    >>> s.tolist(), u.grad.tolist()
    ([0.0, 1.0, 1.0], [0.5, 1.0, 0.0])
    """
    flat, level = u.detach(), threshold.detach()
    slope = surrogate.derivative(flat, level) if isinstance(surrogate, Surrogate) else surrogate(flat)
    if slope.shape != u.shape:
        raise ValueError(
            f"surrogate: expected one slope per neuron, shape {tuple(u.shape)}, got {tuple(slope.shape)}"
        )
    return _Spike.apply(u, slope, strict)  # type: ignore[no-untyped-call, no-any-return]


def check_surrogate(surrogate: object) -> None:
    """Raise TypeError unless it is one of `snnlib.surrogate` or a function."""
    if isinstance(surrogate, type) or not (isinstance(surrogate, Surrogate) or callable(surrogate)):
        raise TypeError(
            "surrogate: expected one of snnlib.surrogate (an instance, such as Triangle()) "
            f"or a function of u, got {surrogate!r}"
        )
