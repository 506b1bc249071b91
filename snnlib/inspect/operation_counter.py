"""Counts the products of every linear operation while a net runs, whichever module or function asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.backends import native
from snnlib.inspect import products
from snnlib.inspect.activity import spikes_of
from snnlib.inspect.operation_mode import shown_to
from snnlib.inspect.operation_products import COUNTED, Call, OperationProducts
from snnlib.inspect.products import Products
from snnlib.neurons import Neuron
from snnlib.nn.fused_block import Block
from snnlib.nn.fusion import blocks_by_part
from snnlib.nn.neuron_layer import NeuronLayer
from snnlib.nn.readout import SRMReadout
from snnlib.nn.spiking import SpikingLayer
from snnlib.structure.layers import gives_potentials, has_srm_kernels, hook, neuron_of, outer_modules
from snnlib.structure.peers import neuron_library, neuron_output

# Membrane potential and synaptic current: the read-out never spikes, and keeps no trace for the gradient of spikes.
_READOUT_STATES = 2


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
        self._stack: list[Call] = []
        # Walked once: a walk through a net of many modules takes as long as a small layer.
        self.modules = dict(net.named_modules())
        self._names = {module: name for name, module in self.modules.items()}
        # Of modules that are counted as a whole.
        self._paused = 0
        # Operations that multiply but are not counted.
        self.uncounted: set[str] = set()
        # Of one block, as weights may change between two.
        self._products = OperationProducts(net, self.uncounted)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts what runs within the block."""
        self._products = OperationProducts(self.net, self.uncounted)
        blocks = blocks_by_part(self.net)
        counting_blocks = {block: _counts_spikes(block) for block in set(blocks.values())}
        with ExitStack() as stack:
            for name, module in outer_modules(self.net).items():
                fused = module in blocks and counting_blocks[blocks[module]]
                hook(stack, module, self._enter(name), self._leave(name), fused)
            for block in counting_blocks:
                hook(stack, block, self._enter_block(block), self._leave_block(block), sees_blocks=True)
            # A pass that ended in an error left its modules behind.
            stack.callback(self._stack.clear)
            stack.enter_context(shown_to(self._run, COUNTED, self.net))
            yield
        self._paused = 0

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            x = next((value for value in (*inputs, *options.values()) if isinstance(value, Tensor)), None)
            if isinstance(module, SRMReadout) and x is not None:
                # Its potentials are products with a kernel over time, which are no synaptic operations.
                self._paused += 1
                self._of(name).add(self._products.of_readout(module, x))
            self._stack.append(Call(name, module, x))

        return enter

    def _leave(self, name: str) -> Callable[..., None]:
        def leave(module: nn.Module, _inputs: tuple[Any, ...], _options: dict[str, Any], output: Any) -> None:
            call = self._stack.pop()
            if isinstance(module, SRMReadout):
                self._paused -= 1
            self._of_neurons(self._of(name), module, output, call)

        return leave

    def _enter_block(self, block: Block) -> Callable[..., None]:
        def enter(_module: nn.Module, inputs: tuple[Any, ...], _options: dict[str, Any]) -> None:
            name, neurons = self._names[block.weighted], self._of(self._names[block.neurons])
            self._stack.append(Call(name, block.weighted, inputs[0], before=neurons.membrane_updates))

        return enter

    def _leave_block(self, block: Block) -> Callable[..., None]:
        def leave(
            _module: nn.Module, _inputs: tuple[Any, ...], _options: dict[str, Any], output: Tensor
        ) -> None:
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

        return leave

    def _of(self, name: str) -> ModuleCounts:
        return self.by_module.setdefault(name, ModuleCounts())

    def _of_neurons(self, counts: ModuleCounts, module: nn.Module, output: Any, call: Call) -> None:
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
        if not gives_potentials(module):
            counted = call.updates and call.updates == spikes.numel()
            fired = call.fired if counted else products.nonzero(spikes)
        counts.add_neurons(spikes.numel(), fired, states, state_bytes)

    def _run(self, name: str, args: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        """Runs one of the operations that multiply, and counts it."""
        if self._paused:
            return run()
        call = self._stack[-1] if self._stack else None
        output, found = self._products.run(name, args, run, call)
        if found is not None:
            self._of(call.name if call else "").add(found)
        return output


def _counts_spikes(block: Block) -> bool:
    """Returns whether the kernel that a block runs in is sure to count."""
    neurons, weight = block.neurons, block.weighted.weight
    assert isinstance(weight, Tensor)
    if weight.dtype == torch.float64 or not native.has_kernel("srm_conv_forward", weight):
        return False
    if isinstance(neurons, SpikingLayer) and neurons.delays is not None:
        return False
    if has_srm_kernels(neurons):
        return True
    neuron = neuron_of(neurons)
    assert neuron is not None
    dynamics = neuron.dynamics(neuron.constants())
    return dynamics is not None and dynamics.runs_in_layer


def _states_of(module: nn.Module) -> int:
    if isinstance(module, SRMReadout):
        return _READOUT_STATES
    neuron = neuron_of(module)
    assert neuron is not None
    return len(neuron.state_names)
