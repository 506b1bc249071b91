"""Nets from the notation that papers use: `12C5p1-P2-64C5-P2-10`."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Unpack

from torch import nn

from snnlib.functional.sparse import SparselyConnected
from snnlib.neurons import Neuron
from snnlib.nn.layers.delay_line import DelayLine
from snnlib.nn.layers.delays import Delays
from snnlib.nn.layers.dropout import SpikeDropout
from snnlib.nn.layers.per_step import AvgPool2d, PerStep
from snnlib.nn.layers.residual_connection import Residual
from snnlib.nn.layers.spike_pool import SpikeAvgPool2d
from snnlib.nn.layers.spiking import SpikingConv2d, SpikingLinear
from snnlib.nn.layers.srm import SRMConv2d, SRMLinear, SRMOptions
from snnlib.nn.recurrent.bidirectional import Bidirectional
from snnlib.nn.recurrent.rnn import SpikingRNN
from snnlib.nn.recurrent.state_space import StateSpaceBlock
from snnlib.nn.weights.sparse import Sparse

_CONV = re.compile(
    r"(?P<channels>[1-9]\d*)C(?P<kernel>[1-9]\d*)(?:s(?P<stride>[1-9]\d*))?(?:p(?P<padding>\d+))?"
)
_CONV_DEFAULTS = (("kernel", 0), ("stride", 1), ("padding", 0))
_POOL = re.compile(r"P(?P<size>[1-9]\d*)")
_DELAY_LINE = re.compile(r"(?P<kind>[AT])(?P<delay>[1-9]\d*)")
_BLOCK = re.compile(r"(?P<features>[1-9]\d*)M(?P<delay>[1-9]\d*)")
_OVER_TIME = re.compile(r"(?P<features>[1-9]\d*)(?P<kind>RB?|S)")
_LINEAR = re.compile(r"(?P<features>[1-9]\d*)(?:D(?P<delay>[1-9]\d*))?")


def from_notation(
    notation: str,
    input_shape: tuple[int, int, int],
    *,
    neuron: Neuron | None = None,
    recurrent_neuron: Callable[[int], Neuron] | None = None,
    batch_norm: bool = False,
    dropout: float = 0.0,
    connections: Sparse | None = None,
    **options: Unpack[SRMOptions],
) -> nn.Sequential:
    """Builds a spiking net from the papers' notation, with layers joined by `-`.

    `12C5` is a 5x5 convolution to 12 channels, `12C5p1` with padding 1, `12C5s2p1` with stride 2 as well; `P2` is a
    2x2 average pooling; `100` a fully connected layer of 100 neurons, `100D25` the same with learned delays per
    connection of up to 25 steps (`Delays`), `100R` a recurrent layer (`SpikingRNN`) and `100RB` a bidirectional one
    with 100 neurons per direction (`Bidirectional`); `64S` a `StateSpaceBlock` of width 64, after a linear map if the
    width changes; `A2` delays the channels by 0 to 2 steps in turn, `T2` repeats each channel with all of these delays
    (`DelayLine`); `64M2`, with batch norm and behind another layer of 64 neurons, is a residual block that adds a map
    of the spikes of 3 steps to the currents of the neurons before it. In frames of height 1 a convolution is along the
    width only, with its kernel, stride and padding. Layers are `SRMConv2d`, `SpikeAvgPool2d` and `SRMLinear`, or with
    a `neuron` `SpikingConv2d`, `SpikingLinear` and the pooling of its kind of gradient.

    Args:
        notation: the layers, first to last.
        input_shape: `(C, H, W)` of the events.
        neuron: a neuron model, copied for every layer. Default: SRM neurons.
        recurrent_neuron: function from a number of neurons to the neurons of a recurrent layer or a state-space block,
            for constants per neuron. Default: copies of `neuron`, which recurrent layers require; without `neuron`,
            the default of state-space blocks.
        batch_norm: whether every convolution and linear layer but the last is `PerStep` of a torch layer and its batch
            norm, with neurons of a surrogate gradient behind it: `conv1`, `neuron1`, ... Default False.
        dropout: probability that `SpikeDropout` silences each of these neurons in training. Default 0.
        connections: `snnlib.Sparse(...)` for every fully connected and recurrent layer but the last, for both weights
            of recurrent layers. Default None, all connections.
        options: constants of all SRM layers, as in `SRMConv2d`; with a `neuron`, `batch_first`, `device` and `dtype`.

    Returns:
        A Sequential whose modules are named `conv1`, `pool1`, ..., `rnn1`, ..., `fc1`, ...

    Raises:
        ValueError: batch norm or a recurrent layer without neurons of a surrogate gradient; sparse connections with
            SRM neurons, with batch norm or without a layer that supports them; an unknown layer, or one that does not
            fit the layer before.

    >>> import snnlib
    >>> net = snnlib.models.from_notation("4C3p1-P2-10", (1, 8, 8), tau_m=8.0, tau_s=4.0)
    >>> [name for name, _ in net.named_children()]
    ['conv1', 'pool1', 'fc1']
    >>> lif = snnlib.neurons.LIF()
    >>> net = snnlib.models.from_notation("4C3p1-P2-10", (1, 8, 8), neuron=lif, batch_norm=True)
    >>> [name for name, _ in net.named_children()]
    ['conv1', 'neuron1', 'pool1', 'fc1']
    >>> cuba = snnlib.neurons.CubaLIF(surrogate=snnlib.surrogate.Triangle(width=0.5, height=0.4))
    >>> [name for name, _ in snnlib.models.from_notation("32R-10", (4, 1, 1), neuron=cuba).named_children()]
    ['flatten', 'rnn1', 'fc1']
    >>> [name for name, _ in snnlib.models.from_notation("16S-16S-10", (1, 1, 1)).named_children()]
    ['flatten', 'linear1', 'block1', 'block2', 'fc1']
    """
    _check_options(neuron, batch_norm, connections)
    chain = _Chain(notation, input_shape, neuron, recurrent_neuron, dropout, options)
    words = notation.split("-")
    for number, word in enumerate(words):
        last = number == len(words) - 1
        chain.normalized, chain.connections = batch_norm and not last, None if last else connections
        chain.add(word)
    net = nn.Sequential(chain.layers)
    _check_sparse(net, connections, notation)
    return net


def _check_options(neuron: Neuron | None, batch_norm: bool, connections: Sparse | None) -> None:
    """Raises ValueError where neurons, batch norm and sparse connections do not go together."""
    if batch_norm and (neuron is None or neuron.gradient != "surrogate"):
        raise ValueError(f"batch_norm: expected a neuron with a surrogate gradient, got {neuron}")
    if connections is not None and (neuron is None or batch_norm):
        got = "SRM neurons" if neuron is None else "batch_norm=True"
        raise ValueError(f"connections: expected None beside {got}, got {connections!r}")


def _check_sparse(net: nn.Sequential, connections: Sparse | None, notation: str) -> None:
    """Raises ValueError for sparse connections of which no layer has any."""
    if connections is not None and not any(isinstance(part, SparselyConnected) for part in net.modules()):
        raise ValueError(f"connections: expected a hidden layer like 100 or 100R in {notation!r}, got none")


class _Chain:
    """The layers so far, and the shape of what the last one gives.

    Args:
        notation: all words, for messages.
        shape: `(C, H, W)` of the input.
        neuron, recurrent_neuron, dropout, options: as in `from_notation`.

    Attributes:
        layers: by name.
        normalized: whether the next layer has batch norm.
        connections: of the next layer, if it is fully connected or recurrent.
        features: neurons of a last layer without axes of space, 0 for frames.
    """

    normalized = False
    connections: Sparse | None = None

    def __init__(
        self,
        notation: str,
        shape: tuple[int, int, int],
        neuron: Neuron | None,
        recurrent_neuron: Callable[[int], Neuron] | None,
        dropout: float,
        options: SRMOptions,
    ) -> None:
        self.notation, self.neuron, self.recurrent_neuron = notation, neuron, recurrent_neuron
        self.dropout, self.options = dropout, options
        self.batch_first: bool = options.get("batch_first", False)
        self.factory: dict[str, Any] = {"device": options.get("device"), "dtype": options.get("dtype")}
        self.layers: OrderedDict[str, nn.Module] = OrderedDict()
        self.channels, self.height, self.width = shape
        self.features = 0

    def add(self, word: str) -> None:
        """Add the layer of a word."""
        for pattern, add in _WORDS:
            if match := pattern.fullmatch(word):
                add(self, match)
                return
        raise ValueError(
            "notation: expected words like 12C5p1, P2, A2, T2, 100, 100R, 64S, 64M2 or 100D25, got "
            f"{word!r} in {self.notation!r}"
        )

    def convolution(self, word: re.Match[str]) -> None:
        """Kernel, stride and padding are along height and width, or along the width alone of frames of height 1."""
        sizes = [int(word[key] or default) for key, default in _CONV_DEFAULTS]
        beside = (1, 1, 0) if self.height == 1 < self.width else sizes
        window = tuple(zip(beside, sizes, strict=True))
        self.height, self.width = (
            (side + 2 * padding - size) // stride + 1
            for side, size, stride, padding in zip((self.height, self.width), *window, strict=True)
        )
        self._check_window(word)
        before, self.channels = self.channels, int(word["channels"])
        kernel, stride, padding = window
        if self.normalized:
            conv = nn.Conv2d(before, self.channels, kernel, stride, padding, bias=False, **self.factory)
            self._put("conv", PerStep(conv, nn.BatchNorm2d(self.channels, **self.factory)))
            self._put_neuron()
        else:
            shape = before, self.channels, *window
            self._put("conv", self._with_neurons(SRMConv2d, SpikingConv2d, shape, self.options))

    def pool(self, word: re.Match[str]) -> None:
        """Averages, of the gradient that the neurons have."""
        size = int(word["size"])
        by_event = self.neuron is None or self.neuron.gradient == "event"
        self.height, self.width = self.height // size, self.width // size
        self._check_window(word)
        self._put("pool", (SpikeAvgPool2d if by_event else AvgPool2d)(size))

    def delays(self, word: re.Match[str]) -> None:
        """Channels that arrive later."""
        line = self._delay_line(word, every=word["kind"] == "T")
        self._put("delay", line)
        if self.features:
            self.features *= line.copies
        else:
            self.channels *= line.copies

    def over_time(self, word: re.Match[str]) -> None:
        """A recurrent layer or a state-space block, the latter behind a linear map from another width."""
        inputs = self._flattened()
        size, kind = int(word["features"]), word["kind"]
        made = self.recurrent_neuron(size) if self.recurrent_neuron else deepcopy(self.neuron)
        self.features = size * (2 if kind == "RB" else 1)
        if kind == "S":
            if inputs != size:
                self._put("linear", nn.Linear(inputs, size, **self.factory))
            block = StateSpaceBlock(size, neuron=made, batch_first=self.batch_first)
            self._put("block", block.to(**self.factory))
            return
        if self.neuron is None or self.neuron.gradient != "surrogate":
            raise ValueError(
                f"notation: expected a neuron with a surrogate gradient for {word[0]!r}, got "
                f"{self.neuron or 'SRM neurons'}"
            )
        both = {"connections": self.connections, "recurrent_connections": self.connections}
        rnn = SpikingRNN(inputs, size, neuron=made, **both, **self.options)  # type: ignore[misc, arg-type]
        self._put("rnn", Bidirectional(rnn) if kind == "RB" else rnn)

    def block(self, word: re.Match[str]) -> None:
        """A map of the spikes of the neurons before it, which it takes over, added to their currents."""
        size = int(word["features"])
        if not (self.normalized and size == self.features):
            raise ValueError(
                f"notation: expected batch norm and a layer of {size} neurons before {word[0]!r}, got "
                f"{self.features or 'frames'}"
            )
        line = self._delay_line(word, every=True)
        neurons = [self.layers.popitem()[1] for _ in range(2 if self.dropout else 1)]
        body = nn.Sequential(*reversed(neurons), line, self._normalized_map(size * line.copies, size))
        self._put("block", Residual(body))
        self._put_neuron()

    def linear(self, word: re.Match[str]) -> None:
        """A fully connected layer."""
        size = int(word["features"])
        if not self.normalized:
            inputs = self.features or self.channels * self.height * self.width
            options: dict[str, Any] = {**self.options}
            if word["delay"]:
                options["delays"] = Delays(int(word["delay"]), "connection")
            if self.connections is not None:
                options["connections"] = self.connections
            self._put("fc", self._with_neurons(SRMLinear, SpikingLinear, (inputs, size), options))
        elif word["delay"]:
            raise ValueError(f"batch_norm: expected False with delays, got True for {word[0]!r}")
        else:
            self._put("fc", self._normalized_map(self._flattened(), size))
            self._put_neuron()
        self.features = size

    def _put(self, kind: str, layer: nn.Module) -> None:
        self.layers[f"{kind}{1 + sum(name.startswith(kind) for name in self.layers)}"] = layer

    def _put_neuron(self) -> None:
        own = deepcopy(self.neuron)
        assert own is not None
        own.batch_first = self.batch_first
        self._put("neuron", own.to(self.factory["device"]))
        if self.dropout:
            self._put("dropout", SpikeDropout(self.dropout, self.batch_first))

    def _flattened(self) -> int:
        """Inputs of a layer without axes of space; frames are flattened before the first."""
        if not self.features:
            self.layers["flatten"] = nn.Flatten(2)
        return self.features or self.channels * self.height * self.width

    def _check_window(self, word: re.Match[str]) -> None:
        """Raises ValueError where a convolution or a pooling finds neurons without axes or too few cells."""
        if self.features or min(self.height, self.width) < 1:
            got = f"{self.height} x {self.width} cells after it"
            raise ValueError(
                f"notation: {word[0]!r} in {self.notation!r} does not fit: expected a window within the frames before "
                f"it, got {'neurons without axes' if self.features else got}"
            )

    def _with_neurons(
        self,
        of_srm: type[nn.Module],
        of_others: type[nn.Module],
        sizes: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> nn.Module:
        """A layer of weights and neurons: of SRM neurons, or of copies of another."""
        if self.neuron is None:
            return of_srm(*sizes, **options)
        return of_others(*sizes, neuron=deepcopy(self.neuron), **options)

    def _delay_line(self, word: re.Match[str], every: bool) -> DelayLine:
        channels = self.features or self.channels
        line = DelayLine(channels, int(word["delay"]), every=every, batch_first=self.batch_first)
        return line.to(self.factory["device"])

    def _normalized_map(self, inputs: int, outputs: int) -> PerStep:
        norm = nn.BatchNorm1d(outputs, **self.factory)
        return PerStep(nn.Linear(inputs, outputs, bias=False, **self.factory), norm)


# Layers that each kind of word adds.
_WORDS: tuple[tuple[re.Pattern[str], Callable[[_Chain, re.Match[str]], None]], ...] = (
    (_CONV, _Chain.convolution),
    (_POOL, _Chain.pool),
    (_DELAY_LINE, _Chain.delays),
    (_OVER_TIME, _Chain.over_time),
    (_BLOCK, _Chain.block),
    (_LINEAR, _Chain.linear),
)
