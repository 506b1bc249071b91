"""`snnlib train --graph`: what it refuses, and that the steps around a graph are those of a run without one.

There is no GPU: in the place of the captured step stands one that is made anew each time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from interrupt import interrupted
from torch import Tensor, nn

from snnlib.app.training import ConfigError, RunFolder, TrainConfig, config_rules, graph_training, trainer
from snnlib.app.training.run import TrainResult, train_run
from snnlib.learning.graph_step import without_cast_cache

FRAMELESS = {"data": "shd", "root": ".", "net": "8R-20", "shift": 0, "rotate": 0.0, "warp": 0.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_norm": 1.0}, "graph: expected clip_norm None beside it, as whether a gradient .* got 1.0"),
        ({"operations_weight": 0.1}, "graph: expected operations_weight 0 beside it, .* got 0.1"),
        ({"accumulate": 2}, "graph: expected accumulate 1 beside it, as a graph holds a whole step, got 2"),
        ({"devices": 2}, "graph: expected devices 1 beside it"),
        ({"device": "cpu"}, "graph: expected a CUDA device beside it, got cpu"),
        (FRAMELESS, "graph: expected data of one length beside it, got shd"),
    ],
)
def test_what_cannot_be_captured_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(graph=True, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="graph: expected a CUDA device to capture training steps on, got none"
    ):
        trainer.build_trainer(TrainConfig(graph=True))


class _Eager:
    """What `CapturedStep` does, without a graph."""

    made = 0

    def __init__(
        self,
        module: nn.Module,
        compute: Callable[..., tuple[Tensor, ...]],
        optimizer: torch.optim.Optimizer,
        example: Sequence[Tensor],
    ) -> None:
        self.compute, self.optimizer, self.shapes = compute, optimizer, [x.shape for x in example]
        assert all(isinstance(group["lr"], Tensor) for group in optimizer.param_groups)
        _Eager.made += 1

    def fits(self, batch: Sequence[Tensor]) -> bool:
        return [x.shape for x in batch] == self.shapes

    def __call__(self, *batch: Tensor) -> tuple[Tensor, ...]:
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self.compute(*batch)
        outputs[0].backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return tuple(output.detach() for output in outputs)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_rules, "graph", lambda config: None)
    monkeypatch.setattr(trainer, "_check_graph", lambda *_: None)
    monkeypatch.setattr(graph_training, "CapturedStep", _Eager)
    monkeypatch.setattr(_Eager, "made", 0)


def _same(one: TrainResult, other: TrainResult) -> None:
    for name, value in one.module.state_dict().items():
        # A learning rate that is a tensor is rounded to float32.
        torch.testing.assert_close(other.module.state_dict()[name], value, rtol=1e-5, atol=1e-6, msg=name)
    assert [row["train_accuracy"] for row in one.history] == [row["train_accuracy"] for row in other.history]


@pytest.mark.usefixtures("pretended")
def test_a_run_with_graphs_is_one_without(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, schedule and log, the last batch of an epoch smaller; also of a run that was stopped and resumed."""
    plain = dataclasses.replace(config, batch_size=10, val_split=0.0)
    captured = dataclasses.replace(plain, graph=True)

    def start(config: TrainConfig, name: str) -> TrainResult:
        return train_run(config, RunFolder.create(tmp_path / name, config), progress=False)

    expected = start(plain, "plain")
    _same(expected, start(captured, "graph"))
    assert _Eager.made == 1
    with interrupted(2, monkeypatch):
        start(captured, "stopped")
    run, found = RunFolder.open(tmp_path / "stopped", "resume")
    assert found.graph
    _same(expected, train_run(found, run, resume=True, progress=False))


def test_weights_are_cast_anew_inside_a_graph() -> None:
    """Autocast keeps the cast of a weight to the end of its block: a graph would train without ever seeing a step."""
    layer = nn.Linear(2, 2, bias=False)

    def output_after_a_step() -> Tensor:
        layer(torch.ones(1, 2))
        with torch.no_grad():
            layer.weight.fill_(2.0)
        return layer(torch.ones(1, 2))  # type: ignore[no-any-return]

    for fresh in (False, True):
        with torch.no_grad():
            layer.weight.fill_(1.0)
        with torch.autocast("cpu", torch.bfloat16):
            layer(torch.ones(1, 2))
            if fresh:
                with without_cast_cache():
                    assert output_after_a_step()[0, 0] == 4
            else:
                assert output_after_a_step()[0, 0] == 2
    assert torch.is_autocast_cache_enabled()
