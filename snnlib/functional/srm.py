"""SRM neurons as stateless functions: a whole sequence of currents in, a whole spike train out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib import ops
from snnlib.checks import (
    check_floating,
    check_number,
    check_rank,
    check_state_shape,
    check_threshold,
    time_dimension,
)
from snnlib.ops.arguments import SRM_STATES

# Time steps beyond which a decay factor is 1 in any precision.
_LONGEST = 1e15


@dataclass(frozen=True)
class SRMNeuron:
    """Constants of an SRM neuron, checked.

    Args:
        tau_m: membrane time constant in time steps, at least 1.
        tau_s: synaptic time constant in time steps, at least 1.
        tau_grad: time constant of the gradient kernel in time steps, above 1. Default: `tau_s`, the smallest value
            that keeps sums of gradients exactly (see `docs/gradients.md`).
        grad_clamp: bound of `dt/du` per time step in the weight gradient; None for no bound. Default 4, the papers'
            value: `1/delta_u` has no bound of its own.

    Raises:
        ValueError: a constant out of its range.
    """

    tau_m: float = 5.0
    tau_s: float = 3.0
    tau_grad: float | None = None
    grad_clamp: float | None = 4.0

    def __post_init__(self) -> None:
        for name in ("tau_m", "tau_s", "tau_grad", "grad_clamp"):
            value = getattr(self, name)
            if value is not None or name in ("tau_m", "tau_s"):
                check_number(name, value)
        for name, value in (("tau_m", self.tau_m), ("tau_s", self.tau_s)):
            if not 1 <= value <= _LONGEST:
                raise ValueError(f"{name}: expected a finite number of time steps >= 1, got {value}")
        if self.tau_grad is not None and not 1 < self.tau_grad <= _LONGEST:
            raise ValueError(f"tau_grad: expected a finite number of time steps > 1, got {self.tau_grad}")
        if self.tau_grad is None and self.tau_s == 1:
            raise ValueError("tau_grad: expected a number of time steps > 1 beside tau_s = 1, got None")
        if self.grad_clamp is not None and not self.grad_clamp > 0:
            raise ValueError(f"grad_clamp: expected a number > 0 or None, got {self.grad_clamp}")

    @property
    def taus(self) -> tuple[float, float, float]:
        """`(tau_m, tau_s, tau_grad)` with the default filled in."""
        return self.tau_m, self.tau_s, self.tau_s if self.tau_grad is None else self.tau_grad

    @property
    def constants(self) -> tuple[float, float, float, float]:
        """`taus` and the clamp, infinite for none: what the ops take."""
        return *self.taus, math.inf if self.grad_clamp is None else self.grad_clamp

    def stored_numbers(self) -> dict[str, float]:
        """The constants by name, as in files."""
        return dict(zip(("tau_m", "tau_s", "tau_grad", "grad_clamp"), self.constants, strict=True))

    def with_numbers(self, numbers: Mapping[str, float]) -> SRMNeuron:
        """A neuron with constants of `stored_numbers` in the place of its own; itself where these are the same."""
        wanted = self.stored_numbers() | dict(numbers)
        if wanted == self.stored_numbers():
            return self
        clamp = wanted.pop("grad_clamp")
        return SRMNeuron(**wanted, grad_clamp=None if clamp == math.inf else clamp)

    def potential_gain(self) -> float:
        """`sqrt(sum_n eps[n]^2)`: standard deviation of the potential for white input current of variance 1."""
        e_m, e_s = 1 - 1 / self.tau_m, 1 - 1 / self.tau_s
        return math.sqrt((1 + e_m * e_s) / ((1 - e_m**2) * (1 - e_s**2) * (1 - e_m * e_s))) / self.tau_s


def as_threshold(threshold: float | Tensor, like: Tensor, channels: int) -> Tensor:
    """A checked threshold tensor, `[]` or `[channels]`, in the dtype of `like`'s membrane state."""
    if isinstance(threshold, Tensor):
        if threshold.requires_grad:
            raise TypeError(
                "threshold: expected a number or a tensor that is not learned, got one that requires a gradient; "
                "pass threshold.detach()"
            )
        limit = threshold.detach().to(torch.promote_types(like.dtype, torch.float32))
        check_threshold(limit, channels, like)
        return limit
    check_number("threshold", threshold)
    if not threshold > 0:
        raise ValueError(f"threshold: expected a number > 0, got {threshold}")
    return like.new_full((), threshold, dtype=torch.promote_types(like.dtype, torch.float32))


class Streamed(NamedTuple):
    """Spikes of a chunk, and the state `[3, N, ...]` (u, s, g) to hand to the next chunk."""

    spikes: Tensor
    state: Tensor


def srm_neuron(
    current: Tensor,
    *,
    tau_m: float = 5.0,
    tau_s: float = 3.0,
    tau_grad: float | None = None,
    threshold: float | Tensor = 1.0,
    grad_clamp: float | None = 4.0,
    batch_first: bool = False,
) -> Tensor:
    """Spikes of SRM neurons for a sequence of input currents.

    With `e_x = 1 - 1/tau_x`, from zero state and again after every spike::

        u <- e_m u + (s + I) / tau_s        membrane potential
        s <- e_s (s + I)                    synaptic trace
        spike = u >= threshold;             at a spike u = s = 0

    The gradient is event-driven. `dL/dspikes` is read at spikes only and means "more, or earlier, spikes here";
    each step gets `a[t] = dL/ds min(1/delta_u, grad_clamp) eps[dt]` from the first output spike at or after it, the
    implicit derivative of the spike's time. A neuron that never fires gets exactly zero.

    Args:
        current: input current `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        tau_m: membrane time constant in time steps, >= 1.
        tau_s: synaptic time constant in time steps, >= 1; may equal `tau_m`.
        tau_grad: time constant of the input-gradient kernel, > 1 (no effect on spikes). Default `tau_s`.
        threshold: firing threshold in units of the potential, > 0: a number, or a tensor `[C]` for dimension 2.
        grad_clamp: bound of `dt/du` per time step; None for none.
        batch_first: whether the batch dimension comes before time.

    Returns:
        Spikes 0/1, shape and dtype of `current`. A NaN potential gives NaN, not a silent 0.

    Raises:
        TypeError: `current` is no floating tensor.
        ValueError: wrong rank, or a constant out of its range; the message names it.

    Source: Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022, section 3.

    >>> import torch, snnlib
    >>> current = torch.full((8, 1, 1), 1.2)
    >>> snnlib.functional.srm_neuron(current).flatten().tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """
    neuron = SRMNeuron(tau_m, tau_s, tau_grad, grad_clamp)
    return srm_neuron_stream(current, None, neuron, threshold, batch_first, return_state=False).spikes


def check_state(state: Tensor | None, sequence: Sequence[int], like: Tensor, time_dim: int) -> None:
    """Raise ValueError unless `state` is u, s and g `[3, N, ...]` of the neurons of a sequence of shape `sequence`."""
    step = [size for dim, size in enumerate(sequence) if dim != time_dim]
    check_state_shape(state, SRM_STATES, step, like)


def srm_neuron_stream(
    current: Tensor,
    state: Tensor | None,
    neuron: SRMNeuron,
    threshold: float | Tensor = 1.0,
    batch_first: bool = False,
    return_state: bool = True,
) -> Streamed:
    """One chunk of a sequence: as `srm_neuron`, from `state` (None: zero) and with the state to go on from.

    Gradients flow through the states: chunks give the gradients of the whole.
    """
    check_floating("current", current)
    check_rank("current", current, "[T, N, ...]", at_least=2)
    channels = current.shape[2] if current.dim() > 2 else 1
    limit = as_threshold(threshold, current, channels)
    check_state(state, current.shape, current, time_dimension(batch_first))
    taus, time_dim = neuron.constants, time_dimension(batch_first)
    spikes, final = ops.scan.scan_forward(
        current, limit, state, (), taus, time_dim, ops.scan.WHOLE, return_state
    )
    ops.levels.note(spikes, 1)
    return Streamed(spikes, final)


class SRMTrace(NamedTuple):
    """What SRM neurons compute at every step; each has the current's shape and dtype."""

    spikes: Tensor
    potential: Tensor
    delta_u: Tensor
    delta_ut: Tensor


def srm_trace(
    current: Tensor,
    *,
    tau_m: float = 5.0,
    tau_s: float = 3.0,
    tau_grad: float | None = None,
    threshold: float | Tensor = 1.0,
    batch_first: bool = False,
) -> SRMTrace:
    """Spikes with the potential before each reset, for plots and tests; no gradient.

    `potential` is u, `delta_u = u - u_last` the slope that the weight gradient divides by, and `delta_ut` the trace
    `g <- e_g (g + I)` that the input gradient divides by. Arguments and errors as in `srm_neuron`.

    >>> import torch, snnlib
    >>> trace = snnlib.functional.srm_trace(torch.full((3, 1, 1), 1.2, dtype=torch.float64))
    >>> [round(u, 6) for u in trace.potential.flatten().tolist()]
    [0.4, 0.986667, 1.633778]
    """
    check_floating("current", current)
    check_rank("current", current, "[T, N, ...]", at_least=2)
    neuron = SRMNeuron(tau_m, tau_s, tau_grad)
    limit = as_threshold(threshold, current, current.shape[2] if current.dim() > 2 else 1)
    return SRMTrace(*ops.scan_srm.trace(current.detach(), limit, neuron.taus, time_dimension(batch_first)))


def free_srm_potential(current: Tensor, neuron: SRMNeuron, batch_first: bool) -> Tensor:
    """Membrane potential at every step of neurons that never fire."""
    never = torch.finfo(torch.float32).max
    # The gradient's constant changes no potential, but not every tau_s goes without one.
    tau_m, tau_s, tau_grad = neuron.taus
    trace = srm_trace(
        current, tau_m=tau_m, tau_s=tau_s, tau_grad=tau_grad, threshold=never, batch_first=batch_first
    )
    return trace.potential


def srm_backward(
    grad_spikes: Tensor,
    current: Tensor,
    *,
    tau_m: float = 5.0,
    tau_s: float = 3.0,
    tau_grad: float | None = None,
    threshold: float | Tensor = 1.0,
    grad_clamp: float | None = 4.0,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """The two signals of an SRM layer's backward pass, for tests and for layers of your own.

    Each step t is credited to the first spike at or after it, `dt` steps later, with `q = dL/ds` there::

        a[t] = q min(1/delta_u, grad_clamp) eps[dt]        dL/dW = conv_weight_backward(x, a)
        b[t] = q / delta_ut e_g^(dt+1)                     dL/dx = x * conv_input_backward(b, W)

    `b` is 0 where `delta_ut <= 0`. Both are 0 after a neuron's last spike. `grad_spikes` away from spikes is not
    read. Shapes and dtypes of both are `current`'s; arguments and errors as in `srm_neuron`.

    >>> import torch, snnlib
    >>> current = torch.tensor([3.5, 0.0], dtype=torch.float64).reshape(2, 1, 1)
    >>> a, b = snnlib.functional.srm_backward(torch.ones_like(current), current, tau_grad=2.5)
    >>> round(a[0].item(), 6), round(b[0].item(), 6)
    (0.285714, 0.285714)
    """
    check_floating("current", current)
    check_rank("current", current, "[T, N, ...]", at_least=2)
    neuron = SRMNeuron(tau_m, tau_s, tau_grad, grad_clamp)
    limit = as_threshold(threshold, current, current.shape[2] if current.dim() > 2 else 1)
    neurons = current, limit, None, (), neuron.constants, time_dimension(batch_first), ops.scan.WHOLE
    a, b, _, _ = ops.scan.scan_backward(grad_spikes, None, *neurons, True, True, False)
    return a, b
