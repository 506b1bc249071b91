"""The family of neurons that share one kernel: linear dynamics with one to three states, a threshold and a reset.

A step computes, from K states y and the current x, in this order::

    h = A y + B x + d
    fixed point: each a_ij y_j rounded towards zero and B x to the nearest multiple of 2^-12; h NaN beyond 23 bits
    quadratic:   h_i <- h_i + p_i y_0 y_0 of two states, h_i + p_i y_2 y_i of three; with the reset in the same step
    rectified:   h_0 <- max(0, c_0 h_0)     of one state, with the reset in the same step
    next:   h_i <- keep_i h_i + offset_i    where the last step spiked (reset_time "next")
    u = c . h - threshold;   s = [u >= 0] or [u > 0]
    levels: s = clamp(floor(x), 0, levels) with x = c . h / threshold, rounded x + 1/2; ceil(x) - 1 for [u > 0]; below,
            s offset_i stands for offset_i
    same:   h_i <- keep_i h_i + offset_i    where s = 1 (reset_time "same");   h_0 <- h_0 - s r . h
    y_0 = h_0,   y_k = h_k + p_k h_0  (k > 0, unless quadratic),   y <- y + j s,   y_0 <- max(y_0, floor)
    refractory: s = 0 and y as before the step where left > 0, in fixed point y_0 alone; left <- refractory where s = 1

`keep` 1 and `offset` minus an amount subtract, `keep` 0 and `offset` v_reset set. The coefficients are
differentiable, and one per channel or shared. Gradients: docs/neurons.md; kernels:
cpp/include/snnlib/neurons/linear.h; reference: snnlib/backends/reference/linear.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Parameter

from snnlib.backends.arguments import LinearKernel
from snnlib.backends.flags import Flags
from snnlib.checks import in_transform

Coefficient = float | Tensor


def _zeros() -> list[Coefficient]:
    return []


@dataclass
class Dynamics:
    """Coefficients of a neuron model; vectors shorter than K are filled up with zeros."""

    a: Sequence[Sequence[Coefficient]]
    b: Sequence[Coefficient]
    threshold: Coefficient = math.inf
    d: Sequence[Coefficient] = field(default_factory=_zeros)
    # The membrane alone is compared.
    c: Sequence[Coefficient] = (1.0,)
    # Without a reset.
    keep: Sequence[Coefficient] = (1.0, 1.0, 1.0)
    offset: Sequence[Coefficient] = field(default_factory=_zeros)
    p: Sequence[Coefficient] = field(default_factory=_zeros)
    j: Sequence[Coefficient] = field(default_factory=_zeros)
    r: Sequence[Coefficient] = field(default_factory=_zeros)
    floor: Coefficient = -math.inf
    # Surrogate: shape, peak, inverse width.
    kind: int = 0
    height: Coefficient = 0.0
    scale: Coefficient = 0.0
    # `>` instead of `>=`.
    strict: bool = False
    detach_reset: bool = True
    # True if the jump j loses its gradient; by default it is treated like the reset.
    detach_jump: bool | None = None
    reset_next: bool = False
    # The value of a step: its spikes, or the membrane potential before the reset.
    membrane: bool = False
    # True if the gradient flows to earlier steps.
    through_time: bool = True
    # True if the membrane is scaled by c_0 and not below zero before it is compared.
    rectified: bool = False
    # True if p is of products of states: y_0 y_0 with two of them, y_2 y_i with three.
    quadratic: bool = False
    # True if states are whole multiples of 2^-12 and what they keep is rounded towards zero.
    fixed_point: bool = False
    # Steps after a spike in which the state is held; -1 for all of them.
    refractory: int = 0
    # Most spikes in a step, -1 for no bound; whether they are rounded, and where the surrogate's bump stands.
    levels: int = 1
    rounds: bool = False
    spread: int = 0

    @property
    def linear(self) -> bool:
        """Returns whether a step is linear in state and current but for threshold and reset."""
        return not (self.rectified or self.quadratic)

    @property
    def states(self) -> int:
        """K, not counting the last spike of `reset_next` and the remaining steps of a refractory time."""
        return len(self.b)

    @property
    def options(self) -> Flags:
        """Options as kernels take them."""
        detach_jump = self.detach_reset if self.detach_jump is None else self.detach_jump
        given = {name: getattr(self, name) for name in Flags._fields if name != "detach_jump"}
        return Flags(**given, detach_jump=detach_jump)

    def pack(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Returns the coefficients `[P, C]` (C = 1 where all are shared)."""
        k = self.states
        rows: list[Coefficient] = [value for row in self.a for value in row]
        for values in (self.b, self.d, self.c, self.keep, self.offset, self.p, self.j, self.r):
            rows += [values[i] if i < len(values) else 0.0 for i in range(k)]
        return pack([*rows, self.threshold, self.floor, self.height, self.scale], dtype, device)

    def kernel(self, dtype: torch.dtype, device: torch.device) -> LinearKernel:
        """Returns the neurons as kernels take them."""
        floored = isinstance(self.floor, Tensor) or self.floor != -math.inf
        alike = all_alike(*(value for row in self.a for value in row), *self.b, *self.p)
        tells = self.states == 1 or self.detach_reset or self._resets_membrane
        return LinearKernel(
            self.pack(dtype, device), self.options, alike=alike, floored=floored, tells_resets=tells
        )

    @property
    def _resets_membrane(self) -> bool:
        """Returns whether a reset changes the membrane alone, which alone is compared."""
        others = self.keep[1 : self.states]
        return len(self.c) == 1 and not self.r and all(isinstance(k, float) and k == 1 for k in others)


def all_alike(*rows: Coefficient) -> bool:
    """Returns whether channels share these coefficients."""
    return not any(isinstance(row, Tensor) and row.numel() > 1 for row in rows)


def pack(rows: Sequence[Coefficient], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Stacks rows of numbers and tensors `[]` or `[C]` to one tensor `[P, C]`, C = 1 if all are shared."""
    tensors = [row for row in rows if isinstance(row, Tensor)]
    eager = not (torch.compiler.is_compiling() or in_transform())
    if eager and device.type == "cpu" and all(_is_number(row) for row in tensors):
        # A single tensor of numbers takes a third of the time that operations on their columns take.
        return torch.tensor([[float(row)] for row in rows], dtype=dtype, device="cpu")
    numbers = [row for row in rows if not isinstance(row, Tensor)]
    # A list: the compiler of torch 2.6 knows no `next` with a default.
    sizes = [row.numel() for row in tensors if row.numel() != 1]
    channels = sizes[0] if sizes else 1
    learned = iter(_columns(tensors, channels, dtype, device))
    fixed = iter(_constant_columns(numbers, channels, dtype, device))
    return torch.stack([next(learned if isinstance(row, Tensor) else fixed) for row in rows])


def _is_number(row: Tensor) -> bool:
    """Returns whether a coefficient is a single value in CPU memory, without a gradient."""
    on_cpu = row.device.type == "cpu" and type(row) in (Tensor, Parameter)
    return on_cpu and row.numel() == 1 and not row.requires_grad


def _columns(
    rows: Sequence[Tensor], channels: int, dtype: torch.dtype, device: torch.device
) -> Sequence[Tensor]:
    """Tensors `[]`, `[1]` or `[channels]` as `[channels]`, in few operations where all have one shape and dtype."""
    if len({(row.shape, row.dtype, row.device) for row in rows}) == 1:
        table = torch.stack(tuple(rows)).to(device, dtype).reshape(len(rows), rows[0].numel())
        return table.expand(-1, channels).unbind()
    return [row.to(device, dtype).reshape(-1).expand(channels) for row in rows]


def _constant_columns(
    rows: Sequence[float], channels: int, dtype: torch.dtype, device: torch.device
) -> Sequence[Tensor]:
    """Numbers as `[channels]`."""
    if device.type == "cpu":
        return torch.tensor(rows, dtype=dtype, device="cpu")[:, None].expand(-1, channels).unbind()
    # Fill kernels, which a recorded graph of a GPU may hold, where a copy from the host may not stand; one for each
    # number, zeros of either sign apart.
    names = [float(row).hex() for row in rows]
    columns = {
        name: torch.full((channels,), float.fromhex(name), dtype=dtype, device=device)
        for name in dict.fromkeys(names)
    }
    return [columns[name] for name in names]


def at_least(x: Tensor, low: float) -> Tensor:
    """Returns `y = max(x, low)`, shape and dtype of x, with `dL/dx = 0` where `x < low` and `dL/dy` elsewhere.

    At the bound itself the gradient passes, as in the kernels: a time constant that starts at one step can learn, and
    a membrane at rest on its floor sees its input. At the bound `torch.clamp` passes the gradient up to torch 2.13 and
    stops it in 2.15. NaN stays NaN.

    >>> x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    >>> y = at_least(x, 0.0)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([0.0, 0.0, 2.0], [0.0, 1.0, 1.0])
    """
    return torch.where(x < low, torch.full_like(x, low), x)


def decay_and_leak(tau: Tensor, discretisation: str) -> tuple[Tensor, Tensor]:
    """Returns the decay of a state per step, `1 - 1/tau` (Euler) or `exp(-1/tau)` (exponential), and 1 minus it."""
    # A learnable time constant may be pushed below one step, where a leak would change sign.
    tau = at_least(tau, 1.0)
    leak = 1 / tau if discretisation == "euler" else 1 - torch.exp(-1 / tau)
    return 1 - leak, leak
