"""Modules that a net calls one after the other, from two forward passes: in evaluation and in training mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from snnlib.nn.fusion.handover import FlattenCall

# Functions by which Python reads values of tensors: what follows may depend on them.
_READS = (
    *(
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__contains__",
        "item",
        "tolist",
        "numpy",
        "equal",
        "allclose",
    ),
    *("is_nonzero", "nonzero"),
)

FLATTEN = FlattenCall()

# Says whether calls within a module are its own affair.
Leaf = Callable[[nn.Module], bool]


@dataclass(frozen=True)
class ModuleCall:
    """A call of a module with one tensor.

    Args:
        module: the module.
        x: the tensor that it read.
        source, result: numbers of the tensors that it read and gave.
        running: modules whose `forward` made the call, the outermost first.
    """

    module: nn.Module
    x: Tensor
    source: int
    result: int
    running: tuple[nn.Module, ...]


@dataclass
class Calls:
    """Calls of modules in one forward pass.

    Args:
        made: calls with one tensor that gave one tensor.
        uses: how many calls of modules and functions read each tensor; the net's result counts as one.
        times: how often each module was called.
        reads: modules whose `forward` read values of tensors.
    """

    made: list[ModuleCall] = field(default_factory=list)
    uses: Counter[int] = field(default_factory=Counter)
    times: Counter[nn.Module] = field(default_factory=Counter)
    reads: set[nn.Module] = field(default_factory=set)

    def chains(self) -> Iterator[list[ModuleCall]]:
        """Yields the calls that begin at each call, each the only use of the result before it."""
        once = [
            call for call in self.made if isinstance(call.module, FlattenCall) or self.times[call.module] == 1
        ]
        readers = {call.source: call for call in once}
        for first in once:
            chain = [first]
            while (after := readers.get(chain[-1].result)) and self.uses[after.source] == 1:
                chain.append(after)
            yield chain


class _Recorder(TorchFunctionMode):
    """Counts uses of tensors, by functions through this mode and by modules through hooks."""

    def __init__(self, is_leaf: Leaf) -> None:
        super().__init__()
        self.calls, self._is_leaf = Calls(), is_leaf
        # Tensors are held, so that no identity is used twice.
        self._held: dict[int, Tensor] = {}
        self._running: list[nn.Module] = []
        # Number of leaves that run; functions within are their own affair.
        self._within = 0

    def number(self, tensor: Tensor) -> int:
        """Returns the number of a tensor."""
        return id(self._held.setdefault(id(tensor), tensor))

    def count(self, given: Any) -> None:
        """Counts a use of each tensor."""
        self.calls.uses.update(
            self.number(leaf) for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor)
        )

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self._within:
            self.count((args, kwargs))
            if getattr(func, "__name__", "") in _READS:
                self.calls.reads.update(self._running)
        out = func(*args, **(kwargs or {}))
        if func in (Tensor.flatten, torch.flatten) and args and not self._within and out is not args[0]:
            given = {**dict(zip(("start_dim", "end_dim"), args[1:], strict=False)), **(kwargs or {})}
            if given in ({"start_dim": 2}, {"start_dim": 2, "end_dim": -1}):
                self._note(FLATTEN, args[0], out)
        return out

    def _note(self, module: nn.Module, x: Tensor, result: Tensor) -> None:
        numbers = self.number(x), self.number(result)
        self.calls.made.append(ModuleCall(module, x, *numbers, tuple(self._running)))

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Notes that a module begins to run."""
        if self._within:
            self._within += 1
            return
        self.calls.times[module] += 1
        if self._is_leaf(module):
            self.count((args, kwargs))
            self._within = 1
        else:
            self._running.append(module)

    def after(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        """Notes a module's call."""
        if not self._within:
            self._running.pop()
            return
        self._within -= 1
        tensors = len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and isinstance(result, Tensor)
        if not self._within and tensors and result is not args[0]:
            self._note(module, args[0], result)


def calls_of(net: nn.Module, x: Tensor, is_leaf: Leaf) -> Calls:
    """Returns the calls of one forward pass without gradients in the net's present mode; leaves run as a whole."""
    recorder = _Recorder(is_leaf)
    hooked: dict[str, Any] = {"with_kwargs": True}
    with ExitStack() as stack:
        for module in net.modules():
            first = module.register_forward_pre_hook(recorder.before, prepend=True, **hooked)
            last = module.register_forward_hook(recorder.after, **hooked)
            stack.callback(first.remove)
            stack.callback(last.remove)
        with torch.no_grad(), recorder:
            result = net(x)
        recorder.count(result)
    return recorder.calls


@contextmanager
def unchanged(net: nn.Module) -> Iterator[None]:
    """Restores buffers, modes and random numbers after a `with` block."""
    modes = [(module, module.training) for module in net.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in net.buffers()]
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)


def chains_in_both_modes(
    net: nn.Module, x: Tensor, is_leaf: Leaf
) -> tuple[list[list[ModuleCall]], list[str]]:
    """Returns chains of calls that evaluation and training have in common, and why others are left alone.

    A chain of one call has no other call that alone reads its result.
    """
    with unchanged(net):
        found = [calls_of(net.train(mode), x, is_leaf) for mode in (True, False)]
    names = {module: name or "net" for name, module in net.named_modules()}
    reads = found[0].reads | found[1].reads
    left = [
        f"{names[module]}: its forward reads values of tensors"
        for module in names
        if module in reads and not any(part in reads for part in module.modules() if part is not module)
    ]
    evaluated = {chain[0].module: [call.module for call in chain] for chain in found[1].chains()}
    common: list[list[ModuleCall]] = []
    for chain in found[0].chains():
        pairs = zip(chain, evaluated.get(chain[0].module, ()), strict=False)
        same = [call for call, _ in takewhile(lambda pair: pair[0].module is pair[1], pairs)]
        if same and not reads.intersection(chain[0].running):
            common.append(same)
    return common, left
