"""Spikes of four models against Brian2's on random input, step for step (make_brian2.py made brian2.npz).

Brian2's steps of 1 ms are snnlib's steps, so time constants in ms are those in steps. Its `exact` integration of a
leak is a decay by `exp(-1 / tau)`, and of an input that stays for a step a gain of `1 - exp(-1 / tau)`: `LIF` and
`ALIF` with `discretisation="exponential"`. An event at the start of a step jumps the synaptic current by w, which moves
the membrane by `w tau_s / (tau_m - tau_s) (exp(-t / tau_m) - exp(-t / tau_s))`: `CubaLIF.from_continuous` with the
weight `w tau_s / tau_m`. An adapted threshold decays before it is compared, in both. Brian2's `euler` takes all right
sides from the old states, as `integration="euler"` does; Norse's dialect has the constants of the paper.

Both calculate in float64 and round in other orders, by 1e-15 of a potential: random ones do not come as close to the
threshold, so no spike may differ.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from snnlib.neurons import ALIF, LIF, CubaLIF, Izhikevich

TAU_M, TAU_S = 10.5, 4.25
EXACT = {"discretisation": "exponential"}


def events(x: Tensor) -> Tensor:
    return (x * (x.abs() > 40) / 24 + (x > 40)) * TAU_S / TAU_M


def cuba(gradient: str) -> CubaLIF:
    return CubaLIF.from_continuous(TAU_M, TAU_S, 1.0, reset_value=-0.25, start_value=0.0, gradient=gradient)


CASES = {
    "LIF": (LIF(9.5, rest=0.1, reset_value=-0.25, start_value=0.0, **EXACT), lambda x: 1 + x / 16),
    "CubaLIF": (cuba("event"), events),
    "CubaLIF natively": (cuba("surrogate"), events),
    "ALIF": (ALIF(9.5, 40.5, beta=0.375, low_pass=False, **EXACT), lambda x: 2 + x / 16),
    "Izhikevich": (Izhikevich(dialect="norse"), lambda x: 40 + x / 2),
}


@pytest.mark.parametrize("name", CASES)
def test_spikes_of_brian2(name: str) -> None:
    neuron, currents = CASES[name]
    with np.load(Path(__file__).with_name("brian2.npz")) as stored:
        x = stored["x"]
        theirs = np.unpackbits(stored[name.split(maxsplit=1)[0]]).reshape(x.shape)
    with torch.no_grad():
        own = neuron(currents(torch.from_numpy(x).double())[:, None])[:, 0].numpy()
    print(f"{name}: {int((own != theirs).sum())} of {theirs.sum()} spikes differ")
    assert theirs.any(0).all()
    assert (own == theirs).all()
