"""Checks of calls: outside the transforms of `torch.func`, differentiated once, in the dtype of autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C import _functions, _functorch
from torch.autograd import forward_ad

_MESSAGE = (
    "gradients of a spiking layer: expected one backward pass, got a derivative of them (create_graph=True); "
    "the gradients of spikes are rules without a derivative"
)


def in_transform() -> bool:
    """Returns whether the call is inside `torch.func.vmap`, `grad` or their kind."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def is_recorded() -> bool:
    """Returns whether a compiler or `torch.jit.trace` records the call, in which sizes may be no integers."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def is_eager() -> bool:
    """Returns whether a call is neither recorded nor inside a transform."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def runs_alone(like: Tensor) -> bool:
    """Returns whether a call runs eagerly on a CPU, where no compiler, transform or mode watches torch's operations."""
    if not is_eager() or torch._C._len_torch_dispatch_stack():
        return False
    # Other classes of tensors may have no memory.
    return like.is_cpu and type(like) in (Tensor, torch.nn.Parameter)


def in_forward_mode() -> bool:
    """Returns whether the call is inside `torch.autograd.forward_ad.dual_level`."""
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


def check_untransformed(what: str, batches: bool = False) -> None:
    """Raise RuntimeError inside `torch.func.vmap`, `grad` and their kind, which do not know the layers' gradients.

    What runs in `batches` may be called within `vmap`, where no other transform is.
    """
    if torch.compiler.is_compiling():
        return
    # Nearly every call is in no transform and no forward mode.
    if torch._C._functorch.peek_interpreter_stack() is None and forward_ad._current_level < 0:
        return
    levels = torch._C._functorch.get_interpreter_stack() or []
    if any(not batches or level.key() != torch._C._functorch.TransformType.Vmap for level in levels):
        _refuse(what, "torch.func.vmap, grad and their kind")
    check_reverse_mode(what)


def check_reverse_mode(what: str) -> None:
    """Raise RuntimeError inside `torch.autograd.forward_ad.dual_level`, where torch drops an op's tangents silently."""
    if in_forward_mode():
        _refuse(what, "torch.func and torch.autograd.forward_ad")


def check_no_state(module: object, state: object) -> None:
    """Raise TypeError where a call of a layer or of neurons gives more than the sequence, as `rnn(x, h0)` does."""
    # `torch.fx` gives a proxy, which the check of the input names.
    if isinstance(state, tuple) and state:
        run = f"{type(module).__name__}.run(x, state)"
        raise TypeError(f"state: expected none, got one; {run} takes one and gives (output, state)")


def check_traced(what: str, weight: Tensor) -> None:
    """Raise RuntimeError inside `torch.jit.trace` where gradients are recorded, whose rules no trace can hold."""
    if torch._C._get_tracing_state() is not None and weight.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{what}: expected torch.jit.trace within torch.no_grad(), got a trace with gradients, whose rules it "
            "cannot hold; torch.compile keeps them, and torch.export.export stores nets"
        )


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """Returns the dtype that autocast asks for on x's device, None where it is off.

    Torch refuses the question for the device "meta".
    """
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def as_autocast(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both in the dtype that autocast asks for on x's device, as they are where it is off."""
    dtype = autocast_dtype(x)
    return (x, weight) if dtype is None else (x.to(dtype), weight.to(dtype))


def without_autocast(x: Tensor) -> AbstractContextManager[None]:
    """Returns a context in which products of tensors on x's device keep their dtype."""
    return nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)


def _refuse(what: str, where: str) -> NoReturn:
    raise RuntimeError(
        f"{what}: expected a call outside {where}, got one inside; spiking layers "
        "take many samples at once in the batch dimension N of [T, N, ...], and loss.backward() gives their "
        "gradients, in a loop over the samples those of each"
    )


def no_second_derivative(_ctx: Any, *_grads: Tensor | None) -> NoReturn:
    """The backward pass of an op that computes gradients: raises RuntimeError."""
    raise RuntimeError(_MESSAGE)


def one_by_one(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A `backward` that runs once per gradient where `torch.autograd.grad(is_grads_batched=True)` gives many at once.

    Kernels read the memory of one gradient, which such a batch hides.
    """

    @functools.wraps(backward)
    def looped(ctx: Any, *grads: Tensor | None) -> Any:
        if torch.compiler.is_compiling() or not any(map(is_batch, grads)):
            return backward(ctx, *grads)
        level = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
        # Gradients without a batch get one of size 1.
        whole = [torch._remove_batch_dim(grad, level, 1, 0) if grad is not None else grad for grad in grads]
        size = max(len(grad) for grad in whole if grad is not None)
        found = [
            backward(ctx, *(grad if grad is None else grad[index % len(grad)] for grad in whole))
            for index in range(size)
        ]
        columns = zip(*(one if isinstance(one, tuple) else (one,) for one in found), strict=True)
        return tuple(
            None if column[0] is None else torch._add_batch_dim(torch.stack(column), 0, level)
            for column in columns
        )

    return looped


def is_batch(grad: Tensor | None) -> bool:
    """Returns whether a gradient is a batch of them, as `is_grads_batched=True` passes through the graph."""
    return grad is not None and _functorch.is_legacy_batchedtensor(grad)


def differentiable_once(
    backward: Callable[..., tuple[Tensor | None, ...]],
) -> Callable[..., tuple[Tensor | None, ...]]:
    """A `backward` of a `torch.autograd.Function` whose gradients fail where they are differentiated again.

    `torch.autograd.function.once_differentiable` gives gradients that count as constants where the incoming gradient is
    one, as that of a sum is. They depend on inputs and weights all the same, so a penalty on them would do nothing.
    """

    @one_by_one
    @functools.wraps(backward)
    def guarded(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return backward(ctx, *grads)
        with torch.no_grad():
            found = backward(ctx, *grads)
        marked = [None if grad is None else grad.detach().requires_grad_() for grad in found]
        # With incoming gradients and saved tensors, so that torch.autograd.grad meets the error on its way to what they
        # depend on.
        marked += [one for one in (*grads, *ctx.saved_tensors) if one is not None and one.requires_grad]
        # Its stub knows tensors alone; an argument without gradient has none.
        failing: tuple[Tensor | None, ...] = _functions.DelayedError(_MESSAGE.encode(), len(marked))(*marked)  # type: ignore[arg-type]
        return failing[: len(found)]

    return guarded
