"""How good the answers are: facts, a table by class, output or label, and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from snnlib.app.report.answers import Answers
from snnlib.app.report.evaluation import Evaluation
from snnlib.app.report.figures import answer_section, confusion_section
from snnlib.app.report.section import Section
from snnlib.app.visual import recall_precision


@dataclass(frozen=True)
class Results:
    """The parts of a report that need labels.

    Args:
        facts: rows of the table of results.
        title: heading of the table below; without rows there is none.
        rows: headings, and a row of texts per class, output or label.
        sections: figures.
        metrics: numbers by name.
    """

    facts: Mapping[str, str]
    title: str = ""
    rows: list[tuple[str, ...]] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    metrics: Mapping[str, float] = field(default_factory=dict)


def results_of(evaluation: Evaluation) -> Results:
    """The results of a pass, whatever its labels are; of one without labels the number of samples."""
    if evaluation.task == "none":
        return Results({"samples": f"{evaluation.seen}, without labels"})
    if evaluation.others is None:
        rows, sections = _class_rows(evaluation), [confusion_section(evaluation)]
        metrics = {"accuracy": evaluation.accuracy}
        return Results(_class_facts(evaluation), "Classes", rows, sections, metrics)
    names = evaluation.names
    others, metrics = evaluation.others, evaluation.others.metrics()
    if evaluation.task == "labels":
        return Results(_label_facts(evaluation, others), "Labels", _label_rows(others, names), [], metrics)
    sections, rows = [answer_section(others, names)], _number_rows(others, names)
    return Results(_number_facts(evaluation, metrics), "Outputs", rows, sections, metrics)


def _class_facts(evaluation: Evaluation) -> dict[str, str]:
    counts = evaluation.confusion
    right, samples = int(counts.diagonal().sum()), int(counts.sum())
    recall = recall_precision(counts)[0]
    return {
        "accuracy": f"{evaluation.accuracy:.2%} ({right} of {samples} {evaluation.unit})",
        "mean recall of the classes": f"{float(recall.nanmean()):.2%}",
        "accuracy of always guessing the largest class": f"{int(counts.sum(1).max()) / max(samples, 1):.2%}",
    }


def _class_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """Headings; per class name, samples or labelled steps, recall, precision, and what it was mistaken for."""
    counts, names = evaluation.confusion, evaluation.names
    recall, precision = recall_precision(counts)
    rows: list[tuple[str, ...]] = [
        ("class", evaluation.unit, "recall", "precision", "most often mistaken for")
    ]
    for index, name in enumerate(names):
        others = counts[index].clone()
        others[index] = 0
        worst = f"{names[int(others.argmax())]} ({int(others.max())})" if int(others.max()) else ""
        shares = (_share(float(value)) for value in (recall[index], precision[index]))
        rows.append((name, f"{int(counts[index].sum())}", *shares, worst))
    return rows


def _number_facts(evaluation: Evaluation, metrics: Mapping[str, float]) -> dict[str, str]:
    return {
        "R2, mean of the outputs": f"{_number(metrics['r2'])} (1: exact, 0: as good as always guessing the mean)",
        "mean absolute error": _number(metrics["mae"]),
        "root mean squared error": _number(metrics["rmse"]),
        evaluation.unit: f"{evaluation.answered}",
    }


def _number_rows(answers: Answers, names: list[str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            "output",
            "known",
            "mean",
            "standard deviation",
            "R2",
            "mean absolute error",
            "root mean squared error",
        )
    ]
    for column, (name, found) in enumerate(zip(names, answers.measures(), strict=True)):
        target = answers.pairs(column)[0]
        mean, spread = (float(value) for value in (target.mean(), target.std(correction=0)))
        numbers = (mean, spread, found["r2"], found["mae"], found["rmse"])
        rows.append((name, f"{len(target)}", *map(_number, numbers)))
    return rows


def _label_facts(evaluation: Evaluation, answers: Answers) -> dict[str, str]:
    metrics = answers.metrics()
    known = torch.cat(answers.targets) > 0
    return {
        "F1, mean of the labels": _share(metrics["f1_macro"]),
        "F1 of all labels together": _share(metrics["f1_micro"]),
        f"{evaluation.unit} with all labels right": f"{_share(metrics['exact_match'])} of {evaluation.answered}",
        "the same of always giving no label": _share(float((~known).all(1).double().mean())),
    }


def _label_rows(answers: Answers, names: list[str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("label", "samples", "recall", "precision", "F1")]
    for name, found in zip(names, answers.measures(), strict=True):
        shares = (_share(found[measure]) for measure in ("recall", "precision", "f1"))
        rows.append((name, f"{found['samples']:.0f}", *shares))
    return rows


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"
