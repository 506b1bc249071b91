"""Neurons with random steps: sums, products, functions, selections and detached parts, with learned constants."""

import math
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import snnlib
from snnlib.neurons.base import Params, State
from snnlib.surrogate import ATan, Exponential, Triangle

# Operations of a draw, of a value and an operand; those of `_SMOOTH` differ from torch in the last bits.
_EXACT: Sequence[Callable[[Tensor, Tensor], Tensor]] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a.clamp(-2, 2) * b,
    lambda a, b: (a - b) * 0.5,
    lambda a, b: a / (1.5 + torch.relu(b)),
    lambda a, b: torch.where(a > 0.3, a, 0.5 * b),
    lambda a, b: torch.maximum(a, b * torch.ones_like(a)) - 0.1,
    lambda a, b: torch.minimum(a, a.detach() + b),
    lambda a, b: torch.relu(a) * 0.5 + a.detach() * 0.1,
    lambda a, b: a.abs() - torch.floor(b.clamp(-3, 3)),
    lambda a, b: a.masked_fill(a > 1, 0.25) - b,
    lambda a, b: torch.lerp(a, b * torch.ones_like(a), 0.3),
    lambda a, b: 1 - torch.addcmul(a, b * torch.ones_like(a), a.clamp(-1, 1), value=0.5),
)
_SMOOTH: Sequence[Callable[[Tensor, Tensor], Tensor]] = (
    lambda a, b: torch.sigmoid(a - b),
    lambda a, b: torch.tanh(a) * b.clamp(-2, 2),
    lambda a, b: torch.exp(a.clamp(max=1)) * 0.3,
    lambda a, b: torch.nn.functional.softplus(a) - b,
    lambda a, b: torch.log(1.1 + a * a),
    lambda a, b: torch.sin(a) + torch.cos(b),
    lambda a, b: torch.sqrt(0.5 + a.abs()),
    lambda a, b: torch.log1p(a.abs()) - torch.expm1(b.clamp(-1, 1)),
    lambda a, b: (0.5 + a.abs()) ** 1.7 - (a.clamp(-1, 1)) ** 3,
)


class RandomStep(snnlib.neurons.Neuron):
    """Neuron whose step a seed draws; the values of odd seeds have the bits of torch."""

    state_names = ("a", "b", "c")

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        names: dict[str, float | Tensor] = {f"c{i}": rng.uniform(0.3, 1.2) for i in range(rng.randint(1, 4))}
        for name in names:
            if rng.random() < 0.3:
                names[name] = torch.linspace(0.4, 1.3, 3)
        super().__init__(names, learnable=tuple(name for name in names if rng.random() < 0.5))
        self.seed = seed

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        rng = random.Random(self.seed * 7 + 1)
        values, constants = [current, *state], list(params.values())
        known = _EXACT if self.seed % 2 else (*_EXACT, *_SMOOTH)
        for _ in range(rng.randint(3, 14)):
            a = rng.choice(values)
            b = rng.choice(values) if rng.random() < 0.6 else rng.choice(constants)
            values.append(rng.choice(known)(a, b))
        surrogate = rng.choice((ATan(), Triangle(), Exponential(0.5), lambda u: 1 / (1 + u * u)))
        unit = constants[0]
        spikes = snnlib.surrogate.spike(values[-1] - unit, unit, surrogate, strict=rng.random() < 0.5)
        reset = spikes.detach() if rng.random() < 0.5 else spikes
        mixed = [(rng.choice(values[1:]), rng.choice(values[1:])) for _ in state]
        after = [0.7 * a.clamp(-3, 3) * (1 - reset) + 0.1 * b.clamp(-3, 3) for a, b in mixed]
        return spikes, tuple(after)


def run_both(neuron: snnlib.neurons.Neuron, x: Tensor, q: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Returns spikes, last states and all gradients of a neuron by its kernel and by `step`."""
    found = []
    for run in (neuron.run, neuron.reference):
        leaf = x.clone().requires_grad_()
        value, (state,) = run(leaf)
        loss = (value * q).sum() + state.sum() / math.e
        leaves = [leaf, *(getattr(neuron, name) for name in neuron.learnable)]
        grads = [torch.zeros_like(one) for one in leaves]
        if loss.requires_grad:
            grads = list(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
        found.append([value.detach(), state.detach(), *grads])
    return found[0], found[1]
