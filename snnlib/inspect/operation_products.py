"""Products of one call of an operation of torch or of this library, of whichever module it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.backends.reference.delay import split
from snnlib.functional.operators import Convolution
from snnlib.functional.unfolded import unfolded_rows
from snnlib.inspect.products import (
    ConvolutionMap,
    Counts,
    FanOut,
    Products,
    matrix_counts,
    nonzero,
    nonzero_counts,
    of_matrices,
)
from snnlib.nn.readout import SRMReadout
from snnlib.nn.recurrent_layer import Recurrent
from snnlib.ops.counting import counted
from snnlib.ops.currents import currents_forward

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
    """A call of a module that is under way: its input, and spikes and neuron-steps that kernels counted on the way."""

    name: str
    module: nn.Module | None = None
    x: Tensor | None = None
    updates: int = 0
    fired: int = 0
    # Membrane updates of a fused block's neurons before the call.
    before: int = 0

    def add_steps(self, updates: int, fired: int) -> None:
        """Add what an op did."""
        self.updates += updates
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
        self, name: str, args: dict[str, Any], run: Callable[[], Any], call: Call
    ) -> tuple[Any, Products | None]:
        """Runs an operation.

        Args:
            name: one of `COUNTED`.
            args: its arguments by name.
            run: runs it.
            call: the module that asks for it; gets what its neurons did.

        Returns:
            The operation's result, and its products.
        """
        if name in _SEQUENCE_OPS and args.get("delay") is None:
            return self._run_sequence(args, run, call)
        output = run()
        if name in _OPAQUE:
            self._uncounted.add(name.removeprefix("aten::"))
            return output, None
        if name == _CONVOLUTION:
            return output, self._of_convolution(args, output, call)
        if name == _RECURRENT:
            return output, self._of_recurrence(args, output[0].movedim(args["time_dim"], 0), call)
        if name in _SEQUENCE_OPS:
            return output, _of_delays(args, call)
        a, b = (args[key] for key in _MATRIX_ARGUMENTS[name])
        return output, self._of_matrices(
            a[None] if a.dim() == 1 else a, b[:, None] if b.dim() == 1 else b, call
        )

    def of_readout(self, module: SRMReadout, x: Tensor) -> Products:
        """Returns the products of a read-out's weights with its input, of which its op makes others."""
        counts = nonzero_counts(x.flatten(0, 1).flatten(1))
        return self._of_frames(counts, module.effective_weight, x.shape[0] * x.shape[1])

    def _run_sequence(self, args: dict[str, Any], run: Callable[[], Any], call: Call) -> tuple[Any, Products]:
        """A layer op, which counts in its kernel where it can."""
        x, weight = args["x"], args["weight"]
        options = ConvOptions(args["stride"], args["padding"], args["dilation"], args["groups"])
        g = geometry(x, weight, options, 0)
        sizes = (x.shape[2:], (len(weight), *g.space))
        how = ConvolutionMap(*sizes, *options[:3], False, [0] * len(g.space), options.groups)
        fan_out = self._fan_out(weight, how, call)
        with counted(fan_out.table) as counts:
            output = run()
        if counts.spikes is not None and args.get("pool") is not None:
            call.add_steps(g.neuron_steps, counts.spikes)
        if counts.products is None:
            return output, fan_out.products_of(x.flatten(0, 1))
        frames = x.shape[0] * x.shape[1]
        return output, fan_out.products(frames, counts.products, counts.events, counts.graded == 0)

    def _of_convolution(self, args: dict[str, Any], output: Tensor, call: Call) -> Products:
        x, keys = args["input"], ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        how = ConvolutionMap(x.shape[1:], output.shape[1:], *(args[key] for key in keys))
        return self._fan_out(args["weight"], how, call).products_of(x)

    def _fan_out(self, weight: Tensor, how: ConvolutionMap, call: Call) -> FanOut:
        how = ConvolutionMap._make(tuple(part) if isinstance(part, Sequence) else part for part in how)
        own_space = _space_before_padding(how.frame[1:], call)
        made: FanOut = self._of_weight(weight, (own_space, how), partial(FanOut.of, weight, how, own_space))
        return made

    def _of_recurrence(self, args: dict[str, Any], spikes: Tensor, call: Call) -> Products:
        """Recurrent weights meet the spikes `[T, N, H]` of the step before, or of those that delays lead back to."""
        weight, delay = args["weight"], args["delay"]
        counts, last = (nonzero_counts(part.flatten(0, 1)) for part in (spikes, spikes[-1:]))
        if spikes.numel():
            call.add_steps(spikes.numel(), counts.total)
        sent, unit = counts.per_cell - last.per_cell, counts.unit
        state = args["state"] if delay is None else args["past"]
        if state is not None:
            # The newest spikes of a state are its last, those of a past its first.
            first = nonzero_counts(state[-1 if delay is None else 0])
            sent, unit = sent + first.per_cell, unit and first.unit
        found = self._of_frames(Counts(sent, unit), weight, spikes.shape[0] * spikes.shape[1])
        if delay is None:
            return found
        before = spikes.new_zeros(1, *spikes.shape[1:]) if state is None else state.flip(0).to(spikes)
        arriving = torch.cat((before, spikes[:-1]))
        return replace(found, effective=_met_later(arriving, weight, delay, args["rounded"], len(spikes)))

    def _of_frames(self, counts: Counts, weight: Tensor, frames: int) -> Products:
        """Products of a weight `[O, I]` and so many frames `[I]`."""
        right = self._of_weight(weight, (), partial(matrix_counts, weight))
        return of_matrices(counts, right, frames, len(weight), "left")

    def _of_matrices(self, a: Tensor, b: Tensor, call: Call) -> Products:
        is_weight = [tensor.untyped_storage().data_ptr() in self._known for tensor in (a, b)]
        role = "both" if is_weight[0] == is_weight[1] else "right" if is_weight[0] else "left"
        left, right = (
            self._of_weight(tensor, (), partial(matrix_counts, tensor)) for tensor in (a, b.transpose(-1, -2))
        )
        found = of_matrices(left, right, a.shape[-2], b.shape[-1], role)
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


def _of_delays(args: dict[str, Any], call: Call) -> Products:
    """Products of a fully connected map whose events arrive later, or of a convolution that runs as one."""
    x, weight = args["x"].movedim(args["time_dim"], 0), args["weight"]
    effective = _met_later(x, weight, args["delay"].detach(), args["rounded"], len(x))
    counts = nonzero_counts(x.flatten(0, 1))
    found = Products(effective, x.numel() * len(weight), counts.unit, x.numel(), counts.total)
    operator = getattr(call.module, "operator", None)
    if call.x is None or not isinstance(operator, Convolution):
        return found
    assert call.module is not None
    own: Any = call.module.weight
    rows, _ = unfolded_rows(torch.ones_like(call.x[:1, :1]), own, operator, 0)
    dense = call.x.shape[0] * call.x.shape[1] * int(rows.sum()) * len(own)
    return replace(found, dense=dense, inputs=call.x.numel(), nonzero=nonzero(call.x))


def _met_later(x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, steps: int) -> int:
    """Nonzero weights that nonzero inputs `[T, N, I]` meet within so many last steps, `delay` steps later.

    An event that arrives between two steps meets a weight in both.
    """
    whole, rest = split(delay.expand(weight.shape), rounded)
    met, events = weight.ne(0), x.ne(0).to(torch.float32)
    total = 0
    for arrival, weights in ((whole, met), (whole + 1, met & rest.ne(0))):
        if weights.any():
            at = arrival.to(events)
            currents = currents_forward(events, weights.to(events), at, (), (), (), 1, True, 0)
            total += int(currents[len(x) - steps :].sum(dtype=torch.float64))
    return total


def _space_before_padding(space: Sequence[int], call: Call) -> tuple[int, ...]:
    """Size of the module's input where "same" has added zeros to it, which are no inputs; else that of x."""
    same = getattr(getattr(call.module, "operator", None), "same", False) or (
        getattr(call.module, "padding", None) == "same"
        and getattr(call.module, "padding_mode", None) == "zeros"
    )
    if not same or call.x is None:
        return tuple(space)
    # The op of a layer has two axes at least: the first one of a sequence over one axis has size 1.
    return tuple(map(min, space, call.x.shape[-len(space) :]))


def _is_later_tap(b: Tensor, call: Call) -> bool:
    """Returns whether b has the taps of spikes that come back after more than the shortest delay."""
    delays = call.module.recurrent_delays if isinstance(call.module, Recurrent) else None
    if delays is None or delays.per != "connection":
        return False
    taps = (delays.max_delay + 2) * b.numel() * b.element_size()
    return b.storage_offset() > 0 and b.untyped_storage().nbytes() == taps
