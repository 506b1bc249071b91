"""The arguments of ops, packed: a schema spells them out, and kernels and references behind it take these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends.fixed_point import check_states
from snnlib.backends.geometry import ConvOptions, Geometry, geometry
from snnlib.backends.surrogate import KINDS

SRM_STATES = ("u", "s", "g")
# Of one neuron model: a number or tensor.
Row = TypeVar("Row")


# Steps that a state in float32 counts one by one.
LONGEST_REFRACTORY = 1 << 24


class Flags(NamedTuple):
    """Options of a call; `Dynamics.flags`."""

    kind: int
    strict: bool
    detach_reset: bool
    detach_jump: bool
    reset_next: bool
    membrane: bool
    through_time: bool
    rectified: bool
    quadratic: bool
    # Exported programs of version 0.2 have no number for it.
    fixed_point: bool = False
    # Steps, -1 for all of them; in the state the steps that are left.
    refractory: int = 0

    @property
    def added_rows(self) -> int:
        """Rows of the state behind the K of the dynamics."""
        return self.reset_next + (self.refractory != 0)

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Flags:
        """Returns the options, from the number of the surrogate, zeros and ones, and steps."""
        count = len(cls._fields)
        fits = count - len(cls._field_defaults) <= len(numbers) <= count
        given = dict(zip(cls._fields[1:], numbers[1:], strict=False))
        steps = given.pop("refractory", 0)
        fits = fits and set(given.values()) <= {0, 1} and -1 <= steps <= LONGEST_REFRACTORY
        if not fits or not 0 <= numbers[0] < len(KINDS):
            raise ValueError(
                f"flags: expected a number from 0 to {len(KINDS) - 1}, {count - 2} of 0 or 1, and refractory steps "
                f"from -1 to {LONGEST_REFRACTORY}, got {list(numbers)}"
            )
        return cls(numbers[0], **{name: bool(flag) for name, flag in given.items()}, refractory=steps)


class ExactFlags(NamedTuple):
    """Options of neurons with exact spike times; `ExactFlags` of cpp/include/snnlib/neurons/exact.h."""

    strict: bool
    reset_current: bool
    # Of layers: whether input events get their gradient by time.
    by_time: bool
    # Steps, -1 for ever.
    refractory: int


class ExactRows(NamedTuple, Generic[Row]):
    """Rows of their coefficients `[P, C]`; `ExactRows` of cpp/include/snnlib/neurons/exact.h."""

    decay_m: Row
    decay_s: Row
    gain_m: Row
    gain_s: Row
    leak: Row
    fall: Row
    reset: Row
    threshold: Row
    bound: Row


def row_names(states: int) -> tuple[str, ...]:
    """Rows of the packed coefficients `[P, C]`, in the order of `LinearRows` in cpp/include/snnlib/neurons/linear.h."""
    k = range(states)
    matrix = [f"a{i}{j}" for i in k for j in k]
    vectors = [f"{name}{i}" for name in ("b", "d", "c", "keep", "offset", "p", "j", "r") for i in k]
    return (*matrix, *vectors, "threshold", "floor", "height", "scale")


def count_states(rows: int) -> int:
    """K from the number of rows of the packed coefficients, `K^2 + 8 K + 4`."""
    states = math.isqrt(rows + 12) - 4
    if states < 1 or states * (states + 8) + 4 != rows:
        raise ValueError(f"coefficients: expected K^2 + 8 K + 4 rows for K states, got {rows}")
    return states


class Decay(NamedTuple):
    """Factors of one time step, computed once in float64 and then rounded to the state's dtype."""

    e_m: float
    e_s: float
    e_g: float
    r_s: float


def decay_factors(tau_m: float, tau_s: float, tau_grad: float) -> Decay:
    """`e_x = 1 - 1/tau_x` and `r_s = 1/tau_s`, tau in time steps."""
    return Decay(1 - 1 / tau_m, 1 - 1 / tau_s, 1 - 1 / tau_grad, 1 / tau_s)


@dataclass(frozen=True)
class NeuronArgs:
    """Neurons by their constants: of the linear family, with exact spike times, or of the spike response model.

    Args:
        constants: coefficients `[P, C]` (`neurons/dynamics.py`, or `ExactRows`), or a threshold, `[]` or `[C]`.
        state: before the first step `[K, N, ...]`; None: zero.
        flags: options of the linear family, as `Flags` has them, or of neurons with exact times, as `ExactFlags`, by
            whose number the two are told apart; none for the spike response model.
        taus: tau_m, tau_s, tau_grad and grad_clamp of the spike response model; none for others.
    """

    constants: Tensor
    state: Tensor | None
    flags: Sequence[int] = ()
    taus: Sequence[float] = ()

    @property
    def is_srm(self) -> bool:
        """Returns whether these are neurons of the spike response model, which have two signals as gradients."""
        return len(self.taus) > 0

    @property
    def is_exact(self) -> bool:
        """Returns whether these are neurons with exact spike times."""
        return len(self.flags) == len(ExactFlags._fields)

    @property
    def moves_spikes(self) -> bool:
        """Returns whether the gradient of a mean of spikes goes to its spikes alone, each of which it moves."""
        return self.is_srm or self.is_exact

    @property
    def states(self) -> int:
        """Variables of the state, K."""
        if self.is_srm:
            return len(SRM_STATES)
        if self.is_exact:
            return 2 + bool(self.exact_flags.refractory)
        return count_states(len(self.constants)) + self.options.added_rows

    @property
    def state_names(self) -> Sequence[str]:
        """Names of the state's variables, for errors."""
        return SRM_STATES if self.is_srm else [f"state {i}" for i in range(self.states)]

    @cached_property
    def options(self) -> Flags:
        """The flags of the linear family by name; raises ValueError for others."""
        return Flags.of(self.flags)

    @property
    def exact_flags(self) -> ExactFlags:
        """The flags of neurons with exact times by name; raises ValueError for others."""
        flags = list(self.flags)
        if not set(flags[:-1]) <= {0, 1} or flags[-1] < -1:
            raise ValueError(f"flags: expected three of 0 or 1 and a number >= -1, got {flags}")
        strict, reset_current, by_time, refractory = flags
        return ExactFlags(bool(strict), bool(reset_current), bool(by_time), refractory)

    @cached_property
    def decay(self) -> Decay:
        """Factors of the spike response model."""
        tau_m, tau_s, tau_grad, _ = self.taus
        return decay_factors(tau_m, tau_s, tau_grad)

    @property
    def clamp(self) -> float:
        """Bound of the time per potential of the spike response model."""
        return self.taus[-1]

    @property
    def srm_constants(self) -> dict[str, float]:
        """`SrmConstants` of cpp/include/snnlib/neurons/srm.h."""
        return {**self.decay._asdict(), "grad_clamp": self.clamp}

    @property
    def linear_flags(self) -> dict[str, int]:
        """`LinearFlags` of cpp/include/snnlib/neurons/linear.h."""
        options = self.options._asdict()
        return {"surrogate": options.pop("kind"), **options}

    def of_samples(self, samples: slice) -> NeuronArgs:
        """Returns these neurons with the state of some samples alone."""
        return replace(self, state=None if self.state is None else self.state[:, samples])

    def tensors(self) -> dict[str, Tensor | None]:
        """The tensors by the names that errors give them."""
        return {self.constants_name: self.constants, "state": self.state}

    @property
    def constants_name(self) -> str:
        return "threshold" if self.is_srm else "coefficients"

    def check(self, channels: int, like: Tensor) -> None:
        """Checks constants, options and numbers of neurons in so many channels."""
        if self.is_exact and not self.is_srm:
            _ = self.exact_flags
            checks.check_coefficients(self.constants, channels, like)
            shape = len(ExactRows._fields), self.constants.shape[1]
            checks.check_shape("coefficients", self.constants, shape)
            return
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

    @property
    def is_fixed_point(self) -> bool:
        """Returns whether states are whole multiples of 2^-12."""
        return not self.is_srm and not self.is_exact and self.options.fixed_point

    def check_sequence(self, current: Tensor, time_dim: int) -> None:
        """Checks currents `[T, N, ...]`, or `[N, T, ...]` with `time_dim` 1, and the neurons that get them."""
        checks.check_kernel_dtype("current", current)
        if self.is_fixed_point and current.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"current: expected torch.float32 or torch.float64, which hold fixed-point numbers of 23 bits, got "
                f"{current.dtype}"
            )
        checks.check_rank("current", current, "[T, N, ...]", at_least=2)
        checks.check_time_dim(time_dim)
        self.check(current.shape[2] if current.dim() > 2 else 1, current)
        self.check_state(self.state, checks.step_shape(current.shape, time_dim), current)

    def check_final(self, state: Tensor | None) -> None:
        """Checks that states after the last step, where they are known, have kept within the bits of fixed point."""
        if state is not None and self.is_fixed_point:
            check_states(state)

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
    if options.fixed_point and (options.reset_next or options.rectified or options.quadratic):
        raise ValueError(f"flags: expected linear fixed-point states and a reset in the same step, {got}")


class Windows(NamedTuple):
    """Windows over the axes behind the first two of frames `[N, C, *space]`, with the meaning of torch's options."""

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int | None = None

    @classmethod
    def nonoverlapping(cls, window: Sequence[int]) -> Windows:
        """Returns windows side by side without padding; cells in none are left out."""
        return cls(window, window, [0] * len(window))

    def counts(self, space: Sequence[int]) -> list[int]:
        """Returns the number of windows along each axis; with `ceil_mode` the last starts inside the padded input."""
        counts = []
        for size, extent, step, zeros in zip(space, self.kernel, self.stride, self.padding, strict=True):
            count = (size + 2 * zeros - extent + (step - 1 if self.ceil_mode else 0)) // step + 1
            counts.append(count - int(self.ceil_mode and (count - 1) * step >= size + zeros))
        return counts

    def dilated(self, gaps: Sequence[int]) -> Windows:
        """Returns the windows that hold these with so many steps from cell to cell."""
        kernel = [gap * (taps - 1) + 1 for gap, taps in zip(gaps, self.kernel, strict=True)]
        return Windows(kernel, *self[1:])

    def check(self, space: Sequence[int], name: str = "kernel") -> None:
        """Raises ValueError unless there are windows in frames of this size; `name` is the argument's."""
        if any(2 * zeros > extent for zeros, extent in zip(self.padding, self.kernel, strict=True)):
            raise ValueError(f"padding: expected at most half of {name} {self.kernel}, got {self.padding}")
        if self.divisor is not None and (not isinstance(self.divisor, int) or self.divisor == 0):
            raise ValueError(f"divisor_override: expected an integer other than 0, got {self.divisor!r}")
        if 0 in space or min(self.counts(space)) < 1:
            raise ValueError(
                f"{name}: expected windows that fit into {tuple(space)}, got {tuple(self.kernel)}"
            )


class Delays(NamedTuple):
    """Delays `[H, H]` of recurrent connections up to `longest` steps, and the spikes on their way at the first.

    `past` is `[longest + 2, N, H]`, the newest first; with `rounded` whole steps count alone.
    """

    delay: Tensor
    past: Tensor | None
    longest: int
    rounded: bool


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

    def check(self) -> None:
        """Checks sizes and options of the convolution and of the windows."""
        checks.check_conv_sizes(self.x, self.weight, *self.options, self.pool)
        checks.check_time_dim(self.time_dim)

    @property
    def band(self) -> int:
        """Rows of neurons that a task of the kernels takes at a time, which the order of a record follows."""
        return self.geometry.bands(self.pool[0])[0]
