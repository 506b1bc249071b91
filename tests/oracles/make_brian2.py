"""How brian2.npz was made, with Brian2 2.9.0: `pip install brian2==2.9.0 "numpy<2.4"`, then `python make_brian2.py`.

One population of each model in steps of 1 ms, driven by the same whole numbers x of -64 to 63 `[T, neurons]`. In a step
Brian2 integrates over it, with the input of the step, then compares with the threshold, then resets. Current-based
neurons get their events before the integration (`when="start"`). Stored are x and who fires in which step.
"""

from pathlib import Path

import brian2
import numpy as np
from brian2 import ms

STEPS, NEURONS = 600, 32
# Equations, threshold, reset, integration, input of the equations, start.
MODELS = {
    "LIF": (
        "dv/dt = (x(t, i) - v + 0.1) / (9.5 * ms) : 1",
        "v >= 1",
        "v = -0.25",
        "exact",
        lambda x: 1 + x / 16,
        {},
    ),
    "CubaLIF": (
        """dv/dt = (c - v) / (10.5 * ms) : 1
           dc/dt = -c / (4.25 * ms) : 1""",
        "v >= 1",
        "v = -0.25",
        "exact",
        lambda x: x * (np.abs(x) > 40) / 24 + (x > 40),
        {},
    ),
    "ALIF": (
        """dv/dt = (x(t, i) - v) / (9.5 * ms) : 1
           da/dt = -a / (40.5 * ms) : 1""",
        "v >= 1 + a",
        "v -= 1 + a; a += 0.375",
        "exact",
        lambda x: 2 + x / 16,
        {},
    ),
    "Izhikevich": (
        """dv/dt = (0.04 * v ** 2 + 5 * v + 140 + x(t, i) - w) / (4 * ms) : 1
           dw/dt = (0.2 * v - w) / (200 * ms) : 1""",
        "v >= 30",
        "v = -65; w += 6",
        "euler",
        lambda x: 40 + x / 2,
        {"v": -70.0, "w": -14.0},
    ),
}


def spikes(
    currents: np.ndarray, equations: str, threshold: str, reset: str, method: str, start: dict[str, float]
) -> np.ndarray:
    brian2.start_scope()
    brian2.defaultclock.dt = 1 * ms
    namespace = {"x": brian2.TimedArray(currents, dt=1 * ms)}
    shape = {"threshold": threshold, "reset": reset, "method": method, "namespace": namespace}
    group = brian2.NeuronGroup(NEURONS, equations, **shape)
    if "x(" not in equations:
        group.run_regularly("c += x(t, i)", when="start")
    for name, value in start.items():
        setattr(group, name, value)
    monitor = brian2.SpikeMonitor(group)
    brian2.Network(group, monitor).run(STEPS * ms)
    fired = np.zeros((STEPS, NEURONS), dtype=bool)
    fired[np.round(monitor.t / ms).astype(int), monitor.i] = True
    return fired


def main() -> None:
    brian2.prefs.codegen.target = "numpy"
    x = np.random.Generator(np.random.PCG64(0)).integers(-64, 64, (STEPS, NEURONS)).astype(np.int8)
    found = {}
    for name, (*neuron, driven, start) in MODELS.items():
        fired = spikes(driven(x.astype(float)), *neuron, start)
        print(f"{name}: {fired.sum()} spikes, {fired.sum(0).min()} to {fired.sum(0).max()} of a neuron")
        found[name] = np.packbits(fired)
    np.savez_compressed(Path(__file__).with_name("brian2.npz"), x=x, **found)


main()
