"""Resonate-and-fire neuron: a damped oscillator z = re + i im, driven by a current, that fires at its crest.

    exponential   z[t] = exp(damping + i omega) z[t-1] + gain x[t]
    euler         z[t] = (1 + damping + i omega) z[t-1] + gain x[t]
    s[t] = [im(z[t]) >= threshold]  or of re(z[t]);   the compared part is reset where s[t] = 1

Source: Izhikevich, "Resonate-and-fire neurons", Neural Networks 2001; Higuchi et al., "Balanced resonate-and-fire
neurons", ICML 2024 (Euler, real part).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from snnlib.neurons.base import Params, State
from snnlib.neurons.dialects import SPIKINGJELLY
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.fields import Constant, constant, fixed, one_of, option
from snnlib.neurons.firing import SpikingNeuron


class Resonate(SpikingNeuron):
    """Resonate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        z[t] = exp(damping + i omega) z[t-1] + gain x[t]
        s[t] = im(z[t]) >= threshold;   im(z[t]) = reset_value where s[t] = 1

    Inputs at intervals of `2 pi / omega` add up, other inputs cancel. The state `v` is the part of z that is compared
    with the threshold, `u` the other part.

    Args:
        omega: angular frequency in radians per time step. Default 1, as in SpikingJelly.
        damping: growth rate per time step, negative in a stable neuron. Default -0.2, as in SpikingJelly.
        gain: factor of the input, which drives the real part. Default 1.
        membrane: part of z that is compared with the threshold: `"imaginary"` (Izhikevich; the input reaches it one
            step later) or `"real"` (Higuchi). Default `"imaginary"`.
        discretisation: `"exponential"`, the exact rotation, or `"euler"`. Default `"exponential"`. Higuchi's neuron
            with the step dt is `Resonate(omega * dt, -abs(b) * dt, gain=dt, membrane="real", discretisation="euler",
            reset="none", compare=">")`.
        threshold, reset, reset_value, reset_states, reset_time, detach_reset, compare, surrogate, floor, refractory,
            gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`; `learnable` may name
            "omega", "damping" and "threshold".
        dialect: `"spikingjelly"` (RAFNode).

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> x = torch.tensor([2.0, 0.0, 0.0, 0.0, 0.0, 0.0]).reshape(6, 1, 1)
    >>> snnlib.neurons.Resonate(damping=-0.125)(x).flatten().tolist()
    [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """

    state_names = ("v", "u")
    omega: Constant = constant(default=1.0, kw_only=False)
    damping: Constant = constant(default=-0.2, kw_only=False)
    gain: float = option(default=1.0)
    membrane: str = option(default="imaginary", check=one_of("imaginary", "real"))
    discretisation: str = option(default="exponential", check=one_of("euler", "exponential"))
    levels: float = fixed(1)
    level_rounding: str = fixed("floor")

    dialects: ClassVar[dict[str, dict[str, Any]]] = {"spikingjelly": SPIKINGJELLY}

    def _rotation(self, params: Params) -> tuple[Tensor, Tensor]:
        """Returns the diagonal of the rotation, and its element from the other part to the membrane."""
        omega, damping = params["omega"], params["damping"]
        if self.discretisation == "euler":
            keep, turn = 1 + damping, omega
        else:
            size = torch.exp(damping)
            keep, turn = size * torch.cos(omega), size * torch.sin(omega)
        return keep, turn if self.membrane == "imaginary" else -turn

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        keep, turn = self._rotation(params)
        v, u = state[:2]
        h, other = keep * v + turn * u, keep * u - turn * v
        drive = self.gain * current
        charged = (h, other + drive) if self.membrane == "imaginary" else (h + drive, other)
        return self.fire_and_reset(charged, state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Two states; see `Dynamics`."""
        keep, turn = self._rotation(params)
        inputs = [0.0, self.gain] if self.membrane == "imaginary" else [self.gain, 0.0]
        return self.with_reset(params, a=[[keep, turn], [-turn, keep]], b=inputs)
