"""Memory that a training step saves for its backward pass: counted where autograd saves it, and predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils import parametrize

from snnlib.checks import check_floating
from snnlib.functional.paths import Path
from snnlib.inspect.shown import ByLayer, ShownAsText, in_columns
from snnlib.neurons import Neuron
from snnlib.nn.fusion.fuse import blocks_by_part
from snnlib.nn.fusion.fused_block import Block, flattens
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.memory.chunks import chunk_steps
from snnlib.nn.weights.gain import WeightWithGain
from snnlib.structure.layers import gives_potentials, hook, outer_modules, spiking_modules

_INPUT = "input"
# Bytes of the event-driven record: a bit per neuron and step, two float32 per spike.
_BYTES_PER_STEP, _BYTES_PER_SPIKE = 1 / 8, 8


@dataclass(frozen=True)
class LayerMemory:
    """Memory that one module saves for backward.

    Args:
        name: the module's name in the net; `"input"` is the net's input, `"total"` the sum.
        neuron_steps: neurons times time steps times samples; 0 for a module without neurons that fire.
        spikes: number of spikes, before pooling. In a fused layer, of the neurons within pool windows.
        sequence_bytes: output sequences of this module that autograd saves, each counted once.
        state_bytes: all other saved memory, without weights.
        predicted_state_bytes: prediction for SRM neurons from shape and rate: `neuron_steps / 8 + 8 * spikes` for
            event-driven kernels, otherwise the current of every neuron-step; NaN for surrogate neurons, whose
            near-threshold steps depend on their potentials.
    """

    name: str
    neuron_steps: int
    spikes: float
    sequence_bytes: int
    state_bytes: int
    predicted_state_bytes: float

    @property
    def rate(self) -> float:
        """Spikes per neuron and step; NaN without neurons."""
        return self.spikes / self.neuron_steps if self.neuron_steps else float("nan")

    @property
    def bytes_per_neuron_step(self) -> float:
        """State, without sequences; NaN without neurons."""
        return self.state_bytes / self.neuron_steps if self.neuron_steps else float("nan")


@dataclass(frozen=True)
class MemoryReport(ShownAsText, ByLayer[LayerMemory]):
    """Memory that a training step saves for backward; `str()` returns a table.

    Args:
        layers: the net's input, then every module with neurons or saved memory, in the order of calls.
        time_steps: length T of the sequence.
        device: of the sequence.
    """

    layers: tuple[LayerMemory, ...]
    time_steps: int
    device: torch.device

    @property
    def total(self) -> LayerMemory:
        """The sum over all layers."""
        sizes = (each.name for each in fields(LayerMemory)[1:])
        return LayerMemory("total", *(sum(getattr(layer, size) for layer in self.layers) for size in sizes))

    @property
    def chunk_steps(self) -> int:
        """Time steps of a chunk of `checkpoint_time(net, x)`, by the bytes that a step saves and the free memory."""
        saved = sum(layer.sequence_bytes + layer.state_bytes for layer in self.layers if layer.name != _INPUT)
        return chunk_steps(saved / self.time_steps, self.device)

    def __str__(self) -> str:
        rows = [_HEADINGS]
        for layer in (*self.layers, self.total):
            sizes = (layer.sequence_bytes, layer.state_bytes, layer.predicted_state_bytes)
            megabytes = (f"{size / 1e6:.3f}" for size in sizes)
            neurons, each = ("", ""), ""
            if layer.neuron_steps:
                neurons = (str(layer.neuron_steps), f"{layer.rate:.2%}")
                each = f"{layer.bytes_per_neuron_step:.3f}"
            rows.append((layer.name, *neurons, *megabytes, each))
        return "\n".join(in_columns(rows, left=1))


_HEADINGS: tuple[str, ...] = (
    *("", "neuron-steps", "rate", "sequences MB", "state MB", "predicted"),
    "state bytes per neuron-step",
)


def memory_report(net: nn.Module, x: Tensor) -> MemoryReport:
    """Counts the memory that autograd saves in a forward pass of `net` over the sequence `x`, by layer.

    A sequence that several layers save counts once, for the module that returned it. Weights and parametrized weights
    do not count, since they do not grow with the sequence. The net runs once, in its present mode, fused or not, on
    its device.

    Args:
        net: any module with spiking layers.
        x: input of the net as in training: `[T, N, ...]`.

    Raises:
        TypeError: `x` is not a floating-point tensor.
        ValueError: a net without spiking layers, or without learned parameters, which saves nothing.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(100, 50), snnlib.SRMLinear(50, 10))
    >>> report = snnlib.memory_report(net, (torch.rand(20, 4, 100) < 0.1).float())
    >>> report["0"].neuron_steps, report["0"].sequence_bytes            # 20 x 4 x 50, in float32
    (4000, 16000)
    >>> print(report)
           neuron-steps    rate  sequences MB   state MB  predicted  state bytes per neuron-step
    input                            0.032      0.000      0.000
    0 ...
    """
    check_floating("x", x)
    if not spiking_modules(net):
        raise ValueError(f"net: expected a module with spiking layers, got {type(net).__name__} without any")
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise ValueError(
            "net: expected parameters that require a gradient, got none: autograd would save nothing"
        )
    ledger = _Ledger(x)
    # Within `cached`, a layer sees the very weight that is listed here, and nothing of its making is kept again.
    with torch.inference_mode(mode=False), torch.enable_grad(), parametrize.cached():
        weights = [*net.parameters(), *net.buffers(), *_parametrized(net)]
        with ledger.watching(net), saved_tensors_hooks(ledger.keep, lambda tensor: tensor):
            # Held until all is counted: what nobody holds, autograd need not keep.
            output = net(x)
        layers = ledger.layers({_address(weight) for weight in weights})
        del output
    return MemoryReport(layers, len(x), x.device)


class _Ledger:
    """Maps saved tensors to the modules that produced and saved them, and counts neurons, in the order of the calls."""

    def __init__(self, x: Tensor) -> None:
        self._stack = [_INPUT]
        # Neuron-steps, spikes and predicted bytes by name of the module.
        self._neurons: dict[str, tuple[int, float, float]] = {_INPUT: (0, 0.0, 0.0)}
        # Givers by address. The tensors live as long as the ledger, so no address is used twice.
        self._givers: dict[int, tuple[str | None, Tensor]] = {_address(x): (_INPUT, x)}
        self._kept: dict[int, tuple[str, Tensor]] = {}
        self._weight_sizes: dict[str, list[int]] = {}

    def keep(self, tensor: Tensor) -> Tensor:
        """Records a tensor that autograd saves, unless it is a layer's effective weight."""
        # Linear layers keep theirs as a convolution of one cell, read-outs transposed.
        if _sizes(tensor) == self._weight_sizes.get(self._stack[-1]) and _address(tensor) not in self._givers:
            return tensor
        self._kept.setdefault(_address(tensor), (self._stack[-1], tensor))
        return tensor

    @contextmanager
    def watching(self, net: nn.Module) -> Iterator[None]:
        """Hooks on every module, but what is inside a spiking layer or a fused block counts as its first module's."""
        blocks, seen = blocks_by_part(net), set[nn.Module]()
        with ExitStack() as hooks:
            for name, module in outer_modules(net).items():
                own = name or "net"
                if isinstance(module, WeightWithGain):
                    self._weight_sizes[own] = _sizes(module.weight)
                runs = blocks.get(module, module)
                # A block has the name of its weight.
                if runs not in seen and not (runs is not module and flattens(module)):
                    seen.add(runs)
                    hook(hooks, runs, self._enter(own), self._leave(own))
            yield

    def layers(self, weights: set[int]) -> tuple[LayerMemory, ...]:
        """Returns the totals of each layer."""
        sequences, states = dict.fromkeys(self._neurons, 0), dict.fromkeys(self._neurons, 0)
        for address, (keeper, tensor) in self._kept.items():
            nbytes = tensor.untyped_storage().nbytes()
            if address in self._givers:
                # A sum or a copy between two modules belongs to the one that takes it.
                sequences[self._givers[address][0] or keeper] += nbytes
            elif address not in weights:
                states[keeper] += nbytes
        layers = (
            LayerMemory(name, steps, spikes, sequences[name], states[name], predicted)
            for name, (steps, spikes, predicted) in self._neurons.items()
        )
        return tuple(
            layer for layer in layers if layer.neuron_steps or layer.sequence_bytes or layer.state_bytes
        )

    def _enter(self, name: str) -> Any:
        def enter(_module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            self._stack.append(name)
            self._neurons.setdefault(name, (0, 0.0, 0.0))
            for tensor in filter(torch.is_tensor, (*inputs, *options.values())):
                self._givers.setdefault(_address(tensor), (None, tensor))

        return enter

    def _leave(self, name: str) -> Any:
        def leave(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
            self._stack.pop()
            layer = module.neurons if isinstance(module, Block) else module
            more, fires = None, not gives_potentials(layer)
            if isinstance(layer, SpikingLayer) and fires:
                x = inputs[0] if inputs else options["x"]
                more = _of_neurons(layer, x, output, fused=layer is not module)
            elif isinstance(layer, Neuron) and fires:
                cells = math.prod(module.window) if isinstance(module, Block) else 1
                more = (
                    output.numel() * cells,
                    float(output.detach().sum(dtype=torch.float64)) * cells,
                    math.nan,
                )
            if more is not None:
                steps, spikes, predicted = self._neurons[name]
                self._neurons[name] = (steps + more[0], spikes + more[1], predicted + more[2])
            if isinstance(output, Tensor):
                self._givers.setdefault(_address(output), (name, output))

        return leave


def _of_neurons(layer: SpikingLayer, x: Tensor, out: Tensor, fused: bool) -> tuple[int, float, float]:
    """Neuron-steps, spikes and predicted bytes of one call."""
    out = out.detach()
    neuron_steps = out.numel()
    if fused:
        events, weight = (torch.empty_like(like, device="meta") for like in (x.flatten(0, 1), layer.weight))
        neuron_steps = layer.operator.forward(events, weight).numel()
    spikes = float(out.mean(dtype=torch.float64)) * neuron_steps if neuron_steps else 0.0
    plan = layer.plan(x, layer.effective_weight)
    if not plan.by_events:
        return neuron_steps, spikes, float(neuron_steps * out.element_size())
    if plan.path is not Path.LAYER or plan.kernel is None or not plan.kernel.credit:
        # How many of its steps are entries follows from the potentials, which are not in memory.
        return neuron_steps, spikes, math.nan
    return neuron_steps, spikes, neuron_steps * _BYTES_PER_STEP + spikes * _BYTES_PER_SPIKE


def _parametrized(net: nn.Module) -> Iterator[Tensor]:
    for module in net.modules():
        if parametrize.is_parametrized(module):
            assert isinstance(module.parametrizations, nn.ModuleDict)
            yield from (getattr(module, name) for name in module.parametrizations)


def _sizes(tensor: Tensor) -> list[int]:
    """The dimensions of more than one element, in order of size."""
    return sorted(size for size in tensor.shape if size > 1)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
