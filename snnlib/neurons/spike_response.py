"""Constants of SRM neurons, checked, and a chunk of a sequence through them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.arguments import SRM_STATES
from snnlib.checks import (
    check_floating,
    check_number,
    check_rank,
    check_state_shape,
    check_threshold,
    step_shape,
    time_dimension,
)
from snnlib.neurons.base import Output

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
        thresholds = threshold.detach().to(torch.promote_types(like.dtype, torch.float32))
        check_threshold(thresholds, channels, like)
        return thresholds
    check_number("threshold", threshold)
    if not threshold > 0:
        raise ValueError(f"threshold: expected a number > 0, got {threshold}")
    return like.new_full((), threshold, dtype=torch.promote_types(like.dtype, torch.float32))


def check_state(state: Tensor | None, sequence: Sequence[int], like: Tensor, time_dim: int) -> None:
    """Raise ValueError unless `state` is u, s and g `[3, N, ...]` of the neurons of a sequence of shape `sequence`."""
    step = step_shape(sequence, time_dim)
    check_state_shape(state, SRM_STATES, step, like)


def srm_neuron_stream(
    current: Tensor,
    state: Tensor | None,
    neuron: SRMNeuron,
    threshold: float | Tensor = 1.0,
    batch_first: bool = False,
    return_state: bool = True,
) -> Output:
    """One chunk of a sequence: as `srm_neuron`, from `state` (None: zero) and with the state to go on from.

    Gradients flow through the states: chunks give the gradients of the whole.
    """
    check_floating("current", current)
    check_rank("current", current, "[T, N, ...]", at_least=2)
    channels = current.shape[2] if current.dim() > 2 else 1
    thresholds = as_threshold(threshold, current, channels)
    check_state(state, current.shape, current, time_dimension(batch_first))
    taus, time_dim = neuron.constants, time_dimension(batch_first)
    spikes, final = ops.scan.scan_forward(
        current, thresholds, state, (), taus, time_dim, ops.scan.NO_POOLING, return_state
    )
    return Output(spikes, final)


def free_srm_potential(current: Tensor, neuron: SRMNeuron, batch_first: bool) -> Tensor:
    """Membrane potential at every step of neurons that never fire."""
    check_floating("current", current)
    check_rank("current", current, "[T, N, ...]", at_least=2)
    never = as_threshold(torch.finfo(torch.float32).max, current, 1)
    return ops.scan_srm.trace(current.detach(), never, neuron.taus, time_dimension(batch_first))[1]
