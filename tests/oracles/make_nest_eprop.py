"""How nest_eprop.npz was made, with NEST 3.10.0: `pip install nest-simulator==3.10.0 numpy`, then this program.

Two tasks of NEST's own tests of e-prop (Bellec et al. 2020), built here with its parameters, seeds and order of random
draws, so that the losses are those that NEST's test `test_eprop_bsshslm_2020_plasticity` expects (rtol 1e-8):

- `regression`: 100 inputs with 5 % spikes, 100 LIF neurons, one leaky read-out that follows four sines; squared error,
  gradient descent, five sequences of 1000 steps;
- `classification`: evidence accumulation. 40 inputs, 50 LIF and 50 adaptive ones, two read-outs; cross-entropy in
  the last 150 of 2250 steps, Adam, five sequences.

A step is 1 ms. Stored per task: input spikes, initial weights, target, spikes of the hidden neurons, changes of the
weights after four updates (a synapse of NEST is updated by its first spike after an update, so the fifth is not
applied when the run ends), learning signals and surrogate gradients of three neurons in the first sequence, losses.
Weights are `[to, from]`. test_nest_eprop.py has the equations.
"""

from pathlib import Path
from typing import Any

import nest
import numpy as np

SEQUENCES, HIDDEN = 5, 100
# Changes of the weights of every fourth hidden neuron are stored.
ROWS = 4
# NEST's protocol: generators start after a step, and each connection on the way to the loss takes one.
TO_HIDDEN, TO_READOUT, TO_LOSS = 2, 3, 4
PAIRS = (("w_in", "input", "hidden"), ("w_rec", "hidden", "hidden"), ("w_out", "hidden", "readout"))
Arrays = dict[str, np.ndarray]


def sines(steps: int) -> np.ndarray:
    """The target of the regression: four sines from 0, at most 1."""
    periods = np.array([1000, 500, 333, 200])
    amplitudes, phases = np.random.uniform(0.5, 2.0, 4), np.random.uniform(0.0, 2 * np.pi, 4)
    ends = phases + 2 * np.pi * (steps // periods)
    curves = [
        a * np.sin(np.linspace(*span, steps)) for a, *span in zip(amplitudes, phases, ends, strict=True)
    ]
    total = sum(curves)
    total -= total[0]
    return total / np.abs(total).max()


def regression() -> tuple[Arrays, dict[str, Any]]:
    """Inputs, weights and target, and NEST's parameters."""
    inputs, steps = 100, 1000
    np.random.seed(1)
    arrays = drawn_weights(
        inputs, lambda: np.random.randn(HIDDEN, 1) / 10, lambda: np.random.randn(HIDDEN, 1) / 10
    )
    x = np.random.rand(steps, inputs) < 0.05
    x[0] = False
    arrays["input"] = np.tile(x, (SEQUENCES, 1, 1))
    arrays["target"] = np.tile(sines(steps)[:, None], (SEQUENCES, 1, 1))
    threshold, tau = 0.03, 30.0
    return arrays, {
        "steps": steps,
        "window": steps,
        "lif": 100,
        "hidden": {"V_th": threshold, "t_ref": 0.0, "tau_m": tau, "regular_spike_arrival": False},
        "readout": {"loss": "mean_squared_error", "tau_m": tau},
        "optimizer": {"type": "gradient_descent", "eta": 1e-4},
        "average": False,
    }


def classification() -> tuple[Arrays, dict[str, Any]]:
    """Seven cues on two sides, then a decision: inputs, weights and target, and NEST's parameters."""
    inputs, cues, cue, gap, recall = 40, 7, 100, 50, 150
    steps, group, probability = cues * (cue + gap) + 1050 + recall, inputs // 4, 0.04
    limit = np.sqrt(3 / ((HIDDEN + 2) / 2))
    np.random.seed(1)
    arrays = drawn_weights(
        inputs, lambda: np.random.uniform(-limit, limit, (HIDDEN, 2)), lambda: np.random.randn(HIDDEN, 2)
    )
    chances = np.array([0.3, 0.7], dtype=np.float32)
    spikes, labels = [], []
    for _ in range(SEQUENCES):
        side = np.random.choice([0, 1], 1)[0]
        sides = np.random.choice([0, 1], cues, p=[chances[side], chances[1 - side]])
        p = np.zeros((steps, inputs))
        for number, on in enumerate(sides):
            start = number * (cue + gap) + gap
            p[start : start + cue, on * group : (on + 1) * group] = probability
        p[-recall:, 2 * group : 3 * group] = probability
        p[:, 3 * group :] = probability / 4
        spikes.append(p > np.random.rand(steps, inputs))
        spikes[-1][0] = False
        labels.append(int(sides.sum() > cues // 2))
    arrays["input"] = np.array(spikes)
    arrays["target"] = np.tile(np.eye(2)[labels][:, None], (1, steps, 1))
    threshold, tau, slow = 0.6, 20.0, 2000.0
    beta = 1.7 * (1 - np.exp(-1 / slow)) / (1 - np.exp(-1 / tau))
    return arrays, {
        "steps": steps,
        "window": recall,
        "lif": 50,
        "hidden": {"V_th": threshold, "t_ref": 5.0, "tau_m": tau, "regular_spike_arrival": True},
        "adaptation": {"adapt_tau": slow, "adapt_beta": beta, "adaptation": 0.0},
        "readout": {"loss": "cross_entropy", "tau_m": tau},
        "optimizer": {"type": "adam", "eta": 5e-3, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8},
        "average": True,
    }


def drawn_weights(inputs: int, readout: Any, feedback: Any) -> Arrays:
    """Initial weights, in the order in which NEST's test draws them."""
    arrays = {
        "w_in": np.random.randn(inputs, HIDDEN).T / np.sqrt(inputs),
        "w_rec": np.random.randn(HIDDEN, HIDDEN).T / np.sqrt(HIDDEN),
        "w_out": readout().T,
        "feedback": feedback(),
    }
    np.fill_diagonal(arrays["w_rec"], 0)
    return {name: weights.astype(np.float32) for name, weights in arrays.items()}


def hidden_neurons(net: dict[str, Any]) -> Any:
    hidden = {"C_m": 1.0, "E_L": 0.0, "V_m": 0.0, "c_reg": 300.0, "f_target": 10.0, **net["hidden"]}
    # A triangle of height 0.3 / V_th, which is 0 at V = 0 and V = 2 V_th.
    hidden |= {"surrogate_gradient_height": 0.3 / hidden["V_th"], "surrogate_gradient_width": hidden["V_th"]}
    neurons = nest.Create("eprop_iaf_bsshslm_2020", net["lif"], hidden)
    if net["lif"] < HIDDEN:
        adaptive = {**hidden, **net["adaptation"]}
        neurons += nest.Create("eprop_iaf_adapt_bsshslm_2020", HIDDEN - net["lif"], adaptive)
    return neurons


def connect(arrays: Arrays, net: dict[str, Any], parts: dict[str, Any], targets: Any) -> None:
    """All connections, of a delay of one step each."""
    optimizer = {**net["optimizer"], "batch_size": 1, "Wmin": -100.0, "Wmax": 100.0}
    nest.SetDefaults(
        "eprop_synapse_bsshslm_2020", {"optimizer": optimizer, "average_gradient": net["average"]}
    )
    learned = {"synapse_model": "eprop_synapse_bsshslm_2020", "tau_m_readout": net["readout"]["tau_m"]}
    all_to_all = {"rule": "all_to_all", "allow_autapses": False}
    for name, source, target in PAIRS:
        nest.Connect(
            parts[source], parts[target], all_to_all, {**learned, "delay": 1.0, "weight": arrays[name]}
        )
    back = {"synapse_model": "eprop_learning_signal_connection_bsshslm_2020", "delay": 1.0}
    nest.Connect(parts["readout"], parts["hidden"], all_to_all, {**back, "weight": arrays["feedback"]})
    rates = {"synapse_model": "rate_connection_delayed", "delay": 1.0}
    nest.Connect(targets, parts["readout"], "one_to_one", {**rates, "receptor_type": 2})
    if net["readout"]["loss"] == "cross_entropy":
        nest.Connect(parts["readout"], parts["readout"], all_to_all, {**rates, "receptor_type": 1})


def run(arrays: Arrays, net: dict[str, Any]) -> Arrays:
    """NEST's spikes, changes of weights, learning signals and losses."""
    steps, (inputs, outputs) = net["steps"], (arrays["w_in"].shape[1], len(arrays["w_out"]))
    total = SEQUENCES * steps
    nest.ResetKernel()
    nest.set(
        resolution=1.0,
        total_num_virtual_procs=1,
        eprop_update_interval=float(steps),
        eprop_learning_window=float(net["window"]),
        eprop_reset_neurons_on_update=True,
    )
    times = np.arange(total, dtype=float)
    flat = arrays["input"].reshape(total, inputs)
    generators = nest.Create(
        "spike_generator", inputs, [{"spike_times": times[fired] + 1} for fired in flat.T]
    )
    readout = {"C_m": 1.0, "E_L": 0.0, "V_m": 0.0, "regular_spike_arrival": False, **net["readout"]}
    parts = {
        "input": nest.Create("parrot_neuron", inputs),
        "hidden": hidden_neurons(net),
        "readout": nest.Create("eprop_readout_bsshslm_2020", outputs, readout),
    }
    amplitudes = arrays["target"].reshape(total, outputs)
    targets = nest.Create(
        "step_rate_generator",
        outputs,
        [{"amplitude_times": times + TO_LOSS, "amplitude_values": rate} for rate in amplitudes.T],
    )
    nest.Connect(generators, parts["input"], "one_to_one", {"delay": 1.0})
    connect(arrays, net, parts, targets)
    recorder = nest.Create("spike_recorder")
    nest.Connect(parts["hidden"], recorder)
    signals = nest.Create(
        "multimeter", params={"interval": 1.0, "record_from": ["learning_signal", "surrogate_gradient"]}
    )
    watched = parts["hidden"][[0, 1, HIDDEN - 1]]
    nest.Connect(signals, watched)
    meter = nest.Create("multimeter", params={"interval": 1.0, "record_from": ["readout_signal"]})
    nest.Connect(meter, parts["readout"])
    nest.Simulate(float(total + TO_LOSS + 1))

    spikes = np.zeros((total, HIDDEN), dtype=bool)
    events = recorder.get("events")
    # A neuron that fires in a step stands in the record at its end.
    at = np.round(events["times"]).astype(int) - 1 - TO_HIDDEN
    kept = at < total
    spikes[at[kept], events["senders"][kept] - parts["hidden"][0].global_id] = True
    found = {"spikes": spikes.reshape(SEQUENCES, steps, HIDDEN)}
    output = recorded(meter, "readout_signal", parts["readout"], TO_LOSS, total)
    found["losses"] = losses(output.reshape(arrays["target"].shape), arrays["target"], net)
    found["surrogates"] = recorded(signals, "surrogate_gradient", watched, TO_HIDDEN, steps)
    # A learning signal is written down when it has come back: three steps after the one that it is for.
    found["signals"] = recorded(signals, "learning_signal", watched, TO_HIDDEN + 3, steps)
    for name, source, target_name in PAIRS:
        change = weights(parts[source], parts[target_name]) - arrays[name].astype(float)
        found["change_" + name[2:]] = change[::ROWS] if target_name == "hidden" else change
    return found


def recorded(meter: Any, name: str, nodes: Any, offset: int, steps: int) -> np.ndarray:
    """Values `[steps, nodes]`, from the step `offset` on."""
    events = meter.get("events")
    rows = [events[name][events["senders"] == node.global_id] for node in nodes]
    # The first record is that of the end of step 0.
    return np.array(rows).T[offset : offset + steps]


def losses(output: np.ndarray, target: np.ndarray, net: dict[str, Any]) -> np.ndarray:
    """Returns a loss per sequence, from the read-outs of its learning window."""
    output, target = output[:, -net["window"] :], target[:, -net["window"] :]
    if net["readout"]["loss"] == "mean_squared_error":
        return 0.5 * ((output - target) ** 2).sum(1).mean(1)
    return -(target * np.log(output)).sum(2).mean(1)


def weights(sources: Any, targets: Any) -> np.ndarray:
    """Weights `[to, from]` as they are now; 0 where there is no connection."""
    found = nest.GetConnections(sources, targets, synapse_model="eprop_synapse_bsshslm_2020").get(
        ["source", "target", "weight"]
    )
    table = np.zeros((len(targets), len(sources)))
    first = targets[0].global_id, sources[0].global_id
    table[np.array(found["target"]) - first[0], np.array(found["source"]) - first[1]] = found["weight"]
    return table


def main() -> None:
    nest.verbosity = nest.VerbosityLevel.WARNING
    stored = {"nest": np.array(nest.__version__)}
    for task in (regression, classification):
        arrays, net = task()
        arrays |= run(arrays, net)
        print(task.__name__, "losses", arrays["losses"], "spikes", arrays["spikes"].sum((1, 2)))
        if task is classification:
            # The target of a sequence is constant.
            arrays["target"] = arrays["target"][:, 0]
        else:
            arrays["target"], arrays["input"] = arrays["target"][0], arrays["input"][0]
        for name, values in arrays.items():
            packed = np.packbits(values, axis=-1) if values.dtype == bool else values
            kept = (
                packed.astype(np.float32) if name.startswith(("change", "signals", "surrogates")) else packed
            )
            stored[f"{task.__name__}_{name}"] = kept
            print(f"    {name} {values.shape} {kept.nbytes}")
    np.savez_compressed(Path(__file__).with_name("nest_eprop.npz"), **stored)


main()
