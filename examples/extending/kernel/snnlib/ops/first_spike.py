"""The first spike of every neuron of a sequence; it has no gradient.

Kernel: cpp/cpu/first_spike.cpp; reference: snnlib/backends/reference/first_spike.py.
"""

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import native, reference
from snnlib.ops.sequence_layout import as_walkable, empty_state, view_of


def first_spike(x: Tensor) -> Tensor:
    """Returns the step of every neuron's first spike `[N, ...]` (int32), the number of steps where there is none.

    `x` is `[T, N, ...]` in either memory order of its two leading dimensions, as batch-first modules give views.
    """
    checks.check_kernel_dtype("x", x)
    checks.check_rank("x", x, "[T, N, ...]", at_least=2)
    x = as_walkable(x)
    first = torch.empty_like(empty_state(x, 1)[0], dtype=torch.int32)
    kernel = native.kernel("first_spike", x)
    if kernel is None:
        return first.copy_(reference.first_spike.first_spike(x))
    kernel(view=view_of(x), dtype=native.DTYPE_CODES[x.dtype], x=x, first=first)
    return first
