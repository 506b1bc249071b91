"""Parallel spiking neurons: without a reset the potentials of all steps are one matrix product over time.

    h = W x + b,   W [T, T] learned                           PSN
    h = (M W) x + b,   M[t, s] = 1 for t - k < s <= t, else 1 - lambda          MaskedPSN
    h[t] = sum of w[i] x[t - k + 1 + i] over i < k, + b       SlidingPSN
    s[t] = [h[t] >= 0]

Source: Fang et al., "Parallel Spiking Neurons with High Efficiency and Ability to Learn Long-term Dependencies",
NeurIPS 2023; defaults and names of weights as in SpikingJelly.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from snnlib.checks import check_count, check_floating
from snnlib.neurons.base import Neuron, Output, Params, State
from snnlib.neurons.checks import values_of
from snnlib.neurons.fields import Constant, constant, option
from snnlib.neurons.firing import surrogate_option
from snnlib.neurons.spike import spike
from snnlib.neurons.surrogate import ATan, SurrogateLike

# Steps of a block of a sliding product; up to twice as many, one product of all steps is as fast.
_BLOCK = 32


def _count(name: str, value: Any) -> int:
    check_count(name, value)
    return int(value)


def _memory(name: str, value: Any) -> int:
    check_count(name, value, least=2)
    return int(value)


def _share(name: str, value: Any) -> Any:
    values = values_of(name, value)
    if values.dim() or not bool((values >= 0) & (values <= 1)):
        raise ValueError(f"{name}: expected a number from 0 to 1, got {value}")
    return value


class Parallel(Neuron):
    """The base of neurons with a learned `weight` over time and a learned `bias`, minus the threshold."""

    surrogate: SurrogateLike = option(default=ATan(2.0), check=surrogate_option, repr=False)
    batch_first: bool = option(default=False, repr=False)

    def fire(self, potential: Tensor) -> Tensor:
        """Returns spikes for potentials that include the bias; the surrogate's unit is the initial threshold, 1."""
        return spike(potential, torch.ones((), device=potential.device), self.surrogate)

    def options(self) -> dict[str, Any]:
        """Options that differ from their defaults, and the surrogate."""
        return {**super().options(), "surrogate": self.surrogate}


class PSN(Parallel):
    """Parallel spiking neurons: currents `[T, N, ...]` of `time_steps` steps to spikes of the same shape.

    ::

        h = W x + b;   s[t] = h[t] >= 0

    Every step depends on all steps, later ones too, so that sequences run neither in chunks nor with `lengths`.
    `weight` `[T, T]` and `bias` `[T, 1]` are learned; the weight starts as in torch's linear layers, the bias at -1.

    Args:
        time_steps: T, the length of all sequences. Default 4, the paper's for pictures.
        surrogate: Default `ATan(2)`, SpikingJelly's. Widths are in units of the initial threshold, 1.
        batch_first: whether sequences are `[N, T, ...]`. Default False.

    Raises:
        ValueError: an option out of its range; in a call, a sequence of another length, a state, or lengths.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.PSN(4)
    >>> _ = torch.nn.init.constant_(neuron.weight, 0.5)
    >>> neuron(torch.tensor([0.0, 2.0, 0.0, 0.0]).reshape(4, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    state_names = ()
    # For what runs nets in chunks, or on sequences with padding.
    mixes_time: ClassVar[bool] = True
    time_steps: int = option(default=4, check=_count, kw_only=False)

    def build(self, given: Mapping[str, Any]) -> None:
        """See `Neuron.build`."""
        super().build(given)
        self.weight = nn.Parameter(torch.empty(self.time_steps, self.time_steps))
        self.bias = nn.Parameter(torch.full((self.time_steps, 1), -1.0))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def effective_weight(self) -> Tensor:
        """Returns the matrix over time `[T, T]`."""
        return self.weight

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Returns the spikes of whole sequences, and an empty state."""
        kind = type(self).__name__
        for name, value in (("state", state), ("lengths", lengths)):
            if value is not None:
                raise ValueError(f"{name}: expected None, as every step of {kind} reads all steps, got one")
        return super().run(x)

    def _run(self, x: Tensor, state: tuple[Tensor, ...] | None) -> Output:
        check_floating("x", x)
        if x.dim() and len(x) != self.time_steps:
            raise ValueError(
                f"x: expected {self.time_steps} time steps, as {type(self).__name__} was made for, got shape "
                f"{tuple(x.shape)}"
            )
        return super()._run(x, state)

    def reference(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> Output:
        """Returns `run(x)`, which is plain torch and has no single steps."""
        return self.run(x, state)

    def _over_steps(self, steps: Tensor, start: Tensor, params: Params) -> tuple[Tensor, Tensor]:
        """Spikes `[T, N, ...]`; the state is empty."""
        weight, bias = self.effective_weight().to(steps.dtype), self.bias.to(steps.dtype)
        return self.fire(torch.addmm(bias, weight, steps.flatten(1)).view(steps.shape)), start

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Raises an error: these neurons have no single steps."""
        raise ValueError(f"neuron: expected one that runs step by step, got {type(self).__name__}")


class MaskedPSN(PSN):
    """Parallel spiking neurons masked to the last `k` steps in the course of training: `[T, N, ...]` to spikes.

    ::

        h = (M W) x + b;   M[t, s] = 1 for t - k < s <= t, else 1 - lambda_

    With `lambda_` 0 they equal `PSN`; with 1 they are causal and combine the last k steps. Raise `lambda_` in the
    course of training: `neuron.lambda_.fill_(0.5)`.

    Args:
        k: number of steps that a neuron combines at the end, >= 1. Default 2.
        time_steps: T, the length of all sequences. Default 4.
        lambda_: strength of the mask, from 0 to 1; a buffer. Default 0.
        surrogate, batch_first: as in `PSN`.

    Raises:
        ValueError: as in `PSN`.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.MaskedPSN(2, 4, lambda_=1.0)
    >>> _ = torch.nn.init.constant_(neuron.weight, 0.5)
    >>> neuron(torch.tensor([0.0, 2.0, 0.0, 0.0]).reshape(4, 1, 1)).flatten().tolist()
    [0.0, 1.0, 1.0, 0.0]
    """

    k: int = option(default=2, check=_count, kw_only=False)
    time_steps: int = option(default=4, check=_count, kw_only=False)
    lambda_: Constant = constant(default=0.0, check=_share)

    def effective_weight(self) -> Tensor:
        """Returns the masked matrix over time `[T, T]`."""
        step = torch.arange(self.time_steps, device=self.weight.device)
        past = step[:, None] - step
        seen = (past >= 0) & (past < self.k)
        return torch.where(seen, self.weight, (1 - self.lambda_).to(self.weight.dtype) * self.weight)


class SlidingPSN(Parallel):
    """Parallel spiking neurons with one weight per delay over the last `k` steps: `[T, N, ...]` of any T to spikes.

    ::

        h[t] = sum of w[i] x[t - k + 1 + i] over i < k, + b;   s[t] = h[t] >= 0

    `weight` `[k]` and `bias` `[]` are learned; they start at `(..., 1/4, 1/2, 1)` and -1. The state is the last k - 1
    currents. Torch's matrix products compute the sums, so the last bit may depend on how a sequence is cut into
    chunks. An infinite or NaN current makes the potentials of its neuron NaN in up to `2 max(32, k - 1)` steps before
    and after it; in `reference(x)`, which runs step by step, in the k steps that combine it.

    Args:
        k: number of steps that a neuron combines, >= 2. Default 8.
        surrogate, batch_first: as in `PSN`.

    Raises:
        ValueError: an option out of its range.

    >>> import torch, snnlib
    >>> x = torch.tensor([2.0, 0.0, 0.0, 0.75, 0.75]).reshape(5, 1, 1)
    >>> snnlib.neurons.SlidingPSN(2)(x).flatten().tolist()
    [1.0, 1.0, 0.0, 0.0, 1.0]
    """

    k: int = option(default=8, check=_memory, kw_only=False)

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets the states: the last k - 1 currents, the oldest first."""
        super().derive(values, given, dialect)
        values["state_names"] = tuple(f"x{past}" for past in range(values["k"] - 1, 0, -1))

    def build(self, given: Mapping[str, Any]) -> None:
        """See `Neuron.build`."""
        super().build(given)
        self.weight = nn.Parameter(0.5 ** torch.arange(self.k - 1.0, -1.0, -1.0))
        self.bias = nn.Parameter(torch.tensor(-1.0))

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        seen = (*state, current)
        terms = zip(self.weight.to(current.dtype).unbind(), seen, strict=True)
        h = sum((weight * x for weight, x in terms), self.bias.to(current.dtype))
        return self.fire(h), seen[1:]

    def _over_steps(self, steps: Tensor, start: Tensor, params: Params) -> tuple[Tensor, Tensor]:
        """Returns spikes and the last currents, by products of blocks of steps with one banded matrix."""
        count, before = len(steps), self.k - 1
        if not count:
            return steps, start
        bias = self.bias.to(steps.dtype)
        if count <= 2 * max(_BLOCK, before):
            seen = torch.cat((start, steps))
            h = torch.addmm(bias, self._band(count, before).to(steps.dtype), seen.flatten(1))
            return self.fire(h.view(steps.shape)), seen[count:]
        block = max(_BLOCK, before)
        ends = steps.new_zeros(2, block, *steps.shape[1:])
        # Blocks of steps, and before them one that ends with the last currents of the steps before.
        padded = torch.cat((ends[0, before:], start, steps, ends[1, : -count % block]))
        blocks = padded.view(len(padded) // block, block, -1 if steps.numel() else 0)
        band = self._band(block, block).to(steps.dtype).expand(len(blocks) - 1, -1, -1)
        h = torch.baddbmm(bias, band[..., block:], blocks[1:])
        h = torch.baddbmm(h, band[..., :block], blocks[:-1]).flatten(0, 1)
        return self.fire(h[:count].view(steps.shape)), padded[block + count - before : block + count]

    def _band(self, steps: int, before: int) -> Tensor:
        """Returns the matrix `[S, before + S]` from the currents of S steps and of the steps before to potentials."""
        step = torch.arange(before + steps, device=self.weight.device)
        place = step - step[:steps, None] - (before - self.k + 1)
        seen = (place >= 0) & (place < self.k)
        return torch.where(seen, self.weight[place.clamp(0, self.k - 1)], 0.0)
