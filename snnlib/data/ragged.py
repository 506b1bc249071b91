"""Batches of sequences of different lengths: padding with lengths, and batches of similar lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import Sampler

__all__ = ["LengthBatches", "collate_ragged"]

# Batches from which a bucket's sequences are drawn: enough to mix, few enough to be of like lengths.
_BATCHES_PER_BUCKET = 8
# Label of a step without one, as in `data.ECG`.
NO_LABEL = -1


def collate_ragged(batch: Sequence[tuple[Tensor, int | Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Collates sequences of different lengths into a padded batch, time first, and their lengths.

    Args:
        batch: N pairs of a spike tensor `[T_n, ...]` and a label: an integer, or one per step `[T_n]`.

    Returns:
        `(spikes [T, N, ...], labels, lengths [N])` with T the longest sequence, zeros after the end of the others.
        Labels are int64, `[N]`, or `[T, N]` with -1 for "no label" in the padding, where losses ignore them.

    Raises:
        TypeError: a label is not an integer.
        ValueError: an empty batch, steps of different shapes, or numbers of labels other than one per sample or step.

    >>> import torch
    >>> from snnlib.data import collate_ragged
    >>> spikes, labels, lengths = collate_ragged([(torch.ones(5, 2), 3), (torch.ones(3, 2), 0)])
    >>> spikes.shape, labels.tolist(), lengths.tolist()
    (torch.Size([5, 2, 2]), [3, 0], [5, 3])
    """
    if not batch:
        raise ValueError("batch: expected at least one sample, got none")
    sequences = [sequence for sequence, _ in batch]
    shapes = {tuple(sequence.shape[1:]) for sequence in sequences}
    if len(shapes) > 1:
        raise ValueError(f"batch: expected sequences with steps of one shape, got {sorted(shapes)}")
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    spikes = torch.nn.utils.rnn.pad_sequence(sequences)
    labels = [_as_labels(label) for _, label in batch]
    if all(label.dim() == 0 for label in labels):
        return spikes, torch.stack(labels), lengths
    for label, sequence in zip(labels, sequences, strict=True):
        if tuple(label.shape) != (len(sequence),):
            raise ValueError(
                f"batch: expected a label per sample or {len(sequence)} labels, one per step, "
                f"got shape {tuple(label.shape)}"
            )
    return spikes, torch.nn.utils.rnn.pad_sequence(labels, padding_value=NO_LABEL), lengths


def _as_labels(label: int | Tensor) -> Tensor:
    """Labels as int64, which "no label" fits into."""
    labels = torch.as_tensor(label)
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"batch: expected integer labels, got dtype {labels.dtype}")
    return labels.to(torch.int64)


def batches_of_like_lengths(
    order: Sequence[int], lengths: Sequence[int], batch_size: int, generator: torch.Generator
) -> list[list[int]]:
    """Shuffles samples, sorts them by length within groups of eight batches, and shuffles the batches."""
    bucket = batch_size * _BATCHES_PER_BUCKET
    batches: list[list[int]] = []
    for first in range(0, len(order), bucket):
        near = sorted(order[first : first + bucket], key=lambda sample: lengths[sample])
        batches += [near[i : i + batch_size] for i in range(0, len(near), batch_size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


class LengthBatches(Sampler[list[int]]):
    """Draws random batches of samples with similar lengths, to reduce padding: a `batch_sampler`.

    Each epoch shuffles all samples, sorts them by length within groups of eight batches, cuts these into batches and
    shuffles the batches. Every sample appears once; the last batch may be smaller.

    Args:
        lengths: number of steps of each sample of the data set.
        batch_size: samples per batch.
        seed: seed of the shuffles; epoch e is the same in every run. Default 0.

    Raises:
        ValueError: no lengths, or a batch size below 1.

    >>> import torch
    >>> from snnlib.data import LengthBatches
    >>> batches = list(LengthBatches([5, 90, 6, 88, 7, 91], batch_size=2))
    >>> sorted(sorted(batch) for batch in batches)
    [[0, 2], [1, 5], [3, 4]]

    >>> loader = torch.utils.data.DataLoader(  # doctest: +SKIP
    ...     dataset, batch_sampler=LengthBatches(lengths, 32), collate_fn=snnlib.data.collate_ragged
    ... )
    """

    def __init__(self, lengths: Sequence[int] | Tensor, batch_size: int, *, seed: int = 0) -> None:
        if len(lengths) == 0:
            raise ValueError("lengths: expected the length of each sample, got none")
        if batch_size < 1:
            raise ValueError(f"batch_size: expected an integer >= 1, got {batch_size}")
        self.lengths = torch.as_tensor(lengths).tolist()
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0

    def __len__(self) -> int:
        return (len(self.lengths) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        self.epoch += 1
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        yield from batches_of_like_lengths(order, self.lengths, self.batch_size, generator)
