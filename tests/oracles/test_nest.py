"""Spike times of multi-spike neurons against NEST's exact ones (make_nest.py made nest.json).

NEST's `tau_m` and `tau_syn` are those of `CubaLIF.from_continuous`, `V_th` and `V_reset` its `threshold` and
`reset_value` above `E_L`, and a weight w in pA jumps the current by w / C_m in mV / ms, which snnlib's weights, in mV,
give as `w tau_syn / C_m`: both move the membrane by `w / C_m (tau_m tau_syn) / (tau_m - tau_syn) (exp(-t / tau_m) -
exp(-t / tau_syn))`. The membrane starts at `E_L`, in snnlib at 0.

Inputs lie on every grid that is compared, so the first spike is that of NEST rounded up to the grid. Its reset is, too:
it starts up to a step late, and what that changes at later spikes is of the order of a step, but of no bounded number
of them.
"""

import json
from pathlib import Path

import numpy as np
import torch

import snnlib
from snnlib import encoding
from snnlib.neurons import CubaLIF

STORED = json.loads(Path(__file__).with_name("nest.json").read_text(encoding="utf-8"))
GRID, END = 0.1, 60.0


def spike_times(stored: dict, dt: float) -> np.ndarray:
    """Ends of the steps in which a neuron of snnlib fires."""
    c = stored["constants"]
    limits = {"threshold": c["V_th"] - c["E_L"], "reset_value": c["V_reset"] - c["E_L"], "start_value": 0.0}
    neuron = CubaLIF.from_continuous(c["tau_m"], c["tau_syn"], dt, gradient="event", **limits)
    arrivals = torch.tensor(stored["steps"], dtype=torch.float64)[None] * GRID
    layer = snnlib.SpikingLinear(arrivals.shape[1], 1, neuron=neuron, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(stored["weights"])[None] * c["tau_syn"] / c["C_m"])
        spikes = layer(encoding.at_times(arrivals, round(END / dt), dt=dt))
    return (spikes.flatten().nonzero()[:, 0].numpy() + 1) * dt


def test_spike_times_of_nest() -> None:
    exact = [np.array(stored["times"]) for stored in STORED["neurons"]]
    grids, means = [GRID / 2**halvings for halvings in range(4)], []
    for dt in grids:
        own = [spike_times(stored, dt) for stored in STORED["neurons"]]
        first = np.array([ours[0] - theirs[0] for ours, theirs in zip(own, exact, strict=True)]) / dt
        # A spike that only just happens may be missing in a coarse grid: later ones are compared with one too early.
        pairs = zip(own, exact, strict=True)
        off = [np.abs(ours[: len(theirs)] - theirs[: len(ours)]) for ours, theirs in pairs]
        means.append(np.concatenate(off).mean())
        worst = max(each.max() for each in off) / dt
        counts = [len(ours) for ours in own]
        print(
            f"dt {dt}: first spikes {first.round(2)} steps late; all {means[-1] / dt:.1f} steps off in the mean,"
        )
        print(f"    {worst:.0f} at most; {counts} spikes")
        assert (first >= 0).all()
        assert (first < 1).all()
    order = np.polyfit(np.log(grids), np.log(means), 1)[0]
    print(f"order {order:.2f}")
    assert order >= 0.9
    assert counts == [len(theirs) for theirs in exact]
