"""Layouts of sequences and states in scans: the memory order of the currents."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snnlib.backends.arguments import Neurons
from snnlib.backends.cpu_memory import dense_strides
from snnlib.backends.memo import once
from snnlib.backends.native import DTYPE_CODES, state_dtype
from snnlib.checks import step_shape


@once
def neuron_order(sequence: Tensor) -> tuple[int, ...] | None:
    """Returns the memory order of dimensions `2, 3, ...` if a kernel can read the sequence in place, else None.

    The two leading dimensions must be the outermost ones, in their order, without gaps.
    """
    strides = sequence.stride()
    if sequence.numel() == 0:
        # Nothing to walk, and torch takes any strides of an empty tensor for contiguous.
        return tuple(range(2, sequence.dim()))
    rest = tuple(sorted(range(2, sequence.dim()), key=lambda dim: (-strides[dim], dim)))
    expected = dense_strides(sequence.shape, [0, 1, *rest])
    for dim, size in enumerate(sequence.shape):
        if size != 1 and strides[dim] != expected[dim]:
            return None
    return rest


def as_walkable(sequence: Tensor) -> Tensor:
    """Returns the sequence itself, or a contiguous copy if a kernel cannot read its layout."""
    return sequence if neuron_order(sequence) is not None else sequence.contiguous()


def empty_state(sequence: Tensor, states: int, time_dim: int) -> Tensor:
    """Allocates states `[K, N, ...]`, each in the memory order of one step of the sequence."""
    return state_allocation(sequence, states, time_dim)()


@once
def state_allocation(sequence: Tensor, states: int, time_dim: int) -> Callable[[], Tensor]:
    """Returns a function that allocates states as `empty_state` does."""
    shape = [states, *step_shape(sequence.shape, time_dim)]
    # Neuron dimension `dim` of the sequence is also dimension `dim` here: time went away, the leading K came.
    strides = dense_strides(shape, [0, 1, *(neuron_order(sequence) or ())])
    return partial(torch.empty_strided, shape, strides, dtype=state_dtype(sequence), device=sequence.device)


def laid_out_state(state: Tensor | None, sequence: Tensor, time_dim: int) -> Tensor | None:
    """Returns a state, or its gradient, in the layout of `empty_state`."""
    return None if state is None else empty_state(sequence, len(state), time_dim).copy_(state)


def view_of(sequence: Tensor, time_dim: int) -> dict[str, int]:
    """Returns `SequenceView` of cpp/include/snnlib/core/call.h."""
    first, second = sequence.shape[:2]
    inner = math.prod(sequence.shape[2:])
    if time_dim == 0:
        outer, steps, inner = 1, first, second * inner
    else:
        outer, steps = first, second
    # The stride says nothing if there is a single outer index.
    return {
        "outer": outer,
        "steps": steps,
        "inner": inner,
        "outer_stride": steps * inner if time_dim else 0,
        "step_stride": inner,
    }


def scan_arguments(current: Tensor, neuron: Neurons, constants: Tensor, time_dim: int) -> dict[str, Any]:
    """Returns the fields of `ScanArgsOf` of cpp/include/snnlib/loop/scan_args.h."""
    arguments: dict[str, Any] = {
        "view": view_of(current, time_dim),
        "dtype": DTYPE_CODES[current.dtype],
        "current": current,
        "state_in": laid_out_state(neuron.state, current, time_dim),
    }
    rows = neuron.native(constants)
    return {**arguments, "coefficients": rows.pop("rows"), **rows, "states": neuron.variables}
