"""Final accuracy of converted nets beside the originals', on recordings, paired by seed.

Usage: python benchmarks/exchange/convert_accuracy.py [--seeds 3] [--epochs 3] [--time-steps 10] [NET ...]

Data and folds are those of `accuracy.py`: N-MNIST in `$SNNLIB_DATA`, else the embedded digits. Seed k tests on fold k.
Both nets start from the same weights and see the same batches in the same order; the loss is that of `convert.py`, the
optimiser Adam at 1e-3. Prints the accuracies after the last epoch, and the mean of the paired differences with its
standard error over seeds.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from convert import CASES, Case, Trainer, twin
from torch import Tensor

import snnlib
from snnlib.data import ToFrames
from snnlib.exchange.conversion.verify import run_original
from snnlib.structure.peers import clear_states

sys.path.append(str(Path(__file__).parents[1] / "learning"))
from folds import fold_of_samples, mean_and_error, recordings

FOLDS, BATCH = 5, 40
NETS = ("snntorch conv", "spikingjelly csnn")


def all_frames(steps: int) -> tuple[str, Tensor, Tensor]:
    """Name of the data, frames `[samples, T, 2, 34, 34]` and labels."""
    name, samples = recordings()
    # Of 300 ms.
    to_frames = ToFrames(time_steps=steps, step_us=300_000 // steps)
    return (
        name,
        torch.stack([torch.as_tensor(to_frames(events)) for events, _ in samples]),
        torch.tensor([label for _, label in samples]),
    )


def runs_of(case: Case, x: Tensor, seed: int) -> list[tuple[Any, Callable[[Tensor], Any]]]:
    """The original and the converted net, each with its call over a sequence."""
    net, other = twin(case, seed), twin(case, seed)
    converted = snnlib.convert(other, x, loop="outside" if case.outside else "inside", quiet=True)

    def original(x: Tensor) -> Any:
        clear_states(net)
        return run_original(net, x, case.outside)

    return [(net, original), (converted, converted)]


def accuracy(run: Callable[[Tensor], Any], frames: Tensor, labels: Tensor) -> float:
    """Share of samples whose class has the largest mean output over time."""
    right = 0
    with torch.no_grad():
        for x, y in zip(frames.split(BATCH), labels.split(BATCH), strict=True):
            output = run(x.transpose(0, 1).contiguous())
            last = output[-1] if isinstance(output, tuple) else output
            right += int((last.mean(0).argmax(1) == y).sum())
    return right / len(labels)


def compared(
    case: Case, frames: Tensor, labels: Tensor, test: Tensor, seed: int, epochs: int
) -> tuple[float, float]:
    """Accuracies of the original and of the converted net, trained alike."""
    size = case.x().shape[-1]
    # The window of the sensor that the net was made for.
    border = (frames.shape[-1] - size) // 2
    frames = frames[..., border : border + size, border : border + size]
    found = []
    for number in range(2):
        net, run = runs_of(case, frames[:2].transpose(0, 1).contiguous(), seed)[number]
        trainer, order = Trainer(net, run), torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        net.train()
        train = (~test).nonzero().flatten()
        for _ in range(epochs):
            for batch in train[torch.randperm(len(train), generator=order)].split(BATCH):
                trainer.step(frames[batch].transpose(0, 1).contiguous(), labels[batch])
        net.eval()
        found.append(accuracy(run, frames[test], labels[test]))
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", choices=[*NETS, []])
    parser.add_argument("--seeds", type=int, default=3, choices=range(1, FOLDS + 1))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--time-steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    name, frames, labels = all_frames(arguments.time_steps)
    fold = torch.tensor(fold_of_samples(labels.tolist(), FOLDS))
    print(f"{name}: {len(labels)} samples, {arguments.epochs} epochs, {arguments.time_steps} time steps")
    for net in arguments.nets or NETS:
        try:
            importlib.import_module(CASES[net].library)
        except ImportError:
            print(f"{net}: {CASES[net].library} is not installed")
            continue
        differences = []
        for seed in range(arguments.seeds):
            theirs, ours = compared(CASES[net], frames, labels, fold == seed, seed, arguments.epochs)
            differences.append(100 * (ours - theirs))
            print(f"{net}, seed {seed}: original {theirs:.2%}, converted {ours:.2%}", flush=True)
        mean, error = mean_and_error(differences)
        print(f"{net}: converted {mean:+.2f} +- {error:.2f} points")


if __name__ == "__main__":
    main()
