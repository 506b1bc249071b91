"""Settings of a training run in four groups, each setting declared once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from snnlib.app import read_options
from snnlib.app.kinds import KINDS
from snnlib.app.kinds.base import Kind
from snnlib.app.setting import check_settings, count, matches, number, setting, such_that
from snnlib.app.training.neuron import NEURONS, SURROGATES
from snnlib.app.training.objective import LOSSES
from snnlib.backends.flags import MOST_LEVELS

# Largest seed of torch's generators, with room for what is added per epoch.
_LARGEST_SEED = 2**63 - 1

_RATE = such_that(lambda rate: rate < 1, "a rate in spikes per step, below 1")


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


class Group:
    """Group of settings, each checked by itself when the group is made."""

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class DataSettings(Group):
    """Settings of the data and of their presentation to a net."""

    group: ClassVar[str] = "Data"

    data: str = setting(
        "digits",
        f"Train on one of these: {', '.join(f'{kind.help} ({name})' for name, kind in KINDS.items())}.",
        words=KINDS,
    )
    """See `snnlib.data`: `SimulatedEvents`, `EventFolder`, `MNIST`, `ImageFolder`, `ECG`, `SHD`, `SSC`,
    `SpeechCommands`, `SpokenDigits`, `MITBIH`. Padding of a batch of sequences counts for nothing."""
    root: str | None = setting(
        None,
        "Read the data from this folder, which holds Train/ and Test/ or zips of them (nmnist), or one folder per "
        "class with event files of any formats (folder) or with images (images), or the files of the data set.",
        path=True,
    )
    """Defaults to the user's cache (digits only)."""
    classes: list[str] | None = setting(
        None, "", such_that(lambda names: _texts(names) and len(names) > 0, "a list of names")
    )
    """Names of the classes of a folder, in the order of the net's outputs; None to take those in `root`."""
    reader_options: list[str] | None = setting(
        None,
        f"{read_options.HELP} For --data folder.",
        such_that(_texts, "a list of texts NAME=VALUE"),
        needs="event files",
    )
    time_steps: int = setting(30, "Bin each sample into this many time steps.", count(1))
    """T; sequences without frames have lengths of their own."""
    step_ms: float = setting(
        10.0,
        "Make each time step this many milliseconds long.",
        number(above=0),
        such_that(lambda ms: round(ms * 1000) >= 1, "at least 0.001 ms"),
    )
    """Electrocardiograms have the step of their data."""
    channels: int = setting(70, "Hear sound in this many frequency channels.", count(1))
    high_hz: float | None = setting(
        None, "Hear sound up to this frequency in Hz.", number(above=0), needs="voices"
    )
    """Defaults to 0.475 times the sample rate: 7,600 Hz at 16 kHz, 3,800 at 8 kHz."""
    fold: int | None = setting(
        None,
        "Test on this part of the speakers or patients, counted from 0, and train on the others.",
        count(0),
        needs="folds",
    )
    """A part as data sets have it; of spoken digits the speaker of this number. None for the data's own test set."""
    crop: str | None = setting(
        None,
        "Use this part of the sensor, WIDTHxHEIGHT+LEFT+TOP in pixels.",
        matches(r"[1-9]\d{0,4}x[1-9]\d{0,4}\+\d{1,5}\+\d{1,5}", "WIDTHxHEIGHT+LEFT+TOP in pixels"),
        needs="sensor",
    )
    """Defaults to the whole sensor. See `snnlib.data.CropPool`, also for `pool`."""
    pool: int = setting(1, "Join squares of this many pixels by side to one.", count(1), needs="sensor")
    frames: Literal["binary", "count"] = setting(
        "binary", "Set a cell with events to 1 (binary) or to the number of its events (count)."
    )
    overflow: Literal["clamp", "drop", "error"] = setting(
        "clamp", "Put events after the last step into it (clamp) or leave them out (drop)."
    )
    """`"error"`: they end the run."""
    encoding: Literal["current", "rate", "latency", "rows", "pixels", "permuted-pixels"] = setting(
        "current",
        "Show an image as currents at every step, as spikes by rate or latency, or row by row or pixel by pixel.",
        needs="images",
    )
    """See `snnlib.data.ToSequence`. Permuted pixels have an order that is the same in every run."""
    mean: float = setting(
        0.0, "Subtract this from the pixels of images, which are from 0 to 1.", number(), needs="images"
    )
    """Not for rate and latency."""
    std: float = setting(1.0, "Divide what is left by this.", number(above=0), needs="images")
    size: str | None = setting(
        None,
        "Resize the images of a folder to WIDTHxHEIGHT pixels.",
        matches(r"[1-9]\d{0,3}x[1-9]\d{0,3}", "WIDTHxHEIGHT in pixels"),
        needs="image files",
    )
    """Defaults to the size of the first image."""
    colour: bool = setting(False, "Read the images of a folder in colour.", needs="image files")

    @property
    def kind(self) -> Kind:
        """Returns the kind of data that `data` names."""
        return KINDS[self.data]

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


@dataclass(frozen=True)
class NetSettings(Group):
    """The net, and the weights that it begins with."""

    group: ClassVar[str] = "Net"

    net: str = setting(
        "12C5p1-P2-64C5-P2-10",
        "Build these layers: 12C5p1 is a convolution, P2 a pooling, 10 a linear layer, 10D25 one with delays up to 25 "
        "steps, 128R a recurrent one, 64RB one in both directions, 64S a state-space block; A2 and T2 delay channels, "
        "64M2 is a residual block over 3 steps.",
    )
    """The papers' notation, see `snnlib.models.from_notation`. The last layer must have one neuron per class."""
    neuron: str = setting(
        "srm",
        "Build layers of these neurons; all but srm and cuba-event learn with a surrogate gradient.",
        words=NEURONS,
    )
    """`"srm"` and `"cuba-event"`, which is `CubaLIF(gradient="event")`, learn from spike times; the others are models
    of `snnlib.neurons`."""
    dialect: Literal["loihi"] | None = setting(
        None, "Compute as this chip does, by neurons lif (usual) or cubalif: integers, weights of 8 bits."
    )
    """See `snnlib.neurons.LoihiLIF`; the read-out is a membrane of the chip. None is floating point."""
    tau: float = setting(
        2.0, "Set the membrane time constant of all neurons but srm, in time steps.", number(least=1)
    )
    """Recurrent layers have time constants spread over a decade from it upwards and learned, see
    `snnlib.app.training.neuron`."""
    levels: int = setting(
        1,
        "Let neurons if, lif, plif and cubalif give up to this many spikes per time step; above 1 best with the "
        "surrogate straight-through.",
        count(1, MOST_LEVELS),
    )
    """Graded spikes, see `levels` of `snnlib.neurons.LIF`; above 1 the reset subtracts."""
    threshold: float = setting(
        1.0, "Set the threshold of neurons if, lif, plif and cubalif.", number(above=0)
    )
    surrogate: str = setting("triangle", "Take a surrogate gradient of this shape.", words=SURROGATES)
    """Triangle and rectangle are zero away from the threshold: the backward pass costs what the steps near it cost."""
    surrogate_width: float = setting(
        0.5, "Set the half width of a triangle or rectangle, in thresholds.", number(above=0)
    )
    density: float = setting(
        1.0,
        "Give fully connected and recurrent layers but the last this share of their connections, drawn at random.",
        number(above=0),
        such_that(lambda share: share <= 1, "a share of the connections, up to 1"),
    )
    """Below 1 `connections=snnlib.Sparse(density=...)`: time and memory follow those that exist."""
    batch_norm: bool = setting(False, "Normalise currents over each batch before the neurons, not for srm.")
    """torch's, before the neurons of every layer but the last. Their rates are not calibrated then."""
    dropout: float = setting(
        0.0,
        "Silence neurons behind batch norm for whole training samples with this probability.",
        number(least=0),
        such_that(lambda share: share < 1, "a probability below 1"),
    )
    tau_m: float = setting(
        8.0, "Set the membrane time constant of srm neurons and read-outs, in time steps.", number(least=1)
    )
    tau_s: float = setting(
        4.0, "Set the synaptic time constant of srm neurons and read-outs, in time steps.", number(least=1)
    )
    tau_grad: float | None = setting(
        8.0, "Set the time constant of the gradient kernel, in time steps.", number(above=1)
    )
    """Equals `tau_s` if None."""
    init_from: str | None = setting(
        None,
        "Begin with the last weights of the run in this folder, which has the same net, instead of new ones.",
        path=True,
    )
    """Draws weights and calibrates rates if None. A net of other classes gives all layers but the last."""
    weight_scheme: Literal["calibrated", "standardized"] = setting(
        "calibrated",
        "Begin with srm weights whose channels fire at one rate, or with weights of mean 0, for images.",
    )
    """`"calibrated"`: a shift of its weights gives each channel its rate, and
    weights, gain and offset learn at one pace. `"standardized"`: weights of mean 0 and one factor give a layer its
    rate, gain and offset learn slowly, and homeostasis wakes silent channels (`snnlib.prepare_` with `standardize`)."""
    target_rate: float = setting(
        0.01, "Calibrate hidden layers to this many spikes per neuron and time step.", number(above=0), _RATE
    )
    """On one batch before training. 0.05 is half of what a first layer can reach on the digits, where large parts of
    the frame are empty."""
    output_rate: float = setting(
        0.1,
        "Calibrate the output layer to this many spikes per neuron and time step.",
        number(above=0),
        _RATE,
    )


@dataclass(frozen=True)
class LearningSettings(Group):
    """Samples, loss and steps."""

    group: ClassVar[str] = "Learning"

    input_grad_scale: float = setting(
        1.0, "Multiply the gradient that srm layers hand to the layer before by this.", number(above=0)
    )
    """0.85 in the 2022 paper's code."""
    val_split: float = setting(
        0.0,
        "Hold out this share of the training samples and keep the checkpoint of the best epoch, the first with the "
        "highest accuracy on them.",
        number(least=0),
        such_that(lambda share: share < 1, "a share of the training samples, below 1"),
    )
    """Takes the share of each class. 0: none is held out, and the net of the last epoch is the result. The test set
    never chooses anything. Of folders the share is `val_share` of `EventFolder` and `ImageFolder`, whose validation set
    is taken: the folder's own where it gives one. Of sequences without frames any share above 0 holds out the data
    set's own validation set, which has other speakers or other recordings, and of MNIST's images the last twelfth."""
    test_after: Literal["epoch", "training"] = setting(
        "epoch",
        "Test after every epoch, or once after training, which saves time where the test set is large.",
    )
    """With `val_split` every epoch is tested, as the validation set, which chooses the best epoch, belongs to the same
    pass."""
    epochs: int = setting(8, "Pass this many times over the training set.", count(1))
    batch_size: int = setting(
        25, "Take this many samples per batch; each device has one batch per step.", count(1)
    )
    accumulate: int = setting(1, "Add the gradients of this many batches before each step.", count(1))
    """R devices give the same bits as one that accumulates R batches, for R a power of two and nets without batch
    normalisation."""
    copies: int = setting(
        1,
        "Put each sample into its batch this many times, augmented anew each time.",
        count(1),
        needs="frames",
    )
    """A step has `copies * batch_size` samples. See `snnlib.data.BatchAugmentation`."""
    lr: float = setting(
        2e-2, "Set the peak learning rate of AdamW, which decays along a cosine.", number(above=0)
    )
    warmup_epochs: float = setting(
        0.5, "Let the learning rate rise linearly for this many epochs.", number(least=0)
    )
    weight_decay: float = setting(0.05, "Set the weight decay of AdamW.", number(least=0))
    """Decoupled, of weights; learned constants of neurons have none."""
    clip_norm: float | None = setting(
        None,
        "Scale gradients down to this norm; leave out steps whose gradient is not finite.",
        number(above=0),
    )
    """Does neither if None."""
    rewire: Literal["no", "deep_r", "set"] = setting(
        "no",
        "Move sparse connections while the net learns: at every step those that have lost their sign (deep_r), after "
        "every epoch the weakest (set).",
    )
    """See `snnlib.learning.Rewiring`."""
    operations_weight: float = setting(
        0.0,
        "Add the share of synaptic operations that spikes cause, times this factor, to the loss, so that the net "
        "learns to do with fewer.",
        number(least=0),
    )
    """Scales `snnlib.losses.SynapticOperationsLoss`; `docs/measurements/training.md` has what factors do."""
    shift: int = setting(
        2, "Move training samples by up to this many pixels.", count(0), needs="frames", off=0
    )
    """Along each axis, anew each time they are seen. As `rotate` and `warp` an option of
    `snnlib.data.AugmentFrames`."""
    rotate: float = setting(
        10.0,
        "Rotate training samples by up to this many degrees.",
        number(least=0),
        such_that(lambda degrees: degrees <= 180, "degrees in 0..180"),
        needs="frames",
        off=0,
    )
    warp: float = setting(
        1.0, "Warp training samples by about this many pixels.", number(least=0), needs="frames", off=0
    )
    vary: float = setting(
        0.0,
        "Change tempo and voice of training samples by about this share.",
        number(least=0),
        such_that(lambda share: share <= 1, "a share, at most 1"),
        needs="voices",
    )
    """See `snnlib.data.AugmentChannels`; 0 changes nothing."""
    loss: str = setting(
        "tet",
        "Minimise this loss of output potentials (tet, mean-potential), spike counts, spike times or spike trains.",
        words=LOSSES,
    )
    """`"count"`: squared distance to the wanted counts where a count is on the wrong side of its own; `"count+"`, its
    balanced form; `"cross-entropy"` and `"cross-entropy+"` of `logit_scale * counts`; `"first-spike"`, cross-entropy of
    `-logit_scale * times`; `"spike-time"` and `"van-rossum"`, distance to a sequence with the wanted counts; `"tet"`,
    cross-entropy at each step of output potentials without spikes; `"mean-potential"`, that of their mean. TET is the
    default because its first updates learn most. Of the others, count wants every output neuron to fire a little: one
    that cross-entropy has silenced learns no more."""
    logit_scale: float | None = setting(
        None,
        "Multiply spike counts, or times of first spikes, by this to get the logits of cross-entropy losses; the "
        "default is measured on the first batch, so that the first loss is near ln(classes).",
        number(above=0),
    )
    """The default is `logit_scale` or `time_scale` of the report of `prepare_`; the run's `config.json` holds it."""
    desired: float = setting(
        15.0, "Ask the neuron of the true class for this many spikes (count losses).", number(above=0)
    )
    undesired: float = setting(
        2.0, "Ask the other output neurons for this many spikes (count losses).", number(least=0)
    )
    seed: int = setting(
        0,
        "Draw weights, the order of samples and all else that is random from this seed.",
        count(0, _LARGEST_SEED),
    )


@dataclass(frozen=True)
class RunSettings(Group):
    """The machine."""

    group: ClassVar[str] = "Run"

    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", "Compute on this device; auto takes a GPU where there is one."
    )
    devices: int = setting(1, "Train on this many GPUs (or in as many CPU processes) together.", count(1))
    nodes: int = setting(
        1, "Train on this many machines together; start the command on each by torchrun.", count(1)
    )
    """Each with `devices`."""
    precision: Literal["32-true", "64-true", "bf16-true", "bf16-mixed"] = setting(
        "32-true", "Store weights and spikes in this precision; bf16-mixed keeps weights in float32."
    )
    """Named as in Lightning; with `"bf16-mixed"` the layers run under bfloat16 autocast."""
    threads: int | None = setting(None, "Use this many CPU threads; the default is torch's choice.", count(1))
    workers: int = setting(
        0, "Read data in this many further processes; 0 reads in the main process.", count(0)
    )
    """0 is fastest once frames are cached. The result is the same."""
