"""Time and peak memory of a training step for the same recordings in finer and finer bins, input as events.

    SNNLIB_DATA=FOLDER python benchmarks/cpu/fine_bins.py [--steps 300 3000] [--chunk 200] [--neurons srm lif] [--peers]

The N-MNIST net 12C5(p1)-P2-64C5-P2-10, fused, 50 recordings of 300 ms in one pass of `snnlib.checkpoint_time` in T
bins, with as many spikes per sample at every T: weights are scaled until a layer fires at a rate of 0.08 * 30 / T. Time
constants are the same numbers of steps at every T, or with `--stretch` the same milliseconds. The first row has T = 30
and frames in one call, and ratios are to it. With `--repeat` a longer T is the recording over and over again in bins of
10 ms at a rate of 0.08. LIF neurons have a triangle of 0.5 thresholds. With `--peers` snnTorch and SpikingJelly, in
their faster layout, take turns on the same frames. Peak memory is that of a process of its own over what imports
take.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nmnist_nets import RATE, SNNTORCH, SPIKINGJELLY, TUNED, installed, scale_layers_, training_step
from nmnist_nets import make_task as make_peer_task
from peak_memory import peak_apart, print_peak
from torch import Tensor, nn
from turns import Report, Task, parser, take_turns

import snnlib
from snnlib.backends import cpu_memory
from snnlib.data import NMNIST, EventBatch, EventDigits
from snnlib.data.events import Events
from snnlib.nn.layers.spiking_layer import SpikingLayer

_WINDOW_US, _FEWEST = 300_000, 30
# Samples that the rates are set on, halvings of the range of factors, and steps at a time.
_RATED, _HALVINGS, _CHUNK = 2, 11, 300


def recordings(samples: int) -> tuple[list[Events], Tensor]:
    """Events of N-MNIST where `SNNLIB_DATA` has it, else the embedded digits, and labels."""
    folder = Path(os.environ.get("SNNLIB_DATA", ""), "nmnist_800")
    here = bool(os.environ.get("SNNLIB_DATA")) and folder.is_dir()
    data = NMNIST(folder, True) if here else EventDigits()
    every = len(data) // samples
    pairs = [data[number * every] for number in range(samples)]
    return [events for events, _ in pairs], torch.tensor([int(label) for _, label in pairs])


def repeated(events: Events, times: int) -> Events:
    """The recording over and over again, each in a window of its own."""
    parts = []
    for number in range(times):
        part = events.copy()
        part["t"] = np.minimum(part["t"], _WINDOW_US - 1) + number * _WINDOW_US
        parts.append(part)
    return np.concatenate(parts)


def make_net(kind: str, stretch: float) -> nn.Module:
    """The net with SRM or LIF neurons, whose time constants are stretched."""
    torch.manual_seed(0)
    if kind == "lif":
        neuron: snnlib.neurons.Neuron = snnlib.neurons.LIF(
            2.0 * stretch, surrogate=snnlib.surrogate.Triangle(0.5)
        )
    else:
        return snnlib.models.nmnist_net(tau_m=5.0 * stretch, tau_s=3.0 * stretch)
    return snnlib.models.from_notation("12C5p1-P2-64C5-P2-10", (2, 34, 34), neuron=neuron)


@torch.no_grad()
def in_chunks(net: nn.Module, batch: EventBatch) -> None:
    """All steps of a batch, of which a chunk is in memory at a time."""
    stream = snnlib.Stream(net)
    for first in range(0, batch.time_steps, _CHUNK):
        stream(batch.frames(first, min(first + _CHUNK, batch.time_steps)))


def make_task(
    kind: str, stretch: float, weights: dict[str, Tensor], batch: EventBatch, y: Tensor, chunk: int | None
) -> Task:
    """Returns a training step; a chunk of 0 means one call, None as many steps as `checkpoint_time` chooses."""
    net = make_net(kind, stretch)
    net.load_state_dict(weights)
    snnlib.fuse_(net)
    return training_step(net, batch.frames(0, batch.time_steps) if chunk == 0 else batch, y, chunk)


def _clean() -> None:
    """Gives the memory of the task before to the system, which else the next one does at its own cost."""
    gc.collect()
    cpu_memory.hand_back_freed_memory()


def _tiny() -> tuple[Any, ...]:
    """Arguments of `make_task` of hardly any size."""
    events = [np.zeros(1, snnlib.data.as_events(t=[0], x=[0], y=[0], p=[0]).dtype)]
    batch = EventBatch(events, step_us=1, time_steps=2)
    return "srm", 1.0, make_net("srm", 1.0).state_dict(), batch, torch.zeros(1, dtype=torch.int64), 1


def main() -> None:
    wanted = parser(__doc__, turns=3)
    wanted.add_argument("--steps", type=int, nargs="+", default=[300, 3000], help="bins T of a recording")
    wanted.add_argument("--chunk", type=int, help="steps of a chunk; 0: one call (default: chosen)")
    wanted.add_argument("--batch", type=int, default=50)
    wanted.add_argument("--neurons", nargs="+", choices=["srm", "lif"], default=["srm", "lif"])
    wanted.add_argument("--stretch", action="store_true", help="time constants in milliseconds")
    wanted.add_argument("--repeat", action="store_true", help="longer recordings in the place of finer bins")
    wanted.add_argument("--peers", action="store_true", help="other libraries too, beside the first neurons")
    arguments = wanted.parse_args()
    report = Report(arguments)
    quick = arguments.quick
    given, y = recordings(2 if quick else arguments.batch)
    peers = [name for name in (SNNTORCH + TUNED, SPIKINGJELLY + TUNED) if arguments.peers and installed(name)]
    for kind in ["srm"] if quick else arguments.neurons:
        tasks: dict[str, Task] = {}
        peaks: dict[str, float] = {}
        for steps in [_FEWEST] if quick else [_FEWEST, *arguments.steps]:
            finer = 1 if arguments.repeat else steps // _FEWEST
            events = [repeated(one, steps // _FEWEST) if arguments.repeat else one for one in given]
            window = {"step_us": _WINDOW_US // _FEWEST // finer, "time_steps": steps}
            stretch = float(finer) if arguments.stretch else 1.0
            net = make_net(kind, stretch)
            few = EventBatch(events[:_RATED], **window)
            scale_layers_(net, SpikingLayer, RATE / finer, partial(in_chunks, net, few), _HALVINGS)
            chunk = 0 if steps == _FEWEST else arguments.chunk
            task = (kind, stretch, net.state_dict(), EventBatch(events, **window), y, chunk)
            name = f"T = {steps}" + (
                f", chunks of {chunk}" if chunk else ", in chunks" if chunk is None else ""
            )
            tasks[name] = make_task(*task)
            peaks[name] = peak_apart(__file__, task, not arguments.fresh_memory)
            for peer in peers:
                frames = EventBatch(events, **window).frames(0, steps)
                tasks[f"T = {steps}, {peer}"] = make_peer_task(peer, frames, y, {})
        table = take_turns(tasks, arguments.turns, between=_clean)
        for name, peak in peaks.items():
            table[name]["peak_mb"] = peak
        what = "longer recordings" if arguments.repeat else "finer bins"
        report.add(f"{kind}, {what}, batch {len(y)}", table)
        peers = []

    report.write()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        print_peak(sys.argv[2], make_task, _tiny())
    else:
        main()
