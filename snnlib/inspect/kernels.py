"""The kernels that a layer selects for a given input, with the reasons."""

from __future__ import annotations

import math
from contextlib import ExitStack
from textwrap import indent
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from snnlib import ops
from snnlib.backends import algorithm, algorithm_backward, native
from snnlib.backends.algorithm import Decision
from snnlib.backends.algorithm_backward import BackwardAlgorithms
from snnlib.backends.geometry import Geometry, geometry
from snnlib.functional.event_driven import as_event_driven
from snnlib.functional.operators import SequenceConvolution
from snnlib.functional.recurrent import step_by_step
from snnlib.functional.sparse import SparselyConnected
from snnlib.inspect.shown import ShownAsText
from snnlib.neurons import SRM, Neuron
from snnlib.nn.recurrent_layer import Recurrent
from snnlib.nn.spiking_layer import SpikingLayer
from snnlib.structure.layers import gives_potentials


class Dispatch(NamedTuple):
    """The algorithms of a layer, and what they were chosen by.

    Args:
        forward: algorithm of the currents, share of nonzero inputs, both costs in nanoseconds of one core, the reason.
        rate: share of neurons that fire in a step; 0 where these give potentials.
        gradients: what the gradients of weight and input go by: events of the input, entries (called spikes), or dense
            signals.
        entries: share of neurons and steps that the backward pass visits: output spikes of SRM neurons, steps near the
            threshold with a surrogate of compact support, 1 for others.
        recurrence: what takes the spikes of a recurrent layer back, and why; empty for other layers.
    """

    forward: Decision
    rate: float
    gradients: BackwardAlgorithms
    entries: float
    recurrence: str = ""

    def __str__(self) -> str:
        recurrence = f"\nrecurrence: {self.recurrence}" if self.recurrence else ""
        return (
            f"forward: {self.forward.path} ({self.forward.reason})\n"
            f"backward: {self.rate:.1%} of the neurons fire, {self.entries:.1%} of their steps have a gradient; "
            f"weight gradient: {self.gradients.weight}, input gradient: {self.gradients.input}"
            f"{recurrence}"
        )


class Dispatches(ShownAsText, dict[str, Dispatch]):
    """The decisions of a net's layers by name; `str()` lists them."""

    def __str__(self) -> str:
        lines = (f"{name}\n{indent(str(made), '  ')}" for name, made in self.items())
        return "\n".join(lines)


@overload
def explain_dispatch(layer: SpikingLayer, x: Tensor) -> Dispatch: ...  # type: ignore[overload-overlap]


@overload
def explain_dispatch(layer: nn.Module, x: Tensor) -> Dispatches: ...


def explain_dispatch(layer: nn.Module, x: Tensor) -> Dispatch | Dispatches:
    """Returns how `layer` would compute the spike tensor `x` now, with the densities and costs that decide.

    Runs the layer, up to twice; of a net, each of its layers on what reaches it when the net runs.

    Args:
        layer: an SRM layer or a spiking layer with any neuron, or a net with such layers.
        x: its input `[T, N, ...]`.

    Returns:
        The decisions of the layer; of a net, those of each of its layers by name, at its first call.

    Raises:
        TypeError: no layer with a weight and neurons behind it.

    >>> import torch, snnlib
    >>> layer = snnlib.SRMConv2d(2, 64, 5)
    >>> quiet = (torch.rand(30, 8, 2, 34, 34) < 0.02).float()
    >>> snnlib.explain_dispatch(layer, quiet).forward.path
    'events'
    >>> snnlib.explain_dispatch(layer, torch.rand(30, 8, 2, 34, 34)).forward.path
    'dense'
    """
    return _of_layer(layer, x) if isinstance(layer, SpikingLayer) else _of_net(layer, x)


def _of_layer(layer: SpikingLayer, x: Tensor) -> Dispatch:
    with torch.no_grad():
        weight = layer.effective_weight
        spikes = layer.pooled(x, (1, 1))
        fires = spikes.numel() and not gives_potentials(layer)
        rate = float(spikes.mean(dtype=torch.float32)) if fires else 0.0
        recurrence = _recurrence(layer, spikes) if isinstance(layer, Recurrent) else ""
        conv = as_event_driven(layer.operator, x, weight)
        if isinstance(layer.operator, SparselyConnected):
            reason = "sparse connections are met by events alone"
            forward = Decision("events", algorithm.density(x), math.nan, math.nan, reason)
            return Dispatch(forward, rate, BackwardAlgorithms("inputs", "dense"), 1.0, recurrence)
        if isinstance(conv, str):
            forward = Decision("dense", algorithm.density(x), math.nan, math.nan, conv)
            return Dispatch(forward, rate, BackwardAlgorithms("dense", "dense"), 1.0, recurrence)
        g = geometry(*conv[:3], time_dim=int(layer.batch_first))
        forward = algorithm.decide(conv.x, g, streaming=False)
        backward = _backward(conv, g, layer.neuron, rate, int(layer.batch_first))
        return Dispatch(forward, rate, *backward, recurrence)


def _of_net(net: nn.Module, x: Tensor) -> Dispatches:
    """The decisions of each layer, for what it is called with first."""
    modules = net.named_modules() if isinstance(net, nn.Module) else ()
    layers = {name: module for name, module in modules if isinstance(module, SpikingLayer)}
    if not layers:
        raise TypeError(
            f"layer: expected a spiking layer or a net with spiking layers, got {type(net).__name__}"
        )
    inputs: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        inputs.setdefault(module, given[0] if given else options["x"])

    with torch.no_grad(), ExitStack() as hooks:
        for module in layers.values():
            hooks.callback(module.register_forward_pre_hook(keep, with_kwargs=True).remove)
        net(x)
    called = ((name, layer) for name, layer in layers.items() if layer in inputs)
    return Dispatches({name: _of_layer(layer, inputs[layer]) for name, layer in called})


def _recurrence(layer: Recurrent, spikes: Tensor) -> str:
    """The path of the recurrence for spikes of this shape, and the reason."""
    dynamics = layer.neuron.dynamics(layer.neuron.constants())
    delayed = layer.recurrent_delays is not None
    reason = step_by_step(spikes, dynamics, layer.recurrent_operator, delayed)
    if reason:
        return f"step by step in torch ({reason})"
    path, facts = native.explain_path(spikes.device.type, "recurrent_forward")
    return f"{path} ({facts})"


def _backward(
    conv: SequenceConvolution, g: Geometry, neuron: Neuron, rate: float, time_dim: int
) -> tuple[BackwardAlgorithms, float]:
    """Algorithms of the gradients, and the share of steps that they visit."""
    if isinstance(neuron, SRM) and neuron.reset_states == "all":
        return algorithm_backward.decide(conv.x, g, round(rate * g.neuron_steps)), rate
    dynamics = neuron.dynamics(neuron.constants())
    in_kernel = dynamics is not None and dynamics.runs_in_layer and dynamics.one_field
    if not in_kernel or any(parameter.requires_grad for parameter in neuron.parameters()):
        return BackwardAlgorithms(algorithm_backward.decide_for_signal(conv.x, g), "dense"), 1.0
    assert dynamics is not None
    coefficients = dynamics.pack(torch.float32, conv.x.device)
    steps = {"time_dim": time_dim, "return_state": False, "keep": True, "exact": True}
    *_, entries, _ = ops.layer_forward.layer_forward(
        conv.x, conv.weight, coefficients, None, *conv.options, (1, 1), dynamics.flags, (), **steps
    )
    share = entries.shape[1] / max(g.neuron_steps, 1)
    return algorithm_backward.decide_for_entries(conv.x, g, entries.shape[1]), share
