"""What a convolution with neurons is told, and how its kernels lay out sequences and states: channels-last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native
from snnlib.backends.geometry import GROUP, ConvOptions, Geometry, geometry
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.linear import Flags
from snnlib.ops.arguments import NeuronArgs

# SRM neurons, whose constants go apart, and no neurons, which leaves the currents: see `kernel_neuron`.
_SRM = (0, 0, 1, (0,) * len(Flags._fields))
NONE = (2, 0, 1, (0,) * len(Flags._fields))


@dataclass(frozen=True)
class LayerArgs:
    """The convolution of a layer, of x `[T, N, C, (D), H, W]` with a weight, and the windows of pooling behind it."""

    x: Tensor
    weight: Tensor
    options: ConvOptions
    pool: Sequence[int]
    time_dim: int

    @cached_property
    def geometry(self) -> Geometry:
        """Sizes of the convolution."""
        return geometry(self.x, self.weight, self.options, self.time_dim)


def kernel_neuron(neuron: NeuronArgs, constants: Tensor) -> tuple[int, int, int, tuple[int, ...]]:
    """`Neuron` of cpp/bindings/srm_conv.cpp; its constants are contiguous and float32."""
    if neuron.is_srm:
        return _SRM
    return 1, constants.data_ptr(), constants.shape[1], tuple(neuron.flags)


def kernel(name: str, x: Tensor, **others: Tensor | None) -> Callable[..., Any] | None:
    """The compiled function, None where the reference has to do."""
    # Kernels compute in float32, gradient checks in float64.
    return None if x.dtype == torch.float64 else native.kernel(name, x, **others)


def empty_sequence(
    x: Tensor, channels: int, space: Sequence[int], dtype: torch.dtype | None = None
) -> Tensor:
    """A sequence `[T, N, C, ...]` with x's first two dimensions."""
    return _empty((*x.shape[:2], channels, *space), x, dtype)


def _empty(shape: Sequence[int], x: Tensor, dtype: torch.dtype | None) -> Tensor:
    # No view of another tensor, as autograd lets nobody write into a view that comes out of a function.
    return cpu_memory.empty_permuted(shape, (0, 1, *range(3, len(shape)), 2), x, dtype)


def lie_alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape have their elements in one order; a stride along one element says nothing."""
    strides = zip(a.shape, a.stride(), b.stride(), strict=True)
    return all(first == second for size, first, second in strides if size > 1)


def laid_out(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A sequence or a state in this dtype and channels-last, copied if need be."""
    # Asked of a tensor without memory, as one that is given back unused would leave a gap.
    wanted = _empty(tensor.shape, tensor.new_empty(0, device="meta"), dtype)
    if tensor.dtype == dtype and lie_alike(tensor, wanted):
        return tensor
    return _empty(tensor.shape, tensor, dtype).copy_(tensor)


def output_shape(x: Tensor, g: Geometry, pool: Sequence[int]) -> tuple[int, ...]:
    """Of what the forward pass gives: spikes after pooling."""
    space = g.space[-2:]
    height, width = (size // window for size, window in zip(space, pool, strict=True))
    if height == 0 or width == 0:
        raise ValueError(f"kernel_size: expected windows that fit into {tuple(space)}, got {tuple(pool)}")
    return *x.shape[:2], g.channels, *g.space[:-2], height, width


def empty_output(x: Tensor, g: Geometry, pool: Sequence[int]) -> Tensor:
    """Memory for what the forward pass gives."""
    return _empty(output_shape(x, g, pool), x, None)


def empty_state(x: Tensor, g: Geometry, variables: int) -> Tensor:
    """State of the neurons `[K, N, C, ...]`."""
    return _empty((variables, g.batch, g.channels, *g.space), x, state_dtype(x))


def empty_grad_state(x: Tensor, g: Geometry, variables: int, needed: bool) -> Tensor:
    """dL/dstate of the neurons, without elements where it is not needed."""
    return empty_state(x, g, variables) if needed else x.new_empty(0, dtype=state_dtype(x))


def no_gradient(x: Tensor, weight: Tensor, options: Sequence[Any], time_dim: int) -> Tensor:
    """A gradient of zeros by the output, which has these (stride, padding, dilation, groups, pool)."""
    *map_, pool = options
    return empty_output(x, geometry(x, weight, ConvOptions(*map_), time_dim), pool).zero_()


def empty_bits(x: Tensor, g: Geometry, keep: bool) -> Tensor:
    """Memory for the record's spike bits, without elements unless they are kept."""
    if not keep:
        return x.new_empty(0, dtype=torch.int16)
    shape = bits_shape(x, g)
    return cpu_memory.empty_permuted(shape, range(len(shape)), x, torch.int16)


def bits_shape(x: Tensor, g: Geometry) -> tuple[int, ...]:
    """Of the record's spike bits: 16-bit words of each row of neurons."""
    return (*x.shape[:2], g.height, -(-g.row // GROUP))


def stored(tensor: Tensor | None) -> tuple[int, int]:
    """(address, dtype code)"""
    return (0, 0) if tensor is None else (tensor.data_ptr(), native.DTYPE_CODES[tensor.dtype])


def strided_input(x: Tensor, time_dim: int) -> tuple[tuple[int, int], tuple[int, ...]]:
    """What is stored, and the strides (t, n, c, h, w)."""
    strides = x.stride()
    return stored(x), (strides[time_dim], strides[1 - time_dim], strides[2], *strides[-2:])


def frame_order(g: Geometry, time_dim: int) -> tuple[int, int]:
    """Distance in frames of neighbouring steps and samples in an output of the input's time layout."""
    return (g.batch, 1) if time_dim == 0 else (1, g.steps)
