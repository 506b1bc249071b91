"""Learned time constants: initial values spread over a range, and bounds during training."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from snnlib.neurons.base import Neuron

# How near to a bound a value may start, as a share of the range: at the bound itself it would never move.
_MARGIN = 1e-3


def log_uniform(low: float, high: float, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Draws time constants `[count]`, uniform in their logarithm: as many in 2 to 4 steps as in 20 to 40.

    A layer with different time constants learns tasks with several time scales more easily than a layer with one
    (docs/time.md).

    Args:
        low, high: bounds in time steps, 1 <= low <= high.
        count: number of neurons.
        generator: random numbers; None for torch's own.

    Raises:
        ValueError: bounds or a number of neurons out of range.

    Source: Perez-Nieves et al., "Neural heterogeneity promotes robust learning", Nature Communications 2021.

    >>> import torch, snnlib
    >>> taus = snnlib.neurons.log_uniform(5.0, 50.0, 128)
    >>> neuron = snnlib.neurons.CubaLIF(tau_m=taus, tau_s=3.0, learnable=("tau_m",))
    >>> taus.shape, bool((taus >= 5).all() and (taus <= 50).all())
    (torch.Size([128]), True)
    """
    if not 1 <= low <= high < math.inf:
        raise ValueError(f"low, high: expected 1 <= low <= high time steps, got {low} and {high}")
    if count < 1:
        raise ValueError(f"count: expected a number of neurons >= 1, got {count}")
    uniform = torch.rand(count, generator=generator, dtype=torch.float64)
    return low * (high / low) ** uniform


class Bounded(nn.Module):
    """Parametrization by a free number z that keeps a value within bounds: `low (high / low)^sigmoid(z)`.

    Steps of the optimiser change a value relative to its size, and never leave the bounds.
    """

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        if not 0 < low < high < math.inf:
            raise ValueError(f"low, high: expected 0 < low < high, got {low} and {high}")
        self.low, self.high = float(low), float(high)

    def forward(self, free: Tensor) -> Tensor:
        """Returns the value of a free number."""
        return self.low * (self.high / self.low) ** torch.sigmoid(free)

    def right_inverse(self, value: Tensor) -> Tensor:
        """Returns the free number of a value; a value at a bound or beyond moves just inside."""
        share = torch.log(value / self.low) / math.log(self.high / self.low)
        return torch.logit(share.clamp(_MARGIN, 1 - _MARGIN))

    def extra_repr(self) -> str:
        """The bounds."""
        return f"{self.low:g}, {self.high:g}"


def bound_(neuron: Neuron, **bounds: tuple[float, float]) -> Neuron:
    """Keeps learned constants of a neuron within bounds, in place, by a parametrization of torch.

    Args:
        neuron: a neuron with learnable constants.
        bounds: `(low, high)` for each of them, as in `bound_(neuron, tau_m=(2.0, 100.0))`.

    Returns:
        The neuron. Its parameters are then the free numbers behind the constants,
        `neuron.parametrizations.tau_m.original`; make the optimiser afterwards.

    Raises:
        ValueError: no learned constant of that name, or invalid bounds.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.LIF(tau=5.0, learnable=("tau",), channels=3)
    >>> neuron = snnlib.neurons.bound_(neuron, tau=(2.0, 50.0))
    >>> torch.allclose(neuron.tau, torch.tensor(5.0))
    True
    """
    for name in bounds:
        if name not in neuron.learnable:
            known = ", ".join(neuron.learnable) or "none"
            raise ValueError(f"bounds: expected names of learnable constants ({known}), got {name!r}")
    steps = {name: Bounded(low, high) for name, (low, high) in bounds.items()}
    # Nothing has changed before all bounds were checked.
    for name, step in steps.items():
        parametrize.register_parametrization(neuron, name, step)
    return neuron
