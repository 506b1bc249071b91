"""`exchange.to_lava`: a net in Loihi's arithmetic as a file of lava-dl, and how far it fits the chip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.checks import as_sizes
from snnlib.exchange.lava.load import DECAYS, INPUT, UNIT, frames_behind
from snnlib.exchange.lava.modules import AnalogInput, Later, kept, rounded
from snnlib.exchange.lava.net_file import Array, Block, Values, text_type, write_net
from snnlib.neurons import Neuron
from snnlib.nn import AvgPool2d, PerStep, SpikeAvgPool2d, SpikeDropout, SpikingConv2d, SpikingLinear
from snnlib.nn.recurrent_layer import RecurrentLayer
from snnlib.structure.stages import modules_of
from snnlib.structure.unsupported import Unsupported, naming
from snnlib.structure.walk import name_of

__all__ = ["to_lava"]

_LEFT_OUT = (nn.Identity, nn.Dropout, nn.Dropout2d, SpikeDropout)
_KINDS = {SpikingConv2d: "conv", SpikingLinear: "dense", RecurrentLayer: "dense_rec"}
# What a file without the data set says, and what files of lava-dl's current version have only where it says more.
_DEFAULTS = {"bias": 0, "delay": 0, "groups": 1, "neuron/refDelay": 1, "neuron/wgtExp": 0}
_SELDOM = ("bias", "delay", "neuron/wgtExp")
# Of a core: neurons, inputs, bits of synapses; cores of a chip.
_NEURONS, _INPUTS, _SYNAPSES, _CORES = 1024, 4096, 128 * 1024 * 8, 128
# Numbers that the chip takes.
_BOUNDS = {
    "bias": (-4096, 4095),
    "delay": (0, 62),
    "neuron/vThMant": (0, 131071),
    "neuron/refDelay": (1, 64),
}


class LoihiLayer(NamedTuple):
    """A block with neurons on the chip.

    Args:
        name: path of the layer in the net.
        neurons: how many.
        fan_in: inputs of a neuron.
        weight_bits: that its weights need.
        cores: that it needs at least, with a synapse for each weight of each neuron; an estimate.
    """

    name: str
    neurons: int
    fan_in: int
    weight_bits: int
    cores: int


@dataclass(frozen=True)
class LoihiReport:
    """What `to_lava` found; `str()` makes a table.

    Args:
        layers: blocks with neurons, first to last.
        problems: numbers beyond the chip's, and what lava-dl's netx leaves out, in words.
    """

    layers: list[LoihiLayer]
    problems: list[str]

    def __str__(self) -> str:
        width = max(5, *(len(layer.name) for layer in self.layers))
        cores = sum(layer.cores for layer in self.layers)
        rows = [
            f"{name:{width}}  {neurons:7}  {fan_in:6}  {bits:11}  {count:17}"
            for name, neurons, fan_in, bits, count in self.layers
        ]
        total = f"cores in all, estimated: {cores}; a chip has {_CORES}"
        head = f"{'layer':{width}}  neurons  fan-in  weight bits  cores (estimated)"
        return "\n".join((head, *rows, total, *self.problems))


def to_lava(net: nn.Module, path: str | Path, *, x: Tensor | None = None) -> LoihiReport:
    """Write a net in Loihi's arithmetic as lava-dl does (`network.net`), and report how far it fits the chip.

    Weights are written as the integers that the net computes with, and `from_lava` reads a net with the same ones. A
    net that `from_lava` made keeps its file's data sets with their shapes and dtypes; another gets those that lava-dl's
    current version writes. lava-dl has no average pools: one between layers goes into the weights behind it.

    Args:
        net: a chain of `SpikingLinear`, `SpikingConv2d`, `SpikingRNN`, `nn.Flatten`, average pools and what `from_lava`
            makes, whose neurons are `CubaLIF(dialect="loihi")` or `LIF(dialect="loihi")`.
        path: where the file goes.
        x: an input `[T, N, ...]`, for the size of frames. Needed where the net has convolutions and came from no file.

    Returns:
        A report with `layers` (neurons, fan-in, bits of weights, estimated cores) and `problems`, a table as a text.

    Raises:
        ImportError: the package h5py is missing: `pip install 'snnlib[formats]'`.
        ValueError: a module without counterpart, or neurons in another arithmetic, named by the path.

    >>> import snnlib, tempfile, torch
    >>> from snnlib.exchange import to_lava
    >>> neuron = snnlib.neurons.CubaLIF(dialect="loihi")
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(200, 256, neuron=neuron))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(to_lava(net, f"{folder}/network.net"))
    layer  neurons  fan-in  weight bits  cores (estimated)
    0          256     200            8                  1
    cores in all, estimated: 1; a chip has 128
    """
    ours = {name: value for name, value in kept(net).items() if name.startswith(INPUT)}
    given = {name.removeprefix(INPUT): value for name, value in ours.items()}
    begins = {"type": _text("input"), "shape": np.array(x.shape[2:]) if x is not None else given.get("shape")}
    writer = _Writer(begins["shape"])
    for where, module in modules_of(net):
        with naming(name_of(where, module)):
            writer.take(where or "net", module)
    if not writer.layers:
        raise ValueError("net: expected at least one layer with neurons, got none")
    blocks = [merged(*block) for block in writer.blocks]
    # netx takes the size of the frames before a convolution from it.
    if given or (not any(known for _, known in writer.blocks) and blocks[0]["type"] == b"conv"):
        blocks.insert(0, merged(begins, given))
    write_net(path, blocks, {name: value for name, value in kept(net).items() if name not in ours})
    return LoihiReport(writer.layers, writer.problems)


class _Writer:
    def __init__(self, shape: Array | None) -> None:
        # Data sets of each block, and those of the file that it came from.
        self.blocks = list[tuple[Values, Values]]()
        self.layers, self.problems = list[LoihiLayer](), list[str]()
        # Of the frames behind the last block, and the windows that are averaged before the next one.
        self.shape: tuple[int, ...] | None = None if shape is None else tuple(int(size) for size in shape)
        self.pool = (1, 1)
        self.analog: AnalogInput | None = None

    def take(self, where: str, module: nn.Module) -> None:
        if isinstance(module, AnalogInput):
            self.analog = module
        elif isinstance(module, Neuron) and self.analog is not None:
            self.input(where, self.analog, module)
        elif isinstance(module, Later):
            # A step from layer to layer is the chip's affair.
            if module.steps.dim():
                self.delay(module.steps)
        elif isinstance(module, nn.Flatten):
            self.add(module, "flatten", {"shape": np.array([math.prod(self.frames(module)), 1, 1])})
        elif isinstance(module, PerStep) and isinstance(module[-1], nn.ZeroPad2d):
            channels, height, width = self.frames(module)
            _, right, _, bottom = module[-1].padding
            self.shape = (channels, height + bottom, width + right)
        elif isinstance(module, PerStep) and isinstance(module[-1], nn.AvgPool1d):
            (window,) = as_sizes("kernel_size", module[-1].kernel_size, 1, minimum=1)
            self.shape = (math.prod(self.frames(module)) // window,)
            self.add(module, "average", {"shape": np.array([*self.shape, 1, 1])})
        elif isinstance(module, AvgPool2d | SpikeAvgPool2d):
            self.average(module)
        elif type(module) in _KINDS:
            self.layer(where, module, _KINDS[type(module)])
        elif not isinstance(module, _LEFT_OUT):
            raise Unsupported("no block of lava-dl does what it does")

    def frames(self, module: nn.Module) -> tuple[int, ...]:
        """Returns the size of the frames at a module that does not change it."""
        said = kept(module).get("shape")
        if self.shape is None and said is None:
            raise Unsupported("frames of unknown size; give x, an input of the net")
        return self.shape or tuple(int(size) for size in said)  # type: ignore[union-attr]

    def add(self, module: nn.Module, kind: str, fresh: Values) -> None:
        self.blocks.append(({"type": _text(kind), **fresh}, kept(module)))

    def input(self, where: str, affine: AnalogInput, neuron: Neuron) -> None:
        self.analog, self.shape = None, self.frames(affine)
        numbers = {
            name: np.float32(rounded(value.detach()).item() * UNIT)
            for name, value in (("weight", affine.weight), ("bias", affine.bias))
        }
        fresh = {"shape": np.array(self.shape), **constants(neuron), **_arrays(numbers)}
        self.add(affine, "input", fresh)
        self.report(where, 1)

    def average(self, module: Any) -> None:
        kernel = as_sizes("kernel_size", module.kernel_size, 2, minimum=1)
        stride = kernel if module.stride is None else as_sizes("stride", module.stride, 2, minimum=1)
        padded = module.ceil_mode or any(as_sizes("padding", module.padding, 2, minimum=0))
        if stride != kernel or padded or self.pool != (1, 1) or math.log2(math.prod(kernel)) % 1:
            raise Unsupported("weights take averages of 2, 4, 8, ... cells side by side, no others")
        self.pool = (kernel[0], kernel[1])

    def layer(self, where: str, layer: Any, kind: str) -> None:
        known, fresh, outputs = kept(layer), constants(layer.neuron), len(layer.weight)
        if layer.delays is not None:
            if layer.delays.per != "channel":
                raise Unsupported('delays other than per="channel" have no place in the file')
            self.delay(torch.floor(layer.delays().detach().cpu() + 0.5).long())
        if getattr(layer, "recurrent_delays", None) is not None:
            raise Unsupported("delays of a recurrence have no place in the file")
        both = {"weight": layer.effective_weight.detach().double().cpu()}
        if kind == "conv":
            both["weight"], sizes = self.conv(layer, both["weight"])
            fresh |= sizes
        else:
            if self.pool != (1, 1):
                both["weight"] = self.spread(layer, both["weight"])
            fresh |= _arrays(
                {"inFeatures": both["weight"].shape[1], "outFeatures": outputs, "shape": [outputs]}
            )
            self.shape = (outputs,)
        if kind == "dense_rec":
            both["weight_rec"] = layer.neuron.layer_weight(layer.recurrent_weight).detach().double().cpu()
        found, exponent = mantissas(both, Block("", known).number("neuron/wgtExp", 0))
        fan_in = sum(value[0].size for value in found.values())
        if exponent:
            self.problems.append(f"{where}: wgtExp {exponent}, which lava-dl's netx does not read")
        if "type" in known and Block("", known).text("type") == "pool":
            same = bool((found["weight"] == found["weight"][:1]).all())
            # Weights that have learned apart from each other are a convolution's.
            known, found = (known, {"weight": found["weight"][:1]}) if same else ({}, found)
        fresh |= {name: value.astype(np.float32) for name, value in found.items()}
        self.blocks.append(({"type": _text(kind), **fresh, "neuron/wgtExp": np.array(exponent)}, known))
        self.report(where, fan_in)

    def conv(self, layer: Any, weight: Tensor) -> tuple[Tensor, Values]:
        """Returns the weight and sizes of a convolution, with the average before it."""
        if layer.padding == "same":
            raise Unsupported('padding="same" has no counterpart')
        stride, padding, dilation = layer.stride, layer.padding, layer.dilation
        if self.pool != (1, 1):
            rest = [size % side for size, side in zip(self.frames(layer)[1:], self.pool, strict=True)]
            if dilation != (1, 1) or (any(rest) and any(padding)):
                raise Unsupported(
                    "an average goes into no dilated weights, nor into padded ones at a cut border"
                )
            weight = torch.kron(weight, weight.new_full(self.pool, 1 / math.prod(self.pool)))
            stride, padding = (
                tuple(own * side for own, side in zip(sizes, self.pool, strict=True))
                for sizes in (stride, padding)
            )
            self.pool = (1, 1)
        kernel = (weight.shape[2], weight.shape[3])
        if self.shape is not None:
            self.shape = frames_behind(self.shape, len(weight), kernel, stride, padding, dilation)
        self.shape = self.frames(layer)
        return weight, _arrays(
            {
                "shape": self.shape,
                "inChannels": layer.in_channels,
                "outChannels": len(weight),
                "kernelSize": kernel,
                "stride": stride,
                "padding": padding,
                "dilation": dilation,
                "groups": layer.groups,
            }
        )

    def spread(self, layer: nn.Module, weight: Tensor) -> Tensor:
        """Returns the weight of a fully connected layer with the average before it."""
        channels, *frame = self.frames(layer)
        cells = [size // side for size, side in zip(frame, self.pool, strict=True)]
        rest = [size % side for size, side in zip(frame, self.pool, strict=True)]
        share = weight.new_full(self.pool, 1 / math.prod(self.pool))
        whole = torch.kron(weight.view(len(weight), channels, *cells), share)
        self.pool = (1, 1)
        return nn.functional.pad(whole, (0, rest[1], 0, rest[0])).flatten(1)

    def delay(self, steps: Tensor) -> None:
        """Puts the delays of a layer's inputs into the block that they come from."""
        places = [fresh for fresh, _ in self.blocks if "neuron/vThMant" in fresh]
        if not places:
            raise Unsupported("delays of the net's input have no place in the file")
        channels = int(places[-1]["shape"][0])
        each = steps.reshape(channels, -1) if len(steps) % channels == 0 else steps[None]
        if len(each) != channels or bool((each != each[:, :1]).any()):
            raise Unsupported("delays that differ within a channel have no place in the file")
        places[-1]["delay"] = each[:, 0].numpy().astype(np.float32)
        self.check(self.layers[-1].name, "delay", places[-1]["delay"])

    def report(self, where: str, fan_in: int) -> None:
        """Adds what the last block needs of the chip, and what it has too much of."""
        fresh, _ = self.blocks[-1]
        values = [fresh[name].reshape(-1) for name in ("weight", "weight_rec") if name in fresh]
        neurons, bits = math.prod(self.shape or ()), bits_of(np.concatenate(values).astype(np.int64))
        cores = max(neurons / _NEURONS, neurons * fan_in * bits / _SYNAPSES)
        self.layers.append(LoihiLayer(where, neurons, fan_in, bits, math.ceil(cores)))
        if fan_in > _INPUTS:
            self.problems.append(f"{where}: {fan_in} inputs of a neuron, where a core takes {_INPUTS}")
        for name in _BOUNDS:
            if name != "delay" and name in fresh:
                self.check(where, name, fresh[name])

    def check(self, where: str, name: str, values: Array) -> None:
        low, high = _BOUNDS[name]
        if values.size and (values.min() < low or values.max() > high):
            found = f"{name.rsplit('/', maxsplit=1)[-1]} from {values.min():g} to {values.max():g}"
            self.problems.append(f"{where}: {found}, where the chip takes {low} to {high}")


def constants(neuron: Any) -> Values:
    """Returns the data sets of a neuron.

    Raises:
        Unsupported: a neuron in another arithmetic.
    """
    if not getattr(neuron, "fixed_point", False) or getattr(neuron, "reset_states", "membrane") != "membrane":
        raise Unsupported(
            f'expected neurons in Loihi\'s arithmetic, CubaLIF(dialect="loihi") or LIF(dialect="loihi"), got {neuron}; '
            "train the net with them, as `snnlib train --dialect loihi` does"
        )
    own = {name: value.detach().double().cpu().numpy() for name, value in neuron.constants().items()}
    taus = own.get("tau_s", np.ones(())), own["tau_m" if "tau_m" in own else "tau"]
    current, membrane = (np.round(DECAYS / np.maximum(tau, 1.0)).astype(np.int64) for tau in taus)
    thresholds = np.unique(np.round(own["threshold"] * UNIT).astype(np.int64))
    if len(thresholds) > 1:
        raise Unsupported("thresholds that differ between the neurons of a layer have no place in the file")
    numbers = {
        "neuron/iDecay": current,
        "neuron/vDecay": membrane,
        "neuron/vThMant": int(thresholds[0]),
        "neuron/refDelay": int(neuron.refractory) + 1,
        "neuron/gradedSpike": False,
        "neuron/wgtExp": 0,
        "bias": np.round(own.get("bias", np.zeros(1)) * UNIT).astype(np.float32),
        "delay": np.zeros(1, np.float32),
    }
    return {"neuron/type": np.array("CUBA", dtype=text_type()), **_arrays(numbers)}


def mantissas(weights: dict[str, Tensor], wanted: int) -> tuple[dict[str, Array], int]:
    """Returns weights as integers of 8 bits and their exponent, the wanted one if it will do, else the nearest to 0.

    Raises:
        Unsupported: weights that have none in common.
    """
    for exponent in (wanted, *sorted(range(-7, 8), key=abs)):
        found = {name: (value * UNIT * 2.0**-exponent).numpy() for name, value in weights.items()}
        both = np.concatenate([value.reshape(-1) for value in found.values()])
        even = not bool((both % 2).any())
        low, high = (-256, 254) if even else (-128, 127)
        if not bool((both % 1).any()) and both.min(initial=0) >= low and both.max(initial=0) <= high:
            return found, exponent
    raise Unsupported(
        "weights of 8 bits with one exponent have no place for both the input's and the recurrent"
    )


def bits_of(weights: Array) -> int:
    """Returns how many bits the chip keeps of each weight: without the zeros at their end, with a sign where needed."""
    bits = int(np.bitwise_or.reduce(np.abs(weights))) if weights.size else 0
    low, high = (
        int(value) // (bits & -bits or 1) for value in (weights.min(initial=0), weights.max(initial=0))
    )
    mixed = low < 0 < high
    sizes = ((-low - 1 if mixed else -low), high)
    return max(1, max(size.bit_length() for size in sizes) + mixed)


def merged(fresh: Values, known: Values) -> Values:
    """Returns the data sets of a block, in the shapes, dtypes and words of the file that it came from."""
    found = dict(known)
    for name, value in fresh.items():
        if name in known:
            if name not in ("type", "neuron/type"):
                found[name] = _like(value, known[name], name)
        elif not (known or name in _SELDOM) or (name in _DEFAULTS and bool((value != _DEFAULTS[name]).any())):
            found[name] = value
    return found


def _like(value: Array, old: Array, name: str) -> Array:
    """The value in the shape and dtype of an older one, where they hold it."""
    if name == "shape" and math.prod(old.tolist()) == math.prod(value.tolist()):
        return old
    if value.size > 1 and old.size == 1 and bool((value == value.reshape(-1)[0]).all()):
        value = value.reshape(-1)[:1]
    if value.size == 1:
        value = np.broadcast_to(value.reshape(-1), (old.size,))
    cast = value.astype(old.dtype)
    fits = cast if np.array_equal(cast, value) else value
    return fits.reshape(old.shape) if fits.size == old.size else fits


def _arrays(values: dict[str, Any]) -> Values:
    return {name: np.asarray(value) for name, value in values.items()}


def _text(text: str) -> Array:
    return np.array([text.encode()], dtype="S10")
