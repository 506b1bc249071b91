"""Calls of version 0.1 with a state, `layer(x, state, return_state=True)`, which are now `layer.run(x, state)`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from snnlib.checks import warn_caller
from snnlib.neurons.base import Output

Layer = TypeVar("Layer", bound=nn.Module)
_warned = False


def state_by_keyword(forward: Callable[[Layer, Tensor], Tensor]) -> Callable[..., Any]:
    """`forward(self, x)` that still takes `state` and `return_state` and hands them to `run`; this lasts until 1.0."""

    @functools.wraps(forward)
    def call(
        self: Layer, x: Tensor, state: Tensor | None = None, return_state: bool = False
    ) -> Tensor | Output:
        if state is None and not return_state:
            return forward(self, x)
        global _warned  # noqa: PLW0603
        if not _warned and not torch.compiler.is_compiling():
            _warned = True
            name = type(self).__name__
            warn_caller(
                f"{name}: a call with state or return_state is now layer.run(x, state)", FutureWarning
            )
        value, after = self.run(x, None if state is None else (state,))  # type: ignore[operator]
        return Output(value, after[0]) if return_state else value

    return call
