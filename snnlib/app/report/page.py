"""`report.html`: one page with a net's results on a data set; figures are inside the file."""

from __future__ import annotations

import base64
import math
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import torch
from torch import Tensor, nn

from snnlib import __version__
from snnlib.app.report.evaluation import Evaluation, evaluate
from snnlib.app.report.figures import firing_sections, operations_section
from snnlib.app.report.heat import heat_maps
from snnlib.app.report.history import Columns, History, history_sections
from snnlib.app.report.layers import COLUMNS, NOTE, layer_table
from snnlib.app.report.results import results_of
from snnlib.app.report.sample_figures import sample_sections
from snnlib.app.report.section import Section
from snnlib.app.visual.canvas import png_of
from snnlib.explain import Occlusion
from snnlib.files.atomic import write_bytes_atomically
from snnlib.inspect.activity import LayerActivity
from snnlib.inspect.environment import processor_name
from snnlib.inspect.operations import Profile


@dataclass(frozen=True)
class Report:
    """Result of `report`, and the path of its page.

    Args:
        path: the HTML file.
        classes: names of the classes.
        confusion: samples, or labelled steps, by label (row) and prediction (column) `[classes, classes]`; `[0, 0]`
            where nothing is classified.
        layers: firing of each spiking layer.
        images: file name to PNG of every figure of the page.
        occlusion: the test of the heat maps; None for a net without a convolutional layer.
        profile: operations, sparsity, traffic and energy of each layer.
        unit: what is answered, `"samples"`, `"labelled steps"` or `"steps"`.
        metrics: `accuracy`; of a regression `r2`, `mae` and `rmse`, means over its outputs; of several labels per
            sample `f1_macro`, `f1_micro` and `exact_match`; empty without labels.
    """

    path: Path
    classes: list[str]
    confusion: Tensor
    layers: list[LayerActivity]
    images: Mapping[str, bytes]
    occlusion: Occlusion | None
    profile: Profile
    unit: str = "samples"
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Share of the samples, or of the labelled steps, that were classified correctly; NaN without classes."""
        return self.metrics.get("accuracy", math.nan)

    def __repr__(self) -> str:
        if "accuracy" in self.metrics:
            found = f"accuracy {self.accuracy:.2%} of {int(self.confusion.sum())} {self.unit}"
        else:
            found = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items()) or "no labels"
        return f"Report({str(self.path)!r}, {found})"

    def _repr_html_(self) -> str:
        """Returns the findings and a link to the page, for a notebook."""
        link = self.path.resolve().as_uri()
        return f'<p>{escape(repr(self))}<br><a href="{escape(link)}">{escape(self.path.name)}</a></p>'


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
    """Test a net on data and write a page that shows what it does.

    The page begins with what to do next, the first findings of `SpikeDoctor` in a few samples, and a list of contents.
    It holds accuracy, recall and precision per class with the confusion matrix, or what fits other labels (see
    `loader`); parameters, firing rates, dead and saturated neurons per layer; operations, sparsity and energy;
    histograms of firing rates and rates over time; spikes and membrane potentials of one sample; Grad-CAM heat maps
    with a test by occlusion; and, where a history is given, curves of losses, accuracies, learning rates, firing rates
    and dead neurons. A header names date, versions, commit, machine and seed.

    Spiking layers are found by what they give: any module whose output is a spike tensor counts, with graded spikes
    those of snnlib. The net runs in evaluation mode, once over the loader.

    Args:
        net: any module that maps `[T, N, ...]` to class scores `[N, K]`, output spikes `[T, N, K]` (counted) or output
            potentials `[T, N, K]` (averaged over time).
        loader: gives batches `(x, labels)`: `[T, N, ...]` of any dtype and integer labels `[N]`, or a label for every
            step, `[T, N]` with -1 for "no label"; or `(x, labels, lengths)` of `snnlib.data.collate_ragged`, whose
            padding counts for nothing. Other labels: floats `[N]` or `[N, K]` are numbers to predict (R2, errors, a
            scatter of predictions; NaN for unknown), truth values or 0 and 1 in `[N, K]` are several labels per sample
            (F1 of each, given where its score is above 0), both also for every step, `[T, N]` or `[T, N, K]`. Batches
            of x alone give the page without what needs labels.
        classes: names of the classes, numbers or labels; their numbers if None.
        out: the HTML file, or a folder for `report.html`. Replaced whole, or left as it was.
        history: one mapping of numbers per epoch, or columns of numbers by name. Names with `loss` or `acc` in them are
            drawn as losses and accuracies, `lr` or `learning_rate` as learning rates, `rate_<layer>` and `dead_<layer>`
            as firing rates and numbers of dead neurons; epochs with a `warned_<layer>` above 0 are marked in both. All
            columns go into a table.
        scores: maps the net's output to class scores `[N, K]`; the highest decides. Default: as described at `net`.
            With a label for every step, to scores `[T, N, K]`; default the output itself. Of other labels, to answers
            of their shape.
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
    others = evaluation.others
    count = len(evaluation.confusion) if others is None else others.columns
    names = [str(name) for name in (range(count) if classes is None else classes)]
    if others is not None and len(names) != count:
        raise ValueError(f"classes: expected {count} names, one per column of the labels, got {len(names)}")
    evaluation.names, evaluation.step_ms = names, step_ms
    chosen = {name: list(indices) for name, indices in (neurons or {}).items()}
    _check_names(evaluation, chosen, target_layer)
    activity = evaluation.activity()

    results = results_of(evaluation)
    sections = list(results.sections)
    sections += history_sections(columns)
    sections += sample_sections(evaluation, chosen)
    sections += firing_sections(evaluation)
    profile = evaluation.profile()
    sections += operations_section(profile)
    heat = heat_maps(evaluation, target_layer)
    if heat is not None:
        text = (
            "Where the spikes of the layer spoke for a class (Grad-CAM): the darker, the more; black dots are input "
            "events, in stretches of time and over the whole sample. Mistakes are shown with both their classes. Test "
            f"by occlusion: {heat.occlusion}. {heat.verdict()}"
        )
        sections.append(Section("heat.png", "Evidence in the input", text, heat.figure))
    images = {section.file: png_of(section.figure) for section in sections}
    page = _template().render(
        title=title,
        origin=_origin(net, seed),
        next_steps=evaluation.next_steps(),
        facts={**results.facts, **(facts or {})},
        class_title=results.title,
        class_rows=results.rows,
        layer_columns=COLUMNS,
        layer_rows=layer_table(net, activity, profile),
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
    return Report(
        path,
        names,
        evaluation.confusion,
        activity,
        images,
        occlusion,
        profile,
        evaluation.unit,
        results.metrics,
    )


def _html_path(out: Path) -> Path:
    return out if out.suffix.lower() in (".html", ".htm") and not out.is_dir() else out / "report.html"


def _check_names(
    evaluation: Evaluation, neurons: Mapping[str, Sequence[int]], target_layer: str | None
) -> None:
    for name, indices in neurons.items():
        if name not in evaluation.counts:
            found = ", ".join(evaluation.counts) or "none"
            raise ValueError(f"neurons: expected names of spiking layers ({found}), got {name!r}")
        size = evaluation.counts[name].numel()
        wrong = [index for index in indices if not 0 <= index < size]
        if wrong:
            raise ValueError(f"neurons: expected indices in 0..{size - 1} for layer {name!r}, got {wrong[0]}")
    if target_layer is not None and target_layer not in dict(evaluation.net.named_modules()):
        raise ValueError(f"target_layer: expected the name of a module of the net, got {target_layer!r}")


def _template() -> jinja2.Template:
    source = resources.files("snnlib.app.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)


def _origin(net: nn.Module, seed: int | None) -> dict[str, str]:
    """Facts for the header of a report, by name; what is not known is left out."""
    device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))
    commit = _commit_here()
    threads = torch.get_num_threads()
    processor = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{processor_name()}, {threads} thread{'s' * (threads != 1)}"
    )
    return {
        "date": f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        "snnlib": __version__,
        **({"commit of the working directory": commit} if commit else {}),
        "torch, Python": f"{torch.__version__}, {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}, {processor}",
        "device": str(device),
        "seed": "not given" if seed is None else str(seed),
    }


def _commit_here() -> str:
    """The commit that is checked out in the working directory, with `-dirty` for changes; empty without one."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
