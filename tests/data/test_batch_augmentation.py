"""Batch augmentation: N samples become N * copies frames, each of its own draw."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from snnlib.data import AugmentFrames, BatchAugmentation, Transformed, stack_time_first

AUGMENT = AugmentFrames(shift=2, rotate=10, warp=1.0)
# Ten samples `[T, C, H, W]` of bytes, as a FrameCache gives them.
SAMPLES = [
    (torch.randint(2, (4, 2, 12, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(k)), k)
    for k in range(10)
]


def batches(workers: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(seed)
    return list(DataLoader(SAMPLES, 4, num_workers=workers, collate_fn=BatchAugmentation(AUGMENT, copies=3)))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_holds_every_sample_as_often_as_asked_and_no_two_alike(workers: int) -> None:
    first = batches(workers, 0)
    assert [tuple(frames.shape) for frames, _ in first] == [(4, n, 2, 12, 16) for n in (12, 12, 6)]
    assert torch.cat([labels for _, labels in first]).tolist() == [k for k in range(10) for _ in range(3)]
    frames = torch.cat([frames for frames, _ in first], 1)
    assert frames.dtype == torch.uint8
    assert len(frames.transpose(0, 1).flatten(1).unique(dim=0)) == 30
    again = torch.cat([frames for frames, _ in batches(workers, 0)], 1)
    assert torch.equal(frames, again)
    assert not torch.equal(frames, torch.cat([frames for frames, _ in batches(workers, 1)], 1))


def test_copies_are_single_augmentations_in_order() -> None:
    """Against a loop; the samples stay as they were."""
    before = [frames.clone() for frames, _ in SAMPLES]
    torch.manual_seed(5)
    made, labels = BatchAugmentation(AUGMENT, copies=2)(SAMPLES[:3])
    torch.manual_seed(5)
    for place in range(6):
        assert torch.equal(made[:, place], AUGMENT(before[place // 2]))
        assert labels[place] == place // 2
    assert all(torch.equal(frames, old) for (frames, _), old in zip(SAMPLES, before, strict=True))


def test_one_copy_is_plain_augmentation() -> None:
    torch.manual_seed(0)
    frames, labels = BatchAugmentation(AUGMENT, copies=1)(SAMPLES)
    torch.manual_seed(0)
    expected = stack_time_first(list(Transformed(SAMPLES, AUGMENT)))
    assert torch.equal(frames, expected[0])
    assert torch.equal(labels, expected[1])


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="augment: expected a callable, got 3"):
        BatchAugmentation(3, copies=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="copies: expected an integer >= 1, got 0"):
        BatchAugmentation(AUGMENT, copies=0)
    with pytest.raises(TypeError, match=r"copies: expected an integer >= 1, got 1\.5"):
        BatchAugmentation(AUGMENT, copies=1.5)  # type: ignore[arg-type]
    assert repr(BatchAugmentation(AugmentFrames(), 2)) == f"BatchAugmentation({AugmentFrames()!r}, copies=2)"
