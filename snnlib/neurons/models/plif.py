"""LIF neuron whose leak is the sigmoid of a learned number.

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

from snnlib.neurons.base import Params, State
from snnlib.neurons.checks import check_tau, is_learned, values_of
from snnlib.neurons.dialects import LEAKY_SPIKINGJELLY
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.fields import Constant, constant, fixed, option
from snnlib.neurons.firing import SpikingNeuron


def _unbounded(name: str, tau: Any) -> Tensor:
    """Returns `w` of a time constant."""
    if is_learned(tau):
        raise TypeError(
            f"{name}: expected a number or a tensor without gradient, got a learned one; w learns, and {name} sets its "
            "initial value"
        )
    values = values_of(name, check_tau(name, tau))
    if not bool(((values > 1) & values.isfinite()).all()):
        raise ValueError(f"{name}: expected finite numbers of time steps > 1, got {tau}")
    # The sum makes a plain 0 of the -0 that tau = 2 gives.
    return -torch.log(torch.as_tensor(tau, dtype=torch.float64) - 1) + 0.0


class PLIF(SpikingNeuron):
    """Parametric LIF neurons: `LIF` with the learned leak `1/tau = sigmoid(w)`.

    `w` is trained, one for all channels, or one per channel with `channels`. A learned `tau` can leave its range; `w`
    has none to leave.

    Args:
        tau: initial time constant in time steps, > 1: `w = -ln(tau - 1)`. Default 2, so `w = 0`.
        decay_input: whether the input is scaled by the leak. Default True.
        rest: potential that the membrane leaks to. Default 0; `reset_value` in SpikingJelly's dialect.
        threshold, reset, reset_value, reset_time, detach_reset, compare, surrogate, floor, levels, level_rounding,
            refractory, gradient_through_time, channels, batch_first: as in `SpikingNeuron`.
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
    # Learned without bounds as w = -ln(tau - 1).
    w: Constant = constant(alias="tau", default=2.0, check=_unbounded, kw_only=False)
    decay_input: bool = option(default=True)
    rest: float = option(default=0.0)
    reset_states: str = fixed("membrane")
    learnable: Sequence[str] = option(default=("w",))

    dialects: ClassVar[dict[str, dict[str, Any]]] = {"spikingjelly": LEAKY_SPIKINGJELLY}

    @property
    def tau(self) -> Tensor:
        """Learned membrane time constant in time steps: `1 + exp(-w)`."""
        return 1 + torch.exp(-self.constants()["w"].detach())

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        leak = params["w"].sigmoid()
        h = (1 - leak) * state[0] + (leak if self.decay_input else 1.0) * current + leak * self.rest
        return self.fire_and_reset((h,), state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Coefficients of one state; see `Dynamics`."""
        leak = params["w"].sigmoid()
        gain = leak if self.decay_input else 1.0
        return self.with_reset(params, a=[[1 - leak]], b=[gain], d=[leak * self.rest])
