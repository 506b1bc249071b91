"""Checks of what the ops are told of neurons, convolutions and pooling, before memory is touched.

The ops of `torch.ops.snnlib` hand addresses and sizes to kernels that trust them, so every body calls these first.
They look at shapes, dtypes, devices and numbers, never at the elements of a tensor, except the few that are indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from snnlib.checks.arguments import MOST_INT32
from snnlib.checks.tensors import (
    check_device,
    check_dtype,
    check_floating,
    check_kernel_dtype,
    check_rank,
    check_shape,
)

# Kernels number the neurons of an output row in 32 bits.
MOST_PLACES = 2**31 - 2**16


def check_axes(name: str, sizes: Sequence[int], axes: int, minimum: int) -> None:
    """Raise ValueError unless there is one integer per axis, each at least `minimum` and of 32 bits."""
    if len(sizes) != axes or any(size < minimum for size in sizes):
        raise ValueError(f"{name}: expected {axes} integers >= {minimum}, got {list(sizes)}")
    # The reference goes by what torch's convolutions and pooling take.
    if any(size > MOST_INT32 for size in sizes):
        raise ValueError(f"{name}: expected integers up to {MOST_INT32}, got {list(sizes)}")


def conv_outputs(
    name: str,
    space: Sequence[int],
    taps: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Cells of a convolution's output along each axis; raises ValueError where the kernel does not fit."""
    outputs = []
    axes = zip(space, taps, stride, padding, dilation, strict=True)
    for axis, (size, count, step, zeros, gap) in enumerate(axes):
        extent, room = gap * (count - 1) + 1, size + 2 * zeros
        if room < extent:
            raise ValueError(
                f"{name}: expected at least {extent} cells on space axis {axis} for the kernel, got {room} with padding"
            )
        outputs.append((room - extent) // step + 1)
    return outputs


def check_conv_channels(x: Tensor, weight: Tensor, groups: int) -> None:
    """Raise ValueError unless x `[T, N, C, ...]` has cells, and the channels of the weight `[O, C / groups, ...]`."""
    if weight.shape[0] % groups:
        raise ValueError(f"groups: expected a divisor of the {weight.shape[0]} output channels, got {groups}")
    if 0 in weight.shape[2:]:
        raise ValueError(f"weight: expected at least one tap on each axis, got shape {tuple(weight.shape)}")
    if 0 in x.shape[3:]:
        raise ValueError(f"x: expected at least one cell on each space axis, got shape {tuple(x.shape)}")
    channels = weight.shape[1] * groups
    if x.shape[2] != channels:
        raise ValueError(f"x: expected {channels} channels in dimension 2, got shape {tuple(x.shape)}")


def check_conv_sizes(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
) -> None:
    """Check x `[T, N, C, (D), H, W]`, the weight `[O, C / groups, ...]` and the options of their convolution."""
    check_kernel_dtype("x", x)
    check_rank("x", x, "[T, N, C, H, W] or [T, N, C, D, H, W]", at_least=5, at_most=6)
    axes = x.dim() - 3
    check_dtype("weight", weight, x.dtype)
    check_rank("weight", weight, f"[C_out, C / groups, ...] with {axes} axes", exactly=axes + 2)
    check_device("weight", weight, x)
    check_axes("stride", stride, axes, 1)
    check_axes("padding", padding, axes, 0)
    check_axes("dilation", dilation, axes, 1)
    check_axes("pool", pool, 2, 1)
    if groups < 1:
        raise ValueError(
            f"groups: expected a divisor >= 1 of the {weight.shape[0]} output channels, got {groups}"
        )
    check_conv_channels(x, weight, groups)
    outputs = conv_outputs("x", x.shape[3:], weight.shape[2:], stride, padding, dilation)
    # Kernels take the rows of all planes as one image, in which no window may reach from plane to plane.
    if axes == 3 and outputs[1] % pool[0]:
        raise ValueError(
            f"pool: expected windows of {outputs[1]} rows or a divisor of it with three space axes, got {pool[0]}"
        )
    row = weight.shape[0] * outputs[-1]
    if row > MOST_PLACES:
        raise ValueError(f"x: expected rows of at most {MOST_PLACES} neurons, got {row}")


def check_record(
    bits: Tensor, record: Tensor, starts: Tensor, shape: Sequence[int], tasks: int, values: int = 2
) -> int:
    """Check what a forward pass kept: `bits` of this shape, and so many numbers of each spike or entry, by task.

    Returns how many of them there are. That a task has as many numbers as its bits say is the kernels' to check, as
    they count the bits.
    """
    check_dtype("bits", bits, torch.int16)
    check_shape("bits", bits, shape)
    check_kernel_dtype("record", record)
    if record.dim() != 2 or record.shape[0] != values:
        raise ValueError(f"record: expected shape [{values}, spikes], got {tuple(record.shape)}")
    check_dtype("starts", starts, torch.int64)
    if starts.dim() != 1 or starts.numel() < tasks + 1:
        raise ValueError(f"starts: expected at least {tasks + 1} numbers, got shape {tuple(starts.shape)}")
    for name, tensor in (("record", record), ("starts", starts)):
        check_device(name, tensor, bits)
    first: list[int] = starts[: tasks + 1].cpu().numpy().tolist()
    if first[0] != 0 or first != sorted(first) or first[-1] > record.shape[1]:
        raise ValueError(
            f"starts: expected numbers that rise from 0 to at most {record.shape[1]}, the spikes on record, "
            f"got {first[0]} to {first[-1]}"
        )
    return first[-1]


def check_conv2d_sizes(
    input_name: str,
    input_size: Sequence[int],
    weight_name: str,
    weight_size: Sequence[int],
    grad_output: Tensor,
    options: tuple[Sequence[int], Sequence[int], Sequence[int], int],
) -> None:
    """Raise ValueError unless a convolution of the input with the weight has the shape of `grad_output`."""
    stride, padding, dilation, groups = options
    for name, size in ((input_name, input_size), (weight_name, weight_size)):
        if len(size) != 4 or min(size) < 0:
            raise ValueError(f"{name}: expected 4 integers >= 0, got {tuple(size)}")
    check_axes("stride", stride, 2, 1)
    check_axes("padding", padding, 2, 0)
    check_axes("dilation", dilation, 2, 1)
    if groups < 1:
        raise ValueError(f"groups: expected an integer >= 1, got {groups}")
    channels = weight_size[1] * groups
    if input_size[1] != channels:
        raise ValueError(
            f"{input_name}: expected {channels} channels in dimension 1 for {weight_name} "
            f"{tuple(weight_size)} and {groups} groups, got {tuple(input_size)}"
        )
    if weight_size[0] % groups:
        raise ValueError(f"groups: expected a divisor of the {weight_size[0]} output channels, got {groups}")
    if weight_size[2] < 1 or weight_size[3] < 1:
        raise ValueError(f"{weight_name}: expected a kernel of at least 1 x 1, got {tuple(weight_size)}")
    outputs = conv_outputs(input_name, input_size[2:], weight_size[2:], stride, padding, dilation)
    expected = input_size[0], weight_size[0], *outputs
    if tuple(grad_output.shape) != expected:
        raise ValueError(
            f"grad_output: expected shape {expected}, the convolution of {input_name} {tuple(input_size)} "
            f"with {weight_name} {tuple(weight_size)}, got {tuple(grad_output.shape)}"
        )


def check_conv2d_tensors(grad_output: Tensor, name: str, operand: Tensor, layout: str) -> None:
    check_floating("grad_output", grad_output)
    check_rank("grad_output", grad_output, "[B, C_out, H_out, W_out]", exactly=4)
    check_floating(name, operand)
    check_rank(name, operand, layout, exactly=4)
    check_dtype(name, operand, grad_output.dtype)
    check_device(name, operand, grad_output)


def check_time_constants(tau_m: float, tau_s: float, tau_grad: float) -> None:
    """Raise ValueError unless all are finite and at least one time step."""
    for name, value in (("tau_m", tau_m), ("tau_s", tau_s), ("tau_grad", tau_grad)):
        if not 1 <= value < math.inf:
            raise ValueError(f"{name}: expected a finite number of time steps >= 1, got {value}")


def check_grad_clamp(grad_clamp: float) -> None:
    """Raise ValueError unless the bound is above 0; infinity means no bound."""
    if not grad_clamp > 0:
        raise ValueError(f"grad_clamp: expected a number > 0, got {grad_clamp}")


def check_coefficients(coefficients: Tensor, channels: int, like: Tensor) -> None:
    """Check a neuron's coefficients `[P, C]`, one column for all channels or one each."""
    check_kernel_dtype("coefficients", coefficients)
    check_device("coefficients", coefficients, like)
    if coefficients.dim() != 2 or coefficients.shape[1] not in (1, channels):
        raise ValueError(
            f"coefficients: expected [P, C] with 1 or {channels} columns, got shape {tuple(coefficients.shape)}"
        )


def check_threshold(threshold: Tensor, channels: int, like: Tensor) -> None:
    """Check one threshold for all neurons or one per channel."""
    check_kernel_dtype("threshold", threshold)
    if threshold.dim() > 0 and tuple(threshold.shape) != (channels,):
        raise ValueError(
            f"threshold: expected a scalar or shape ({channels},), one value per channel, "
            f"got shape {tuple(threshold.shape)}"
        )
    check_device("threshold", threshold, like)


def check_state_shape(
    state: Tensor | None, variables: Sequence[str], sequence: Sequence[int], like: Tensor, name: str = "state"
) -> None:
    """Check the state `[K, N, ...]` of neurons: K variables of one step `sequence` `[N, ...]`; None is a zero state."""
    if state is None:
        return
    check_kernel_dtype(name, state)
    expected = (len(variables), *sequence)
    if tuple(state.shape) != expected:
        names = ", ".join(variables[:-1]) + " and " * (len(variables) > 1) + variables[-1]
        raise ValueError(f"{name}: expected shape {expected} for {names}, got {tuple(state.shape)}")
    check_device(name, state, like)
