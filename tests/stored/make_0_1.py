"""How the files in `0.1/` were made, with snnlib 0.1: `python make_0_1.py` in an empty folder.

They are never made again: later versions have to read them as they are. Events are 0 or 1, of NumPy's PCG64.

    events.npz          one spike tensor `[T, N, C, H, W]`, in the format of snnlib/testing/golden.py
    plain.pt            state_dict of `from_notation(NOTATION, SHAPE, **CONSTANTS)`, calibrated on the events
    standardised.pt     of the same net after `nn.standardize_weights`
    folded.pt           of that net after `nn.fold_standardization`: thresholds per channel
    readout.pt          of `SRMReadout(10, 3, tau_m=8, tau_s=4)`
    spikes_plain.npz    spikes of all layers; likewise spikes_standardised.npz, spikes_folded.npz
    potentials.npz      `fc1`: potentials of the plain net's last layer; `readout`: of the readout on its spikes
    cache/              what `EventDigits` keeps, of three digits
    run/                run folder of `snnlib train` on the cache, less report, pictures and TensorBoard logs;
                        `last.ckpt.previous` is of the first of its two epochs
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from snnlib.data.digits_build import build_event_digits
from torch import Tensor, nn

import snnlib
from snnlib.testing.golden import encode

NOTATION, SHAPE = "4C3p1-P2-6C3-10", (2, 12, 12)
CONSTANTS = {"tau_m": 8.0, "tau_s": 4.0, "tau_grad": 6.0}
STEPS, BATCH = 20, 3


def events() -> Tensor:
    generator = np.random.Generator(np.random.PCG64(1))
    return torch.from_numpy((generator.random((STEPS, BATCH, *SHAPE)) < 0.15).astype(np.float32))


def spikes(net: nn.Module) -> dict[str, Tensor]:
    trains, x = {}, events()
    with torch.no_grad(), snnlib.use_convolution("events"):
        for name, layer in net.named_children():
            x = layer(x)
            if isinstance(layer, snnlib.nn.SRMLayer):
                trains[name] = x
    return trains


def save(name: str, net: nn.Module) -> None:
    torch.save(net.state_dict(), f"{name}.pt")
    write(f"spikes_{name}.npz", spikes(net))


def write(name: str, trains: dict[str, Tensor]) -> None:
    Path(name).write_bytes(encode({key: train.numpy() > 0 for key, train in trains.items()}))


def save_nets() -> None:
    torch.manual_seed(1)
    net = snnlib.models.from_notation(NOTATION, SHAPE, **CONSTANTS)
    snnlib.init.calibrate_firing_rate_(net, events(), 0.1)
    readout = snnlib.SRMReadout(10, 3, tau_m=8.0, tau_s=4.0)
    save("plain", net)
    torch.save(readout.state_dict(), "readout.pt")
    trains = spikes(net)
    with torch.no_grad():
        current = net.fc1.operator.forward(trains["conv2"].flatten(0, 1), net.fc1.weight)
        trace = snnlib.functional.srm_trace(current.view(STEPS, BATCH, -1), **CONSTANTS)
        assert torch.equal(trace.spikes, trains["fc1"])
        np.savez_compressed(
            "potentials.npz", fc1=trace.potential.numpy(), readout=readout(trains["fc1"]).numpy()
        )
    snnlib.nn.standardize_weights(net)
    # As training leaves them: neither gains nor scales are all alike.
    for module in net.modules():
        if isinstance(module, snnlib.WeightStandardization):
            nn.init.uniform_(module.gain, 0.7, 1.4)
    save("standardised", net)
    save("folded", snnlib.nn.fold_standardization(net))


def train() -> None:
    # Two digits to train with, one to test.
    build_event_digits("cache/event-digits-v1-seed0", samples=[1, 4, 10], progress=False)
    options = "--data nmnist --net 4C5s2-P3-10 --epochs 2 --batch-size 2 --target-rate 0.05 --device cpu"
    paths = "--root cache/event-digits-v1-seed0 --out run"
    subprocess.run(
        [sys.executable, "-m", "snnlib.cli", "train", *options.split(), *paths.split()], check=True
    )
    for path in Path("run").iterdir():
        if path.is_dir() and path.name != "checkpoints":
            shutil.rmtree(path)
    for path in (Path("run", "report.html"), *Path("run").glob("*.png")):
        path.unlink()


if __name__ == "__main__":
    write("events.npz", {"events": events()})
    save_nets()
    train()
