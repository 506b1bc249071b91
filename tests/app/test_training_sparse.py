"""`snnlib train --density --rewire`: the net, the connections that move, and a run that is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from interrupt import interrupted

from snnlib.app.kinds.base import DataFacts
from snnlib.app.training import ConfigError, RunFolder, TrainConfig
from snnlib.app.training.net import build_net
from snnlib.app.training.run import TrainResult, train_run
from snnlib.functional import SparselyConnected

FACTS = DataFacts(classes=tuple(map(str, range(10))), input_shape=(2, 6, 6))


def start(config: TrainConfig, folder: Path) -> TrainResult:
    return train_run(config, RunFolder.create(folder, config), progress=False)


def operators(net: torch.nn.Module) -> list[SparselyConnected]:
    return [part for part in net.modules() if isinstance(part, SparselyConnected)]


def test_hidden_layers_are_sparse_and_the_last_is_dense() -> None:
    config = TrainConfig(net="40-30R-10", neuron="cubalif", density=0.1, loss="count")
    net = build_net(config, FACTS)
    assert [operator.shape for operator in operators(net)] == [(40, 72), (30, 40), (30, 30)]
    assert [len(operator.targets) for operator in operators(net)] == [72 * 4, 40 * 3, 30 * 3]
    assert not operators(net[-1]) and net[-1].weight.shape == (10, 30)


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"density": 0.0}, "density", "expected a number > 0"),
        ({"density": 1.5}, "density", "a share of the connections, up to 1"),
        ({"density": 0.5}, "density", "expected 1 with srm, got 0.5"),
        ({"density": 0.5, "neuron": "cuba-event"}, "density", "expected 1 with cuba-event"),
        ({"density": 0.5, "neuron": "lif", "batch_norm": True}, "density", "expected 1 with batch_norm"),
        (
            {"rewire": "set", "neuron": "lif"},
            "rewire",
            "expected no at density 1, at which all connections exist",
        ),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_named(settings: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        TrainConfig(**settings)
    assert error.value.field == field
    assert message in str(error.value)


def test_a_net_without_a_sparse_layer_is_named() -> None:
    with pytest.raises(ConfigError, match=r"density: expected a hidden layer like 100 or 100R in '4C3-10'"):
        build_net(TrainConfig(net="4C3-10", neuron="lif", density=0.5), FACTS)


@pytest.mark.parametrize("rule", ["deep_r", "set"])
def test_a_resumed_run_moves_the_same_connections(
    rule: str, config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config.changed(
        net="40-10", neuron="lif", loss="tet", lr=1e-2, density=0.1, rewire=rule, val_split=0.0
    )
    whole = start(config, tmp_path / "whole").module.state_dict()
    still = start(config.changed(rewire="no"), tmp_path / "still").module.state_dict()
    key = "net.fc1.operator.targets"
    assert whole[key].shape == still[key].shape and not torch.equal(whole[key], still[key])
    with interrupted(1, monkeypatch):
        start(config, tmp_path / "stopped")
    run, config = RunFolder.open(tmp_path / "stopped", "resume")
    resumed = train_run(config, run, resume=True, progress=False).module.state_dict()
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
