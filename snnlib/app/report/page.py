"""`report.html`: one page with a net's results on a data set; figures are inside the file."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure
from torch import Tensor, nn

from snnlib.app.report.evaluation import Evaluation, evaluate
from snnlib.app.report.figures import (
    Section,
    confusion_section,
    firing_sections,
    history_sections,
    operations_section,
    sample_sections,
)
from snnlib.app.report.heat import heat_maps
from snnlib.app.report.history import Columns, History
from snnlib.app.report.layers import COLUMNS, NOTE, layer_table
from snnlib.app.report.origin import origin
from snnlib.app.visual import recall_precision
from snnlib.data.atomic import write_bytes_atomically
from snnlib.inspect.activity import LayerActivity
from snnlib.inspect.gradcam import Occlusion
from snnlib.inspect.operation_profile import Profile


@dataclass(frozen=True)
class Report:
    """What a report found, and where it lies.

    Args:
        path: the HTML file.
        classes: names of the classes.
        confusion: samples, or labelled steps, by label (row) and prediction (column) `[classes, classes]`.
        layers: firing of each spiking layer.
        images: file name to PNG of every figure of the page.
        occlusion: the test of the heat maps; None for a net without a convolutional layer.
        profile: operations, sparsity, traffic and energy of each layer.
        unit: what is classified, `"samples"` or `"labelled steps"`.
    """

    path: Path
    classes: list[str]
    confusion: Tensor
    layers: list[LayerActivity]
    images: Mapping[str, bytes]
    occlusion: Occlusion | None
    profile: Profile
    unit: str = "samples"

    @property
    def accuracy(self) -> float:
        """Share of the samples, or of the labelled steps, that were classified correctly."""
        return int(self.confusion.diagonal().sum()) / max(int(self.confusion.sum()), 1)

    def __repr__(self) -> str:
        number = int(self.confusion.sum())
        return f"Report({str(self.path)!r}, accuracy {self.accuracy:.2%} of {number} {self.unit})"


def report(
    net: nn.Module,
    loader: Iterable[Any],
    *,
    classes: Sequence[str] | None = None,
    out: str | Path = "report.html",
    history: History | None = None,
    scores: Callable[[Any], Tensor] | None = None,
    batch_first: bool = False,
    step_ms: float | None = None,
    target_layer: str | None = None,
    neurons: Mapping[str, Sequence[int]] | None = None,
    title: str = "Spiking neural network",
    seed: int | None = None,
    facts: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Test a net on labelled data and write a page that shows what it does.

    The page holds accuracy, recall and precision per class with the confusion matrix; parameters, firing rates, dead
    and saturated neurons per layer; operations, sparsity and energy; histograms of firing rates and rates over time;
    spikes and membrane potentials of one sample; Grad-CAM heat maps with a test by occlusion; and, where a history is
    given, curves of losses, accuracies, learning rates, firing rates and dead neurons. A header names date, versions,
    commit, machine and seed.

    Spiking layers are found by what they give: any module whose output is a spike tensor counts. The net runs in
    evaluation mode, once over the loader.

    Args:
        net: any module that maps `[T, N, ...]` to class scores `[N, K]`, output spikes `[T, N, K]` (counted) or output
            potentials `[T, N, K]` (averaged over time).
        loader: gives batches `(x, labels)`: `[T, N, ...]` of any dtype and integer labels `[N]`, or a label for every
            step, `[T, N]` with -1 for "no label"; or `(x, labels, lengths)` of `snnlib.data.collate_ragged`, whose
            padding counts for nothing.
        classes: names of the classes; their numbers if None.
        out: the HTML file, or a folder for `report.html`. Replaced whole, or left as it was.
        history: one mapping of numbers per epoch, or columns of numbers by name. Names with `loss` or `acc` in them are
            drawn as losses and accuracies, `lr` or `learning_rate` as learning rates, `rate_<layer>` and `dead_<layer>`
            as firing rates and numbers of dead neurons; all columns go into a table.
        scores: maps the net's output to class scores `[N, K]`; the highest decides. Default: as described at `net`.
            With a label for every step, to scores `[T, N, K]`; default the output itself.
        batch_first: whether x and outputs are `[N, T, ...]`.
        step_ms: length of a time step in milliseconds; axes count steps if None.
        target_layer: name of the module that Grad-CAM looks at; default the last spiking layer with a grid of neurons.
        neurons: layer name to flat indices of the neurons whose potentials are drawn; default a few typical ones.
        title: heading of the page.
        seed: of the training run, for the header.
        facts: further rows for the table of results.
        settings: settings to list at the end of the page.

    Returns:
        The numbers and figures of the page.

    Raises:
        ImportError: a package of `snnlib[train]` is missing.
        ValueError: batches, labels, scores, names of classes, layers or columns that do not fit.
        OSError: the file cannot be written.

    >>> import tempfile, torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(12, 8), snnlib.SRMReadout(8, 3))
    >>> batches = [((torch.rand(20, 5, 12) < 0.3).float(), torch.randint(3, (5,))) for _ in range(2)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = snnlib.report(net, batches, classes=["left", "right", "wave"], out=folder)
    ...     result.path.name, int(result.confusion.sum()), [layer.name for layer in result.layers]
    ('report.html', 10, ['0'])
    """
    path = _html_path(Path(out))
    columns = Columns.of(history or {})
    known = None if classes is None else len(classes)
    evaluation = evaluate(net, loader, classes=known, scores=scores, batch_first=batch_first)
    names = [str(name) for name in (range(len(evaluation.confusion)) if classes is None else classes)]
    chosen = {name: list(indices) for name, indices in (neurons or {}).items()}
    _check_names(net, evaluation, chosen, target_layer)
    activity = evaluation.activity()

    sections = [confusion_section(evaluation, names)]
    sections += history_sections(columns)
    sections += sample_sections(
        net, evaluation, classes=names, batch_first=batch_first, step_ms=step_ms, neurons=chosen
    )
    sections += firing_sections(evaluation, step_ms)
    profile = evaluation.profile()
    sections += operations_section(profile)
    heat = heat_maps(
        net, evaluation, classes=names, target_layer=target_layer, batch_first=batch_first, step_ms=step_ms
    )
    if heat is not None:
        text = (
            "Where the spikes of the layer spoke for a class (Grad-CAM): the darker, the more; black dots are input "
            "events, in stretches of time and over the whole sample. Mistakes are shown with both their classes. Test "
            f"by occlusion: {heat.occlusion}. {heat.verdict()}"
        )
        sections.append(Section("heat.png", "Evidence in the input", text, heat.figure))
    images = {section.file: _png(section.figure) for section in sections}
    page = _template().render(
        title=title,
        origin=origin(net, seed),
        facts={**_test_facts(evaluation), **(facts or {})},
        unit=evaluation.unit,
        class_rows=_class_rows(evaluation.confusion, names),
        layer_columns=COLUMNS,
        layer_rows=layer_table(net, activity),
        layer_note=NOTE,
        operation_rows=profile.table(),
        energy_rows=profile.energy_rows(),
        sections=sections,
        # Embedded, so that the page still shows them when it is mailed or moved.
        images={file: base64.b64encode(data).decode() for file, data in images.items()},
        columns=columns,
        net=str(net),
        settings=settings or {},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(path, page.encode())
    occlusion = None if heat is None else heat.occlusion
    return Report(path, names, evaluation.confusion, activity, images, occlusion, profile, evaluation.unit)


def _html_path(out: Path) -> Path:
    return out if out.suffix.lower() in (".html", ".htm") and not out.is_dir() else out / "report.html"


def _check_names(
    net: nn.Module, evaluation: Evaluation, neurons: Mapping[str, Sequence[int]], target_layer: str | None
) -> None:
    for name, indices in neurons.items():
        if name not in evaluation.counts:
            found = ", ".join(evaluation.counts) or "none"
            raise ValueError(f"neurons: expected names of spiking layers ({found}), got {name!r}")
        size = evaluation.counts[name].numel()
        wrong = [index for index in indices if not 0 <= index < size]
        if wrong:
            raise ValueError(f"neurons: expected indices in 0..{size - 1} for layer {name!r}, got {wrong[0]}")
    if target_layer is not None and target_layer not in dict(net.named_modules()):
        raise ValueError(f"target_layer: expected the name of a module of the net, got {target_layer!r}")


def _test_facts(evaluation: Evaluation) -> dict[str, str]:
    counts = evaluation.confusion
    right, samples = int(counts.diagonal().sum()), int(counts.sum())
    recall = recall_precision(counts)[0]
    return {
        "accuracy": f"{evaluation.accuracy:.2%} ({right} of {samples} {evaluation.unit})",
        "mean recall of the classes": f"{float(recall.nanmean()):.2%}",
        "accuracy of always guessing the largest class": f"{int(counts.sum(1).max()) / max(samples, 1):.2%}",
    }


def _class_rows(counts: Tensor, names: list[str]) -> list[tuple[str, ...]]:
    """Per class: name, samples or labelled steps, recall, precision, and what they were most often mistaken for."""
    recall, precision = recall_precision(counts)
    rows = []
    for index, name in enumerate(names):
        others = counts[index].clone()
        others[index] = 0
        worst = f"{names[int(others.argmax())]} ({int(others.max())})" if int(others.max()) else ""
        shares = (
            "-" if value.isnan() else f"{float(value):.1%}" for value in (recall[index], precision[index])
        )
        rows.append((name, f"{int(counts[index].sum())}", *shares, worst))
    return rows


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _template() -> jinja2.Template:
    source = resources.files("snnlib.app.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
