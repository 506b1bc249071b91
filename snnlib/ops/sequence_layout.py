"""Layouts of sequences `[T, N, ...]` and states in scans: the memory order of the currents.

Batch-first modules give a view of their sequence, in whose memory a sample's steps follow each other. Kernels take
either order of the two leading dimensions, and outputs are laid out like their input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snnlib.backends import cpu_memory
from snnlib.backends.arguments import Neurons
from snnlib.backends.cpu_memory import dense_strides
from snnlib.backends.memo import once
from snnlib.backends.native import DTYPE_CODES, state_dtype


def outer_dims(sequence: Tensor) -> tuple[int, int]:
    """Returns time and batch in memory order: (1, 0) if the steps of a sample follow each other, else (0, 1)."""
    (steps, batch), (step, sample) = sequence.shape[:2], sequence.stride()[:2]
    return (1, 0) if steps > 1 and batch > 1 and sample > step else (0, 1)


@once
def neuron_order(sequence: Tensor) -> tuple[int, ...] | None:
    """Returns the memory order of dimensions `2, 3, ...` if a kernel can read the sequence in place, else None.

    The two leading dimensions must be the outermost ones, in either order, without gaps.
    """
    strides = sequence.stride()
    if sequence.numel() == 0:
        # Nothing to walk, and torch takes any strides of an empty tensor for contiguous.
        return tuple(range(2, sequence.dim()))
    rest = tuple(sorted(range(2, sequence.dim()), key=lambda dim: (-strides[dim], dim)))
    expected = dense_strides(sequence.shape, [*outer_dims(sequence), *rest])
    for dim, size in enumerate(sequence.shape):
        if size != 1 and strides[dim] != expected[dim]:
            return None
    return rest


def contiguous(sequence: Tensor, like: Tensor) -> Tensor:
    """Returns the sequence, or a copy, without gaps and with time and batch in the memory order of `like`."""
    if outer_dims(like) == (0, 1):
        return sequence.contiguous()
    return sequence.transpose(0, 1).contiguous().transpose(0, 1)


def cat(parts: Sequence[Tensor], like: Tensor, dim: int = 0) -> Tensor:
    """`torch.cat` of sequences over time or `dim` 2, with time and batch in the memory order of `like`."""
    if outer_dims(like) == (0, 1):
        return torch.cat(tuple(parts), dim)
    return torch.cat([part.transpose(0, 1) for part in parts], dim or 1).transpose(0, 1)


def empty_rows(like: Tensor, size: int, dtype: torch.dtype | None = None) -> Tensor:
    """Allocates rows `[T, N, size]` with time and batch in the memory order of `like`."""
    return cpu_memory.empty_permuted((*like.shape[:2], size), (*outer_dims(like), 2), like, dtype)


def outer_strides(sequence: Tensor, inner: int) -> tuple[int, int]:
    """Returns the strides of a step and of a sample in a sequence without gaps, whose steps have `inner` elements."""
    steps, batch = sequence.shape[:2]
    return (inner, steps * inner) if outer_dims(sequence)[0] else (batch * inner, inner)


def as_walkable(sequence: Tensor) -> Tensor:
    """Returns the sequence itself, or a contiguous copy if a kernel cannot read its layout."""
    return sequence if neuron_order(sequence) is not None else contiguous(sequence, sequence)


def frames_of(sequence: Tensor, like: Tensor) -> Tensor:
    """Returns the frames `[T N, ...]` of a sequence, in the memory order of `like`."""
    step, sample, *_ = like.stride()
    # Strides of most sequences say it without a further call.
    order = sequence.transpose(0, 1) if sample > step and outer_dims(like)[0] else sequence
    return order.flatten(0, 1)


def sequence_of(frames: Tensor, like: Tensor) -> Tensor:
    """Returns the sequence `[T, N, ...]` of frames in the memory order of `like`."""
    outer, inner = outer_dims(like)
    sequence = frames.view(like.shape[outer], like.shape[inner], *frames.shape[1:])
    return sequence.transpose(0, 1) if outer else sequence


def empty_state(sequence: Tensor, states: int) -> Tensor:
    """Allocates states `[K, N, ...]`, each in the memory order of one step of the sequence."""
    return state_allocation(sequence, states)()


@once
def state_allocation(sequence: Tensor, states: int) -> Callable[[], Tensor]:
    """Returns a function that allocates states as `empty_state` does."""
    shape = [states, *sequence.shape[1:]]
    # Neuron dimension `dim` of the sequence is also dimension `dim` here: time went away, the leading K came.
    strides = dense_strides(shape, [0, 1, *(neuron_order(sequence) or ())])
    return partial(torch.empty_strided, shape, strides, dtype=state_dtype(sequence), device=sequence.device)


def laid_out_state(state: Tensor | None, sequence: Tensor) -> Tensor | None:
    """Returns a state, or its gradient, in the layout of `empty_state`."""
    return None if state is None else empty_state(sequence, len(state)).copy_(state)


def view_of(sequence: Tensor) -> dict[str, int]:
    """Returns `SequenceView` of cpp/include/snnlib/core/call.h."""
    steps, batch = sequence.shape[:2]
    inner = math.prod(sequence.shape[2:])
    outer = 1
    if outer_dims(sequence) == (0, 1):
        inner *= batch
    else:
        outer = batch
    # The stride of the outer index says nothing if there is a single one.
    return {
        "outer": outer,
        "steps": steps,
        "inner": inner,
        "outer_stride": steps * inner,
        "step_stride": inner,
    }


def scan_arguments(current: Tensor, neuron: Neurons, constants: Tensor) -> dict[str, Any]:
    """Returns the fields of `ScanArgsOf` of cpp/include/snnlib/loop/scan_args.h."""
    arguments: dict[str, Any] = {
        "view": view_of(current),
        "dtype": DTYPE_CODES[current.dtype],
        "current": current,
        "state_in": laid_out_state(neuron.state, current),
    }
    rows = neuron.native(constants)
    return {**arguments, "coefficients": rows.pop("rows"), **rows, "states": neuron.variables}
