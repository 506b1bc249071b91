"""Counts the products of every linear operation while a net runs, whichever module or function asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.backends import native
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.functional.operators import Convolution
from snnlib.inspect import products
from snnlib.inspect.activity import spikes_of
from snnlib.inspect.delayed_products import of_convolution, of_delayed, of_late_spikes
from snnlib.inspect.operation_mode import shown_to
from snnlib.inspect.products import ConvolutionMap, FanOut, Products
from snnlib.neurons import Integrator, Neuron
from snnlib.nn.fused_block import Block
from snnlib.nn.fusion import blocks_by_part
from snnlib.nn.neuron_layer import NeuronLayer
from snnlib.nn.readout import SRMReadout
from snnlib.nn.recurrent_layer import Recurrent
from snnlib.nn.spiking import SpikingLayer
from snnlib.nn.srm import SRMLayer
from snnlib.ops.counting import tallying
from snnlib.structure.peers import neuron_library, neuron_output

# Membrane potential, synaptic current and gradient trace; without the trace in the readout, which never spikes.
_SRM_STATES, _READOUT_STATES = 3, 2
# snnlib's ops of a convolution, with or without neurons behind it: sequences `[T, N, ...]`.
_SEQUENCE_OPS = ("snnlib::layer_forward", "snnlib::currents_forward")
# The factors of products of matrices and vectors.
_MATRIX_ARGUMENTS = {
    "aten::mm": ("self", "mat2"),
    "aten::addmm": ("mat1", "mat2"),
    "aten::bmm": ("self", "mat2"),
    "aten::baddbmm": ("batch1", "batch2"),
    "aten::mv": ("self", "vec"),
    "aten::addmv": ("mat", "vec"),
    "aten::dot": ("self", "tensor"),
}
# Products that are not taken apart; a net that has them is told.
_OPAQUE = frozenset(
    {"aten::_trilinear", "aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::_cdist_forward"}
)
_CONVOLUTION, _RECURRENT = "aten::convolution", "snnlib::recurrent_forward"
_COUNTED = frozenset({_CONVOLUTION, _RECURRENT, *_SEQUENCE_OPS, *_MATRIX_ARGUMENTS, *_OPAQUE})


@dataclass
class ModuleCounts:
    """Sums over all calls of one module; `acs` and `macs` are products with two nonzero factors."""

    acs: int = 0
    macs: int = 0
    dense: int = 0
    inputs: int = 0
    nonzero_inputs: int = 0
    outputs: int = 0
    nonzero_outputs: int = 0
    membrane_updates: int = 0
    states: int = 0
    state_bytes: int = 0

    def add(self, found: Products) -> None:
        """Add the products of one operation: accumulations if the inputs are -1, 0 and 1, multiplications otherwise."""
        self.acs += found.effective if found.unit else 0
        self.macs += 0 if found.unit else found.effective
        self.dense += found.dense
        self.inputs += found.inputs
        self.nonzero_inputs += found.nonzero

    def add_neurons(self, updates: int, fired: int | None, states: int, state_bytes: int) -> None:
        """Add updates of membranes and what came out of them, None where that are no spikes."""
        self.membrane_updates += updates
        self.states, self.state_bytes = states, state_bytes
        if fired is not None:
            self.outputs += updates
            self.nonzero_outputs += fired


@dataclass
class _Call:
    """A call of a module that is under way."""

    name: str
    module: nn.Module
    # Its input.
    x: Tensor | None
    # Steps of neurons that its ops took, neurons of one sample, and spikes that were counted on the way.
    updates: int = 0
    per_sample: int = 0
    fired: int = 0
    # Membrane updates of a block's neurons before the call.
    before: int = 0

    def add_steps(self, updates: int, per_sample: int, fired: int) -> None:
        """Add what an op did."""
        self.updates += updates
        self.per_sample = per_sample
        self.fired += fired


class OperationCounter:
    """Counts in the forward passes of `with counter.counting():` and sums up by module.

    Nothing of a pass is kept but numbers. Layer ops count events and spikes while these are in the cache; blocks of a
    fused net whose kernels do not count run as layers, so that every neuron is seen.

    Args:
        net: any module.
    """

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.by_module: dict[str, ModuleCounts] = {}
        # Operations that multiply but are not counted.
        self.uncounted: set[str] = set()
        self._stack: list[_Call] = []
        # Walked once: a walk through a net of many modules takes as long as a small layer.
        self.modules = dict(net.named_modules())
        self._names = {module: name for name, module in self.modules.items()}
        # Storages of the net's own tensors, within the block.
        self._known: set[int] = set()
        # Of modules that are counted as a whole.
        self._paused = 0
        self._cache: dict[Any, tuple[Tensor, Any]] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what runs within the block."""
        tensors = (*self.net.parameters(), *self.net.buffers())
        self._known = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        # What is inside a spiking layer is the layer's.
        inside = {
            id(part)
            for layer in self.modules.values()
            if isinstance(layer, NeuronLayer)
            for part in layer.modules()
            if part is not layer
        }
        blocks = blocks_by_part(self.net)
        counting_blocks = {block: _counts_spikes(block) for block in set(blocks.values())}
        with ExitStack() as stack:
            for name, module in self.modules.items():
                if id(module) not in inside:
                    fused = module in blocks and counting_blocks[blocks[module]]
                    self._hook(stack, module, self._enter(name), self._leave(name), fused)
            for block in counting_blocks:
                self._hook(stack, block, self._enter_block(block), self._leave_block(block), True)
            # A pass that ended in an error left its modules behind.
            stack.callback(self._stack.clear)
            stack.enter_context(shown_to(self._run, _COUNTED, self.net))
            yield
        self._paused = 0
        self._cache.clear()

    @staticmethod
    def _hook(stack: ExitStack, module: nn.Module, before: Any, after: Any, sees_blocks: bool) -> None:
        if sees_blocks:
            before.sees_blocks = after.sees_blocks = True
        for handle in (
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after),
        ):
            stack.callback(handle.remove)

    def _enter(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            x = next((value for value in (*inputs, *options.values()) if isinstance(value, Tensor)), None)
            if isinstance(module, SRMReadout) and x is not None:
                # Its potentials are products with a kernel over time, which are no synaptic operations.
                self._paused += 1
                self._of_readout(name, module, x)
            self._stack.append(_Call(name, module, x))

        return hook

    def _leave(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, _inputs: tuple[Any, ...], output: Any) -> None:
            call = self._stack.pop()
            if isinstance(module, SRMReadout):
                self._paused -= 1
            self._of_neurons(self._of(name), module, output, call)

        return hook

    def _enter_block(self, block: Block) -> Callable[..., None]:
        def hook(_module: nn.Module, inputs: tuple[Any, ...], _options: dict[str, Any]) -> None:
            name, neurons = self._names[block.weighted], self._of(self._names[block.neurons])
            self._stack.append(_Call(name, block.weighted, inputs[0], before=neurons.membrane_updates))

        return hook

    def _leave_block(self, block: Block) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: tuple[Any, ...], output: Tensor) -> None:
            call, name = self._stack.pop(), self._names[block.neurons]
            counts = self._of(name)
            if counts.membrane_updates > call.before:
                # It ran as layers, whose hooks have counted.
                return
            if not call.updates:
                self.uncounted.add(f"neurons of {name}")
                return
            states = _states_of(block.neurons)
            counts.add_neurons(
                call.updates, call.fired, states, states * call.per_sample * max(output.element_size(), 4)
            )

        return hook

    def _of(self, name: str) -> ModuleCounts:
        return self.by_module.setdefault(name, ModuleCounts())

    def _of_readout(self, name: str, module: SRMReadout, x: Tensor) -> None:
        counts = products.nonzero_counts(x.flatten(0, 1))
        left = products.Counts(counts.per_cell.flatten(), counts.unit)
        weight = module.effective_weight
        right = self._of_weight(weight, (), partial(products.matrix_counts, weight))
        frames = x.shape[0] * x.shape[1]
        self._of(name).add(products.of_matrices(left, right, frames, module.out_features, "left"))

    def _of_neurons(self, counts: ModuleCounts, module: nn.Module, output: Any, call: _Call) -> None:
        """Outputs of activations and neurons, and what their states cost."""
        if isinstance(module, nn.ReLU | nn.Sigmoid):
            counts.outputs += output.numel()
            counts.nonzero_outputs += products.nonzero(output)
            return
        if isinstance(module, NeuronLayer | Neuron | SRMReadout):
            spikes = spikes_of(output)
            states = _states_of(module)
            per_sample = math.prod(spikes.shape[2:]) if spikes.numel() else 0
            state_bytes = states * per_sample * max(spikes.element_size(), 4)
        elif neuron_library(module) is not None:
            spikes, parts = neuron_output(module, output)
            states = len(parts)
            state_bytes = sum(part.nbytes // max(len(part), 1) for part in parts)
        else:
            return
        fired = None
        if not isinstance(module, SRMReadout | Integrator):
            counted = call.updates and call.updates == spikes.numel()
            fired = call.fired if counted else products.nonzero(spikes)
        counts.add_neurons(spikes.numel(), fired, states, state_bytes)

    def _run(self, name: str, args: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        """Run one of the operations that multiply, and count it."""
        if self._paused:
            return run()
        if name in _SEQUENCE_OPS and args.get("delay") is None:
            found: Products | None
            output, found = self._run_sequence(args, run)
        else:
            output = run()
            found = self._products(name, args, output)
        if found is not None:
            self._of(self._stack[-1].name if self._stack else "").add(found)
        return output

    def _run_sequence(self, args: Mapping[str, Any], run: Callable[[], Any]) -> tuple[Any, Products]:
        """A layer op, which counts in its kernel where it can."""
        x, weight = args["x"], args["weight"]
        options = ConvOptions(args["stride"], args["padding"], args["dilation"], args["groups"])
        g = geometry(x, weight, options, 0)
        frames = x.shape[0] * x.shape[1]
        sizes = (x.shape[2:], (len(weight), *g.space))
        how = ConvolutionMap(*sizes, *options[:3], False, [0] * len(g.space), options.groups)
        fan_out = self._fan_out(weight, how, x.shape[3:])
        with tallying(fan_out.table) as tally:
            output = run()
        if tally.spikes is not None and self._stack and args.get("pool") is not None:
            self._stack[-1].add_steps(g.neuron_steps, g.height * g.row, tally.spikes)
        if tally.products is None:
            return output, products.of_cells(products.nonzero_counts(x.flatten(0, 1)), frames, fan_out)
        return output, fan_out.products(frames, tally.products, tally.events, tally.graded == 0)

    def _products(self, name: str, args: Mapping[str, Any], output: Any) -> Products | None:
        if name == _CONVOLUTION:
            x, weight = args["input"], args["weight"]
            keys = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
            how = ConvolutionMap._make((x.shape[1:], output.shape[1:], *(args[key] for key in keys)))
            fan_out = self._fan_out(weight, how, x.shape[2:])
            return products.of_cells(products.nonzero_counts(x), len(x), fan_out)
        if name in _SEQUENCE_OPS:
            return self._of_delays(args)
        if name == _RECURRENT and args["delay"] is None:
            return self._of_recurrence(args, output[0])
        if name == _RECURRENT:
            spikes = output[0].movedim(args["time_dim"], 0)
            if self._stack and spikes.numel():
                self._stack[-1].add_steps(spikes.numel(), spikes[0, 0].numel(), products.nonzero(spikes))
            return of_late_spikes(spikes, args["past"], args["weight"], args["delay"], args["rounded"])
        if name in _OPAQUE:
            self.uncounted.add(name.removeprefix("aten::"))
            return None
        a, b = (args[key] for key in _MATRIX_ARGUMENTS[name])
        return self._of_matrices(a[None] if a.dim() == 1 else a, b[:, None] if b.dim() == 1 else b)

    def _fan_out(self, weight: Tensor, how: ConvolutionMap, space: Sequence[int]) -> FanOut:
        own_space = self._space_before_padding(space)
        how = ConvolutionMap._make(tuple(part) if isinstance(part, Sequence) else part for part in how)
        made: FanOut = self._of_weight(weight, (own_space, how), partial(FanOut.of, weight, how, own_space))
        return made

    def _space_before_padding(self, space: Sequence[int]) -> tuple[int, ...]:
        """Size of the module's input where "same" has added zeros to it, which are no inputs; else that of x."""
        if self._stack:
            call = self._stack[-1]
            operator = getattr(call.module, "operator", None)
            same = getattr(operator, "same", False) or (
                getattr(call.module, "padding", None) == "same"
                and getattr(call.module, "padding_mode", None) == "zeros"
            )
            if same and call.x is not None:
                # The op of a layer has two axes at least: the first one of a sequence over one axis has size 1.
                return tuple(map(min, space, call.x.shape[-len(space) :]))
        return tuple(space)

    def _of_recurrence(self, args: Mapping[str, Any], spikes: Tensor) -> Products:
        """Recurrent weights meet the spikes of the step before."""
        steps = spikes.movedim(args["time_dim"], 0)
        counts, last = (products.nonzero_counts(part.flatten(0, 1)) for part in (steps, steps[-1:]))
        if self._stack and spikes.numel():
            self._stack[-1].add_steps(spikes.numel(), spikes[0, 0].numel(), counts.total)
        before = counts.per_cell - last.per_cell
        counts = products.Counts(before, counts.unit)
        if args["state"] is not None:
            first = products.nonzero_counts(args["state"][-1])
            counts = products.Counts(before + first.per_cell, counts.unit and first.unit)
        weight = args["weight"]
        right = self._of_weight(weight, (), partial(products.matrix_counts, weight))
        return products.of_matrices(counts, right, len(steps) * steps.shape[1], len(weight), "left")

    def _of_delays(self, args: Mapping[str, Any]) -> Products:
        x, weight, delay = args["x"].movedim(args["time_dim"], 0), args["weight"], args["delay"]
        found = of_delayed(x, weight, delay, args["rounded"])
        call = self._stack[-1] if self._stack else None
        operator = None if call is None else getattr(call.module, "operator", None)
        if call is None or call.x is None or not isinstance(operator, Convolution):
            return found
        return of_convolution(found, call.x, call.module.weight, operator)  # type: ignore[arg-type]

    def _of_matrices(self, a: Tensor, b: Tensor) -> Products:
        is_weight = [tensor.untyped_storage().data_ptr() in self._known for tensor in (a, b)]
        role = "both" if is_weight[0] == is_weight[1] else "right" if is_weight[0] else "left"
        left, right = (
            self._of_weight(tensor, (), partial(products.matrix_counts, tensor))
            for tensor in (a, b.transpose(-1, -2))
        )
        found = products.of_matrices(left, right, a.shape[-2], b.shape[-1], role)
        # Of a delay's taps at most two steps are not zero: the products with all of them are one step's connections.
        return replace(found, dense=0, inputs=0, nonzero=0) if self._of_later_tap(b) else found

    def _of_later_tap(self, b: Tensor) -> bool:
        """Whether b has the taps of spikes that come back after more than the shortest delay."""
        module = self._stack[-1].module if self._stack else None
        delays = module.recurrent_delays if isinstance(module, Recurrent) else None
        if delays is None or delays.per != "connection":
            return False
        taps = (delays.max_delay + 2) * b.numel() * b.element_size()
        return b.storage_offset() > 0 and b.untyped_storage().nbytes() == taps

    def _of_weight(self, weight: Tensor, key: Any, make: Callable[[], Any]) -> Any:
        """What follows from a weight alone, made once for the net's own and anew for others."""
        address = weight.untyped_storage().data_ptr()
        if address not in self._known or weight.is_inference():
            return make()
        full = (address, weight.storage_offset(), weight.shape, weight.stride(), weight._version, key)
        if full not in self._cache:
            # The tensor is held, so that its address stays its own.
            self._cache[full] = (weight, make())
        return self._cache[full][1]


def _counts_spikes(block: Block) -> bool:
    """Whether the kernel that a block runs in is sure to count."""
    neurons, weight = block.neurons, block.weighted.weight
    assert isinstance(weight, Tensor)
    if weight.dtype == torch.float64 or not native.has_kernel("srm_conv_forward", weight):
        return False
    if isinstance(neurons, SRMLayer):
        return True
    if isinstance(neurons, SpikingLayer):
        if neurons.delays is not None:
            return False
        neurons = neurons.neuron
    assert isinstance(neurons, Neuron)
    dynamics = neurons.dynamics(neurons.constants())
    return dynamics is not None and dynamics.runs_in_layer


def _states_of(module: nn.Module) -> int:
    if isinstance(module, SRMReadout):
        return _READOUT_STATES
    if isinstance(module, SRMLayer):
        return _SRM_STATES
    neuron = module.neuron if isinstance(module, SpikingLayer) else module
    assert isinstance(neuron, Neuron)
    return len(neuron.state_names)
