"""Nets from the notation that papers use: `12C5p1-P2-64C5-P2-10`."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Unpack

from torch import nn

from snnlib.functional.sparse import SparselyConnected
from snnlib.neurons import Neuron
from snnlib.nn.bidirectional import Bidirectional
from snnlib.nn.delays import Delays
from snnlib.nn.per_step import AvgPool2d, PerStep
from snnlib.nn.pool import SpikeAvgPool2d
from snnlib.nn.recurrent import SpikingRNN
from snnlib.nn.sparse import Sparse
from snnlib.nn.spiking import SpikingConv2d, SpikingLinear
from snnlib.nn.srm import SRMConv2d, SRMLinear, SRMOptions
from snnlib.nn.state_space import StateSpaceBlock

_CONV = re.compile(
    r"(?P<channels>[1-9]\d*)C(?P<kernel>[1-9]\d*)(?:s(?P<stride>[1-9]\d*))?(?:p(?P<padding>\d+))?"
)
_CONV_DEFAULTS = (("kernel", 0), ("stride", 1), ("padding", 0))
_POOL = re.compile(r"P(?P<size>[1-9]\d*)")
_OVER_TIME = re.compile(r"(?P<features>[1-9]\d*)(?P<kind>RB?|S)")
_LINEAR = re.compile(r"(?P<features>[1-9]\d*)(?:D(?P<delay>[1-9]\d*))?")


def from_notation(
    notation: str,
    input_shape: tuple[int, int, int],
    *,
    neuron: Neuron | None = None,
    recurrent_neuron: Callable[[int], Neuron] | None = None,
    batch_norm: bool = False,
    connections: Sparse | None = None,
    **options: Unpack[SRMOptions],
) -> nn.Sequential:
    """A spiking net from the papers' notation, layers joined by `-`.

    `12C5` is a 5x5 convolution to 12 channels, `12C5p1` with padding 1, `12C5s2p1` with stride 2 as well; `P2` is a
    2x2 average pooling; `100` a fully connected layer of 100 neurons, `100D25` one whose connections learn delays of up
    to 25 steps (`Delays`), `100R` a recurrent one (`SpikingRNN`) and `100RB` one of 100 neurons in each direction of
    time (`Bidirectional`); `64S` a `StateSpaceBlock` of width 64, behind a linear map from another width. Layers are
    `SRMConv2d`, `SpikeAvgPool2d` and `SRMLinear`, or with a `neuron` `SpikingConv2d`, `SpikingLinear` and the pooling
    of its kind of gradient.

    Args:
        notation: the layers, first to last.
        input_shape: `(C, H, W)` of the events.
        neuron: a neuron model, of which every layer gets a copy. Default: SRM neurons.
        recurrent_neuron: gives the neurons of a recurrent layer or a state-space block from their number, for constants
            of their own. Default: copies of `neuron`, which recurrent layers need; for blocks without one, theirs.
        batch_norm: whether every convolution and linear layer but the last is `PerStep` of a torch layer and its batch
            norm, with neurons of a surrogate gradient behind it: `conv1`, `neuron1`, ... Default False.
        connections: `snnlib.Sparse(...)` of every fully connected and recurrent layer but the last, for both weights of
            recurrent ones. Default None, all of them.
        options: constants of all SRM layers, as in `SRMConv2d`; with a `neuron`, `batch_first`, `device` and `dtype`.

    Returns:
        A Sequential whose modules are named `conv1`, `pool1`, ..., `rnn1`, ..., `fc1`, ...

    Raises:
        ValueError: batch norm or a recurrent layer without neurons of a surrogate gradient; sparse connections of SRM
            neurons, beside batch norm or without a layer that takes them; a layer that is not understood or does not
            fit what comes before it.

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
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    _check_options(neuron, batch_norm, connections)
    factory: dict[str, Any] = {"device": options.get("device"), "dtype": options.get("dtype")}
    channels, height, width = input_shape
    features = 0

    def name_for(kind: str) -> str:
        return f"{kind}{1 + sum(name.startswith(kind) for name in layers)}"

    words = notation.split("-")
    for number, word in enumerate(words):
        normalized = batch_norm and number < len(words) - 1
        sparse = connections if number < len(words) - 1 else None
        if match := _CONV.fullmatch(word):
            size, stride, padding = (int(match[key] or default) for key, default in _CONV_DEFAULTS)
            shape = channels, int(match["channels"]), size, stride, padding
            layer: nn.Module = (
                PerStep(nn.Conv2d(*shape, bias=False, **factory), nn.BatchNorm2d(shape[1], **factory))
                if normalized
                else _with_neurons((SRMConv2d, SpikingConv2d), shape, neuron, options)
            )
            channels = int(match["channels"])
            height, width = ((side + 2 * padding - size) // stride + 1 for side in (height, width))
            kind = "conv"
        elif match := _POOL.fullmatch(word):
            by_event = neuron is None or neuron.gradient == "event"
            layer = (SpikeAvgPool2d if by_event else AvgPool2d)(int(match["size"]))
            height, width = (side // int(match["size"]) for side in (height, width))
            kind = "pool"
        elif match := _OVER_TIME.fullmatch(word):
            if not features:
                layers["flatten"] = nn.Flatten(2)
            makers = neuron, recurrent_neuron
            inputs = features or channels * height * width
            for kind, layer in _over_time(inputs, match, makers, sparse, options):
                layers[name_for(kind)] = layer
            features = int(match["features"]) * (2 if match["kind"] == "RB" else 1)
            continue
        elif match := _LINEAR.fullmatch(word):
            flat = features or channels * height * width, int(match["features"])
            if normalized and not features:
                layers["flatten"] = nn.Flatten(2)
            layer = (
                _normalized_linear(flat, match, factory)
                if normalized
                else _with_neurons(
                    (SRMLinear, SpikingLinear), flat, neuron, _linear_options(match, sparse, options)
                )
            )
            features = int(match["features"])
            kind = "fc"
        else:
            raise ValueError(
                f"notation: expected words like 12C5p1, P2, 100, 100R, 64S or 100D25, got {word!r} in {notation!r}"
            )
        if kind != "fc":
            _check_window(word, notation, features, (height, width))
        layers[name_for(kind)] = layer
        if normalized and kind in ("conv", "fc"):
            own = deepcopy(neuron)
            assert own is not None
            own.batch_first = options.get("batch_first", False)
            layers[name_for("neuron")] = own.to(options.get("device"))
    net = nn.Sequential(layers)
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


def _check_window(word: str, notation: str, features: int, after: tuple[int, int]) -> None:
    """Raises ValueError where a convolution or a pooling finds neurons without axes or too few cells."""
    if features or min(after) < 1:
        got = "neurons without axes" if features else f"{after[0]} x {after[1]} cells after it"
        raise ValueError(
            f"notation: {word!r} in {notation!r} does not fit: expected a window within the frames before it, got {got}"
        )


def _with_neurons(
    kinds: tuple[type[nn.Module], type[nn.Module]],
    sizes: tuple[int, ...],
    neuron: Neuron | None,
    options: Mapping[str, Any],
) -> nn.Module:
    """A layer of weights and neurons: of SRM neurons, or of copies of another."""
    if neuron is None:
        return kinds[0](*sizes, **options)
    return kinds[1](*sizes, neuron=deepcopy(neuron), **options)


def _linear_options(word: re.Match[str], connections: Sparse | None, options: SRMOptions) -> dict[str, Any]:
    """Options with the delays and sparse connections that a layer has."""
    delays = {"delays": Delays(int(word["delay"]), "connection")} if word["delay"] else {}
    return {**options, **delays, **({"connections": connections} if connections is not None else {})}


def _over_time(
    inputs: int,
    word: re.Match[str],
    makers: tuple[Neuron | None, Callable[[int], Neuron] | None],
    connections: Sparse | None,
    options: SRMOptions,
) -> Iterator[tuple[str, nn.Module]]:
    """A recurrent layer or a state-space block, with the kind of layer in front of the module."""
    neuron, own = makers
    size, kind = int(word["features"]), word["kind"]
    made = own(size) if own else deepcopy(neuron)
    if kind == "S":
        factory: dict[str, Any] = {"device": options.get("device"), "dtype": options.get("dtype")}
        if inputs != size:
            yield "linear", nn.Linear(inputs, size, **factory)
        block = StateSpaceBlock(size, neuron=made, batch_first=options.get("batch_first", False))
        yield "block", block.to(**factory)
        return
    if neuron is None or neuron.gradient != "surrogate":
        raise ValueError(
            f"notation: expected a neuron with a surrogate gradient for {word[0]!r}, got {neuron or 'SRM neurons'}"
        )
    both = {"connections": connections, "recurrent_connections": connections}
    rnn = SpikingRNN(inputs, size, neuron=made, **both, **options)  # type: ignore[misc, arg-type]
    yield "rnn", Bidirectional(rnn) if kind == "RB" else rnn


def _normalized_linear(shape: tuple[int, int], word: re.Match[str], factory: dict[str, Any]) -> PerStep:
    if word["delay"]:
        raise ValueError(f"batch_norm: expected none beside delays, which {word[0]!r} has")
    return PerStep(nn.Linear(*shape, bias=False, **factory), nn.BatchNorm1d(shape[1], **factory))
