"""Runs a block from within the `forward` of a user's class, which calls the block's modules one after the other.

Each part of a block has a `PartForward` in the place of its method `forward`. While the block's owner runs, the first
part returns a `Pending` in place of a tensor, parts between pass it on, and the last part runs the block on the first
one's input. Whatever else reads a `Pending` gets the tensor that the parts so far give: they run then, by themselves.
The function `x.flatten(2)` is a part as well: the module before it returns a `Pending` for its output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.nn.fusion.hooks import is_watched

if TYPE_CHECKING:
    from snnlib.nn.fusion.fused_block import Block


class FlattenCall(nn.Flatten):
    """Stands for the function `x.flatten(2)` among the calls and parts of a net."""

    def __init__(self) -> None:
        super().__init__(2)


class Places(NamedTuple):
    """Block and place of each part, and the block that begins by flattening the output of a module."""

    parts: Mapping[nn.Module, tuple[Block, int]]
    flattened: Mapping[nn.Module, Block]


# While an owner of blocks runs in this thread.
_PLACES: ContextVar[Places] = ContextVar("parts of running owners", default=Places({}, {}))  # noqa: B039 - never changed


class Pending:
    """Output of the first parts of a block that has not run: a stand-in for a tensor between two parts.

    Args:
        block: the block.
        passed: number of parts that were called; 0 for the input of the block itself.
        x: input of the block.
    """

    def __init__(self, block: Block, passed: int, x: Tensor) -> None:
        self._block, self._passed, self._x = block, passed, x
        self._records = torch.is_grad_enabled()
        self._value: Tensor | None = None

    def passed_on(self, block: Block, place: int) -> Tensor | None:
        """Returns the input of `block` if this stands for the input of its part at `place`, else None."""
        waits = self._value is None and self._block is block and self._passed == place
        return self._x if waits else None

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Stands for the flattened frames if the block begins with their flattening; else flattens the tensor."""
        begins = self._passed == 0 and isinstance(self._block.parts[0], FlattenCall)
        if begins and (start_dim, end_dim) == (2, -1):
            return Pending(self._block, 1, self._x)
        return self.computed().flatten(start_dim, end_dim)

    def computed(self) -> Tensor:
        """Returns the tensor: the parts so far run, once."""
        if self._passed == 0:
            return self._x
        if self._value is None:
            if self._records and not torch.is_grad_enabled():
                raise RuntimeError(
                    f"{type(self._block.parts[self._passed - 1]).__name__}: expected its output in the module behind "
                    "it, where fuse_(net, x) saw it, got it within a function without gradients; call unfuse_(net)"
                )
            with apart(self._block):
                value = self._x
                for part in self._block.parts[: self._passed]:
                    value = part(value)
            self._value = value
        return self._value

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Calls functions of torch with the tensor."""
        if func is torch.flatten and isinstance(args[0], Pending):
            return args[0].flatten(*args[1:], **(kwargs or {}))
        args, kwargs = computed((tuple(args), kwargs or {}))
        return func(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.computed(), name)


def _operator(name: str) -> Callable[..., Any]:
    def run(self: Pending, *others: Any) -> Any:
        return getattr(self.computed(), name)(*computed(others))

    return run


_OPERATORS = (
    "add radd iadd sub rsub isub mul rmul imul truediv rtruediv matmul rmatmul pow neg abs invert "
    "eq ne lt le gt ge and or xor getitem setitem len iter bool float int"
)
# Python looks for operators in the class alone.
for _name in _OPERATORS.split():
    setattr(Pending, f"__{_name}__", _operator(f"__{_name}__"))


def computed(given: Any) -> Any:
    """Returns arguments or results with tensors in the place of `Pending`."""
    if isinstance(given, Tensor):
        return given
    if isinstance(given, Pending):
        return given.computed()
    return pytree.tree_map_only(Pending, Pending.computed, given)


class PartForward:
    """Stands for the method `forward` of a block's part, in a net that `fuse_` was given with an input."""

    # Blocks stay fused though their parts have another `forward` than their class.
    sees_blocks = True

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the part's output, a `Pending`, or the output of the block."""
        module = self.module
        run = type(module).forward
        if torch.compiler.is_compiling():
            return run(module, *args, **kwargs)
        places, is_single = _PLACES.get(), len(args) == 1 and not kwargs
        found = places.parts.get(module) if is_single else None
        if found is not None:
            (block, place), (x,) = found, args
            if place == 0:
                x = computed(x)
                return run(module, x) if is_watched(block.watched) else Pending(block, 1, x)
            start = x.passed_on(block, place) if isinstance(x, Pending) else None
            # The first part has looked for hooks.
            if start is not None and place < len(block.parts) - 1:
                return Pending(block, place + 1, start)
            out = run(module, computed(x)) if start is None else block.run_fused(start)
        elif is_single:
            out = run(module, computed(args[0]))
        else:
            args, kwargs = computed((args, kwargs))
            out = run(module, *args, **kwargs)
        return handed_on(module, out) if places.flattened else out


def handed_on(module: nn.Module, out: Any) -> Any:
    """Returns a module's output, or what stands for it if a block of the running owners begins by flattening it."""
    if torch.compiler.is_compiling():
        return out
    block = _PLACES.get().flattened.get(module)
    waits = block is not None and isinstance(out, Tensor) and not is_watched(block.watched)
    return Pending(block, 0, out) if block is not None and waits else out


@contextmanager
def handing_over(places: Places) -> Iterator[None]:
    """Lets parts hand the input of their block over, within a `with` block of this thread."""
    before = _PLACES.get()
    token = _PLACES.set(Places({**before.parts, **places.parts}, {**before.flattened, **places.flattened}))
    try:
        yield
    finally:
        _PLACES.reset(token)


@contextmanager
def apart(block: Block) -> Iterator[None]:
    """Lets the parts of a block run by themselves, within a `with` block of this thread."""
    places = _PLACES.get()
    parts = {part: found for part, found in places.parts.items() if found[0] is not block}
    flattened = {module: found for module, found in places.flattened.items() if found is not block}
    token = _PLACES.set(Places(parts, flattened))
    try:
        yield
    finally:
        _PLACES.reset(token)


def places_of(blocks: Sequence[Block]) -> Places:
    """Returns block and place of each part, and the modules before functions that are a block's first part."""
    parts = {part: (block, place) for block in blocks for place, part in enumerate(block.parts)}
    return Places(parts, {module: block for block in blocks for module in block.before})
