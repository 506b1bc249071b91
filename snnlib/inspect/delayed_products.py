"""Products of a fully connected map whose events arrive later, and of convolutions that run as one."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from snnlib.backends.reference.delay import split
from snnlib.functional.operators import LinearOperator
from snnlib.functional.unfolded import unfolded_rows
from snnlib.inspect.products import Products, nonzero_counts


def of_delayed(x: Tensor, weight: Tensor, delay: Tensor, rounded: bool) -> Products:
    """Products of inputs `[T, N, I]` and weights `[O, I]`; an event that arrives after the last step has none.

    Args:
        x: inputs.
        weight: weights.
        delay: steps `[I]` or `[O, I]`.
        rounded: whether delays are whole steps; between steps an event meets a weight twice.
    """
    steps, counts = len(x), nonzero_counts(x.flatten(0, 1))
    whole, rest = split(delay.detach().expand(weight.shape), rounded)
    longest = min(int(whole.max()) + 1, steps) if whole.numel() else 0
    # Events of each input that have arrived, by their delay: all but those of so many last steps.
    arrived = [counts.per_cell]
    for step in range(1, longest + 1):
        arrived.append(arrived[-1] - nonzero_counts(x[steps - step]).per_cell)
    by_delay = torch.stack(arrived)
    effective = 0
    for arrival, met in ((whole, weight.ne(0)), (whole + 1, weight.ne(0) & (rest > 0))):
        meets = met & (arrival <= longest)
        effective += int((by_delay.gather(0, arrival.clamp(max=longest)) * meets).sum())
    return Products(effective, x.numel() * len(weight), counts.unit, x.numel(), counts.total)


def of_late_spikes(
    spikes: Tensor, past: Tensor | None, weight: Tensor, delay: Tensor, rounded: bool
) -> Products:
    """Products of recurrent weights `[H, H]` and spikes `[T, N, H]` that come back one step and a delay later.

    Args:
        spikes: those of the sequence.
        past: those before it `[D, N, H]`, the newest first; None for none.
        weight: weights.
        delay: steps beyond the first one `[H, H]`.
        rounded: whether delays are whole steps.
    """
    before = spikes.new_zeros(1, *spikes.shape[1:]) if past is None else past.flip(0).to(spikes.dtype)
    found = of_delayed(torch.cat((before, spikes[:-1])), weight, delay, rounded)
    # What arrived before the first step.
    gone = of_delayed(before[:-1], weight, delay, rounded)
    sent = nonzero_counts(torch.cat((before[-1:], spikes[:-1])).flatten(0, 1))
    return Products(
        found.effective - gone.effective, spikes.numel() * len(weight), found.unit, spikes.numel(), sent.total
    )


def of_convolution(found: Products, x: Tensor, weight: Tensor, operator: LinearOperator) -> Products:
    """Products of the unfolded frames of a convolution as those of its frames `[T, N, C, ...]`."""
    rows, _ = unfolded_rows(torch.ones_like(x[:1, :1]), weight, operator, 0)
    frames = x.shape[0] * x.shape[1]
    return replace(
        found,
        dense=frames * int(rows.sum()) * len(weight),
        inputs=x.numel(),
        nonzero=nonzero_counts(x.flatten(0, 1)).total,
    )
