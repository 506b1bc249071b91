"""Samples of a pass over data that are kept for pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from snnlib.data.ragged import NO_LABEL

# Samples kept for pictures: enough to hold a mistake of most nets, in a quarter of a gigabyte at most.
_KEPT_SAMPLES, _KEPT_BYTES = 60, 2**28


@dataclass(frozen=True)
class Sample:
    """A sample kept for pictures: its input `[T, ...]` (uint8 where that holds it), its label and the prediction.

    Where every step is labelled, `label` and `predicted` are those of the most frequent label of the sample, and
    `labels` and `answers` those of the steps `[T]`. Where nothing is classified, both are -1, and `target` and `answer`
    are the numbers or labels of the sample.
    """

    x: Tensor
    label: int
    predicted: int
    labels: Tensor | None = None
    answers: Tensor | None = None
    target: Tensor | None = None
    answer: Tensor | None = None


def classified(x: Tensor, label: Tensor, answer: Tensor) -> Sample:
    """Returns a sample with its label and prediction, or those of its steps."""
    if label.dim() == 0:
        return Sample(x, int(label), int(answer))
    known = label != NO_LABEL
    if not known.any():
        return Sample(x, NO_LABEL, NO_LABEL, label, answer)
    most = int(label[known].mode().values)
    return Sample(x, most, int(answer[label == most].mode().values), label, answer)


def keep(samples: list[Sample], sample: Sample, classes: int) -> None:
    """Adds a sample to those kept while there is room: each class has its share, and so have mistakes."""
    right = sample.predicted == sample.label
    same = [
        kept for kept in samples if kept.label == sample.label and (kept.predicted == kept.label) == right
    ]
    share = max(_KEPT_SAMPLES // (2 * classes), 1)
    if len(samples) >= _KEPT_SAMPLES or len(same) >= share:
        return
    # Event counts fit into a byte; other inputs stay as they are.
    small = sample.x.to(torch.uint8)
    small = (small if torch.equal(small.to(sample.x.dtype), sample.x) else sample.x).cpu().clone()
    if (len(samples) + 1) * small.nbytes <= _KEPT_BYTES:
        samples.append(replace(sample, x=small))
