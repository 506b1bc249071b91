"""Folders of one's own, of event files and of images, with the settings that fit what they hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from snnlib.app.errors import ConfigError, naming
from snnlib.app.kinds.base import Choice, check_classes, spread
from snnlib.app.kinds.events import EventKind
from snnlib.app.kinds.images import ImageKind
from snnlib.app.read_options import folder_options
from snnlib.data import EventFolder, ImageFolder, read_image
from snnlib.data.datasets.splits import Split

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig

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
# Images that are looked at, evenly over the training set.
IMAGES_LOOKED_AT = 200
# Sides of images: the convolutions of the recipe need this much, and take long with more.
LEAST_IMAGE, LARGEST_IMAGE = 16, 64
# Hidden layers of the recipe's net.
IMAGE_LAYERS, RECURRENT_LAYERS = "15C5-P2-40C5-P2-300", "128R"


@dataclass(frozen=True, kw_only=True)
class _EventFolder(EventKind):
    def sensor(self, config: TrainConfig) -> tuple[Sequence[str], tuple[int, int]]:
        """Returns classes and sensor size of the settings, or else of the folder."""
        if config.data.classes and config.data.crop_box:
            return config.data.classes, config.data.crop_box[2:]
        with naming("root"):
            samples = _opened(config.data.root, config.data.reader_options, None)
            # The size of the sensor is found by reading.
            size = config.data.crop_box[2:] if config.data.crop_box else samples.sensor_size
        return config.data.classes or samples.classes, size

    def choose(self, given: Mapping[str, Any]) -> Choice:
        """From at most 100 training recordings."""
        self.check_root(given.get("root"))
        with naming("root"):
            samples = _opened(given["root"], given.get("reader_options"), "train", val_share=0.0)
            looked = spread(len(samples), LOOKED_AT)
            recordings = [samples.read(index).events for index in looked]
        self.check_two(samples.classes)
        recordings = [events for events in recordings if len(events)]
        if not recordings:
            raise ConfigError("root", f"expected recordings with events, got {len(looked)} without any")
        settings: dict[str, Any] = {"classes": list(samples.classes)}
        reasons = [
            f"{len(samples)} recordings to train on, {len(samples.classes)} classes: {', '.join(samples.classes)}"
        ]
        for chosen in (_time(recordings, given), _frame(recordings, given), _learning(samples, given)):
            settings |= chosen.settings
            reasons += chosen.reasons
        return Choice({name: value for name, value in settings.items() if name not in given}, reasons)


def _opened(
    root: str | None, options: Sequence[str] | None, split: Split | None, **shares: Any
) -> EventFolder:
    """The folder; options that no file's format has are the fault of their setting."""
    try:
        return EventFolder(root or "", split, **shares, **folder_options(options))
    except TypeError as error:
        raise ConfigError("reader_options", str(error)) from error


def _recordings(config: TrainConfig, split: Split, progress: bool) -> EventFolder:
    samples = _opened(
        config.data.root, config.data.reader_options, split, val_share=config.learning.val_split
    )
    check_classes(samples.classes, config.data.classes or samples.classes, config.data.root)
    return samples


def _time(recordings: list[np.ndarray[Any, Any]], given: Mapping[str, Any]) -> Choice:
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
    late = "overflow drop: later events are left out, so that the last step is like the others"
    settings = {"time_steps": steps, "step_ms": step_ms, "overflow": "drop"}
    return Choice(settings, [reason] if "overflow" in given else [reason, late])


def _round_up(value: float) -> float:
    """Two significant digits, and whole microseconds."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return max(round(math.ceil(round(value / unit, 6)) * unit, 3), 0.001)


def _frame(recordings: list[np.ndarray[Any, Any]], given: Mapping[str, Any]) -> Choice:
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
    return Choice({"crop": crop, "pool": pool}, [] if "crop" in given else [reason])


def _learning(samples: EventFolder, given: Mapping[str, Any]) -> Choice:
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
    chosen = int(given.get("epochs", epochs))
    pace = f"batch_size {batch}, epochs {chosen}: about {chosen * math.ceil(count / batch)} steps"
    reasons = {
        "net": f"net {net}: the recipe's, with a neuron per class",
        "val_split": held,
        "epochs": f"{pace}; the recipe takes {STEPS}, and {LEAST_EPOCHS} to {MOST_EPOCHS} epochs",
    }
    return Choice(
        {"net": net, "val_split": val_split, "batch_size": batch, "epochs": epochs},
        [reason for name, reason in reasons.items() if name not in given] + [pace] * ("epochs" in given),
    )


EVENT_FOLDER = _EventFolder(
    name="folder",
    help="a folder of event files",
    folder="recordings",
    has=frozenset({"frames", "sensor", "event files"}),
    own_validation=True,
    recordings=_recordings,
    # As `EventFolder` reads its files.
    reading={"origin": "first"},
)


@dataclass(frozen=True, kw_only=True)
class _ImageFolder(ImageKind):
    def classes(self, config: TrainConfig) -> tuple[str, ...]:
        """Returns the classes of the settings, or else of the folder."""
        return tuple(config.data.classes or self.images(config, None).classes)

    def image_shape(self, config: TrainConfig) -> tuple[int, int, int]:
        """Returns the size of the settings, or else of the first image."""
        height, width = config.data.image_size or self.images(config, None).image_size
        return (3 if config.data.colour else 1, height, width)

    def images(self, config: TrainConfig, split: Split | None) -> ImageFolder:
        """The folder."""
        mode = _mode(config.data.colour)
        size, share = config.data.image_size, config.learning.val_split
        return ImageFolder(config.data.root or "", split, mode=mode, size=size, val_share=share)

    def choose(self, given: Mapping[str, Any]) -> Choice:
        """From at most 200 training images."""
        self.check_root(given.get("root"))
        with naming("root"):
            folder = ImageFolder(given["root"], "train", mode=_mode(given.get("colour")), val_share=0.0)
        self.check_two(folder.classes)
        looked = spread(len(folder), IMAGES_LOOKED_AT)
        images = [read_image(folder.root / folder.files[number], mode=folder.mode) for number in looked]
        shapes = torch.tensor([image.shape[1:] for image in images])
        height, width = (min(max(int(side), LEAST_IMAGE), LARGEST_IMAGE) for side in shapes.median(0).values)
        size = str(given.get("size", f"{width}x{height}"))
        pixels = torch.cat([image.flatten() for image in images]).double() / 255
        mean, std = round(float(pixels.mean()), 4), round(max(float(pixels.std()), 1e-3), 4)
        encoding = given.get("encoding", "current")
        settings: dict[str, Any] = {
            "classes": list(folder.classes),
            "size": size,
            "net": f"{IMAGE_LAYERS}-{len(folder.classes)}",
        }
        reasons = [
            f"{len(folder)} images to train on, {len(folder.classes)} classes: {', '.join(folder.classes)}",
            f"size {size}: half of {len(images)} images are {int(shapes[:, 1].median())} x "
            f"{int(shapes[:, 0].median())} or larger; sides are kept within {LEAST_IMAGE} to {LARGEST_IMAGE}",
        ]
        if encoding not in ("rate", "latency"):
            settings |= {"mean": mean, "std": std}
            if not {"mean", "std"} & given.keys():
                reasons.append(f"mean {mean}, std {std}: of the pixels of {len(images)} images")
        else:
            settings |= {"mean": 0.0, "std": 1.0}
        if encoding not in ("current", "rate", "latency") and size.count("x") == 1:
            columns, rows = (int(side) if side.isdigit() else 1 for side in size.split("x"))
            settings |= {
                "time_steps": rows if encoding == "rows" else rows * columns,
                "net": f"{RECURRENT_LAYERS}-{len(folder.classes)}",
            }
            reasons.append(f"time_steps {settings['time_steps']}: one for each of the image's {encoding}")
        settings = {name: value for name, value in settings.items() if name not in given}
        reasons.append(f"net {given.get('net', settings.get('net'))}: a neuron per class")
        return Choice(settings, reasons)


def _mode(colour: bool | None) -> Any:
    return "colour" if colour else "grey"


IMAGE_FOLDER = _ImageFolder(
    name="images",
    help="a folder of PNG or JPEG files",
    folder="images",
    has=frozenset({"frames", "images", "image files"}),
    recipe="mnist",
)
