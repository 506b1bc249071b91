"""Yin-Yang with exact spike times: `CubaLIF(gradient="event")` in all layers, 30 hidden neurons, one spike each.

    python benchmarks/learning/yin_yang.py [--delays none synaptic] [--seeds 0 1 2] [--updates 3000] [--json FILE]
        [--save DIR]

Trained on the published 5000 points; the update that is kept is the best one on the 1000 validation points. Tested
once, on the published test set and on fresh points by another seed. Times are in synaptic time constants: inputs at
0.15 + 1.85 x, a membrane of 2, an output time is read to a fraction of a step. Weights belong to continuous time, so a
net that is trained in steps of `--dt` is tested in steps of `--test-dt`.

The loss is the cross-entropy of output times over 0.1 time constants. A silent neuron has no gradient: an output neuron
that is silent for more than a hundredth of a batch gets larger weights, and a hidden one from three tenths of it, as in
the authors' training.

Anchors (Göltz et al. 2021 and 2024, 300 epochs in continuous time): 96.7 % with weights, 98.2 % with synaptic delays.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import snnlib
from snnlib import encoding, losses, readout
from snnlib.data import YinYang
from snnlib.neurons import CubaLIF

FIRST, SPAN, END = 0.15, 1.85, 3.0
# Step of training.
DT = 0.02
HIDDEN, CLASSES = 30, 3
BATCH, RATE, CLIP = 150, 0.01, 0.3
# Scale of the softmax over times, and of the cost of a late label, in time constants.
SHARPNESS, LATENESS = 0.1, 0.005
# Share of a batch for which a hidden or an output neuron may be silent, and what its weights get then.
SILENT, RAISE = (0.3, 0.01), 0.002
# Means and spread of the first weights, and longest delay at the start and at all.
MEANS, SPREAD, DELAY, LONGEST = (1.5, 0.5), 0.8, 0.3, 1.0
FRESH_SEED, FRESH = 1234, 20_000


class Net(nn.Module):
    """Two layers in steps of `dt`, as first spike times."""

    def __init__(self, dt: float, delayed: bool) -> None:
        super().__init__()
        self.dt, self.steps = dt, round(END / dt)
        # Share of the last batch for which each hidden neuron was silent.
        self.hidden_silent = torch.zeros(HIDDEN)
        self.hidden = self._layer(4, HIDDEN, MEANS[0], delayed)
        self.output = self._layer(HIDDEN, CLASSES, MEANS[1], delayed)

    def _layer(self, inputs: int, outputs: int, mean: float, delayed: bool) -> snnlib.SpikingLinear:
        neuron = CubaLIF.from_continuous(
            2.0,
            1.0,
            self.dt,
            gradient="event",
            input_gradient="time",
            refractory=torch.inf,
            grad_clamp=20.0,
        )
        first = torch.rand(outputs, inputs) * DELAY / self.dt
        late = snnlib.Delays(round(LONGEST / self.dt), "connection", initial=first) if delayed else None
        layer = snnlib.SpikingLinear(inputs, outputs, neuron=neuron, delays=late)
        nn.init.normal_(layer.weight, mean, SPREAD)
        return layer

    def forward(self, points: Tensor) -> Tensor:
        """Times of the output neurons `[N, 3]`, `END` for those that are silent."""
        x = encoding.at_times(FIRST + SPAN * points, self.steps, dt=self.dt, mode="shared")
        spikes = self.hidden(x)
        self.hidden_silent = (spikes.detach().amax(0) == 0).float().mean(0)
        with torch.no_grad():
            current = self.output.input_current(spikes, self.output.effective_weight)
            potential = self.output.free_potential(current)
        return readout.first_spike_time(self.output(spikes), potential=potential) * self.dt

    def in_steps_of(self, dt: float) -> Net:
        """Returns the net in steps of another length."""
        delayed = self.hidden.delays is not None
        other = Net(dt, delayed)
        with torch.no_grad():
            for own, its in ((self.hidden, other.hidden), (self.output, other.output)):
                its.weight.copy_(own.weight)
                if delayed:
                    its.delays.steps.copy_(own.delays.steps * self.dt / dt)
        return other


@torch.no_grad()
def accuracy(net: Net, data: YinYang) -> float:
    """Share of the points whose label fires first."""
    right = [
        (net(points).argmin(1) == labels).float()
        for points, labels in zip(data.samples.split(1000), data.targets.split(1000), strict=True)
    ]
    return float(torch.cat(right).mean())


def groups_of(net: Net, delay_rate: float = 0.0) -> list[dict[str, Any]]:
    """Parameters for an optimiser: weights, and delays where there are any."""
    groups: list[dict[str, Any]] = [{"params": [net.hidden.weight, net.output.weight], "lr": RATE}]
    if net.hidden.delays is not None:
        delays = [net.hidden.delays.steps, net.output.delays.steps]
        groups.append({"params": delays, "lr": delay_rate / net.dt})
    return groups


def loss_of(times: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of output times, and a small cost of a late label."""
    loss = losses.first_spike_loss(times, labels, scale=1 / SHARPNESS)
    late = times.gather(1, labels[:, None])
    return loss + LATENESS * (late.exp() - 1).mean()


@torch.no_grad()
def wake_(net: Net, times: Tensor) -> None:
    """Larger weights for neurons that are silent for more than a share of the batch."""
    silent = (times >= END - net.dt / 2).float().mean(0)
    net.hidden.weight[net.hidden_silent > SILENT[0]] += RAISE
    net.output.weight[silent > SILENT[1]] += RAISE


def train(net: Net, data: YinYang, valid: YinYang, updates: int, delay_rate: float) -> None:
    """Trains the net and leaves it as it was best on the validation points."""
    groups = groups_of(net, delay_rate)
    optimizer = torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    best, kept, done = -1.0, net.state_dict(), 0
    while done < updates:
        for rows in torch.randperm(len(data)).split(BATCH):
            labels = data.targets[rows]
            times = net(data.samples[rows])
            loss = loss_of(times, labels)
            optimizer.zero_grad()
            loss.backward()
            for group in groups:
                nn.utils.clip_grad_norm_(group["params"], CLIP)
            optimizer.step()
            schedule.step()
            wake_(net, times)
            done += 1
            if done % 100 == 0 or done == updates:
                share = accuracy(net, valid)
                print(f"  update {done}: loss {float(loss.detach()):.3f}, validation {share:.4f}", flush=True)
                if share > best:
                    best, kept = share, {name: value.clone() for name, value in net.state_dict().items()}
            if done == updates:
                break
    net.load_state_dict(kept)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--delays", nargs="+", default=["none", "synaptic"], choices=("none", "synaptic"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--dt", type=float, default=DT)
    parser.add_argument("--test-dt", type=float, default=0.005)
    parser.add_argument("--delay-rate", type=float, default=0.01, help="of delays, in time constants")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--save", type=Path, help="folder for the weights of each net, in steps of --test-dt")
    options = parser.parse_args()
    data, valid, test = YinYang("train"), YinYang("val"), YinYang("test")
    fresh = YinYang(size=FRESH, seed=FRESH_SEED)
    found = []
    for kind in options.delays:
        for seed in options.seeds:
            torch.manual_seed(seed)
            net = Net(options.dt, kind == "synaptic")
            wall, processor = time.perf_counter(), time.process_time()
            train(net, data, valid, options.updates, options.delay_rate)
            took = time.perf_counter() - wall, time.process_time() - processor
            finer = net.in_steps_of(options.test_dt)
            if options.save:
                options.save.mkdir(parents=True, exist_ok=True)
                torch.save(finer.state_dict(), options.save / f"{kind}-{seed}.pt")
            shares = {name: accuracy(finer, points) for name, points in (("test", test), ("fresh", fresh))}
            row = {"delays": kind, "seed": seed, **shares, "seconds": took[0], "processor_seconds": took[1]}
            print(
                f"{kind}, seed {seed}: test {shares['test']:.4f}, {FRESH} fresh points {shares['fresh']:.4f}, "
                f"{took[0]:.0f} s ({took[1]:.0f} s of processor time)",
                flush=True,
            )
            found.append(row)
        shares = torch.tensor([row["fresh"] for row in found if row["delays"] == kind], dtype=torch.float64)
        error = float(shares.std() / math.sqrt(len(shares))) if len(shares) > 1 else math.nan
        print(f"{kind}: fresh points {float(shares.mean()):.4f} +- {error:.4f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
