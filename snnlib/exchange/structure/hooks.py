"""Forward hooks that change what a module gets or gives, which another form of a net has to keep or to refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.structure.peers import attributes_kept


def acting_hooks(net: nn.Module, run: Callable[[], Any]) -> dict[str, str]:
    """Returns the modules whose forward hooks, or hooks before a forward, act in a run, and what each hook is.

    A hook acts where it returns something or changes a tensor in place; a hook that records does neither.

    Args:
        net: the net, which the run leaves as it was.
        run: calls it.
    """
    found: dict[str, str] = {}

    def watched(path: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            tensors = [leaf for leaf in pytree.tree_leaves(given[1:]) if isinstance(leaf, Tensor)]
            versions = [tensor._version for tensor in tensors if not tensor.is_inference()]
            result = hook(*given)
            after = [tensor._version for tensor in tensors if not tensor.is_inference()]
            if result is not None or after != versions:
                found.setdefault(path, f"its hook {getattr(hook, '__name__', hook)} changes what it computes")
            return result

        return call

    with attributes_kept(net):
        hooked = False
        for path, module in net.named_modules():
            for hooks in (module._forward_pre_hooks, module._forward_hooks):
                for key, hook in hooks.items():
                    hooks[key] = watched(path, hook)
                    hooked = True
        if hooked:
            run()
    return found


@torch.no_grad()
def check_no_acting_hooks(net: nn.Module, x: Tensor | None) -> None:
    """Raises where a forward hook changes what a net computes, which its layers do not tell.

    Args:
        net: the net.
        x: an input `[T, N, ...]`. None refuses every hook, as only a run tells a hook that acts from one that records.

    Raises:
        Unsupported: names the module and its hook.
    """
    if x is not None:
        found = acting_hooks(net, lambda: net(x))
    else:
        hooked = (
            path for path, module in net.named_modules() if module._forward_hooks or module._forward_pre_hooks
        )
        found = dict.fromkeys(hooked, "it has forward hooks; give x, to see if they change what it computes")
    for path, text in found.items():
        raise Unsupported(
            f"{path or 'net'}: expected no hook that acts, got: {text}; remove it first", named=True
        )
