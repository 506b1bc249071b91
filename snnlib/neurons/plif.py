"""LIF neuron whose leak is learned as a number without bounds.

    leak = sigmoid(w)
    h[t] = (1 - leak) v[t-1] + (leak or 1) x[t] + leak rest
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

Source: Fang et al., "Incorporating Learnable Membrane Time Constant", ICCV 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from snnlib.checks import check_flag
from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.dialects import check_tau, finite_number, is_learned, values_of
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.spike import SurrogateLike
from snnlib.neurons.surrogate import Sigmoid


class PLIF(SpikingNeuron):
    """Parametric LIF neurons: `LIF` with the learned leak `1/tau = sigmoid(w)`.

    `w` is trained, one for all channels or with `channels` one each; it cannot leave its range, as a learned `tau` can.

    Args:
        tau: initial time constant in time steps, > 1: `w = -ln(tau - 1)`. Default 2, so `w = 0`.
        decay_input: whether the input is scaled by the leak. Default True.
        rest: potential that it leaks to. Default 0; `reset_value` in SpikingJelly's dialect.
        threshold, reset, reset_value, reset_time, detach_reset, compare, surrogate, floor, max_spikes,
            single_spike, gradient_through_time, channels, batch_first: as in `SpikingNeuron`.
        learnable: names among "w" and "threshold". Default "w".
        dialect: `"spikingjelly"` (ParametricLIFNode).

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.PLIF(tau=2.0, channels=3)
    >>> neuron(torch.ones(4, 1, 3)).sum().backward()
    >>> neuron.w.grad.shape
    torch.Size([3])
    """

    state_names = ("v",)
    defaults: ClassVar[dict[str, Any]] = {"tau": 2.0, "decay_input": True, "rest": 0.0}
    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        # None: at reset_value.
        "spikingjelly": {"rest": None, "detach_reset": False, "surrogate": Sigmoid(4.0)},
    }

    def __init__(
        self,
        tau: float | Tensor | None = None,
        *,
        threshold: float | Tensor | None = None,
        decay_input: bool | None = None,
        rest: float | None = None,
        reset: Reset | None = None,
        reset_value: float | None = None,
        reset_time: str | None = None,
        detach_reset: bool | None = None,
        compare: str | None = None,
        surrogate: SurrogateLike | None = None,
        floor: float | None = None,
        max_spikes: float | None = None,
        single_spike: bool | None = None,
        gradient_through_time: bool | None = None,
        dialect: str | None = None,
        learnable: Sequence[str] = ("w",),
        channels: int | None = None,
        batch_first: bool = False,
    ) -> None:
        chosen = self.settings(dialect, locals())
        if is_learned(chosen["tau"]):
            raise TypeError(
                "tau: expected a number or a tensor, got one to learn; w is learned from where tau puts it"
            )
        start = torch.as_tensor(check_tau("tau", chosen["tau"]), dtype=torch.float64)
        values = values_of("tau", chosen["tau"])
        if not bool(((values > 1) & values.isfinite()).all()):
            raise ValueError(f"tau: expected finite numbers of time steps > 1, got {chosen['tau']}")
        # The sum makes a plain 0 of the -0 that tau = 2 gives.
        constants = {"w": -torch.log(start - 1) + 0.0}
        super().__init__(constants, chosen, learnable=learnable, channels=channels, batch_first=batch_first)
        self.decay_input = check_flag("decay_input", chosen["decay_input"])
        self.rest = self.reset_value if chosen["rest"] is None else finite_number("rest", chosen["rest"])

    @property
    def tau(self) -> Tensor:
        """Membrane time constant in time steps, as it was learned: `1 + exp(-w)`."""
        return 1 + torch.exp(-self.constants()["w"].detach())

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """One time step."""
        leak = params["w"].sigmoid()
        h = (1 - leak) * state[0] + (leak if self.decay_input else 1.0) * current + leak * self.rest
        return self.fire_and_reset((h,), state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """One state; see `Dynamics`."""
        firing = self.firing(params, 1)
        if firing is None:
            return None
        leak = params["w"].sigmoid()
        gain = leak if self.decay_input else 1.0
        return Dynamics(a=[[1 - leak]], b=[gain], d=[leak * self.rest], **firing)
