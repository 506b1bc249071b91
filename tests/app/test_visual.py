"""The plotting functions: what they draw, that they need no display and leave no global state."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from snnlib import neurons
from snnlib.app.visual import (
    accumulated_events,
    confusion_matrix,
    current_clamp,
    curves,
    f_i_curve,
    heat_strips,
    labels_over_time,
    membrane_potentials,
    operations,
    predictions,
    raster,
    rate_histograms,
    rates_over_time,
    save_png,
)

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def trains() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"input": (6, 2, 9, 9), "hidden": (6, 4, 5, 5), "output": (6, 10)}
    return {name: (torch.rand(shape, generator=generator) < 0.2).float() for name, shape in shapes.items()}


POTENTIAL = torch.linspace(-1, 2, 7)
FIGURES: list[Callable[[], Figure]] = [
    lambda: raster(trains(), step_ms=10.0, label=3),
    lambda: raster({"only": torch.zeros(1, 3)}, step_ms=1.0),
    lambda: confusion_matrix(torch.eye(3).long(), ["a", "b", "c"]),
    lambda: curves({"one": [0.5], "two": [0.1]}, title="t", ylabel="y", percent=True, target=(0.1, "guess")),
    lambda: accumulated_events(torch.zeros(4, 2, 5, 5), step_ms=10.0),
    lambda: curves({"nothing": [float("nan")]}, title="t", ylabel="y"),
    lambda: confusion_matrix(torch.eye(100).long(), list(map(str, range(100)))),
    lambda: rate_histograms({"a": torch.rand(9), "dead": torch.zeros(4, 3)}),
    lambda: rates_over_time({"a": torch.rand(7), "silent": torch.zeros(7)}),
    lambda: membrane_potentials(
        {"a": {"one": (POTENTIAL, POTENTIAL > 1), "lost": (POTENTIAL * torch.nan, POTENTIAL > 9)}}
    ),
    lambda: current_clamp(neurons.LIF(batch_first=True), torch.rand(9, 8), dt=0.5),
    lambda: f_i_curve(neurons.LIF(), torch.zeros(1), dt=0.5, duration=0.1),
]


@pytest.mark.parametrize("number", range(len(FIGURES)))
def test_saves_a_png(number: int, tmp_path: Path) -> None:
    save_png(FIGURES[number](), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG_MAGIC)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_uses_no_pyplot() -> None:
    # A copy: reading all values one by one makes matplotlib choose a backend, and import pyplot for it.
    before = "matplotlib.pyplot" in sys.modules, mpl.rcParams.copy()
    for draw in FIGURES:
        draw()
    assert before == ("matplotlib.pyplot" in sys.modules, mpl.rcParams.copy())


def test_axes_have_labels_with_units() -> None:
    drawn, confusion, lines = (FIGURES[number]() for number in (0, 2, 3))
    assert {axes.get_xlabel() for axes in drawn.axes} >= {"time (ms)", "output spikes"}
    (axes, *_) = confusion.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert lines.axes[0].get_ylabel() == "y"


def test_raster_marks_the_true_class_and_the_answer() -> None:
    output = torch.zeros(5, 3)
    output[:4, 1] = 1
    figure = raster({"output": output}, step_ms=1.0, classes=["a", "b", "c"], label=2)
    bars = next(axes for axes in figure.axes if axes.get_xlabel() == "output spikes")
    assert [bar.get_width() for bar in bars.patches] == [0, 4, 0]
    assert [label.get_fontweight() for label in bars.get_yticklabels()] == ["normal", "normal", "bold"]
    colours = [bar.get_facecolor() for bar in bars.patches]
    assert colours[0] == colours[2] != colours[1]


def test_raster_shows_potentials_where_the_output_does_not_fire() -> None:
    layers = {name: train for name, train in trains().items() if name != "output"}
    potentials = torch.tensor([[0.0, -1.0, 2.0]]).expand(6, 3)
    figure = raster(layers, step_ms=10.0, label=0, potentials=potentials)
    bars = next(axes for axes in figure.axes if axes.get_xlabel() == "mean output potential")
    assert [bar.get_width() for bar in bars.patches] == [0, -1, 2]
    assert bars.get_yticklabels()[0].get_fontweight() == "bold"
    curves_of = next(axes for axes in figure.axes if axes.get_ylabel() == "potential")
    assert [line.get_ydata().tolist() for line in curves_of.lines] == potentials.T.tolist()
    assert curves_of.lines[0].get_xdata().tolist() == [5.0, 15.0, 25.0, 35.0, 45.0, 55.0]
    # No sequence of spikes is taken for the output.
    assert not [axes for axes in figure.axes if axes.get_xlabel() == "output spikes"]
    drawn = [len(axes.collections[0].get_segments()) for axes in figure.axes if axes.collections]
    assert drawn == [int(train.sum()) for train in layers.values()]


def test_raster_counts_graded_spikes() -> None:
    layers = {"input": torch.rand(5, 2), "hidden": torch.tensor([[3.0, 0.0]]), "output": torch.eye(2) * 4}
    figure = raster(layers)
    bars = next(axes for axes in figure.axes if axes.get_xlabel() == "output spikes")
    assert [bar.get_width() for bar in bars.patches] == [4, 4]
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "2 neurons\n3 spikes\n50.0% of neurons\nfire in a time step" in said


def test_raster_draws_every_spike() -> None:
    layers = trains()
    figure = raster(layers, step_ms=10.0)
    drawn = [len(axes.collections[0].get_segments()) for axes in figure.axes if axes.collections]
    assert drawn == [int(train.sum()) for train in layers.values()]


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match=r"sequences: expected at least one layer, got none"):
        raster({}, step_ms=1.0)
    with pytest.raises(ValueError, match=r"counts: expected shape \(2, 2\) for 2 classes, got \(3, 3\)"):
        confusion_matrix(torch.eye(3), ["a", "b"])
    with pytest.raises(ValueError, match=r"frames: expected shape \[T, 2, H, W\], got \(4, 3, 5, 5\)"):
        accumulated_events(torch.zeros(4, 3, 5, 5), step_ms=1.0)


def test_channels_are_bands() -> None:
    axes = raster({"conv": torch.ones(3, 4, 5, 6)}).axes[0]
    # Channels 1 and 3 of 30 neurons each are shaded.
    bands = [(patch.get_y(), patch.get_y() + patch.get_height()) for patch in axes.patches]
    assert bands == [(29.5, 59.5), (89.5, 119.5)]
    assert axes.get_ylabel() == "channel"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "1", "2", "3"]


def test_axes_cover_the_values_shown() -> None:
    axes = curves({"a": [0.97, 0.99]}, title="t", ylabel="y", percent=True, target=(0.1, "chance")).axes[0]
    low, high = axes.get_ylim()
    assert 0.96 < low < 0.97 and 0.99 < high <= 1
    assert [line.get_label() for line in axes.lines] == ["a (last: 99%)"]
    gap = curves({"a": [2.0, float("nan"), 1.0, float("inf")]}, title="t", ylabel="y").axes[0]
    assert gap.lines[0].get_label() == "a (last: 1)"
    assert gap.get_ylim()[1] < 2.2


def test_confusion_has_recall_and_precision() -> None:
    axes = confusion_matrix(torch.tensor([[3, 1, 0], [0, 4, 0], [0, 0, 0]]), ["a", "b", "c"]).axes[0]
    texts = [text.get_text() for text in axes.texts]
    # Cells, then recall and precision of each class; c has no samples and was never predicted.
    assert texts == ["3", "1", "4", "75%", "100%", "100%", "80%", "-", "-", "recall", "precision"]


def test_potentials_and_their_spikes() -> None:
    potential, spikes = torch.tensor([0.5, 1.5, 0.2]), torch.tensor([0.0, 1.0, 0.0])
    axes = membrane_potentials({"fc": {"neuron 3": (potential, spikes)}}, step_ms=10.0).axes[0]
    threshold, curve, marks = axes.lines
    assert threshold.get_ydata() == [1, 1]
    assert curve.get_ydata().tolist() == potential.tolist()
    assert list(curve.get_xdata()) == [5.0, 15.0, 25.0]
    assert list(marks.get_xdata()) == [15.0]


def test_a_clamped_neuron_has_its_units_and_spikes() -> None:
    current = torch.zeros(40, 2)
    current[5:30, 1] = 3.0
    neuron = neurons.LIF(tau=5.0)
    above, below = current_clamp(neuron, current, dt=0.5, units=("mV above rest", "nA")).axes
    assert (above.get_ylabel(), below.get_ylabel()) == ("potential (mV above rest)", "current (nA)")
    assert below.get_xlabel() == "time (ms)" and below.get_xlim() == (0, 20)
    _, nothing, curve, marks = above.lines
    assert len(nothing.get_xdata()) == 0
    assert curve.get_ydata().tolist() == neuron.potential(current[:, 1, None, None]).flatten().tolist()
    fired = neuron(current[:, 1, None, None]).flatten().nonzero().flatten()
    assert len(fired) > 3 and list(marks.get_xdata()) == ((fired + 1) * 0.5).tolist()
    silent, _ = current_clamp(neurons.Integrator(tau=5.0), current[:, 1], dt=0.5).axes
    assert len(silent.lines[1].get_xdata()) == 0


def test_rates_are_of_the_first_and_of_the_settled_intervals() -> None:
    currents = torch.tensor([0.5, 1.1, 3.0])
    neuron = neurons.ALIF(tau_m=10.0, tau_a=100.0, beta=1.0)
    figure = f_i_curve(neuron, currents, dt=0.5, duration=500.0, theory=[1.0, 2.0, 3.0])
    settled, first, theory = (line.get_ydata().tolist() for line in figure.axes[0].lines)
    assert figure.axes[0].get_xlabel() == "current (pA)" and theory == [1, 2, 3]
    for current, slow, fast in zip(currents, settled, first, strict=True):
        at = neuron(current.expand(1000, 1, 1)).flatten().nonzero().flatten()
        late = at[len(at) and int((at < 500).sum()) - 1 :].double().diff()
        assert slow == pytest.approx(float(2000 / late.mean()) if len(late) else 0.0)
        assert fast == (pytest.approx(float(2000 / (at[1] - at[0]))) if len(at) > 1 else 0.0)
    assert 0 == settled[0] == first[0] < settled[2] < 0.9 * first[2]


@pytest.mark.parametrize(
    ("draw", "error"),
    [
        (lambda: current_clamp(neurons.LIF, torch.rand(9), dt=0.1), "neuron: expected an instance"),
        (lambda: current_clamp(neurons.LIF(), torch.rand(9), dt=0), "dt: expected a finite number > 0"),
        (
            lambda: current_clamp(neurons.LIF(), torch.rand(9, 2, 1), dt=1),
            r"current: expected \[T\] or \[T, K\]",
        ),
        (lambda: f_i_curve(neurons.LIF(), torch.rand(9, 2), dt=1), r"currents: expected \[K\]"),
        (lambda: f_i_curve(neurons.LIF(), torch.arange(3), dt=1), "currents: expected a floating dtype"),
        (lambda: f_i_curve(neurons.LIF(), torch.rand(2), dt=1, duration=-1), "duration: expected"),
        (lambda: f_i_curve(neurons.LIF(), torch.rand(2), dt=1, theory=[1]), "theory: expected"),
    ],
)
def test_a_clamp_names_the_argument(draw: Callable[[], Figure], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{error}"):
        draw()


def boxes(figure: Figure, texts: list[Text]) -> list[Any]:
    """Where texts are drawn, in pixels."""
    figure.canvas.draw()
    return [text.get_window_extent() for text in texts]


@pytest.mark.parametrize("shift", [-5.0, -0.3, 0.0])
def test_numbers_beside_bars_meet_nothing(shift: float) -> None:
    generator = torch.Generator().manual_seed(0)
    layers = {name: train for name, train in trains().items() if name != "output"}
    potentials = torch.randn(6, 5, generator=generator) + shift
    classes = ["walking fast", "left", "right hand wave", "clap", "arm roll"]
    figure = raster(layers, label=2, potentials=potentials, classes=classes)
    bars = next(axes for axes in figure.axes if axes.get_xlabel() == "mean output potential")
    names = [label for label in bars.get_yticklabels() if label.get_text()]
    drawn = boxes(figure, [*names, *bars.texts])
    assert len(names) == len(bars.texts) == 5
    patches = [bar.get_window_extent() for bar in bars.patches]
    for number, box in enumerate(drawn):
        assert not any(box.overlaps(other) for other in drawn[:number])
        assert not any(box.overlaps(bar) for bar in patches)
    # Nor does a number leave its axes.
    assert all(bars.bbox.x0 < box.x0 and box.x1 < bars.bbox.x1 for box in drawn[5:])


def test_steps_are_counted_in_whole_numbers() -> None:
    steps = 20
    drawn = [
        raster({"only": torch.zeros(steps, 3)}),
        membrane_potentials({"a": {"one": (torch.rand(steps), torch.zeros(steps))}}),
        rates_over_time({"a": torch.rand(steps)}),
        labels_over_time({"s": (torch.zeros(steps).long(), torch.zeros(steps).long())}, ["a"]),
    ]
    for figure in drawn:
        ticks = figure.axes[0].get_xticks()
        assert len(ticks) > 2 and all(float(tick).is_integer() for tick in ticks)


def test_points_at_100_percent_are_whole() -> None:
    axes = curves({"a": [0.5, 1.0]}, title="t", ylabel="y", percent=True).axes[0]
    assert axes.get_ylim()[1] == 1 and not axes.lines[0].get_clip_on()


def test_operations_are_points_with_their_share() -> None:
    figure = operations({"a": (79.0, 0.0, 10000.0), "b": (0.0, 20.0, 80.0), "silent": (0.0, 0.0, 640.0)})
    axes = figure.axes[0]
    points = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert points["dense products"] == ([10000, 80, 640], [0, 1, 2])
    assert points["accumulations"] == ([79], [0]) and points["multiplications"] == ([20], [1])
    assert not axes.patches and axes.get_xscale() == "log"
    assert [text.get_text().strip() for text in axes.texts] == ["0.79%", "25.00%", "0.00%"]
    one = operations({"fc1": (100.0, 0.0, 4000.0)})
    one.canvas.draw()
    legend, label = one.legends[0].get_window_extent(), one.axes[0].xaxis.label.get_window_extent()
    assert not legend.overlaps(label)


def test_bars_of_many_outputs_name_some() -> None:
    figure = raster({"input": torch.ones(4, 3), "output": torch.ones(4, 50)}, label=7)
    bars = next(axes for axes in figure.axes if axes.get_ylabel() == "class")
    assert [text.get_text() for text in bars.get_yticklabels()] == [
        *("0", "5", "7"),
        *map(str, range(10, 50, 5)),
    ]
    assert not bars.texts


@pytest.mark.parametrize("neurons", [11, 12, 20, 32, 100])
def test_names_beside_a_raster_do_not_meet(neurons: int) -> None:
    figure = raster({"input": torch.ones(4, neurons), "output": torch.ones(4, neurons)})
    for axes in figure.axes:
        names = [text for text in axes.get_yticklabels() if text.get_text() and axes.axison]
        # The line of a text has a pixel of room above and below it.
        drawn = [box.padded(-1) for box in boxes(figure, names)]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(drawn, 2))


def test_titles_of_histograms_stay_in_their_panels() -> None:
    names = ["features.0 (convolution)", "features.3 (convolution)"]
    figure = rate_histograms({name: torch.rand(2_985_984) for name in names})
    titles = boxes(figure, [axes._left_title for axes in figure.axes])
    edges = [figure.axes[1].get_tightbbox().x0, figure.bbox.x1]
    assert all(title.x1 <= edge for title, edge in zip(titles, edges, strict=True))


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (raster, "sequences"),
        (rates_over_time, "rates"),
        (rate_histograms, "rates"),
        (operations, "layers"),
        (membrane_potentials, "layers"),
        (lambda given: labels_over_time(given, ["a", "b"]), "rows"),
        (lambda given: curves(given, title="", ylabel=""), "series"),
        (predictions, "pairs"),
        (lambda given: heat_strips(given, step_ms=1.0), "samples"),
    ],
)
@pytest.mark.parametrize("given", [torch.nn.Sequential(), torch.zeros(3, 2)], ids=["net", "tensor"])
def test_a_net_or_a_tensor_in_place_of_values_by_name_is_named(
    draw: Callable[[Any], object], name: str, given: object
) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: expected a dict or list.*, got {type(given).__name__}$"):
        draw(given)
