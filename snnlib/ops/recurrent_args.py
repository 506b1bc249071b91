"""Arguments of the ops of recurrent neurons, packed and checked; `recurrent_call.py` calls the kernels with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from snnlib import checks
from snnlib.backends import native
from snnlib.backends.arguments import Delays, LinearKernel
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.sparse import Rows
from snnlib.ops.delay import check_delays
from snnlib.ops.sparse_linear import check_rows, given, reference_rows

# Steps of all neurons that the kernels with delays can number, less than 2^31.
_MOST_STEPS = 1 << 30


def unsupported(current: Tensor) -> str:
    """Returns why kernels of the currents' device do not take a sequence of so many neurons; empty if they do."""
    if not native.has_kernel("recurrent_forward", current):
        return native.explain_path(current.device.type, "recurrent_forward")[1]
    most = native.most_recurrent_neurons(current)
    if most is None or current.shape[2] <= most:
        return ""
    return f"recurrent kernels of {current.device.type} take up to {most} neurons, got {current.shape[2]}"


def sparse_rows(starts: Tensor | None, targets: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Returns starts and targets of sparse connections; None of a full matrix."""
    return None if starts is None else (starts.contiguous(), given(targets).contiguous())


@dataclass(frozen=True)
class RecurrentArgs:
    """Currents `[T, N, H]`, or their sums with the recurrent ones, and what meets them.

    Without a delay a spike comes back one step later, and the state's last row has the spikes of the step before. With
    delays `[H, H]` of up to `longest` steps `past` `[longest + 2, N, H]` has those of all steps before, the newest
    first.
    """

    current: Tensor
    weight: Tensor
    delay: Tensor | None
    neuron: LinearKernel
    past: Tensor | None
    lengths: Tensor | None
    longest: int
    rounded: bool
    time_dim: int
    # Starts and targets of sparse connections, whose weights are `[C]`.
    rows: tuple[Tensor, Tensor] | None = None

    @property
    def matrix(self) -> Tensor | Rows:
        """The weights for the reference."""
        if self.rows is None:
            return self.weight
        return reference_rows(self.weight, *self.rows, self.current.shape[2])

    @property
    def delays(self) -> Delays:
        """The arguments of connections with delays."""
        assert self.delay is not None
        return Delays(self.delay, self.past, self.longest, self.rounded)

    @property
    def states(self) -> int:
        """Rows of the state."""
        return self.neuron.states + (self.delay is None)

    @property
    def step(self) -> tuple[int, int]:
        """Samples and neurons of a step."""
        return self.current.shape[1 - self.time_dim], self.current.shape[2]

    def empty_state(self) -> Tensor:
        dtype = state_dtype(self.current)
        return self.current.new_empty((self.states, *self.step), dtype=dtype)

    def check_state(self, name: str, state: Tensor | None) -> None:
        rows = [f"state {i}" for i in range(self.neuron.states)]
        if self.delay is None:
            rows.append("spikes")
        checks.check_state_shape(state, rows, self.step, self.current, name)

    def check(self, name: str = "current") -> Tensor | None:
        """Checks all, and returns the lengths as the kernels take them."""
        current, neuron = self.current, self.neuron
        checks.check_kernel_dtype(name, current)
        checks.check_rank(name, current, "[T, N, H]", exactly=3)
        checks.check_time_dim(self.time_dim)
        neuron.check(current.shape[2], current)
        if not neuron.constants.shape[1]:
            raise ValueError(
                f"coefficients: expected [P, C] with at least one column, got shape {tuple(neuron.constants.shape)}"
            )
        if neuron.options.membrane:
            raise ValueError("flags: expected spikes as values, got membrane potentials")
        neurons = current.shape[2]
        checks.check_kernel_dtype("weight", self.weight)
        checks.check_device("weight", self.weight, current)
        if self.rows is None:
            checks.check_shape("weight", self.weight, (neurons, neurons), "shape [H, H]")
        else:
            check_rows(current, self.weight, *self.rows)
            if self.delay is not None:
                raise ValueError("delay: expected None with sparse connections, got a tensor")
        if self.delay is not None:
            self._check_delay(self.delay)
        self.check_state("state", neuron.state)
        if self.past is not None:
            self._check_past(self.past)
        if self.lengths is None:
            return None
        return checks.check_lengths(self.lengths, current, self.time_dim).contiguous()

    def _check_delay(self, delay: Tensor) -> None:
        checks.check_tensor("delay", delay)
        check_delays(self.current, delay, self.time_dim, self.weight)
        if self.longest < 0 or (delay.numel() and float(delay.detach().max()) > self.longest):
            raise ValueError(f"longest: expected a number of steps that no delay exceeds, got {self.longest}")
        most = _MOST_STEPS // max(self.current.shape[2], 1)
        if self.longest > most:
            raise ValueError(
                f"longest: expected at most {most} steps for {self.current.shape[2]} neurons, got {self.longest}"
            )

    def _check_past(self, past: Tensor) -> None:
        if self.delay is None:
            raise ValueError("past: expected None without delays, got a tensor")
        checks.check_kernel_dtype("past", past)
        shape = (self.longest + 2, *self.step)
        checks.check_shape("past", past, shape, "spikes of longest + 2 steps [longest + 2, N, H]")
        checks.check_device("past", past, self.current)

    def kernel(self, name: str, **others: Tensor) -> Callable[..., Any] | None:
        """The compiled function of a pass, `forward` or `backward`; None where the reference has to do."""
        tensors = {"weight": self.weight, **self.neuron.tensors()}
        if self.rows is not None:
            return native.kernel(f"sparse_recurrent_{name}", self.current, **others, **tensors)
        # As in a scan: of fixed-point states GPUs have no kernels, and none is found by this name.
        family = "fixed_point" if self.neuron.is_fixed_point and self.current.is_cuda else "recurrent"
        if self.delay is None:
            found = native.kernel(f"{family}_{name}", self.current, **others, **tensors)
            return None if found is None or unsupported(self.current) else found
        tensors |= {"delay": self.delay, "past": self.past}
        return native.kernel(f"delayed_{family}_{name}", self.current, **others, **tensors)
