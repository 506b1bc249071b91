"""Every loss that the settings name gives a gradient to a small net, and decides by the right read-out."""

from pathlib import Path
from typing import Any

import pytest
import torch

from snnlib.app.training import ConfigError, RunFolder, TrainConfig
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.objective import LOSSES
from snnlib.app.training.run import train_run
from snnlib.learning.preparing import prepare_
from snnlib.nn import SRMLinear, SRMReadout, supervised_spikes


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_reaches_every_weight(name: str) -> None:
    torch.manual_seed(0)
    config = TrainConfig(loss=name, net="4C5s4-10")
    module = SpikingClassifier(config, config.data.kind.facts(config))
    frames = (torch.rand(30, 5, 2, 34, 34) < 0.1).to(torch.uint8)
    labels = torch.arange(5)
    output = list(module.net.children())[-1]
    assert isinstance(output, SRMReadout if LOSSES[name].of_potentials else SRMLinear)
    assert module(frames).shape == (5, 10)
    if LOSSES[name].of_potentials:
        train = module.net(frames.float())
    else:
        with supervised_spikes(output, labels):
            train = module.net(frames.float())
    module.objective.loss(train, labels).backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in module.parameters())
    assert set(module.target_rates()) == ({"conv1"} if LOSSES[name].of_potentials else {"conv1", "fc1"})


def test_decisions() -> None:
    train = torch.zeros(30, 1, 3)
    train[20:25, 0, 0] = 1
    train[5, 0, 1] = 1
    train[10, 0, 2] = -9
    for name, winner in (
        ("count", 0),
        ("cross-entropy+", 0),
        ("van-rossum", 0),
        ("first-spike", 1),
        ("tet", 0),
        ("mean-potential", 0),
    ):
        scores = LOSSES[name].build(TrainConfig(loss=name)).scores(train)
        assert scores.shape == (1, 3)
        assert int(scores.argmax()) == winner, name


def test_the_mean_potential_is_that_of_a_samples_own_steps() -> None:
    objective = LOSSES["mean-potential"].build(TrainConfig())
    potential, labels = torch.randn(6, 2, 3), torch.tensor([2, 0])
    means = torch.stack((potential[:, 0].mean(0), potential[:4, 1].mean(0)))
    lengths = torch.tensor([6, 4])
    torch.testing.assert_close(objective.scores(potential, lengths), means)
    wanted = torch.nn.functional.cross_entropy(means, labels)
    torch.testing.assert_close(objective.loss(potential, labels, lengths), wanted)


def test_wanted_trains_need_whole_counts_that_fit() -> None:
    for desired in (7.5, 40.0):
        with pytest.raises(ConfigError, match="a whole number of spikes <= time_steps = 30, got"):
            TrainConfig(loss="spike-time", desired=desired)
    TrainConfig(loss="count", desired=7.5)


@pytest.mark.parametrize(("loss", "scale"), [("cross-entropy", "logit_scale"), ("first-spike", "time_scale")])
def test_the_scale_of_logits_is_measured_and_kept(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, scale: str
) -> None:
    measured: list[float] = []

    def prepare(*given: Any, **options: Any) -> Any:
        report = prepare_(*given, **options)
        measured.append(getattr(report, scale))
        return report

    monkeypatch.setattr("snnlib.app.training.run.prepare_", prepare)
    first = config.changed(loss=loss, epochs=1, val_split=0.0)
    assert first.learning.logit_scale is None
    run = RunFolder.create(tmp_path / "first", first)
    result = train_run(first, run, progress=False)
    # The settings of the run have the scale: tests, loading and resuming read it there.
    assert [result.module.config.learning.logit_scale] == measured
    assert TrainConfig.load(run.config).learning.logit_scale == measured[0]
    # A run that starts from these weights is not prepared.
    second = first.changed(init_from=str(run.path))
    assert (
        train_run(
            second, RunFolder.create(tmp_path / "second", second), progress=False
        ).module.config.learning.logit_scale
        == measured[0]
    )
    chosen = first.changed(logit_scale=0.25)
    assert (
        train_run(chosen, RunFolder.create(tmp_path / "third", chosen), progress=False).module.config
        == chosen
    )
