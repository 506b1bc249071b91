"""First spike times of current-based neurons with tau_m = 2 tau_s in closed form, differentiable in weights and times.

In units of tau_s the potential is `V(t) = sum of 2 w (y / y_i - (y / y_i)^2)` with `y = exp(-t / 2)` over the inputs
that have come. It reaches 1 where `A y - B y^2 = 1`, from below at the larger root `y = (A + sqrt(A^2 - 4 B)) / (2 B)`.
The first spike is the earliest root that lies between its own last input and the next one.

Source: Göltz et al., "Fast and energy-efficient neuromorphic deep learning with first-spike times", Nature Machine
Intelligence 3, 2021, equation 3.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class First(NamedTuple):
    """First spike times `[N, outputs]`, infinity for none, and how close the potential came to 1 without a spike."""

    times: Tensor
    # Least distance below the threshold of a peak that fires nothing, before the first spike `[N, outputs]`.
    miss: Tensor


def first_spikes(arrivals: Tensor, weight: Tensor) -> First:
    """First spikes for weights `[outputs, inputs]` and one spike of each input at `arrivals` `[N, outputs, inputs]`."""
    t, order = arrivals.sort(2)
    w = 2 * weight.expand_as(arrivals).gather(2, order)
    comes = t.isfinite()
    zero = torch.zeros_like(t)
    a = torch.where(comes, w * torch.where(comes, t / 2, zero).exp(), zero).cumsum(2)
    b = torch.where(comes, w * torch.where(comes, t, zero).exp(), zero).cumsum(2)
    root = a * a - 4 * b
    rises = (b > 0) & (a > 0)
    found = rises & (root > 0) & comes
    one = torch.ones_like(t)
    y = (a + torch.where(found, root, one).sqrt()) / (2 * torch.where(found, b, one))
    at = -2 * torch.where(found, y, one).log()
    later = torch.cat((t[..., 1:], torch.full_like(t[..., :1], math.inf)), 2)
    found = found & (at >= t) & (at < later)
    times = torch.where(found, at, math.inf).min(2).values
    # The peak A^2 / (4 B) is at y = A / (2 B).
    with torch.no_grad():
        top = torch.where(rises, a * a / (4 * torch.where(rises, b, one)), zero)
        peak = -2 * torch.where(rises, a / (2 * torch.where(rises, b, one)), one).log()
        counts = rises & comes & (top < 1) & (peak >= t) & (peak < later) & (peak < times[..., None])
        miss = torch.where(counts, 1 - top, math.inf).min(2).values
    return First(times, miss)
