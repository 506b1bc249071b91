"""Batches of recordings of different lengths."""

from itertools import chain

import pytest
import torch
from compare import assert_bits

from snnlib.data import LengthBatches, collate_ragged


def test_collate_ragged() -> None:
    parts = [torch.rand(steps, 2, 3) for steps in (4, 1, 6)]
    spikes, labels, lengths = collate_ragged([(part, i) for i, part in enumerate(parts)])
    assert spikes.shape == (6, 3, 2, 3)
    assert (labels.tolist(), lengths.tolist()) == ([0, 1, 2], [4, 1, 6])
    for i, part in enumerate(parts):
        assert_bits(spikes[: len(part), i], part)
        assert not spikes[len(part) :, i].any()
    _, per_step, _ = collate_ragged([(part, torch.arange(len(part))) for part in parts])
    assert per_step.t().tolist() == [[0, 1, 2, 3, -1, -1], [0, -1, -1, -1, -1, -1], [0, 1, 2, 3, 4, 5]]
    # No label does not fit into uint8.
    small = [(part, torch.arange(len(part), dtype=torch.uint8)) for part in parts]
    assert_bits(collate_ragged(small)[1], per_step)
    with pytest.raises(TypeError, match=r"integer labels, got dtype torch\.float32"):
        collate_ragged([(parts[0], 2.7)])
    with pytest.raises(ValueError, match="steps of one shape"):
        collate_ragged([(torch.ones(2, 3), 0), (torch.ones(2, 4), 0)])
    with pytest.raises(ValueError, match="6 labels, one per step"):
        collate_ragged([(parts[2], torch.arange(4))])
    with pytest.raises(ValueError, match="at least one sample"):
        collate_ragged([])


def test_length_batches() -> None:
    lengths = torch.randint(1, 1000, (203,), generator=torch.Generator().manual_seed(0))
    sampler = LengthBatches(lengths, 10)
    first, second = list(sampler), list(sampler)
    assert len(first) == len(sampler) == 21
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(203))
    assert first != second
    assert list(LengthBatches(lengths, 10)) == first

    def padding(batches: list[list[int]]) -> int:
        return sum(int((lengths[batch].max() - lengths[batch]).sum()) for batch in batches)

    shuffled = torch.randperm(203, generator=torch.Generator().manual_seed(1)).tolist()
    assert padding(first) < 0.4 * padding([shuffled[i : i + 10] for i in range(0, 203, 10)])
    with pytest.raises(ValueError, match="batch_size"):
        LengthBatches(lengths, 0)
    with pytest.raises(ValueError, match="lengths"):
        LengthBatches([], 3)
