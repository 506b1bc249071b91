"""What several ops are told, packed: an op's schema spells it out, and everything behind it takes these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from snnlib import checks
from snnlib.backends.reference.linear import Flags, count_states
from snnlib.backends.reference.srm import Decay, decay_factors

SRM_STATES = ("u", "s", "g")


@dataclass(frozen=True)
class NeuronArgs:
    """Neurons: of the linear family by coefficients and flags, or of the spike response model by thresholds and taus.

    Args:
        constants: coefficients `[P, C]` (`neurons/dynamics.py`), or a threshold, `[]` or `[C]`.
        state: before the first step `[K, N, ...]`; None: zero.
        flags: options of the linear family, as `Flags` has them; none for the spike response model.
        taus: tau_m, tau_s, tau_grad and grad_clamp of the spike response model; none for the linear family.
    """

    constants: Tensor
    state: Tensor | None
    flags: Sequence[int] = ()
    taus: Sequence[float] = ()

    @property
    def is_srm(self) -> bool:
        """Whether these are neurons of the spike response model, which have two signals instead of a gradient."""
        return len(self.taus) > 0

    @property
    def states(self) -> int:
        """Variables of the state, K."""
        if self.is_srm:
            return len(SRM_STATES)
        return count_states(len(self.constants)) + bool(self.flags[Flags._fields.index("reset_next")])

    @property
    def state_names(self) -> Sequence[str]:
        """Of the state's variables, for errors."""
        return SRM_STATES if self.is_srm else [f"state {i}" for i in range(self.states)]

    @cached_property
    def options(self) -> Flags:
        """The flags of the linear family by name; raises ValueError for others."""
        return Flags.of(self.flags)

    @cached_property
    def decay(self) -> Decay:
        """Factors of the spike response model."""
        tau_m, tau_s, tau_grad, _ = self.taus
        return decay_factors(tau_m, tau_s, tau_grad)

    @property
    def clamp(self) -> float:
        """Bound of the time per potential of the spike response model."""
        return self.taus[-1]

    def tensors(self) -> dict[str, Tensor | None]:
        """The tensors by the names that errors give them."""
        return {self.constants_name: self.constants, "state": self.state}

    @property
    def constants_name(self) -> str:
        return "threshold" if self.is_srm else "coefficients"

    def check(self, channels: int, like: Tensor) -> None:
        """Checks constants, options and numbers of neurons in so many channels."""
        if not self.is_srm:
            options = self.options
            checks.check_coefficients(self.constants, channels, like)
            check_dynamics(options, count_states(len(self.constants)))
            return
        if len(self.taus) != len(("tau_m", "tau_s", "tau_grad", "grad_clamp")) or len(self.flags):
            raise ValueError(
                "taus: expected tau_m, tau_s, tau_grad and grad_clamp without flags, or none beside flags, "
                f"got {list(self.taus)} and flags {list(self.flags)}"
            )
        tau_m, tau_s, tau_grad, grad_clamp = self.taus
        checks.check_time_constants(tau_m, tau_s, tau_grad)
        checks.check_grad_clamp(grad_clamp)
        checks.check_threshold(self.constants, channels, like)

    def check_sequence(self, current: Tensor, time_dim: int) -> None:
        """Checks currents `[T, N, ...]`, or `[N, T, ...]` with `time_dim` 1, and the neurons that get them."""
        checks.check_kernel_dtype("current", current)
        checks.check_rank("current", current, "[T, N, ...]", at_least=2)
        checks.check_time_dim(time_dim)
        self.check(current.shape[2] if current.dim() > 2 else 1, current)
        self.check_state(self.state, checks.step_shape(current.shape, time_dim), current)

    def check_state(
        self, state: Tensor | None, step: Sequence[int], like: Tensor, name: str = "state"
    ) -> None:
        """Checks a state of these neurons, or its gradient, for steps `[N, C, ...]`."""
        checks.check_state_shape(state, self.state_names, step, like, name)


def check_dynamics(options: Flags, states: int) -> None:
    """Check that a neuron of so many states can have these options."""
    got = f"got {[int(flag) for flag in options]} and {states} states"
    if options.rectified and (options.reset_next or states > 1):
        raise ValueError(
            f"flags: expected a rectified membrane with one state and a reset in the same step, {got}"
        )
    if options.quadratic and (options.reset_next or states == 1):
        raise ValueError(
            f"flags: expected products of states with two or three of them and a reset in the same step, {got}"
        )
