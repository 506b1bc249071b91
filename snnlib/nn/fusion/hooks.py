"""Forward hooks of tools: the calls that they see, and whether blocks stay fused in spite of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module


def of_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a hook for calls of this thread, as other threads may run the same net at the same time."""
    thread = get_ident()

    @functools.wraps(hook)
    def own(*given: Any) -> Any:
        # A compiler cannot trace the question.
        return hook(*given) if torch.compiler.is_compiling() or get_ident() == thread else None

    own.thread = thread  # type: ignore[attr-defined]
    return own


def is_watched(parts: Iterable[nn.Module]) -> bool:
    """Returns whether a fused run would bypass a hook or a replaced `forward` of these modules."""
    # Hooks of all modules; torch 2.6 has no function that tells.
    if not torch.compiler.is_compiling() and (
        torch_module._global_forward_pre_hooks
        or torch_module._global_forward_hooks
        or torch_module._global_backward_pre_hooks
        or torch_module._global_backward_hooks
    ):
        return True
    # Loops take less time than `any` with generators, and than functions that call themselves.
    modules = [*parts]
    for module in modules:
        if module._modules:
            modules += [child for child in module._modules.values() if child is not None]
        replaced = module.__dict__.get("forward")
        if (
            replaced is not None
            or module._forward_pre_hooks
            or module._forward_hooks
            or module._backward_pre_hooks
            or module._backward_hooks
        ) and _has_hook(module, replaced):
            return True
    return False


def _has_hook(module: nn.Module, replaced: Any) -> bool:
    own = (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._backward_pre_hooks,
        module._backward_hooks,
    )
    if replaced is not None and _needs_parts(replaced):
        return True
    # Other threads add and remove hooks.
    return any(_needs_parts(hook) for hooks in own if hooks for hook in list(hooks.values()))


def _needs_parts(hook: Any) -> bool:
    if hasattr(hook, "sees_blocks"):
        return False
    thread = getattr(hook, "thread", None)
    return thread is None or thread == get_ident()
