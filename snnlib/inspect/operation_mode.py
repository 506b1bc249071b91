"""Shows every operation that torch runs within a `with` block, taken apart as far as its products can be counted."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

# (name of the operation, its arguments by name, runs it) -> its result
Observer = Callable[[str, dict[str, Any], Callable[[], Any]], Any]


@contextmanager
def shown_to(observer: Observer, names: frozenset[str], net: nn.Module) -> Iterator[None]:
    """Let `observer` run the operations of these names, on this thread.

    Attention and recurrent layers of the net run as products of matrices, which are among the operations, and what is
    compiled runs as it was written.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if any(isinstance(module, nn.RNNBase) for module in net.modules()):
            # `torch.backends.mkldnn.flags` sets more than this, and warns about it.
            stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
            torch._C._set_mkldnn_enabled(False)
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_Mode(observer, names))
        yield


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Torch would import its compiler, which takes seconds, to keep it away from here.
        return False

    def __init__(self, observer: Observer, names: frozenset[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._observer, self._names = observer, names

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name, apart = _kind(func)
        if apart:
            # In inference mode operations arrive whole.
            with self:
                taken_apart = func.decompose(*args, **kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
        if name not in self._names:
            return func(*args, **kwargs)
        named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
        return self._observer(name, {**named, **kwargs}, lambda: func(*args, **kwargs))


# For the whole process, as torch takes tens of microseconds to say it.
@functools.cache
def _kind(func: Any) -> tuple[str, bool]:
    """An operation's name, and whether it may have to be taken apart."""
    return func._schema.name, func.namespace == "aten" and func._can_decompose()
