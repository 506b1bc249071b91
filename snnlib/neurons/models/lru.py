"""Linear recurrent unit: a complex state that rotates and decays, read as it is or as spikes.

    lambda = exp(-exp(nu) + i exp(theta))                     inside the unit circle, whatever nu and theta
    z[t] = lambda z[t-1] + sqrt(1 - |lambda|^2) e^(i phase) x[t]
    y[t] = re(z[t]);   with a threshold s[t] = [re(z[t]) >= threshold]

Source: Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences", ICML 2023, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from snnlib.checks import check_count
from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.fields import Constant, constant, fixed, option
from snnlib.neurons.firing import SimplyReset


class LRU(SimplyReset):
    """Linear recurrent units: currents `[T, N, C, ...]` to potentials, or spikes, of the same shape.

    ::

        z[t] = lambda z[t-1] + sqrt(1 - |lambda|^2) e^(i phase) x[t]
        lambda = exp(-exp(nu) + i exp(theta));   y[t] = re(z[t])

    The input is real, the state complex, one per channel, without a reset. A unit remembers for about `exp(-nu)` steps
    and rotates by `exp(theta)` radians per step. White noise of variance 1 gives states of variance 1.

    Args:
        nu: logarithm of the decay rate per step. Default -2, |lambda| = 0.87.
        theta: logarithm of the angular frequency in radians per step. Default -1.
        phase: angle of the input in the complex plane, in radians; with a linear map behind the units it replaces a
            complex map. Default 0.
        threshold: threshold of the real part, for spikes; None: the output is the real part. Default None.
        compare, surrogate, refractory, gradient_through_time, channels, batch_first: as in `SpikingNeuron`.
        learnable: names among "nu", "theta", "phase" and "threshold". Default "nu" and "theta"; `()` fixes all.

    Raises:
        ValueError: an option out of its range.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> y = snnlib.neurons.LRU(theta=0.0, learnable=())(x).flatten()
    >>> [round(value, 3) for value in y.tolist()]
    [0.487, 0.23, -0.155, -0.321]
    """

    state_names = ("v", "u")
    nu: Constant = constant(default=-2.0, kw_only=False)
    theta: Constant = constant(default=-1.0, kw_only=False)
    phase: Constant = constant(default=0.0)
    threshold: float | Tensor | None = constant(default=None)  # type: ignore[assignment]
    reset: Reset = fixed("none")
    reset_value: float = fixed(0.0)
    detach_reset: bool = fixed(True)
    floor: float | None = fixed(None)
    learnable: Sequence[str] = option(default=("nu", "theta"))

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Checks that units with a refractory time have a threshold."""
        if values["refractory"] and values["threshold"] is None:
            raise ValueError(f"refractory: expected 0 without a threshold, got {values['refractory']:g}")
        super().derive(values, given, dialect)

    @classmethod
    def ring(
        cls,
        channels: int,
        low: float = 0.9,
        high: float = 0.999,
        most: float = math.pi / 10,
        *,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> Self:
        """Returns units with constants per channel: lambda uniform in a ring of the complex plane, phases uniform.

        Args:
            channels: number of units.
            low, high: bounds of |lambda|, 0 <= low < high < 1. Default 0.9 and 0.999, for sequences of hundreds of
                steps.
            most: largest angle of lambda in radians; smaller ones for longer sequences. Default pi / 10.
            generator: random numbers; None for torch's own.
            options: further options of the units; all three constants are learned by default.

        Raises:
            ValueError: bounds or a number of units out of range.

        Source: section 3.3 and appendix A of the paper.
        """
        check_count("channels", channels)
        if not 0 <= low < high < 1:
            raise ValueError(f"low, high: expected 0 <= low < high < 1, got {low} and {high}")
        if not 0 < most < math.inf:
            raise ValueError(f"most: expected an angle > 0, got {most}")
        area, angle, phase = torch.rand(3, channels, generator=generator, dtype=torch.float64)
        squared = low**2 + (high**2 - low**2) * (1 - area)
        options = {"learnable": ("nu", "theta", "phase"), **options}
        return cls(
            (-squared.log() / 2).log(), (most * (1 - angle)).log(), phase=2 * math.pi * phase, **options
        )

    @property
    def gives_spikes(self) -> bool:  # type: ignore[override]
        """Returns whether there is a threshold."""
        return "threshold" in self.constant_names

    def _coefficients(self, params: Params) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the real and imaginary parts of lambda, and of the input's factor."""
        rate, angle = params["nu"].exp(), params["theta"].exp()
        size = torch.exp(-rate)
        # 1 - |lambda|^2, also for units that hardly decay.
        gain = (-torch.expm1(-2 * rate)).sqrt()
        turned = gain * params["phase"].cos(), gain * params["phase"].sin()
        return size * angle.cos(), size * angle.sin(), *turned

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        keep, turn, real, imaginary = self._coefficients(params)
        v, u = state
        h = keep * v - turn * u + real * current
        after = (h, turn * v + keep * u + imaginary * current)
        return (self.fire(h, params) if self.gives_spikes else h), after

    def dynamics(self, params: Params) -> Dynamics | None:
        """Two states; see `Dynamics`."""
        keep, turn, real, imaginary = self._coefficients(params)
        a, b = [[keep, -turn], [turn, keep]], [real, imaginary]
        if self.gives_spikes:
            return self.with_reset(params, a, b)
        through_time = self.gradient_through_time
        return Dynamics(a, b, threshold=torch.inf, scale=1.0, membrane=True, through_time=through_time)
