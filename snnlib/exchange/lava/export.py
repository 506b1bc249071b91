"""`exchange.to_lava`: writes a net in Loihi's arithmetic as a lava-dl file, and checks limits of the chip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.checks import as_sizes, conv_outputs
from snnlib.exchange.lava.load import DECAYS, READOUT, UNIT
from snnlib.exchange.lava.modules import AnalogInput, kept
from snnlib.exchange.lava.net_file import Array, NetBlock, Values, text_type, write_net
from snnlib.exchange.sequences import Later
from snnlib.exchange.structure.hooks import check_no_acting_hooks
from snnlib.exchange.structure.operations import Pool
from snnlib.exchange.structure.stages import modules_of
from snnlib.exchange.structure.unsupported import Unsupported, naming
from snnlib.exchange.structure.walk import PASSED_ON, name_of
from snnlib.inspect.shown import in_columns
from snnlib.neurons import Neuron
from snnlib.nn import (
    AvgPool2d,
    PerStep,
    RecurrentLayer,
    SpikeAvgPool2d,
    SpikingConv2d,
    SpikingLayer,
    SpikingLinear,
)

__all__ = ["to_lava"]

_KINDS = {SpikingConv2d: "conv", SpikingLinear: "dense", RecurrentLayer: "dense_rec"}
# Values of a file without the data set, and the data sets that lava-dl's current version then leaves out.
_DEFAULTS = {"bias": 0, "delay": 0, "neuron/refDelay": 1, "neuron/wgtExp": 0}
_SELDOM = ("bias", "delay", "neuron/wgtExp")
# Limits of a core: neurons, inputs, bits of synapses; cores of a chip.
_NEURONS, _INPUTS, _SYNAPSES, _CORES = 1024, 4096, 128 * 1024 * 8, 128
# Numbers that the chip takes.
_BOUNDS = {
    "bias": (-4096, 4095),
    "delay": (0, 62),
    "neuron/vThMant": (0, READOUT),
    "neuron/refDelay": (1, 64),
}
Sizes = dict[str, Any]


class LoihiLayer(NamedTuple):
    """A block with neurons on the chip.

    Args:
        name: path of the layer in the net.
        neurons: number of neurons.
        fan_in: inputs of a neuron.
        weight_bits: bits of its weights.
        cores: least number of cores, with a synapse for each weight of each neuron; an estimate.
    """

    name: str
    neurons: int
    fan_in: int
    weight_bits: int
    cores: int


@dataclass(frozen=True)
class LoihiReport:
    """Report of `to_lava`; `str()` returns a table.

    Args:
        layers: blocks with neurons, first to last.
        problems: values beyond the chip's limits, and features that lava-dl's netx ignores, in words.
    """

    layers: list[LoihiLayer]
    problems: list[str]

    def __str__(self) -> str:
        rows = [("layer", "neurons", "fan-in", "weight bits", "cores (estimated)"), *self.layers]
        lines = in_columns([[*map(str, row)] for row in rows], left=1)
        cores = sum(layer.cores for layer in self.layers)
        return "\n".join((*lines, f"cores in all, estimated: {cores}; a chip has {_CORES}", *self.problems))


def to_lava(net: nn.Module, path: str | Path, x: Tensor | None = None) -> LoihiReport:
    """Writes a net in Loihi's arithmetic as a lava-dl file (`network.net`), and checks the limits of the chip.

    Weights are written as the integers that the net computes with, and `from_lava` reads the same net. A net from
    `from_lava` keeps the shapes and dtypes of its file's data sets; other nets are written like a file of lava-dl's
    current version. lava-dl has no average pools: they are multiplied into the weights behind them.

    Args:
        net: a chain of `SpikingLinear`, `SpikingConv2d`, `SpikingRNN`, `nn.Flatten`, average pools and modules of
            `from_lava`, with neurons `LoihiCubaLIF` or `LoihiLIF`.
        path: output file.
        x: an input `[T, N, ...]`, for the size of frames. Required for a net with convolutions that is not from a
            file.

    Returns:
        A report with `layers` (neurons, fan-in, bits of weights, estimated cores) and `problems`; `print` it.

    Raises:
        ImportError: the package h5py is missing: `pip install 'snnlib[formats]'`.
        ValueError: a module without counterpart, or neurons in another arithmetic; the message names the path.

    >>> import snnlib, tempfile, torch
    >>> from snnlib.exchange import to_lava
    >>> neuron = snnlib.neurons.LoihiCubaLIF()
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(200, 256, neuron=neuron))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(to_lava(net, f"{folder}/network.net"))
    layer  neurons  fan-in  weight bits  cores (estimated)
    0          256     200            8                  1
    cores in all, estimated: 1; a chip has 128
    0: wgtExp -5, which lava-dl's netx does not read
    """
    check_no_acting_hooks(net, x)
    writer = _Writer(None if x is None else tuple(x.shape[2:]))
    for where, module in modules_of(net):
        with naming(name_of(where, module)):
            writer.take(where or "net", module)
    if not writer.layers:
        raise ValueError("net: expected at least one layer with neurons, got none")
    write_net(path, [merged(*block) for block in writer.blocks], kept(net))
    return LoihiReport(writer.layers, writer.problems)


class _Writer:
    def __init__(self, shape: tuple[int, ...] | None) -> None:
        # Data sets of each block, and those of the file that it came from.
        self.blocks = list[tuple[Values, Values]]()
        self.layers, self.problems = list[LoihiLayer](), list[str]()
        # Shape of the frames behind the last block, and the windows that are averaged before the next one.
        self.shape = shape
        self.pool = (1, 1)

    def take(self, where: str, module: nn.Module) -> None:
        if isinstance(module, nn.Identity | AnalogInput) and kept(module):
            self.shape = self.frames(module)
            affine = module.mantissas() if isinstance(module, AnalogInput) else {}
            self.add("input", kept(module), shape=self.shape, **affine)
        elif isinstance(module, Neuron) and self.blocks and self.blocks[-1][0]["type"] == b"input":
            # Its bias is the input's.
            self.blocks[-1] = ({**constants(module), **self.blocks[-1][0]}, self.blocks[-1][1])
            self.report(where, 1)
        elif isinstance(module, Later):
            # A step from layer to layer is the chip's affair.
            if module.steps.dim():
                self.delay(module.steps)
        elif isinstance(module, nn.Flatten):
            self.add("flatten", kept(module), shape=(math.prod(self.frames(module)), 1, 1))
        elif isinstance(module, PerStep) and isinstance(module[-1], nn.AvgPool1d):
            (size,) = as_sizes("kernel_size", module[-1].kernel_size, 1, minimum=1)
            self.shape = (math.prod(self.frames(module)) // size,)
            self.add("average", kept(module), shape=(*self.shape, 1, 1))
        elif isinstance(module, AvgPool2d | SpikeAvgPool2d):
            window = Pool(module).window()
            if self.pool != (1, 1) or math.log2(math.prod(window)) % 1:
                raise Unsupported(
                    "expected averages over 2, 4, 8, ... neighbouring cells, which go into the weights"
                )
            self.pool = window
        elif isinstance(module, SpikingLayer):
            self.layer(where, module)
        elif not isinstance(module, PASSED_ON):
            raise Unsupported("lava-dl has no block for it")

    def frames(self, module: nn.Module) -> tuple[int, ...]:
        """Returns the size of the frames at a module that does not change it."""
        if self.shape is not None:
            return self.shape
        if "shape" in kept(module):
            return tuple(kept(module)["shape"].tolist())
        raise Unsupported("frames of unknown size; give x, an input of the net")

    def add(self, kind: str, known: Values, **values: Any) -> None:
        fresh = {name: np.asarray(value) for name, value in values.items()}
        self.blocks.append(({"type": np.array([kind.encode()], "S10"), **fresh}, known))

    def layer(self, where: str, layer: Any) -> None:
        known, neurons = kept(layer), constants(layer.neuron)
        kind = _KINDS.get(type_before_parametrizations(layer))
        if kind is None or getattr(layer, "recurrent_delays", None) is not None:
            raise Unsupported("lava-dl has no block for it, or its recurrence is delayed")
        if layer.delays is not None:
            self.delay(torch.floor(layer.delays().detach().cpu() + 0.5).long())
        weight = layer.effective_weight.detach().double().cpu()
        weight, sizes = self.conv(layer, weight) if kind == "conv" else self.linear(layer, weight)
        both = {"weight": weight}
        if kind == "dense_rec":
            both["weight_rec"] = layer.rounded(layer.recurrent_weight).detach().double().cpu()
        found, exponent = mantissas(both, NetBlock("", known).number("neuron/wgtExp", 0))
        fan_in = sum(value[0].size for value in found.values())
        if kind == "conv" and known and NetBlock("", known).text("type") == "pool":
            same = bool((found["weight"] == found["weight"][:1]).all())
            # Weights that have learned apart from each other are a convolution's.
            known, found = (known, {"weight": found["weight"][:1]}) if same else ({}, found)
        own = {name: value.astype(np.float32) for name, value in found.items()}
        self.add(kind, known, **sizes, **neurons, **own, **{"neuron/wgtExp": exponent})
        if exponent:
            self.problems.append(f"{where}: wgtExp {exponent}, which lava-dl's netx does not read")
        self.report(where, fan_in)

    def linear(self, layer: nn.Module, weight: Tensor) -> tuple[Tensor, Sizes]:
        """Returns the weight and sizes of a fully connected layer, with the average before it."""
        weight = self.averaging(layer, weight).flatten(1)
        if math.prod((self.shape or (1,))[1:]) > 1 and self.blocks[-1][0]["type"] != b"flatten":
            self.add("flatten", {}, shape=(weight.shape[1], 1, 1))
        self.shape = (len(weight),)
        return weight, {"inFeatures": weight.shape[1], "outFeatures": len(weight), "shape": self.shape}

    def conv(self, layer: Any, weight: Tensor) -> tuple[Tensor, Sizes]:
        """Returns the weight and sizes of a convolution, with the average before it."""
        if layer.padding == "same" or (self.pool != (1, 1) and layer.dilation != (1, 1)):
            raise Unsupported('padding="same", or dilated weights behind an average, have no counterpart')
        if not kept(layer) and not self.blocks:
            # netx takes the size of the frames before a convolution from a block.
            self.add("input", {}, shape=self.frames(layer))
        stride, padding = (
            tuple(np.multiply(self.pool, own).tolist()) for own in (layer.stride, layer.padding)
        )
        weight = self.averaging(layer, weight)
        axes = {"stride": stride, "padding": padding, "dilation": layer.dilation}
        kernel = (weight.shape[2], weight.shape[3])
        if self.shape is not None:
            self.shape = (len(weight), *conv_outputs("x", self.shape[1:], kernel, **axes))
        self.shape = self.frames(layer)
        sizes = {"shape": self.shape, "kernelSize": kernel, "groups": layer.groups, **axes}
        return weight, {**sizes, "inChannels": layer.in_channels, "outChannels": len(weight)}

    def averaging(self, layer: nn.Module, weight: Tensor) -> Tensor:
        """Returns the weight `[O, I]` or `[O, I, kh, kw]` with the average before it, the latter where there is one."""
        if self.pool == (1, 1):
            return weight
        channels, height, width = self.frames(layer)
        (rows, below), (columns, right) = divmod(height, self.pool[0]), divmod(width, self.pool[1])
        if below or right:
            raise Unsupported(
                f"an average of frames {height} x {width}, which its windows cut, has no counterpart"
            )
        wide = weight.view(len(weight), channels, rows, columns) if weight.dim() == 2 else weight
        share = weight.new_full(self.pool, 1 / math.prod(self.pool))
        self.pool = (1, 1)
        return torch.kron(wide, share)

    def delay(self, steps: Tensor) -> None:
        """Puts the delays of a layer's inputs into the block that they come from."""
        places = [fresh for fresh, _ in self.blocks if "neuron/vThMant" in fresh]
        channels = int(places[-1]["shape"][0]) if places else len(steps) + 1
        each = steps.view(channels, -1) if steps.dim() == 1 and len(steps) % channels == 0 else None
        if each is None or bool((each != each[:, :1]).any()):
            raise Unsupported(
                "delays per connection, of the net's input or within a channel have no counterpart"
            )
        places[-1]["delay"] = each[:, 0].numpy().astype(np.float32)
        self.check(self.layers[-1].name, places[-1], "delay")

    def report(self, where: str, fan_in: int) -> None:
        """Adds what the last block needs of the chip, and what it has too much of."""
        fresh, neurons = self.blocks[-1][0], math.prod(self.shape or ())
        bits = bits_of([fresh[name] for name in ("weight", "weight_rec") if name in fresh])
        cores = max(neurons / _NEURONS, neurons * fan_in * bits / _SYNAPSES)
        self.layers.append(LoihiLayer(where, neurons, fan_in, bits, math.ceil(cores)))
        if fan_in > _INPUTS:
            self.problems.append(f"{where}: {fan_in} inputs of a neuron, where a core takes {_INPUTS}")
        self.check(where, fresh, "bias", "neuron/vThMant", "neuron/refDelay")

    def check(self, where: str, fresh: Values, *names: str) -> None:
        for name in names:
            (low, high), least, most = _BOUNDS[name], fresh[name].min(), fresh[name].max()
            if least < low or most > high:
                found = f"{name.removeprefix('neuron/')} from {least:g} to {most:g}"
                self.problems.append(f"{where}: {found}, where the chip takes {low} to {high}")


def constants(neuron: Neuron) -> Values:
    """Returns the data sets of a neuron.

    Raises:
        Unsupported: a neuron in another arithmetic.
    """
    if not neuron.fixed_point:
        raise Unsupported(
            f"expected neurons in Loihi's arithmetic, LoihiCubaLIF or LoihiLIF, got {neuron}; "
            "train the net with them, as `snnlib train --dialect loihi` does"
        )
    own = {name: value.detach().double().cpu().numpy() for name, value in neuron.constants().items()}
    taus = own.get("tau_s", np.ones(())), own["tau_m" if "tau_m" in own else "tau"]
    thresholds = np.unique(np.round(own.get("threshold", np.array(READOUT / UNIT)) * UNIT).astype(np.int64))
    if len(thresholds) > 1:
        raise Unsupported("thresholds that differ between the neurons of a layer have no counterpart")
    decays = [np.round(DECAYS / np.maximum(tau, 1.0)).astype(np.int64) for tau in taus]
    numbers = {
        **dict(zip(("neuron/iDecay", "neuron/vDecay"), decays, strict=True)),
        "neuron/vThMant": thresholds[0],
        "neuron/refDelay": int(getattr(neuron, "refractory", 0)) + 1,
        "neuron/gradedSpike": False,
        "bias": np.round(np.atleast_1d(own["bias_current"]) * UNIT).astype(np.float32),
        "delay": np.zeros(1, np.float32),
        "neuron/type": np.array("CUBA", dtype=text_type()),
    }
    return {name: np.asarray(value) for name, value in numbers.items()}


def mantissas(weights: dict[str, Tensor], wanted: int) -> tuple[dict[str, Array], int]:
    """Returns weights as integers of 8 bits and their exponent, the wanted one if it will do, else the nearest to 0.

    Raises:
        Unsupported: weights that have none in common.
    """
    for exponent in (wanted, *sorted(range(-7, 8), key=abs)):
        found = {name: (value * UNIT * 2.0**-exponent).numpy() for name, value in weights.items()}
        both = np.concatenate([value.reshape(-1) for value in found.values()])
        low, high = (-128, 127) if (both % 2).any() else (-256, 254)
        if not (both % 1).any() and both.min() >= low and both.max() <= high:
            return found, exponent
    raise Unsupported(
        "weights that have no exponent in common, as a block needs, or one beyond -7 to 7; neurons with "
        "weight_exponent= round all weights of their layer to one grid"
    )


def bits_of(weights: list[Array]) -> int:
    """Returns how many bits the chip keeps of a weight: without zeros that end all, with a sign where signs differ."""
    whole = np.concatenate([values.reshape(-1) for values in weights]).astype(np.int64)
    ends = int(np.bitwise_or.reduce(np.abs(whole)))
    low, high = (int(value) // max(ends & -ends, 1) for value in (whole.min(), whole.max()))
    signed = low < 0 < high
    return max(1, (-low - signed).bit_length() + signed, high.bit_length() + signed)


def merged(fresh: Values, known: Values) -> Values:
    """Returns the data sets of a block: those of the file that it came from, as they were where they say the same."""
    found = dict(known)
    for name, value in fresh.items():
        old = known.get(name, _DEFAULTS.get(name) if known or name in _SELDOM else None)
        if old is None and known:
            # Sizes that an older version left to the weights.
            continue
        if old is None or not (name in ("type", "neuron/type") or _same(np.asarray(old), value, name)):
            found[name] = value
    return found


def _same(old: Array, value: Array, name: str) -> bool:
    if name == "shape":
        return bool(old.prod() == value.prod())
    return (old.size == value.size or 1 in (old.size, value.size)) and bool(
        (old.ravel() == value.ravel()).all()
    )
