"""Measures of regression and of several labels per sample."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

# Kind of labels that a loader gives.
Task = Literal["classes", "regression", "labels", "none"]


def task_of(labels: Tensor | None, per_step: bool) -> Task:
    """The task that labels belong to.

    Integers are classes; truth values, and integers or floats of 0 and 1 in `[N, K]`, are K labels per sample; other
    floats are numbers to predict.

    >>> task_of(torch.tensor([2, 0]), False), task_of(torch.tensor([[0.0, 1.0]]), False), task_of(None, False)
    ('classes', 'labels', 'none')
    >>> task_of(torch.tensor([0.5, 1.0]), False)
    'regression'
    """
    if labels is None:
        return "none"
    several = labels.dim() == 2 and not per_step
    if labels.dtype == torch.bool or (several and bool(((labels == 0) | (labels == 1)).all())):
        return "labels"
    return "regression" if labels.is_floating_point() else "classes"


@dataclass
class Answers:
    """Targets and answers of a data set, side by side.

    Attributes:
        task: `"regression"`, or `"labels"`, of which an answer is given where its score is above 0.
        targets: per batch `[rows, K]`, float64; NaN for an unknown one.
        answers: likewise.
    """

    task: Task
    targets: list[Tensor] = field(default_factory=list)
    answers: list[Tensor] = field(default_factory=list)

    def add(self, found: Tensor, targets: Tensor, time_dim: int | None) -> None:
        """Add a batch: answers in the shape of the targets, `[N]`, `[N, K]`, or with time `[T, N]`, `[T, N, K]`.

        Raises:
            ValueError: shapes that do not fit.
        """
        if found.shape != targets.shape and found.shape == (*targets.shape, 1):
            found = found.squeeze(-1)
        if found.shape != targets.shape:
            raise ValueError(
                f"scores: expected answers {tuple(targets.shape)}, like the labels, of the net's output, got "
                f"{tuple(found.shape)}"
            )
        rows = 1 if time_dim is None else 2
        columns = targets.shape[rows] if targets.dim() > rows else 1
        for kept, batch in ((self.targets, targets), (self.answers, found)):
            kept.append(batch.detach().double().cpu().reshape(-1, columns))

    def pairs(self, column: int) -> tuple[Tensor, Tensor]:
        """Known targets of a column and their answers."""
        target, answer = (torch.cat(part)[:, column] for part in (self.targets, self.answers))
        known = ~target.isnan()
        return target[known], answer[known]

    @property
    def columns(self) -> int:
        """Numbers, or labels, per row."""
        return self.targets[0].shape[1]

    @property
    def rows(self) -> int:
        """Samples, or steps."""
        return sum(map(len, self.targets))

    def measures(self) -> list[dict[str, float]]:
        """Per column: of numbers R2, mean absolute error and root mean squared error; of labels precision, recall, F1.

        R2 is `1 - sum (answer - target)^2 / sum (target - mean)^2`; NaN for targets that are all equal.
        """
        return [self._of(*self.pairs(column)) for column in range(self.columns)]

    def _of(self, target: Tensor, answer: Tensor) -> dict[str, float]:
        if self.task == "labels":
            return _label_measures(target > 0, answer > 0)
        error = answer - target
        spread = float((target - target.mean()).square().sum()) if len(target) else 0.0
        return {
            "r2": 1 - float(error.square().sum()) / spread if spread else math.nan,
            "mae": float(error.abs().mean()) if len(target) else math.nan,
            "rmse": math.sqrt(float(error.square().mean())) if len(target) else math.nan,
        }

    def metrics(self) -> dict[str, float]:
        """The measures of all columns together."""
        columns = self.measures()
        means = {name: _mean([column[name] for column in columns]) for name in columns[0]}
        if self.task == "regression":
            return means
        targets, answers = (torch.cat(part) > 0 for part in (self.targets, self.answers))
        return {
            "f1_macro": means["f1"],
            "f1_micro": _label_measures(targets.flatten(), answers.flatten())["f1"],
            "exact_match": float((targets == answers).all(1).double().mean()),
        }


def _label_measures(target: Tensor, answer: Tensor) -> dict[str, float]:
    both, wanted, given = (int(part.sum()) for part in (target & answer, target, answer))
    return {
        "samples": wanted,
        "precision": both / given if given else math.nan,
        "recall": both / wanted if wanted else math.nan,
        # A label that is neither there nor given is not judged.
        "f1": 2 * both / (wanted + given) if wanted + given else math.nan,
    }


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
