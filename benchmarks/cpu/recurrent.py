"""Milliseconds of one training step of a recurrent layer: snnlib, snnTorch, SpikingJelly and a dense torch loop.

    PYTHONPATH=PEERS python benchmarks/cpu/recurrent.py [--rate 0.05] [--compile] [--json FILE]

Workload: 700 inputs of which 3 % fire in a step, 256 recurrent neurons of which `--rate` fire, T = 100, batch 128, a
linear read-out of the mean; forward + backward + Adam, float32. Input currents of all steps are one product for every
net. The learning rate is so small that rates stay: at 1e-4 the share of snnlib's neurons that fire grew from 5 to 12 %
within 20 steps, and to 34 % within 60. The shares after the last turn are printed. Ratios are to the first row. Peers
run where they are installed; `--compile` also compiles the dense loop's step.
"""

from __future__ import annotations

import torch
from nmnist_nets import SNNTORCH, SPIKINGJELLY, installed, scale_to_rate_, training_step
from torch import Tensor, nn
from turns import Report, parser, take_turns

import snnlib
from snnlib import neurons, surrogate

INPUT_RATE = 0.03
BUMP = surrogate.Triangle(width=0.5, height=0.4)
ALPHA, BETA = 2 / 3, 0.8
# Adam's arithmetic takes the same time at any learning rate.
LEARNING_RATE = 1e-8


class Layer(nn.Module):
    """Input currents, recurrent neurons, and scores of the mean of their spikes, for any library's neurons."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, hidden, bias=False)
        self.scores = nn.Linear(hidden, 10)

    def spikes(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        # The training step sums over time.
        return self.scores(self.spikes(x).mean(0, keepdim=True))


class Ours(Layer):
    def __init__(self, inputs: int, hidden: int, bump: surrogate.Surrogate) -> None:
        super().__init__(inputs, hidden)
        neuron = neurons.CubaLIF(5.0, 3.0, decay_input=False, reset="subtract", surrogate=bump)
        self.input = snnlib.SpikingRNN(inputs, hidden, neuron=neuron)

    @property
    def weight(self) -> nn.Parameter:
        return self.input.layers[0].weight

    def spikes(self, x: Tensor) -> Tensor:
        return self.input(x)


class Dense(Layer):
    """Layer of the same neurons in a loop over steps with dense products."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden)
        self.recurrent = nn.Linear(hidden, hidden, bias=False)
        self.step = self._step

    def _step(self, x: Tensor, s: Tensor, v: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        i = ALPHA * i + x + self.recurrent(s)
        v = BETA * v + i
        u = v - 1
        slope = 0.4 * (1 - 2 * u.abs()).clamp(min=0)
        # The spike, with the triangle's gradient.
        s = (u >= 0).float() + (u - u.detach()) * slope.detach()
        return s, v - s.detach(), i

    def spikes(self, x: Tensor) -> Tensor:
        currents = self.input(x)
        s = v = i = torch.zeros_like(currents[0])
        out = []
        for current in currents:
            s, v, i = self.step(current, s, v, i)
            out.append(s)
        return torch.stack(out)


class SnnTorch(Layer):
    def __init__(self, inputs: int, hidden: int, synaptic: bool) -> None:
        import snntorch  # noqa: PLC0415

        super().__init__(inputs, hidden)
        options = {"linear_features": hidden, "all_to_all": True, "reset_mechanism": "subtract"}
        self.synaptic = synaptic
        self.neurons = (
            snntorch.RSynaptic(ALPHA, BETA, **options) if synaptic else snntorch.RLeaky(BETA, **options)
        )

    def spikes(self, x: Tensor) -> Tensor:
        states = self.neurons.init_rsynaptic() if self.synaptic else self.neurons.init_rleaky()
        out = []
        for current in self.input(x):
            states = self.neurons(current, *states)
            out.append(states[0])
        return torch.stack(out)


class SpikingJelly(Layer):
    def __init__(self, inputs: int, hidden: int) -> None:
        from spikingjelly.activation_based import functional, layer, neuron  # noqa: PLC0415

        super().__init__(inputs, hidden)
        self.reset = functional.reset_net
        lif = neuron.LIFNode(tau=5.0, decay_input=False, v_reset=None, detach_reset=True)
        self.neurons = layer.LinearRecurrentContainer(lif, hidden, hidden, bias=False, step_mode="m")

    def spikes(self, x: Tensor) -> Tensor:
        self.reset(self.neurons)
        return self.neurons(self.input(x))


def main() -> None:
    wanted = parser(__doc__, turns=9)
    wanted.add_argument("--rate", type=float, default=0.05)
    wanted.add_argument("--compile", action="store_true", help="also time the dense loop compiled")
    arguments = wanted.parse_args()
    report = Report(arguments)
    steps, batch, inputs, hidden = (8, 4, 30, 24) if arguments.quick else (100, 128, 700, 256)
    torch.manual_seed(0)
    x, y = (torch.rand(steps, batch, inputs) < INPUT_RATE).float(), torch.randint(10, (batch,))
    nets: dict[str, Layer] = {
        "snnlib": Ours(inputs, hidden, BUMP),
        "snnlib, ATan": Ours(inputs, hidden, surrogate.ATan(0.8)),
        "dense torch loop": Dense(inputs, hidden),
    }
    if arguments.compile:
        nets["dense torch loop, step compiled"] = compiled = Dense(inputs, hidden)
        compiled.step = torch.compile(compiled._step)
    if installed(SNNTORCH):
        nets["snnTorch RSynaptic"] = SnnTorch(inputs, hidden, synaptic=True)
        nets["snnTorch RLeaky"] = SnnTorch(inputs, hidden, synaptic=False)
    if installed(SPIKINGJELLY):
        nets["SpikingJelly LinearRecurrentContainer"] = SpikingJelly(inputs, hidden)
    for net in nets.values():
        weight = net.weight if isinstance(net, Ours) else net.input.weight
        scale_to_rate_(weight, arguments.rate, lambda net=net: float(net.spikes(x[:, :8]).mean()))
    tasks = {name: training_step(net, x, y, learning_rate=LEARNING_RATE) for name, net in nets.items()}
    title = f"one training step, {inputs} -> {hidden}, T = {steps}, batch {batch}"
    report.add(title, take_turns(tasks, arguments.turns))
    with torch.no_grad():
        shares = {name: float(net.spikes(x).mean()) for name, net in nets.items()}
    print("fired in a step:", ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items()))
    report.write()


if __name__ == "__main__":
    main()
