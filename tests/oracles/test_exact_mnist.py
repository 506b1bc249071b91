"""A net of nine layers with exact spike times on MNIST, layer by layer, against the closed form on the same grid.

The net of Göltz et al. (fastAndDeep, branch WeHaveToGoDeeper, 97.0 % of the test images) has 784 inputs, eight hidden
layers of 100 neurons and 10 outputs, which fire once at most, both time constants and the threshold 1. Stored are the
times of all its neurons in continuous time. Each layer gets those of the layer below, moved to the grid, so that no
error is handed on.

With equal time constants the potential is `V(t) = (A t - B) exp(-t)`, `A = sum of w exp(t_i)` and `B = sum of w t_i
exp(t_i)` over the inputs before t, with its only peak at `B / A + 1`. It reaches 1 at `t = B / A - W(-exp(B / A) / A)`,
W Lambert's function.

Source: Göltz et al., "Fast and energy-efficient neuromorphic deep learning with first-spike times", Nature Machine
Intelligence 3, 2021, equation 2.
"""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import snnlib
from snnlib import encoding, readout
from snnlib.neurons import CubaLIF

pytestmark = pytest.mark.skipif(
    not os.environ.get("SNNLIB_DATA"), reason="SNNLIB_DATA is unset: no net of others with exact times"
)

DT, STEPS, BATCH = 0.005, 1300, 30
# The grid of the stored times.
THEIRS = 0.01


@pytest.fixture(scope="module")
def stored() -> tuple[list[Tensor], list[Tensor]]:
    """Times of inputs and layers `[N, neurons]`, and weights `[outputs, inputs]`."""
    with np.load(Path(os.environ["SNNLIB_DATA"]) / "exact_mnist" / "goeltz_eightlayer.npz") as arrays:
        times = [arrays["inputs"], *arrays["hiddens"], arrays["outputs"]]
        weights = [arrays[f"layers.{number}.weights"].T for number in range(9)]
    return [torch.from_numpy(each) for each in times], [torch.from_numpy(each) for each in weights]


def first_times(arrivals: Tensor, weight: Tensor) -> Tensor:
    """Times `[N, outputs]`, infinity for none, of inputs `[N, inputs]` and weights `[outputs, inputs]`."""
    t, order = arrivals.sort(1)
    comes, begins = t.isfinite()[:, None], t.nan_to_num(posinf=0.0)[:, None]
    growth = torch.where(comes, begins.exp(), 0.0) * weight[:, order].movedim(0, 1)
    a, b = growth.cumsum(2), (growth * begins).cumsum(2)
    ends = torch.cat((t[:, 1:], torch.full_like(t[:, :1], math.inf)), 1)[:, None]
    # Between two inputs the potential is highest at its peak, or at the end that is nearer to it.
    rises = (a > 0) & comes
    at = torch.where(rises, b / a + 1, 0.0).clamp(min=begins).minimum(ends)
    crosses = rises & ((a * at - b) * (-at).exp() >= 1)
    fires, first = crosses.any(2), crosses.to(torch.uint8).argmax(2, keepdim=True)
    a, b = a.gather(2, first)[..., 0], b.gather(2, first)[..., 0]
    rate = torch.where(fires, b / a, 0.0)
    y = torch.where(fires, rate.exp() / a, 0.0)
    # Newton's steps for u exp(-u) = y, u = -W(-y), go up to the root, by half of the way where the peak is 1.
    u = torch.zeros_like(y)
    for _ in range(60):
        u = torch.where(u < 1, u + (y * u.exp() - u) / (1 - u), u)
    return torch.where(fires, rate + u, math.inf)


def first_steps(arrivals: Tensor, weight: Tensor) -> Tensor:
    """Steps of the first spikes `[N, outputs]` in a layer of snnlib, `STEPS` for none."""
    neuron = CubaLIF.from_continuous(1.0, 1.0, DT, gradient="event", refractory=math.inf)
    layer = snnlib.SpikingLinear(*weight.t().shape, neuron=neuron, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        return readout.first_spike_time(layer(encoding.at_times(arrivals, STEPS, dt=DT)))


@pytest.mark.parametrize("number", range(9))
def test_layers_of_a_deep_net(stored: tuple[list[Tensor], list[Tensor]], number: int) -> None:
    times, weight = stored[0][number : number + 2], stored[1][number]
    arrivals = (times[0] / DT).round() * DT
    exact = torch.cat([first_times(batch, weight) for batch in arrivals.split(BATCH)])
    own = torch.cat([first_steps(batch, weight) for batch in arrivals.split(BATCH)])
    # A crossing on the grid is a spike of the step that ends there.
    off = int((own != (exact / DT - 1e-9).floor().clamp(max=STEPS)).sum())
    both = exact.isfinite() & times[1].isfinite()
    late = float((exact - times[1])[both].abs().median())
    others = int((exact.isfinite() != times[1].isfinite()).sum())
    print(
        f"layer {number + 1}: {off} of {own.numel()} first spikes off the closed form; that is {late:.4f} from"
    )
    print(f"    the stored times in the middle, and {others} neurons fire in one of the two alone")
    assert off == 0
    # Stored times are rounded to THEIRS, and so are those of the layer below: a spike that hangs on them may not come.
    assert late < THEIRS / 2
    assert others <= 0.002 * own.numel()
