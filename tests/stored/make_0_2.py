"""How the files in `0.2/` were made, with snnlib 0.2.0: `python make_0_2.py` in an empty folder.

They are never made again: later versions have to read them as they are.

    data/KIND/             what `snnlib train` read; `events` read the cache in `0.1/`
    trained/KIND/          run folder, less report, pictures and logs; `last.ckpt.previous` is of the first epoch
    trained/KIND/state.pt  `torch.save` of the net's state_dict after training
    trained/KIND/outputs.npz   `x`, random currents, and `y`, what the trained net made of it
    layers.pt              a state_dict of `layer(name)` for every name of `LAYERS`, as drawn, with input and outputs
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import snnlib
from snnlib import neurons

COMMON = [
    "--epochs",
    "2",
    "--batch-size",
    "2",
    "--threads",
    "1",
    "--device",
    "cpu",
    "--warmup-epochs",
    "0",
]
BINNED = ["--time-steps", "8", "--crop", "12x12+0+0"]
# What was asked of the command, and the shape of one sample.
RUNS: dict[str, tuple[list[str], tuple[int, ...]]] = {
    "events": (
        ["--data", "nmnist", "--step-ms", "40", *BINNED, "--net", "4C3s2-P2-10", "--loss", "count"],
        (2, 12, 12),
    ),
    "folder": (
        [
            *(
                "--data",
                "folder",
                "--step-ms",
                "10",
                *BINNED,
                "--net",
                "4C3s2-P2-2",
                "--loss",
                "tet",
                "--late",
                "drop",
            ),
            *("--neuron", "lif", "--surrogate", "rectangle", "--val-split", "0"),
        ],
        (2, 12, 12),
    ),
    "images": (
        [
            *(
                "--data",
                "images",
                "--size",
                "12x12",
                "--time-steps",
                "6",
                "--net",
                "4C3s2-P2-2",
                "--mean",
                "0.2",
            ),
            *("--neuron", "alif", "--surrogate", "atan", "--loss", "tet", "--val-split", "0"),
        ],
        (1, 12, 12),
    ),
    "sequences": (["--data", "ecg", "--net", "6R-6", "--neuron", "cubalif"], (4,)),
}
# Of layers of every neuron, and of some with options; later versions may write these in other words.
LAYERS: dict[str, Callable[[], neurons.Neuron]] = {
    **{name: getattr(neurons, name) for name in sorted(neurons.MODELS)},
    "learned": lambda: neurons.LIF(tau=3.0, threshold=0.5, learnable=("tau", "threshold")),
    "per channel": lambda: neurons.CubaLIF(tau_m=torch.linspace(2, 5, 6)),
    "single spike": lambda: neurons.LIF(single_spike=True),
    "share": lambda: neurons.LIF(surrogate=snnlib.surrogate.Triangle()),  # share=0.2
    "event": lambda: neurons.CubaLIF(gradient="event", input_gradient="dense"),
}


def layer(name: str) -> nn.Module:
    return snnlib.nn.SpikingLinear(5, 6, neuron=LAYERS[name]())


def write_folder(root: Path) -> None:
    generator = np.random.default_rng(0)
    for label, name in enumerate(("left", "right")):
        for number in range(4):
            x = 6 * label + generator.integers(0, 6, 300)
            t, y, p = np.sort(generator.integers(0, 80_000, 300)), *generator.integers(0, (12, 2), (300, 2)).T
            path = root / name / f"{number}.raw"
            path.parent.mkdir(parents=True, exist_ok=True)
            snnlib.data.write(
                path, snnlib.data.as_events(t=t, x=x, y=y, p=p), format="evt2", sensor_size=(12, 12)
            )


def write_images(root: Path) -> None:
    generator = np.random.default_rng(0)
    for label, name in enumerate(("left", "right")):
        for number in range(4):
            pixels = generator.integers(0, 60, (12, 12), dtype=np.uint8)
            pixels[:, 6 * label : 6 * label + 6] += 180
            path = root / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)


def write_sequences(root: Path) -> None:
    import scipy.io  # noqa: PLC0415

    root.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part in ("train", "test"):
        x = (generator.random((4, 1301, 4)) < 0.03).astype(np.int16)
        y = np.zeros((4, 1301, 6), np.uint8)
        y[:, np.arange(1301), np.arange(1301) // 217] = 1
        scipy.io.savemat(root / f"QTDB_{part}.mat", {"x": x, "y": y}, do_compression=True)


def train(kind: str) -> None:
    options, shape = RUNS[kind]
    run = Path("trained", kind)
    command = [str(Path(sys.executable).with_name("snnlib")), "train", *options, *COMMON]
    subprocess.run([*command, "--root", f"data/{kind}", "--out", str(run)], check=True)
    for path in run.iterdir():
        if path.is_dir() and path.name != "checkpoints":
            shutil.rmtree(path)
        elif path.name not in ("checkpoints", "config.json", "metrics.csv"):
            path.unlink()
    net = snnlib.load(run).net
    torch.save(net.state_dict(), run / "state.pt")
    with torch.no_grad():
        x = 5 * torch.randn(12, 2, *shape, generator=torch.Generator().manual_seed(1))
        np.savez_compressed(run / "outputs.npz", x=x.numpy(), y=net(x).numpy())


def spikes(*shape: int) -> Tensor:
    generator = np.random.Generator(np.random.PCG64(1))
    return torch.from_numpy((generator.random(shape) < 0.3).astype(np.float32))


def save_layers() -> None:
    torch.manual_seed(1)
    stored, x = {}, 10 * spikes(12, 2, 5)
    for name in LAYERS:
        made = layer(name)
        with torch.no_grad():
            stored[name] = {"state": made.state_dict(), "x": x, "y": made(x)}
    torch.save(stored, "layers.pt")


if __name__ == "__main__":
    cache = Path(__file__).parent / "0.1/cache/event-digits-v1-seed0"
    shutil.copytree(cache, "data/events")
    write_folder(Path("data/folder"))
    write_images(Path("data/images"))
    write_sequences(Path("data/sequences"))
    for name in RUNS:
        train(name)
    save_layers()
    print(
        json.dumps({str(file): file.stat().st_size for file in Path().rglob("*") if file.is_file()}, indent=1)
    )
