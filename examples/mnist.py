"""MNIST by spike times: the published net 15C5-P2-40C5-P2-300-10, the image as amplitudes at each of five steps.

    python examples/mnist.py                             scikit-learn's 1797 digits, enlarged, a short run
    python examples/mnist.py --root ~/mnist              MNIST's four files, or those of Fashion-MNIST or KMNIST

Neurons learn from the spikes that they fire, so a layer that falls silent, or fires all the time, stays so. `prepare_`
sees that the input is grey: it gives weights of mean 0 in every channel, one factor per layer, gain and offset that
learn slowly, and homeostasis. The loss wants a few spikes of every output. Net, loss and time constants: Zhu et al.,
NeurIPS 2022.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

import snnlib
from snnlib.data import MNIST, ToSequence

STEPS, LEARNING_RATE = 5, 1e-3


def load(root: str | None, train: bool) -> tuple[Tensor, Tensor]:
    """Images uint8 [S, 1, 28, 28] and labels [S]."""
    if root is not None:
        digits = MNIST(root, train)
        return digits.images, digits.targets
    from sklearn.datasets import load_digits  # noqa: PLC0415 - of the extra snnlib[data]

    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    chosen = (torch.arange(len(labels)) % 5 != 0) == train
    large = F.interpolate(images.view(-1, 1, 8, 8) * (255 / 16), size=(28, 28), mode="bilinear")
    return large[chosen].byte(), labels[chosen].long()


@torch.no_grad()
def accuracy(net: nn.Module, encode: ToSequence, images: Tensor, labels: Tensor) -> float:
    answers = [net(encode(part)).sum(0).argmax(1) for part in images.split(250)]
    return float((torch.cat(answers) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="folder of MNIST's files (default: scikit-learn's digits)")
    parser.add_argument("--images", type=int, help="train on the first so many images")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    images, labels = (tensor[: args.images] for tensor in load(args.root, train=True))
    test = load(args.root, train=False)
    # Pixels from 0 to 1.
    encode = ToSequence(time_steps=STEPS)

    net = snnlib.models.mnist_net(tau_grad=2.5, input_grad_scale=0.85)
    print(snnlib.prepare_(net, encode(images[: args.batch_size])))
    snnlib.fuse_(net)

    optimizer = torch.optim.Adam(net.parameters(), args.learning_rate)
    updates = args.epochs * -(-len(images) // args.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for epoch in range(args.epochs):
        began = time.perf_counter()
        for chosen in tqdm(torch.randperm(len(images)).split(args.batch_size), leave=False, disable=None):
            counts = snnlib.readout.spike_count(net(encode(images[chosen])))
            loss = snnlib.losses.spike_count_loss(
                counts, labels[chosen], desired=5, undesired=1, one_sided=True, reduction="sum"
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        print(
            f"epoch {epoch + 1}: test accuracy {accuracy(net, encode, *test):.2%}, "
            f"{time.perf_counter() - began:.0f} s"
        )


if __name__ == "__main__":
    main()
