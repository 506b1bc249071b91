"""`snnlib.report` of nets and data of one's own: numbers against a pass by hand, sections, errors."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.app.report.evaluation import evaluate
from snnlib.app.report.heat import pixels_per_cell
from snnlib.app.report.history import Columns, history_sections
from snnlib.app.report.recorder import recording, spiking_layers
from snnlib.app.report.sample_figures import normalised_potential, sample_sections

CLASSES = ["left", "right", "wave"]


def loader(
    batches: int = 3, size: int = 8, dtype: torch.dtype = torch.float32
) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            (torch.rand(12, size, 2, 12, 16, generator=generator) < 0.15).to(dtype),
            torch.randint(3, (size,), generator=generator),
        )
        for _ in range(batches)
    ]


def conv_net(readout: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    constants = {"tau_m": 4.0, "tau_s": 2.0}
    last: nn.Module = snnlib.SRMReadout(20, 3) if readout else snnlib.SRMLinear(20, 3, **constants)
    return nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3, padding=1, **constants),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(4, 6, 3, stride=2, padding=1, **constants),
        nn.Flatten(2),
        snnlib.SRMLinear(6 * 3 * 4, 20, **constants),
        last,
    )


def strong(net: nn.Module) -> nn.Module:
    """As large weights as make all layers fire."""
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(3)
    return net


UNDRAWN = pytest.mark.usefixtures("undrawn")
HISTORY = [
    {"epoch": 1, "train_loss": 2.0, "test_accuracy": 0.4, "lr": 1e-3, "dead_0": 5, "rate_0": 0.1},
    {"epoch": 2, "train_loss": 1.0, "test_accuracy": 0.6, "lr": 1e-4, "dead_0": 3, "rate_0": 0.2},
]


def test_one_call_for_a_net_of_ones_own(tmp_path: Path) -> None:
    net, data = strong(conv_net()), loader()
    result = snnlib.report(
        net, data, classes=CLASSES, out=tmp_path / "r.html", history=HISTORY, step_ms=5.0, seed=7
    )
    answers = torch.cat([net(x).sum(0).argmax(1) for x, _ in data])
    labels = torch.cat([y for _, y in data])
    expected = torch.zeros(3, 3, dtype=torch.long)
    for label, answer in zip(labels.tolist(), answers.tolist(), strict=True):
        expected[label, answer] += 1
    assert torch.equal(result.confusion, expected)
    assert result.profile == snnlib.profile(net, data) and result.profile.total.acs > 0
    assert [layer.name for layer in result.layers] == ["0", "2", "4", "5"]
    assert set(result.images) == {
        *("confusion.png", "loss.png", "accuracy.png", "learning_rate.png", "spike_rates.png", "dead.png"),
        *("raster.png", "potentials.png", "rate_histograms.png", "rates_over_time.png", "heat.png"),
        "operations.png",
    }
    page = result.path.read_text()
    assert page.count("data:image/png;base64,") == len(result.images)
    assert f"{result.accuracy:.2%} ({int(expected.diagonal().sum())} of 24 samples)" in page
    for text in ("wave", f"snnlib: {snnlib.__version__}", "seed: 7", "Test by occlusion"):
        assert text in page
    assert re.search(r"<td>0</td><td>SRMConv2d</td><td>72</td><td>768</td>", page)
    links = re.findall(r'<a href="#([^"]+)">', page)
    assert links == re.findall(r'<h2 id="([^"]+)">', page) and {"layers", "membrane-potentials"} <= set(links)
    # Nothing is fetched from elsewhere.
    assert "://" not in page
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_rates_and_dead_neurons_are_those_of_a_pass_by_hand() -> None:
    net, data = strong(conv_net()), loader()
    with torch.no_grad():
        # A neuron that cannot fire.
        net[4].weight[5] = -1.0
        spikes = torch.cat([net[:5](x) for x, _ in data], 1)
    result = evaluate(net, data, classes=3, scores=None, batch_first=False)
    torch.testing.assert_close(result.rates()["4"], spikes.double().mean((0, 1)))
    torch.testing.assert_close(result.rates_over_time()["4"], spikes.double().mean((1, 2)))
    layer = next(layer for layer in result.activity() if layer.name == "4")
    assert layer.dead == int((spikes.sum((0, 1)) == 0).sum()) >= 1
    assert layer.rate == pytest.approx(float(spikes.mean()))


@UNDRAWN
def test_fused_and_training_nets_are_left_as_they_were(tmp_path: Path) -> None:
    net, data = strong(conv_net()), loader(1)
    plain = snnlib.report(net, data, out=tmp_path / "a.html")
    snnlib.fuse_(net).train()
    fused = snnlib.report(net, data, out=tmp_path / "b.html")
    assert net.training and isinstance(net, snnlib.nn.fusion.fuse.Fused)
    assert fused.layers == plain.layers


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_inputs_of_any_dtype(dtype: torch.dtype) -> None:
    net = strong(conv_net())
    expected = evaluate(net, loader(1), classes=None, scores=None, batch_first=False)
    found = evaluate(net, loader(1, dtype=dtype), classes=None, scores=None, batch_first=False)
    assert torch.equal(found.confusion, expected.confusion)


def _batch_first(net: nn.Sequential) -> nn.Sequential:
    for module in net.modules():
        if hasattr(module, "batch_first"):
            module.batch_first = True
    return net


@UNDRAWN
def test_batch_first(tmp_path: Path) -> None:
    data = loader(2)
    expected = snnlib.report(strong(conv_net(readout=True)), data, out=tmp_path / "a.html")
    swapped = [(x.transpose(0, 1).contiguous(), labels) for x, labels in data]
    net = _batch_first(strong(conv_net(readout=True)))
    found = snnlib.report(net, swapped, out=tmp_path / "b.html", batch_first=True)
    assert torch.equal(found.confusion, expected.confusion)
    assert [layer.dead for layer in found.layers] == [layer.dead for layer in expected.layers]
    assert found.occlusion is not None and expected.occlusion is not None
    torch.testing.assert_close(found.occlusion.hottest, expected.occlusion.hottest)


class Step(nn.Module):
    """A neuron layer of one's own: no weights, no memory."""

    def forward(self, current: Tensor) -> Tensor:
        return (current > 0.5).to(current)


class OwnNet(nn.Module):
    """Batch norm, neurons of one's own, a dense head: scores [N, K]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.neuron = Step()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        spikes = self.neuron(self.conv(x.flatten(0, 1)).unflatten(0, x.shape[:2]))
        return self.head(spikes.mean((0, 3, 4)))


@UNDRAWN
def test_any_module(tmp_path: Path) -> None:
    torch.manual_seed(0)
    result = snnlib.report(OwnNet(), loader(1), out=tmp_path)
    assert result.path == tmp_path / "report.html"
    assert [layer.name for layer in result.layers] == ["neuron"]
    assert result.layers[0].neurons == 4 * 10 * 14


@UNDRAWN
def test_a_net_without_spikes_or_frames(tmp_path: Path) -> None:
    data = [((torch.rand(5, 4, 6) < 0.5).float(), torch.tensor([0, 1, 1, 0]))]
    result = snnlib.report(snnlib.SRMReadout(6, 2), data, out=tmp_path)
    assert result.layers == [] and result.occlusion is None
    assert set(result.images) == {"confusion.png", "raster.png", "operations.png"}


@UNDRAWN
def test_the_page_begins_with_what_to_do_next(tmp_path: Path) -> None:
    def said(net: nn.Module) -> list[str]:
        page = snnlib.report(net, loader(1), out=tmp_path).path.read_text()
        return re.findall(r"<li>(.+)</li>", page.partition("<nav>")[0])

    net = strong(conv_net())
    with torch.no_grad():
        net[0].weight.zero_()
    (first,) = said(net)
    assert first.startswith("Layer 0: no neuron fired in 8 samples") and "snnlib.prepare_" in first
    (other,) = said(nn.Sequential(nn.Flatten(2), nn.Linear(384, 3)))
    assert "layers and neurons of snnlib alone" in other


def test_neurons_of_the_potentials_fire_in_the_sample_shown(tmp_path: Path) -> None:
    net, data = strong(conv_net()), loader(1)
    evaluation = evaluate(net, data, classes=3, scores=None, batch_first=False)
    evaluation.names = CLASSES
    (section,) = [section for section in sample_sections(evaluation, {}) if section.file == "potentials.png"]
    for axes in section.figure.axes:
        assert axes.get_ylim()[0] >= -3
        drawn = [line for line in axes.lines if line.get_marker() == "|"]
        named = [text.get_text() for text in axes.get_legend().get_texts()]
        fires = [len(line.get_xdata()) > 0 for line in drawn]
        assert fires == [not name.startswith("nearest") for name in named]


def test_silent_and_diverged_nets_have_a_report(tmp_path: Path) -> None:
    for number, value in enumerate((0.0, float("nan"))):
        net = conv_net(readout=True)
        for weight in net.parameters():
            nn.init.constant_(weight, value)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            result = snnlib.report(net, loader(1), out=tmp_path / f"{number}.html", history=[{"loss": value}])
        assert int(result.confusion.sum()) == 8
        said = [str(warning.message) for warning in caught]
        assert any("got NaN for 8 of 8 samples" in text for text in said) == bool(number)


def test_parametrized_weights_count_for_their_layer() -> None:
    net = nn.Sequential(conv_net())
    x = loader(1)[0][0]

    def by_layer() -> dict[str, int]:
        return {each.name: each.parameters for each in snnlib.profile(net, x).layers if each.parameters}

    before = by_layer()
    assert before == {"0.0": 72, "0.2": 216, "0.4": 1440, "0.5": 60}
    snnlib.nn.standardize_weights_(net)
    assert by_layer().keys() == before.keys()


def lif_net() -> nn.Sequential:
    """Layers with LIF neurons, a neuron module behind a layer of torch, and both times of the reset."""
    torch.manual_seed(0)
    lif = snnlib.neurons.LIF
    return nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, padding=1, neuron=lif(threshold=torch.tensor([0.5, 1.0, 1.5, 2.0]))),
        snnlib.PerStep(nn.AvgPool2d(2)),
        snnlib.PerStep(nn.Conv2d(4, 6, 3, bias=False)),
        lif(threshold=0.2, reset="subtract", reset_time="next"),
        snnlib.SpikingLinear(6 * 4 * 6, 3, neuron=lif(threshold=0.2, reset="none")),
    )


@pytest.mark.parametrize("build", [conv_net, lif_net])
def test_layers_hand_their_potential(build: Callable[[], nn.Sequential]) -> None:
    """Potentials reach the threshold where, and only where, there are spikes."""
    net, (x, _) = strong(build()), loader(1)[0]
    layers = spiking_layers(net, x)
    with torch.no_grad(), recording(net, layers, batch_first=False) as recorded:
        net(x)
    assert len(layers) == (4 if build is conv_net else 3)
    for name, layer in layers.items():
        assert bool(recorded[name].spikes.any())
        potential = normalised_potential(layer, recorded[name].input)
        assert potential is not None
        assert torch.equal(potential >= 1, recorded[name].spikes != 0), name


def graded_net() -> nn.Sequential:
    torch.manual_seed(0)
    graded = snnlib.neurons.IF
    return nn.Sequential(
        snnlib.SpikingLinear(4, 6, neuron=graded(levels=4)),
        graded(levels=2),
        snnlib.SpikingLinear(6, 3, neuron=graded(levels=4)),
    )


@pytest.mark.parametrize("scale", [0.1, 1.0])
@pytest.mark.parametrize("batch_first", [False, True])
def test_graded_spikes_are_counted_whatever_a_batch_gives(scale: float, batch_first: bool) -> None:
    net, x = graded_net(), 8 * (torch.rand(10, 5, 4) < 0.2).float()
    nn.init.constant_(net[0].weight, scale)
    nn.init.constant_(net[2].weight, 1.0)
    for layer in (net[0], net[1], net[2]):
        layer.batch_first = batch_first
    data = [(x.transpose(0, 1) if batch_first else x, torch.zeros(5, dtype=torch.long))]
    found = evaluate(net, data, classes=3, scores=None, batch_first=batch_first)
    found.names = CLASSES
    assert found.decision == "spike count"
    with torch.no_grad():
        outputs = [net[:number](data[0][0]).flatten(0, 1) for number in (1, 2, 3)]
    for layer, output in zip(found.activity(), outputs, strict=True):
        assert layer.rate == pytest.approx(float(output.mean()))
        assert (layer.dead, layer.saturated) == (0, int(((output != 0).float().mean(0) > 0.9).sum()))
    assert outputs[2].max() > 1
    raster_of = sample_sections(found, {})[0].figure
    assert any(axes.get_xlabel() == "output spikes" for axes in raster_of.axes)


def test_a_trained_graded_net_has_a_report(tmp_path: Path) -> None:
    trained = snnlib.models.load("keywords-chip")
    x = (torch.rand(20, 4, *trained.card.input_shape) * 8).floor()
    result = snnlib.report(trained.net, [(x, torch.arange(4))], out=tmp_path / "r.html")
    assert [layer.name for layer in result.layers] == ["neuron1", "neuron2", "neuron3"]
    assert [layer.neurons for layer in result.layers] == [480, 320, 96]
    assert all(layer.rate > 0 for layer in result.layers)
    assert {"raster.png", "rate_histograms.png", "rates_over_time.png"} <= set(result.images)
    page = result.path.read_text()
    assert "highest mean membrane potential" in page and "<th>spikes/step</th>" in page


def test_heat_maps_know_the_strides_of_a_chain() -> None:
    net, (x, _) = strong(conv_net()), loader(1)[0]
    layers = spiking_layers(net, x)
    with torch.no_grad(), recording(net, layers, batch_first=False) as recorded:
        net(x)
    assert pixels_per_cell(net, recorded, "0") == (1, 1)
    assert pixels_per_cell(net, recorded, "2") == (4, 4)


@UNDRAWN
def test_history_as_columns(tmp_path: Path) -> None:
    columns = {name: [row[name] for row in HISTORY] for name in HISTORY[0]}
    net, data = _two(2), [(_spikes(), torch.zeros(8, dtype=torch.long))]
    result = snnlib.report(net, data, out=tmp_path, history=columns)
    assert {"loss.png", "accuracy.png", "learning_rate.png", "dead.png"} <= set(result.images)
    # Wide histories are split, so that no table is wider than the page.
    many = {"epoch": [7.0], **{f"rate_{layer}": [0.5] for layer in range(9)}}
    page = snnlib.report(net, data, out=tmp_path, history=many).path.read_text()
    rows = [row for row in page.split("<tr>") if "<th>epoch</th>" in row or "<td>7</td>" in row]
    assert [row.count("<th>") or row.count("<td>") for row in rows] == [8, 8, 3, 3]
    assert all(page.count(f"<th>{name}</th>") == 1 + (name == "epoch") for name in many)
    with pytest.raises(ValueError, match="history: expected columns of one length"):
        snnlib.report(net, data, out=tmp_path, history={"loss": [1.0], "lr": [1.0, 2.0]})


@UNDRAWN
def test_epochs_in_which_a_layer_warned_are_marked(tmp_path: Path) -> None:
    columns = {
        "rate_0": [0.1, 0.0, 0.0],
        "rate_2": [0.1, 0.1, 0.1],
        "warned_0": [0, 2, 0],
        "warned_2": [0, 0, 0],
    }
    (section,) = history_sections(Columns.of(columns))
    (marks,) = [drawn for drawn in section.figure.axes[0].collections if len(drawn.get_offsets())]
    assert marks.get_offsets().tolist() == [[2, 0]]
    data = [(_spikes(), torch.zeros(8, dtype=torch.long))]
    result = snnlib.report(_two(2), data, out=tmp_path, history=columns)
    assert "A cross is an epoch in which the layer warned of its training." in result.path.read_text()
    (section,) = history_sections(Columns.of({"rate_0": [0.1, 0.0]}))
    assert "cross" not in section.text and not section.figure.axes[0].collections


def _spikes(samples: int = 8, steps: int = 12, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rate = torch.rand(1, samples, 1, generator=generator)
    return (torch.rand(steps, samples, 6, generator=generator) < rate).float()


def _two(columns: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(snnlib.SRMLinear(6, 20), snnlib.SRMReadout(20, columns))


def test_numbers_have_r2_and_a_scatter(tmp_path: Path) -> None:
    net = _two(2)
    data = [
        (x, x.mean((0, 2)).unsqueeze(1) * torch.tensor([1.0, -2.0])) for x in (_spikes(), _spikes(seed=1))
    ]
    data[0][1][0, 1] = torch.nan
    result = snnlib.report(net, data, classes=["speed", "angle"], out=tmp_path / "r.html", step_ms=1.0)
    with torch.no_grad():
        answers = torch.cat([net(x).mean(0) for x, _ in data]).double()
    targets = torch.cat([y for _, y in data]).double()
    expected = []
    for target, answer in zip(targets.T, answers.T, strict=True):
        known = ~target.isnan()
        rest = (target - answer)[known].square().sum() / (target[known] - target[known].mean()).square().sum()
        expected.append(float(1 - rest))
    assert result.metrics["r2"] == pytest.approx(sum(expected) / 2)
    assert result.metrics["mae"] == pytest.approx(
        sum(float((targets - answers)[:, k].abs().nanmean()) for k in range(2)) / 2
    )
    page = result.path.read_text()
    assert all(f"<td>{value:.4g}</td>" in page for value in expected)
    assert "Predictions" in page
    assert ">Outputs</h2>" in page
    assert "Confusion" not in page
    assert "recall" not in page
    assert {"predictions.png", "raster.png", "rate_histograms.png", "operations.png"} <= set(result.images)
    assert not {"confusion.png", "heat.png"} & set(result.images)
    assert result.confusion.shape == (0, 0) and repr(result).endswith(f"rmse {result.metrics['rmse']:.4g})")
    assert page.count("<img") == len(result.images) and result.layers[0].name == "0"


@UNDRAWN
def test_numbers_at_every_step_without_padding(tmp_path: Path) -> None:
    net, lengths = _two(1), torch.tensor([12, 5, 9, 12, 1, 12, 3, 8])
    x = _spikes()
    inside = torch.arange(12).unsqueeze(1) < lengths
    targets = torch.rand(12, 8, generator=torch.Generator().manual_seed(3))
    result = snnlib.report(net, [(x, targets, lengths)], out=tmp_path)
    with torch.no_grad():
        errors = (snnlib.run_ragged(net, x, lengths)[..., 0] - targets)[inside]
    assert result.metrics["mae"] == pytest.approx(float(errors.abs().mean()), rel=1e-5)
    assert result.unit == "steps" and f"<td>{int(inside.sum())}</td>" in result.path.read_text()
    swapped = [(x.transpose(0, 1), targets.T, lengths)]
    again = snnlib.report(_batch_first(_two(1)), swapped, out=tmp_path, batch_first=True)
    assert again.metrics == pytest.approx(result.metrics)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@UNDRAWN
def test_several_labels_have_an_f1_each(dtype: torch.dtype, tmp_path: Path) -> None:
    net, x = _two(3), _spikes()
    labels = (torch.rand(8, 3, generator=torch.Generator().manual_seed(2)) < 0.5).to(dtype)
    labels[:, 2] = 0
    with torch.no_grad():
        scores = net(x).mean(0)
        scores[:, 2] = -1.0
    result = snnlib.report(
        net,
        [(x, labels)],
        classes=["a", "b", "c"],
        out=tmp_path,
        scores=lambda output: scores[: output.shape[1]],
    )
    given, wanted = scores > 0, labels > 0
    f1 = [
        2 * int((given & wanted)[:, k].sum()) / max(int(given[:, k].sum() + wanted[:, k].sum()), 1)
        for k in range(2)
    ]
    # Label c is neither there nor given.
    assert result.metrics["f1_macro"] == pytest.approx(sum(f1) / 2)
    assert result.metrics["exact_match"] == pytest.approx(float((given == wanted).all(1).float().mean()))
    page = result.path.read_text()
    assert ">Labels</h2>" in page and f"<td>a</td><td>{int(wanted[:, 0].sum())}</td>" in page
    assert set(result.images) >= {"raster.png"} and "confusion.png" not in result.images


@UNDRAWN
def test_without_labels_the_page_has_the_rest(tmp_path: Path) -> None:
    net, data = strong(conv_net()), loader(2)
    labelled = snnlib.report(net, data, out=tmp_path / "a.html")
    for batches in ([x for x, _ in data], [(x,) for x, _ in data], [(x, None) for x, _ in data]):
        result = snnlib.report(net, batches, out=tmp_path / "b.html")
        assert result.layers == labelled.layers and result.profile == labelled.profile
        assert set(result.images) == set(labelled.images) - {"confusion.png", "heat.png"}
        page = result.path.read_text()
        assert "16, without labels" in page and ">Classes</h2>" not in page and result.metrics == {}
        assert repr(result).endswith("no labels)") and "b.html" in result._repr_html_()


def _one(x: Any, labels: Any) -> list[tuple[Any, Any]]:
    return [(x, labels)]


X = torch.zeros(3, 2, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loader": []}, r"loader: expected at least one batch \(x, labels\), got none"),
        ({"loader": ["x"]}, r"loader: expected batches \(x, labels\), .* or x alone, got str as batch 0"),
        ({"loader": [*_one(X, torch.tensor([0, 1])), X]}, r"loader: expected labels in all batches or in no batch"),
        ({"loader": [*_one(X, torch.tensor([0, 1])), *_one(X, torch.zeros(2))]}, r"expected integer labels .*float32"),
        ({"loader": _one(X, torch.zeros(2))}, r"scores: expected answers \(2,\), like the labels, .* got \(2, 2\)"),
        ({"loader": _one(X, torch.rand(2, 2)), "classes": ["a"]}, r"classes: expected 2 names, one per column"),
        ({"loader": _one(X[0], torch.tensor([0, 1]))}, r"loader: expected x \[T, N, ...\]"),
        ({"loader": _one(X, torch.tensor([0, 2]))}, r"expected one label in 0\.\.1 per sample, .* one of them 2"),
        ({"loader": _one(X, torch.tensor([0]))}, r"expected one label .*, got 1 labels for 2 samples"),
        ({"classes": ["a", "b", "c"]}, r"scores: expected \[N, 3\], one score per class, .*, got shape \(2, 2\)"),
        ({"scores": lambda output: output}, r"scores: expected \[N, K\] of the net's output, got shape \(3, 2, 2\)"),
        ({"neurons": {"fc": [0]}}, r"neurons: expected names of spiking layers \(0\), got 'fc'"),
        ({"neurons": {"0": [4]}}, r"neurons: expected indices in 0\.\.3 for layer '0', got 4"),
        ({"target_layer": "conv"}, r"target_layer: expected the name of a module of the net, got 'conv'"),
    ],
)  # fmt: skip
@UNDRAWN
def test_errors_name_the_argument(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    net = nn.Sequential(snnlib.SRMLinear(6, 4), snnlib.SRMReadout(4, 2))
    options = {"loader": _one(X, torch.tensor([0, 1])), **arguments}
    with pytest.raises(ValueError, match=message):
        snnlib.report(net, out=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []
