"""Balanced resonate-and-fire neuron: a resonator at the border of stability that spikes damp and make refractory.

    p = (sqrt(1 - (dt omega)^2) - 1) / dt                     damping that keeps an Euler step from growing
    b[t] = p - |offset| - q[t-1]
    u[t] = u[t-1] + dt (b[t] u[t-1] - omega v[t-1] + x[t]);   v[t] = v[t-1] + dt (omega u[t-1] + b[t] v[t-1])
    s[t] = [u[t] > threshold + q[t-1]];   q[t] = gamma q[t-1] + s[t]

Source: Higuchi et al., "Balanced resonate-and-fire neurons", ICML 2024.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor

from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.checks import values_of
from snnlib.neurons.dynamics import Coefficient, Dynamics
from snnlib.neurons.fields import Constant, constant, fixed, option
from snnlib.neurons.firing import SimplyReset
from snnlib.neurons.surrogate import MultiGaussian, SurrogateLike


class BRF(SimplyReset):
    """Balanced resonate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    There is no reset: a spike raises `q`, which raises the threshold, damps the resonator and decays. With `gamma=0`
    the neuron runs by `step` in torch.

    Args:
        omega: angular frequency in radians per unit of time, `dt omega < 1`. Default 10.
        offset: damping in addition to the balanced one, per unit of time; its sign is ignored. Default 1.
        dt: length of a time step. Default 0.01.
        gamma: decay of `q` per step. Default 0.9.
        threshold, surrogate, refractory, gradient_through_time, channels, batch_first: as in `SpikingNeuron`, with the
            paper's surrogate `MultiGaussian(shift=0)`.
        compare: Default `">"`.
        learnable: names among "omega", "offset" and "threshold". Default "omega" and "offset".

    Raises:
        ValueError: an option out of its range.

    >>> import torch, snnlib
    >>> snnlib.neurons.BRF(omega=6.0, dt=0.125)(torch.full((4, 1, 1), 12.0)).flatten().tolist()
    [1.0, 1.0, 0.0, 0.0]
    """

    state_names = ("u", "v", "q")
    omega: Constant = constant(default=10.0, kw_only=False)
    offset: Constant = constant(default=1.0, kw_only=False)
    dt: float = option(default=0.01)
    gamma: float = option(default=0.9)
    reset: Reset = fixed("none")
    reset_value: float = fixed(0.0)
    detach_reset: bool = fixed(True)
    compare: str = option(default=">")
    surrogate: SurrogateLike = option(default=MultiGaussian(shift=0.0))
    floor: float | None = fixed(None)
    learnable: Sequence[str] = option(default=("omega", "offset"))

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Checks that the step is short enough for the frequency."""
        dt, omega = values["dt"], values["omega"]
        turns = values_of("omega", omega).abs() * dt
        if not (dt > 0 and bool((turns < 1).all())):
            raise ValueError(f"dt: expected a number > 0 with dt * omega < 1, got {dt} and {omega}")
        super().derive(values, given, dialect)

    def _damping(self, params: Params) -> Tensor:
        """Returns the damping b without spikes, per unit of time."""
        # A learned frequency may leave the range in which the root exists; at its end, where the slope is infinite,
        # `relu` passes no gradient.
        balanced = ((1 - (self.dt * params["omega"]) ** 2).relu().sqrt() - 1) / self.dt
        return balanced - params["offset"].abs()

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        u, v, q = state
        dt, omega = self.dt, params["omega"]
        b = self._damping(params) - q
        u_new = u + dt * (b * u - omega * v + current)
        v_new = v + dt * (omega * u + b * v)
        distance = u_new - params["threshold"] - q
        spikes = self.spikes_at(distance, params["threshold"])
        return spikes, (u_new, v_new, self.gamma * q + spikes)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Three states with products; the comparison uses q before its decay. See `Dynamics`."""
        if self.gamma == 0:
            return None
        kept, turned = 1 + self.dt * self._damping(params), self.dt * params["omega"]
        matrix: list[list[Coefficient]] = [[kept, -turned, 0.0], [turned, kept, 0.0], [0.0, 0.0, self.gamma]]
        return self.with_reset(
            params,
            a=matrix,
            b=[self.dt, 0.0, 0.0],
            c=[1.0, 0.0, -1 / self.gamma],
            p=[-self.dt, -self.dt, 0.0],
            j=[0.0, 0.0, 1.0],
            detach_jump=False,
            quadratic=True,
        )
