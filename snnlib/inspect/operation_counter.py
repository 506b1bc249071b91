"""Counts the products of every linear operation while a net runs, whichever module or function asks for it."""

from __future__ import annotations

import functools
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from snnlib.functional.paths import Path, call_facts, choose
from snnlib.inspect.products import COUNTED, CountedCall, OperationProducts, Products, nonzero
from snnlib.neurons import Neuron
from snnlib.nn.fusion.fuse import blocks_by_part
from snnlib.nn.fusion.fused_block import Block
from snnlib.nn.fusion.linear_map import LinearMap, operator_of
from snnlib.nn.layers.readout import SRMReadout
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.structure.layers import gives_potentials, hook, neuron_of, outer_modules
from snnlib.structure.peers import neuron_library, neuron_output

# Membrane potential and synaptic current: the read-out never spikes, and keeps no trace for the gradient of spikes.
_READOUT_STATES = 2


class OperationCounter:
    """Counts in the forward passes of `with counter.counting():` and sums up by module.

    Nothing of a pass is kept but numbers. Layer ops count events and spikes while these are in the cache; blocks of a
    fused net whose kernels do not count run as layers, so that every neuron is seen.

    Args:
        net: any module.
    """

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        # Sums over all calls by module and name of a field of `LayerOperations`.
        self.by_module: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._stack: list[CountedCall] = []
        # Walked once: a walk through a net of many modules takes as long as a small layer.
        self.modules = dict(net.named_modules())
        self._names = {module: name for name, module in self.modules.items()}
        # Within a module that is counted as a whole.
        self._paused = False
        # Operations that multiply but are not counted.
        self.uncounted: set[str] = set()
        # Products of a single block, as weights may change between two.
        self._products = OperationProducts(net, self.uncounted)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts what runs within the block."""
        self._products = OperationProducts(self.net, self.uncounted)
        # A pass that ended in an error left its modules behind.
        self._stack, self._paused = [], False
        blocks = blocks_by_part(self.net)
        counting = {block for block in blocks.values() if _counts_spikes(block)}
        with ExitStack() as stack:
            for name, module in outer_modules(self.net).items():
                enter, leave = functools.partial(self._enter, name), functools.partial(self._leave)
                hook(stack, module, enter, leave, sees_blocks=blocks.get(module) in counting)
            for block in counting:
                enter = functools.partial(self._enter_block, block)
                leave = functools.partial(self._leave_block, block)
                hook(stack, block, enter, leave, sees_blocks=True)
            stack.enter_context(_in_matrix_products(self.net))
            with _Operations(self._run):
                yield

    def _enter(self, name: str, module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        x = next((value for value in (*inputs, *options.values()) if isinstance(value, Tensor)), None)
        if isinstance(module, SRMReadout) and x is not None:
            # Its potentials are products with a kernel over time, which are no synaptic operations.
            self._paused = True
            self._add(name, self._products.of_readout(module, x))
        self._stack.append(CountedCall(name, module, x))

    def _leave(self, module: nn.Module, _args: Any, _options: Any, output: Any) -> None:
        call = self._stack.pop()
        if isinstance(module, SRMReadout):
            self._paused = False
        if isinstance(module, nn.ReLU | nn.Sigmoid):
            self.by_module[call.name].update(outputs=output.numel(), nonzero_outputs=nonzero(output))
            return
        if isinstance(module, SpikingLayer | Neuron | SRMReadout):
            spikes = output
            states = _states(module, math.prod(spikes.shape[2:]) if spikes.numel() else 0, spikes)
        elif neuron_library(module) is not None:
            spikes, parts = neuron_output(module, output)
            states = len(parts), sum(part.nbytes // max(len(part), 1) for part in parts)
        else:
            return
        fired = None
        if not gives_potentials(module):
            fired = call.fired if call.updates == spikes.numel() else nonzero(spikes)
        self._add_neurons(call.name, spikes.numel(), fired, states)

    def _enter_block(self, block: Block, _block: nn.Module, inputs: tuple[Any, ...], _options: Any) -> None:
        before = self.by_module[self._names[block.neurons]]["membrane_updates"]
        self._stack.append(CountedCall(self._names[block.weighted], block.weighted, inputs[0], before=before))

    def _leave_block(
        self, block: Block, _block: nn.Module, _args: Any, _options: Any, output: Tensor
    ) -> None:
        call, name = self._stack.pop(), self._names[block.neurons]
        if self.by_module[name]["membrane_updates"] > call.before:
            # It ran as layers, whose hooks have counted.
            return
        if not call.updates or call.x is None:
            self.uncounted.add(f"neurons of {name}")
            return
        per_sample = call.updates // (call.x.shape[0] * call.x.shape[1])
        self._add_neurons(name, call.updates, call.fired, _states(block.neurons, per_sample, output))

    def _add_neurons(self, name: str, updates: int, fired: int | None, states: tuple[int, int]) -> None:
        """Add updates of membranes, how many of them gave a spike (None of potentials), and what their states cost."""
        counts = self.by_module[name]
        counts["membrane_updates"] += updates
        counts["states"], counts["state_bytes"] = states
        if fired is not None:
            counts.update(outputs=updates, nonzero_outputs=fired)

    def _run(self, name: str, args: dict[str, Any], run: Callable[[], Any]) -> Any:
        """Runs one of the operations that multiply, and counts it."""
        if self._paused:
            return run()
        call = self._stack[-1] if self._stack else CountedCall("")
        output, found = self._products.run(name, args, run, call)
        if found is not None:
            self._add(call.name, found)
        return output

    def _add(self, name: str, found: Products) -> None:
        """Add the products of one operation: accumulations if the inputs are -1, 0 and 1, multiplications otherwise."""
        counts = self.by_module[name]
        counts["acs" if found.unit else "macs"] += found.effective
        if found.additions and not found.unit:
            counts.update(graded=found.effective, additions=found.additions)
        counts.update(dense=found.dense, inputs=found.inputs, nonzero_inputs=found.nonzero)


def _counts_spikes(block: Block) -> bool:
    """Returns whether the kernel that a block runs in is sure to count."""
    weighted, neuron = block.weighted, neuron_of(block.neurons)
    weight = weighted.weight
    assert isinstance(weight, Tensor) and neuron is not None
    if isinstance(weighted, SpikingLayer):
        operator = weighted.delayed_operator()
    else:
        operator = operator_of(cast(LinearMap, weighted))
    return choose(call_facts(weight, operator, neuron, neuron.kernel(weight)))[0] is Path.LAYER


def _states(module: nn.Module, per_sample: int, output: Tensor) -> tuple[int, int]:
    """States of a neuron, and the bytes of those of one sample: float32 at least."""
    neuron = neuron_of(module)
    states = _READOUT_STATES if neuron is None else len(neuron.state_names)
    return states, states * per_sample * max(output.element_size(), 4)


@contextmanager
def _in_matrix_products(net: nn.Module) -> Iterator[None]:
    """Attention and recurrent layers of the net run as products of matrices, and what is compiled as it was written."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if any(isinstance(module, nn.RNNBase) for module in net.modules()):
            # `torch.backends.mkldnn.flags` sets more than this, and warns about it.
            stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
            torch._C._set_mkldnn_enabled(False)
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets a function run the operations of `COUNTED`, on this thread.

    Args:
        run: gets the name of an operation, its arguments by name and what runs it, and returns its result.
    """

    def __init__(self, run: Callable[[str, dict[str, Any], Callable[[], Any]], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Torch would import its compiler, which takes seconds, to keep it away from here.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name, apart = _kind(func)
        if apart:
            # Operations arrive whole in inference mode.
            with self:
                taken_apart = func.decompose(*args, **kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
        if name not in COUNTED:
            return func(*args, **kwargs)
        named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
        return self._run(name, {**named, **kwargs}, lambda: func(*args, **kwargs))


# For the whole process, as torch takes tens of microseconds to say it.
@functools.cache
def _kind(func: Any) -> tuple[str, bool]:
    """An operation's name, and whether it may have to be taken apart."""
    return func._schema.name, func.namespace == "aten" and func._can_decompose()
