"""The settings of a training run: one place for every default, checked, kept as `config.json`."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from snnlib import __version__
from snnlib.app.read_options import read_options
from snnlib.app.training.errors import ConfigError
from snnlib.data import EventFileError
from snnlib.data.atomic import write_bytes_atomically

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
    "count", "count+", "cross-entropy", "cross-entropy+", "first-spike", "spike-time", "van-rossum", "tet"
]
NeuronName = Literal["srm", "if", "lif", "plif", "cubalif", "alif", "adlif"]
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
_LOSSES_WITH_LENGTHS: tuple[LossName, ...] = ("tet", "count", "count+", "cross-entropy", "cross-entropy+")
# Settings that may differ when a run is resumed: they say how the work is done, not what is learned.
MACHINE_FIELDS = frozenset({"root", "threads", "workers"})
# Of torch's generators, with room for what is added per epoch.
_LARGEST_SEED = 2**63 - 1
_LARGEST_COUNT = 2**31 - 1
# Key of snnlib's version in `config.json`; 0.1 wrote none.
_VERSION_KEY = "snnlib_version"


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a run, checked when made. The defaults are the recipe for the embedded digits.

    Args:
        data: `"digits"`, the embedded event digits; `"nmnist"`, a copy of N-MNIST in `root`; `"mnist-events"`,
            MNIST's images in `root` as a simulated camera sees them (`snnlib.data.SimulatedEvents`); `"folder"`,
            event files of any formats in `root`, see `snnlib.data.EventFolder`; images: `"mnist"`, `"fashion-mnist"`
            or others in MNIST's format (`snnlib.data.MNIST`), and `"images"`, PNG or JPEG files in `root`, see
            `snnlib.data.ImageFolder`; or sequences without frames: `"ecg"`,
            electrocardiograms labelled at every step (`snnlib.data.ECG`); `"spoken-digits"`, sound through
            `snnlib.data.Cochlea` (`snnlib.data.SpokenDigits`), and `"shd"` and `"ssc"`, speech as spikes of 700
            channels (`snnlib.data.SHD`, `SSC`), each recording as long as it is. Padding of a batch counts for nothing.
        root: folder of the data; None for the user's cache (digits only).
        classes: names of the classes of a folder, in the order of the net's outputs; None to take those in `root`.
        read: options of the reader of event files as `NAME=VALUE` texts, such as `"unit=s"` (folder only); see
            `snnlib.data.read`.
        encoding: how an image becomes a sequence, see `snnlib.data.ToSequence`: `"current"`, `"rate"`, `"latency"`,
            `"rows"`, `"pixels"` or `"permuted-pixels"`, in an order that is the same in every run.
        mean: of an image's pixels from 0 to 1; subtracted, not for rate and latency.
        std: of an image's pixels; what is left is divided by it.
        size: `WIDTHxHEIGHT` in pixels to which the images of a folder are resized; None to take that of the first.
        colour: whether the images of a folder are read in colour.
        net: layers in the papers' notation, see `snnlib.models.from_notation`. The last must have one neuron per class.
        neuron: `"srm"`, which learns from spike times, or a model of `snnlib.neurons` that learns with a surrogate
            gradient.
        tau: membrane time constant of all neurons but SRM, in time steps. Those of recurrent layers are spread over a
            decade from it upwards and learned, see `snnlib.app.training.neuron`.
        surrogate: shape of the surrogate gradient; `"triangle"` and `"rectangle"` are zero away from the threshold, so
            that the backward pass costs what the steps near it cost.
        surrogate_width: half width of a triangle or rectangle, in thresholds.
        batch_norm: whether torch's batch norm stands before the neurons of every layer but the last, for neurons with a
            surrogate gradient. Their rates are not calibrated then.
        tau_m: membrane time constant of SRM neurons and of the read-out, in time steps.
        tau_s: synaptic time constant of SRM neurons and of the read-out, in time steps.
        tau_grad: time constant of the gradient kernel in time steps; None for `tau_s`.
        input_grad_scale: factor of the gradient that SRM layers hand to those before; the 2022 paper's code has 0.85.
        init: folder of a run with the same net, whose last weights this one begins with; None draws them and calibrates
            rates.
        start: how weights of SRM neurons begin. `"calibrated"`: a shift of its weights gives each channel its rate
            (`snnlib.init.calibrate_firing_rate_`), and weights, gain and offset learn at one pace. `"standardized"`:
            weights of mean 0 and one factor give a layer its rate, gain and offset learn slowly, and
            homeostasis wakes silent channels (`snnlib.prepare_` with `standardize`). For images.
        time_steps: time steps per sample, T; sequences without frames have lengths of their own.
        step_ms: length of a time step in milliseconds; that of electrocardiograms is the data's.
        channels: frequency channels of the cochlea that hears spoken digits.
        crop: part of the sensor that is used, as `WIDTHxHEIGHT+LEFT+TOP` in pixels; None for all of it. See
            `snnlib.data.CropPool`, also for `pool`.
        pool: side of the square of pixels that becomes one.
        frames: `"binary"`, a cell with events is 1, or `"count"`, the number of its events.
        late: events after the last step go into it (`"clamp"`), are left out (`"drop"`) or end the run (`"error"`).
        loss: `"count"`, squared distance to the wanted counts where a count is on the wrong side of its own;
            `"count+"`, its balanced form; `"cross-entropy"` and `"cross-entropy+"` of `logit_scale * counts`;
            `"first-spike"`, cross-entropy of `-logit_scale * times`; `"spike-time"` and `"van-rossum"`, distance to a
            train with the wanted counts; `"tet"`, cross-entropy at each step of output potentials without spikes. See
            `snnlib.losses`. TET is the default because it learns fastest by far. Of the others, count wants every
            output neuron to fire a little: one that cross-entropy has silenced learns no more.
        logit_scale: factor from output spike counts or steps to logits. Counts of one sample differ by about ten.
        desired: wanted spikes of the right output neuron; whole numbers for losses on spike trains.
        undesired: wanted spikes of the other output neurons.
        val_split: share of the training samples, of each class alike, that is held out of training to choose the best
            epoch by (`best.ckpt`): the first with the highest accuracy on them. Default 0: none is held out, and the
            net of the last epoch is the result. The test set never chooses anything. Of sequences without frames any
            share above 0 holds out the data set's own validation set, which has other speakers or other recordings.
        epochs: passes over the training set.
        batch_size: samples in a batch, of which every device has one per step.
        accumulate: batches of a device whose gradients are added before a step. R devices give the same bits as one
            that accumulates R batches, for R a power of two and nets without batch normalisation.
        copies: of each sample in its batch, each augmented differently; a step has `copies * batch_size` of them. See
            `snnlib.data.BatchAugmentation`.
        shift: training samples are moved by up to this many pixels along each axis, anew each time they are seen. As
            `rotate` and `warp` an option of `snnlib.data.AugmentFrames`.
        rotate: training samples are turned by up to this many degrees.
        warp: training samples are bent smoothly by about this many pixels.
        lr: learning rate at its peak; AdamW.
        warmup_epochs: epochs of linear rise to `lr`, before the cosine decay to 0.
        weight_decay: AdamW's decoupled weight decay, of weights; learned constants of neurons have none.
        clip_norm: largest norm of the gradient of a step, which is scaled down to it; a step whose gradient is not
            finite is left out. None (default) does neither.
        operations_weight: factor of `snnlib.losses.SynapticOperationsLoss`, which is added to `loss`: the share of the
            dense operations that spikes cause. Default 0: operations cost nothing. `docs/operations.md` tells what
            factors do.
        target_rate: spikes per neuron and time step to which hidden layers are calibrated on one batch before training.
        output_rate: the same for the last layer, whose spikes are counted.
            0.05 is half of what a first layer can reach on the digits, where large parts of the frame are empty.
        seed: of weights, order of samples and everything else random.
        device: `"cpu"`, `"cuda"` or `"auto"`: CUDA where there is a GPU.
        devices: processes (CPU) or GPUs of a machine that train together.
        nodes: machines that train together, each with `devices`; start the same command on each by `torchrun`.
        graph: whether a training step is captured as one CUDA graph (`snnlib.graph_step`), by which small nets are
            faster. Not with `clip_norm`, `operations_weight`, `accumulate`, several devices or sequences without
            frames; the firing of layers is then not watched during training.
        precision: dtype of weights and spikes, in Lightning's words; `"bf16-mixed"` keeps weights in float32 and runs
            the layers under bfloat16 autocast.
        threads: CPU threads; None for torch's own choice.
        workers: processes that read data; 0 reads in the main process, which is fastest once frames are cached. The
            result is the same.

    Raises:
        ConfigError: a setting out of its range; names it, what was expected and what came.

    >>> TrainConfig(epochs=0)
    Traceback (most recent call last):
    snnlib.app.training.errors.ConfigError: epochs: expected an integer >= 1, got 0
    """

    data: DataName = "digits"
    root: str | None = None
    classes: list[str] | None = None
    read: list[str] | None = None
    encoding: ImageEncoding = "current"
    mean: float = 0.0
    std: float = 1.0
    size: str | None = None
    colour: bool = False
    net: str = "12C5p1-P2-64C5-P2-10"
    neuron: NeuronName = "srm"
    tau: float = 2.0
    surrogate: SurrogateName = "triangle"
    surrogate_width: float = 0.5
    batch_norm: bool = False
    tau_m: float = 8.0
    tau_s: float = 4.0
    tau_grad: float | None = 8.0
    input_grad_scale: float = 1.0
    init: str | None = None
    start: Start = "calibrated"
    time_steps: int = 30
    step_ms: float = 10.0
    channels: int = 70
    crop: str | None = None
    pool: int = 1
    frames: FrameMode = "binary"
    late: LateEvents = "clamp"
    loss: LossName = "tet"
    logit_scale: float = 0.5
    desired: float = 15.0
    undesired: float = 2.0
    val_split: float = 0.0
    epochs: int = 8
    batch_size: int = 25
    accumulate: int = 1
    copies: int = 1
    shift: int = 2
    rotate: float = 10.0
    warp: float = 1.0
    lr: float = 2e-2
    warmup_epochs: float = 0.5
    weight_decay: float = 0.05
    clip_norm: float | None = None
    operations_weight: float = 0.0
    target_rate: float = 0.01
    output_rate: float = 0.1
    seed: int = 0
    device: Device = "auto"
    devices: int = 1
    nodes: int = 1
    graph: bool = False
    precision: Precision = "32-true"
    threads: int | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        self._check_words()
        for field, least in (
            ("time_steps", 1),
            ("epochs", 1),
            ("batch_size", 1),
            ("accumulate", 1),
            ("pool", 1),
            ("channels", 1),
            ("copies", 1),
            ("shift", 0),
            ("devices", 1),
            ("nodes", 1),
            ("threads", 1),
            ("workers", 0),
            ("seed", 0),
        ):
            self._check_count(field, least)
        for field, above in (
            ("step_ms", 0),
            ("std", 0),
            ("surrogate_width", 0),
            ("tau_grad", 1),
            ("input_grad_scale", 0),
            ("logit_scale", 0),
            ("desired", 0),
            ("lr", 0),
            ("target_rate", 0),
            ("output_rate", 0),
            ("clip_norm", 0),
        ):
            self._check_number(field, above=above)
        for field, least in (
            ("tau", 1),
            ("tau_m", 1),
            ("tau_s", 1),
            ("undesired", 0),
            ("warmup_epochs", 0),
            ("weight_decay", 0),
            ("operations_weight", 0),
            ("rotate", 0),
            ("warp", 0),
            ("val_split", 0),
        ):
            self._check_number(field, least=least)
        self._check_wanted_counts()
        self._check_batch_norm()
        self._check_graph()
        self._check_sequences()
        self._check_images()
        for field in ("target_rate", "output_rate"):
            if not getattr(self, field) < 1:
                raise self._error(field, "a rate in spikes per step, below 1")
        if not self.val_split < 1:
            raise self._error("val_split", "a share of the training samples, below 1")
        if self.rotate > 180:
            raise self._error("rotate", "degrees in 0..180")
        if self.step_us < 1:
            raise self._error("step_ms", "at least 0.001 ms")
        if self.data != "digits" and self.root is None:
            what = {"nmnist": "N-MNIST copy", "folder": "recordings", "images": "images"}.get(
                self.data, "data set"
            )
            raise ConfigError("root", f"expected the folder of the {what} for data {self.data}, got none")
        names = self.classes
        named = isinstance(names, list) and len(names) > 0 and all(isinstance(name, str) for name in names)
        if names is not None and not named:
            raise self._error("classes", "a list of names")
        self._check_read()
        if self.crop is not None and not re.fullmatch(
            r"[1-9]\d{0,4}x[1-9]\d{0,4}\+\d{1,5}\+\d{1,5}", str(self.crop)
        ):
            raise self._error("crop", "WIDTHxHEIGHT+LEFT+TOP in pixels")

    @property
    def step_us(self) -> int:
        """Length of a time step in whole microseconds, the clock of event files."""
        return round(self.step_ms * 1000)

    @property
    def image_size(self) -> tuple[int, int] | None:
        """`size` as `(height, width)`."""
        if self.size is None:
            return None
        width, height = map(int, self.size.split("x"))
        return height, width

    @property
    def crop_box(self) -> tuple[int, int, int, int] | None:
        """`crop` as `(top, left, height, width)`."""
        if self.crop is None:
            return None
        width, height, left, top = map(int, re.split(r"[x+]", self.crop))
        return top, left, height, width

    def save(self, path: Path) -> None:
        """Write as JSON; a crash leaves the old file or the new one."""
        values = {_VERSION_KEY: __version__, **dataclasses.asdict(self)}
        write_bytes_atomically(path, (json.dumps(values, indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> TrainConfig:
        """Read what `save` wrote.

        Raises:
            ConfigError: no JSON object, an unknown setting or one out of its range; names the file.
            OSError: the file cannot be read.

        Warns:
            UserWarning: another version of snnlib wrote it; lists the settings that it does not name, which take
                today's defaults.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        # Brackets within brackets without end exceed Python's recursion limit.
        except (ValueError, RecursionError) as error:
            raise ConfigError(str(path), f"expected JSON, got text that is none ({error})") from error
        if not isinstance(values, dict):
            raise ConfigError(str(path), f"expected a JSON object of settings, got {type(values).__name__}")
        version = values.pop(_VERSION_KEY, "0.1.0")
        fields = {field.name: field.default for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - fields.keys())
        if unknown:
            raise ConfigError(str(path), f"expected known settings only, got {', '.join(unknown)}")
        try:
            config = cls(**values)
        except ConfigError as error:
            raise ConfigError(str(path), str(error)) from error
        missing = [f"{name}={default}" for name, default in fields.items() if name not in values]
        if version != __version__ or missing:
            warnings.warn(
                f"{path}: written by snnlib {version}, read by {__version__}; "
                f"settings that it does not name: {', '.join(missing) or 'none'}",
                stacklevel=2,
            )
        return config

    def _check_words(self) -> None:
        for field, choices in (
            ("data", DataName),
            ("neuron", NeuronName),
            ("surrogate", SurrogateName),
            ("frames", FrameMode),
            ("encoding", ImageEncoding),
            ("late", LateEvents),
            ("start", Start),
            ("loss", LossName),
            ("device", Device),
            ("precision", Precision),
        ):
            if getattr(self, field) not in get_args(choices):
                raise self._error(field, f"one of {', '.join(get_args(choices))}")
        for field in ("net", "root", "init"):
            if not isinstance(getattr(self, field), str if field == "net" else str | None):
                raise self._error(field, "text")

    def _check_read(self) -> None:
        if self.read is None:
            return
        if self.data != "folder":
            raise self._error("read", f"none for {self.data}, whose files need no options")
        if not (isinstance(self.read, list) and all(isinstance(text, str) for text in self.read)):
            raise self._error("read", "a list of texts NAME=VALUE")
        try:
            read_options(self.read)
        except EventFileError as error:
            raise ConfigError("read", str(error).removeprefix("--read: ")) from error

    def _check_count(self, field: str, least: int) -> None:
        value, most = getattr(self, field), _LARGEST_SEED if field == "seed" else _LARGEST_COUNT
        if field == "threads" and value is None:
            return
        if type(value) is not int or value < least:
            raise self._error(field, f"an integer >= {least}")
        if value > most:
            raise self._error(field, f"an integer <= {most}")

    def _check_number(self, field: str, above: float = -math.inf, least: float = -math.inf) -> None:
        value: Any = getattr(self, field)
        if value is None and field in ("tau_grad", "clip_norm"):
            return
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # An integer may have more digits than any float.
        if not (number and abs(value) <= sys.float_info.max and value > above and value >= least):
            raise self._error(
                field, f"a number > {above:g}" if above > -math.inf else f"a number >= {least:g}"
            )

    def _check_sequences(self) -> None:
        if self.data not in SEQUENCES:
            return
        for field, fixed in (
            ("shift", 0),
            ("rotate", 0),
            ("warp", 0),
            ("crop", None),
            ("pool", 1),
            ("copies", 1),
        ):
            if getattr(self, field) != fixed:
                raise self._error(field, f"{fixed} for {self.data}, which has no frames")
        if self.batch_norm:
            raise self._error(
                "batch_norm", f"false for {self.data}, as padding would be part of its statistics"
            )
        losses = ("tet",) if self.data in STEPS_LABELLED else _LOSSES_WITH_LENGTHS
        if self.loss not in losses:
            raise self._error("loss", f"one of {', '.join(losses)} for {self.data}")

    def _check_images(self) -> None:
        self._check_number("mean")
        if type(self.colour) is not bool:
            raise self._error("colour", "true or false")
        if self.size is not None and not re.fullmatch(r"[1-9]\d{0,3}x[1-9]\d{0,3}", str(self.size)):
            raise self._error("size", "WIDTHxHEIGHT in pixels")
        images, folder = self.data in IMAGES, self.data == "images"
        unused: dict[str, Any] = {} if folder else {"size": None, "colour": False}
        unused |= {"crop": None, "pool": 1} if images else {"encoding": "current", "mean": 0.0, "std": 1.0}
        for field, fixed in unused.items():
            if getattr(self, field) != fixed:
                raise self._error(field, f"{str(fixed).lower()} for {self.data}")
        if self.encoding in ("rate", "latency") and (self.mean, self.std) != (0, 1):
            raise ConfigError(
                "encoding",
                f"expected mean 0 and std 1 beside {self.encoding}, got {self.mean} and {self.std}",
            )

    def _check_batch_norm(self) -> None:
        if type(self.batch_norm) is not bool:
            raise self._error("batch_norm", "true or false")
        if self.batch_norm and self.neuron == "srm":
            raise ConfigError("batch_norm", "expected a neuron with a surrogate gradient beside it, got srm")

    def _check_graph(self) -> None:
        if type(self.graph) is not bool:
            raise self._error("graph", "true or false")
        if not self.graph:
            return
        reasons = {
            "clip_norm": (None, "whether a gradient is finite would have to be read back"),
            "operations_weight": (0, "the numbers of operations would have to be read back"),
            "accumulate": (1, "a graph holds a whole step"),
            "devices": (1, "processes exchange gradients outside of the graph"),
            "nodes": (1, "processes exchange gradients outside of the graph"),
        }
        for field, (wanted, reason) in reasons.items():
            if getattr(self, field) != wanted:
                got = getattr(self, field)
                raise ConfigError("graph", f"expected {field} {wanted} beside it, as {reason}, got {got}")
        if self.data in SEQUENCES:
            raise ConfigError("graph", f"expected data of one length beside it, got {self.data}")
        if self.device == "cpu":
            raise ConfigError("graph", "expected a CUDA device beside it, got cpu")

    def _check_wanted_counts(self) -> None:
        if not self.undesired < self.desired:
            raise self._error("undesired", f"fewer spikes than desired, {self.desired:g}")
        for field in ("desired", "undesired"):
            value = getattr(self, field)
            if self.loss in ("spike-time", "van-rossum") and (value % 1 or value > self.time_steps):
                raise self._error(field, f"a whole number of spikes <= time_steps = {self.time_steps}")

    def _error(self, field: str, expected: str) -> ConfigError:
        return ConfigError(field, f"expected {expected}, got {getattr(self, field)!r}")
