"""Milliseconds of forward + backward of a layer with learnable delays, over the layer without them.

    python benchmarks/cpu/delays.py [--max-delay 25] [--batch 128] [--neuron LIF] [--convolution | --recurrent]

Workload: 700 inputs of which 3 % fire in a step, 256 neurons scaled to 5 % of neuron-steps, T = 100, batch 128,
float32; with `--recurrent` delays are those of the spikes that come back in a recurrent layer of these sizes; with
`--convolution` 12 channels of 16x16, 5x5 kernels to 32 channels, T = 30, batch 8. Rows: no delays; delays
per channel and per connection, between steps (learned by surrogate neurons) and at rounded steps (`eval()`), all with
gradients for weights and delays. Each is timed without and with a gradient for the layer's input, and its ratio is to
the layer without delays under the same demand; processor time counts all threads.
"""

from __future__ import annotations

from functools import partial

import torch
from nmnist_nets import scale_to_rate_
from torch import Tensor, nn
from turns import Report, Task, parser, take_turns

import snnlib
from snnlib import neurons, surrogate
from snnlib.nn.layers.spiking_layer import SpikingLayer

INPUT_RATE, RATE = 0.03, 0.05
NO_DELAYS = "no delays"


def make_neuron(name: str) -> neurons.Neuron:
    """A neuron whose surrogate has compact support."""
    bump = surrogate.Triangle(0.5, 0.4)
    if name == "CubaLIF":
        return neurons.CubaLIF(5.0, 3.0, decay_input=False, surrogate=bump)
    return neurons.LIF(5.0, decay_input=False, surrogate=bump)


def step(layer: nn.Module, x: Tensor, signal: Tensor) -> None:
    """Forward and backward."""
    layer.zero_grad(set_to_none=True)
    x.grad = None
    layer(x).backward(signal)


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--max-delay", type=int, default=25)
    wanted.add_argument("--batch", type=int)
    wanted.add_argument(
        "--convolution", action="store_true", help="a convolution in place of the fully connected layer"
    )
    wanted.add_argument("--recurrent", action="store_true", help="delays of the spikes that come back")
    wanted.add_argument("--neuron", choices=["CubaLIF", "LIF"], default="CubaLIF")
    arguments = wanted.parse_args()
    report = Report(arguments)
    steps, batch, inputs, hidden = (
        (8, 4, 30, 24) if arguments.quick else (100, arguments.batch or 128, 700, 256)
    )
    space: tuple[int, ...] = ()
    if arguments.convolution:
        steps, batch, inputs, hidden = (8, 2, 2, 3) if arguments.quick else (30, arguments.batch or 8, 12, 32)
        space = (6, 6) if arguments.quick else (16, 16)
    longest = 5 if arguments.quick else arguments.max_delay
    torch.manual_seed(0)
    x = (torch.rand(steps, batch, inputs, *space) < INPUT_RATE).float()
    signal = torch.randn(steps, batch, hidden, *space)
    layers: dict[str, nn.Module] = {}
    for per in (None, "channel", "connection"):
        for mode in ("between steps", "rounded")[: 1 if per is None else 2]:
            delays = None if per is None else snnlib.Delays(longest, per)
            neuron = make_neuron(arguments.neuron)
            layer: snnlib.SpikingRNN | snnlib.SpikingConv2d | snnlib.SpikingLinear
            if arguments.recurrent:
                layer = snnlib.SpikingRNN(inputs, hidden, neuron=neuron, recurrent_delays=delays)
            elif space:
                layer = snnlib.SpikingConv2d(inputs, hidden, 5, padding=2, neuron=neuron, delays=delays)
            else:
                layer = snnlib.SpikingLinear(inputs, hidden, neuron=neuron, delays=delays)
            layer.train(mode == "between steps")
            weight = next(layer.parameters())
            scale_to_rate_(weight, RATE, lambda layer=layer: float(layer(x[:, :8]).mean()), 12)
            # Leaves out what a layer looks at in its first batches.
            for module in layer.modules():
                if isinstance(module, SpikingLayer):
                    module.training_watch.stop()
            layers[NO_DELAYS if per is None else f"per {per}, {mode}"] = layer
    shape = f"{inputs} -> {hidden}" + (f", 5x5 on {space[0]}x{space[1]}" if space else "")
    for title, leaf in (
        ("input without gradient", x),
        ("input with gradient", x.clone().requires_grad_()),
    ):
        tasks: dict[str, Task] = {name: partial(step, layer, leaf, signal) for name, layer in layers.items()}
        report.add(
            f"{title}, {shape}, T = {steps}, batch {batch}, delays up to {longest}",
            take_turns(tasks, arguments.turns),
        )
    report.write()


if __name__ == "__main__":
    main()
