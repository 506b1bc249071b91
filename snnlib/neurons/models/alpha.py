"""Neuron whose membrane responds to an input with the difference of two exponentials.

    e[t] = a e[t-1] + x[t];   i[t] = b i[t-1] - x[t]          slow and fast trace
    h[t] = k (a e[t-1] + b i[t-1]),   k = 1 + ln a / (ln b - ln a)
    s[t] = [h[t] >= threshold];   v = e = i = 0 after a spike

With reset="subtract" the spike of the step before subtracts the threshold from e, clears i and raises the membrane:

    e[t] = a e[t-1] + x[t] - threshold s[t-1];   i[t] = (1 - s[t-1]) (b i[t-1] - x[t])
    h[t] = k (a e[t-1] + b i[t-1]) + s[t-1] i[t-1]

The traces cancel at the input's own step, so the membrane responds from the next step on. k is snnTorch's factor.
Source: snnTorch (Alpha).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from torch import Tensor

from snnlib.neurons.base import Params, State
from snnlib.neurons.checks import check_longer_tau, check_tau, values_of
from snnlib.neurons.dynamics import Coefficient, Dynamics, decay_and_leak
from snnlib.neurons.fields import Constant, constant, fixed, one_of, option
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.surrogate import ATan


class Alpha(SpikingNeuron):
    """Neurons with an alpha-shaped potential: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        e[t] = a e[t-1] + x[t];   i[t] = b i[t-1] - x[t]
        h[t] = k (a e[t-1] + b i[t-1]);   s[t] = h[t] >= threshold

    A spike resets all three states. `"subtract"` is snnTorch's reset of that name, in the step after the spike: it
    subtracts `threshold` from `e`, sets `i` to 0 and adds `i[t-1]` to `h`. This reset mixes two states and so runs by
    `step`.

    Args:
        tau_decay: time constant of the slow trace in time steps, > `tau_rise`. Default 5.
        tau_rise: time constant of the fast trace in time steps, > 1. Default 3.
        discretisation: `"euler"`, decay = 1 - 1/tau, or `"exponential"`, decay = exp(-1/tau). Default `"euler"`.
        reset: `"zero"`, `"none"`, or `"subtract"`, whose `reset_time` is `"next"`. Default `"zero"`.
        threshold, reset_time, detach_reset, compare, surrogate, refractory, gradient_through_time, learnable,
            channels, batch_first: as in `SpikingNeuron`; `learnable` may name "tau_decay", "tau_rise" and "threshold".
        dialect: `"snntorch"` (Alpha).

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> x = torch.tensor([4.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> snnlib.neurons.Alpha(tau_decay=4.0, tau_rise=2.0)(x).flatten().tolist()
    [0.0, 1.0, 0.0, 0.0]
    """

    state_names = ("v", "e", "i")
    tau_decay: Constant = constant(default=5.0, check=check_tau, kw_only=False)
    tau_rise: Constant = constant(default=3.0, check=check_longer_tau, kw_only=False)
    discretisation: str = option(default="euler", check=one_of("euler", "exponential"))
    reset_value: float = fixed(0.0)
    reset_states: str = fixed("all")
    floor: float | None = fixed(None)
    levels: float = fixed(1)
    level_rounding: str = fixed("floor")

    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "snntorch": {"compare": ">", "reset_time": "next", "surrogate": ATan(2.0)}
    }

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets the time of the reset; checks that the slow trace decays more slowly than the fast one."""
        if values["reset"] == "subtract" and "reset_time" not in given:
            values["reset_time"] = "next"
        if values["reset"] == "subtract" and values["reset_time"] != "next":
            raise ValueError(
                f'reset_time: expected "next" beside reset="subtract", got {values["reset_time"]!r}'
            )
        slow, fast = values["tau_decay"], values["tau_rise"]
        if not bool((values_of("tau_decay", slow) > values_of("tau_rise", fast)).all()):
            raise ValueError(f"tau_decay: expected more time steps than tau_rise {fast}, got {slow}")
        super().derive(values, given, dialect)

    def _decays(self, params: Params) -> tuple[Tensor, Tensor, Tensor]:
        a, _ = decay_and_leak(params["tau_decay"], self.discretisation)
        b, _ = decay_and_leak(params["tau_rise"], self.discretisation)
        return a, b, 1 + a.log() / (b.log() - a.log())

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        a, b, k = self._decays(params)
        _, slow, fast = state[:3]
        h = k * (a * slow + b * fast)
        charged = (h, a * slow + current, b * fast - current)
        if self.reset != "subtract":
            return self.fire_and_reset(charged, state, params)
        last = state[-1].detach() if self.detach_reset else state[-1]
        h = h + last * fast
        spikes = self.fire(h, params)
        return spikes, (h, charged[1] - last * params["threshold"], (1 - last) * charged[2], spikes)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Three states; see `Dynamics`. None for `"subtract"`, which is not linear in single states."""
        if self.reset == "subtract":
            return None
        a, b, k = self._decays(params)
        matrix: list[list[Coefficient]] = [[0.0, k * a, k * b], [0.0, a, 0.0], [0.0, 0.0, b]]
        return self.with_reset(params, a=matrix, b=[0.0, 1.0, -1.0])
