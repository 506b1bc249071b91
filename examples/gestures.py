"""Your own recordings, your own loop: three gestures of a hand in front of an event camera, learned in six epochs.

    python gestures.py [--loss counts|tet] [--lr 1e-3] [--seed 0]

Nothing but `prepare_` is special here: a Dataset of event arrays, a net, Adam at its usual rate, cross-entropy of
counts.
"""

import argparse

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import snnlib
from snnlib.data import ToFrames, as_events, stack_time_first

GESTURES = ("swipe", "lift", "circle")
SIZE, DURATION_US = 32, 300_000


def record(gesture: int, rng: np.random.Generator) -> np.ndarray:
    """Events of a round hand, 6 pixels wide, on its way: ON in front, OFF behind, and some noise."""
    t = np.sort(rng.integers(0, DURATION_US, 400))
    phase = 2 * np.pi * (t / DURATION_US + rng.random())
    there = rng.uniform(6, 9) * (2 * t / DURATION_US - 1) * rng.choice([-1, 1])
    way_x, way_y = ((there, 0 * there), (0 * there, there), (6 * np.cos(phase), 6 * np.sin(phase)))[gesture]
    angle = rng.uniform(0, 2 * np.pi, t.size)
    x, y = way_x + 3 * np.cos(angle), way_y + 3 * np.sin(angle)
    ahead = np.cos(angle) * np.gradient(way_x) + np.sin(angle) * np.gradient(way_y)
    centre = rng.uniform(12, 20, 2)
    pixels = [
        np.clip(np.round(c + way), 0, SIZE - 1).astype(int) for c, way in zip(centre, (x, y), strict=True)
    ]
    noise = rng.random(t.size) < 0.1
    for axis in pixels:
        axis[noise] = rng.integers(0, SIZE, noise.sum())
    return as_events(t, *pixels, (ahead > 0).astype(int))


class Gestures(Dataset[tuple[torch.Tensor, int]]):
    """Recordings in memory; `self.events[i]` could as well be read from a file."""

    def __init__(self, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.labels = [i % len(GESTURES) for i in range(count)]
        self.events = [record(label, rng) for label in self.labels]
        self.to_frames = ToFrames(time_steps=30, step_us=DURATION_US // 30, sensor_size=(SIZE, SIZE))

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.to_frames(self.events[index]), self.labels[index]


def train(loss: str = "counts", lr: float = 1e-3, seed: int = 0, epochs: int = 6) -> float:
    """Test accuracy after the last epoch."""
    torch.manual_seed(seed)
    loader = DataLoader(Gestures(300, seed=1), batch_size=25, shuffle=True, collate_fn=stack_time_first)
    last = snnlib.SRMLinear(64, 3) if loss == "counts" else snnlib.SRMReadout(64, 3)
    net = torch.nn.Sequential(
        snnlib.SRMConv2d(2, 12, kernel_size=5, stride=2),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMLinear(12 * 7 * 7, 64),
        last,
    )
    frames, _ = next(iter(loader))  # [T, N, 2, 32, 32]
    report = snnlib.prepare_(net, frames)
    print(report)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    for epoch in range(epochs):
        for frames, labels in loader:
            output = net(frames)  # [T, N, 3]: spikes, or potentials of the readout
            if loss == "counts":
                counts = snnlib.readout.spike_count(output)
                value = snnlib.losses.count_cross_entropy(counts, labels, scale=report.logit_scale)
            else:
                value = snnlib.losses.tet_loss(output, labels)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss of the last batch {value.item():.3f}")
    frames, labels = stack_time_first(list(Gestures(150, seed=2)))
    with torch.no_grad():
        return float((net(frames).sum(0).argmax(1) == labels).float().mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--loss", choices=("counts", "tet"), default="counts")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    accuracy = train(options.loss, options.lr, options.seed)
    print(f"test accuracy {accuracy:.1%}")
    assert accuracy >= 0.95, "the net did not learn"
