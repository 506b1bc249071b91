"""Counts the products of every linear operation while a net runs, whichever module or function asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from snnlib.exchange.peers import neuron_library, neuron_output
from snnlib.inspect import products
from snnlib.inspect.activity import spikes_of
from snnlib.inspect.products import ConvolutionMap, Products
from snnlib.neurons import Integrator, Neuron
from snnlib.nn.neuron_layer import NeuronLayer
from snnlib.nn.readout import SRMReadout
from snnlib.nn.spiking import SpikingLayer
from snnlib.nn.srm import SRMLayer
from snnlib.ops.geometry import ConvOptions, geometry

# Membrane potential, synaptic current and gradient trace; without the trace in the readout, which never spikes.
_SRM_STATES, _READOUT_STATES = 3, 2
# snnlib's ops of a convolution, with or without neurons behind it: sequences `[T, N, ...]`.
_SEQUENCE_OPS = ("snnlib::srm_conv_forward", "snnlib::layer_forward", "snnlib::currents_forward")
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


class OperationCounter:
    """Counts in the forward passes of `with counter.counting():` and sums up by module.

    Nothing of a pass is kept but numbers. Hooks make blocks of a fused net run as layers, so that every neuron is seen.

    Args:
        net: any module.
    """

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.by_module: dict[str, ModuleCounts] = {}
        # Operations that multiply but are not counted.
        self.uncounted: set[str] = set()
        self._stack: list[tuple[str, nn.Module, Any]] = []
        # Of modules that are counted as a whole.
        self._paused = 0
        self._cache: dict[Any, tuple[Tensor, Any]] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what runs within the block."""
        known = {
            tensor.untyped_storage().data_ptr() for tensor in (*self.net.parameters(), *self.net.buffers())
        }
        fast = torch.backends.mha.get_fastpath_enabled()
        recurrent = any(isinstance(module, nn.RNNBase) for module in self.net.modules())
        with ExitStack() as stack:
            # What is inside a spiking layer is the layer's.
            inside = {
                id(part)
                for layer in self.net.modules()
                if isinstance(layer, NeuronLayer)
                for part in layer.modules()
                if part is not layer
            }
            for name, module in self.net.named_modules():
                if id(module) in inside:
                    continue
                before = module.register_forward_pre_hook(self._enter(name), with_kwargs=True)
                after = module.register_forward_hook(self._leave(name))
                stack.callback(before.remove)
                stack.callback(after.remove)
            stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
            torch.backends.mha.set_fastpath_enabled(False)
            # As products of matrices.
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if recurrent:
                stack.enter_context(_without_onednn())
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            # A pass that ended in an error left its modules behind.
            stack.callback(self._stack.clear)
            stack.enter_context(_Mode(self, known))
            yield
        self._paused = 0
        self._cache.clear()

    def _enter(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            x = next((value for value in (*inputs, *options.values()) if isinstance(value, Tensor)), None)
            if isinstance(module, SRMReadout) and x is not None:
                # Its potentials are products with a kernel over time, which are no synaptic operations.
                self._paused += 1
                self._of_readout(name, module, x)
            self._stack.append((name, module, None if x is None else x.shape))

        return hook

    def _leave(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, _inputs: tuple[Any, ...], output: Any) -> None:
            self._stack.pop()
            if isinstance(module, SRMReadout):
                self._paused -= 1
            self._of_neurons(self._of(name), module, output)

        return hook

    def _of(self, name: str) -> ModuleCounts:
        return self.by_module.setdefault(name, ModuleCounts())

    def _of_readout(self, name: str, module: SRMReadout, x: Tensor) -> None:
        frames = x.flatten(2).flatten(0, 1)
        left = products.matrix_counts(frames)
        right = products.matrix_counts(module.effective_weight)
        self._of(name).add(products.of_matrices(left, right, len(frames), module.out_features, "left"))

    def _of_neurons(self, counts: ModuleCounts, module: nn.Module, output: Any) -> None:
        """Outputs of activations and neurons, and what their states cost."""
        if isinstance(module, nn.ReLU | nn.Sigmoid):
            counts.outputs += output.numel()
            counts.nonzero_outputs += int(output.count_nonzero())
            return
        if isinstance(module, NeuronLayer | Neuron | SRMReadout):
            spikes = spikes_of(output)
            states = _states_of(module)
            per_sample = spikes[0, 0].numel() if spikes.numel() else 0
            state_bytes = states * per_sample * max(spikes.element_size(), 4)
        elif neuron_library(module) is not None:
            spikes, parts = neuron_output(module, output)
            states = len(parts)
            state_bytes = sum(part.nbytes // max(len(part), 1) for part in parts)
        else:
            return
        counts.membrane_updates += spikes.numel()
        counts.states, counts.state_bytes = states, state_bytes
        if not isinstance(module, SRMReadout | Integrator):
            counts.outputs += spikes.numel()
            counts.nonzero_outputs += int(spikes.count_nonzero())

    def record(self, name: str, known: set[int], args: Mapping[str, Any], output: Any) -> None:
        """Count one operation, if it is one that multiplies."""
        if self._paused:
            return
        found: Products | None = None
        if name == "aten::convolution":
            x, keys = (
                args["input"],
                ("stride", "padding", "dilation", "transposed", "output_padding", "groups"),
            )
            how = ConvolutionMap._make((x.shape[1:], output.shape[1:], *(args[key] for key in keys)))
            found = self._of_convolution(known, x, args["weight"], how)
        elif name in _SEQUENCE_OPS:
            x, weight = args["x"].flatten(0, 1), args["weight"]
            options = ConvOptions(args["stride"], args["padding"], args["dilation"], args["groups"])
            space = geometry(args["x"], weight, options, 0).space
            sizes = (x.shape[1:], (len(weight), *space))
            how = ConvolutionMap(*sizes, *options[:3], False, [0] * len(space), options.groups)
            found = self._of_convolution(known, x, weight, how)
        elif name == "snnlib::recurrent_forward":
            found = self._of_matrices(known, _spikes_before(args, output[0]), args["weight"].t())
        elif name in _MATRIX_ARGUMENTS:
            a, b = (args[key] for key in _MATRIX_ARGUMENTS[name])
            found = self._of_matrices(
                known, a[None] if a.dim() == 1 else a, b[:, None] if b.dim() == 1 else b
            )
        elif name in _OPAQUE:
            self.uncounted.add(name.removeprefix("aten::"))
        if found is not None:
            self._of(self._stack[-1][0] if self._stack else "").add(found)

    def _of_convolution(self, known: set[int], x: Tensor, weight: Tensor, how: ConvolutionMap) -> Products:
        space = self._space_before_padding(x)
        cells = (slice(None), *(slice(size) for size in space))

        def fan_outs() -> tuple[Tensor, Tensor]:
            return how.fan_out(weight), how.dense_fan_out(weight)[cells]

        key = (tuple(space), *(tuple(part) if isinstance(part, Sequence) else part for part in how))
        fan_out, dense = self._of_weight(known, weight, key, fan_outs)
        return products.of_cells(products.nonzero_counts(x), len(x), fan_out, dense)

    def _space_before_padding(self, x: Tensor) -> Sequence[int]:
        """Size of the module's input where "same" has added zeros to it, which are no inputs; else that of x."""
        if self._stack:
            _, module, shape = self._stack[-1]
            operator = getattr(module, "operator", None)
            same = getattr(operator, "same", False) or (
                getattr(module, "padding", None) == "same"
                and getattr(module, "padding_mode", None) == "zeros"
            )
            if same and shape is not None:
                return tuple(shape[-(x.dim() - 2) :])
        return tuple(x.shape[2:])

    def _of_matrices(self, known: set[int], a: Tensor, b: Tensor) -> Products:
        is_weight = [tensor.untyped_storage().data_ptr() in known for tensor in (a, b)]
        role = "both" if is_weight[0] == is_weight[1] else "right" if is_weight[0] else "left"
        left, right = (
            self._of_weight(known, tensor, (), partial(products.matrix_counts, tensor))
            for tensor in (a, b.transpose(-1, -2))
        )
        return products.of_matrices(left, right, a.shape[-2], b.shape[-1], role)

    def _of_weight(self, known: set[int], weight: Tensor, key: Any, make: Callable[[], Any]) -> Any:
        """What follows from a weight alone, made once for the net's own and anew for others."""
        address = weight.untyped_storage().data_ptr()
        if address not in known or weight.is_inference():
            return make()
        full = (address, weight.storage_offset(), weight.shape, weight.stride(), weight._version, key)
        if full not in self._cache:
            # The tensor is held, so that its address stays its own.
            self._cache[full] = (weight, make())
        return self._cache[full][1]


def _spikes_before(args: Mapping[str, Any], spikes: Tensor) -> Tensor:
    """The spikes `[T * N, H]` that recurrent weights meet: those of the step before."""
    steps = spikes.movedim(args["time_dim"], 0)
    first = steps.new_zeros(1, *steps.shape[1:]) if args["state"] is None else args["state"][-1:]
    return torch.cat((first.to(steps.dtype), steps[:-1])).flatten(0, 1)


def _states_of(module: nn.Module) -> int:
    if isinstance(module, SRMReadout):
        return _READOUT_STATES
    if isinstance(module, SRMLayer):
        return _SRM_STATES
    neuron = module.neuron if isinstance(module, SpikingLayer) else module
    assert isinstance(neuron, Neuron)
    return len(neuron.state_names)


@contextmanager
def _without_onednn() -> Iterator[None]:
    # `torch.backends.mkldnn.flags` sets more than this, and warns about it.
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Shows the counter every operation that torch runs."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Torch would import its compiler, which takes seconds, to keep it away from here.
        return False

    def __init__(self, counter: OperationCounter, known: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counter, self._known = counter, known

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._can_decompose() and func.namespace == "aten":
            # In inference mode operations arrive whole.
            with self:
                taken_apart = func.decompose(*args, **kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
        out = func(*args, **kwargs)
        named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
        self._counter.record(func._schema.name, self._known, {**named, **kwargs}, out)
        return out
