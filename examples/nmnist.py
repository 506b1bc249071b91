"""The published N-MNIST net 12C5-P2-64C5-P2-10, trained by the recipe `nmnist` with the library's own pieces.

    python examples/nmnist.py                                  embedded digits, a short run of under a minute
    python examples/nmnist.py --root ~/N-MNIST --epochs 15     a real copy: folders or zips, any number of samples

`snnlib train --recipe nmnist` does the same with checkpoints, logs and a report; here the loop is in plain sight. Net
and time constants: Zhu et al., NeurIPS 2022. Output neurons do not fire: their potentials decide, and always learn.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from tqdm import tqdm

import snnlib
from snnlib.data import (
    NMNIST,
    AugmentFrames,
    BatchAugmentation,
    EventDigits,
    FrameCache,
    ToFrames,
    stack_time_first,
)
from snnlib.recipes import recipe


def frames(root: str | None, train: bool, samples: int | None) -> FrameCache:
    """Frames of the training or test set, binned once and kept in memory as bytes."""
    data = EventDigits(train=train, transform=ToFrames()) if root is None else NMNIST(root, train, ToFrames())
    step = max(len(data) // (samples or len(data)), 1)
    return FrameCache(Subset(data, range(0, len(data), step)), preload=True)


@torch.no_grad()
def accuracy(net: nn.Module, batches: DataLoader) -> float:
    hits = [(net(x).mean(0).argmax(1) == labels).float() for x, labels in batches]
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
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.root is None and args.samples is None:
        args.samples = 480
    settings = recipe("nmnist").config(root=args.root or "none", epochs=args.epochs, seed=args.seed)

    learning = settings.learning
    torch.manual_seed(learning.seed)
    cache = frames(args.root, True, args.samples)
    augment = AugmentFrames(shift=learning.shift, rotate=learning.rotate, warp=learning.warp)
    batch = BatchAugmentation(augment, learning.copies)
    train = DataLoader(cache, learning.batch_size, shuffle=True, collate_fn=batch)
    test = DataLoader(frames(args.root, False, args.samples), 50, collate_fn=stack_time_first)

    net = snnlib.fuse_(snnlib.models.nmnist_net(tau_grad=settings.net.tau_grad))
    net.fc1 = snnlib.SRMReadout(net.fc1.in_features, 10, tau_m=settings.net.tau_m, tau_s=settings.net.tau_s)
    first, _ = next(iter(DataLoader(cache, 50, shuffle=True, collate_fn=stack_time_first)))
    print(snnlib.prepare_(net, first, settings.net.target_rate, gain=False))
    snnlib.nn.standardize_weights_(net)

    optimizer = torch.optim.AdamW(net.parameters(), lr=learning.lr, weight_decay=learning.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning.lr, epochs=learning.epochs, steps_per_epoch=len(train), pct_start=0.1
    )
    for epoch in range(learning.epochs):
        start, losses = time.perf_counter(), []
        for x, labels in tqdm(train, desc=f"epoch {epoch + 1}/{learning.epochs}", leave=False):
            loss = snnlib.losses.tet_loss(net(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        seconds = time.perf_counter() - start
        print(
            f"epoch {epoch + 1:2}: loss {sum(losses) / len(losses):6.3f}   "
            f"test accuracy {accuracy(net, test):.1%}   {seconds:.1f} s"
        )

    final = accuracy(net, test)
    assert final > 0.8, f"the net did not learn: {final:.1%}"


if __name__ == "__main__":
    main()
