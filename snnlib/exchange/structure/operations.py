"""A layer or a module of torch as operations: weights, normalisation, pools, delays, neurons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.exchange.structure.cells import Array, pair
from snnlib.exchange.structure.neurons import Neurons, RecurrentMap, neurons_of, potentials
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.functional import SparselyConnected
from snnlib.neurons import Neuron
from snnlib.nn import (
    DelayLine,
    Delays,
    RandomFeedback,
    RecurrentLayer,
    SpikeAvgPool2d,
    SpikingLayer,
    SRMReadout,
)
from snnlib.nn.layers.per_step import pooling_window
from snnlib.nn.norm.batch_norm import BatchNorm
from snnlib.nn.recurrent.recurrent_layer import Recurrent


@dataclass(frozen=True)
class Weights:
    """A linear map, or a convolution.

    Args:
        weight: `[O, I]`, or `[O, I / groups, ...]` of a convolution.
        bias: `[O]` or None.
        options: what has the stride, padding, dilation and groups of a convolution as attributes.
    """

    weight: Tensor
    bias: Tensor | None
    options: Any = None

    def sizes(self) -> dict[str, Any]:
        """Returns stride, padding and dilation of a convolution, a number per axis; the padding may be a word.

        Raises:
            Unsupported: three axes, or padding other than zeros.
        """
        axes = self.weight.dim() - 2
        if axes > 2:
            raise Unsupported("a convolution over three axes has no counterpart")
        if getattr(self.options, "padding_mode", "zeros") != "zeros":
            raise Unsupported(f"padding_mode={self.options.padding_mode!r} has no counterpart")
        given = {name: getattr(self.options, name) for name in ("stride", "padding", "dilation")}
        return {name: value if isinstance(value, str) else pair(value, axes) for name, value in given.items()}


@dataclass(frozen=True)
class Normalise:
    """Batch normalisation.

    Args:
        module: with running statistics.
    """

    module: Any

    def factors(self) -> tuple[Array, Array]:
        """Returns factor and offset per channel in float64.

        Raises:
            Unsupported: no statistics are tracked, or each step has its own.
        """
        module = self.module
        if module.running_mean is None or getattr(module, "time_steps", None) is not None:
            raise Unsupported(
                "batch normalisation without running statistics of all steps has no counterpart"
            )
        mean, variance = (
            tensor.detach().double().cpu() for tensor in (module.running_mean, module.running_var)
        )
        ones = torch.ones_like(mean)
        weight = ones if module.weight is None else module.weight.detach().double().cpu()
        bias = 0 * ones if module.bias is None else module.bias.detach().double().cpu()
        if isinstance(module, BatchNorm):
            weight = weight * module.scale
        scale = weight / torch.sqrt(variance + module.eps)
        return scale.numpy(), (bias - mean * scale).numpy()


@dataclass(frozen=True)
class Pool:
    """Average pooling over two axes.

    Args:
        module: the pooling module, which has the options as attributes.
    """

    module: Any

    def window(self) -> tuple[int, int]:
        """Returns the window of a pool whose windows stand side by side.

        Raises:
            Unsupported: windows that overlap or are padded, or a pool to a size.
        """
        if isinstance(self.module, nn.AdaptiveAvgPool2d):
            raise Unsupported("pooling to a size, not over windows of one, has no counterpart")
        window = pooling_window(self.module)
        if window is None:
            raise Unsupported("windows that overlap or are padded have no counterpart")
        return window


@dataclass(frozen=True)
class Flatten:
    """Axes `start` to `end` as one, counted with the `lead` axes of time and batch that stand before the others."""

    start: int
    end: int
    lead: int


@dataclass(frozen=True)
class Delay:
    """Delays of input channels, or of the connections of the weights that follow."""

    delays: Delays


@dataclass(frozen=True)
class Sum:
    """The sum of two values."""


Operation = Weights | Normalise | Pool | Flatten | Delay | Neurons | Sum
# Parts of a module: what each is called within it ("" for all of it), and what it does.
Parts = list[tuple[str, Operation]]


def operations_of(module: nn.Module, lead: int) -> Parts | None:
    """Returns what a module does, part by part; None for a module that is no single layer, neuron or pool.

    Args:
        module: in evaluation mode, where it normalises.
        lead: how many axes stand before those of a frame: time and batch, or batch alone.

    Raises:
        Unsupported: neurons or a recurrence that have no counterpart.
    """
    if isinstance(module, SpikingLayer | SRMReadout):
        return _layer(module, lead)
    for kind, operation in _OPERATIONS.items():
        if isinstance(module, kind):
            return [("", operation(module, lead))]
    return None


def without_groups(weight: Tensor, groups: int) -> Tensor:
    """The weight `[O, I, ...]` of a convolution without groups, zeros between them."""
    parts = weight.chunk(groups)
    dense = weight.new_zeros((len(weight), groups, *weight.shape[1:]))
    for group, part in enumerate(parts):
        dense[group * len(part) : (group + 1) * len(part), group] = part
    return dense.flatten(1, 2)


def is_operation(module: nn.Module) -> bool:
    """Returns whether `operations_of` knows the module."""
    return isinstance(module, (SpikingLayer, SRMReadout, *_OPERATIONS))


def check_dense(module: nn.Module) -> None:
    """Raise Unsupported for a layer with sparse connections, which other formats store as full matrices."""
    for name in ("operator", "recurrent_operator"):
        if isinstance(getattr(module, name, None), SparselyConnected):
            raise Unsupported(
                "sparse connections have no counterpart; give a layer of full matrices the weights of "
                f"{name}.dense()"
            )


def _layer(module: Any, lead: int) -> Parts:
    check_dense(module)
    if isinstance(module, Recurrent) and not isinstance(module, RecurrentLayer):
        raise Unsupported("convolutional recurrence has no counterpart")
    parts: Parts = []
    linear = not hasattr(module, "kernel_size")
    if linear:
        # A linear layer takes all axes of a frame as one.
        parts.append(("flatten", Flatten(lead, -1, lead)))
    if getattr(module, "delays", None) is not None:
        parts.append(("delay", Delay(module.delays)))
    recurrent = isinstance(module, RecurrentLayer)
    weights = Weights(module.effective_weight, None, None if linear else module)
    parts.append(("w_in" if recurrent else "weight", weights))
    readout = isinstance(module, SRMReadout)
    neurons = potentials(module.tau_m, module.tau_s) if readout else neurons_of(module.neuron)
    if recurrent:
        back = RecurrentMap(module.rounded(module.recurrent_weight), delays=module.recurrent_delays)
        neurons = replace(neurons, recurrence=back)
    return [*parts, ("neuron", neurons)]


def _delay(module: DelayLine, _: int) -> Delay:
    if module.copies > 1:
        raise Unsupported("channels that arrive several times have no counterpart")
    return Delay(module.delays)


# Operations of modules that are one, from the module and the number of axes before those of a frame.
_OPERATIONS: dict[type[nn.Module], Callable[[Any, int], Operation]] = {
    nn.Linear: lambda module, _: Weights(module.weight, module.bias),
    # Feedback is for training alone.
    RandomFeedback: lambda module, _: Weights(module.readout.weight, module.readout.bias),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d), lambda module, _: Weights(module.weight, module.bias, module)),
    nn.Flatten: lambda module, lead: Flatten(module.start_dim, module.end_dim, lead),
    **dict.fromkeys((nn.AvgPool2d, SpikeAvgPool2d, nn.AdaptiveAvgPool2d), lambda module, _: Pool(module)),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, BatchNorm), lambda module, _: Normalise(module)),
    DelayLine: _delay,
    Neuron: lambda module, _: neurons_of(module),
}
