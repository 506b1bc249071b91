"""`exchange.from_lava`: a file of lava-dl as a net of this library in Loihi's arithmetic."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.exchange.lava.modules import AnalogInput, Later, keep
from snnlib.exchange.lava.net_file import Array, Block, read_net
from snnlib.neurons import LIF, CubaLIF, Neuron
from snnlib.neurons.surrogate import SurrogateLike
from snnlib.nn import Delays, PerStep, SpikingConv2d, SpikingLinear, SpikingRNN

__all__ = ["from_lava"]

_KINDS = ("input", "dense", "dense_rec", "conv", "pool", "flatten", "average")
# Of decays, and of the integers of a threshold or weight in this library's unit.
DECAYS, UNIT = 4096, 64
# Of the data sets of an input block that no module stands for, which the net keeps.
INPUT = "input/"
_FAMILIES = {"SDNN": "sigma-delta", "RF": "resonate-and-fire", "AL": "adaptive", "AD": "adaptive"}
# What must be 0: spikes that carry a number, and batch norm that scales currents by a power of two.
_UNKNOWN = {
    "neuron/gradedSpike": "spikes that are 0 or 1",
    "neuron/messageBits": "spikes that are 0 or 1",
    "neuron/weight_exp": "currents that no batch norm scales",
}


def from_lava(
    path: str | Path, *, latency: bool = False, surrogate: SurrogateLike | None = None
) -> nn.Sequential:
    """A net in a file of lava-dl (`network.net`, HDF5) as a net over sequences `[T, N, ...]`, bit for bit.

    Blocks `input`, `dense`, `dense_rec`, `conv`, `pool`, `flatten` and `average` of `LOIHI` or `CUBA` neurons become
    layers of this library with neurons in Loihi's arithmetic: `CubaLIF(dialect="loihi")`, or `LIF` where `iDecay` is
    4096. With W, B and vThMant of the file::

        weight = W 2^wgtExp / 64      bias = B / 64      threshold = vThMant / 64      tau = 4096 / decay

    so that a state v of a neuron is `4096 v` on the chip. Weights, biases and delays are parameters, of which the net
    takes the nearest integers of the file's grid: even numbers of 8 bits, or all of -128 to 127 where the file has odd
    ones. `docs/loihi.md` says what is exact.

    On the chip spikes reach the next layer one step later. Without recurrence across layers that moves the time of a
    layer as a whole, and is left out by default: step t of a layer here is step `t + number of layers before` there.

    Args:
        path: the file.
        latency: whether spikes take the step from layer to layer that they take on the chip. Default False.
        surrogate: surrogate gradient of all neurons. Default: that of the dialect.

    Returns:
        A sequence of layers; `to_lava` writes it, and data sets that say nothing of the net as they were.

    Raises:
        ImportError: the package h5py is missing: `pip install 'snnlib[formats]'`.
        OSError: no such file.
        ValueError: a damaged file, an unknown block or neuron (sigma-delta, resonate-and-fire), or numbers that no
            chip takes; the message names file and data set.

    Source: the block and netx packages of lava-dl, https://github.com/lava-nc/lava-dl.

    >>> import snnlib, tempfile, torch
    >>> from snnlib.exchange import from_lava, to_lava
    >>> neuron = snnlib.neurons.CubaLIF(dialect="loihi", weight_exponent=-5)
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(20, 8, neuron=neuron))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = to_lava(net, f"{folder}/network.net")
    ...     again = from_lava(f"{folder}/network.net")
    >>> x = (torch.rand(30, 2, 20) < 0.3).float()
    >>> torch.equal(again(x), net(x))
    True
    """
    blocks, rest = read_net(path)
    loader = _Loader(latency, surrogate)
    for block in blocks:
        loader.take(block)
    if loader.delay is not None:
        loader.modules.append(Later(torch.from_numpy(loader.delay)))
    net = nn.Sequential(*loader.modules)
    keep(net, {**rest, **loader.of_input})
    return net


class _Loader:
    def __init__(self, latency: bool, surrogate: SurrogateLike | None) -> None:
        self.latency, self.surrogate = latency, surrogate
        self.modules, self.of_input = list[nn.Module](), dict[str, Array]()
        # Of the block before: (channels, y, x) or features, and the delay of each channel or feature.
        self.shape: tuple[int, ...] | None = None
        self.delay: Array | None = None
        self.spikes = False

    def take(self, block: Block) -> None:
        kind = block.text("type")
        if kind not in _KINDS:
            raise block.error("type", f"expected one of {', '.join(_KINDS)}, got {kind!r}")
        neural = any(name.startswith("neuron/") for name in block.values)
        if kind in ("flatten", "average"):
            self.reshape(block, kind)
        elif kind == "input":
            self.input(block, neural)
        elif not neural:
            raise block.error("neuron", f"expected the group of a {kind} block with neurons, got none")
        else:
            if self.latency and self.spikes:
                self.modules.append(Later(torch.tensor(1)))
            module = getattr(self, kind)(block)
            self.modules.append(module)
            keep(module.layers[0] if isinstance(module, SpikingRNN) else module, block.values)
            self.spikes = True
            self.delay = None
            if "delay" in block.values:
                channels = self.shape[0] if self.shape else 0
                steps = block.numbers("delay", sizes=(1, channels), low=0, high=2**16)
                self.delay = np.broadcast_to(steps, channels).copy() if steps.any() else None

    def input(self, block: Block, neural: bool) -> None:
        if self.modules or self.shape:
            raise block.error("type", "expected an input block at the beginning alone")
        self.shape = block.shape()
        if not neural:
            self.of_input = {INPUT + name: value for name, value in block.values.items()}
            return
        weight, bias = (block.number(name, default) for name, default in (("weight", 64), ("bias", 0)))
        for name, value in (("weight", weight), ("bias", bias)):
            if value % 2 or not -4 * UNIT <= value < 4 * UNIT:
                raise block.error(name, f"expected an even number from -256 to 254, got {value}")
        module = AnalogInput(weight / UNIT, bias / UNIT)
        keep(module, block.values)
        self.modules += module, self.neuron(block, self.shape[0], biased=False)
        self.spikes = True

    def reshape(self, block: Block, kind: str) -> None:
        self.shape, before = block.shape(), self.shape
        features = math.prod(before) if before else None
        if kind == "flatten":
            module: nn.Module = nn.Flatten(2)
            if self.delay is not None and before:
                self.delay = self.delay.repeat(math.prod(before[1:]))
            if features not in (None, math.prod(self.shape)):
                raise block.error("shape", f"expected {features} features, got {math.prod(self.shape)}")
        else:
            groups = self.shape[0]
            if not features or features % groups:
                raise block.error("shape", f"expected a number that divides {features}, got {groups}")
            if self.delay is not None:
                raise block.error("type", "expected no delays before an average, got some")
            module = PerStep(nn.Flatten(), nn.AvgPool1d(features // groups))
        keep(module, block.values)
        self.modules.append(module)

    def dense(self, block: Block) -> SpikingLinear:
        outputs, inputs = self.sizes(block)
        (weight,), exponent = weights(block, weight=(outputs, inputs))
        options = {"neuron": self.neuron(block, outputs, weight_exponent=exponent), "delays": self.delays()}
        layer = SpikingLinear(inputs, outputs, **options)
        layer.weight.data.copy_(weight)
        return layer

    def dense_rec(self, block: Block) -> SpikingRNN:
        outputs, inputs = self.sizes(block)
        shapes = {"weight": (outputs, inputs), "weight_rec": (outputs, outputs)}
        (weight, back), exponent = weights(block, **shapes)
        options = {"neuron": self.neuron(block, outputs, weight_exponent=exponent), "delays": self.delays()}
        rnn = SpikingRNN(inputs, outputs, **options)
        layer: Any = rnn.layers[0]
        layer.weight.data.copy_(weight)
        layer.recurrent_weight.data.copy_(back)
        return rnn

    def sizes(self, block: Block) -> tuple[int, int]:
        """Outputs and inputs of a dense block, which follow from the weight where the file does not say."""
        outputs = block.number("outFeatures", math.prod(block.shape()), low=1)
        weight = block.values.get("weight")
        inputs = block.number("inFeatures", 0 if weight is None else weight.size // outputs, low=1)
        if self.shape and math.prod(self.shape) != inputs:
            raise block.error("inFeatures", f"expected the {math.prod(self.shape)} before it, got {inputs}")
        if self.shape and math.prod(self.shape[1:]) > 1:
            raise block.error("type", "expected a flatten block between frames and a dense block, got none")
        self.shape = (outputs,)
        return outputs, inputs

    def conv(self, block: Block) -> SpikingConv2d:
        weight = block.values.get("weight")
        axes = (0, 0, 0, 0) if weight is None else (*weight.shape, 0, 0, 0, 0)[:4]
        groups = block.number("groups", 1, low=1)
        outputs = block.number("outChannels", axes[0], low=1)
        inputs = block.number("inChannels", axes[1] * groups, low=1)
        kernel, sizes = block.pair("kernelSize", axes[2:]), self.axes(block, stride=1, padding=0, dilation=1)
        if self.shape and self.shape[0] != inputs:
            raise block.error("inChannels", f"expected the {self.shape[0]} before it, got {inputs}")
        if inputs % groups or outputs % groups:
            raise block.error("groups", f"expected a divisor of {inputs} and {outputs}, got {groups}")
        (values,), exponent = weights(block, weight=(outputs, inputs // groups, *kernel))
        options = {"neuron": self.neuron(block, outputs, weight_exponent=exponent), "delays": self.delays()}
        layer = SpikingConv2d(inputs, outputs, kernel, groups=groups, **sizes, **options)
        layer.weight.data.copy_(values)
        self.frames(block, outputs, kernel, **sizes)
        return layer

    def pool(self, block: Block) -> SpikingConv2d:
        """Sums of windows with neurons behind them: a convolution of each channel, with weights that do not learn."""
        kernel = block.pair("kernelSize", 1)
        sizes = self.axes(block, stride=kernel, padding=0, dilation=1)
        if sizes != {"stride": kernel, "padding": (0, 0), "dilation": (1, 1)}:
            raise block.error("stride", f"expected windows {kernel} side by side, got {sizes}")
        if not self.shape or len(self.shape) < 3:
            raise block.error("type", "expected frames of known size before a pool block")
        channels, *frame = self.shape
        # As lava-dl fills up windows that are not whole.
        missing = [size % side for size, side in zip(frame, kernel, strict=True)]
        if any((size + more) % side for size, more, side in zip(frame, missing, kernel, strict=True)):
            raise block.error("kernelSize", f"expected windows that frames {frame} are made of, got {kernel}")
        if any(missing):
            self.modules.append(PerStep(nn.ZeroPad2d((0, missing[1], 0, missing[0]))))
            self.shape = (channels, *(size + more for size, more in zip(frame, missing, strict=True)))
        (values,), exponent = weights(block, weight=(1, 1, *kernel))
        options = {"neuron": self.neuron(block, channels, weight_exponent=exponent), "delays": self.delays()}
        layer = SpikingConv2d(channels, channels, kernel, kernel, groups=channels, **options)
        layer.weight.data.copy_(values.expand_as(layer.weight))
        layer.weight.requires_grad_(False)
        self.frames(block, channels, kernel, **sizes)
        return layer

    def axes(self, block: Block, **defaults: Any) -> dict[str, tuple[int, int]]:
        return {name: block.pair(name, value, low=name != "padding") for name, value in defaults.items()}

    def frames(self, block: Block, channels: int, kernel: tuple[int, int], **sizes: tuple[int, int]) -> None:
        """Checks what the file says of the shape of the frames behind a block."""
        said = tuple(block.numbers("shape", sizes=(3,), low=1).tolist())
        found = frames_behind(self.shape, channels, kernel, **sizes) if self.shape else (channels, *said[1:])
        if said != found:
            raise block.error("shape", f"expected {found}, which its sizes give, got {said}")
        self.shape = found

    def delays(self) -> Delays | None:
        if self.delay is None:
            return None
        return Delays(int(self.delay.max()), initial=torch.from_numpy(self.delay).double())

    def neuron(self, block: Block, channels: int, *, biased: bool = True, **options: Any) -> Neuron:
        kind = block.text("neuron/type", "CUBA")
        if kind not in ("LOIHI", "CUBA"):
            family = next((name for start, name in _FAMILIES.items() if kind.startswith(start)), "other")
            raise block.error("neuron/type", f"expected LOIHI or CUBA, got {kind!r}, {family} neurons")
        for name, wanted in _UNKNOWN.items():
            if block.numbers(name, 0).any():
                raise block.error(name, f"expected 0, {wanted}, got {block.values[name]}")
        tau_s, tau_m = (self.tau(block, f"neuron/{name}", channels) for name in ("iDecay", "vDecay"))
        options["threshold"] = block.number("neuron/vThMant", low=1) / UNIT
        options["refractory"] = block.number("neuron/refDelay", 1, low=1) - 1
        if self.surrogate is not None:
            options["surrogate"] = self.surrogate
        if biased and "bias" in block.values:
            mantissas = np.broadcast_to(block.numbers("bias", sizes=(1, channels)), channels)
            options |= {"bias": torch.from_numpy(mantissas / UNIT), "learnable": ("bias",)}
        if isinstance(tau_s, float) and tau_s == 1:
            return LIF(tau_m, dialect="loihi", **options)
        return CubaLIF(tau_m, tau_s, dialect="loihi", **options)

    def tau(self, block: Block, name: str, channels: int) -> float | Tensor:
        decays = block.numbers(name, sizes=(1, channels), low=0, high=DECAYS)
        with np.errstate(divide="ignore"):
            taus = DECAYS / decays
        return float(taus[0]) if len(taus) == 1 else torch.from_numpy(taus)


def frames_behind(
    shape: tuple[int, ...],
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, ...]:
    """Returns channels, height and width behind a convolution."""
    each = zip(shape[1:], kernel, stride, padding, dilation, strict=True)
    return channels, *((size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in each)


def weights(block: Block, **shapes: tuple[int, ...]) -> tuple[list[Tensor], int]:
    """Returns weights in this library's unit, and the exponent of the grid on which they lie."""
    found = [block.numbers(name, sizes=(math.prod(shape),)) for name, shape in shapes.items()]
    exponent = block.number("neuron/wgtExp", 0, low=-7, high=7)
    both = np.concatenate(found)
    even = not (both % 2).any()
    low, high = (-256, 254) if even else (-128, 127)
    if both.min(initial=0) < low or both.max(initial=0) > high:
        kind = "even" if even else "odd"
        name = next(iter(shapes))
        raise block.error(
            name, f"expected {kind} weights from {low} to {high}, got {both.min()} to {both.max()}"
        )
    tensors = [
        torch.from_numpy(values.reshape(shape) * (2.0**exponent / UNIT))
        for values, shape in zip(found, shapes.values(), strict=True)
    ]
    return tensors, exponent - (5 if even else 6)
