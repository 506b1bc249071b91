"""Trained nets that come with the package do what their cards say."""

import pytest
import torch
from torch.utils.data import DataLoader

import snnlib
from snnlib.data import EventDigits, FrameCache, stack_time_first


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


def test_unknown_nets_are_named_with_what_makes_them() -> None:
    with pytest.raises(ValueError, match=r"^name: expected one of digits, got 'mnist'$"):
        snnlib.models.load("mnist")
    with pytest.raises(ValueError, match=r"got 'nmnist'; it is made by: snnlib train --recipe nmnist"):
        snnlib.models.load("nmnist")
