"""Settings for a folder of one's own: time window, crop, pooling, net and batches, from what the recordings hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from snnlib.app.read_options import folder_options
from snnlib.app.training.errors import ConfigError
from snnlib.data import EventFolder

# Recordings that are looked at, evenly over the training set.
LOOKED_AT = 100
# Nine of ten recordings have all but 2 % of their events in the window: the rest are stragglers.
EVENT_SHARE, RECORDING_SHARE = 0.98, 0.9
# The recipe's, measured on recordings of 300 ms; fewer steps where there are less than 10 events for each.
TIME_STEPS, LEAST_STEPS, EVENTS_PER_STEP = 30, 5, 10
# Pixels beyond these quantiles of the events are cropped: lone noise at the rim.
CROP_QUANTILES = (0.005, 0.995)
# Single recordings that reach further do not count.
CROP_RECORDINGS = 0.02
# The recipe's frames are 34 x 34; its two convolutions and two poolings need 14.
LARGEST_SIDE, LEAST_SIDE = 34, 16
LAYERS = "12C5p1-P2-64C5-P2"
# The recipe takes about 450 steps of 25 samples.
STEPS, LARGEST_BATCH, MOST_EPOCHS, LEAST_EPOCHS = 450, 25, 60, 8
VAL_SPLIT, LEAST_FOR_VAL = 0.1, 6


@dataclass(frozen=True)
class FolderChoice:
    """Settings that were chosen, and why.

    Args:
        settings: fields of `TrainConfig`.
        reasons: one sentence per choice.
    """

    settings: dict[str, Any]
    reasons: list[str]


def choose_settings(root: str | None, given: Mapping[str, Any]) -> FolderChoice:
    """Choose what `given` leaves open, from at most 100 training recordings of the folder.

    Args:
        root: the folder, see `snnlib.data.EventFolder`.
        given: settings that the user chose; they are kept, and others follow from them.

    Raises:
        ConfigError: no folder, no recordings, one class only, or no events.
    """
    if root is None:
        raise ConfigError("root", "expected the folder of the recordings for data folder, got none")
    try:
        samples = EventFolder(root, "train", val_share=0.0, **folder_options(given.get("read")))
        looked = np.unique(np.linspace(0, len(samples) - 1, min(LOOKED_AT, len(samples))).astype(int))
        recordings = [samples.read(int(index)).events for index in looked]
    except TypeError as error:
        raise ConfigError("read", str(error)) from error
    except (OSError, ValueError) as error:
        raise ConfigError("root", str(error)) from error
    if len(samples.classes) < 2:
        raise ConfigError(
            "root", f"expected recordings of two classes or more, got {', '.join(samples.classes)}"
        )
    recordings = [events for events in recordings if len(events)]
    if not recordings:
        raise ConfigError("root", f"expected recordings with events, got {len(looked)} without any")
    settings: dict[str, Any] = {"classes": list(samples.classes)}
    reasons = [
        f"{len(samples)} recordings to train on, {len(samples.classes)} classes: {', '.join(samples.classes)}"
    ]
    for chosen in (
        _time(recordings, given),
        _frame(recordings, given),
        _learning(samples, given),
    ):
        settings |= chosen.settings
        reasons += chosen.reasons
    settings = {name: value for name, value in settings.items() if name not in given}
    return FolderChoice(settings, reasons)


def _time(recordings: list[np.ndarray[Any, Any]], given: Mapping[str, Any]) -> FolderChoice:
    ends = [float(np.quantile(events["t"], EVENT_SHARE)) for events in recordings]
    window_ms = max(float(np.quantile(ends, RECORDING_SHARE)), 1.0) / 1000
    median = float(np.median([len(events) for events in recordings]))
    if "step_ms" in given:
        step_ms = float(given["step_ms"])
        steps = int(given.get("time_steps", max(math.ceil(window_ms / step_ms), 1)))
    else:
        steps = int(
            given.get("time_steps", min(TIME_STEPS, max(LEAST_STEPS, int(median) // EVENTS_PER_STEP)))
        )
        step_ms = _round_up(window_ms / steps)
    reason = (
        f"time_steps {steps}, step_ms {step_ms:g}: {RECORDING_SHARE:.0%} of {len(recordings)} recordings have "
        f"{EVENT_SHARE:.0%} of their events within {window_ms:.4g} ms; half of them have {median:.0f} events or more"
    )
    late = "late drop: later events are left out, so that the last step is like the others"
    settings = {"time_steps": steps, "step_ms": step_ms, "late": "drop"}
    return FolderChoice(settings, [reason] if "late" in given else [reason, late])


def _round_up(value: float) -> float:
    """Two significant digits, and whole microseconds."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return max(round(math.ceil(round(value / unit, 6)) * unit, 3), 0.001)


def _frame(recordings: list[np.ndarray[Any, Any]], given: Mapping[str, Any]) -> FolderChoice:
    box = []
    for field in ("y", "x"):
        # Every recording counts alike, however many events it has; classes may lie in different places.
        edges = np.array([np.quantile(events[field], CROP_QUANTILES) for events in recordings])
        low, high = np.quantile(edges[:, 0], CROP_RECORDINGS), np.quantile(edges[:, 1], 1 - CROP_RECORDINGS)
        start, side = int(low), int(high) - int(low) + 1
        if side < LEAST_SIDE:
            start, side = max(start - (LEAST_SIDE - side) // 2, 0), LEAST_SIDE
        box.append((start, side))
    (top, height), (left, width) = box
    pool = int(given.get("pool", -(-max(height, width) // LARGEST_SIDE)))
    height, width = (-(-side // pool) * pool for side in (height, width))
    crop = f"{width}x{height}+{left}+{top}"
    reason = (
        f"crop {crop} (width x height + left + top): there lie nearly all events; pool {pool}: frames of "
        f"{width // pool} x {height // pool} pixels, near the {LARGEST_SIDE} x {LARGEST_SIDE} of the recipe"
    )
    return FolderChoice({"crop": crop, "pool": pool}, [reason])


def _learning(samples: EventFolder, given: Mapping[str, Any]) -> FolderChoice:
    net = f"{LAYERS}-{len(samples.classes)}"
    least = min(Counter(samples.targets.tolist()).values())
    val_split = VAL_SPLIT if least >= LEAST_FOR_VAL else 0.0
    count = len(samples) * (1 - float(given.get("val_split", val_split)))
    batch = int(given.get("batch_size", min(LARGEST_BATCH, max(2, int(count) // 8))))
    epochs = min(MOST_EPOCHS, max(LEAST_EPOCHS, math.ceil(STEPS * batch / max(count, 1))))
    held = (
        f"val_split {val_split:g}: the best epoch is chosen on samples held out of training"
        if val_split
        else f"val_split 0: {least} recordings in a class are too few to hold any out"
    )
    return FolderChoice(
        {"net": net, "val_split": val_split, "batch_size": batch, "epochs": epochs},
        [
            f"net {net}: the recipe's, with a neuron per class",
            held,
            f"batch_size {batch}, epochs {given.get('epochs', epochs)}: about {STEPS} steps are what the recipe takes",
        ],
    )
