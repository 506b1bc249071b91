"""Electrocardiograms labelled at every step: a recurrent net of spiking neurons names the wave it is in.

    python ecg.py --root FOLDER [--bidirectional] [--neuron AdLIF|CubaLIF] [--hidden 128] [--epochs 40] [--seed 0]

The folder holds QTDB_train.mat (`snnlib.data.ECG` says where to get it). Without `--root` the net learns from a few
made-up rhythms, to show that it runs.
"""

import argparse
import time

import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate

BUMP = surrogate.Triangle(width=0.5, height=0.4)


def made_up(sequences: int, seed: int) -> tuple[Tensor, Tensor]:
    """Spikes `[S, 200, 4]` and labels `[S, 200]`: bursts in changing channels, and the channel of the last burst."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (sequences, 10), generator=generator).repeat_interleave(20, 1)
    start = (torch.arange(200) % 20 < 4).float()
    spikes = nn.functional.one_hot(labels, 4) * start[:, None]
    noise = (torch.rand(spikes.shape, generator=generator) < 0.03).float()
    labels[:, :4] = -1
    return (spikes + noise).clamp(max=1), labels


def recorded(root: str, apart: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The training and the validation set, and the test set, of the recordings on disk."""
    sets = {split: snnlib.data.ECG(root, split, apart=apart) for split in ("train", "val", "test")}
    both = [
        torch.cat((getattr(sets["train"], name), getattr(sets["val"], name))) for name in ("spikes", "labels")
    ]
    return (both[0].float(), both[1]), (sets["test"].spikes.float(), sets["test"].labels)


class Net(nn.Module):
    """A recurrent layer, a linear map of its spikes, and a leaky integrator per class with an output at every step."""

    # A step of it depends on others through its layers alone: it streams, and takes padded batches.
    mixes_time = False

    def __init__(self, neuron: str, hidden: int, classes: int, bidirectional: bool) -> None:
        super().__init__()
        rnn = snnlib.SpikingRNN(4, hidden, neuron=make_neuron(neuron, hidden))
        self.rnn = snnlib.Bidirectional(rnn) if bidirectional else rnn
        readout = neurons.Integrator(tau=5.0, learnable=("tau",), channels=classes)
        self.readout = nn.Sequential(
            nn.Linear(hidden * (1 + bidirectional), classes), neurons.bound_(readout, tau=(1.0, 100.0))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[T, N, classes]`."""
        return self.readout(self.rnn(x))


def make_neuron(model: str, hidden: int) -> neurons.Neuron:
    """Neurons with time constants of their own, spread over a decade at the start and learned within bounds."""
    if model == "CubaLIF":
        taus = {
            "tau_m": neurons.log_uniform(5.0, 50.0, hidden),
            "tau_s": neurons.log_uniform(2.0, 20.0, hidden),
        }
        neuron = neurons.CubaLIF(**taus, reset="subtract", surrogate=BUMP, learnable=tuple(taus))
        return neurons.bound_(neuron, tau_m=(2.0, 200.0), tau_s=(1.0, 100.0))
    taus = {
        "tau_m": neurons.log_uniform(5.0, 50.0, hidden),
        "tau_a": neurons.log_uniform(50.0, 300.0, hidden),
    }
    couplings = {"a": torch.rand(hidden), "b": 2 * torch.rand(hidden)}
    learnable = (*taus, *couplings)
    neuron = neurons.AdLIF(**taus, **couplings, rho=60.0, surrogate=BUMP, learnable=learnable)
    bounds = {"tau_m": (1.5, 300.0), "tau_a": (10.0, 1000.0), "a": (0.01, 1.0), "b": (0.01, 2.0)}
    return neurons.bound_(neuron, **bounds)


def train(net: Net, data: tuple[Tensor, Tensor], epochs: int, lr: float, batch: int, penalty: float) -> None:
    spikes, labels = data
    # Rates that a net learns from: of the whole net, so that its recurrent layer counts as a hidden one.
    snnlib.prepare_(net.train(), spikes[:batch].transpose(0, 1), 0.08)
    optimiser = torch.optim.Adam(snnlib.parameter_groups(net, lr))
    rates = [group["lr"] for group in optimiser.param_groups]
    steps = epochs * -(-len(spikes) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, steps, pct_start=0.15)
    for epoch in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(spikes)).split(batch):
            fired = net.rnn(spikes[chosen].transpose(0, 1))  # [T, N, H]
            scores = net.readout(fired)  # [T, N, classes]
            loss = nn.functional.cross_entropy(
                scores.flatten(0, 1), labels[chosen].t().flatten(), ignore_index=-1
            )
            optimiser.zero_grad()
            (loss + penalty * fired.mean()).backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if norm.isfinite():
                optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(chosen) / len(spikes)
        print(f"epoch {epoch + 1}: loss {total:.3f}", flush=True)


@torch.no_grad()
def evaluate(net: Net, data: tuple[Tensor, Tensor]) -> tuple[float, float, float]:
    """Share of the labelled steps that are right, and spikes and additions per step, by input events and by spikes."""
    spikes, labels = data
    fired = net.rnn(spikes.transpose(0, 1))
    scores = net.readout(fired)
    right = scores.argmax(2).t() == labels
    per_step, events = float(fired.sum(2).mean()), float(spikes.sum(2).mean())
    directions = 2 if isinstance(net.rnn, snnlib.Bidirectional) else 1
    own, classes = fired.shape[2] // directions, scores.shape[2]
    additions = events * fired.shape[2] + per_step * (own + classes)
    return float(right[labels >= 0].float().mean()), per_step, additions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", help="folder of QTDB_train.mat; made-up rhythms without")
    parser.add_argument("--neuron", choices=("AdLIF", "CubaLIF"), default="AdLIF")
    parser.add_argument(
        "--apart", choices=("blocks", "sequences"), default="blocks", help="what sets do not share"
    )
    parser.add_argument("--bidirectional", action="store_true")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--lr", type=float, default=2e-2)
    parser.add_argument(
        "--spike-penalty", type=float, default=0.0, help="weight of the mean rate in the loss"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    if options.root:
        train_set, test_set = recorded(options.root, options.apart)
        hidden = options.hidden or (96 if options.bidirectional else 128)
        epochs, classes = options.epochs or 40, len(snnlib.data.ECG.classes)
    else:
        train_set, test_set = made_up(64, seed=1), made_up(32, seed=2)
        hidden, epochs, classes = options.hidden or 32, options.epochs or 6, 4
    batch = options.batch or (16 if options.root else 8)
    net = Net(options.neuron, hidden, classes, options.bidirectional)
    began = time.perf_counter()
    train(net, train_set, epochs, options.lr, batch, options.spike_penalty)
    seconds = time.perf_counter() - began
    accuracy, per_step, additions = evaluate(net, test_set)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    print(
        f"{parameters} parameters, {per_step:.1f} spikes and {additions:.0f} additions per step, {seconds:.0f} s"
    )
    print(f"test accuracy {accuracy:.2%} of the labelled steps")
    if not options.root and options.epochs is None:
        assert accuracy >= 0.8, "the net did not learn"


if __name__ == "__main__":
    main()
