"""The `snnlib` command from end to end: files, numbers, messages, exit codes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from command import done, metrics, options, refused, run

import snnlib
import snnlib_command
from snnlib.app import cli
from snnlib.app.cli import main
from snnlib.app.training import TrainConfig, history
from snnlib.app.training.checkpoint_io import SafeCheckpointIO
from snnlib.app.training.config import DEFAULTS
from snnlib.app.training.load import load
from snnlib.exchange import from_lava
from snnlib_command import COMMANDS

PICTURES = (
    *("accuracy.png", "confusion.png", "dead.png", "heat.png", "learning_rate.png", "loss.png"),
    *("operations.png", "potentials.png", "raster.png", "rate_histograms.png", "rates_over_time.png"),
    "spike_rates.png",
)


@pytest.fixture(scope="module")
def folder(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    with pytest.raises(SystemExit) as stop:
        main(["train", *options(config), "--out", str(folder)])
    assert not stop.value.code
    return folder


def test_train_writes_every_file(folder: Path, config: TrainConfig) -> None:
    assert TrainConfig.load(folder / "config.json") == config
    for name in PICTURES:
        assert (folder / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert {"last.ckpt", "best.ckpt"} <= names
    assert list((folder / "tensorboard").glob("events.out.tfevents.*"))
    assert not list(folder.rglob("*.tmp"))


def test_metrics_have_a_row_per_epoch(folder: Path, config: TrainConfig) -> None:
    rows = metrics(folder)
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert list(rows[0]) == [
        *("epoch", "train_loss", "train_accuracy", "val_accuracy", "val_loss"),
        *("test_loss", "test_accuracy", "lr"),
        *("rate_conv1", "rate_fc1", "dead_conv1", "dead_fc1", "warned_conv1", "warned_fc1"),
        *("samples_per_s", "seconds"),
    ]
    assert all(
        0 <= float(row[name]) <= 1 for row in rows for name in row if "rate" in name or "accuracy" in name
    )


def test_report_shows_numbers_and_pictures(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(PICTURES)
    last = metrics(folder)[-1]
    assert f"{float(last['test_accuracy']):.2%}" in page
    assert last["train_loss"] in page
    assert "conv1" in page
    # Nothing is fetched from elsewhere.
    assert "://" not in page


@pytest.mark.usefixtures("undrawn")
def test_a_run_tells_what_it_does_in_plain_text(
    config: TrainConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "ESTIMATE_AFTER_S", 0.0)
    with pytest.raises(SystemExit):
        main(["train", *options(config, epochs=2), "--out", str(tmp_path / "run")])
    out, err = capfd.readouterr()
    # The first lines say which data, where results go, how to stop and go on, how long it takes.
    assert "changed here: data nmnist (recipe: digits)" in out
    assert f"reading the recordings (nmnist) in {config.data.root}" in out
    assert "test samples of 10 classes; a sample: 8 steps of 5 ms, 2 x 34 x 34 cells" in out
    assert f"run folder: {tmp_path / 'run'}, for " in out
    assert (
        f"to stop: Ctrl-C; to go on after the last whole epoch: snnlib train --resume {tmp_path / 'run'}"
        in out
    )
    assert "training: epochs 1 to 2 of 4 batches" in out
    assert len(re.findall(r"about \d+ s per epoch, \d+ s in all", out)) == 1
    assert re.search(r"epoch  1/2 .* s   \d+ s left\n", out)
    assert re.search(r"epoch  2/2 .* s\n", out)
    assert re.search(r"test accuracy +\d+\.\d\d% \(\d+ of 30 samples\)", out)
    assert re.search(r"conv1 +256 +\d+\.\d\d% +\d+ \(\d", out)
    assert re.search(r"training speed +\d+ samples/s", out)
    assert re.search(r"peak memory \(process\) +\d+ MiB", out)
    assert f"report: {tmp_path / 'run' / 'report.html'}" in out
    assert "\x1b" not in out
    assert re.search(r"50 training, 10 validation and 30 test samples", out)
    # No advertisement, device list or warning.
    for word in ("litlogger", "Lightning", "GPU", "Warning", "warn"):
        assert word not in out + err


def test_eval_repeats_the_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = done(capsys, "eval", folder)
    last = metrics(folder)[-1]
    assert f"{float(last['test_accuracy']):.2%} (" in out
    assert "Confusion (columns: predicted)" in out
    assert re.search(r"fc1 +10 ", out)


def test_profile_prints_operations_and_writes_the_names_of_neurobench(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = done(capsys, "profile", folder, "--samples", "4", "--json", tmp_path / "p.json")
    assert re.search(r"conv1 +SRMConv2d +[\d,]+ +[\d,]+ ", out) and "Means of 4 samples." in out
    numbers = json.loads((tmp_path / "p.json").read_text())
    assert numbers["SynapticOperations"]["Dense"] > numbers["SynapticOperations"]["Effective_ACs"] > 0
    assert numbers["Footprint"] >= 4 * numbers["ParameterCount"] > 0


def test_best_epoch_is_that_of_the_validation_split(
    folder: Path, config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = max(metrics(folder), key=lambda row: float(row["val_accuracy"]))
    saved = SafeCheckpointIO().load_checkpoint(folder / "checkpoints/best.ckpt")
    assert saved["epoch"] + 1 == int(best["epoch"])
    out = done(capsys, "eval", folder, "--checkpoint", "best")
    assert f"{float(best['test_accuracy']):.2%} (" in out
    config.changed(val_split=0.0).save(tmp_path / "config.json")
    err = refused(capsys, "eval", tmp_path, "--checkpoint", "best")
    assert err == "error: --checkpoint: expected last for a run without --val-split, got best\n"


def test_threads_of_the_command_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user has chosen how they wait."""
    monkeypatch.setattr(cli, "main", lambda arguments: None)
    for chosen, expected in (
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, None),
    ):
        environment = {name: value for name, value in os.environ.items() if "SPINCOUNT" not in name}
        environment.pop("OMP_WAIT_POLICY", None)
        monkeypatch.setattr(os, "environ", {**environment, **chosen})
        snnlib_command.main(["train"])
        assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_help_and_version_need_neither_torch_nor_any_other_package() -> None:
    """The command before its first import; without the extra, help says what to install."""
    code = """
import sys
for name in ("torch", "numpy", "snnlib", "rich"):
    sys.modules[name] = None
missing, find_spec = sys.argv[1].split(), __import__("importlib.util").util.find_spec
__import__("importlib.util").util.find_spec = lambda name: None if name in missing else find_spec("sys")
from snnlib_command import main
for word in sys.argv[2:]:
    main([word] if word else [])
"""
    for missing, said in (
        ("", "To begin: snnlib train\n"),
        ("rich jinja2", "need rich, jinja2; .* pip install "),
    ):
        words = [sys.executable, "-c", code, missing, "", "--help", "--version"]
        child = subprocess.run(words, check=True, capture_output=True, text=True)
        text, again, version = re.split(r"(?=Spiking|^snnlib )", child.stdout, flags=re.MULTILINE)[1:]
        assert text == again and re.search(said, text)
        assert version == f"snnlib {snnlib.__version__}\n"


def test_help_lists_every_command_with_its_own_words() -> None:
    group = typer.main.get_command(cli.app)
    assert {name: command.help.split("\n\n")[0] for name, command in group.commands.items()} == COMMANDS


def test_first_line_comes_before_the_slow_imports(config: TrainConfig, tmp_path: Path) -> None:
    # Lightning cannot be imported.
    code = "import sys; sys.modules['lightning'] = None\nfrom snnlib_command import main\nmain(['train'])"
    child = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert child.stdout == f"snnlib {snnlib.__version__}: loading the training packages\n"


def test_predict_and_load_agree_with_eval(
    folder: Path, config: TrainConfig, data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((data_root / "Test").rglob("*.bin"))
    out = done(capsys, "predict", folder, *files)
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows[0] == ["file", "class", "score", "second class", "score"]
    assert [row[0] for row in rows[1:]] == [str(file) for file in files]
    right = sum(row[1] == file.parent.name for row, file in zip(rows[1:], files, strict=True))
    _, out, _ = run(capsys, "eval", folder, "--device", "cpu")
    assert f"({right} of 30 samples)" in out

    net, transform, classes = snnlib.load(folder)
    events, _ = snnlib.data.read(files[0])
    counts = net(transform(events).unsqueeze(1)).sum(0)[0].detach()
    assert classes[int(counts.argmax())] == rows[1][1]
    assert float(rows[1][2]) == pytest.approx(float(counts.max()), rel=1e-3)

    # Nothing to see is no class, though scores of 0 have an order.
    nothing = tmp_path / "nothing.bin"
    nothing.touch()
    with pytest.warns(UserWarning, match=r"nothing\.bin: expected events within the crop .*, got none"):
        run(capsys, "predict", folder, nothing)

    # A line per file, whatever its name.
    odd = tmp_path / "a\n\tb.bin"
    shutil.copy(files[0], odd)
    code, out, _ = run(capsys, "predict", folder, odd, files[0])
    lines = [line.split("\t") for line in out.splitlines()]
    assert code == 0 and [len(line) for line in lines] == [5, 5, 5]
    assert lines[1] == [repr(str(odd)), *lines[2][1:]]

    # A file that cannot be read keeps no other from being classified.
    (tmp_path / "bad.bin").write_bytes(b"abc")
    code, out, err = run(capsys, "predict", folder, tmp_path / "bad.bin", tmp_path / "absent.bin", files[0])
    assert code == 2
    assert len(out.splitlines()) == 2
    assert re.search(r"error: .*bad\.bin", err) and re.search(r"error: .*absent\.bin", err)


def test_export_writes_a_program_that_says_what_it_is_fed(
    folder: Path, config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = done(capsys, "export", "c", folder, tmp_path / "c", "--calibrate", "5", "--vectors", "2")
    assert re.search(r"RAM \d+ bytes, flash \d+ bytes", out)
    header = (tmp_path / "c" / "net.h").read_text()
    assert (
        f"A time step is {config.data.step_ms:g} ms, a recording {config.data.time_steps} of them" in header
    )
    assert "0 0, 1 1, 2 2" in header and "x = (column - 0) / 1, y = (row - 0) / 1" in header


def test_export_for_loihi(
    folder: Path, config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("h5py", reason="writes HDF5; the package h5py is not installed")
    err = refused(capsys, "export", "lava", folder, tmp_path / "float.net")
    assert "expected neurons in Loihi's arithmetic" in err and "snnlib train --dialect loihi" in err
    to_chip = options(config, neuron="lif", dialect="loihi", loss="tet", epochs=1)
    done(capsys, "train", *to_chip, "--out", tmp_path / "run")
    out = done(capsys, "export", "lava", tmp_path / "run", tmp_path / "chip.net")
    assert "cores in all, estimated: 2; a chip has 128" in out
    net, x = load(tmp_path / "run").net.eval(), (torch.rand(8, 3, 2, 34, 34) < 0.1).float()
    assert torch.equal(from_lava(tmp_path / "chip.net").eval()(x), net(x))


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_export_of_other_precisions(
    precision: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder, tmp_path / "run")
    settings = json.loads((folder / "config.json").read_text())
    (tmp_path / "run/config.json").write_text(json.dumps({**settings, "precision": precision}))
    to_c = ["c", tmp_path / "run", tmp_path / "c", "--calibrate", "5", "--vectors", "2"]
    assert run(capsys, "export", *to_c)[0] == 0
    to_nir = ["nir", tmp_path / "run", tmp_path / "net.nir", "--approximate", "--no-readout"]
    assert run(capsys, "export", *to_nir)[0] == 0


def test_eval_takes_its_device_from_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("a machine without a GPU shows that the device is looked for")
    err = refused(capsys, "eval", folder, "--device", "cuda")
    assert re.match(r"error: --device: expected 1 CUDA device\(s\) for cuda, got 0", err)


@pytest.mark.usefixtures("undrawn")
def test_mixed_precision_trains(
    config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = options(config, precision="bf16-mixed", epochs=1)
    done(capsys, "train", *mixed, "--out", tmp_path / "run")
    weights = SafeCheckpointIO().load_checkpoint(tmp_path / "run/checkpoints/last.ckpt")["state_dict"]
    ends = ("input_grad_scale", "threshold")
    constants = {name for name in weights if ".neuron." in name or name.endswith(ends)}
    others = {name for name in weights.keys() - constants if not name.endswith("prepared")}
    assert {weights[name].dtype for name in others} == {torch.float32}
    # No cast touches constants.
    assert {weights[name].dtype for name in constants} == {torch.float64}
    assert run(capsys, "eval", tmp_path / "run")[0] == 0


@pytest.mark.usefixtures("undrawn")
def test_resume_of_a_finished_run_repeats_the_summary(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "metrics.csv").read_bytes()
    out = done(capsys, "train", "--resume", folder, "--threads", 1)
    assert "test accuracy" in out
    assert (folder / "metrics.csv").read_bytes() == before


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    out = done(capsys, "train", "--help")
    # The classes are those of the data; no option sets them.
    for name in {*DEFAULTS} - {"classes"}:
        assert f"--{name.replace('_', '-')}" in out
    assert "snnlib train --recipe nmnist --root" in out


# Lightning's, for a run folder that was moved.
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_torchrun_starts_the_same_command_again(
    folder: Path,
    config: TrainConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With --max-restarts it goes on with its run, here from the second of three epochs, and with no other one."""
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setattr("snnlib.app.training.report.write_report", lambda *_: None)
    again = shutil.copytree(folder, tmp_path / "run")
    last = again / "checkpoints" / "last.ckpt"
    last.with_name("last.ckpt.previous").replace(last)
    weights, expected = (
        lambda file=file: SafeCheckpointIO().load_checkpoint(file)["state_dict"]
        for file in (last, folder / "checkpoints" / "last.ckpt")
    )
    assert any(not torch.equal(value, expected()[name]) for name, value in weights().items())
    out = done(capsys, "train", *options(config), "--out", again)
    assert re.search(r"epoch +3/3", out) and not re.search(r"epoch +2/3", out)
    assert all(torch.equal(value, expected()[name]) for name, value in weights().items())
    err = refused(capsys, "train", *options(config, seed=5), "--out", again)
    assert re.match(r"error: --seed: expected no other value than the resumed run's, 0 in .*, got 5", err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --out {run}", "--out: expected a new or empty folder, got '.*' with files in it .*--resume"),
        ("train --out {other}/file/run", "--out: expected a folder that can be written to, got '.*': Not a directory$"),
        ("train --resume {run} --lr 0.5", r"--lr: expected no other value than .* run's, 0\.02 in .*, got 0\.5"),
        ("train --resume {run} --epochs 20", r"--epochs: .*, got 20; to train on .*: --init-from {run} in place of"),
        ("eval {other}", "RUN_FOLDER: expected the folder of a run of `snnlib train`"),
    ],
)  # fmt: skip
def test_folders_that_do_not_fit_are_named(
    arguments: str, message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    err = refused(capsys, *arguments.format(run=folder, other=tmp_path).split())
    assert re.match(f"error: {message.replace('{run}', str(folder))}", err) and err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("part", "value", "evaluated"),
    [
        ("optimizer_states", [{"state": {}}], True),
        ("optimizer_states", [{"state": {}, "param_groups": []}], True),
        ("callbacks", 5, True),
        ("loops", {}, True),
        ("state_dict", None, False),
        ("epoch", 10**12, False),
    ],
)
def test_checkpoint_with_a_part_of_other_content_is_named(
    part: str, value: Any, evaluated: bool, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder, tmp_path / "run")
    last = tmp_path / "run/checkpoints/last.ckpt"
    content = SafeCheckpointIO().load_checkpoint(last)
    if part == "state_dict":
        # Real weights as complex ones, whose imaginary part torch would drop.
        value = {name: weight * (1 + 1j) for name, weight in content["state_dict"].items()}
    SafeCheckpointIO().save_checkpoint({**content, part: value}, last)
    err = refused(capsys, "train", "--resume", tmp_path / "run")
    assert re.fullmatch(r"error: .*last\.ckpt: expected .*\n", err), err
    code, _, err = run(capsys, "eval", tmp_path / "run")
    assert code == (0 if evaluated else 2), err


@pytest.mark.usefixtures("undrawn")
def test_net_without_a_hidden_layer(
    config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = options(config, net="10", loss="tet", epochs=1)
    out = done(capsys, "train", *single, "--out", tmp_path / "run")
    assert "test accuracy" in out


def test_doctor_tells_versions_paths_and_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SNNLIB_CACHE", str(tmp_path))
    out = done(capsys, "doctor")
    for pattern in (
        r"python +3\.",
        r"torch +\d",
        r"lightning +\d",
        r"threads +\d",
        r"SRM neurons on cpu +(native|reference): \w",
        rf"cache folder +{tmp_path}",
        r"embedded digits +not made yet",
        rf"SNNLIB_CACHE +{tmp_path}",
    ):
        assert re.search(pattern, out), pattern


@pytest.mark.skipif(os.name == "nt", reason="writes programs for a POSIX shell")
def test_doctor_tells_the_driver_and_toolkit_that_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    out = done(capsys, "doctor")
    assert re.search(r"NVIDIA driver +least 580, .*; here no nvidia-smi\n", out)
    assert re.search(r"CUDA toolkit +least 13\.0, .*; here no nvcc\n", out)
    for name, text in (("nvidia-smi", "580.159.03"), ("nvcc", "nvcc: NVIDIA\nrelease 13.2, V13.2.51")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{text}'\n")
        program.chmod(0o755)
    out = done(capsys, "doctor")
    assert re.search(r"here 580\.159\.03\n", out)
    assert re.search(r"here 13\.2\n", out)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert "here nvidia-smi failed: NVIDIA-SMI has failed\n" in done(capsys, "doctor")


# Program as it is in an installation without `snnlib[train]`.
WITHOUT_EXTRAS = """
import sys
extras = ("lightning", "lightning.pytorch", "tensorboard", "matplotlib", "jinja2", "sklearn", "typer", "rich", "tqdm")
for name in extras:
    sys.modules[name] = None
import snnlib, torch
# Caching frames shows no bar, but works.
samples = [(torch.ones(3, 2, 4, 4), 1)] * 2
assert snnlib.data.FrameCache(samples, preload=True).nbytes == 2 * 3 * 2 * 16
from snnlib_command import main
main(["doctor"])
for command in sys.argv[1:]:
    try:
        main([command])
    except SystemExit as stop:
        assert stop.code == 2
    else:
        raise AssertionError(command)
"""


def test_base_installation(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "train", "data"]
    child = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert child.returncode == 0, child.stderr
    assert re.search(r"SRM neurons on cpu +(native|reference): ", child.stdout)
    error = r"error: the command needs the package \w+, .*: pip install 'snnlib\[train\]'\n"
    assert re.fullmatch(error * 2, child.stderr)


def test_commands_start_without_what_writes_nets() -> None:
    blocked = "import sys; sys.modules['snnlib.exchange'] = None; import snnlib.app.cli"
    subprocess.run([sys.executable, "-c", blocked], check=True)
