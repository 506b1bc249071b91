"""How processes of a run are connected: NCCL between GPUs, gloo between CPUs."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy

from snnlib.app.training import ConfigError, TrainConfig, trainer


@pytest.mark.parametrize(("accelerator", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
@pytest.mark.parametrize("machines", [{"devices": 2}, {"nodes": 2}], ids=str)
def test_connection(
    accelerator: str, backend: str, machines: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    strategy = trainer._strategy(TrainConfig(**machines), accelerator)
    assert isinstance(strategy, DDPStrategy)
    assert strategy.process_group_backend == backend


def test_one_process_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    assert trainer._strategy(TrainConfig(), "cuda") == "auto"
    with pytest.raises(ConfigError, match="devices: expected one GPU, as this torch has no NCCL, got 2"):
        trainer._strategy(TrainConfig(devices=2), "cuda")
