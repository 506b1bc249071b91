"""Trains a residual net of spiking neurons on your images, each shown at four time steps.

    python examples/images.py                            scikit-learn's 1797 digits, a short run
    python examples/images.py --root pictures --size 64  a folder per class, or folders train and test of such folders
    python examples/images.py --root images.npz          arrays `images` [S, H, W] or [S, H, W, C], bytes, and `labels`
    python examples/images.py --root ~/mnist             MNIST's four files, or those in its format

A tenth of the images, or the folder `test`, or `test_images` and `test_labels` of the arrays, test the net. Images are
shifted and turned at random, and mirrored with --mirror; the rate of AdamW rises over the first twentieth of the steps
and falls by a cosine. With --checkpoint FILE the run is stored after every epoch, and the same command continues it.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from tqdm import tqdm

import snnlib
from snnlib.data import MNIST, AugmentFrames, ImageFolder, Transformed
from snnlib.models import ms_resnet18, sew_resnet18, sew_resnet34, spiking_resnet18

NETS = {make.__name__: make for make in (sew_resnet18, sew_resnet34, spiking_resnet18, ms_resnet18)}
# Fields of a profile's total.
SHOWN = {
    "nonzero_outputs": "spikes",
    "membrane_updates": "updates of a membrane",
    "acs": "additions of a weight",
    "macs": "multiplications with a weight",
    "dense": "products in a dense net",
}
WARM_UP, WEIGHT_DECAY = 0.05, 0.02


def load(root: str | None, size: int | None) -> tuple[Dataset, Dataset, int]:
    """Sets of images uint8 [C, H, W] with their labels, to train and to test with, and the number of classes."""
    if root is None:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - of the extra snnlib[data]

        images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
        large = F.interpolate(images.view(-1, 1, 8, 8) * (255 / 16), size=(16, 16), mode="bilinear")
        return *split(large.byte(), labels.long()), 10
    if Path(root).suffix == ".npz":
        with np.load(root, allow_pickle=False) as arrays:
            images, labels = of_arrays(arrays["images"], arrays["labels"])
            if "test_images" not in arrays:
                return *split(images, labels), int(labels.max()) + 1
            test = TensorDataset(*of_arrays(arrays["test_images"], arrays["test_labels"]))
            return TensorDataset(images, labels), test, int(labels.max()) + 1
    if any(Path(root).glob("*-ubyte*")):
        return MNIST(root), MNIST(root, train=False), 10
    shape = None if size is None else (size, size)
    train, test = (
        ImageFolder(root, part, mode="colour", size=shape, val_share=0.0, test_share=0.1)
        for part in ("train", "test")
    )
    return train, test, len(train.classes)


def of_arrays(images: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    """Images [S, C, H, W] and labels [S]."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or labels.shape != images.shape[:1]:
        raise SystemExit(
            "images: expected bytes [S, H, W] or [S, H, W, C] and as many labels, got "
            f"{images.dtype} {images.shape} and labels {labels.shape}"
        )
    tensor = torch.from_numpy(images)
    return tensor.unsqueeze(1) if images.ndim == 3 else tensor.movedim(3, 1), torch.from_numpy(labels).long()


def split(images: Tensor, labels: Tensor) -> tuple[Dataset, Dataset]:
    """Nine tenths to train with, and every tenth image to test with."""
    tests = torch.arange(len(labels)) % 10 == 9
    return TensorDataset(images[~tests], labels[~tests]), TensorDataset(images[tests], labels[tests])


class Augment:
    """Moves an image at random, as frames of a single step."""

    def __init__(self, mirror: bool) -> None:
        self.move = AugmentFrames(shift=2, rotate=10, flip_horizontal=0.5 if mirror else 0.0)

    def __call__(self, image: Tensor) -> Tensor:
        return self.move(image[None])[0]


class Normalise(nn.Module):
    """Images uint8 [N, C, H, W] as floats of mean 0 and standard deviation 1 per channel."""

    def __init__(self, samples: Dataset) -> None:
        super().__init__()
        chosen = torch.linspace(0, len(samples) - 1, min(len(samples), 500)).long()
        pixels = torch.stack([samples[int(number)][0] for number in chosen]).float()
        self.register_buffer("mean", pixels.mean((0, 2, 3), keepdim=True))
        self.register_buffer("std", pixels.std((0, 2, 3), keepdim=True).clamp(min=1.0))

    def forward(self, images: Tensor) -> Tensor:
        return (images.to(self.mean.device).float() - self.mean) / self.std


def share_of_rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine."""
    return min(1.0, (step + 1) / (WARM_UP * steps)) * 0.5 * (1 + math.cos(math.pi * step / steps))


def save(file: Path, state: dict[str, object]) -> None:
    """Writes a file beside and renames it, so that an interruption leaves the one before."""
    beside = file.with_suffix(".part")
    torch.save(state, beside)
    beside.replace(file)


@torch.no_grad()
def answers(net: nn.Module, prepare: Normalise, loader: DataLoader) -> tuple[Tensor, Tensor]:
    """Classes that the net finds, and labels."""
    net.eval()
    found = [(net(prepare(images)).mean(0).argmax(1).cpu(), labels) for images, labels in loader]
    net.train()
    return torch.cat([one for one, _ in found]), torch.cat([labels for _, labels in found])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="a folder of images, an npz file, or MNIST's folder (default: digits)")
    parser.add_argument("--size", type=int, help="pixels of a side to which images of a folder are resized")
    parser.add_argument("--net", choices=NETS, default="sew_resnet18")
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage (the papers' 64)")
    parser.add_argument(
        "--stem", choices=("small", "large"), default="small", help="large: from 100 pixels up"
    )
    parser.add_argument("--time-steps", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--mirror", action="store_true", help="mirror half of the images, left to right")
    parser.add_argument("--workers", type=int, default=0, help="processes that read and move images")
    parser.add_argument("--checkpoint", type=Path, help="file to store the run in, and to continue from")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, test, classes = load(args.root, args.size)
    prepare = Normalise(train).to(device)
    options = {"batch_size": args.batch_size, "num_workers": args.workers}
    loader = DataLoader(Transformed(train, Augment(args.mirror)), shuffle=True, **options)
    image = train[0][0]
    net = NETS[args.net](
        classes, channels=len(image), width=args.width, stem=args.stem, time_steps=args.time_steps
    ).to(device)
    print(
        f"{len(train)} images {tuple(image.shape)} of {classes} classes to train {args.net} with, "
        f"{len(test)} to test it; {sum(each.numel() for each in net.parameters()):,} parameters"
    )
    first = torch.stack([train[number][0] for number in range(min(args.batch_size, len(train)))])
    snnlib.fuse_(net, prepare(first))

    optimizer = torch.optim.AdamW(net.parameters(), args.learning_rate, weight_decay=WEIGHT_DECAY)
    steps = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step, steps))
    settings = {key: value for key, value in vars(args).items() if key not in ("checkpoint", "workers")}
    parts, done = {"net": net, "optimizer": optimizer, "schedule": schedule}, 0
    if args.checkpoint is not None and args.checkpoint.exists():
        stored = torch.load(args.checkpoint, weights_only=True)
        if stored["settings"] != settings:
            raise SystemExit(f"{args.checkpoint}: expected a run with {settings}, got {stored['settings']}")
        for name, part in parts.items():
            part.load_state_dict(stored[name])
        torch.set_rng_state(stored["rng"])
        done = stored["epoch"]
        print(f"{args.checkpoint}: continues after epoch {done}")

    tests = DataLoader(test, **options)
    for epoch in range(done, args.epochs):
        began, total = time.perf_counter(), 0.0
        for images, labels in tqdm(loader, leave=False, disable=None):
            loss = F.cross_entropy(net(prepare(images)).mean(0), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        found, labels = answers(net, prepare, tests)
        print(
            f"epoch {epoch + 1}: loss {total / len(loader):.3f}, "
            f"test accuracy {(found == labels).float().mean():.2%}, {time.perf_counter() - began:.0f} s"
        )
        if args.checkpoint is not None:
            states = {name: part.state_dict() for name, part in parts.items()}
            save(
                args.checkpoint,
                {**states, "rng": torch.get_rng_state(), "epoch": epoch + 1, "settings": settings},
            )

    found, labels = answers(net, prepare, tests)
    accuracy = float((found == labels).float().mean())
    error = math.sqrt(accuracy * (1 - accuracy) / len(labels))
    counted = snnlib.profile(net, (prepare(images) for images, _ in tests), batch_first=True)
    per_image = {name: value / len(labels) for name, value in vars(counted.total).items() if name in SHOWN}
    print(f"\naccuracy {accuracy:.2%} +- {error:.2%} on {len(labels)} images; per image:")
    print("\n".join(f"    {value:14,.0f} {SHOWN[name]}" for name, value in per_image.items()))
    for number in range(classes):
        of_class = labels == number
        if of_class.any():
            print(
                f"class {number}: {(found[of_class] == number).float().mean():.1%} of {int(of_class.sum())}"
            )


if __name__ == "__main__":
    main()
