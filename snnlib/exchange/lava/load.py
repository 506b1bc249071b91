"""`exchange.from_lava`: loads a lava-dl file as a net in Loihi's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.checks import conv_outputs
from snnlib.exchange.lava.modules import AnalogInput, keep
from snnlib.exchange.lava.net_file import Array, NetBlock, read_net
from snnlib.exchange.sequences import Later
from snnlib.neurons import LoihiCubaLIF, LoihiIntegrator, LoihiLIF, Neuron
from snnlib.nn import Delays, PerStep, SpikingConv2d, SpikingLinear, SpikingRNN
from snnlib.surrogate import SurrogateLike, Triangle

__all__ = ["from_lava"]

_KINDS = ("input", "dense", "dense_rec", "conv", "pool", "flatten", "average")
# Units of decays, and of the integers of a threshold or weight in this library's unit.
DECAYS, UNIT = 4096, 64
# The largest threshold, which no membrane of 23 bits passes: of neurons whose potential is read out.
READOUT = 131071
_FAMILIES = {"SDNN": "sigma-delta", "RF": "resonate-and-fire", "AL": "adaptive", "AD": "adaptive"}
# Data sets that must be 0: spikes that carry a number, and a batch norm that scales by a power of two.
_UNKNOWN = ("neuron/gradedSpike", "neuron/messageBits", "neuron/weight_exp")


def from_lava(
    path: str | Path, *, latency: bool = False, surrogate: SurrogateLike | None = None
) -> nn.Sequential:
    """Loads a lava-dl file (`network.net`, HDF5) as a net over sequences `[T, N, ...]`, bit for bit.

    Blocks `input`, `dense`, `dense_rec`, `conv`, `pool`, `flatten` and `average` of `LOIHI` or `CUBA` neurons become
    layers of this library with neurons in Loihi's arithmetic: `LoihiCubaLIF`, or `LoihiLIF` where `iDecay` is 4096.
    With W, B and vThMant of the file::

        weight = W 2^wgtExp / 64      bias = B / 64      threshold = vThMant / 64      tau = 4096 / decay

    so that a state v of a neuron is `4096 v` on the chip. Weights, biases and delays are parameters, rounded in the
    forward pass to the file's grid: even numbers from -256 to 254, or all numbers from -128 to 127 if the file has odd
    ones. A last block with the largest threshold, 131071, outputs its potential: a `LoihiIntegrator`. `docs/loihi.md`
    says what is exact.

    On the chip spikes reach the next layer one step later. In a chain this only shifts the time of a layer, and is
    left out by default: step t of a layer here is step `t + number of layers before` on the chip.

    Args:
        path: the file.
        latency: whether spikes take one step from layer to layer, as on the chip. Default False.
        surrogate: surrogate gradient of all neurons. Default `ATan(2)`, as in `SpikingNeuron`.

    Returns:
        A sequence of layers; `to_lava` writes it, with unrelated data sets of the file unchanged.

    Raises:
        ImportError: the package h5py is missing: `pip install 'snnlib[formats]'`.
        OSError: no such file.
        ValueError: a damaged file, an unknown block or neuron (sigma-delta, resonate-and-fire), or values that no chip
            accepts; the message names file and data set.

    Source: the block and netx packages of lava-dl, https://github.com/lava-nc/lava-dl.

    >>> import snnlib, tempfile, torch
    >>> from snnlib.exchange import from_lava, to_lava
    >>> neuron = snnlib.neurons.LoihiCubaLIF(weight_exponent=-5)
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
        try:
            loader.take(block, last=block is blocks[-1])
        except ValueError as error:
            # Error of a layer or neuron that refuses its options.
            raise (error if f"{block.where}/" in str(error) else block.error("", error)) from error
    if loader.delay is not None:
        loader.modules.append(Later(loader.delay))
    net = nn.Sequential(*loader.modules)
    keep(net, rest)
    return net


class _Loader:
    def __init__(self, latency: bool, surrogate: SurrogateLike | None) -> None:
        self.latency, self.options = latency, {} if surrogate is None else {"surrogate": surrogate}
        self.modules = list[nn.Module]()
        # Shape behind the block before: (channels, y, x) or features, and the delay of each channel or feature.
        self.shape: tuple[int, ...] | None = None
        self.delay: Array | None = None
        self.spikes = self.last = False

    def take(self, block: NetBlock, last: bool) -> None:
        kind, self.last = block.text("type"), last
        if kind not in _KINDS:
            raise block.error("type", f"expected one of {', '.join(_KINDS)}, got {kind!r}")
        neural = any(name.startswith("neuron/") for name in block.values)
        if kind == "input":
            module = self.input(block, neural)
        elif kind in ("flatten", "average"):
            module = self.flatten(block) if kind == "flatten" else self.average(block)
        elif not neural:
            raise block.error("neuron", f"expected the group of a {kind} block with neurons, got none")
        else:
            if self.latency and self.spikes:
                self.modules.append(Later(1))
            module = self.frames(block, kind) if kind in ("conv", "pool") else self.dense(block, kind)
            self.read_delay(block)
        self.modules.append(module)
        keep(module.layers[0] if isinstance(module, SpikingRNN) else module, block.values)
        if kind == "input" and neural:
            assert self.shape is not None
            self.modules.append(self.neuron(block, self.shape[0], biased=False))
        self.spikes = self.spikes or neural

    def input(self, block: NetBlock, neural: bool) -> nn.Module:
        if self.modules:
            raise block.error("type", "expected an input block only at the beginning")
        self.shape = block.shape()
        if not neural:
            return nn.Identity()
        weight, bias = (block.number(*each, -256, 254) for each in (("weight", 64), ("bias", 0)))
        if weight % 2 or bias % 2:
            raise block.error("weight", f"expected even numbers here and as bias, got {weight} and {bias}")
        return AnalogInput(weight / UNIT, bias / UNIT)

    def flatten(self, block: NetBlock) -> nn.Module:
        before = self.shape or block.shape()
        self.shape = block.shape()
        if self.shape != (math.prod(before),):
            raise block.error("shape", f"expected {math.prod(before)} features, got {self.shape}")
        if self.delay is not None:
            self.delay = self.delay.repeat(math.prod(before[1:]))
        return nn.Flatten(2)

    def average(self, block: NetBlock) -> nn.Module:
        features, groups = math.prod(self.shape or ()), math.prod(block.shape())
        if self.shape is None or features % groups or self.delay is not None:
            raise block.error("shape", f"expected groups of {features} features without delays, got {groups}")
        self.shape = (groups,)
        return PerStep(nn.Flatten(), nn.AvgPool1d(features // groups))

    def dense(self, block: NetBlock, kind: str) -> nn.Module:
        weight, said = block.values.get("weight", np.empty(0)), math.prod(self.shape or ())
        outputs = block.number("outFeatures", math.prod(block.shape()), 1)
        inputs = block.number("inFeatures", weight.size // outputs, 1)
        if self.shape and (said != inputs or math.prod(self.shape[1:]) > 1):
            raise block.error("inFeatures", f"expected features as before it, {self.shape}, got {inputs}")
        self.shape = (outputs,)
        shapes = {"weight": (outputs, inputs)} | (
            {"weight_rec": (outputs, outputs)} if kind == "dense_rec" else {}
        )
        tensors, options = self.synapses(block, outputs, shapes)
        whole = (SpikingRNN if kind == "dense_rec" else SpikingLinear)(inputs, outputs, **options)
        layer: Any = whole.layers[0] if isinstance(whole, SpikingRNN) else whole
        layer.weight.data.copy_(tensors[0])
        if kind == "dense_rec":
            layer.recurrent_weight.data.copy_(tensors[1])
        return whole

    def frames(self, block: NetBlock, kind: str) -> nn.Module:
        """A convolution; a pool, which sums windows, is one of each channel with a weight that does not learn."""
        axes = (*block.values.get("weight", np.empty(0)).shape, 0, 0, 0, 0)[:4]
        kernel, before = block.pair("kernelSize", axes[2:]), self.shape
        said = tuple(block.numbers("shape", sizes=(3,), low=1).tolist())
        given = {"stride": 1 if kind == "conv" else kernel, "padding": 0, "dilation": 1}
        sizes: dict[str, Any] = {
            name: block.pair(name, usual, name != "padding") for name, usual in given.items()
        }
        if kind == "conv":
            groups, outputs = block.number("groups", 1, 1), block.number("outChannels", axes[0], 1)
            inputs = block.number("inChannels", axes[1] * groups, 1)
        else:
            groups = outputs = inputs = said[0]
            cut = any(size % side for size, side in zip((before or ())[1:], kernel, strict=False))
            if cut or sizes != {"stride": kernel, "padding": (0, 0), "dilation": (1, 1)}:
                raise block.error(
                    "stride", f"expected windows {kernel} side by side that fill {before}, got {sizes}"
                )
        shape = (outputs, inputs // groups) if kind == "conv" else (1, 1)
        (weight,), options = self.synapses(block, outputs, {"weight": (*shape, *kernel)})
        layer = SpikingConv2d(inputs, outputs, kernel, groups=groups, **sizes, **options)
        layer.weight.data.copy_(weight.expand_as(layer.weight))
        layer.weight.requires_grad_(kind == "conv")
        self.shape = (outputs, *conv_outputs("shape", before[1:], kernel, **sizes)) if before else said
        if self.shape != said or (before and before[0] != inputs):
            raise block.error("shape", f"expected {self.shape} behind {inputs} of {before}, got {said}")
        return layer

    def read_delay(self, block: NetBlock) -> None:
        assert self.shape is not None
        delay = block.numbers("delay", 0, (1, self.shape[0]), 0, 2**16)
        self.delay = np.broadcast_to(delay, self.shape[0]).copy() if delay.any() else None

    def synapses(
        self, block: NetBlock, outputs: int, shapes: Mapping[str, tuple[int, ...]]
    ) -> tuple[list[Tensor], dict[str, Any]]:
        """Returns weights in this library's unit, and a layer's delays and neurons, which know the weights' grid."""
        found = [block.numbers(name, None, (math.prod(shape),)) for name, shape in shapes.items()]
        exponent = block.number("neuron/wgtExp", 0, -7, 7)
        both = np.concatenate(found)
        grid, bounds = (6, (-128, 127)) if (both % 2).any() else (5, (-256, 254))
        block.numbers("weight", None, (), *bounds), block.numbers("weight_rec", 0, (), *bounds)
        tensors = [
            torch.from_numpy(values.reshape(shape)) * (2.0**exponent / UNIT)
            for values, shape in zip(found, shapes.values(), strict=True)
        ]
        given: dict[str, Any] = {"weight_exponent": exponent - grid}
        if "weight_rec" in shapes:
            # As in SpikingRNN: the peak of ATan(2) lets gradients grow without bound.
            given["surrogate"] = Triangle(width=0.5, height=0.4)
        neuron = self.neuron(block, outputs, **given)
        if self.delay is None:
            return tensors, {"neuron": neuron}
        delays = Delays(int(self.delay.max()), initial=torch.from_numpy(self.delay).double())
        return tensors, {"neuron": neuron, "delays": delays}

    def neuron(self, block: NetBlock, channels: int, *, biased: bool = True, **options: Any) -> Neuron:
        kind = block.text("neuron/type", "CUBA")
        if kind not in ("LOIHI", "CUBA"):
            family = next((name for start, name in _FAMILIES.items() if kind.startswith(start)), "other")
            raise block.error("neuron/type", f"expected LOIHI or CUBA, got {kind!r}, {family} neurons")
        for name in _UNKNOWN:
            block.numbers(name, 0, (), 0, 0)
        decays = (
            block.numbers(f"neuron/{name}", None, (1, channels), 0, DECAYS) for name in ("iDecay", "vDecay")
        )
        taus = (DECAYS / torch.from_numpy(decay).double() for decay in decays)
        tau_s, tau_m = (tau if len(tau) > 1 else tau[0] for tau in taus)
        threshold = block.number("neuron/vThMant", None, 1)
        refractory = block.number("neuron/refDelay", 1, 1) - 1
        if biased and "bias" in block.values:
            bias = np.broadcast_to(block.numbers("bias", None, (1, channels)) / UNIT, channels)
            options |= {"bias_current": torch.from_numpy(bias.copy()), "learnable": ("bias_current",)}
        without = bool((tau_s == 1).all())
        if self.last and threshold == READOUT:
            options.pop("surrogate", None)
            return LoihiIntegrator(tau_m, tau_s=None if without else tau_s, **options)
        options |= {"threshold": threshold / UNIT, "refractory": refractory, **self.options}
        return LoihiLIF(tau_m, **options) if without else LoihiCubaLIF(tau_m, tau_s, **options)
