"""`snnlib train` of nets with exact spike times: the recipe `yin-yang`, its points, and a single one of them."""

import pytest
import torch
from command import done, metrics, refused
from torch import Tensor

from snnlib.app.kinds import KINDS
from snnlib.app.recipes import recipe
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.data_module import EventData
from snnlib.app.training.run import _calibrate
from snnlib.data import YinYang

RECIPE = ("train", "--recipe", "yin-yang", "--threads", 1, "--device", "cpu")


def test_a_point_is_four_spikes_at_its_times() -> None:
    config = recipe("yin-yang").config(precision="64-true")
    kind, points = KINDS["yin-yang"], YinYang("test", dtype=torch.float64)
    spikes = kind.transform(config, torch.float64)(points.samples[0])
    assert spikes.shape == (config.data.time_steps, 4)
    torch.testing.assert_close(spikes.sum(0), torch.ones(4, dtype=torch.float64))
    # The mean step of the two between which a spike is divided is its time.
    step = torch.arange(config.data.time_steps, dtype=torch.float64)
    times = (0.15 + 1.85 * points.samples[0]) * config.net.tau_s
    torch.testing.assert_close((spikes * step[:, None]).sum(0), times)
    x, labels = kind.collate(config)(
        [(point, int(label)) for point, label in zip(points.samples[:, None], points.targets, strict=True)]
    )
    assert x.dtype == torch.float32 and torch.equal(labels, points.targets)
    torch.testing.assert_close(x[:, 0], spikes.float())


@pytest.mark.parametrize("net", ["30-3", "30D15-3D15"])
def test_neurons_fire_once_and_the_silent_ones_are_woken(net: str) -> None:
    config = recipe("yin-yang").config(net=net)
    torch.manual_seed(0)
    data = EventData(config, progress=False)
    module = SpikingClassifier(config, data.facts)
    _calibrate(module, data)
    x, labels = KINDS["yin-yang"].collate(config)([data.train_set[i] for i in range(150)])
    weight = module.net.fc1.parametrizations.weight
    with torch.no_grad():
        weight[0].bias[:5] = -20.0

    def hidden() -> Tensor:
        return module.net.fc1(x).detach()

    assert (hidden()[:, :, :5] == 0).all()
    assert hidden().sum(0).max() == 1 and module.net(x).sum(0).max() == 1
    for _ in range(40):
        before = weight[0].bias.detach().clone()
        module.objective.loss(module.net(x), labels).backward()
    assert (weight[0].bias[:5] > before[:5]).all()


@pytest.mark.usefixtures("undrawn")
def test_the_command_and_a_single_point(tmp_path, capsys) -> None:
    folder = tmp_path / "run"
    out = done(capsys, *RECIPE, "--net", "8D10-3", "--epochs", 2, "--out", folder)
    assert "4 spikes in" in out and "5000 training and 1000 test samples of 3 classes" in out
    rows = metrics(folder)
    assert len(rows) == 2 and float(rows[1]["train_loss"]) < float(rows[0]["train_loss"])
    (tmp_path / "point.txt").write_text("0.25 0.5\n")
    assert any(name in done(capsys, "predict", folder, tmp_path / "point.txt") for name in YinYang.classes)
    few = refused(capsys, *RECIPE, "--time-steps", 20, "--out", tmp_path / "few")
    assert "--time-steps: expected at least 2 tau_s + 2 = 62" in few and few.rstrip().endswith("got 20")


@pytest.mark.slow
def test_yin_yang_is_learned_by_the_command(tmp_path, capsys) -> None:
    done(capsys, *RECIPE, "--out", tmp_path / "run")
    assert float(metrics(tmp_path / "run")[-1]["test_accuracy"]) > 0.95
