"""Arguments of the ops of recurrent neurons, packed and checked; `recurrent_call.py` calls the kernels with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import native
from snnlib.backends.arguments import Delays, LinearKernel
from snnlib.backends.flags import Flags
from snnlib.backends.geometry import GROUP
from snnlib.backends.memo import kind, once
from snnlib.backends.native import state_dtype
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.backends.reference.sparse import Rows
from snnlib.ops.delay import check_delays
from snnlib.ops.sequence_layout import contiguous, outer_strides
from snnlib.ops.sparse_linear import check_rows, given, reference_rows

# Steps of all neurons that the kernels with delays can number, less than 2^31.
_MOST_STEPS = 1 << 30


def unsupported(like: Tensor, neurons: int) -> str:
    """Returns why kernels of a tensor's device cannot take this number of neurons; empty if they can."""
    if not native.has_kernel("recurrent_forward", like):
        return native.explain_path(like.device.type, "recurrent_forward")[1]
    most = native.most_recurrent_neurons(like)
    if most is None or neurons <= most:
        return ""
    return f"recurrent kernels of {like.device.type} take up to {most} neurons, got {neurons}"


@dataclass
class RecurrentArgs:
    """Arguments of both ops, in their order; in the backward pass `current` includes the recurrent currents.

    `flags` are those of the linear family, or a program. Without a delay a spike arrives one step later, and the
    state's last row holds the spikes of the step before. With delays `[H, H]` of up to `longest` steps, `past`
    `[longest + 2, N, H]` holds the earlier spikes, the newest first. With `starts` and `targets` connections are
    sparse, with weights and delays `[C]`. With `eprop` no gradient comes back through recurrent spikes.
    """

    current: Tensor
    weight: Tensor
    starts: Tensor | None
    targets: Tensor | None
    delay: Tensor | None
    coefficients: Tensor
    state: Tensor | None
    past: Tensor | None
    lengths: Tensor | None
    flags: Sequence[int] | ProgramKernel
    longest: int
    rounded: bool
    eprop: bool

    @classmethod
    def of(cls, c: SimpleNamespace, current: Tensor) -> RecurrentArgs:
        """Returns currents, or their sums, with the arguments of an op that have a field."""
        given = vars(c)
        return cls(current, *[given[name] for name in cls.__match_args__[1:]])

    def __post_init__(self) -> None:
        flags, constants, state = self.flags, self.coefficients, self.state
        self.neuron: LinearKernel | ProgramKernel
        if isinstance(flags, ProgramKernel):
            self.neuron = replace(flags, constants=constants, state=state)
        else:
            self.neuron = LinearKernel(constants, Flags.of(flags), state)

    @property
    def matrix(self) -> Tensor | Rows:
        """Returns the weights for the reference."""
        if self.starts is None:
            return self.weight
        starts, targets = self.starts.contiguous(), given(self.targets).contiguous()
        return reference_rows(self.weight, starts, targets, self.current.shape[2])

    @property
    def delays(self) -> Delays | None:
        """Delays of the connections; None if they have none."""
        return None if self.delay is None else Delays(self.delay, self.past, self.longest, self.rounded)

    @property
    def spikes_back(self) -> bool:
        """Returns whether gradients come back through recurrent spikes."""
        neuron = self.neuron
        return not self.eprop and (isinstance(neuron, ProgramKernel) or neuron.options.through_time)

    @property
    def states(self) -> int:
        """Rows of the state."""
        return self.neuron.states + (self.delay is None)

    @property
    def step(self) -> tuple[int, int]:
        """Samples and neurons of a step."""
        return self.current.shape[1], self.current.shape[2]

    def empty_state(self) -> Tensor:
        dtype = state_dtype(self.current)
        return self.current.new_empty((self.states, *self.step), dtype=dtype)

    def check_state(self, name: str, state: Tensor | None) -> None:
        rows = [*self.neuron.state_names, *(["spikes"] if self.delay is None else [])]
        checks.check_state_shape(state, rows, self.step, self.current, name)

    @property
    def key(self) -> tuple[Any, ...]:
        """Key in a memo."""
        return tuple(kind(getattr(self, name)) for name in type(self).__match_args__)

    def check(self, name: str = "current") -> Tensor | None:
        """Checks all arguments, and returns the lengths as kernels take them."""
        self._check_kinds(name)
        if self.starts is not None:
            check_rows(self.current, self.weight, self.starts, given(self.targets))
        if self.delay is not None:
            self._check_delay(self.delay)
        if self.lengths is None:
            return None
        return checks.check_lengths(self.lengths, self.current).contiguous()

    @once
    def _check_kinds(self, name: str) -> None:
        current, neuron = self.current, self.neuron
        checks.check_kernel_dtype(name, current)
        checks.check_rank(name, current, "[T, N, H]", exactly=3)
        neuron.check(current.shape[2], current)
        if not neuron.constants.shape[1]:
            raise ValueError(
                f"coefficients: expected [P, C] with at least one column, got shape {tuple(neuron.constants.shape)}"
            )
        if not neuron.recurs:
            raise ValueError("flags: expected spikes as values, got membrane potentials")
        neurons = current.shape[2]
        checks.check_kernel_dtype("weight", self.weight)
        checks.check_device("weight", self.weight, current)
        if self.starts is None:
            checks.check_shape("weight", self.weight, (neurons, neurons), "shape [H, H]")
        self.check_state("state", neuron.state)
        if self.past is not None:
            self._check_past(self.past)

    def _check_delay(self, delay: Tensor) -> None:
        checks.check_tensor("delay", delay)
        check_delays(self.current, delay, self.weight)
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

    def struct(self, lengths: Tensor | None) -> dict[str, Any]:
        """Returns the fields of `RecurrentArgs` of cpp/include/snnlib/loop/recurrent.h that both passes share."""
        current, weight, state = self.current, self.weight, self.state
        (batch, neurons), steps, dtype = self.step, len(current), state_dtype(current)
        step, sample = outer_strides(current, neurons)
        row, longest, delay = -(-neurons // GROUP) * GROUP, 0, self.delay
        if delay is not None:
            # Kernels tell delays by their address, which a tensor without connections lacks.
            delay = delay.to(dtype).contiguous() if delay.numel() else current.new_zeros(1, dtype=dtype)
            # Without a past the sequence's own spikes never arrive later than this.
            longest = self.longest if self.past is not None else min(self.longest, steps)
            state = self._with_past(longest)
        elif self.starts is None:
            weight = current.new_zeros((neurons, row), dtype=dtype)
            weight[:, :neurons] = self.weight.t()
        tensors = {"coefficients": self.coefficients, "state_in": state, "weight": weight}
        return {
            "view": {
                "outer": batch,
                "steps": steps,
                "inner": neurons,
                "outer_stride": sample,
                "step_stride": step,
            },
            "dtype": native.DTYPE_CODES[dtype],
            "states": self.neuron.variables,
            "flags": self.neuron.settings(),
            "period": self.coefficients.shape[1],
            "row": row,
            "delays": {"delay": delay, "longest": longest, "two": not self.rounded},
            "starts": None if self.starts is None else self.starts.contiguous(),
            "targets": None if self.targets is None else self.targets.contiguous(),
            "lengths": lengths,
            "current": contiguous(current.to(dtype), current),
            **native.dense(dtype, **tensors),
        }

    def _with_past(self, longest: int) -> Tensor | None:
        """Returns the neurons' own states and the spikes before the first step; None if both are zero."""
        if self.state is None and self.past is None:
            return None
        own = self.empty_state().zero_() if self.state is None else self.state
        past = own.new_zeros((longest + 2, *self.step)) if self.past is None else self.past.to(own.dtype)
        return torch.cat((own, past))

    def kernel(self, name: str, **others: Tensor) -> Callable[..., Any] | None:
        """Returns the compiled function of a pass, `forward` or `backward`; None if the reference has to run."""
        tensors = {"weight": self.weight, **self.neuron.tensors()}
        if self.delay is not None:
            tensors |= {"delay": self.delay, "past": self.past}
        if isinstance(self.neuron, ProgramKernel):
            return native.kernel(f"program_recurrent_{name}", self.current, **others, **tensors)
        if self.starts is not None:
            return native.kernel(f"sparse_recurrent_{name}", self.current, **others, **tensors)
        # As in a scan: of fixed-point states GPUs have no kernels, and none is found by this name.
        family = "fixed_point" if self.neuron.is_fixed_point and self.current.is_cuda else "recurrent"
        if self.delay is None:
            found = native.kernel(f"{family}_{name}", self.current, **others, **tensors)
            return None if found is None or unsupported(self.current, self.current.shape[2]) else found
        return native.kernel(f"delayed_{family}_{name}", self.current, **others, **tensors)
