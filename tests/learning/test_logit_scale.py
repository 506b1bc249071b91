"""The scale of logits that `prepare_` reports, and the texts that give it to the reader."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.neurons import LIF, CubaLIF, Neuron

ROOT = Path(__file__).parents[2]
# Cross-entropy of torch on spike counts: sums over time, `spike_count(...)`, and names of counts.
UNSCALED = re.compile(
    r"cross_entropy\(\s*(?:[\w.]*spike_count\(|counts?\b|spikes\b|[\w.\[\]]+(?:\([^()]*\))?(?:\.float\(\))?\.sum\()"
)
# The output is a map of torch without neurons.
ANALOGUE = {"docs/recurrence.md", "examples/notebooks/06-recurrence-and-delays.ipynb"}


def _texts() -> list[Path]:
    folders = ("docs", "examples", "snnlib")
    kinds = {".md", ".py", ".ipynb"}
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in kinds]
    return [ROOT / "README.md", *(file for file in files if "site" not in file.relative_to(ROOT).parts)]


def _unscaled(text: str) -> list[str]:
    """Returns calls of torch's cross-entropy on counts without a factor; `count_cross_entropy` has one."""
    found = UNSCALED.finditer(text)
    return [text[each.start() :][:80] for each in found if not text[: each.start()].endswith("count_")]


@pytest.mark.parametrize(
    "call",
    [
        "F.cross_entropy(spike_count(net(x)), y)",
        "torch.nn.functional.cross_entropy(snnlib.readout.spike_count(net(x)), labels)",
        "cross_entropy(counts, labels)",
        "nn.functional.cross_entropy(net(x).sum(0), labels)",
        "nn.functional.cross_entropy(output.float().sum(0), y)",
        "functional.cross_entropy(\n    spikes.sum(0), labels)",
    ],
)
def test_an_unscaled_call_is_found(call: str) -> None:
    assert _unscaled(call)
    assert not _unscaled("losses.count_cross_entropy(counts, y, scale=report.logit_scale)")
    assert not _unscaled("F.cross_entropy(net(x).mean(0), y)")


def test_no_text_gives_unscaled_counts_to_a_softmax() -> None:
    found = {
        str(file.relative_to(ROOT)): calls
        for file in _texts()
        if (calls := _unscaled(file.read_text(encoding="utf-8")))
    }
    assert found.keys() == ANALOGUE, found


def _events(classes: int, batch_first: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % classes
    x = torch.rand(30, 40, 60, generator=generator) < 0.05
    for sample, label in enumerate(labels.tolist()):
        x[:, sample, 5 * label : 5 * label + 5] |= torch.rand(30, 5, generator=generator) < 0.2
    return (x.transpose(0, 1) if batch_first else x).float(), labels


def _net(classes: int, neuron: Neuron | None, **options: bool) -> nn.Sequential:
    """Returns a net of SRM neurons, or of copies of a neuron."""
    torch.manual_seed(0)
    if neuron is None:
        return nn.Sequential(snnlib.SRMLinear(60, 80, **options), snnlib.SRMLinear(80, classes, **options))
    return nn.Sequential(
        snnlib.SpikingLinear(60, 80, neuron=neuron, **options),
        snnlib.SpikingLinear(
            80, classes, neuron=type(neuron)(levels=4) if _is_graded(neuron) else type(neuron)()
        ),
    )


def _is_graded(neuron: Neuron) -> bool:
    return isinstance(neuron, LIF) and neuron.levels > 1


KINDS = {"LIF": LIF, "CubaLIF": CubaLIF, "graded": lambda: LIF(levels=4), "SRM": lambda: None}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 10])
def test_the_first_loss_is_near_that_of_guessing(kind: str, classes: int) -> None:
    x, labels = _events(classes)
    net = _net(classes, KINDS[kind]())
    report = snnlib.prepare_(net, x)
    counts = snnlib.readout.spike_count(net(x))
    loss = snnlib.losses.count_cross_entropy(counts, labels, scale=report.logit_scale)
    assert abs(float(loss.detach()) - math.log(classes)) < 0.4
    logits = report.logit_scale * (counts - counts.mean(1, keepdim=True))
    spread = 0.7 if kind == "SRM" else 0.3
    assert float(logits.detach().square().mean().sqrt()) == pytest.approx(spread, rel=0.06)


def test_batch_first_has_the_same_scales() -> None:
    reports = []
    for first in (False, True):
        torch.manual_seed(0)
        layers = [
            snnlib.SpikingLinear(60, 80, batch_first=first),
            snnlib.SpikingLinear(80, 10, batch_first=first),
        ]
        reports.append(snnlib.prepare_(nn.Sequential(*layers), _events(10, first)[0]))
    assert reports[0].logit_scale == reports[1].logit_scale != 1
    assert reports[0].time_scale == reports[1].time_scale


def test_outputs_that_are_no_spikes_and_equal_counts_have_a_scale_of_1() -> None:
    x, _ = _events(3)
    for head in (snnlib.SRMReadout(80, 3), nn.Linear(80, 3)):
        assert snnlib.prepare_(nn.Sequential(snnlib.SRMLinear(60, 80), head), x).logit_scale == 1
    alone = nn.Sequential(snnlib.SpikingLinear(60, 1))
    assert snnlib.prepare_(alone, x).logit_scale == 1


def test_the_report_gives_the_call() -> None:
    x, labels = _events(10)
    net = _net(10, LIF())
    report = snnlib.prepare_(net, x)
    (call,) = re.findall(r"losses\.count_cross_entropy\(.*?\)", report.advice)
    counts = snnlib.readout.spike_count(net(x))
    given = eval(call, {"losses": snnlib.losses, "counts": counts, "labels": labels})
    assert given == snnlib.losses.count_cross_entropy(counts, labels, scale=report.logit_scale)


def test_first_spikes() -> None:
    x, labels = _events(4)
    net = _net(4, LIF())
    report = snnlib.prepare_(net, x, {"1": 0.05})
    times = snnlib.readout.first_spike_time(net(x))
    loss = snnlib.losses.first_spike_loss(times, labels, scale=report.time_scale)
    assert 0 < report.time_scale <= 1
    assert abs(float(loss.detach()) - math.log(4)) < 0.4
