"""How brian2_lab.json was made, with Brian2 2.9.0: `pip install brian2==2.9.0 "numpy<2.4"`, then this program.

`lif` and `adex`: rates in 1/s of a neuron against a constant current in pA, in steps of 0.1 ms. A rate is that of the
mean interval from the first to the last spike after `SETTLED`. The LIF neuron is integrated exactly and has a closed
form (test_brian2_lab.py). AdEx has the constants of Brette and Gerstner (2005) and is integrated with Euler's steps of
0.1 ms (`euler`) and with Runge-Kutta's of 0.01 ms (`converged`); `first` is one over the first interval, before the
adaptation.

`brunel`: the net of Brunel (2000), model A, with 10,000 excitatory and 2,500 inhibitory neurons, in the four states of
his figure 8, on three nets::

    tau dV/dt = -V + tau J sum of delta(t - t_k - D);   at V = theta: V = V_r for tau_rp, input is lost

tau 20 ms, theta 20 mV, V_r 10 mV, tau_rp 2 ms, D 1.5 ms. Each neuron has 1000 excitatory (J = 0.1 mV) and 250
inhibitory (-g J) inputs, drawn with replacement, and 1000 external ones, each a Poisson process of
`drive` times theta / (J 1000 tau) = 10 Hz. A step is 0.1 ms, a run 1 s; the first `START` are left out of:

- `rate`: spikes per neuron and second, of all neurons;
- `cv`: mean over neurons of the coefficient of variation of their intervals, of neurons with five spikes and more;
- `fano`: variance over mean of the spikes of all neurons in bins of 1 ms, 1 for independent Poisson processes;
- `frequency`: place in Hz of the largest peak above 5 Hz in the spectrum of these counts.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brian2
import numpy as np
from brian2 import ms, mV, nS, pA, pF

STEP, LONG, SETTLED = 0.1 * ms, 6000 * ms, 2000 * ms
# Synchronous regular, synchronous irregular (fast), asynchronous irregular, synchronous irregular (slow): g and drive.
STATES = {"SR": (3.0, 2.0), "SI fast": (6.0, 4.0), "AI": (5.0, 2.0), "SI slow": (4.5, 0.9)}
EXCITATORY, INHIBITORY, SEEDS = 10_000, 2_500, 3
DURATION, START = 1000 * ms, 200 * ms

# pF, nS, mV, ms, pA.
LIF = {"C": 200.0, "g": 10.0, "E": -70.0, "threshold": -50.0, "reset": -60.0, "refractory": 2.0}
ADEX = {
    "C": 281.0, "g": 30.0, "E": -70.6, "V_T": -50.4, "Delta": 2.0, "tau_w": 144.0, "a": 4.0, "b": 80.5,
    "reset": -70.6, "cut": -40.4,
}  # fmt: skip


def spike_trains(group: Any, duration: Any) -> list[np.ndarray]:
    """Spike times of each neuron, in ms."""
    monitor = brian2.SpikeMonitor(group)
    brian2.Network(group, monitor).run(duration)
    return [np.asarray(times / ms) for times in monitor.spike_trains().values()]


def settled_rate(times: np.ndarray) -> float:
    late = times[times >= SETTLED / ms]
    return float(1000 * (len(late) - 1) / (late[-1] - late[0])) if len(late) > 1 else 0.0


def lif_curve() -> dict[str, Any]:
    """Rates at the currents at which the closed form has 5 to 100 Hz."""
    tau, drop = LIF["C"] / LIF["g"], LIF["threshold"] - LIF["reset"]
    wanted = np.array([5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100.0])
    # The interval less the refractory time is tau log((u_reset) / (u_reset - drop)), u being below the steady state.
    steady = drop / (1 - np.exp(-(1000 / wanted - LIF["refractory"]) / tau))
    current = np.round(LIF["g"] * (steady + LIF["reset"] - LIF["E"]), 3)
    brian2.start_scope()
    brian2.defaultclock.dt = STEP
    group = brian2.NeuronGroup(
        len(current),
        "dv/dt = (g * (E - v) + i_in) / C : volt (unless refractory)\ni_in : amp",
        threshold="v >= V_th",
        reset="v = V_r",
        refractory=LIF["refractory"] * ms,
        method="exact",
        namespace={
            "C": LIF["C"] * pF, "g": LIF["g"] * nS, "E": LIF["E"] * mV,
            "V_th": LIF["threshold"] * mV, "V_r": LIF["reset"] * mV,
        },
    )  # fmt: skip
    group.v, group.i_in = LIF["E"] * mV, current * pA
    rates = [settled_rate(times) for times in spike_trains(group, LONG)]
    return {"constants": LIF, "current_pA": current.tolist(), "rate": np.round(rates, 4).tolist()}


def adex_curve() -> dict[str, Any]:
    current = np.concatenate((np.arange(520, 700, 20), np.arange(700, 3001, 100))).astype(float)
    found: dict[str, Any] = {"constants": ADEX, "current_pA": current.tolist()}
    for name, method, step in (("euler", "euler", STEP), ("converged", "rk4", 0.01 * ms)):
        brian2.start_scope()
        brian2.defaultclock.dt = step
        group = brian2.NeuronGroup(
            len(current),
            """dv/dt = (g * (E - v) + g * Delta * exp((v - V_T) / Delta) - w + i_in) / C : volt
               dw/dt = (a * (v - E) - w) / tau_w : amp
               i_in : amp""",
            threshold="v > cut",
            reset="v = V_r; w += b",
            method=method,
            namespace={
                "C": ADEX["C"] * pF, "g": ADEX["g"] * nS, "E": ADEX["E"] * mV, "V_T": ADEX["V_T"] * mV,
                "Delta": ADEX["Delta"] * mV, "tau_w": ADEX["tau_w"] * ms, "a": ADEX["a"] * nS,
                "b": ADEX["b"] * pA, "V_r": ADEX["reset"] * mV, "cut": ADEX["cut"] * mV,
            },
        )  # fmt: skip
        group.v, group.i_in = ADEX["E"] * mV, current * pA
        trains = spike_trains(group, LONG)
        found[name] = np.round([settled_rate(times) for times in trains], 4).tolist()
        first = [1000 / (times[1] - times[0]) if len(times) > 1 else 0.0 for times in trains]
        found["first " + name] = np.round(first, 4).tolist()
    return found


def brunel_net(seed: int) -> Callable[[str], Any]:
    """Returns a function that runs a state of a net from rest, and gives its spikes."""
    neurons, inputs = EXCITATORY + INHIBITORY, EXCITATORY // 10
    tau, theta, strength = 20 * ms, 20 * mV, 0.1 * mV
    brian2.start_scope()
    brian2.defaultclock.dt = STEP
    brian2.seed(seed)
    draw = np.random.default_rng(seed)
    group = brian2.NeuronGroup(
        neurons,
        "dv/dt = -v / tau : volt (unless refractory)",
        threshold="v > theta",
        reset="v = 10 * mV",
        refractory=2 * ms,
        method="exact",
    )
    rate = theta / (strength * inputs * tau)
    outside = {
        name: brian2.PoissonInput(group, "v", inputs, drive * rate, strength)
        for name, (_, drive) in STATES.items()
    }
    parts: list[Any] = [group, *outside.values()]
    for first, size, weight in ((0, EXCITATORY, "strength"), (EXCITATORY, INHIBITORY, "-g * strength")):
        synapses = brian2.Synapses(group, group, on_pre=f"v_post += {weight}", delay=1.5 * ms)
        sources = draw.integers(first, first + size, neurons * size // 10)
        synapses.connect(i=sources, j=np.repeat(np.arange(neurons), size // 10))
        parts.append(synapses)
    monitor = brian2.SpikeMonitor(group)
    net = brian2.Network(*parts, monitor)
    net.store()

    def run(name: str) -> Any:
        net.restore()
        for other, source in outside.items():
            source.active = other == name
        namespace = {"tau": tau, "theta": theta, "strength": strength, "g": STATES[name][0]}
        net.run(DURATION, namespace=namespace)
        return monitor

    return run


def brunel(seed: int) -> dict[str, dict[str, float]]:
    """Each state's statistics, of one net."""
    found, run, neurons = {}, brunel_net(seed), EXCITATORY + INHIBITORY
    for name in STATES:
        monitor = run(name)
        times, indices = np.asarray(monitor.t / ms), np.asarray(monitor.i)
        late = times >= START / ms
        found[name] = statistics(times[late], indices[late], neurons)
        print(f"seed {seed}, {name}: {found[name]}", flush=True)
    return found


def statistics(times: np.ndarray, indices: np.ndarray, neurons: int) -> dict[str, float]:
    start, end = START / ms, DURATION / ms
    order = np.lexsort((times, indices))
    trains = np.split(times[order], np.flatnonzero(np.diff(indices[order])) + 1)
    variations = [np.std(gaps) / np.mean(gaps) for gaps in map(np.diff, trains) if len(gaps) >= 4]
    # Spikes lie on the grid of steps: bins begin half a step before.
    counts, _ = np.histogram(times, np.arange(start, end + 0.5, 1.0) - 0.05)
    spectrum, frequencies = np.abs(np.fft.rfft(counts - counts.mean())), np.fft.rfftfreq(len(counts), 1e-3)
    return {
        "rate": round(len(times) / neurons / (end - start) * 1000, 3),
        "cv": round(float(np.mean(variations)), 4),
        "fano": round(float(counts.var() / counts.mean()), 3),
        "frequency": round(float(frequencies[frequencies > 5][np.argmax(spectrum[frequencies > 5])]), 2),
    }


def main() -> None:
    found: dict[str, Any] = {"brian2": brian2.__version__, "numpy": np.__version__}
    found |= {"lif": lif_curve(), "adex": adex_curve()}
    runs = [brunel(seed) for seed in range(SEEDS)]
    found["brunel"] = {
        name: {"g": g, "drive": drive, "runs": [run[name] for run in runs]}
        for name, (g, drive) in STATES.items()
    }
    Path(__file__).with_name("brian2_lab.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
