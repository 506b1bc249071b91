"""Learnable delays of a layer's inputs: how many steps later an event arrives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.checks import as_tensor, check_flag, check_number, check_untransformed

__all__ = ["Delays"]


class _Within(torch.autograd.Function):
    """Clamps values to bounds, and passes the whole gradient.

    Dropping the gradient that leads out would drop it from parts of a sum, as of chunks, by the sign of each part.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, high: float) -> Tensor:
        return value.clamp(0, high)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class Delays(nn.Module):
    """Delays of a layer's input events, for `delays=` of `SpikingLinear`, `SpikingConv1d` to `3d` and `SpikingRNN`.

    ::

        I[t]_o = sum over i of weight_oi x[t - d_i]_i           per="channel": one delay for each input channel (axonal)
        I[t]_o = sum over i of weight_oi x[t - d_oi]_i          per="connection": one for each weight

    In training a delay may lie between two steps: d = k + f gives `(1 - f) x[t-k] + f x[t-k-1]`, whose exact gradient
    is a difference of neighbouring steps. In `eval()` delays are rounded to whole steps, as in hardware. Layers of
    neurons with `gradient="event"` always run at rounded delays and get the derivative of their spike times, for `SRM`
    with the derivative of its kernel `eps'` (docs/time.md).

    `steps` holds the delays, `[C_in]` or the weight's shape. Delays are in time steps: give them about 100 times the
    learning rate of the weights. A training step that moves a delay beyond 0 or `max_delay` ends at the bound: the next
    forward pass in training mode sets `steps` back. The gradient at a bound is that of the delay, whichever way it
    leads, so that gradients of chunks and of parts of a batch add up.

    Args:
        max_delay: longest delay in time steps, a whole number >= 1, less than the steps of a sequence.
        per: `"channel"` or `"connection"`. Default `"channel"`.
        initial: initial delays, a number or a tensor of the shape of `steps`; None draws them uniformly between 0 and
            `max_delay`. Default None.
        learnable: whether `steps` is a parameter that learns; `freeze` and `requires_grad_` change it later.

    Raises:
        ValueError: an option out of its range, or initial delays outside 0 to `max_delay`.

    Source: Shrestha and Orchard, "SLAYER: spike layer error reassignment in time", NeurIPS 2018 (axonal delays);
    Hammouamri, Khalfaoui-Hassani and Masquelier, "Learning delays in spiking neural networks using dilated convolutions
    with learnable spacings", ICLR 2024 (per connection).

    >>> import torch, snnlib
    >>> delays = snnlib.Delays(max_delay=10, per="connection")
    >>> layer = snnlib.SpikingLinear(20, 8, delays=delays)
    >>> layer((torch.rand(50, 4, 20) < 0.1).float()).shape
    torch.Size([50, 4, 8])
    >>> layer.delays.steps.shape
    torch.Size([8, 20])
    """

    steps: nn.Parameter

    def __init__(
        self,
        max_delay: int,
        per: str = "channel",
        *,
        initial: float | Tensor | None = None,
        learnable: bool = True,
    ) -> None:
        super().__init__()
        check_number("max_delay", max_delay)
        if not 1 <= max_delay < 2**31 - 2 or max_delay % 1:
            raise ValueError(f"max_delay: expected a whole number of time steps >= 1, got {max_delay}")
        if per not in ("channel", "connection"):
            raise ValueError(f"per: expected channel or connection, got {per!r}")
        if initial is not None:
            values = as_tensor("initial", initial, dtype=torch.float64)
            if not bool(((values >= 0) & (values <= max_delay)).all()):
                raise ValueError(f"initial: expected delays from 0 to max_delay = {max_delay}, got others")
        self.max_delay, self.per = int(max_delay), per
        self.initial, self.learnable = initial, check_flag("learnable", learnable)
        self.register_parameter("steps", None)

    def build(self, channels: int, weight: Tensor) -> None:
        """Creates `steps` for a layer with this number of input channels and this weight; the layer calls it.

        Raises:
            ValueError: delays that belong to another layer, or initial delays of a wrong shape.
        """
        if isinstance(self.steps, nn.Parameter):
            raise ValueError("delays: expected delays for this layer alone, got those of another layer")
        shape = weight.shape if self.per == "connection" else torch.Size((channels,))
        values = torch.empty(
            shape, device=weight.device, dtype=torch.promote_types(weight.dtype, torch.float32)
        )
        if isinstance(self.initial, Tensor) and self.initial.dim() and self.initial.shape != shape:
            raise ValueError(
                f"initial: expected a number or shape {tuple(shape)}, got {tuple(self.initial.shape)}"
            )
        self.steps = nn.Parameter(values, requires_grad=self.learnable)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the delays again, or sets them to `initial`."""
        if not isinstance(self.steps, nn.Parameter) or self.steps.is_meta:
            return
        with torch.no_grad():
            if self.initial is None:
                self.steps.uniform_(0, self.max_delay)
            else:
                self.steps.copy_(torch.as_tensor(self.initial).expand_as(self.steps))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Delays:
        """Moves of the module: delays stay float32 under half precision, which would round them."""
        before = None if self.steps is None else self.steps.data
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if before is not None and self.steps.dtype in (torch.float16, torch.bfloat16):
            self.steps.data = before.to(self.steps.device, torch.float32)
        return self

    def forward(self) -> Tensor:
        """Returns the delays, within 0 and `max_delay`; in training mode it first moves `steps` within them."""
        check_untransformed("Delays")
        if self.training and self.steps.requires_grad and torch.is_grad_enabled():
            with torch.no_grad():
                self.steps.clamp_(0, self.max_delay)
        return _Within.apply(self.steps, float(self.max_delay))  # type: ignore[no-untyped-call, no-any-return]

    @torch.no_grad()
    def round_(self) -> Delays:
        """Rounds the delays to whole steps, in place, as in `eval()` and exports."""
        self.steps.copy_(torch.floor(self.steps.clamp(0, self.max_delay) + 0.5))
        return self

    def freeze_(self) -> Delays:
        """Rounds the delays and stops learning them; an existing optimiser leaves them unchanged."""
        self.steps.requires_grad_(False)
        self.steps.grad = None
        return self.round_()

    @property
    def history(self) -> int:
        """Returns the steps of input that a chunk passes on: the longest delay, and one step for its gradient."""
        return self.max_delay + 1

    def extra_repr(self) -> str:
        """Options."""
        text = f"{self.max_delay}, per={self.per!r}"
        return (
            text
            if not isinstance(self.steps, nn.Parameter) or self.steps.requires_grad
            else f"{text}, frozen"
        )


def check_sequence(name: str, delays: Delays | None, steps: int) -> None:
    """Raises ValueError unless a sequence of this number of steps is longer than the delays."""
    if delays is not None and steps and delays.max_delay >= steps:
        raise ValueError(
            f"{name}: expected a max_delay below the {steps} steps of the sequence, got {math.floor(delays.max_delay)}"
        )
