"""A neuron's `step` in compiled blocks of time steps, for models that no kernel knows.

A block is the loop over `step`, as one function that torch's compiler has made: operations on the same elements are one
pass over memory, in C++ on a CPU, and autograd keeps what a block needs instead of what each operation does. Blocks
have one length, so that sequences of any length are made of them; what is left over runs in the loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib.checks import in_transform, warn_caller

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron

# Steps of a block: compiling takes half a second each, and fewer blocks of more steps gain little.
STEPS = 20

Loop = Callable[["Neuron", Tensor, Tensor, Mapping[str, Tensor]], tuple[Tensor, Tensor]]


class CompiledSteps:
    """Runs the steps of a neuron in compiled blocks. Copies and pickles of it compile anew.

    Args:
        loop: gives values and last state of a neuron from currents, state and constants, in plain torch.
        steps: of a block.
    """

    def __init__(self, loop: Loop, steps: int) -> None:
        self._loop, self._steps = loop, steps
        self._block: Loop | None = None
        self._told: set[tuple[object, ...]] = set()
        self._possible = True

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledSteps, (self._loop, self._steps)

    def run(
        self, neuron: Neuron, currents: Tensor, start: Tensor, params: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Returns what the loop returns, by blocks as far as they go."""
        whole = len(currents) // self._steps * self._steps
        apart = torch.compiler.is_compiling() or in_transform() or currents.is_meta
        if not whole or apart or not self._possible:
            return self._loop(neuron, currents, start, params)
        values, state = [], start
        # Not slices, each of which has a gradient of the whole length.
        for block in currents[:whole].reshape(-1, self._steps, *currents.shape[1:]).unbind(0):
            value, state = self._run_block(neuron, block, state, params)
            values.append(value)
        if whole < len(currents):
            value, state = self._loop(neuron, currents[whole:], state, params)
            values.append(value)
        return torch.cat(values), state

    def _run_block(
        self, neuron: Neuron, currents: Tensor, start: Tensor, params: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        if not self._possible:
            return self._loop(neuron, currents, start, params)
        if self._block is None:
            self._block = torch.compile(_own_function(self._loop), fullgraph=True)
        self._tell(neuron, currents)
        try:
            return self._block(neuron, currents, start, params)
        except torch._dynamo.exc.TorchDynamoException as error:
            # Where the mistake is the step's own, the loop says so.
            found = self._loop(neuron, currents, start, params)
            self._possible = False
            reason = str(error).strip().splitlines() or [type(error).__name__]
            warn_caller(f"{type(neuron).__name__}.step runs in a loop, as it cannot be compiled: {reason[0]}")
            return found

    def _tell(self, neuron: Neuron, currents: Tensor) -> None:
        """Say that it takes a while, once for what has to be compiled apart."""
        key = (*currents.shape[2:], currents.dtype, currents.device.type, torch.is_grad_enabled())
        if key not in self._told:
            self._told.add(key)
            name = type(neuron).__name__
            print(
                f"compile_steps_: compiling {self._steps} steps of {name}, once", file=sys.stderr, flush=True
            )


def _own_function(loop: Loop) -> Loop:
    """The same function with code of its own: torch's compiler counts how often it compiled a code, and gives up."""
    assert isinstance(loop, FunctionType)
    return FunctionType(
        loop.__code__.replace(), loop.__globals__, loop.__name__, loop.__defaults__, loop.__closure__
    )
