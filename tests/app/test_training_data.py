"""The batches of a run: training samples in copies, test samples as they are."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import Subset

from snnlib.app.training import ConfigError, TrainConfig
from snnlib.app.training.data_module import EventData


def opened(config: TrainConfig) -> EventData:
    data = EventData(config, progress=False)
    data.setup("fit")
    return data


def test_training_batches_hold_copies(config: TrainConfig) -> None:
    data = opened(config.changed(batch_size=16, copies=3, val_split=0.0))
    batches = list(data.train_dataloader())
    # 60 samples; the steps of an epoch are those of one copy.
    assert [len(labels) for _, labels in batches] == [48, 48, 48, 36]
    for frames, labels in batches:
        assert frames.shape[1] == len(labels)
        assert len(frames.transpose(0, 1).flatten(1).unique(dim=0)) == len(labels)
        copies = labels.view(-1, 3)
        assert bool((copies == copies[:, :1]).all())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_for_a_gpu_are_pinned(config: TrainConfig, device: str) -> None:
    data = opened(config)
    strategy = SimpleNamespace(root_device=torch.device(device, 0))
    data.trainer = SimpleNamespace(strategy=strategy, world_size=1, global_rank=0)  # type: ignore[assignment]
    assert data.train_dataloader().pin_memory == (device == "cuda")


def test_without_augmentation_samples_stay_as_they_are(config: TrainConfig) -> None:
    data = opened(config.changed(shift=0, rotate=0.0, warp=0.0, copies=2))
    frames, _ = next(iter(data.train_dataloader()))
    own = torch.stack([sample for sample, _ in data.train_set])  # type: ignore[attr-defined]
    for copy in frames.transpose(0, 1):
        assert bool((own == copy).flatten(1).all(1).any())


def test_the_test_set_and_the_calibration_batch_have_no_copies(config: TrainConfig) -> None:
    one, three = (opened(config.changed(copies=copies)) for copies in (1, 3))
    for left, right in zip(one.val_dataloader(), three.val_dataloader(), strict=True):
        for (frames, labels), (others, other_labels) in zip(left, right, strict=True):
            assert torch.equal(frames, others)
            assert torch.equal(labels, other_labels)
    assert torch.equal(one.first_batch(), three.first_batch())


def test_validation_samples_are_held_out_of_every_class_alike(config: TrainConfig) -> None:
    whole = opened(config.changed(val_split=0.0))
    data = opened(config.changed(val_split=0.34))
    assert isinstance(data.train_set, Subset) and isinstance(data.val_set, Subset)
    # Two of the six samples of each class.
    assert sorted(label for _, label in data.val_set) == [label for label in range(10) for _ in range(2)]
    assert sorted([*data.train_set.indices, *data.val_set.indices]) == list(range(len(whole.train_set)))  # type: ignore[arg-type]
    assert whole.val_set is None and len(whole.val_dataloader()) == 1
    again = opened(config.changed(val_split=0.34))
    assert data.val_set.indices == again.val_set.indices  # type: ignore[union-attr]


def test_too_small_a_share_is_named(config: TrainConfig) -> None:
    with pytest.raises(
        ConfigError, match=r"val_split: expected a share that leaves .*, got 0\.01 of 60 samples"
    ):
        opened(config.changed(val_split=0.01))


def test_calibration_passes_over_recordings_without_events(config: TrainConfig) -> None:
    data = EventData(config.changed(batch_size=2), progress=False)
    silent, full = torch.zeros(3, 2, 4, 4), torch.ones(3, 2, 4, 4)
    samples: Any = [(silent, 0)] * 20 + [(full, 1)] * 3
    data.train_set = data.test_set = samples
    assert torch.equal(data.first_batch(), torch.stack([full, full], 1))
    data.train_set = samples[:20]
    with pytest.raises(
        ConfigError, match=r"root: expected training samples with events .*, got 20 without events"
    ):
        data.first_batch()
