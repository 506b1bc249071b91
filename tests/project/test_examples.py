"""The examples run as a user runs them; each asserts on its own what it shows, and says so at the end."""

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
# Shorter than what the example shows by default, as far as it still learns.
ARGUMENTS = {
    "nmnist.py": ("--epochs", "2", "--samples", "200"),
    "million.py": ("--neurons", "20000"),
    "images.py": ("--epochs", "1", "--width", "4"),
}
# Examples that train on all digits, or for long.
SLOW = {
    *(
        "brunel.py",
        "decoupled_heads.py",
        "explain.py",
        "labelled_steps.py",
        "million.py",
        "mnist.py",
        "nmnist.py",
        "pipeline.py",
        "published_names.py",
    ),
    *("quantize.py", "two_compartments.py", "voxels.py"),
}
NAMES = [
    pytest.param(path.name, marks=pytest.mark.slow if path.name in SLOW else ())
    for path in sorted(EXAMPLES.glob("*.py"))
]


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, *arguments: str
) -> str:
    """Returns the output of the example, run in this process since torch takes seconds to import."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with torch.random.fork_rng():
        runpy.run_path(name, run_name="__main__")
    return capsys.readouterr().out


# Lightning asks torch's trees in a deprecated way.
@pytest.mark.filterwarnings("ignore:.*treespec.*is deprecated")
@pytest.mark.parametrize("name", NAMES)
def test_runs_with_its_defaults(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, capsys, name, *ARGUMENTS.get(name, ())).strip(), "an example prints what it found"


def test_nmnist_on_real_recordings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not os.environ.get("SNNLIB_DATA"):
        pytest.skip("SNNLIB_DATA is unset: no real N-MNIST recordings to train on")
    root = Path(os.environ["SNNLIB_DATA"]) / "nmnist_800"
    output = run(monkeypatch, capsys, "nmnist.py", "--root", str(root), "--epochs", "2")
    assert "test accuracy" in output


def test_ecg_on_real_recordings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if not os.environ.get("SNNLIB_DATA"):
        pytest.skip("SNNLIB_DATA is unset: no real electrocardiograms to train on")
    root = Path(os.environ["SNNLIB_DATA"]) / "ecg_qtdb"
    output = run(monkeypatch, capsys, "ecg.py", "--root", str(root), "--hidden", "16", "--epochs", "1")
    assert "of the labelled steps" in output


# Few channels and images.
TINY = ("--width", "4", "--batch-size", "16")


def _arrays(file: Path) -> tuple[str, ...]:
    """Arguments for tiny images, each with one light row that tells its class."""
    labels = np.arange(60) % 3
    images = np.zeros((60, 8, 9), np.uint8)
    images[np.arange(60), 2 + labels] = 200
    np.savez(file, images=images, labels=labels)
    return "images.py", "--root", str(file), *TINY


def test_images_continue_an_interrupted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = *_arrays(tmp_path / "images.npz"), "--epochs", "2", "--checkpoint"
    whole = run(monkeypatch, capsys, *given, str(tmp_path / "whole.pt"))
    assert "54 images (1, 8, 9) of 3 classes" in whole and "spikes" in whole and "class 2: " in whole
    step, calls = torch.optim.AdamW.step, []

    def interrupted(self: torch.optim.AdamW) -> None:
        calls.append(1)
        # Each epoch has four batches.
        if len(calls) == 6:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(torch.optim.AdamW, "step", interrupted)
        run(monkeypatch, capsys, *given, str(tmp_path / "parts.pt"))
    assert "continues after epoch 1" in run(monkeypatch, capsys, *given, str(tmp_path / "parts.pt"))
    one, other = (
        torch.load(tmp_path / f"{name}.pt", weights_only=True)["net"] for name in ("whole", "parts")
    )
    for key, value in one.items():
        torch.testing.assert_close(other[key], value)
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(SystemExit, match=r"expected a run with .*'epochs': 3"):
        run(monkeypatch, capsys, *given[:-2], "3", "--checkpoint", str(tmp_path / "parts.pt"))


def test_images_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    for number in range(40):
        place = tmp_path / ("cat", "dog")[number % 2] / f"{number}.png"
        place.parent.mkdir(exist_ok=True)
        image.new("RGB", (12, 10), (number, 100, 200 * (number % 2))).save(place)
    found = run(
        *(monkeypatch, capsys, "images.py", "--root", str(tmp_path), "--size", "8", "--epochs", "1"),
        *("--net", "ms_resnet18", "--mirror", *TINY),
    )
    assert "images (3, 8, 8) of 2 classes" in found and "accuracy" in found


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="a job of Slurm is a script of bash")
def test_the_job_of_a_cluster_goes_on_after_its_signal(tmp_path: Path) -> None:
    """The script of docs/cluster.md with stand-ins for Slurm's commands, which note how they are called."""
    page = (EXAMPLES.parent / "docs/cluster.md").read_text(encoding="utf-8")
    (tmp_path / "job").write_text(page.split("```sh\n")[1].split("```")[0])
    stand_ins = {"srun": 'sleep "$SECONDS_OF_TRAINING"', "scontrol": 'kill "$(cat srun.pid)"'}
    for name, action in stand_ins.items():
        file = tmp_path / name
        file.write_text(f'#!/bin/bash\necho $$ > {name}.pid\necho "{name} $*" >> calls\nexec {action}\n')
        file.chmod(0o755)
    variables = {"SUBMIT_DIR": tmp_path, "JOB_NAME": "first", "JOB_ID": 7, "CPUS_PER_TASK": 4, "NNODES": 2}
    slurm = {f"SLURM_{name}": str(value) for name, value in {**variables, "NTASKS_PER_NODE": 1}.items()}
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    def start(seconds: int) -> subprocess.Popen[bytes]:
        env = {**os.environ, **slurm, "PATH": path, "SECONDS_OF_TRAINING": str(seconds)}
        return subprocess.Popen(["/bin/bash", "job"], cwd=tmp_path, env=env)

    job = start(60)
    while not (tmp_path / "calls").exists() and job.poll() is None:
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(30) != 0
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/config.json").touch()
    assert start(0).wait(30) == 0
    first, requeue, second = (tmp_path / "calls").read_text().splitlines()
    assert requeue == "scontrol requeue 7"
    assert f"--recipe nmnist --root {Path.home()}/N-MNIST --out {tmp_path}/runs/first" in first
    assert f"snnlib train --resume {tmp_path}/runs/first --nodes 2 --devices 1 --threads 4" in second
