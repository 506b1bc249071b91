"""Files of earlier versions still load, and give what they gave then; tests/stored/make_*.py say what they are."""

import ast
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.app.training.run import test_run as evaluate
from snnlib.app.training.run import train_run
from snnlib.app.training.run_folder import RunFolder
from snnlib.data import NMNIST
from snnlib.data.datasets.digits_build import build_event_digits
from snnlib.testing import read_spikes

STORED = Path(__file__).parents[1] / "stored" / "0.1"
CACHE = STORED / "cache" / "event-digits-v1-seed0"
CONSTANTS = {"tau_m": 8.0, "tau_s": 4.0, "tau_grad": 6.0}


def _net() -> nn.Sequential:
    return snnlib.models.from_notation("4C3p1-P2-6C3-10", (2, 12, 12), **CONSTANTS)


# Files of 0.1 have no constants of neurons.
pytestmark = pytest.mark.filterwarnings("ignore:load_state_dict. expected constants of neurons")

STORED_2 = STORED.parent / "0.2"
KINDS = ("events", "folder", "images", "sequences")


def _per_channel(net: nn.Sequential) -> nn.Sequential:
    """A net that the state of a folded one fits: with a threshold per channel."""
    for layer in net:
        if isinstance(layer, snnlib.nn.SRMLayer):
            layer.threshold = layer.threshold.expand(layer.weight.shape[0]).clone()
    return net


NETS = {
    "plain": _net,
    "standardised": lambda: snnlib.nn.standardize_weights_(_net()),
    "folded": lambda: _per_channel(_net()),
}


def _load(name: str) -> nn.Sequential:
    net = NETS[name]()
    net.load_state_dict(torch.load(STORED / f"{name}.pt", weights_only=True))
    return net


def _events() -> Tensor:
    return torch.from_numpy(read_spikes(STORED / "events.npz")["events"].astype(np.float32))


@pytest.mark.parametrize("name", NETS)
def test_spikes(name: str, path: str) -> None:
    net, x, golden = _load(name), _events(), read_spikes(STORED / f"spikes_{name}.npz")
    assert set(golden) == {"conv1", "conv2", "fc1"}
    changed = 0
    with torch.no_grad(), snnlib.use_convolution("events"):
        for layer_name, layer in net.named_children():
            x = layer(x)
            if layer_name in golden:
                changed += int((x.numpy().astype(bool) != golden[layer_name]).sum())
    # The mean and deviation of standardised weights are sums whose last bit is the platform's.
    assert changed <= (2 if name == "standardised" else 0)


def test_potentials(path: str) -> None:
    """Within the rounding of float32 sums over 96 inputs and 20 steps."""
    golden = read_spikes(STORED / "spikes_plain.npz")
    net, readout = _load("plain"), snnlib.SRMReadout(10, 3, tau_m=8.0, tau_s=4.0)
    readout.load_state_dict(torch.load(STORED / "readout.pt", weights_only=True))
    inputs, outputs = (torch.from_numpy(golden[name].astype(np.float32)) for name in ("conv2", "fc1"))
    with torch.no_grad(), np.load(STORED / "potentials.npz") as stored:
        current = net.fc1.operator.forward(inputs.flatten(0, 1), net.fc1.weight).unflatten(0, (20, 3))
        trace = snnlib.functional.srm_trace(current, **CONSTANTS)
        for got, name in ((trace.potential, "fc1"), (readout(outputs), "readout")):
            expected = torch.from_numpy(stored[name])
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_cache_is_read_and_not_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = shutil.copytree(CACHE, tmp_path / CACHE.name)

    def refuse(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr("snnlib.data.datasets.digits_build._simulate_into", refuse)
    assert build_event_digits(cache, samples=[1, 4, 10]) == cache
    train, test = NMNIST(cache), NMNIST(cache, train=False)
    assert [(len(events), label) for events, label in train] == [(4281, 0), (3371, 1)]
    assert [(len(events), label) for events, label in test] == [(3464, 4)]


def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run folder; its settings name the cache beside it."""
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("run")


# The settings of earlier versions were fewer.
NOTE = pytest.mark.filterwarnings("ignore:.*settings that it does not name")


@NOTE
@pytest.mark.parametrize("checkpoint", ["last", "best"])
def test_run_folder(checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, config = RunFolder.open(_run(tmp_path, monkeypatch), "RUN")
    assert (config.net, config.epochs, config.lr) == ("4C5s2-P3-10", 2, 0.02)
    result = evaluate(config, run, checkpoint=checkpoint, progress=False)
    assert int(result.confusion.sum()) == 1


@NOTE
# Lightning's, for a run folder that was moved.
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_run_goes_on_from_its_first_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, config = RunFolder.open(_run(tmp_path, monkeypatch), "RUN")
    last = run.checkpoints / "last.ckpt"
    last.with_name("last.ckpt.previous").replace(last)
    run.metrics.unlink()
    rows = train_run(config, run, resume=True, progress=False).history
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[0]["train_loss"] == 2.462676
    # What was learned in the second epoch then.
    assert rows[1]["train_loss"] == pytest.approx(1.891464, rel=0.05)


def _run_2(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run folder of 0.2.0, beside its data."""
    shutil.copytree(STORED_2, tmp_path, dirs_exist_ok=True)
    shutil.copytree(CACHE, tmp_path / "data" / "events")
    monkeypatch.chdir(tmp_path)
    return Path("trained", kind)


@NOTE
@pytest.mark.parametrize("kind", KINDS)
def test_run_of_0_2(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its net gives what it gave, by its checkpoint and by its stored state, and is tested on its data."""
    folder = _run_2(kind, tmp_path, monkeypatch)
    net = snnlib.load(folder).net
    for _ in range(2):
        with torch.no_grad(), np.load(folder / "outputs.npz") as stored:
            y = net(torch.from_numpy(stored["x"]))
            # Sums of float32 may come in another order where spikes are equal.
            torch.testing.assert_close(y, torch.from_numpy(stored["y"]), rtol=1e-5, atol=1e-5)
        for parameter in net.parameters():
            parameter.data.zero_()
        net.load_state_dict(torch.load(folder / "state.pt", weights_only=True))
    run, config = RunFolder.open(folder, "RUN")
    assert int(evaluate(config, run, progress=False).confusion.sum()) > 0


@NOTE
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
@pytest.mark.parametrize("kind", KINDS)
def test_run_of_0_2_goes_on(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, config = RunFolder.open(_run_2(kind, tmp_path, monkeypatch), "RUN")
    stored = run.metrics.read_text().splitlines()
    header = stored[0].split(",")
    losses = [float(line.split(",")[header.index("train_loss")]) for line in stored[1:]]
    last = run.checkpoints / "last.ckpt"
    last.with_name("last.ckpt.previous").replace(last)
    run.metrics.unlink()
    rows = train_run(config, run, resume=True, progress=False).history
    assert [row["epoch"] for row in rows] == [1, 2]
    # The first is read, the second is learned again.
    assert rows[0]["train_loss"] == losses[0]
    assert rows[1]["train_loss"] == pytest.approx(losses[1], rel=0.05)


def _layers_2(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], snnlib.neurons.Neuron]]:
    monkeypatch.syspath_prepend(STORED_2.parent)
    return dict(importlib.import_module("make_0_2").LAYERS)


def test_layers_of_0_2(monkeypatch: pytest.MonkeyPatch) -> None:
    neurons, stored = _layers_2(monkeypatch), torch.load(STORED_2 / "layers.pt", weights_only=True)
    # Models that came later are not in it.
    assert neurons.keys() >= stored.keys()
    for name, file in stored.items():
        layer = snnlib.nn.SpikingLinear(5, 6, neuron=neurons[name]())
        layer.load_state_dict(file["state"])
        with torch.no_grad():
            torch.testing.assert_close(layer(file["x"]), file["y"], rtol=1e-5, atol=1e-5, msg=name)


def test_no_file_runs_code() -> None:
    """Every torch.load of the package says weights_only=True, and nothing unpickles by itself."""
    loads = 0
    for file in Path(snnlib.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            options = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if called in ("torch.load", "load_state_dict_from_url"):
                loads += 1
                assert options.get("weights_only") == "True", f"{file}:{node.lineno}"
            if called in ("np.load", "numpy.load"):
                assert options.get("allow_pickle", "False") == "False", f"{file}:{node.lineno}"
            assert not called.startswith(("pickle.load", "marshal.", "exec")), f"{file}:{node.lineno}"
            assert called not in ("eval", "exec", "pickle.Unpickler", "joblib.load"), f"{file}:{node.lineno}"
    assert loads >= 2
