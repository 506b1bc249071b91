"""The score of a model's output that a map explains, by class or by a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from snnlib.checks import check_floating
from snnlib.explain.layout import batch_first

Target = int | Tensor | Callable[[Any], Tensor] | None
"""Target of a map: a class, one per sample, a score of the model's output, or (None) the class with most votes."""


def scores_of(answer: Any, target: Target, layout: str, samples: int) -> Tensor:
    """The scores to be explained `[N]`, or what a function as target gives."""
    if callable(target):
        score: Tensor = target(answer)
        check_floating("target: its score", score)
    else:
        scores = class_scores(answer, layout)
        if len(scores) != samples:
            raise ValueError(
                f"layout: expected {len(scores)} samples as in the model's output, got {samples} in dimension "
                f"{layout.index('N')} of the layer's for {layout!r}"
            )
        score = scores.gather(1, _labels(target, scores).unsqueeze(1)).squeeze(1)
    return score


def class_scores(answer: Tensor, layout: str) -> Tensor:
    """Scores `[N, K]`; spikes `[T, N, K]` are counted."""
    check_floating("model: its output", answer)
    if answer.dim() == 3 and "T" in layout:
        return answer.sum(int(batch_first(layout)), dtype=torch.promote_types(answer.dtype, torch.float32))
    if answer.dim() != 2:
        raise ValueError(
            "model: expected an output [N, K], or [T, N, K] for a layer with a time dimension, got shape "
            f"{tuple(answer.shape)}; pass a function of the output as target"
        )
    return answer


def _labels(target: int | Tensor | None, scores: Tensor) -> Tensor:
    """Returns a class per sample `[N]`."""
    if target is None:
        return scores.argmax(1)
    samples, classes = scores.shape
    labels = torch.as_tensor(target, device=scores.device)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"target: expected integers, got {labels.dtype}")
    # Before the number of classes, which need not fit into a smaller dtype, is compared with.
    labels = labels.long()
    if labels.dim() == 0:
        labels = labels.expand(samples)
    if labels.shape != (samples,):
        raise ValueError(f"target: expected one class or {samples}, got shape {tuple(labels.shape)}")
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(f"target: expected classes from 0 to {classes - 1}, got {int(wrong[0])}")
    return labels
