"""Modules over sequences `[T, N, ...]` and the loop over steps that conversion, graphs and files of lava-dl share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.neurons import Output


def over_steps(step: Callable[..., Any], *sequences: Tensor) -> Any:
    """Calls a function of each step of sequences, one step after the other; every leaf of its outputs over time."""
    outputs = [step(*parts) for parts in zip(*sequences, strict=True)]
    return pytree.tree_map(lambda *steps: torch.stack(steps), *outputs)


def over_steps_from(step: Callable[[Tensor, Any], tuple[Any, Any]], x: Tensor, state: Any) -> Any:
    """Calls a function of each step and of a state that it returns anew; every leaf of its outputs over time."""

    def advance(now: Tensor) -> Any:
        nonlocal state
        out, state = step(now, state)
        return out

    return over_steps(advance, x)


class Affine(nn.Module):
    """Each element times its own factor, plus its own offset.

    Args:
        scale: factors of the elements' shape, or one for all. Default 1.
        offset: numbers of the elements' shape, or one for all, as resting potentials. Default 0.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, scale: Any = None, offset: Any = None) -> None:
        super().__init__()
        for name, value, usual in (("scale", scale, 1.0), ("offset", offset, 0.0)):
            numbers = np.array(usual if value is None else value, dtype=np.float32)
            # The state_dict has only what was given.
            self.register_buffer(name, torch.from_numpy(numbers), persistent=value is not None)

    def forward(self, x: Tensor) -> Tensor:
        """The sequence of scaled elements."""
        return x * self.scale.to(x.dtype) + self.offset.to(x.dtype)

    def extra_repr(self) -> str:
        """Shapes of factors and offsets."""
        return f"scale={tuple(self.scale.shape)}, offset={tuple(self.offset.shape)}"


class Later(nn.Module):
    """A delay of whole steps: `y[t] = x[t - steps]`, 0 before; it streams.

    Args:
        steps: numbers of steps of the elements' shape, one per channel, or one for all.
    """

    steps: Tensor

    def __init__(self, steps: Any) -> None:
        super().__init__()
        self.register_buffer("steps", torch.as_tensor(steps, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """The delayed sequence."""
        return self.run(x).value

    def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> Output:
        """`forward` from the steps before, and with those of the end."""
        longest = int(self.steps.max())
        before = x.new_zeros(longest, *x.shape[1:]) if state is None else state[0]
        past = torch.cat((before, x))
        steps = self.steps.reshape(*self.steps.shape, *[1] * (x.dim() - 2 - self.steps.dim()))
        now = torch.arange(longest, len(past), device=x.device).reshape(-1, *[1] * (x.dim() - 1))
        return Output(past.gather(0, (now - steps).expand(x.shape)), (past[len(x) :],))

    def extra_repr(self) -> str:
        """The largest delay."""
        return f"up to {int(self.steps.max())} steps"
