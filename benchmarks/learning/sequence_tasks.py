"""What `prepare_` does to recurrent nets: four sequence tasks, trained from prepared and from unprepared nets.

    python benchmarks/learning/sequence_tasks.py [--task NAME ...] [--rates 3e-4 1e-3 5e-3] [--seeds 0 1 2 3 4]
                                        [--nets prepared unprepared] [--seconds 25] [--json FILE]

| task | a sequence | told |
| --- | --- | --- |
| `digit-rows` | an embedded digit of 34 x 34 pixels, one row of 34 analogue values per step | the digit |
| `digit-pixels` | the same as 12 x 12 pixels, one per step, 144 steps | the digit |
| `motifs` | three motifs of spikes on 40 channels, one after the other, in noise, 60 steps | their order, one of 6 |
| `adding` | values from 0 to 1 and a mask that marks two of them, 60 steps | the sum of the two |

Results are accuracies on the test set, and for `adding` the mean squared error (1/6 for the mean of all sums).

The net is `SpikingRNN(inputs, 96)` of `CubaLIF` neurons with learned time constants, `Linear` and `Integrator`; batches
of 50, Adam with `parameter_groups` at a constant rate, gradients clipped at 1. Classes are read from the mean potential
of the last quarter of the steps, the sum from the last potential. Each run trains for `--seconds` of processor time on
one thread, the preparation among them, and is tested at the end. Both nets of a seed begin with the same weights and
see the same batches; differences are paired by seed, and better is positive.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from folds import mean_and_error
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.data import EventDigits, ToFrames

NETS = ("prepared", "unprepared")
HIDDEN, BATCH = 96, 50


@dataclass
class Task:
    """Sequences `[T, samples, inputs]` with labels or targets `[samples]`, to train and to test."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    # 0 for the adding task, which has a number to tell.
    classes: int
    # Longest time constant of the hidden neurons, and that of the read-out.
    longest: float
    read_out: float = 10.0

    def loss(self, potentials: Tensor, wanted: Tensor) -> Tensor:
        if not self.classes:
            return nn.functional.mse_loss(potentials[-1, :, 0], wanted)
        return nn.functional.cross_entropy(self.scores(potentials), wanted)

    def scores(self, potentials: Tensor) -> Tensor:
        return potentials[-(len(potentials) // 4) :].mean(0)

    def result(self, net: nn.Module) -> float:
        """Accuracy, or mean squared error, on the test set."""
        x, wanted = self.test
        with torch.no_grad():
            potentials = torch.cat([net(part) for part in x.split(250, 1)], 1)
        if not self.classes:
            return float(self.loss(potentials, wanted))
        return float((self.scores(potentials).argmax(1) == wanted).float().mean())


def _digits(train: bool) -> tuple[Tensor, Tensor]:
    """Pictures `[samples, 34, 34]` of values from 0 to 2, and labels."""
    frames = ToFrames(time_steps=3, step_us=100_000, mode="count")
    data = EventDigits(train=train, transform=frames, progress=False)
    pictures = torch.stack([data[i][0].sum((0, 1)) for i in range(len(data))])
    return 2 * pictures / pictures.max(), torch.as_tensor(data.targets)


def digit_rows() -> Task:
    train, test = ((pictures.transpose(0, 1), labels) for pictures, labels in map(_digits, (True, False)))
    return Task(train, test, 10, longest=20.0)


def digit_pixels() -> Task:
    def sequences(train: bool) -> tuple[Tensor, Tensor]:
        pictures, labels = _digits(train)
        pixels = 2 * nn.functional.adaptive_avg_pool2d(pictures[:, None], 12)
        return pixels.flatten(1).t()[..., None].contiguous(), labels

    return Task(sequences(True), sequences(False), 10, longest=60.0)


def motifs() -> Task:
    generator = torch.Generator().manual_seed(0)
    channels, steps, length = 40, 60, 12
    patterns = (torch.rand(3, length, channels, generator=generator) < 0.06).float()
    orders = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])

    def sequences(samples: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(6, (samples,), generator=generator)
        x = (torch.rand(steps, samples, channels, generator=generator) < 0.02).float()
        starts = torch.randint(8, (samples, 3), generator=generator) + torch.arange(3) * 20
        for i in range(samples):
            for start, motif in zip(starts[i].tolist(), orders[labels[i]].tolist(), strict=True):
                # A quarter of a motif's spikes are lost.
                kept = patterns[motif] * (torch.rand(length, channels, generator=generator) < 0.75)
                x[start : start + length, i] = torch.maximum(x[start : start + length, i], kept)
        return x, labels

    return Task(sequences(1200), sequences(600), 6, longest=60.0)


def adding() -> Task:
    generator = torch.Generator().manual_seed(0)
    steps = 60

    def sequences(samples: int) -> tuple[Tensor, Tensor]:
        values = torch.rand(steps, samples, generator=generator)
        marks = torch.zeros(steps, samples)
        for half in (0, steps // 2):
            marks[
                half + torch.randint(steps // 2, (samples,), generator=generator), torch.arange(samples)
            ] = 1
        return torch.stack((values, marks), 2), (values * marks).sum(0)

    return Task(sequences(4000), sequences(500), 0, longest=60.0, read_out=20.0)


TASKS: dict[str, Callable[[], Task]] = {
    "digit-rows": digit_rows,
    "digit-pixels": digit_pixels,
    "motifs": motifs,
    "adding": adding,
}


def make_net(inputs: int, outputs: int, longest: float, read_out: float = 10.0) -> nn.Sequential:
    """Recurrent layer, linear map, leaky integrators; `longest` and `read_out` as in `Task`."""
    tau_m = neurons.log_uniform(3.0, longest, HIDDEN)
    neuron = neurons.CubaLIF(
        tau_m, tau_m / 3 + 1, surrogate=surrogate.Triangle(0.5, 0.4), learnable=("tau_m", "tau_s")
    )
    neurons.bound_(neuron, tau_m=(1.5, 200.0), tau_s=(1.0, 100.0))
    hidden = snnlib.SpikingRNN(inputs, HIDDEN, neuron=neuron)
    return nn.Sequential(hidden, nn.Linear(HIDDEN, outputs), neurons.Integrator(tau=read_out))


def run(task: Task, prepared: bool, rate: float, seed: int, seconds: float) -> dict[str, float]:
    """Result and number of updates of one training run of so many seconds of processor time."""
    torch.manual_seed(seed)
    x, wanted = task.train
    net = make_net(x.shape[2], task.classes or 1, task.longest, task.read_out)
    batches = torch.Generator().manual_seed(seed)
    start = time.process_time()
    if prepared:
        snnlib.prepare_(net, x[:, :64])
    optimizer = torch.optim.Adam(snnlib.parameter_groups(net, lr=rate))
    updates = 0
    while time.process_time() - start < seconds:
        for batch in torch.randperm(len(wanted), generator=batches).split(BATCH):
            loss = task.loss(net(x[:, batch]), wanted[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            updates += 1
            if time.process_time() - start >= seconds:
                break
    return {"result": task.result(net), "updates": updates}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-4, 1e-3, 5e-3])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--seconds", type=float, default=25.0, help="processor time of a run")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    snnlib.keep_freed_memory()
    rows = []
    for name in args.task:
        task = TASKS[name]()
        for rate in args.rates:
            results: dict[str, list[float]] = {}
            for net in args.nets:
                runs = [run(task, net == "prepared", rate, seed, args.seconds) for seed in args.seeds]
                results[net] = [one["result"] for one in runs]
                mean, error = mean_and_error(results[net])
                updates = sum(one["updates"] for one in runs) / len(runs)
                each = "  ".join(f"{value:.3f}" for value in results[net])
                print(
                    f"{name:13} {rate:7g}  {net:10}  {each}  mean {mean:.3f} +- {error:.3f}  {updates:.0f} updates",
                    flush=True,
                )
            row = {"task": name, "rate": rate, "seconds": args.seconds, "seeds": args.seeds, **results}
            if set(args.nets) == set(NETS):
                sign = 1 if task.classes else -1
                ahead = [sign * (p - u) for p, u in zip(*(results[net] for net in NETS), strict=True)]
                row["ahead"], row["error"] = mean_and_error(ahead)
                print(f"{name:13} {rate:7g}  prepared ahead by {row['ahead']:+.4f} +- {row['error']:.4f}")
            rows.append(row)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
