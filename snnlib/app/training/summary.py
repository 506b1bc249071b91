"""The numbers of a finished run, in words: for the terminal and for the report."""

from __future__ import annotations

import math

import typer

from snnlib.app.training.classifier import TestResult
from snnlib.app.training.history import Row
from snnlib.app.training.run import TrainResult
from snnlib.inspect.activity import SATURATED_RATE
from snnlib.inspect.shown import in_columns

LAYER_COLUMNS = ("layer", "neurons", "spikes/step", "dead neurons", "saturated neurons")
LAYER_NOTE = (
    "spikes/step: spikes per neuron and time step, mean over the test set; dead: never fires; "
    f"saturated: fires in more than {SATURATED_RATE:.0%} of the steps"
)


def test_facts(test: TestResult) -> dict[str, str]:
    """Accuracy on the test set, with its samples or labelled steps."""
    right, samples = int(test.confusion.diagonal().sum()), int(test.confusion.sum())
    return {"test accuracy": f"{test.accuracy:.2%} ({right} of {samples} {test.unit})"}


# Not a test case, whatever its name says to pytest.
test_facts.__test__ = False  # type: ignore[attr-defined]


def run_facts(result: TrainResult) -> dict[str, str]:
    """Returns the summary of a run as texts by name."""
    rows = result.history
    speeds = sorted(row["samples_per_s"] for row in rows)
    broken = {"training": f"diverged in epoch {rows[-1]['epoch']:.0f}: the loss is {rows[-1]['train_loss']}"}
    return {
        **(broken if result.diverged else {}),
        **test_facts(result.test),
        **_best_epoch(rows),
        "training accuracy": f"{rows[-1]['train_accuracy']:.2%}",
        "training loss": f"{rows[-1]['train_loss']:.4f}",
        "training speed": f"{speeds[len(speeds) // 2]:.0f} samples/s (median epoch)",
        "training time": f"{sum(row['seconds'] for row in rows):.1f} s (epochs: {len(rows)})",
        **{f"peak memory ({name})": f"{peak / 2**20:.0f} MiB" for name, peak in result.peak_memory.items()},
    }


def _best_epoch(rows: list[Row]) -> dict[str, str]:
    """The epoch of the checkpoint `best`, if any: the first with the highest accuracy on the validation set."""
    # An epoch that diverged leaves no checkpoint.
    kept = [row for row in rows if "val_accuracy" in row and math.isfinite(row["train_loss"])]
    if not kept:
        return {}
    best = max(kept, key=lambda row: row["val_accuracy"])
    return {
        "best epoch (checkpoint best)": f"{best['epoch']:.0f}: validation accuracy {best['val_accuracy']:.2%}, "
        f"test accuracy {best['test_accuracy']:.2%}"
    }


def print_summary(facts: dict[str, str], test: TestResult) -> None:
    """Facts and layers as tables; colours are for terminals alone."""
    print("\n".join(["Result", *in_columns(list(facts.items()), left=2), ""]))
    if not test.layers:
        # A net without spikes.
        return
    rows = [(layer.name, *layer.texts()) for layer in test.layers]
    print("\n".join(["Layers", *in_columns([LAYER_COLUMNS, *rows], left=1)]))
    typer.secho(LAYER_NOTE, dim=True)
    for layer in test.layers:
        if layer.dead > layer.neurons / 2:
            typer.secho(
                f"Most neurons of {layer.name} are silent and cannot learn: "
                "try a higher --target-rate or a lower --lr.",
                fg="yellow",
            )


def print_confusion(test: TestResult) -> None:
    """The confusion matrix as a table of numbers."""
    rows = [
        (name, *(str(count) if count else "." for count in row))
        for name, row in zip(test.classes, test.confusion.tolist(), strict=True)
    ]
    print(
        "\n".join(["Confusion (columns: predicted)", *in_columns([("true", *test.classes), *rows], left=1)])
    )
