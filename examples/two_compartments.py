"""A neuron from a paper, as one step: soma and dendrite that carry memory over long sequences, beside LIF.

    python two_compartments.py [--root FOLDER] [--hidden 64] [--epochs 3] [--seeds 1]

TC-LIF (Zhang et al., "TC-LIF: a two-compartment spiking neuron model for long-term sequential modelling", AAAI 2024) is
in no library. Its dendrite and soma integrate without a leak and pull at each other, by factors that learn. A CPU runs
the class below as a program, without a compiler. The nets name digits at every step from 5 ms of events of the embedded
recordings; with the folder of QTDB_train.mat (`snnlib.data.ECG` says where to get it) the wave of an electrocardiogram.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import ecg
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import snnlib
from snnlib import neurons, surrogate

BUMP = surrogate.Triangle(width=0.5, height=0.4)


class TCLIF(neurons.Neuron):
    """Two-compartment neuron: dendrite d and soma v without a leak.

    With the last spike s, `d = d + beta_d v + x - gamma s` and `v = v + beta_v d - threshold s`, where
    `beta_d = -sigmoid(c_d)` and `beta_v = sigmoid(c_v)`: the soma inhibits the dendrite, which excites the soma.
    """

    state_names = ("d", "v", "s")

    def __init__(self, c_d: Any = 0.0, c_v: Any = 0.0, gamma: float = 0.5, **options: Any) -> None:
        super().__init__({"c_d": c_d, "c_v": c_v, "gamma": gamma, "threshold": 1.0}, **options)

    def step(self, state: Any, current: Tensor, params: Any) -> Any:
        """Runs a time step."""
        (d, v, s), p = state, params
        d = d - torch.sigmoid(p["c_d"]) * v + current - p["gamma"] * s.detach()
        v = v + torch.sigmoid(p["c_v"]) * d - p["threshold"] * s.detach()
        spikes = surrogate.spike(v - p["threshold"], p["threshold"], BUMP)
        return spikes, (d, v, spikes)


NEURONS: dict[str, Callable[[int], neurons.Neuron]] = {
    "LIF": lambda count: neurons.LIF(
        tau=neurons.log_uniform(2.0, 50.0, count), learnable=("tau",), surrogate=BUMP, reset="subtract"
    ),
    "TC-LIF": lambda count: TCLIF(torch.zeros(count), torch.zeros(count), learnable=("c_d", "c_v")),
}


class Net(nn.Module):
    """A recurrent layer, and a leaky integrator per class with an output at every step."""

    def __init__(self, neuron: neurons.Neuron, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.rnn = snnlib.SpikingRNN(inputs, hidden, neuron=neuron)
        self.readout = nn.Sequential(nn.Linear(hidden, classes), neurons.Integrator(tau=10.0))

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[T, N, classes]`."""
        return self.readout(self.rnn(x))


def digits(train: bool, count: int) -> tuple[Tensor, Tensor]:
    """Spikes `[S, 60, 128]` of events in squares of 4 x 4 pixels, and the digit at every step but the first 20."""
    to_frames = snnlib.data.ToFrames(time_steps=60, step_us=5_000)
    recordings = snnlib.data.EventDigits(train=train, transform=to_frames)
    loader = DataLoader(recordings, batch_size=count, shuffle=train, collate_fn=snnlib.data.stack_time_first)
    frames, labels = next(iter(loader))
    squares = nn.functional.max_pool2d(frames.flatten(0, 1)[..., 1:33, 1:33].float(), 4)
    spikes = squares.clamp(max=1).reshape(60, len(labels), -1).transpose(0, 1)
    steps = labels[:, None].repeat(1, 60)
    steps[:, :20] = -1
    return spikes.contiguous(), steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", help="folder of QTDB_train.mat; embedded digits without")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.root:
        train_set, test_set = ecg.recorded(options.root, "blocks")
        classes = len(snnlib.data.ECG.classes)
    else:
        train_set, test_set, classes = digits(True, 600), digits(False, 300), 10
    inputs, found = train_set[0].shape[2], {}
    for name, make in NEURONS.items():
        accuracies, seconds = [], 0.0
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            net = Net(make(options.hidden), inputs, options.hidden, classes)
            began = time.process_time()
            ecg.train(net, train_set, options.epochs, 2e-2, 16, 0.0)
            seconds += time.process_time() - began
            accuracies.append(100 * ecg.evaluate(net, test_set)[0])
        plan = str(snnlib.explain_dispatch(net.rnn, train_set[0][:2].transpose(0, 1))).splitlines()[1]
        print(f"{name}: {plan.strip()}")
        several = len(accuracies) > 1
        error = f" +- {statistics.stdev(accuracies) / len(accuracies) ** 0.5:.1f}" if several else ""
        found[name] = statistics.mean(accuracies)
        print(
            f"{name}: {found[name]:.1f}{error} % of the labelled steps of the test set are right, "
            f"{seconds / options.seeds / options.epochs:.1f} s of processor time for an epoch"
        )
    assert options.root or min(found.values()) > 50, "a net did not learn"


if __name__ == "__main__":
    main()
