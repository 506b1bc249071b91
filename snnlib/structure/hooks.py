"""Forward hooks that change what a module gets or gives, which another form of a net has to keep or to refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

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
