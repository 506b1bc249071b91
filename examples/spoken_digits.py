"""Spoken digits of a voice that was never heard in training: recurrent neurons and delays against a feed-forward net.

    python spoken_digits.py --root FOLDER [--nets recurrent delays feed-forward wide] [--test SPEAKER ...] [--seed 0]

The folder holds recordings.zip (`snnlib.data.SpokenDigits` says where to get it). A software cochlea makes spikes of
each recording; every speaker tests in turn the nets that the other speakers trained. `--validate` trains without the
test speaker and tests on the last of the others: settings are chosen by that. Without `--root` the nets learn two
made-up sounds, rising and falling, to show that they run.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.data import Cochlea, Events, LengthBatches, SpokenDigits, ToChannels, collate_ragged

CHANNELS, STEP_US, LONGEST_DELAY = 70, 10_000, 20
EPOCHS = 15
NETS = ("recurrent", "delays", "feed-forward", "wide")
# Recordings of one speaker: events and digits.
Voice = list[tuple[Events, int]]


def made_up(cochlea: Cochlea) -> dict[str, Voice]:
    """Three voices of different pitch, each with 12 rising and 12 falling tones in noise."""
    generator = torch.Generator().manual_seed(0)
    voices: dict[str, Voice] = {}
    for number, name in enumerate(("high", "low", "middle")):
        for sample in range(24):
            samples = int(torch.randint(1600, 3200, (1,), generator=generator))
            t = torch.linspace(0, 1, samples)
            low = 400 + 100 * number
            pitch = low * 4 ** (t if sample % 2 else 1 - t)
            tone = torch.sin(2 * math.pi * pitch.cumsum(0) / cochlea.sample_rate)
            sound = tone + 0.05 * torch.randn(samples, generator=generator)
            voices.setdefault(name, []).append((cochlea(sound), sample % 2))
    return voices


def recorded(root: str, cochlea: Cochlea) -> dict[str, Voice]:
    """Events of all recordings by speaker."""
    voices: dict[str, Voice] = {}
    for split in ("train", "val", "test"):
        digits = SpokenDigits(root, split, cochlea)
        for i, speaker in enumerate(digits.speakers):
            voices.setdefault(speaker, []).append(digits[i])
    return dict(sorted(voices.items()))


class Net(nn.Module):
    """A layer of spiking neurons, a linear map of its spikes, and a leaky integrator per class."""

    # A step of it depends on others through its layers alone: it streams, and takes padded batches.
    mixes_time = False

    def __init__(self, kind: str, hidden: int, classes: int) -> None:
        super().__init__()
        if kind == "wide":
            # As many weights as the recurrent net.
            hidden = (CHANNELS + classes + hidden) * hidden // (CHANNELS + classes)
        taus = {
            "tau_m": neurons.log_uniform(3.0, 30.0, hidden),
            "tau_s": neurons.log_uniform(1.0, 10.0, hidden),
        }
        bump = surrogate.Triangle(width=0.5, height=0.4)
        neuron = neurons.CubaLIF(**taus, reset="subtract", surrogate=bump, learnable=tuple(taus))
        neurons.bound_(neuron, tau_m=(1.5, 100.0), tau_s=(1.0, 50.0))
        if kind == "recurrent":
            self.hidden: nn.Module = snnlib.SpikingRNN(CHANNELS, hidden, neuron=neuron)
        else:
            delays = snnlib.Delays(LONGEST_DELAY, per="connection") if kind == "delays" else None
            self.hidden = snnlib.SpikingLinear(CHANNELS, hidden, neuron=neuron, delays=delays)
        integrator = neurons.Integrator(tau=20.0, learnable=("tau",), channels=classes)
        readout = neurons.bound_(integrator, tau=(1.0, 200.0))
        self.readout = nn.Sequential(snnlib.nn.SpikeDropout(0.2), nn.Linear(hidden, classes), readout)

    def forward(self, x: Tensor) -> Tensor:
        """Potentials `[T, N, classes]`."""
        return self.readout(self.hidden(x))

    def start(self, spikes: Tensor) -> None:
        """Set the firing rate to one that a net learns from."""
        snnlib.prepare_(self, spikes, 0.08)


def scores_of(net: Net, spikes: Tensor, lengths: Tensor) -> Tensor:
    """Mean potential over each recording's own steps `[N, classes]`."""
    return snnlib.run_ragged(net, spikes, lengths).sum(0) / lengths.unsqueeze(1)


def batch_of(voice: Voice, rng: np.random.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, digits and lengths; with `rng` spoken up to a fifth faster or slower, and up to four channels higher."""
    samples = []
    for spoken, digit in voice:
        events, step_us = spoken, STEP_US
        if rng is not None:
            step_us = int(STEP_US * rng.uniform(0.8, 1.25))
            moved = spoken.copy()
            moved["x"] += rng.integers(-4, 5)
            events = moved[(moved["x"] >= 0) & (moved["x"] < CHANNELS)]
        samples.append((ToChannels(step_us=step_us, channels=CHANNELS)(events), digit))
    spikes, digits, lengths = collate_ragged(samples)
    # A delay needs a sequence that is longer; padding counts for nothing.
    return (
        nn.functional.pad(spikes, (0, 0, 0, 0, 0, max(LONGEST_DELAY + 1 - len(spikes), 0))),
        digits,
        lengths,
    )


def train(net: Net, voice: Voice, epochs: int, lr: float, batch: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = [1 + int(events["t"].max(initial=0)) // STEP_US for events, _ in voice]
    batches = LengthBatches(lengths, batch, seed=seed)
    # On recordings of like lengths, with little of their padding.
    spikes, _, own = batch_of([voice[i] for i in next(iter(batches))], None)
    net.train().start(spikes[: max(int(own.min()), LONGEST_DELAY + 1)])
    optimiser = torch.optim.AdamW(snnlib.parameter_groups(net, lr, weight_decay=1e-2))
    rates = [group["lr"] for group in optimiser.param_groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, epochs * len(batches), pct_start=0.15)
    for _ in range(epochs):
        for chosen in batches:
            spikes, digits, own = batch_of([voice[i] for i in chosen], rng)
            loss = nn.functional.cross_entropy(scores_of(net, spikes, own), digits)
            optimiser.zero_grad()
            loss.backward()
            if nn.utils.clip_grad_norm_(net.parameters(), 1.0).isfinite():
                optimiser.step()
            schedule.step()


@torch.no_grad()
def right(net: Net, voice: Voice) -> Tensor:
    """Which recordings are understood, bool `[S]`."""
    net.eval()
    parts = [batch_of(voice[first : first + 50], None) for first in range(0, len(voice), 50)]
    return torch.cat([scores_of(net, x, own).argmax(1) == digits for x, digits, own in parts])


def compare(found: dict[str, dict[str, Tensor]]) -> None:
    """Accuracy of each net by speaker, and its lead over each other with the paired error over recordings."""
    for kind, by_voice in found.items():
        parts = ", ".join(f"{name} {values.float().mean():.1%}" for name, values in by_voice.items())
        mean = torch.stack([values.float().mean() for values in by_voice.values()]).mean()
        print(f"{kind}: mean {mean:.1%} ({parts})")
    kinds = list(found)
    for i, kind in enumerate(kinds):
        for other in kinds[i + 1 :]:
            lead = torch.cat([found[kind][name].float() - found[other][name].float() for name in found[kind]])
            error = lead.std() / math.sqrt(len(lead))
            print(
                f"{kind} - {other}: {100 * lead.mean():+.1f} +- {100 * error:.1f} points, paired by recording"
            )


def run(
    voices: dict[str, Voice],
    options: argparse.Namespace,
    names: Sequence[str],
    make: Callable[[str, int, int], Net] = Net,
) -> dict[str, dict[str, Tensor]]:
    """Which recordings each net understands, by net and tested speaker."""
    found: dict[str, dict[str, Tensor]] = {kind: {} for kind in options.nets}
    classes = 1 + max(digit for voice in voices.values() for _, digit in voice)
    for held_out in names:
        others = [name for name in voices if name != held_out]
        tested = others.pop() if options.validate else held_out
        voice = [sample for name in others for sample in voices[name]]
        for kind in options.nets:
            torch.manual_seed(options.seed)
            net = make(kind, options.hidden, classes)
            began = time.process_time()
            train(net, voice, options.epochs, options.lr, options.batch, options.seed)
            seconds = time.process_time() - began
            found[kind][tested] = right(net, voices[tested])
            parameters = sum(parameter.numel() for parameter in net.parameters())
            own = right(net, voice).float().mean()
            print(
                f"{kind}, trained on {', '.join(others)}: {tested} {found[kind][tested].float().mean():.1%}, "
                f"own voices {own:.1%} ({parameters} parameters, {seconds:.1f} processor seconds)",
                flush=True,
            )
    return found


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", help="folder of recordings.zip; made-up sounds without")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=NETS[:3])
    parser.add_argument("--test", nargs="+", help="speakers that test; default all in turn")
    parser.add_argument("--validate", action="store_true", help="test on a training speaker instead")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    options = arguments().parse_args()
    cochlea = Cochlea(CHANNELS, compression="log")
    began = time.perf_counter()
    voices = recorded(options.root, cochlea) if options.root else made_up(cochlea)
    count = sum(map(len, voices.values()))
    print(f"{count} recordings of {', '.join(voices)} to spikes: {time.perf_counter() - began:.1f} s")
    if not options.root:
        options.hidden, options.batch = min(options.hidden, 24), 16
    options.epochs = options.epochs or (EPOCHS if options.root else 4)
    names = options.test or (list(voices) if options.root else ["middle"])
    found = run(voices, options, names)
    compare(found)
    if not options.root:
        accuracy = float(found["recurrent"]["middle"].float().mean()) if "recurrent" in found else 1.0
        assert accuracy >= 0.8, "the net did not learn"


if __name__ == "__main__":
    main()
