"""Keywords of speakers who were never heard: accuracy by folds of Speech Commands' test archive, beside other nets.

    python benchmarks/learning/keywords.py --root ARCHIVE [--nets ...] [--folds 0 1 2 3] [--seeds 0 1 2] [--threads 1]
    python benchmarks/learning/keywords.py --root DIGITS --digits --words ARCHIVE --nets "snnlib, words"

The archive is `speech_commands_test_set_v0.02`, a folder or zip, or a part of it by speaker. Each fold tests once the
nets that the other folds trained. `--digits` does the same with free spoken digits and their speakers. `LIF` and `ReLU`
are the recipe's net with other neurons. `snnlib, words` is the net of digits that begins with a net of the same seed,
which has learned the keywords of `--words ARCHIVE` up to 3,800 Hz, but for fold 3, and trains 12 epochs. `GRU` is the
reference: 128 units at steps of 10 ms that learn 25 epochs with shifts alone; `GRU, varied` learns as ours do. Fold 3
chose nets and settings, so the other folds are the unbiased ones. Time is that of the processor, in training.
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import Any

import numpy as np
import torch
from recorded import CNN, GRU, NEURONS, Way, available, mean_and_error, spiking, standardised
from torch import Tensor

from snnlib.app.kinds import KINDS
from snnlib.data import AugmentChannels
from snnlib.recipes import recipe

NETS = (
    "snnlib",
    "snnlib, chip",
    "snnlib, words",
    "LIF",
    "ReLU",
    "GRU",
    "GRU, varied",
    "CNN",
    "SpikingJelly",
    "snnTorch",
)
# The epochs of other nets for one of ours, so that all take the same processor time.
SHARES = {"LIF": 2.0, "CNN": 0.75, "SpikingJelly": 1.4, "snnTorch": 1.25, "snnlib, words": 0.48}
# Fold of the words whose speakers a net that begins with words has not heard.
UNHEARD = 3


def way_of(name: str, digits: bool, samples: Tensor, epochs: int | None) -> Way:
    """A net with its training."""
    config = recipe("spoken-digits" if digits else "keywords").config(root="")
    kind, classes = config.data.kind, 10 if digits else 12
    stack, vary, shift = kind.stack(config), kind.augment(config), AugmentChannels(shift=10)
    shape = (stack.window, 1, config.data.channels)
    epochs = epochs or (25 if name == "GRU" else round(SHARES.get(name, 1) * config.learning.epochs))

    def steps(x: Tensor, train: bool) -> Tensor:
        frames = x.transpose(0, 1)
        return stack(vary(frames) if train else frames).unsqueeze(-2).float()

    normal = standardised(samples)
    if name.startswith("GRU"):
        change = vary if "varied" in name else shift

        def at_each_frame(x: Tensor, train: bool) -> Tensor:
            frames = normal(x.transpose(0, 1))
            return change(frames) if train else frames

        return Way(GRU(config.data.channels, 128, classes), at_each_frame, epochs, 32, 3e-3)
    if name == "CNN":
        net = CNN(stack.window, 116, classes, (1, 4))
        return Way(net, lambda x, train: normal(steps(x, train)), epochs, 32, 3e-3)
    chip = name.endswith("chip")
    net = spiking(
        "keywords-chip" if chip else "spoken-digits" if digits else "keywords", shape, NEURONS.get(name)
    )
    return Way(net, steps, epochs, config.learning.batch_size, config.learning.lr)


def recordings(name: str, root: str, **changes: Any) -> tuple[Tensor, Tensor, np.ndarray]:
    """Frames of all recordings, their labels and folds."""
    config = recipe(name).config(root=root, fold=0, **changes)
    # Both sets of a fold are all recordings; which of them a fold has, its test set says.
    parts = [KINDS[name].open(config, split, False) for split in ("train", "test")]
    samples = torch.cat([torch.stack([part[i][0] for i in range(len(part))]) for part in parts])
    labels = torch.cat([part.dataset.targets for part in parts])
    speakers = np.concatenate([part.dataset.speakers for part in parts])
    names = sorted(set(speakers.tolist()))
    folds = [
        names.index(one) if name == "spoken-digits" else _fold(one, int(label))
        for one, label in zip(speakers, labels, strict=True)
    ]
    return samples, labels, np.array(folds)


@cache
def net_of_words(archive: str, seed: int) -> dict[str, Tensor]:
    """The weights of a net that has learned words."""
    samples, labels, fold = recordings("keywords", archive, high_hz=3800.0)
    rows = torch.from_numpy(np.flatnonzero(fold != UNHEARD))
    torch.manual_seed(seed)
    way = way_of("snnlib", False, samples[rows], None)
    way.learn(samples, labels, lambda: rows[torch.randperm(len(rows))])
    return way.net.state_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--digits", action="store_true", help="free spoken digits, folds are speakers")
    parser.add_argument("--words", help="archive of words that `snnlib, words` learns first")
    parser.add_argument("--nets", nargs="+", choices=NETS)
    parser.add_argument("--folds", nargs="+", type=int, default=[0, 1, 2, 3])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, help="other than the recipe's")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    nets = options.nets or [net for net in NETS if net != "snnlib, words" or options.words]
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    samples, labels, fold = recordings("spoken-digits" if options.digits else "keywords", options.root)
    for net in available(nets):
        found: dict[int, list[float]] = {}
        for test in options.folds:
            train, tested = (torch.from_numpy(np.flatnonzero(rows)) for rows in (fold != test, fold == test))
            for seed in options.seeds:
                words = net_of_words(options.words, seed) if net == "snnlib, words" else {}
                torch.manual_seed(seed)
                way = way_of(net, options.digits, samples[train], options.epochs)
                own = way.net.state_dict()
                begun = {name: value for name, value in words.items() if value.shape == own[name].shape}
                way.net.load_state_dict(own | begun)
                seconds = way.learn(samples, labels, lambda rows=train: rows[torch.randperm(len(rows))])
                right = float((way.answers(samples[tested]) == labels[tested]).float().mean())
                found.setdefault(test, []).append(right)
                print(
                    f"{net}, fold {test}, seed {seed}: {right:.1%} of {len(tested)}, {way.parameters:,} parameters, "
                    f"{seconds:.0f} processor seconds",
                    flush=True,
                )
        folds = ", ".join(f"{test}: {mean_and_error(values)}" for test, values in found.items())
        means = [sum(values) / len(values) for values in found.values()]
        print(f"{net}: mean of folds {mean_and_error(means)} % ({folds})", flush=True)


def _fold(speaker: str, label: int) -> int:
    """The fold of a speaker, or of silence, the first class, by its number."""
    return int(speaker, 16 if label else 10) % 5


if __name__ == "__main__":
    main()
