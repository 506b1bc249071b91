"""Fake quantisation on a power-of-two grid: integers of a few bits times `2^-exponent`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from snnlib.backends.fixed_point import WEIGHT_EXPONENTS
from snnlib.checks import check_choice, check_device, check_floating

Rounding = Literal["trunc", "nearest"]

# Integers of 24 bits are exact in float32, in which half inputs are computed.
MAX_BITS = 24
# 2^-126 .. 2^126: the powers of two that are normal float32 numbers together with their inverses.
MAX_EXPONENT = 126

_ROUND: dict[str, Callable[[Tensor], Tensor]] = {"trunc": torch.trunc, "nearest": torch.round}


def check_bits(bits: int) -> None:
    """Raises ValueError unless quantisation supports the width `bits`."""
    if not (isinstance(bits, int) and 2 <= bits <= MAX_BITS):
        raise ValueError(f"bits: expected an integer from 2 to {MAX_BITS}, got {bits!r}")


def check_exponent_range(exponent_range: tuple[int, int]) -> None:
    """Raises ValueError unless `exponent_range` is `(lowest, highest)` with powers of two in float32's range."""
    low, high = exponent_range
    if not -MAX_EXPONENT <= low <= high <= MAX_EXPONENT:
        raise ValueError(
            f"exponent_range: expected (lowest, highest) within -{MAX_EXPONENT}..{MAX_EXPONENT}, "
            f"got {exponent_range}"
        )


def _straight_through(x: Tensor, value: Tensor, passes: Tensor) -> Tensor:
    """Returns `value`, with x's gradient where `passes` and 0 elsewhere; saves one bool per element.

    The difference is exact, because value lies within a factor 2 of x or is 0. Plain operations instead of an autograd
    function compile, batch (vmap) and differentiate twice.
    """
    return torch.where(passes, x + (value - x).detach(), value)


def round_ste(x: Tensor, rounding: Rounding = "trunc") -> Tensor:
    """Rounds to integers; the gradient passes unchanged (straight-through estimator).

    Forward `trunc(x)`, toward zero, or `round(x)`, halves to even; backward `dL/dx = dL/dy` (0 where x is not finite).

    Args:
        x: any shape and floating dtype.
        rounding: `"trunc"` (default, as a cast to integers does) or `"nearest"`.

    Raises:
        TypeError: x is not a floating-point tensor.
        ValueError: an unknown rounding.

    Source: Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons", 2013.

    >>> import torch, snnlib
    >>> snnlib.functional.quantize.round_ste(torch.tensor([2.7, -2.7])).tolist()
    [2.0, -2.0]
    """
    check_floating("x", x)
    check_choice("rounding", rounding, *_ROUND)
    return _straight_through(x, _ROUND[rounding](x.detach()), x.detach().isfinite())


def power_of_two_exponent(max_abs: Tensor, bits: int, exponent_range: tuple[int, int] = (-31, 31)) -> Tensor:
    """Returns the finest power-of-two scale at which `max_abs` fits into signed integers of `bits` bits.

    `i = max { i : round(max_abs 2^i) < 2^(bits-1) }`, halves to even, clamped to `exponent_range`. In closed form,
    with `max_abs = m 2^k` and `1/2 <= m < 1` (frexp)::

        i = bits - 1 - k - [m >= 1 - 2^-bits]

    No loop and no device synchronisation.

    Args:
        max_abs: largest magnitudes, >= 0, any shape and floating dtype.
        bits: width of the integers with sign, 2 to 24.
        exponent_range: lowest and highest exponent. Default (-31, 31); (0, 31) forbids scales below 1.

    Returns:
        Exponents i, int32, shape of `max_abs`. 0 gives the highest exponent, inf and NaN the lowest.

    Raises:
        TypeError: `max_abs` is not a floating-point tensor.
        ValueError: `bits` or `exponent_range` out of bounds.

    >>> import torch, snnlib
    >>> snnlib.functional.quantize.power_of_two_exponent(torch.tensor([0.99, 1.0, 1000.0]), bits=8).tolist()
    [7, 6, -3]
    """
    check_floating("max_abs", max_abs)
    check_bits(bits)
    check_exponent_range(exponent_range)
    low, high = exponent_range
    # Half precision cannot hold 1 - 2^-bits.
    mantissa, exponent = torch.frexp(max_abs.detach().to(torch.promote_types(max_abs.dtype, torch.float32)))
    fit = bits - 1 - exponent - (mantissa >= 1 - 2.0**-bits).to(torch.int32)
    fit = torch.where(max_abs == 0, high, torch.where(max_abs.isfinite(), fit, low))
    return fit.clamp(low, high).to(torch.int32)


def _power_of_two(exponent: int | Tensor, like: Tensor) -> Tensor:
    """`2^exponent` in float32, or float64 for float64, on the device of `like`."""
    if isinstance(exponent, Tensor):
        if exponent.is_floating_point():
            raise TypeError(f"exponent: expected integers, got {exponent.dtype}")
        check_device("exponent", exponent, like)
        exponent = exponent.to(torch.int32).clamp(-MAX_EXPONENT, MAX_EXPONENT)
    else:
        if not -MAX_EXPONENT <= exponent <= MAX_EXPONENT:
            raise ValueError(
                f"exponent: expected an integer within -{MAX_EXPONENT}..{MAX_EXPONENT}, got {exponent}"
            )
        exponent = torch.full((), exponent, dtype=torch.int32, device=like.device)
    # The exponent's bits of a float32: exact on every device, which exp2 and pow do not promise.
    scale = ((exponent + 127) << 23).view(torch.float32)
    return scale.to(torch.promote_types(like.dtype, torch.float32))


def _prepare(x: Tensor, exponent: int | Tensor, bits: int, rounding: str) -> tuple[Tensor, int]:
    """Checks the arguments of a quantisation; returns its scale and largest integer."""
    check_floating("x", x)
    check_bits(bits)
    check_choice("rounding", rounding, *_ROUND)
    # Results that need more than x's significand would be rounded off the grid.
    significand = round(1 - math.log2(torch.finfo(x.dtype).eps))
    if bits > significand:
        raise ValueError(f"bits: expected at most {significand} for {x.dtype}, got {bits}")
    return _power_of_two(exponent, x), 2 ** (bits - 1) - 1


def _integers(x: Tensor, scale: Tensor, rounding: str) -> Tensor:
    # Half inputs are computed in float32, the dtype of scale: 2^exponent may be too large for float16.
    return _ROUND[rounding](x.detach().to(scale.dtype) * scale)


def quantize_power_of_two(
    x: Tensor,
    exponent: int | Tensor,
    bits: int,
    rounding: Rounding = "trunc",
    *,
    symmetric: bool = True,
) -> Tensor:
    """Fake quantisation: x rounded to `bits`-bit multiples of `2^-exponent`, in x's own dtype.

    With `qmax = 2^(bits-1) - 1` and `qmin = -qmax`::

        n = round(x 2^exponent)        y = clamp(n, qmin, qmax) 2^-exponent        dL/dx = dL/dy [qmin <= n <= qmax]

    The gradient is the clipped straight-through estimator. All products are exact. NaN gives NaN.

    Args:
        x: any shape, any floating dtype; half precision is computed in float32.
        exponent: an integer, or an integer tensor that broadcasts against x, each within -126..126.
        bits: width of the integers with sign: 2 to 24, at most 11 for float16 and 8 for bfloat16.
        rounding: `"trunc"`, toward zero (default, as a cast to integers does), or `"nearest"`, halves to even: a
            quarter of the squared error.
        symmetric: whether integers are symmetric about 0; if False, `qmin = -qmax - 1` as in two's complement. Default
            True.

    Returns:
        Quantised values, shape and dtype of x.

    Raises:
        TypeError: x is not a floating-point tensor or `exponent` not an integer tensor.
        ValueError: an option out of its range; the message names it.

    >>> import torch, snnlib
    >>> x = torch.tensor([-0.9, 0.3, 1.2]).requires_grad_()
    >>> y = snnlib.functional.quantize.quantize_power_of_two(x, 3, bits=4)
    >>> y.tolist()
    [-0.875, 0.25, 0.875]
    >>> y.sum().backward()
    >>> x.grad.tolist()
    [1.0, 1.0, 0.0]
    """
    scale, largest = _prepare(x, exponent, bits, rounding)
    integers = _integers(x, scale, rounding)
    lowest = -largest if symmetric else -largest - 1
    value = (integers.clamp(lowest, largest) / scale).to(x.dtype)
    return _straight_through(x, value, (integers >= lowest) & (integers <= largest))


def fixed_point_weight(weight: Tensor, exponent: int | None) -> Tensor:
    """Returns an 8-bit weight `k 2^exponent` with k from -128 to 127, for neurons in fixed point.

    None takes the finest exponent from -12 to 2 at which the largest and the smallest weight fit. Gradients pass as in
    `quantize_power_of_two`.
    """
    low, high = WEIGHT_EXPONENTS
    fine: int | Tensor = -high if exponent is None else -exponent
    if exponent is None and weight.numel():
        dtype = torch.promote_types(weight.dtype, torch.float32)
        scales = torch.tensor(
            [2.0**-grid for grid in range(high, low - 1, -1)], dtype=dtype, device=weight.device
        )
        least, most = (scales * end for end in weight.detach().aminmax())
        fits = (least.round() >= -128) & (most.round() <= 127)
        fine = (fits.sum() - 1).clamp(min=0) - high
    return quantize_power_of_two(weight, fine, 8, "nearest", symmetric=False)


def quantize_to_int(x: Tensor, exponent: int | Tensor, bits: int, rounding: Rounding = "trunc") -> Tensor:
    """Returns the integers n of `quantize_power_of_two`, `y = n 2^-exponent`, for export to hardware.

    Arguments as in `quantize_power_of_two`.

    Returns:
        `clamp(round(x 2^exponent), -qmax, qmax)`, int32, shape of x.

    Raises:
        TypeError, ValueError: as in `quantize_power_of_two`, and ValueError where x holds NaN.

    >>> import torch, snnlib
    >>> snnlib.functional.quantize.quantize_to_int(torch.tensor([-0.9, 0.3, 1.2]), 3, bits=4).tolist()
    [-7, 2, 7]
    """
    scale, largest = _prepare(x, exponent, bits, rounding)
    if bool(x.isnan().any()):
        raise ValueError("x: expected numbers, got NaN, which no integer stands for")
    return _integers(x, scale, rounding).clamp(-largest, largest).to(torch.int32)
