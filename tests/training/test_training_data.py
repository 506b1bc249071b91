"""The batches of a run: training samples in copies, test samples as they are."""

import dataclasses

import torch

from snnlib.training import TrainConfig
from snnlib.training.data_module import EventData


def opened(config: TrainConfig) -> EventData:
    data = EventData(config, progress=False)
    data.setup("fit")
    return data


def test_training_batches_hold_copies(config: TrainConfig) -> None:
    data = opened(dataclasses.replace(config, batch_size=16, copies=3))
    batches = list(data.train_dataloader())
    # 60 samples; the steps of an epoch are those of one copy.
    assert [len(labels) for _, labels in batches] == [48, 48, 48, 36]
    for frames, labels in batches:
        assert frames.shape[1] == len(labels)
        assert len(frames.transpose(0, 1).flatten(1).unique(dim=0)) == len(labels)
        copies = labels.view(-1, 3)
        assert bool((copies == copies[:, :1]).all())


def test_without_augmentation_samples_stay_as_they_are(config: TrainConfig) -> None:
    data = opened(dataclasses.replace(config, shift=0, rotate=0.0, warp=0.0, copies=2))
    frames, _ = next(iter(data.train_dataloader()))
    own = torch.stack([sample for sample, _ in data.train_set])  # type: ignore[attr-defined]
    for copy in frames.transpose(0, 1):
        assert bool((own == copy).flatten(1).all(1).any())


def test_the_test_set_and_the_calibration_batch_have_no_copies(config: TrainConfig) -> None:
    one, three = (opened(dataclasses.replace(config, copies=copies)) for copies in (1, 3))
    for left, right in zip(one.val_dataloader(), three.val_dataloader(), strict=True):
        assert torch.equal(left[0], right[0])
        assert torch.equal(left[1], right[1])
    assert torch.equal(one.first_batch(), three.first_batch())
