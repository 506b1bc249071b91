"""Accuracy of `models.spikformer` on the embedded digits, or on a copy of N-MNIST, epoch by epoch.

    python benchmarks/learning/spikformer.py [--root FOLDER] [--epochs 10] [--seed 0] [--threads 1]

Frames of 300 ms in 10 steps, augmented as in the recipe nmnist; AdamW at 4e-3 with a cycle, batches of 25, the cross
entropy of scores averaged over time. The recipe `digits` has 99.0 % on the same split.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

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

STEPS, STEP_US = 10, 30_000
LEARNING_RATE, WARM_UP = 4e-3, 0.2


@torch.no_grad()
def accuracy(net: nn.Module, batches: DataLoader) -> float:
    net.eval()
    hits = [(net(x).mean(0).argmax(1) == labels).float() for x, labels in batches]
    net.train()
    return float(torch.cat(hits).mean())


def main() -> None:
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--root", help="folder of an N-MNIST copy (default: the embedded digits)")
    wanted.add_argument("--epochs", type=int, default=10)
    wanted.add_argument("--seed", type=int, default=0)
    wanted.add_argument("--threads", type=int, default=1)
    arguments = wanted.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    frames = ToFrames(time_steps=STEPS, step_us=STEP_US)
    sets = [
        EventDigits(train=train, transform=frames)
        if arguments.root is None
        else NMNIST(arguments.root, train, frames)
        for train in (True, False)
    ]
    settings = recipe("nmnist").config(root="none")
    augment = AugmentFrames(shift=settings.shift, rotate=settings.rotate, warp=settings.warp)
    learned, tested = (FrameCache(data, preload=True) for data in sets)
    train = DataLoader(learned, 25, shuffle=True, collate_fn=BatchAugmentation(augment, 1))
    test = DataLoader(tested, 60, collate_fn=stack_time_first)
    net = snnlib.fuse_(snnlib.models.spikformer())
    parameters = sum(parameter.numel() for parameter in net.parameters())
    print(f"{parameters} parameters, {len(learned)} samples to train and {len(tested)} to test")
    optimiser = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, LEARNING_RATE, epochs=arguments.epochs, steps_per_epoch=len(train), pct_start=WARM_UP
    )
    for epoch in range(arguments.epochs):
        start, losses = time.process_time(), []
        for x, labels in train:
            loss = nn.functional.cross_entropy(net(x).mean(0), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        seconds = time.process_time() - start
        print(
            f"epoch {epoch + 1:2}: loss {sum(losses) / len(losses):6.3f}   test accuracy "
            f"{accuracy(net, test):.1%}   {seconds:.0f} s of the processor",
            flush=True,
        )


if __name__ == "__main__":
    main()
