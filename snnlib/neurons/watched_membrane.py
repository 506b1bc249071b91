"""Membrane of a model that has no equations but its `step`: what the step compares with the threshold."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron


def potential_by_step(neuron: Neuron, x: Tensor, run: Callable[[Neuron], object]) -> Tensor:
    """Returns the membranes `[T, N, C, ...]` that `fire` gets while `run` runs a copy of the neurons over `x`.

    Raises:
        ValueError: a model whose `step` does not pass its membrane to `fire` once.
    """
    probe, seen = copy.copy(neuron), list[Tensor]()

    def noting(fire: Callable[..., Any], h: Tensor, *others: Any) -> Any:
        seen.append(h)
        return fire(h, *others)

    for name in ("fire", "fire_by_event"):
        if (fire := getattr(probe, name, None)) is not None:
            setattr(probe, name, partial(noting, fire))
    run(probe)
    if len(seen) != len(x):
        raise ValueError(
            f"neuron: expected a model whose potential is known, got {neuron}; hand the membrane to fire once in its "
            "step, as in spike = self.fire(membrane, params), by the method of snnlib.neurons.SpikingNeuron or one "
            "of your own"
        )
    return torch.stack(seen).to(x.dtype) if seen else torch.empty_like(x)
