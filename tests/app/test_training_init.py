"""A run that begins with another run's weights, and simulated events to train the first one on."""

from pathlib import Path

import pytest
import torch
from command import run
from small_sets import write_mnist

from snnlib.app.errors import CheckpointError
from snnlib.app.training import ConfigError, RunFolder, TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.run import train_run
from snnlib.data import MNIST, SimulatedEvents, ToFrames

SMALL = {"net": "4C5s4-P2-10", "time_steps": 8, "step_ms": 40.0, "threads": 1, "device": "cpu"}


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Squares in ten places as MNIST's files, and a cache of its own for their events."""
    monkeypatch.setenv("SNNLIB_CACHE", str(tmp_path / "cache"))
    return write_mnist(tmp_path / "mnist", 60, 20)


def test_simulated_events_are_the_data(mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(data="mnist-events", root=str(mnist), **SMALL)
    data = EventData(config, progress=False)
    data.setup("fit")
    expected = SimulatedEvents(MNIST(mnist), transform=ToFrames(time_steps=8, step_us=40_000))
    assert len(data.train_set) == 60 and len(data.test_set) == 20
    for number in (0, 37):
        frames, label = data.train_set[number]
        assert label == number % 10 and torch.equal(frames.float(), expected[number][0])
    made = sorted((tmp_path / "cache").rglob("*.events"))
    assert len(made) == 2
    times = [path.stat().st_mtime_ns for path in made]
    # Where frames do not fit into memory they are made of the same cache at each access.
    monkeypatch.setattr("snnlib.app.kinds.base.memory_bytes", lambda: 10**6)
    again = EventData(config.changed(batch_size=1), progress=False)
    again.setup("fit")
    assert torch.equal(again.train_set[37][0], data.train_set[37][0])
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "cache").rglob("*.events"))] == times


@pytest.mark.usefixtures("undrawn")
def test_pretrained_on_simulated_events(
    mnist: Path, data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--net", "4C5s4-P2-10", "--time-steps", "8", "--threads", "1", "--device", "cpu"]
    first, second = tmp_path / "first", tmp_path / "second"
    begun = ["--recipe", "nmnist", "--root", data_root, "--step-ms", 5, "--epochs", 1, "--init-from", first]
    out = ""
    for arguments in (
        ["--data", "mnist-events", "--root", mnist, "--step-ms", 40, "--epochs", 2, "--out", first],
        [*begun, "--out", second],
    ):
        code, said, _ = run(capsys, "train", *words, *arguments)
        assert code == 0
        out += said
    assert "recipe mnist-events: MNIST's images as a simulated event camera sees them" in out
    assert f"weights of the run in {first}" in out
    assert TrainConfig.load(second / "config.json").net.init_from == str(first)


def weights_at_start(
    config: TrainConfig, run: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, torch.Tensor]:
    """The weights with which training begins."""
    found: dict[str, torch.Tensor] = {}

    def fit(_trainer: object, module: torch.nn.Module, *_: object, **__: object) -> None:
        found.update({name: value.clone() for name, value in module.state_dict().items()})
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lightning.pytorch.Trainer.fit", fit)
        with pytest.raises(KeyboardInterrupt):
            train_run(config, RunFolder.create(run, config), progress=False)
    return found


def test_init_begins_with_the_last_weights(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = config.changed(epochs=2)
    result = train_run(first, RunFolder.create(tmp_path / "first", first), progress=False)
    trained = result.module.state_dict()
    # Fewer epochs than the run that wrote the weights, and another seed.
    second = config.changed(epochs=1, seed=5, init_from=str(tmp_path / "first"))
    begun = weights_at_start(second, tmp_path / "second", monkeypatch)
    assert begun.keys() == trained.keys()
    assert all(torch.equal(begun[name], trained[name]) for name in trained)
    other = weights_at_start(second.changed(init_from=None), tmp_path / "other", monkeypatch)
    assert not all(torch.equal(other[name], trained[name]) for name in trained)


def test_init_of_another_net(config: TrainConfig, tmp_path: Path) -> None:
    first = config.changed(epochs=1)
    train_run(first, RunFolder.create(tmp_path / "first", first), progress=False)
    second = first.changed(net="5C5s4-P2-10", init_from=str(tmp_path / "first"))
    with pytest.raises(
        CheckpointError, match="expected the weights of the net 5C5s4-P2-10, got other weights"
    ):
        train_run(second, RunFolder.create(tmp_path / "second", second), progress=False)
    assert not (tmp_path / "second").exists()
    missing = first.changed(init_from=str(tmp_path / "nothing"))
    with pytest.raises(
        ConfigError, match="init_from: expected the folder of a run of `snnlib train`, got nothing there"
    ):
        train_run(missing, RunFolder.create(tmp_path / "third", missing), progress=False)
    with pytest.raises(ConfigError, match="init_from: expected text, got 3"):
        TrainConfig(init_from=3)  # type: ignore[arg-type]
