"""Gradients of spike times in a recurrent net with resets against eventax's exact ones (make_eventax.py made them).

eventax's `tmem` and `tsyn` are those of `CubaLIF.from_continuous`; a weight w moves its membrane by `w tsyn / (tmem -
tsyn) (exp(-t / tmem) - exp(-t / tsyn))`, which snnlib's weights, `[to, from]`, give as `w tsyn / tmem`. There spikes
come back at once; here a spike comes back with the next step, half a step after its crossing in the mean.

So the errors of times and gradients fall with the step. No two events of a sample are closer than 0.03: where two of
them change places the derivative jumps, and a grid that has them so is off for good. Without the gradient of the spikes
that come back the errors would be 0.3 at every step.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import snnlib
from snnlib import encoding
from snnlib.neurons import CubaLIF

STORED = json.loads(Path(__file__).with_name("eventax.json").read_text(encoding="utf-8"))
TAU_M, TAU_S, END, GRID = 2.0, 1.0, 6.0, 0.1
GRADIENTS = "by_recurrent_weight", "by_weight", "by_input"


def stored(name: str) -> Tensor:
    return torch.tensor(STORED[name], dtype=torch.float64)


def gradients(dt: float) -> tuple[Tensor, list[Tensor]]:
    """Spikes `[T, N, H]`, and gradients of `L = sum of pull t` by recurrent weights, weights and input times."""
    options = {"gradient": "event", "input_gradient": "time", "grad_clamp": torch.inf}
    neuron = CubaLIF.from_continuous(TAU_M, TAU_S, dt, **options)
    weights = stored("recurrent_weight"), stored("weight")
    net = snnlib.SpikingRNN(*weights[1].shape, neuron=neuron, dtype=torch.float64)
    own = net.layers[0].recurrent_weight, net.layers[0].weight
    with torch.no_grad():
        for parameter, weight in zip(own, weights, strict=True):
            parameter.copy_(weight.t() * TAU_S / TAU_M)
    arrivals = stored("inputs") * GRID
    x = encoding.at_times(arrivals, round(END / dt), dt=dt).requires_grad_()
    spikes = net(x)
    # dL/ds means "earlier", by a step.
    spikes.backward(-dt * stored("pull").expand_as(spikes))
    by_time = -x.grad.gather(0, (arrivals / dt).round().long().movedim(2, 0)).movedim(0, 2) / dt
    return spikes.detach(), [*(parameter.grad.t() * TAU_S / TAU_M for parameter in own), by_time]


def test_gradients_of_a_recurrent_net() -> None:
    steps, errors = [0.02, 0.01, 0.005, 0.0025], []
    for dt in steps:
        spikes, found = gradients(dt)
        exact = [torch.tensor(times).double() for sample in STORED["spikes"] for times in sample]
        own = [(each.nonzero()[:, 0] + 1) * dt for each in spikes.flatten(1).unbind(1)]
        assert [len(times) for times in own] == [len(times) for times in exact]
        late = (torch.cat(own) - torch.cat(exact)).abs().mean() / dt
        pairs = list(zip(found, map(stored, GRADIENTS), strict=True))
        errors.append([float((own - exact).norm() / exact.norm()) for own, exact in pairs])
        print(f"dt {dt}: spikes {late:.1f} steps off in the mean, gradients {np.round(errors[-1], 4)}")
    orders = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    print(f"orders {orders.round(2)}")
    assert (orders >= 0.9).all()
    assert max(errors[-1]) < 0.02
