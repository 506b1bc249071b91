"""Guards against steps that a trace gets wrong: comparison with `step`, and attributes that a step changes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib.neurons.constants import TABLES, broadcast
from snnlib.neurons.step_checks import advance
from snnlib.neurons.trace import RefusedError

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron

# Attribute of a neuron with its programs, by dtype and attributes.
PROGRAMS = "_programs"
# Attributes that no step reads.
NOT_READ = (TABLES, PROGRAMS, "rest_known", "training_watch")
# Neurons and steps of the comparison with `step`, and the largest difference relative to each neuron's largest value.
_NEURONS, _STEPS, _TOLERANCE = 64, 3, 1e-7
# Differences that count as none.
_LEAST = 1e-12
# Objects within objects whose attributes are compared.
_DEEPEST = 4
# Values and last state of a program, from currents, the first state and constants.
Run = Callable[[Tensor, Tensor, Mapping[str, Tensor]], tuple[Tensor, Tensor]]


def compare(probe: Neuron, run: Run) -> None:
    """Raises RefusedError unless values and gradients of a program are those of `step`, in float64."""
    wide, states = torch.float64, len(probe.state_names)
    constants = {name: getattr(probe, name).detach().to(wide) for name in probe.constant_names}
    learned = [constants[name].requires_grad_() for name in probe.learnable]
    channels = max([len(value) for value in constants.values() if value.dim()], default=1)
    shape = (max(_NEURONS // channels, 1), channels, 1)
    params = broadcast(constants, len(shape), wide)
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> Tensor:
        return torch.randn((count, *shape), generator=generator, dtype=wide)

    # Small and large numbers for every channel, as nothing is known of the unit.
    scale = torch.logspace(-1, 2, shape[0], dtype=wide)[:, None, None]
    x = (draw(_STEPS) * scale).requires_grad_()
    rest = [part.expand(shape) for part in probe.initial_state(x.detach()[0], params)]
    start = (torch.stack(rest).detach() + draw(states) * scale / 2).requires_grad_()
    state, values = start.unbind(), []
    for current in x.unbind():
        value, state = advance(probe, state, current, params)
        values.append(value)
    weights = draw(_STEPS), draw(states)
    expected = _with_gradients((torch.stack(values), torch.stack(state)), weights, [x, start, *learned])
    found = _with_gradients(run(x, start, constants), weights, [x, start, *learned])
    names = ["spikes", "states", "dL/dcurrent", "dL/dstate", *(f"dL/d{name}" for name in probe.learnable)]
    finite = torch.stack([part.isfinite().all(0) for part in expected[:4]]).all(0)
    for name, ours, theirs in zip(names, found, expected, strict=True):
        # Sums over neurons mix large and small ones.
        alone = ours.shape[1:] == shape
        largest = theirs.abs().amax(0) if alone else theirs.abs()
        off = ((ours - theirs).abs() > _TOLERANCE * largest + _LEAST) & (finite if alone else finite.all())
        if bool(off.any()):
            raise RefusedError(
                f"gives other {name} than its trace: it depends on more than states, current and constants"
            )


def _with_gradients(
    results: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor], leaves: Sequence[Tensor]
) -> list[Tensor]:
    """Returns results, and the gradients of their weighted sum."""
    loss = sum((result * weight).sum() for result, weight in zip(results, weights, strict=True))
    grads: Sequence[Tensor] = [torch.zeros_like(leaf) for leaf in leaves]
    if isinstance(loss, Tensor) and loss.requires_grad:
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return [result.detach() for result in (*results, *grads)]


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Restores the states of random numbers after a block."""
    numpy: Any = sys.modules.get("numpy.random")
    states = random.getstate(), None if numpy is None else numpy.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(states[0])
        if numpy is not None:
            numpy.set_state(states[1])


def changed_attribute(neuron: Neuron, probe: Neuron) -> str:
    """Returns the name of an attribute that a run changed in a copy; empty if there is none."""
    before, after = vars(neuron), vars(probe)
    for name in dict.fromkeys((*before, *after)):
        if name in NOT_READ:
            continue
        if name in ("_parameters", "_buffers", "_modules"):
            inner: str
            for inner in dict.fromkeys((*before[name], *after[name])):
                if not _equal(before[name].get(inner), after[name].get(inner), 0):
                    return inner
        elif name not in before or name not in after or not _equal(before[name], after[name], 0):
            return name
    return ""


def _equal(a: Any, b: Any, depth: int) -> bool:
    """Returns whether an object and its copy hold the same, as far as they are plain or have attributes."""
    if a is b or depth > _DEEPEST:
        return True
    same = type(a) is type(b)
    if same and isinstance(a, Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b))
    elif same and isinstance(a, bool | int | float | str):
        same = repr(a) == repr(b)
    elif same and isinstance(a, dict):
        same = list(a) == list(b) and all(_equal(a[key], b[key], depth + 1) for key in a)
    elif same and isinstance(a, list | tuple | set | frozenset):
        same = len(a) == len(b) and (
            isinstance(a, set | frozenset) or all(_equal(x, y, depth + 1) for x, y in zip(a, b, strict=True))
        )
    elif same:
        same = _equal(getattr(a, "__dict__", None), getattr(b, "__dict__", None), depth + 1)
    return same
