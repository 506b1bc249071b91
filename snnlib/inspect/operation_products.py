"""Products of one call of an operation of torch or of this library, of whichever module it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.functional.operators import Convolution
from snnlib.inspect import products
from snnlib.inspect.delayed_products import of_convolution, of_delayed, of_late_spikes
from snnlib.inspect.products import ConvolutionMap, FanOut, Products
from snnlib.nn.readout import SRMReadout
from snnlib.nn.recurrent_layer import Recurrent
from snnlib.ops.counting import counted

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
# Operations whose products are counted.
COUNTED = frozenset({_CONVOLUTION, _RECURRENT, *_SEQUENCE_OPS, *_MATRIX_ARGUMENTS, *_OPAQUE})


@dataclass
class Call:
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


class OperationProducts:
    """Runs operations and counts their products.

    Args:
        net: whose weights are counted once.
        uncounted: gets the names of operations that multiply but are not counted.
    """

    def __init__(self, net: nn.Module, uncounted: set[str]) -> None:
        tensors = (*net.parameters(), *net.buffers())
        # Storages of the net's own tensors.
        self._known = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        self._cache: dict[Any, tuple[Tensor, Any]] = {}
        self._uncounted = uncounted

    def run(
        self, name: str, args: Mapping[str, Any], run: Callable[[], Any], call: Call | None
    ) -> tuple[Any, Products | None]:
        """Runs an operation.

        Args:
            name: one of `COUNTED`.
            args: its arguments by name.
            run: runs it.
            call: the module that asks for it, or None; gets what its neurons did.

        Returns:
            The operation's result, and its products.
        """
        if name in _SEQUENCE_OPS and args.get("delay") is None:
            return self._run_sequence(args, run, call)
        output = run()
        return output, self._products(name, args, output, call)

    def of_readout(self, module: SRMReadout, x: Tensor) -> Products:
        """Returns the products of a read-out's weights with its input, of which its op makes others."""
        counts = products.nonzero_counts(x.flatten(0, 1))
        left = products.Counts(counts.per_cell.flatten(), counts.unit)
        weight = module.effective_weight
        right = self._of_weight(weight, (), partial(products.matrix_counts, weight))
        return products.of_matrices(left, right, x.shape[0] * x.shape[1], module.out_features, "left")

    def _run_sequence(
        self, args: Mapping[str, Any], run: Callable[[], Any], call: Call | None
    ) -> tuple[Any, Products]:
        """A layer op, which counts in its kernel where it can."""
        x, weight = args["x"], args["weight"]
        options = ConvOptions(args["stride"], args["padding"], args["dilation"], args["groups"])
        g = geometry(x, weight, options, 0)
        frames = x.shape[0] * x.shape[1]
        sizes = (x.shape[2:], (len(weight), *g.space))
        how = ConvolutionMap(*sizes, *options[:3], False, [0] * len(g.space), options.groups)
        fan_out = self._fan_out(weight, how, x.shape[3:], call)
        with counted(fan_out.table) as counts:
            output = run()
        if counts.spikes is not None and call is not None and args.get("pool") is not None:
            call.add_steps(g.neuron_steps, g.height * g.row, counts.spikes)
        if counts.products is None:
            return output, products.of_cells(products.nonzero_counts(x.flatten(0, 1)), frames, fan_out)
        return output, fan_out.products(frames, counts.products, counts.events, counts.graded == 0)

    def _products(
        self, name: str, args: Mapping[str, Any], output: Any, call: Call | None
    ) -> Products | None:
        if name == _CONVOLUTION:
            x, weight = args["input"], args["weight"]
            keys = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
            how = ConvolutionMap._make((x.shape[1:], output.shape[1:], *(args[key] for key in keys)))
            fan_out = self._fan_out(weight, how, x.shape[2:], call)
            return products.of_cells(products.nonzero_counts(x), len(x), fan_out)
        if name in _SEQUENCE_OPS:
            return self._of_delays(args, call)
        if name == _RECURRENT and args["delay"] is None:
            return self._of_recurrence(args, output[0], call)
        if name == _RECURRENT:
            spikes = output[0].movedim(args["time_dim"], 0)
            if call is not None and spikes.numel():
                call.add_steps(spikes.numel(), spikes[0, 0].numel(), products.nonzero(spikes))
            return of_late_spikes(spikes, args["past"], args["weight"], args["delay"], args["rounded"])
        if name in _OPAQUE:
            self._uncounted.add(name.removeprefix("aten::"))
            return None
        a, b = (args[key] for key in _MATRIX_ARGUMENTS[name])
        return self._of_matrices(a[None] if a.dim() == 1 else a, b[:, None] if b.dim() == 1 else b, call)

    def _fan_out(
        self, weight: Tensor, how: ConvolutionMap, space: Sequence[int], call: Call | None
    ) -> FanOut:
        own_space = _space_before_padding(space, call)
        how = ConvolutionMap._make(tuple(part) if isinstance(part, Sequence) else part for part in how)
        made: FanOut = self._of_weight(weight, (own_space, how), partial(FanOut.of, weight, how, own_space))
        return made

    def _of_recurrence(self, args: Mapping[str, Any], spikes: Tensor, call: Call | None) -> Products:
        """Recurrent weights meet the spikes of the step before."""
        steps = spikes.movedim(args["time_dim"], 0)
        counts, last = (products.nonzero_counts(part.flatten(0, 1)) for part in (steps, steps[-1:]))
        if call is not None and spikes.numel():
            call.add_steps(spikes.numel(), spikes[0, 0].numel(), counts.total)
        before = counts.per_cell - last.per_cell
        counts = products.Counts(before, counts.unit)
        if args["state"] is not None:
            first = products.nonzero_counts(args["state"][-1])
            counts = products.Counts(before + first.per_cell, counts.unit and first.unit)
        weight = args["weight"]
        right = self._of_weight(weight, (), partial(products.matrix_counts, weight))
        return products.of_matrices(counts, right, len(steps) * steps.shape[1], len(weight), "left")

    def _of_delays(self, args: Mapping[str, Any], call: Call | None) -> Products:
        x, weight, delay = args["x"].movedim(args["time_dim"], 0), args["weight"], args["delay"]
        found = of_delayed(x, weight, delay, args["rounded"])
        operator = None if call is None else getattr(call.module, "operator", None)
        if call is None or call.x is None or not isinstance(operator, Convolution):
            return found
        return of_convolution(found, call.x, call.module.weight, operator)  # type: ignore[arg-type]

    def _of_matrices(self, a: Tensor, b: Tensor, call: Call | None) -> Products:
        is_weight = [tensor.untyped_storage().data_ptr() in self._known for tensor in (a, b)]
        role = "both" if is_weight[0] == is_weight[1] else "right" if is_weight[0] else "left"
        left, right = (
            self._of_weight(tensor, (), partial(products.matrix_counts, tensor))
            for tensor in (a, b.transpose(-1, -2))
        )
        found = products.of_matrices(left, right, a.shape[-2], b.shape[-1], role)
        # Of a delay's taps at most two steps are not zero: the products with all of them are one step's connections.
        return replace(found, dense=0, inputs=0, nonzero=0) if _is_later_tap(b, call) else found

    def _of_weight(self, weight: Tensor, key: Any, make: Callable[[], Any]) -> Any:
        """Returns what follows from a weight alone, made once for the net's own and anew for others."""
        address = weight.untyped_storage().data_ptr()
        if address not in self._known or weight.is_inference():
            return make()
        full = (address, weight.storage_offset(), weight.shape, weight.stride(), weight._version, key)
        if full not in self._cache:
            # The tensor is held, so that its address stays its own.
            self._cache[full] = (weight, make())
        return self._cache[full][1]


def _space_before_padding(space: Sequence[int], call: Call | None) -> tuple[int, ...]:
    """Size of the module's input where "same" has added zeros to it, which are no inputs; else that of x."""
    if call is not None:
        operator = getattr(call.module, "operator", None)
        same = getattr(operator, "same", False) or (
            getattr(call.module, "padding", None) == "same"
            and getattr(call.module, "padding_mode", None) == "zeros"
        )
        if same and call.x is not None:
            # The op of a layer has two axes at least: the first one of a sequence over one axis has size 1.
            return tuple(map(min, space, call.x.shape[-len(space) :]))
    return tuple(space)


def _is_later_tap(b: Tensor, call: Call | None) -> bool:
    """Returns whether b has the taps of spikes that come back after more than the shortest delay."""
    module = None if call is None else call.module
    delays = module.recurrent_delays if isinstance(module, Recurrent) else None
    if delays is None or delays.per != "connection":
        return False
    taps = (delays.max_delay + 2) * b.numel() * b.element_size()
    return b.storage_offset() > 0 and b.untyped_storage().nbytes() == taps
