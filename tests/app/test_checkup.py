"""A layer that dies while `snnlib train` runs is named once, in a line, and marked in the table of epochs."""

import re
from pathlib import Path

import pytest

from snnlib.app.training import RunFolder, TrainConfig
from snnlib.app.training.checkup import Checkup
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.report import write_report
from snnlib.app.training.run import TrainResult, train_run
from snnlib.neurons.training_words import ANEW, GRADED, SCALED, SLOWER


@pytest.fixture
def train(config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def train_and_silence(at: int, **changes: object) -> TrainResult:
        def silence(module: SpikingClassifier, *_: object) -> None:
            if module.global_step == at:
                module.net.conv1.threshold.fill_(1e9)

        monkeypatch.setattr(SpikingClassifier, "on_train_batch_start", silence)
        settings = config.changed(**changes)
        return train_run(settings, RunFolder.create(tmp_path / "run", settings), progress=False)

    return train_and_silence


def test_a_layer_that_is_silent_from_the_start_is_named_once(
    train, capsys: pytest.CaptureFixture[str]
) -> None:
    result = train(0)
    out = capsys.readouterr().out
    assert out.count("conv1") == 1, out
    assert "\n  conv1: no neuron fired in the first 3 training batches, so neither this layer" in out
    assert [row["warned_conv1"] for row in result.history] == [1, 0, 0]


def test_console_and_report_give_the_same_advice(
    train, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command has called `prepare_`, so that neither of the two may ask for it."""
    result = train(0)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "conv1: " in line]
    write_report(result, RunFolder(tmp_path / "run"))
    page = (tmp_path / "run" / "report.html").read_text()
    (said,) = re.findall(r"Layer conv1: no neuron fired[^<]*", page)
    assert line.rpartition("; ")[2] == said.rpartition("; ")[2].removesuffix(".") == SLOWER
    assert "prepare_" not in line and "prepare_" not in said


def test_a_layer_that_dies_is_marked_when_it_warns(train, capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor speaks at the ends of epochs 4 and 5, before the layer would after batch 300, that of epoch 6."""
    result = train(120, batch_size=1, copies=1, epochs=6, lr=1e-15)
    out = capsys.readouterr().out
    assert (
        out.count("conv1: ")
        == out.count("  conv1: no neuron fired in 50 samples, so neither this layer")
        == 1
    )
    assert "prepare_" not in out
    assert [row["warned_conv1"] for row in result.history] == [0, 0, 0, 0, 0, 1]


def test_a_finding_is_said_once_whatever_its_numbers(config: TrainConfig) -> None:
    said: list[str] = []
    checkup = Checkup(SpikingClassifier(config, config.data.kind.facts(config)).net, said.append)
    for share in (12, 40):
        found = {
            ("conv1", "saturated"): f"conv1: {share}% of the neurons fired in more than half of all steps",
            ("fc1", "dead"): "fc1: 1 of 3 channels did not fire",
        }
        checkup.doctor.found = lambda found=found: found  # type: ignore[union-attr, method-assign]
        checkup.on_train_epoch_end()
    assert said == [
        "  conv1: 12% of the neurons fired in more than half of all steps",
        "  fc1: 1 of 3 channels did not fire",
    ]


def test_outputs_that_homeostasis_wakes_are_not_named(config: TrainConfig) -> None:
    said: list[str] = []
    checkup = Checkup(SpikingClassifier(config, config.data.kind.facts(config)).net, said.append)
    checkup.doctor.found = lambda: {("fc1", "samples"): "fc1: no neuron fired in 82% of 50 samples"}  # type: ignore[union-attr, method-assign]
    checkup._layers["fc1"].training_watch.wakes = True
    checkup.on_train_epoch_end()
    assert not said
    checkup._layers["fc1"].training_watch.wakes = False
    checkup.on_train_epoch_end()
    assert len(said) == 1


@pytest.mark.parametrize("advice", [ANEW, SCALED, GRADED])
def test_the_console_names_options_of_the_command(config: TrainConfig, advice: str) -> None:
    """Each option that takes the place of a function is one of `snnlib train`, and its value fits."""
    said: list[str] = []
    checkup = Checkup(SpikingClassifier(config, config.data.kind.facts(config)).net, said.append)
    checkup.doctor.found = lambda: {("conv1", "lost"): f"conv1: 60% of the channels; {advice}"}  # type: ignore[union-attr, method-assign]
    checkup.on_train_epoch_end()
    (line,) = said
    assert (
        line.startswith("  conv1: 60% of the channels; ") and "snnlib." not in line and "torch." not in line
    )
    options = re.findall(r"--([a-z-]+)(?: (standardized|1))?", line)
    assert options
    for name, value in options:
        field = name.replace("-", "_")
        assert field in config.settings()
        if value:
            config.changed(**{field: float(value) if value.isdigit() else value})
