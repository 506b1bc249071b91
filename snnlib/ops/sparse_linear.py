"""Calls of the kernels for sparse maps, for the ops of `currents.py`.

Kernels: cpp/include/snnlib/events/sparse.h and cpp/cpu/sparse.cpp; reference: snnlib/backends/reference/sparse.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.delay import slope, split
from snnlib.backends.reference.sparse import Rows
from snnlib.ops.delayed_linear import Delayed
from snnlib.ops.sequence_layout import contiguous, empty_rows, frames_of, sequence_of


class SparseMap(NamedTuple):
    """Events x `[T, N, I]`, weights `[C]` and targets of connections; those of input j begin at index `starts[j]`."""

    x: Tensor
    weight: Tensor
    starts: Tensor
    targets: Tensor
    outputs: int

    def rows(self) -> Rows:
        """Returns the connections for the reference."""
        return reference_rows(self.weight.to(state_dtype(self.x)), self.starts, self.targets, self.outputs)

    def arguments(self) -> dict[str, Any]:
        """Returns `SparseArgs` of cpp/include/snnlib/events/sparse.h."""
        dtype = state_dtype(self.x)
        return {
            "dtype": native.DTYPE_CODES[dtype],
            "frames": self.x.shape[0] * self.x.shape[1],
            "inputs": self.x.shape[2],
            "outputs": self.outputs,
            "x": contiguous(self.x.to(dtype), self.x),
            "weight": self.weight.to(dtype).contiguous(),
            "starts": self.starts.contiguous(),
            "targets": self.targets.contiguous(),
        }

    def check(self) -> None:
        """Checks shapes, dtypes and devices, and indices by `check_rows`."""
        _check_sequence(self.x)
        check_rows(self.x, self.weight, self.starts, self.targets)


def given(targets: Tensor | None) -> Tensor:
    """Returns the targets of connections; raises ValueError if `starts` came without targets."""
    if targets is None:
        raise ValueError("targets: expected the targets of the connections beside starts, got None")
    return targets


@once
def _check_sequence(x: Tensor) -> None:
    checks.check_kernel_dtype("x", x)
    checks.check_rank("x", x, "[T, N, I]", exactly=3)


@once
def _check_kinds(x: Tensor, weight: Tensor, starts: Tensor, targets: Tensor) -> None:
    checks.check_kernel_dtype("weight", weight)
    checks.check_rank("weight", weight, "[connections]", exactly=1)
    checks.check_shape("starts", starts, (x.shape[2] + 1,), "shape [inputs + 1]")
    checks.check_shape("targets", targets, weight.shape, "the weight's shape")
    dtypes = {
        "weight": (weight, weight.dtype),
        "starts": (starts, torch.int64),
        "targets": (targets, torch.int32),
    }
    for name, (tensor, dtype) in dtypes.items():
        checks.check_dtype(name, tensor, dtype)
        checks.check_device(name, tensor, x)


def check_rows(x: Tensor, weight: Tensor, starts: Tensor, targets: Tensor) -> None:
    """Checks the connections of a map of x `[T, N, I]`; kernels check the indices of a row when they read it."""
    _check_kinds(x, weight, starts, targets)
    # A look at other devices would wait for them.
    if starts.is_cpu:
        check_ends(starts, len(targets))


def check_ends(starts: Tensor, count: int) -> None:
    """Checks that the rows cover all connections."""
    ends = (int(starts[0]), int(starts[-1])) if len(starts) else ()
    if ends != (0, count):
        raise ValueError(f"starts: expected 0 to {count}, got {ends} as the first and last")


def check_indices(starts: Tensor, targets: Tensor, outputs: int) -> None:
    """Checks all starts and targets; kernels check only the rows that they read."""
    falls, count = starts.diff() < 0, len(targets)
    if bool(falls.any()):
        row = int(falls.nonzero()[0])
        pair = starts[row : row + 2].tolist()
        raise ValueError(f"starts: expected 0 to {count} in rising order, got {pair} in row {row}")
    least, most = (int(bound) for bound in targets.aminmax()) if count else (0, -1)
    if least < 0 or most >= outputs:
        place = ((targets < 0) | (targets >= outputs)).nonzero()[0]
        row, got = int(torch.searchsorted(starts, place, right=True)) - 1, int(targets[place])
        raise ValueError(f"targets: expected outputs from 0 to {outputs - 1}, got {got} in row {row}")


def reference_rows(values: Tensor, starts: Tensor, targets: Tensor, outputs: int) -> Rows:
    """Returns the connections for the reference; on a CPU it checks their indices, as kernels do."""
    if starts.is_cpu:
        check_indices(starts, targets, outputs)
    return Rows(values, starts, targets)


def forward(call: SparseMap) -> Tensor:
    """Returns currents `[T, N, O]`, float32 (float64 for float64)."""
    call.check()
    x = call.x
    kernel = native.kernel("sparse_currents", x, weight=call.weight)
    wide = state_dtype(x)
    if kernel is None:
        sums = x.new_zeros((x.shape[0] * x.shape[1], call.outputs), dtype=wide)
        return sequence_of(call.rows().add(sums, frames_of(x, x).to(wide)), x)
    out = empty_rows(x, call.outputs, wide)
    kernel(**call.arguments(), out=out)
    return out


def backward(signal: Tensor, call: SparseMap, need_input: bool, need_weight: bool) -> tuple[Tensor, Tensor]:
    """Returns dL/dx and dL/dweight from dL/dcurrents; unneeded gradients have no elements."""
    call.check()
    x = call.x
    checks.check_gradient("signal", signal, (*x.shape[:2], call.outputs), "the currents' shape", x)
    frames = frames_of(signal.to(state_dtype(x)), x).contiguous()
    grad_x, grad_weight = _gradients(frames, call, need_input, need_weight)
    return grad_x.to(x.dtype), grad_weight.to(call.weight.dtype)


def _gradients(signal: Tensor, call: SparseMap, need_input: bool, need_weight: bool) -> tuple[Tensor, Tensor]:
    """Returns gradients from signals `[frames, O]`, whose rows may overlap."""
    x, weight = call.x, call.weight
    grad_x = empty_rows(x, x.shape[2], signal.dtype) if need_input else x.new_empty(0, dtype=signal.dtype)
    grad_weight = weight.new_empty(0, dtype=signal.dtype)
    if need_weight:
        grad_weight = cpu_memory.empty_like(weight, signal.dtype)
    kernel = native.kernel("sparse_gradients", x, signal=signal, weight=weight)
    if kernel is not None:
        kernel(
            **call.arguments(),
            signal=signal,
            signal_row=signal.stride(0),
            grad_x=grad_x if need_input else None,
            grad_weight=grad_weight if need_weight else None,
        )
        return grad_x, grad_weight
    rows = call.rows()
    if need_input:
        grad_x = sequence_of(rows.times(signal), x)
    if need_weight:
        grad_weight = rows.add_gradient(
            torch.zeros_like(grad_weight), frames_of(x, x).to(signal.dtype), signal
        )
    return grad_x, grad_weight


def delayed_backward(
    signal: Tensor, call: Delayed, rows: tuple[Tensor, Tensor], need_weight: bool, need_delay: bool
) -> tuple[Tensor, Tensor]:
    """Returns dL/dweight and dL/ddelay `[C]` of connections that events of `call` pass `delay` steps later.

    `rows` are starts and targets of the connections. Unneeded gradients have no elements. Sums go by sample, then time.
    """
    x, weight, delay, rounded = call
    wide, neurons, starts = state_dtype(x), x.shape[2], rows[0].contiguous()
    whole, rest = split(delay.to(wide), rounded)
    whole = whole.clamp(max=len(x))
    # An event sees the signals of the steps from its own on as one frame, in which a target lies `whole` steps later.
    # Zeros between the samples keep it from the next one's.
    longest = int(whole.max()) if len(whole) else 0
    targets = (whole * neurons + rows[1]).int()
    events, signals = (
        F.pad(part.transpose(0, 1).to(wide), (0, 0, first, longest + 2 - first))
        for first, part in enumerate((x, signal))
    )
    outputs = (longest + 1) * neurons
    flat = F.pad(signals.flatten(), (0, outputs + neurons))
    seen = SparseMap(events, weight, starts, targets, outputs)

    def total(later: int) -> Tensor:
        """Sums `[C]` of events times the signals `whole + later` steps later."""
        frames = flat.as_strided(
            (len(events) * events.shape[1], outputs), (neurons, 1), (1 + later) * neurons
        )
        return _gradients(frames, seen, False, True)[1]

    now = total(0)
    after = now if rounded and not need_delay else total(1)
    grad_weight, grad_delay = weight.new_empty(0), delay.new_empty(0)
    if need_weight:
        grad_weight = (now + rest * (after - now)).to(weight.dtype)
    if need_delay:
        before = total(-1) if rounded else now
        grad_delay = (weight.to(wide) * slope([before, now, after], whole, rounded)).to(delay.dtype)
    return grad_weight, grad_delay
