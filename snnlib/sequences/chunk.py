"""Chunk of a sequence that a thread runs: layers continue from the states that they had after the last chunk."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Tuples that `run` gives, by name and number of the call.
States = dict[tuple[str, int], tuple[Tensor, ...]]


class Chunk(NamedTuple):
    """States of the layers of a net in one call on a chunk.

    Args:
        names: the names of the layers with a state.
        before: states before the chunk.
        after: states after it, which the layers add.
        calls: how many calls each layer had, so that a shared layer has a state for each place.
    """

    names: dict[Any, str]
    before: States
    after: States
    calls: dict[str, int]


# The chunk that this thread runs.
_OF_CALL: ContextVar[Chunk | None] = ContextVar("chunk of the call", default=None)
_REPLACING = Lock()


class Continued:
    """Stands in an attribute of a layer or block for a method of its class, while any thread runs a chunk.

    A call within a chunk continues from the state of the layer. Other threads get the method of the class.

    Args:
        layer: the layer, by whose name the chunk has the state.
        owner: the layer, or the block that runs it.
        name: the name of the method, which takes a sequence.
        parts: runs an owner without `run` within a chunk.
    """

    # Blocks stay fused in other threads, and in a chunk if the block has a `run`.
    sees_blocks = True

    def __init__(
        self, layer: Any, owner: Any, name: str, parts: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self._layer, self.owner, self.name, self._parts = layer, owner, name, parts
        # Chunks that need it, and the attribute before.
        self.chunks, self.replaced = 0, None

    def __call__(self, x: Tensor, *args: Any, **options: Any) -> Any:
        """Returns the value of the layer for the next steps of its sequence."""
        chunk = _OF_CALL.get()
        if chunk is None or self._layer not in chunk.names:
            whole = self.replaced or getattr(type(self.owner), self.name).__get__(self.owner)
            return whole(x, *args, **options)
        if self._parts is not None:
            return self._parts(x)
        path = chunk.names[self._layer]
        key = path, chunk.calls.get(path, 0)
        chunk.calls[path] = key[1] + 1
        value, chunk.after[key] = self.owner.run(x, _usable(chunk.before.get(key)))
        return value


def run_chunk(chunk: Chunk, methods: list[Continued], net: Callable[[Tensor], Any], x: Tensor) -> Any:
    """Runs a net, in which calls of this thread continue from the states of a chunk."""
    with _REPLACING:
        for method in methods:
            own = vars(method.owner)
            found = own.get(method.name)
            if not isinstance(found, Continued):
                method.replaced, method.chunks, own[method.name] = found, 0, method
            own[method.name].chunks += 1
    token = _OF_CALL.set(chunk)
    try:
        return net(x)
    finally:
        _OF_CALL.reset(token)
        with _REPLACING:
            for method in methods:
                own = vars(method.owner)
                found = own[method.name]
                found.chunks -= 1
                if not found.chunks:
                    del own[method.name]
                    if found.replaced is not None:
                        own[method.name] = found.replaced


def in_chunk(layer: Any) -> bool:
    """Returns whether this thread runs a chunk, in which a layer with a state continues from it."""
    return isinstance(vars(layer).get("forward"), Continued) and _OF_CALL.get() is not None


def in_chunks() -> bool:
    """Returns whether this thread runs a chunk."""
    return _OF_CALL.get() is not None


def _usable(state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...] | None:
    """Returns the state for this chunk; autograd needs copies of tensors made in inference mode."""
    if state is None or torch.is_inference_mode_enabled():
        return state
    for part in state:
        if part.is_inference():
            return tuple([part.clone() for part in state])
    return state
