"""Runs the `step` of a model with its checks: shapes of results, and of your own models spikes without any input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib.checks import warn_caller
from snnlib.neurons.constants import broadcast
from snnlib.neurons.training_watch import cannot_watch

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron, Params


def advance(
    neuron: Neuron, state: tuple[Tensor, ...], current: Tensor, params: Params
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Runs `step` and the options that all models share, such as `refractory`: (spikes, next state), checked."""
    if not neuron.gradient_through_time:
        state = tuple(part.detach() for part in state)
    after = neuron._advance(state, current, params)
    check_step(neuron, after, list(current.shape))
    return after


def check_step(neuron: Neuron, found: object, shape: list[int]) -> None:
    """Raises ValueError unless a step returned a value and a tuple of states in the current's shape."""
    what = f"{type(neuron).__name__}.step"
    names = ", ".join(neuron.state_names)
    value, state = _pair(neuron, found)
    if not isinstance(value, Tensor) or list(value.shape) != shape:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{what}: expected spikes of the current's shape {tuple(shape)}, got {got}")
    if not isinstance(state, tuple) or len(state) != len(neuron.state_names):
        got = f"{len(state)} of them" if isinstance(state, tuple) else type(state).__name__
        raise ValueError(f"{what}: expected a tuple of states ({names}), got {got}")
    for name, part in zip(neuron.state_names, state, strict=True):
        if list(part.shape) != shape:
            raise ValueError(f"{what}: expected {name} of shape {tuple(shape)}, got {tuple(part.shape)}")


def check_rest(neuron: Neuron, x: Tensor) -> None:
    """Warns once if your own model fires at states of 0 without input, as a model in millivolts may.

    `x` is a sequence `[T, N, C, ...]` of its currents.
    """
    own = type(neuron).step.__module__.partition(".")[0] != "snnlib"
    if neuron.rest_known or not own or not neuron.gives_spikes or not len(x) or cannot_watch(x):
        return
    neuron.rest_known = True
    with torch.no_grad(), torch.random.fork_rng([x.device] if x.is_cuda else []):
        nothing = torch.zeros_like(x[0], dtype=torch.promote_types(x.dtype, torch.float32))
        params = broadcast(neuron.constants(), nothing.dim(), nothing.dtype)
        found = neuron.step(tuple(nothing.clone() for _ in neuron.state_names), nothing, params)
    value, _ = _pair(neuron, found)
    if isinstance(value, Tensor) and value.numel() and bool((value != 0).all()):
        warn_caller(
            f"{type(neuron).__name__}: every neuron fires at the first step without any input, as states begin at 0; "
            "define initial_state(current, params), which returns the states at rest, as "
            "(torch.full_like(current, -65.0),)"
        )


def _pair(neuron: Neuron, found: Any) -> tuple[Any, Any]:
    if not isinstance(found, tuple) or len(found) != 2:
        what, states = type(neuron).__name__, ", ".join(neuron.state_names)
        raise TypeError(f"{what}.step: expected (spikes, ({states},)), got {type(found).__name__} alone")
    return found
