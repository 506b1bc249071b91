"""Options, coefficients and credit of neurons whose spike times are differentiated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from snnlib.backends.memo import once

SRM_STATES = ("u", "s", "g")
# Row of a single neuron model: a number or tensor.
Row = TypeVar("Row")


class SpikeTimeFlags(NamedTuple):
    """Options of neurons with spike times; `SynapseFlags` of cpp/include/snnlib/neurons/synapse.h."""

    strict: bool
    reset_current: bool
    # True if input events of a layer get their gradient by time.
    by_time: bool
    # Steps, -1 for ever.
    refractory: int

    @classmethod
    @once
    def of(cls, numbers: Sequence[int]) -> SpikeTimeFlags:
        """Returns the options, from zeros and ones, and steps."""
        *others, refractory = numbers
        if not set(others) <= {0, 1} or refractory < -1:
            raise ValueError(f"flags: expected three of 0 or 1 and a number >= -1, got {list(numbers)}")
        strict, reset_current, by_time = map(bool, others)
        return cls(strict, reset_current, by_time, refractory)


class SpikeTimeRows(NamedTuple, Generic[Row]):
    """Rows of their coefficients `[P, C]`; `SynapseRows` and `SrmRows` of cpp/include/snnlib/neurons/synapse.h."""

    decay_m: Row
    decay_s: Row
    gain_m: Row
    gain_s: Row
    leak: Row
    fall: Row
    reset: Row
    threshold: Row
    bound: Row
    # Decay of the trace that gives the inputs' signal; a row with `SpikeCredit` alone.
    decay_g: Row


# Options of SRM neurons.
SRM_FLAGS = SpikeTimeFlags(strict=False, reset_current=True, by_time=False, refractory=0)


class SpikeCredit(NamedTuple):
    """Credit of SRM neurons, whose inputs have a signal of their own, in the numbers of `neurons.SRM`."""

    tau_m: float
    tau_s: float
    tau_grad: float
    # Largest shift of a spike per unit of potential; infinite: no bound.
    grad_clamp: float

    def settings(self) -> dict[str, float]:
        """Returns the fields of `SrmConstants` of cpp/include/snnlib/neurons/srm.h: factors of a step, in float64."""
        return {
            "e_m": 1 - 1 / self.tau_m,
            "e_s": 1 - 1 / self.tau_s,
            "e_g": 1 - 1 / self.tau_grad,
            "r_s": 1 / self.tau_s,
            "grad_clamp": self.grad_clamp,
        }

    def rows(self, threshold: Tensor) -> SpikeTimeRows[float | Tensor]:
        """Returns the coefficients of SRM neurons, whose state is `decay_s i`."""
        factors = self.settings()
        return SpikeTimeRows(
            decay_m=factors["e_m"],
            decay_s=factors["e_s"],
            gain_m=factors["r_s"],
            gain_s=1.0,
            leak=0.0,
            fall=0.0,
            reset=0.0,
            threshold=threshold,
            # Torch does not convert a number beyond the largest of a dtype.
            bound=self.grad_clamp if self.grad_clamp <= torch.finfo(threshold.dtype).max else math.inf,
            decay_g=factors["e_g"],
        )
