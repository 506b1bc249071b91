"""The words that settings of a run choose from, and what kinds of data there are."""

from __future__ import annotations

from typing import Literal

DataName = Literal[
    "digits",
    "nmnist",
    "mnist-events",
    "folder",
    "mnist",
    "fashion-mnist",
    "images",
    "ecg",
    "spoken-digits",
    "shd",
    "ssc",
]
ImageEncoding = Literal["current", "rate", "latency", "rows", "pixels", "permuted-pixels"]
LossName = Literal[
    "count",
    "count+",
    "cross-entropy",
    "cross-entropy+",
    "first-spike",
    "spike-time",
    "van-rossum",
    "tet",
    "mean-potential",
]
NeuronName = Literal["srm", "if", "lif", "plif", "cubalif", "alif", "adlif", "brf", "lru", "spiking-lru"]
SurrogateName = Literal["triangle", "rectangle", "atan", "sigmoid", "fast-sigmoid"]
Start = Literal["calibrated", "standardized"]
FrameMode = Literal["binary", "count"]
LateEvents = Literal["clamp", "drop", "error"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["32-true", "64-true", "bf16-true", "bf16-mixed"]

# Data without frames `[T, 2, H, W]`: sequences `[T, channels]`, of different lengths; and those labelled at every step.
SEQUENCES: frozenset[DataName] = frozenset({"ecg", "spoken-digits", "shd", "ssc"})
IMAGES: frozenset[DataName] = frozenset({"mnist", "fashion-mnist", "images"})
STEPS_LABELLED: frozenset[DataName] = frozenset({"ecg"})
# Losses that know lengths; others count steps to the end of the batch.
LOSSES_WITH_LENGTHS: tuple[LossName, ...] = (
    *("tet", "mean-potential"),
    *("count", "count+", "cross-entropy", "cross-entropy+"),
)
# Losses of output potentials, which a read-out has instead of spikes.
LOSSES_OF_POTENTIALS: frozenset[LossName] = frozenset({"tet", "mean-potential"})
# Neurons of state-space blocks, and of no other layer.
STATE_SPACE_NEURONS: frozenset[NeuronName] = frozenset({"lru", "spiking-lru"})
