"""How nest.json was made, with NEST 3.10.0: `pip install nest-simulator==3.10.0`, then `python make_nest.py`.

Five neurons `iaf_psc_exp_ps_lossless`, whose spike times NEST finds between the steps, to rounding::

    dV/dt = -(V - E_L) / tau_m + I / C_m,   dI/dt = -I / tau_syn + sum of w delta(t - t_i);   V = V_reset at V_th

A neuron rests for `t_ref` after a spike, at least a step of NEST's (with 0 it never fires again): V stays, I goes on.
snnlib's `refractory` stays I as well, so `t_ref` is taken off: a step is 1e-4 ms, less than a hundredth of the finest
step that is compared. Input spikes lie on a grid of 0.1 ms, the coarsest one. Times are in ms, V in mV, w in pA, C_m in
pF; input times are those of arrival, in steps of that grid.
"""

import json
from pathlib import Path

import nest
import numpy as np

STEP, GRID, DELAY, END, LAST, INPUTS = 1e-4, 0.1, 1.0, 60.0, 50.0, 50


def spike_times(constants: dict[str, float], steps: list[int], weights: list[float]) -> list[float]:
    nest.ResetKernel()
    nest.set(tics_per_ms=round(1 / STEP), resolution=STEP)
    tau_syn = constants["tau_syn"]
    own = {name: value for name, value in constants.items() if name != "tau_syn"}
    params = {**own, "V_m": own["E_L"], "tau_syn_ex": tau_syn, "tau_syn_in": tau_syn, "t_ref": STEP}
    neuron = nest.Create("iaf_psc_exp_ps_lossless", params=params)
    # Spikes that are sent at t arrive at t + DELAY.
    sent = [round(step * GRID - DELAY, 1) for step in steps]
    source = nest.Create("spike_generator", params={"spike_times": sent, "spike_weights": weights})
    recorder = nest.Create("spike_recorder")
    nest.Connect(source, neuron, syn_spec={"delay": DELAY})
    nest.Connect(neuron, recorder, syn_spec={"delay": DELAY})
    nest.Simulate(END)
    return sorted(recorder.get("events")["times"].tolist())


def main() -> None:
    draw = np.random.Generator(np.random.PCG64(0))
    neurons = []
    for _ in range(5):
        low = {"tau_m": 8.0, "tau_syn": 1.5, "C_m": 200.0, "E_L": -72.0, "V_th": -57.0, "V_reset": -78.0}
        high = {"tau_m": 20.0, "tau_syn": 4.0, "C_m": 300.0, "E_L": -68.0, "V_th": -53.0, "V_reset": -66.0}
        constants = {name: round(draw.uniform(low[name], high[name]), 2) for name in low}
        steps = np.sort(draw.choice(np.arange(15, round(LAST / GRID)), INPUTS, replace=False)).tolist()
        weights = draw.normal(600.0, 600.0, INPUTS).round(1).tolist()
        times = spike_times(constants, steps, weights)
        neurons.append({"constants": constants, "steps": steps, "weights": weights, "times": times})
    Path(__file__).with_name("nest.json").write_text(
        json.dumps({"nest": nest.__version__, "neurons": neurons}) + "\n"
    )


main()
