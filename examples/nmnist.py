"""The published N-MNIST net 12C5-P2-64C5-P2-10 (T = 30, tau 8/4/3) with the library's own pieces.

    python examples/nmnist.py                                  embedded digits, a short run of under a minute
    python examples/nmnist.py --root ~/N-MNIST --epochs 15     a real copy: folders or zips, any number of samples

Net and time constants: Zhu et al., NeurIPS 2022. Training samples are moved by up to `--shift` pixels each time they
are seen, because a few hundred of them are easily learned by heart.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset
from tqdm import tqdm

import snnlib
from snnlib.data import NMNIST, EventDigits, FrameCache, ToFrames, stack_time_first


def shifted(frames: Tensor, most: int) -> Tensor:
    """Each sample of [T, N, C, H, W] moved by up to `most` pixels; what leaves on one side is gone."""
    moved = torch.zeros_like(frames)
    height, width = frames.shape[-2:]
    for sample, (dy, dx) in enumerate(torch.randint(-most, most + 1, (frames.shape[1], 2)).tolist()):
        to_y, from_y = slice(max(dy, 0), height + min(dy, 0)), slice(max(-dy, 0), height - max(dy, 0))
        to_x, from_x = slice(max(dx, 0), width + min(dx, 0)), slice(max(-dx, 0), width - max(dx, 0))
        moved[:, sample, :, to_y, to_x] = frames[:, sample, :, from_y, from_x]
    return moved


def datasets(root: str | None, samples: int | None) -> tuple[Dataset, Dataset]:
    """Training and test frames, binned once and kept in memory as bytes."""
    to_frames = ToFrames(time_steps=30, step_us=10_000)
    parts = []
    for train in (True, False):
        data = (
            EventDigits(train=train, transform=to_frames) if root is None else NMNIST(root, train, to_frames)
        )
        if samples is not None:
            step = -(-len(data) // samples)
            data = Subset(data, range(0, len(data), step))
        parts.append(FrameCache(data, preload=True))
    return parts[0], parts[1]


@torch.no_grad()
def accuracy(net: torch.nn.Module, loader: DataLoader) -> float:
    hits = [(net(frames).sum(0).argmax(1) == labels).float() for frames, labels in loader]
    return float(torch.cat(hits).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="folder of an N-MNIST copy (default: the embedded digits)")
    parser.add_argument(
        "--samples", type=int, help="take about this many samples (default: 480, all with --root)"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=25)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--shift", type=int, default=1, help="pixels")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.root is None and args.samples is None:
        args.samples = 480

    torch.manual_seed(args.seed)
    train, test = datasets(args.root, args.samples)
    train_loader = DataLoader(train, args.batch_size, shuffle=True, collate_fn=stack_time_first)
    test_loader = DataLoader(test, 50, collate_fn=stack_time_first)

    net = snnlib.models.nmnist_net(tau_grad=3.0)
    frames, _ = next(iter(DataLoader(train, 50, shuffle=True, collate_fn=stack_time_first)))
    rates = snnlib.init.calibrate_firing_rate_(net, frames, {"conv1": 0.02, "conv2": 0.01, "fc1": 0.1})
    print("firing rates before training:", {name: round(rate, 3) for name, rate in rates.items()})
    snnlib.nn.standardize_weights(net)

    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=args.epochs * len(train_loader), pct_start=0.1
    )
    for epoch in range(args.epochs):
        start, losses = time.perf_counter(), []
        for frames, labels in tqdm(train_loader, desc=f"epoch {epoch + 1}/{args.epochs}", leave=False):
            counts = snnlib.readout.spike_count(net(shifted(frames, args.shift)))
            loss = snnlib.losses.spike_count_loss(counts, labels, desired=15, undesired=2, one_sided=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        seconds = time.perf_counter() - start
        print(
            f"epoch {epoch + 1:2}: loss {sum(losses) / len(losses):6.2f}   "
            f"test accuracy {accuracy(net, test_loader):.1%}   {seconds:.1f} s"
        )

    final = accuracy(net, test_loader)
    assert final > 0.6, f"the net did not learn: {final:.1%}"


if __name__ == "__main__":
    main()
