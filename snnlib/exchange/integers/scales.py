"""Weights as integers: which scale, and what is lost."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from snnlib.checks import check_choice

ScaleRule = Literal["channel", "power-of-two", "layer"]

# Shares of the largest weight that are tried as the end of the grid: few bits gain by clipping the largest weights.
_ENDS = torch.linspace(0.5, 1.0, 26, dtype=torch.float64)


def check_scale(scale: str) -> ScaleRule:
    """The rule, if it is one."""
    return check_choice("scale", scale, *get_args(ScaleRule))  # type: ignore[return-value]


def check_weight_bits(bits: int) -> int:
    """A width that the integer net stores."""
    if bits not in (4, 8):
        raise ValueError(f"weight_bits: expected 4 or 8, got {bits}")
    return bits


@torch.no_grad()
def weight_scale(weight: Tensor, bits: int, rule: ScaleRule, alike: bool = False) -> Tensor:
    """Scale `[O]` in float64, so that `weight / scale` rounds to integers of this width.

    `"channel"`: any number per output channel, that with the least squared error; `"power-of-two"`: a power of two per
    output channel that clips nothing; `"layer"`: one number for all channels, with the least squared error. Channels
    that are `alike`, as those whose potentials are compared, have one number by each rule.
    """
    rows = weight.double().flatten(1)
    if rule == "layer" or (rule == "channel" and alike):
        return _best(rows.reshape(1, -1), bits).expand(len(rows)).contiguous()
    if rule == "channel":
        return _best(rows, bits)
    largest = rows.abs().amax(1)
    exact = torch.where(largest > 0, largest, torch.ones_like(largest)) / _top(bits)
    powers = torch.exp2(torch.ceil(torch.log2(exact)))
    return powers.amax().expand_as(powers).contiguous() if alike else powers


def _top(bits: int) -> int:
    return int(2 ** (bits - 1) - 1)


def _best(rows: Tensor, bits: int) -> Tensor:
    largest = rows.abs().amax(1)
    scales = torch.where(largest > 0, largest, torch.ones_like(largest)) * _ENDS[:, None] / _top(bits)
    errors = torch.stack(
        [(rows - rounded(rows, scale, bits) * scale[:, None]).square().sum(1) for scale in scales]
    )
    # The last of equal errors wins: the grid that clips nothing.
    best = len(_ENDS) - 1 - errors.flip(0).argmin(0)
    return scales.gather(0, best[None])[0]


def rounded(weight: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Integers of weights, in the weights' dtype."""
    top = _top(bits)
    return (weight / scale.to(weight.dtype).reshape(-1, *[1] * (weight.dim() - 1))).round().clamp(-top, top)
