"""Packed arguments of ops: schemas list them one by one, kernels and references take these objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends.fixed_point import check_states
from snnlib.backends.flags import Flags
from snnlib.backends.geometry import ConvOptions, Geometry, geometry
from snnlib.backends.memo import kinds, once
from snnlib.backends.spike_time import SRM_FLAGS, SRM_STATES, SpikeCredit, SpikeTimeFlags, SpikeTimeRows
from snnlib.backends.surrogate import COMPACT, KINDS


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


class Neurons:
    """Checks that the kernels of all neurons share."""

    constants: Tensor
    state: Tensor | None
    # The name in the structs of kernels, and of the constants in errors.
    family: ClassVar[str]
    constants_name: ClassVar[str] = "coefficients"
    # True if the gradient of a mean of spikes goes to its spikes alone, each of which it moves.
    moves_spikes: ClassVar[bool] = True
    is_fixed_point: bool = False
    # Credit of neurons whose inputs have a signal of their own.
    credit: SpikeCredit | None = None
    # True if every neuron has an entry in each step of a layer's record.
    keeps_all: bool = False
    # True if a layer gives input events the gradient by their time.
    times_input: bool = False

    @property
    def taus(self) -> Sequence[float]:
        """The numbers of the credit, as the schemas of ops have them."""
        return self.credit or ()

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Key in a memo."""
        return kinds([self.state, *[part for name, part in vars(self).items() if name != "state"]])

    def from_state(self, state: Tensor | None) -> Self:
        """Returns these neurons with another state."""
        if state is self.state:
            return self
        other = copy(self)
        # The other parts of the key stay.
        vars(other).update(state=state, key=(*kinds((state,)), *self.key[1:]))
        return other

    @property
    def states(self) -> int:
        """Variables of the state, K."""
        raise NotImplementedError

    @property
    def variables(self) -> int:
        """Variables of the dynamics, K or fewer, without states that options add."""
        return self.states

    @property
    def state_names(self) -> Sequence[str]:
        """Names of the state's variables, for errors."""
        return [f"state {i}" for i in range(self.states)]

    @property
    def learned(self) -> Sequence[int]:
        """Rows of the constants that kernels give gradients of."""
        return range(len(self.constants))

    def of_samples(self, samples: slice) -> Self:
        """Returns these neurons with the state of some samples only."""
        return self.from_state(None if self.state is None else self.state[:, samples])

    def settings(self) -> dict[str, Any]:
        """Returns numbers and options by the names of the kernels' struct."""
        raise NotImplementedError

    def native(self, constants: Tensor) -> dict[str, Any]:
        """Returns the fields of the kernels' struct, with the constants as a kernel reads them."""
        return {"rows": constants, "period": max(constants.shape[-1:].numel(), 1), "flags": self.settings()}

    def tensors(self) -> dict[str, Tensor | None]:
        """Returns the tensors by the names that errors give them."""
        return {self.constants_name: self.constants, "state": self.state}

    def check(self, channels: int, like: Tensor) -> None:
        """Checks constants and options of neurons in this number of channels."""
        raise NotImplementedError

    def check_sequence(self, current: Tensor) -> None:
        """Checks currents `[T, N, ...]`, and the neurons that get them."""
        checks.check_kernel_dtype("current", current)
        if self.is_fixed_point and current.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"current: expected torch.float32 or torch.float64, which hold fixed-point numbers of 23 bits, got "
                f"{current.dtype}"
            )
        checks.check_rank("current", current, "[T, N, ...]", at_least=2)
        self.check(current.shape[2] if current.dim() > 2 else 1, current)
        self.check_state(self.state, current.shape[1:], current)

    def check_state(
        self, state: Tensor | None, step: Sequence[int], like: Tensor, name: str = "state"
    ) -> None:
        """Checks a state of these neurons, or its gradient, for steps `[N, C, ...]`."""
        checks.check_state_shape(state, self.state_names, step, like, name)

    def check_layer(self) -> None:
        """Checks that the kernels of a layer support these neurons."""

    def check_record(self) -> None:
        """Checks that a layer's record can suffice for the gradients."""

    def check_gradients(self, of_state: bool) -> None:
        """Checks that the record suffices for the requested gradients, `of_state` among them."""

    def check_final(self, state: Tensor | None) -> None:
        """Checks that the last states, if known, did not overflow fixed point."""
        if state is not None and self.is_fixed_point:
            check_states(state)


@dataclass(frozen=True)
class LinearKernel(Neurons):
    """Neurons of the linear family (`neurons/dynamics.py`): `LinearRows` of neurons/linear.h and `LinearFlags`.

    Args:
        constants: coefficients `[P, C]`.
        options: of the call.
        state: before the first step `[K, N, ...]`; None: zero.
        alike: whether all channels decay alike, so that their adjoint in a layer is one field over inputs.
        floored: whether the membrane has a floor.
        tells_resets: whether the compared value of a step determines the gradient of its reset.
    """

    constants: Tensor
    options: Flags
    state: Tensor | None = None
    alike: bool = False
    floored: bool = True
    tells_resets: bool = False

    family, moves_spikes = "linear", False
    # The adjoint of a state is a sum over entries, whose order depends on where a chunk ends; by currents it does not.
    records_states, reorders = False, True

    @property
    def flags(self) -> list[int]:
        """Options as the schemas of ops have them."""
        return list(map(int, self.options))

    @property
    def states(self) -> int:
        """See `Neurons.states`."""
        return self.variables + self.options.reset_next + (self.options.refractory != 0)

    @property
    def variables(self) -> int:
        """See `Neurons.variables`."""
        # A number, where a compiler has a symbol.
        return count_states(int(self.constants.shape[0]))

    @property
    def is_fixed_point(self) -> bool:  # type: ignore[override]
        """Returns whether states are whole multiples of 2^-12."""
        return self.options.fixed_point

    @property
    def runs_in_layer(self) -> bool:
        """Returns whether the kernels of a layer support these neurons: one or two linear states, and spikes."""
        options = self.options
        nonlinear = self.floored or options.rectified or options.quadratic
        return self.variables <= 2 and not (nonlinear or options.reset_next or options.membrane)

    @property
    def records(self) -> bool:
        """Returns whether a layer's record suffices for the gradients of weights and inputs."""
        # Entries of two states at every step take longer than currents.
        few = self.variables == 1 or not self.keeps_all
        return self.alike and self.tells_resets and few and not self.options.refractory

    @property
    def keeps_all(self) -> bool:  # type: ignore[override]
        """Returns whether no bump is zero away from the threshold."""
        return not COMPACT[KINDS[self.options.kind]]

    @property
    def pools(self) -> bool:
        """Returns whether the kernels of a scan can also pool."""
        options = self.options
        return self.variables == 1 and not (options.reset_next or options.membrane or options.fixed_point)

    @property
    def recurs(self) -> bool:
        """Returns whether the kernels of recurrent layers support these neurons, whose values are spikes."""
        return not self.options.membrane

    def settings(self) -> dict[str, float]:
        """Returns the fields of `LinearFlags`."""
        options = self.options._asdict()
        return {"surrogate": options.pop("kind"), **options}

    def check(self, channels: int, like: Tensor) -> None:
        """See `Neurons.check`."""
        checks.check_coefficients(self.constants, channels, like)
        check_dynamics(self.options, self.variables)

    def check_layer(self) -> None:
        """See `Neurons.check_layer`."""
        options = self.options
        if options.reset_next or options.membrane or options.rectified or options.quadratic:
            raise ValueError(
                "flags: expected a reset in the same step, spikes as values, no rectified membrane and no products of "
                f"states, got {options}"
            )
        one, two = (len(row_names(states)) for states in (1, 2))
        if len(self.constants) not in (one, two):
            raise ValueError(
                f"coefficients: expected {one} rows for one state or {two} for two, got shape "
                f"{tuple(self.constants.shape)}"
            )

    def check_record(self) -> None:
        """See `Neurons.check_record`: it lacks steps of a refractory time."""
        if self.options.refractory:
            raise ValueError(
                f"flags: expected no refractory time beside a record, got {self.options.refractory} steps"
            )


@dataclass(frozen=True)
class SpikeTimeKernel(Neurons):
    """Neurons whose spike times are differentiated: `SynapseRows` and `SynapseFlags` of neurons/synapse.h.

    Args:
        constants: coefficients `[9, C]` in the order of `SpikeTimeRows`, `[10, C]` with a credit.
        options: of the call.
        state: before the first step `[K, N, ...]`; None: zero.
        alike: whether all channels decay alike, so that their adjoint in a layer is one field over inputs.
        credit: of SRM neurons, whose spikes reset all states; None: the time of a spike alone.
    """

    constants: Tensor
    options: SpikeTimeFlags
    state: Tensor | None = None
    alike: bool = False
    credit: SpikeCredit | None = None

    family = "exact"
    runs_in_layer = True
    recurs = False

    @property
    def flags(self) -> list[int]:
        """Options as the schemas of ops have them, none beside a credit."""
        return [] if self.credit else list(map(int, self.options))

    @property
    def times_input(self) -> bool:  # type: ignore[override]
        """See `Neurons.times_input`."""
        return self.options.by_time

    @property
    def states(self) -> int:
        """See `Neurons.states`."""
        return len(SRM_STATES) if self.credit else 2 + bool(self.options.refractory)

    @property
    def state_names(self) -> Sequence[str]:
        """See `Neurons.state_names`."""
        return SRM_STATES if self.credit else super().state_names

    @property
    def pools(self) -> bool:
        """Returns whether the kernels of a scan can also pool."""
        return self.credit is not None

    @property
    def records(self) -> bool:
        """Returns whether a layer's record suffices for the gradients: it lacks the end of refractory times."""
        return self.alike and self.options.refractory <= 0

    @property
    def records_states(self) -> bool:
        """Returns whether the record tells gradients of states, too, wherever a sequence is cut."""
        return self.credit is not None

    @property
    def reorders(self) -> bool:
        """Returns whether the record tells gradients of states too, in another order of sums: not of a last spike."""
        return not self.options.refractory

    def settings(self) -> dict[str, float]:
        """Returns the fields of `SynapseFlags`."""
        return {**self.options._asdict(), "srm": self.credit is not None}

    def check(self, channels: int, like: Tensor) -> None:
        """See `Neurons.check`."""
        if self.credit:
            checks.check_time_constants(*self.credit[:3])
            checks.check_grad_clamp(self.credit.grad_clamp)
        checks.check_coefficients(self.constants, channels, like)
        rows = len(SpikeTimeRows._fields) - (self.credit is None)
        checks.check_shape("coefficients", self.constants, (rows, self.constants.shape[1]))

    def check_gradients(self, of_state: bool) -> None:
        """See `Neurons.check_gradients`."""
        refractory = self.options.refractory
        if refractory < 0 and of_state:
            raise ValueError(
                "grad_state: expected no gradients of states of neurons that fire once (refractory -1)"
            )
        if refractory > 0:
            raise ValueError(
                f"flags: expected a refractory time of 0 or -1, as none that ends is on the record, got {refractory}"
            )


NeuronKernel = LinearKernel | SpikeTimeKernel


def neuron_kernel(
    constants: Tensor, state: Tensor | None, flags: Sequence[int] = (), taus: Sequence[float] = ()
) -> NeuronKernel:
    """Returns the kernel of an op's flat arguments: `taus` of a credit, flags of other neurons.

    Raises:
        ValueError: flags beside taus, or flags of neither family.
    """
    if len(taus):
        if len(taus) != len(SpikeCredit._fields) or len(flags):
            raise ValueError(
                "taus: expected tau_m, tau_s, tau_grad and grad_clamp without flags, or none beside flags, "
                f"got {list(taus)} and flags {list(flags)}"
            )
        return SpikeTimeKernel(constants, SRM_FLAGS, state, True, SpikeCredit(*taus))
    if len(flags) == len(SpikeTimeFlags._fields):
        return SpikeTimeKernel(constants, SpikeTimeFlags.of(flags), state)
    return LinearKernel(constants, Flags.of(flags), state)


def check_dynamics(options: Flags, states: int) -> None:
    """Checks that a neuron with this number of states can have these options."""
    got = f"got {[int(flag) for flag in options]} and {states} states"
    if options.rectified and (options.reset_next or states > 1):
        raise ValueError(
            f"flags: expected a rectified membrane with one state and a reset in the same step, {got}"
        )
    if options.quadratic and (options.reset_next or states == 1):
        raise ValueError(
            f"flags: expected products of states with two or three of them and a reset in the same step, {got}"
        )
    special = options.rectified or options.quadratic or options.fixed_point or options.refractory
    if options.graded and (special or states > 2):
        raise ValueError(
            f"flags: expected several levels with one or two linear states and without a refractory time, {got}"
        )
    if options.fixed_point and (options.reset_next or options.rectified or options.quadratic):
        raise ValueError(f"flags: expected linear fixed-point states and a reset in the same step, {got}")


class Windows(NamedTuple):
    """Windows over the space axes of frames `[N, C, *space]`, with torch's options."""

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int | None = None

    @classmethod
    def nonoverlapping(cls, window: Sequence[int]) -> Windows:
        """Returns windows without overlap and padding; pixels outside of windows are left out."""
        return cls(window, window, [0] * len(window))

    def counts(self, space: Sequence[int]) -> list[int]:
        """Returns the number of windows along each axis; with `ceil_mode` the last starts inside the padded input."""
        counts = []
        for size, extent, step, zeros in zip(space, self.kernel, self.stride, self.padding, strict=True):
            count = (size + 2 * zeros - extent + (step - 1 if self.ceil_mode else 0)) // step + 1
            counts.append(count - int(self.ceil_mode and (count - 1) * step >= size + zeros))
        return counts

    def dilated(self, gaps: Sequence[int]) -> Windows:
        """Returns the windows that contain these windows after dilation."""
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
    """Delays `[H, H]` of recurrent connections up to `longest` steps, and earlier spikes that have not arrived yet.

    `past` is `[longest + 2, N, H]`, the newest first; with `rounded` whole steps count alone. Sparse connections have
    delays `[C]`.
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

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Key in a memo."""
        return kinds((self.x, self.weight)), self.options, tuple(self.pool)

    @cached_property
    def geometry(self) -> Geometry:
        """Sizes of the convolution."""
        return geometry(self.x, self.weight, self.options)

    @once
    def check(self) -> None:
        """Checks sizes and options of the convolution and of the windows."""
        checks.check_conv_sizes(self.x, self.weight, *self.options, self.pool)

    @property
    def tasks(self) -> int:
        """Work items of the kernels."""
        return self.geometry.batch * self.geometry.bands(self.pool[0])[1]

    @property
    def band(self) -> int:
        """Rows of neurons per work item of the kernels, which the order of a record follows."""
        return self.geometry.bands(self.pool[0])[0]
