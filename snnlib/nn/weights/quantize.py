"""Power-of-two fake quantisation as modules: on activations, or as a parametrization of any layer's weight."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn

from snnlib.checks import check_choice, check_floating
from snnlib.functional import quantize as functional

__all__ = ["Quantizer", "RangeObserver"]


class RangeObserver(nn.Module):
    """Running range of all values in training: `fmin <- min(fmin, min x)`, `fmax <- max(fmax, max x)`.

    Returns x unchanged. The buffers `fmin`, `fmax` and `initialised` are in the `state_dict` and constant in eval
    mode. The range ignores NaN and infinite values.

    Args:
        device, dtype: of the buffers.
        channels: number of channels with separate ranges. Default None: one range for the tensor.
        channel_dim: the dimension of channels in x, counted from the front. Default 0, as in a layer's weight.
        averaging_constant: share of each new batch in an exponential moving average, which forgets outliers: `fmin <-
            fmin + averaging_constant (min x - fmin)`. Default None: the range never shrinks, so no value is clipped.

    Shape:
        x: any; `fmin`, `fmax`, `initialised`: `[]`, or `[channels]`.

    Raises:
        ValueError: an option out of its range, or x without `channels` channels.
        TypeError: x is not a floating-point tensor.

    >>> import torch, snnlib
    >>> observer = snnlib.RangeObserver()
    >>> for batch in ([0.0, 3.0], [-1.0, float("nan")]):
    ...     _ = observer(torch.tensor(batch))
    >>> observer.fmin.item(), observer.fmax.item()
    (-1.0, 3.0)
    """

    fmin: Tensor
    fmax: Tensor
    initialised: Tensor

    def __init__(
        self,
        device: torch.device | str | None = None,
        *,
        channels: int | None = None,
        channel_dim: int = 0,
        averaging_constant: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if channels is not None and channels < 1:
            raise ValueError(f"channels: expected an integer >= 1 or None, got {channels}")
        if channel_dim < 0:
            raise ValueError(f"channel_dim: expected a dimension counted from the front, got {channel_dim}")
        if averaging_constant is not None and not 0 < averaging_constant <= 1:
            raise ValueError(
                f"averaging_constant: expected a share in (0, 1] or None, got {averaging_constant}"
            )
        self.channels, self.channel_dim, self.averaging_constant = channels, channel_dim, averaging_constant
        shape = () if channels is None else (channels,)
        self.register_buffer("fmin", torch.zeros(shape, device=device, dtype=dtype))
        self.register_buffer("fmax", torch.zeros(shape, device=device, dtype=dtype))
        self.register_buffer("initialised", torch.zeros(shape, device=device, dtype=torch.bool))

    @property
    def max_abs(self) -> Tensor:
        """`max(|fmin|, |fmax|)`; 0 before the first observation."""
        return torch.maximum(self.fmin.abs(), self.fmax.abs())

    def per_channel(self, values: Tensor, x: Tensor) -> Tensor:
        """`values`, `[]` or `[channels]`, shaped to broadcast against x."""
        if self.channels is None:
            return values
        if x.dim() <= self.channel_dim or x.shape[self.channel_dim] != self.channels:
            raise ValueError(
                f"x: expected {self.channels} channels in dimension {self.channel_dim}, got shape {tuple(x.shape)}"
            )
        return values.reshape(-1, *[1] * (x.dim() - self.channel_dim - 1))

    def forward(self, x: Tensor) -> Tensor:
        """Observes x in training mode; returns it unchanged."""
        check_floating("x", x)
        self.per_channel(self.fmin, x)
        if self.training and x.numel() > 0:
            self.observe(x.detach())
        return x

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Extends the range by the smallest and the largest value of each channel."""
        rows = (
            x.reshape(1, -1)
            if self.channels is None
            else x.movedim(self.channel_dim, 0).reshape(self.channels, -1)
        )
        inf = float("inf")
        low = rows.nan_to_num(inf, inf, inf).amin(1).reshape(self.fmin.shape)
        high = rows.nan_to_num(-inf, -inf, -inf).amax(1).reshape(self.fmax.shape)
        seen = low <= high
        # Finite in x's dtype may be infinite in the buffers'.
        limit, common = torch.finfo(self.fmin.dtype).max, torch.promote_types(x.dtype, self.fmin.dtype)
        low, high = (value.to(common).clamp(-limit, limit).to(self.fmin.dtype) for value in (low, high))
        if self.averaging_constant is None:
            new_low, new_high = torch.minimum(self.fmin, low), torch.maximum(self.fmax, high)
        else:
            new_low = self.fmin.lerp(low, self.averaging_constant)
            new_high = self.fmax.lerp(high, self.averaging_constant)
        # The first observation is the range; zeros of the start are not part of it.
        new_low, new_high = new_low.where(self.initialised, low), new_high.where(self.initialised, high)
        self.fmin.copy_(new_low.where(seen, self.fmin))
        self.fmax.copy_(new_high.where(seen, self.fmax))
        self.initialised.logical_or_(seen)

    def extra_repr(self) -> str:
        """Options that differ from their defaults."""
        parts = []
        if self.channels is not None:
            parts.append(f"channels={self.channels}, channel_dim={self.channel_dim}")
        if self.averaging_constant is not None:
            parts.append(f"averaging_constant={self.averaging_constant:g}")
        return ", ".join(parts)


class Quantizer(nn.Module):
    """Fake quantisation to `bits`-bit integers times a power of two that follows the observed range.

    In training mode, with R the largest magnitude seen so far and `qmax = 2^(bits-1) - 1`::

        exponent = max { i : round(R 2^i) < 2^(bits-1) }
        y = clamp(round(x 2^exponent), -qmax, qmax) 2^-exponent        dL/dx = dL/dy [|round(..)| <= qmax]

    In eval mode the exponent is constant. Range and exponent are buffers: they are saved, loaded and moved with the
    module. Use it on activations, or on the weight of any layer::

        torch.nn.utils.parametrize.register_parametrization(layer, "weight", snnlib.Quantizer(8))

    The layer then trains its full-precision weight and computes with the quantised one; assigning to `layer.weight`
    sets the full-precision weight. On a trained net in eval mode, registration takes the range from the weight. The
    running range never shrinks, so an early outlier makes the grid coarse for good; `averaging_constant` avoids this.

    Args:
        bits: width of the integers with sign: 2 to 24, at most 11 for float16 and 8 for bfloat16 inputs.
        device: device of the buffers.
        rounding: `"trunc"`, toward zero (default, as a cast to integers does), or `"nearest"`: a quarter of the squared
            error.
        channels, channel_dim, averaging_constant: as in `RangeObserver`; with `channels` one exponent per channel.
        exponent_range: lowest and highest exponent. Default (-31, 31); (0, 31) forbids scales below 1.

    Raises:
        RuntimeError: used in eval mode before it has seen any finite value in training mode.
        TypeError: x is not a floating-point tensor.
        ValueError: an option out of its range; the message names it.

    >>> import torch, snnlib
    >>> quantizer = snnlib.Quantizer(4)
    >>> quantizer(torch.tensor([-0.75, -0.2, 0.2, 0.6, 0.75])).tolist()
    [-0.75, -0.125, 0.125, 0.5, 0.75]
    >>> quantizer.eval().int_repr(torch.tensor([0.6, 5.0])).tolist(), quantizer.exponent.item()
    ([4, 7], 3)
    """

    exponent: Tensor

    def __init__(
        self,
        bits: int,
        device: torch.device | str | None = None,
        *,
        rounding: functional.Rounding = "trunc",
        channels: int | None = None,
        channel_dim: int = 0,
        averaging_constant: float | None = None,
        exponent_range: tuple[int, int] = (-31, 31),
    ) -> None:
        super().__init__()
        functional.check_bits(bits)
        check_choice("rounding", rounding, *get_args(functional.Rounding))
        functional.check_exponent_range(exponent_range)
        self.bits, self.rounding, self.exponent_range = bits, rounding, exponent_range
        self.range = RangeObserver(
            device, channels=channels, channel_dim=channel_dim, averaging_constant=averaging_constant
        )
        self.register_buffer("exponent", torch.zeros_like(self.range.fmin, dtype=torch.int32))
        self._ready = False

    def _require_range(self) -> None:
        # Reading the flag waits for the device: once is enough, since a range is never forgotten.
        if not self._ready and not torch.compiler.is_compiling():
            self._ready = bool(self.range.initialised.any())
            if not self._ready:
                raise RuntimeError(
                    "Quantizer: no range observed yet; pass data in training mode first, or load a state_dict"
                )

    def forward(self, x: Tensor) -> Tensor:
        """Returns quantised x, same shape and dtype; in training mode x first extends the range."""
        self.range(x)
        if self.training:
            self._set_exponent()
        else:
            self._require_range()
        exponent = self.range.per_channel(self.exponent, x)
        return functional.quantize_power_of_two(x, exponent, self.bits, self.rounding)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Returns the full-precision weight that an assignment stores: the value itself.

        On a layer in eval mode the quantizer takes its range from the weight here.
        """
        if not bool(self.range.initialised.any()):
            self.range.observe(weight.detach())
            self._set_exponent()
        return weight

    def _set_exponent(self) -> None:
        exponent = functional.power_of_two_exponent(self.range.max_abs, self.bits, self.exponent_range)
        self.exponent.copy_(exponent)

    def int_repr(self, x: Tensor) -> Tensor:
        """Returns the integers n of x for export, int32, with `y = n 2^-exponent`; the range stays the same."""
        self._require_range()
        exponent = self.range.per_channel(self.exponent, x)
        return functional.quantize_to_int(x, exponent, self.bits, self.rounding)

    def extra_repr(self) -> str:
        """Options, for `print(net)`."""
        text = f"bits={self.bits}, rounding={self.rounding!r}"
        return text if self.exponent_range == (-31, 31) else f"{text}, exponent_range={self.exponent_range}"
