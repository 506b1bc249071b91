"""Ops called without torch's dispatcher, which takes longer on the host than the kernel of a small layer.

A direct call has the same results: it runs the body of an op, where inputs learn within a `torch.autograd.Function` of
the registered gradient. Compilers, modes, transforms, traces, profilers and subclasses of tensors wait for ops in the
dispatcher, which also resolves views of another sign and tensors without memory: for all of these the op is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch.nn import Parameter

from snnlib.checks.calls import one_by_one

_ORDINARY = Tensor, Parameter


def _listeners() -> tuple[Callable[[], object], ...]:
    """Returns functions whose results are true while dispatch has a listener; if torch lacks one, it always has."""
    c = torch._C
    try:
        return (
            c._len_torch_dispatch_stack,
            c._len_torch_function_stack,
            c._functorch.peek_interpreter_stack,
            c._get_tracing_state,
            c._autograd._profiler_enabled,
        )
    except AttributeError:
        return (lambda: True,)


_LISTENERS = _listeners()


def is_direct(*tensors: Tensor | None) -> bool:
    """Returns whether ops on these tensors may be called directly."""
    if torch.compiler.is_compiling():
        return False
    # Loops take half the time of `any` and `all` with functions or generators.
    for listener in _LISTENERS:
        if listener():
            return False
    for tensor in tensors:
        # The body of an op reads its arguments as they are.
        if tensor is not None and (
            type(tensor) not in _ORDINARY or tensor.is_meta or tensor.is_neg() or tensor._is_zerotensor()
        ):
            return False
    return True


class Op:
    """An op of torch that is called directly where nobody listens to the dispatcher.

    Args:
        definition: the op.
        function: its body, a function of one object with the arguments.
        named: makes this object from the arguments in the order of the schema.
    """

    def __init__(
        self, definition: CustomOpDef, function: Callable[[Any], Any], named: Callable[..., Any]
    ) -> None:
        self.definition, self.overload = definition, definition._opoverload
        self.function, self.named = function, named
        arguments = self.overload._schema.arguments
        self.count = len(arguments)
        self.tensors = [place for place, one in enumerate(arguments) if "Tensor" in str(one.type)]
        # An op without a gradient says so in its backward pass.
        self.learning: Callable[..., Any] = self.overload

    def __call__(self, *values: Any) -> Any:
        if torch.compiler.is_compiling() or len(values) != self.count:
            return self.overload(*values)
        tensors = [values[place] for place in self.tensors]
        if not is_direct(*tensors):
            return self.overload(*values)
        if torch.is_grad_enabled():
            for one in tensors:
                if one is not None and one.requires_grad:
                    return self.learning(*values)
        return self.function(self.named(*values))

    def register_autograd(
        self, backward: Callable[..., Any], setup_context: Callable[..., None] | None = None
    ) -> None:
        """Registers the gradient of the op, as `torch.library.custom_op` takes it, for both ways."""
        backward = one_by_one(backward)
        self.definition.register_autograd(backward, setup_context=setup_context)
        function, named = self.function, self.named

        def forward(ctx: Any, *values: Any) -> Any:
            output = function(named(*values))
            if setup_context is not None:
                setup_context(ctx, values, output)
            return output

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        direct: Any = type("Direct", (torch.autograd.Function,), members)
        self.learning = direct.apply
