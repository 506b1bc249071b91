"""The kernels that a layer selects for a given input, with the reasons."""

from __future__ import annotations

import math
from contextlib import ExitStack
from textwrap import indent
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from snnlib import ops
from snnlib.backends import algorithm, native
from snnlib.backends.algorithm import BackwardAlgorithms, Decision
from snnlib.backends.geometry import Geometry, geometry
from snnlib.functional.operators import Convolution, FullyConnected, SequenceConvolution
from snnlib.functional.paths import BY_STEPS, Path
from snnlib.functional.plan import LayerPlan
from snnlib.functional.sparse import SparselyConnected
from snnlib.inspect.shown import ShownAsText
from snnlib.nn.fusion.hooks import of_this_thread
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.sequences.time_first import time_first
from snnlib.structure.layers import gives_potentials


class Dispatch(NamedTuple):
    """The algorithms of a layer, and the facts that decided.

    Args:
        forward: algorithm of the currents, share of nonzero inputs, both costs in nanoseconds of one core, the reason.
        rate: share of neurons that fire in a step; 0 for neurons that output potentials.
        gradients: algorithms of the gradients of weight and input: by input events, by spikes or near-threshold steps
            (both called spikes), or dense.
        entries: share of neurons and steps that the backward pass visits: output spikes of SRM neurons, near-threshold
            steps with a compact surrogate, 1 for other neurons.
        recurrence: path of the recurrence and its reason; empty for layers without recurrence.
        plan: the path of the call, and the reasons against faster paths.
    """

    forward: Decision
    rate: float
    gradients: BackwardAlgorithms
    entries: float
    recurrence: str = ""
    plan: str = ""

    def __str__(self) -> str:
        recurrence = f"\nrecurrence: {self.recurrence}" if self.recurrence else ""
        return (
            f"path: {self.plan}\n"
            f"forward: {self.forward.path} ({self.forward.reason})\n"
            f"backward: {self.rate:.1%} of the neurons fire, {self.entries:.1%} of their steps have a gradient; "
            f"weight gradient: {self.gradients.weight}, input gradient: {self.gradients.input}"
            f"{recurrence}"
        )


class Dispatches(ShownAsText, dict[str, Dispatch]):
    """Decisions of a net's layers by name; `str()` lists them."""

    def __str__(self) -> str:
        lines = (f"{name}\n{indent(str(made), '  ')}" for name, made in self.items())
        return "\n".join(lines)


@overload
def explain_dispatch(layer: SpikingLayer, x: Tensor) -> Dispatch: ...  # type: ignore[overload-overlap]


@overload
def explain_dispatch(layer: nn.Module, x: Tensor) -> Dispatches: ...


def explain_dispatch(layer: nn.Module, x: Tensor) -> Dispatch | Dispatches:
    """Returns how `layer` computes the spike tensor `x`, with the densities and costs that decide.

    Runs the layer up to twice; for a net, each layer on its input in a run of the net.

    Args:
        layer: an SRM layer or a spiking layer with any neuron, or a net with such layers.
        x: its input `[T, N, ...]`.

    Returns:
        The decisions of the layer; for a net, the decisions of each layer by name, at its first call.

    Raises:
        TypeError: not a layer with a weight and neurons.

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
    plan = layer.plan(x, layer.effective_weight, return_state=False)
    with torch.no_grad():
        spikes = layer.forward(x)
        fires = spikes.numel() and not gives_potentials(layer)
        rate = float(spikes.count_nonzero()) / spikes.numel() if fires else 0.0
        recurrence = _recurrence(plan)
        weight, operator = layer.effective_weight, layer.operator
        if isinstance(operator, SparselyConnected):
            reason = "sparse connections are met by events alone"
            forward = Decision("events", algorithm.density(x), math.nan, math.nan, reason)
            return Dispatch(forward, rate, BackwardAlgorithms("inputs", "dense"), 1.0, recurrence, str(plan))
        if not plan.by_events:
            forward = Decision("dense", algorithm.density(x), math.nan, math.nan, plan.refusals[0])
            return Dispatch(forward, rate, BackwardAlgorithms("dense", "dense"), 1.0, recurrence, str(plan))
        assert isinstance(operator, Convolution | FullyConnected)
        conv = operator.unfolded(time_first(x, layer.batch_first), weight).reached()
        g = geometry(*conv[:3])
        forward = algorithm.decide(conv.x, g, streaming=False)
        with torch.enable_grad():
            trained = layer.plan(x, weight.detach().requires_grad_(), return_state=False)
        backward = _backward(conv, g, trained, rate)
        return Dispatch(forward, rate, *backward, recurrence, str(plan))


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
            hooks.callback(module.register_forward_pre_hook(of_this_thread(keep), with_kwargs=True).remove)
        net(x)
    called = ((name, layer) for name, layer in layers.items() if layer in inputs)
    return Dispatches({name: _of_layer(layer, inputs[layer]) for name, layer in called})


def _recurrence(plan: LayerPlan) -> str:
    """The path of the recurrence, and the reason; empty where no spikes come back."""
    if plan.back is None:
        return ""
    if plan.path in BY_STEPS:
        return f"step by step in torch ({plan.refusals[-1]})"
    path, facts = native.explain_path(plan.facts.device, "recurrent_forward")
    return f"{path} ({facts})"


def _backward(
    conv: SequenceConvolution, g: Geometry, plan: LayerPlan, rate: float
) -> tuple[BackwardAlgorithms, float]:
    """Algorithms of the gradients, and the share of steps that they visit."""
    kernel = plan.kernel
    if plan.path is not Path.LAYER or kernel is None:
        return BackwardAlgorithms(algorithm.decide_for_signal(conv.x, g), "dense"), 1.0
    if kernel.credit:
        return algorithm.decide_backward(conv.x, g, round(rate * g.neuron_steps)), rate
    neurons = (1, 1), kernel.flags, kernel.taus
    *_, entries, _ = ops.layer_forward.layer_forward(
        conv.x, conv.weight, kernel.constants, None, *conv.options, *neurons, False, True, True
    )
    share = entries.shape[1] / max(g.neuron_steps, 1)
    return algorithm.decide_for_entries(conv.x, g, entries.shape[1]), share
