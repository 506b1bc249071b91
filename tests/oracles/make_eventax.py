"""How eventax.json was made, with eventax 0.1.0: `pip install eventax==0.1.0`, then `python make_eventax.py`.

A recurrent net of LIF neurons with a reset, solved from event to event in float64 and differentiated through the events
by jax::

    dv/dt = (i - v) / TAU_M,   di/dt = -i / TAU_S + sum of w delta(t - t_i);   v = 0 where it reaches 1

Spikes come back without a delay. Samples in which two events come within GAP are drawn anew: where they change places
the derivative jumps. Stored are the times of all spikes, and the gradients of `L = sum of pull t` over them by input
times and, summed over samples, by weights, `[from, to]`. Differences of L agree with them (printed). Input times lie on
a grid of 0.1, in steps of which they are stored.
"""

import json
from importlib.metadata import version
from pathlib import Path

import diffrax
import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from eventax.evnn import EvNN
from eventax.neuron_models import LIF

TAU_M, TAU_S, END, GRID, MOST = 2.0, 1.0, 6.0, 0.1, 100
SAMPLES, INPUTS, HIDDEN, EACH, GAP = 6, 5, 4, 2, 0.03


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    draw = np.random.Generator(np.random.PCG64(0))
    recurrent = draw.normal(0.0, 0.6, (HIDDEN, HIDDEN)).round(3)
    weight = draw.normal(1.4, 0.8, (INPUTS, HIDDEN)).round(3)
    given = jnp.concatenate((recurrent, weight))
    neuron = {"thresh": 1.0, "tsyn": TAU_S, "tmem": TAU_M, "init_weights": given, "init_bias": 0.0}
    root = optimistix.Newton(1e-13, 1e-13, optimistix.rms_norm)
    solver = {"solver": diffrax.Tsit5(), "solver_stepsize": 0.02, "root_finder": root, "dtype": jnp.float64}
    limits = {"max_solver_time": END, "max_event_steps": 200}
    connected = {"in_size": INPUTS, "wmask": jnp.ones(given.shape), "key": jax.random.PRNGKey(0)}
    net = EvNN(LIF, HIDDEN, **connected, **neuron, **solver, **limits)

    @equinox.filter_jit
    def loss(weights: jax.Array, times: jax.Array, pull: jax.Array) -> tuple[jax.Array, jax.Array]:
        own = equinox.tree_at(lambda net: net.neuron_model.weights, net, weights)
        spikes = own.spikes_until_t(times, END, max_spikes=MOST)
        return jnp.where(jnp.isfinite(spikes), pull[:, None] * spikes, 0.0).sum(), spikes

    gradient = equinox.filter_jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    by_weight = np.zeros(given.shape)
    samples: dict[str, list] = {"inputs": [], "pull": [], "spikes": [], "by_input": []}
    while len(samples["inputs"]) < SAMPLES:
        steps = 1 + np.sort(draw.choice(45, (INPUTS, EACH), replace=False), 1)
        times, pull = steps * GRID, draw.normal(size=HIDDEN).round(3)
        (_, found), (of_weights, of_times) = gradient(given, jnp.asarray(times), pull)
        fired = np.asarray(found)
        events = np.sort(np.concatenate((fired[np.isfinite(fired)], times.ravel())))
        if np.diff(events).min() < GAP:
            continue
        by_weight += of_weights
        each = [row[np.isfinite(row)].tolist() for row in fired]
        for kept, value in zip(
            samples.values(), (steps.tolist(), pull.tolist(), each, of_times.tolist()), strict=True
        ):
            kept.append(value)
        way = draw.normal(size=given.shape), draw.normal(size=times.shape)
        ends = [float(loss(given + side * way[0], times + side * way[1], pull)[0]) for side in (1e-6, -1e-6)]
        expected = float((of_weights * way[0]).sum() + (of_times * way[1]).sum())
        print(f"along a direction {expected:.6f}, by differences {(ends[0] - ends[1]) / 2e-6:.6f}")
    stored = {
        "eventax": version("eventax"),
        "recurrent_weight": recurrent.tolist(),
        "weight": weight.tolist(),
        "by_recurrent_weight": by_weight[:HIDDEN].tolist(),
        "by_weight": by_weight[HIDDEN:].tolist(),
        **samples,
    }
    Path(__file__).with_name("eventax.json").write_text(json.dumps(stored) + "\n")


main()
