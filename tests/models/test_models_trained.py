"""Trained nets that come with the package do what their cards say."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import snnlib
from snnlib.data import MNIST, EventDigits, FrameCache, stack_time_first
from snnlib.models.trained import packed, unpacked


@torch.no_grad()
def test_digits_are_as_good_as_the_card_says() -> None:
    trained = snnlib.models.load("digits")
    samples = FrameCache(EventDigits(train=False, transform=trained.transform, progress=False))
    assert trained.classes == tuple(EventDigits.classes)
    right = 0
    for frames, labels in DataLoader(samples, 90, collate_fn=stack_time_first):
        right += int((trained.net(frames).mean(0).argmax(1) == labels).sum())
    # The figure is of the machine that trained it: one sample may lie on the other side of a rounding.
    assert abs(right - trained.card.accuracy * len(samples)) <= 1.01
    assert trained.card.accuracy > 0.97
    assert not trained.net.training
    assert trained.card.parameters == sum(p.numel() for p in trained.net.parameters())
    assert f"test accuracy {trained.card.accuracy:.1%}" in str(trained.card)


def test_mnist_is_as_good_as_the_card_says() -> None:
    root = Path(os.environ.get("SNNLIB_DATA") or "absent") / "mnist"
    if not root.is_dir():
        pytest.skip("SNNLIB_DATA names no folder with mnist/")
    trained = snnlib.models.load("mnist")
    digits = MNIST(root, train=False)
    right = 0
    with torch.no_grad():
        for images, labels in zip(digits.images.split(250), digits.targets.split(250), strict=True):
            right += int((trained.net(trained.transform(images)).mean(0).argmax(1) == labels).sum())
    assert abs(right - trained.card.accuracy * len(digits)) <= 2.01
    assert trained.card.accuracy > 0.985


def test_all_weights_together_take_less_than_a_wheel_s_share() -> None:
    folder = Path(snnlib.models.__file__).parent / "weights"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 800_000


def test_packed_weights_are_off_by_half_a_step() -> None:
    state = {"weight": torch.randn(4, 3, 2, 2), "threshold": torch.tensor(1.0), "silent": torch.zeros(2, 3)}
    arrays = packed(state)
    assert arrays["weight"].dtype == np.int8
    again = unpacked(arrays)
    step = state["weight"].flatten(1).abs().amax(1) / 127
    assert ((again["weight"] - state["weight"]).flatten(1).abs().amax(1) <= 0.501 * step).all()
    assert torch.equal(again["silent"], state["silent"]) and torch.equal(
        again["threshold"], state["threshold"]
    )


def test_unknown_nets_are_named() -> None:
    with pytest.raises(ValueError, match=r"^name: expected one of digits, .*, got 'cifar'$"):
        snnlib.models.load("cifar")
