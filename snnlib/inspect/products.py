"""Exact numbers of products of nonzero numbers in operations of torch and of this library, whichever module asks.

A nonzero input takes part in as many products as it meets nonzero weights, its fan-out. The products of a call are
therefore the sum over input cells of (frames in which the cell is nonzero) x (its fan-out): one pass over the input,
and one frame's worth of work for the fan-outs, in which borders, strides, dilation and groups are what they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from snnlib.backends import native
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.backends.reference.delay import split
from snnlib.backends.reference.sparse import Rows
from snnlib.functional.currents import unfolded_rows
from snnlib.functional.operators import Convolution
from snnlib.nn.layers.readout import SRMReadout
from snnlib.nn.recurrent.recurrent_layer import Recurrent
from snnlib.ops.counting import counted

# Elements looked at at once, which stay in the cache.
_BLOCK = 1 << 17
# Elements that torch counts before the kernel is called.
_SMALL = 1 << 15
# Cells of a frame whose counts stay in the cache.
_CELLS = 1 << 12
# Frames that are worth a thread of their own.
_FRAMES = 64

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


@dataclass(frozen=True)
class Products:
    """Counts of a linear operation: products with two nonzero factors, all products, and properties of the input.

    Args:
        effective: products whose factors both are nonzero.
        dense: all products.
        unit: whether all inputs are -1, 0 or 1, so that a product needs no multiplication.
        inputs: number of input elements.
        nonzero: how many of them are nonzero.
        additions: effective products of whole numbers other than -1, 0 and 1, where an input of n is |n| unit spikes;
            0 of other inputs.
    """

    effective: int
    dense: int
    unit: bool
    inputs: int
    nonzero: int
    additions: int = 0


@dataclass(frozen=True)
class Counts:
    """Nonzero elements of frames `[B, ...]`.

    Args:
        per_cell: how many each cell has `[...]`, in float64.
        unit: whether all are -1, 0 or 1.
        sizes: sums of |n| of each cell, where all are whole numbers and some are not unit; else None.
    """

    per_cell: Tensor
    unit: bool
    sizes: Tensor | None = None

    @property
    def total(self) -> int:
        """Nonzero elements."""
        return int(self.per_cell.sum())


def nonzero(x: Tensor) -> int:
    """Nonzero elements of a tensor."""
    if x.numel() < _SMALL or x.dim() < 2:
        with _unseen(x):
            return int(torch.count_nonzero(x))
    # Many small frames where that needs no copy, whose counts stay in the cache.
    while x.shape[1:].numel() > _CELLS and x.dim() > 2 and x.stride(0) == x.shape[1] * x.stride(1):
        x = x.flatten(0, 1)
    return nonzero_counts(x).total


def nonzero_counts(frames: Tensor) -> Counts:
    """Nonzero elements of each cell over dimension 0."""
    with _unseen(frames):
        # Cells in the order in which they lie in memory.
        order = sorted(range(1, frames.dim()), key=frames.stride, reverse=True)
        ordered = frames if frames.is_contiguous() else frames.permute(0, *order)
        counts, unit = _row_counts(ordered.reshape(len(frames), math.prod(ordered.shape[1:])))
        per_cell = counts.view(ordered.shape[1:])
        if ordered is not frames:
            per_cell = per_cell.permute([order.index(dim) for dim in range(1, frames.dim())])
        return Counts(per_cell, unit, None if unit else _sizes(frames))


def _sizes(frames: Tensor) -> Tensor | None:
    """Sums of |n| of each cell over dimension 0, in float64; None where some value is no whole number."""
    total = torch.zeros(frames.shape[1:], dtype=torch.float64, device=frames.device)
    for block in torch.split(frames, max(1, _BLOCK // max(frames.shape[1:].numel(), 1))):
        if not torch.equal(block, block.round()):
            return None
        total += block.abs().sum(0, dtype=torch.float64)
    return total


def _unseen(x: Tensor) -> AbstractContextManager[Any]:
    """Keeps a dispatch mode, which costs ten times what a small operation does, from seeing how a tensor is counted."""
    plain = type(x) in (Tensor, nn.Parameter)
    return torch._C._DisableTorchDispatch() if plain else nullcontext()


def _row_counts(rows: Tensor) -> tuple[Tensor, bool]:
    """Nonzero elements of each column, in float64, and whether all are -1, 0 or 1."""
    frames, cells = rows.shape
    kernel = native.kernel("count_nonzero", rows) if rows.numel() else None
    if kernel is None or 1 not in (rows.stride(1), cells):
        return _plain_counts(rows)
    parts = max(1, min(torch.get_num_threads(), frames // _FRAMES))
    counts = torch.empty(parts, cells, dtype=torch.int64)
    sizes = {"frames": frames, "cells": cells, "frame_stride": rows.stride(0), "parts": parts}
    unit = bool(kernel(dtype=native.DTYPE_CODES[rows.dtype], **sizes, elements=rows, counts=counts))
    return counts.sum(0).double(), unit


def _plain_counts(rows: Tensor) -> tuple[Tensor, bool]:
    """Counts nonzero values by column in torch, block by block."""
    counts = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    unit = True
    for block in torch.split(rows, max(1, _BLOCK // max(rows.shape[1], 1))):
        nonzero = block.ne(0).to(torch.float32)
        # A product with ones sums many times faster than sum(0); exact, as a block has fewer than 2**24 rows.
        counts += torch.mv(nonzero.t(), nonzero.new_ones(len(nonzero)))
        unit = unit and torch.equal(block.abs().to(torch.float32), nonzero)
    return counts, unit


class ConvolutionMap(NamedTuple):
    """Connections of a convolution: arguments of `aten::convolution`, with the sizes of a frame `[C, ...]`."""

    frame: Sequence[int]
    out_frame: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    def fan_out(self, met: Tensor) -> Tensor:
        """Weights that each input cell `[C, ...]` meets, in float64, of those that `met` marks."""
        # Outputs of a group are alike here: one stands for all, with the sum of their weights.
        by_group = met.view(self.groups, -1, *met.shape[1:])
        sums = met.sum(1, keepdim=True) if self.transposed else by_group.sum(1)
        ones = torch.ones(1, self.groups, *self.out_frame[1:], dtype=torch.float64, device=met.device)
        like = torch.zeros(1, *self.frame, dtype=torch.float64, device=met.device)
        # The adjoint of the convolution, of outputs that are all ones.
        fan_out: Tensor = torch.ops.aten.convolution_backward(
            ones, like, sums.double(), None, *self[2:], [True, False, False]
        )[0]
        return fan_out[0]


# It follows from the geometry alone, so that a net without zero weights works it out in its first profile only.
@functools.lru_cache(maxsize=16)
def _fan_out_of_all(how: ConvolutionMap, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return how.fan_out(torch.ones(shape, device=device))


@dataclass(frozen=True)
class FanOut:
    """The fan-outs of an operation's input.

    Args:
        per_cell: nonzero weights that each cell of a frame meets `[...]`, in float64.
        dense: all weights that the cells of a frame meet.
        cells: of a frame; zeros that belong to the convolution, as "same" adds them, are none.
        unit: whether all weights are -1, 0 or 1, where a product of matrices may have its input among them.
    """

    per_cell: Tensor
    dense: int
    cells: int
    unit: bool = False

    @staticmethod
    def of_rows(weight: Tensor) -> FanOut:
        """Returns the fan-out of a weight `[O, ...]` that meets frames `[...]`."""
        counts = nonzero_counts(weight)
        return FanOut(counts.per_cell, weight.numel(), weight.shape[1:].numel(), counts.unit)

    @staticmethod
    def of_connections(weight: Tensor, starts: Tensor) -> FanOut:
        """Returns the fan-out of sparse connections, which for input j are the weights from `starts[j]` on."""
        before = torch.nn.functional.pad(weight.ne(0).cumsum(0), (1, 0))
        return FanOut(before[starts].diff().double(), weight.numel(), len(starts) - 1)

    @staticmethod
    def of_convolution(weight: Tensor, how: ConvolutionMap, space: Sequence[int]) -> FanOut:
        """Returns the fan-out of a convolution for frames of size `space`."""
        everywhere = _fan_out_of_all(how, tuple(weight.shape), weight.device)
        inputs = everywhere[(slice(None), *(slice(size) for size in space))]
        per_cell = everywhere if nonzero(weight) == weight.numel() else how.fan_out(weight.ne(0))
        return FanOut(per_cell, int(inputs.sum()), inputs.numel())

    @functools.cached_property
    def table(self) -> Tensor:
        """Fan-outs of the cells in int32 `[..., C]`, for kernels."""
        return self.per_cell.movedim(0, -1).to(torch.int32).contiguous()

    def products(self, frames: int, counts: Counts) -> Products:
        """Products of so many frames."""
        effective = int((counts.per_cell * self.per_cell).sum())
        additions, inputs = self.additions(counts.sizes), frames * self.cells
        return Products(effective, frames * self.dense, counts.unit, inputs, counts.total, additions)

    def additions(self, sizes: Tensor | None) -> int:
        """Products of unit spikes, as many as `Counts.sizes` says of each cell."""
        return 0 if sizes is None else int((sizes * self.per_cell).sum())

    def products_of(self, frames: Tensor) -> Products:
        """Products of frames `[B, ...]`."""
        return self.products(len(frames), nonzero_counts(frames))


@dataclass
class CountedCall:
    """A call of a module that is under way: its input, and spikes and neuron-steps that kernels counted on the way."""

    name: str
    module: nn.Module | None = None
    x: Tensor | None = None
    updates: int = 0
    fired: int = 0
    # Membrane updates of a fused block's neurons before the call.
    before: int = 0


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
        self._cache: dict[Any, tuple[tuple[Tensor, ...], FanOut]] = {}
        self._uncounted = uncounted

    def run(
        self, name: str, args: dict[str, Any], run: Callable[[], Any], call: CountedCall
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
        sparse = args.get("starts") is not None
        if name in _SEQUENCE_OPS and args.get("delay") is None and not sparse:
            return self._run_sequence(args, run, call)
        output = run()
        if name in _OPAQUE:
            self._uncounted.add(name.removeprefix("aten::"))
            return output, None
        if name == _CONVOLUTION:
            keys = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
            sizes = args["input"].shape[1:], output.shape[1:]
            fan_out = self._of_convolution(args["weight"], call, *sizes, *(args[key] for key in keys))
            return output, fan_out.products_of(args["input"])
        if name == _RECURRENT:
            return output, self._of_recurrence(args, output[0], call)
        if sparse:
            found = self._of_connections(args).products_of(args["x"].flatten(0, 1))
            found = _once_per_step(found, args["weight"], call)
        elif name in _SEQUENCE_OPS:
            found = _of_delays(args, call)
        else:
            a, b = (args[key] for key in _MATRIX_ARGUMENTS[name])
            found = self._of_matrices(a, b, call)
        return output, found

    def of_readout(self, module: SRMReadout, x: Tensor) -> Products:
        """Returns the products of a read-out's weights with its input, of which its op makes others."""
        return self._of_rows(module.effective_weight).products_of(x.flatten(0, 1).flatten(1))

    def _run_sequence(
        self, args: dict[str, Any], run: Callable[[], Any], call: CountedCall
    ) -> tuple[Any, Products]:
        """A layer op, which counts in its kernel where it can."""
        x, weight = args["x"], args["weight"]
        options = ConvOptions(args["stride"], args["padding"], args["dilation"], args["groups"])
        g = geometry(x, weight, options)
        sizes = x.shape[2:], (len(weight), *g.space)
        fan_out = self._of_convolution(
            weight, call, *sizes, *options[:3], False, [0] * len(g.space), options.groups
        )
        with counted(fan_out.table) as counts:
            output = run()
        if counts.spikes is not None and args.get("pool") is not None:
            call.updates += g.neuron_steps
            call.fired += counts.spikes
        frames = x.flatten(0, 1)
        if counts.products is None:
            return output, fan_out.products_of(frames)
        dense, inputs = (x.shape[0] * x.shape[1] * number for number in (fan_out.dense, fan_out.cells))
        additions = fan_out.additions(_sizes(frames)) if counts.graded else 0
        return output, Products(counts.products, dense, not counts.graded, inputs, counts.events, additions)

    def _of_convolution(self, weight: Tensor, call: CountedCall, *how: Any) -> FanOut:
        arguments = ConvolutionMap._make(tuple(part) if isinstance(part, Sequence) else part for part in how)
        space = _space_before_padding(arguments.frame[1:], call)
        make = partial(FanOut.of_convolution, weight, arguments, space)
        return self._of_weight((weight,), (space, arguments), make)

    def _of_rows(self, weight: Tensor) -> FanOut:
        return self._of_weight((weight,), (), partial(FanOut.of_rows, weight))

    def _of_connections(self, args: dict[str, Any]) -> FanOut:
        weight, starts = args["weight"], args["starts"]
        return self._of_weight((weight, starts), (), partial(FanOut.of_connections, weight, starts))

    def _of_recurrence(self, args: dict[str, Any], spikes: Tensor, call: CountedCall) -> Products:
        """Recurrent weights meet the spikes `[T, N, H]` of the step before, or of those that delays lead back to."""
        weight, delay = args["weight"], args["delay"]
        call.updates += spikes.numel()
        call.fired += nonzero(spikes)
        state = args["state"] if delay is None else args["past"]
        # The newest spikes of a state are its last, those of a past its first.
        newest = spikes[:0] if state is None else state[-1:] if delay is None else state[:1]
        sent = torch.cat((newest.to(spikes), spikes[:-1]))
        sparse = args.get("starts") is not None
        fan_out = self._of_connections(args) if sparse else self._of_rows(weight)
        found = fan_out.products(spikes.shape[0] * spikes.shape[1], nonzero_counts(sent.flatten(0, 1)))
        if delay is None:
            return found
        before = spikes.new_zeros(1, *spikes.shape[1:]) if state is None else state.flip(0).to(spikes)
        arriving = torch.cat((before, spikes[:-1]))
        sources = Rows(weight, args["starts"], args["targets"]).sources() if sparse else None
        how = weight, delay, args["rounded"], len(spikes), sources
        additions = found.additions and _met_later(arriving.abs().long(), *how)
        return replace(found, effective=_met_later(arriving.ne(0), *how), additions=additions)

    def _of_matrices(self, a: Tensor, b: Tensor, call: CountedCall) -> Products:
        """Products of `[..., m, k] @ [..., k, n]`, or of vectors `[k]`: frames of the one meet rows of the other."""
        rows = a[None] if a.dim() == 1 else a.movedim(-2, 0)
        columns = b[None] if b.dim() == 1 else b.movedim(-1, 0)
        is_weight = [tensor.untyped_storage().data_ptr() in self._known for tensor in (a, b)]
        x, weight = (columns, rows) if is_weight == [True, False] else (rows, columns)
        fan_out = self._of_rows(weight)
        found = fan_out.products_of(x)
        if is_weight[0] == is_weight[1]:
            # Elements of -1, 0 and 1 alone in one of two inputs suffice, as in attention.
            found = replace(found, unit=found.unit or fan_out.unit)
        return _once_per_step(found, b, call)

    def _of_weight(self, tensors: tuple[Tensor, ...], key: Any, make: Callable[[], FanOut]) -> FanOut:
        """Returns the fan-outs of a weight, made once for the net's own and anew for others.

        Args:
            tensors: what they follow from, the weight first.
            key: what else they follow from.
            make: makes them.
        """
        known = tensors[0].untyped_storage().data_ptr() in self._known
        if not known or any(map(Tensor.is_inference, tensors)):
            return make()
        full = (*map(_contents, tensors), key)
        if full not in self._cache:
            # The tensors are held, so that their addresses stay their own.
            self._cache[full] = (tensors, make())
        return self._cache[full][1]


def _contents(x: Tensor) -> tuple[Any, ...]:
    """Returns a key of a live tensor that changes when the tensor is written."""
    return x.untyped_storage().data_ptr(), x.storage_offset(), x.shape, x.stride(), x._version


def _of_delays(args: dict[str, Any], call: CountedCall) -> Products:
    """Products of a fully connected map whose events arrive later, or of a convolution that runs as one."""
    x, weight = args["x"], args["weight"]
    how = weight, args["delay"].detach(), args["rounded"], len(x)
    counts = nonzero_counts(x.flatten(0, 1))
    additions = 0 if counts.sizes is None else _met_later(x.abs().long(), *how)
    effective, dense = _met_later(x.ne(0), *how), x.numel() * len(weight)
    found = Products(effective, dense, counts.unit, x.numel(), counts.total, additions)
    operator = getattr(call.module, "operator", None)
    if call.x is None or not isinstance(operator, Convolution):
        return found
    assert call.module is not None
    own: Any = call.module.weight
    rows, _ = unfolded_rows(torch.ones_like(call.x[:1, :1]), own, operator)
    dense = call.x.shape[0] * call.x.shape[1] * int(rows.sum()) * len(own)
    return replace(found, dense=dense, inputs=call.x.numel(), nonzero=nonzero(call.x))


def _met_later(
    x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, steps: int, sources: Tensor | None = None
) -> int:
    """Nonzero weights that so many events `[T, N, I]` meet within so many last steps, `delay` steps later.

    An event that arrives between two steps meets a weight in both. `sources` are the inputs of sparse connections.
    """
    whole, rest = split(delay.expand(weight.shape), rounded)
    if sources is None:
        sources = torch.arange(x.shape[2], device=x.device).expand(weight.shape)
    met, before = weight.ne(0), torch.nn.functional.pad(x.sum(1).cumsum(0), (0, 0, 1, 0))
    total = 0
    for arrival, weights in ((whole, met), (whole + 1, met & rest.ne(0))):
        # Events that arrive within the last steps lie between these two.
        first, end = ((step - arrival).clamp(min=0) for step in (len(x) - steps, len(x)))
        total += int((before[end, sources] - before[first, sources])[weights].sum())
    return total


def _space_before_padding(space: Sequence[int], call: CountedCall) -> tuple[int, ...]:
    """Size of the module's input where "same" has added zeros to it, which are no inputs; else that of x."""
    same = getattr(getattr(call.module, "operator", None), "same", False) or (
        getattr(call.module, "padding", None) == "same"
        and getattr(call.module, "padding_mode", None) == "zeros"
    )
    if not same or call.x is None:
        return tuple(space)
    # The op of a layer has two axes at least: the first one of a sequence over one axis has size 1.
    return tuple(map(min, space, call.x.shape[-len(space) :]))


def _once_per_step(found: Products, b: Tensor, call: CountedCall) -> Products:
    """Returns products with b, without dense ones if b has the taps of spikes later than the shortest delay.

    Of a delay's taps at most two steps are not zero: the products with all of them are one step's connections.
    """
    delays = call.module.recurrent_delays if isinstance(call.module, Recurrent) else None
    if delays is None:
        return found
    taps = (delays.max_delay + 2) * b.numel() * b.element_size()
    later = b.storage_offset() > 0 and b.untyped_storage().nbytes() == taps
    return replace(found, dense=0, inputs=0, nonzero=0) if later else found
