"""Surroundings of a module, by kind: changes of a plan, which `convert` has to keep or to refuse by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from convert_nets import Inline, Plan
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Option(NamedTuple):
    """A surrounding.

    Args:
        kind: of the surrounding; a net has one of each kind.
        name: its name.
        change: changes a plan.
        fits: whether a plan may have it.
    """

    kind: str
    name: str
    change: Callable[[Plan], None]
    fits: Callable[[Plan], bool] = lambda plan: True

    def put(self, plan: Plan) -> None:
        """Change a plan."""
        plan.names.append(f"{self.kind}: {self.name}")
        self.change(plan)


OPTIONS: list[Option] = []


def add(
    kind: str, name: str, change: Callable[[Plan], None], fits: Callable[[Plan], bool] = lambda plan: True
) -> None:
    OPTIONS.append(Option(kind, name, change, fits))


def afterwards(
    kind: str, name: str, change: Callable[[dict[str, Any], Any], Any], fits: Any = lambda plan: True
) -> None:
    add(kind, name, lambda plan: plan.changes.append(change), fits)


def is_class(plan: Plan) -> bool:
    return not plan.chain


# Hooks, by what they do and where.
def halved(out: Any) -> Any:
    return (out[0] * 0.5, *out[1:]) if isinstance(out, tuple) else out * 0.5


def _first(out: Any) -> Tensor:
    return out[0] if isinstance(out, tuple) else out  # type: ignore[no-any-return]


HOOKS: dict[str, Callable[[Any], Any]] = {
    "acts": lambda m: m.register_forward_hook(lambda module, inputs, out: halved(out)),
    "acts before": lambda m: m.register_forward_pre_hook(
        lambda module, inputs: (inputs[0] * 0.5, *inputs[1:])
    ),
    "acts with keywords": lambda m: m.register_forward_hook(
        lambda module, inputs, kwargs, out: halved(out), with_kwargs=True
    ),
    "acts before with keywords": lambda m: m.register_forward_pre_hook(
        lambda module, inputs, kwargs: ((inputs[0] * 0.5, *inputs[1:]), kwargs), with_kwargs=True
    ),
    "acts always": lambda m: m.register_forward_hook(
        lambda module, inputs, out: halved(out), always_call=True
    ),
    "acts in training": lambda m: m.register_forward_hook(
        lambda module, inputs, out: halved(out) if module.training else None
    ),
    "acts on positive sums": lambda m: m.register_forward_hook(
        lambda module, inputs, out: halved(out) if float(_first(out).sum()) > 3 else None
    ),
    "writes": lambda m: m.register_forward_hook(_writes),
    "writes by data": lambda m: m.register_forward_hook(_writes_data),
    "records": lambda m: m.register_forward_hook(lambda module, inputs, out: None),
    "records before": lambda m: m.register_forward_pre_hook(lambda module, inputs: None),
    "acts backward": lambda m: m.register_full_backward_hook(
        lambda module, grads, _: tuple(g if g is None else 2 * g for g in grads)
    ),
    "acts before backward": lambda m: m.register_full_backward_pre_hook(
        lambda module, grads: tuple(g if g is None else 2 * g for g in grads)
    ),
    "records backward": lambda m: m.register_full_backward_hook(lambda module, grads, _: None),
    "acts on gradients": lambda m: m.register_forward_hook(lambda module, inputs, out: _hooked(_first(out))),
}


def _writes(module: Any, inputs: Any, out: Any) -> None:
    _first(out).mul_(0.5)


def _writes_data(module: Any, inputs: Any, out: Any) -> None:
    _first(out).data.mul_(0.5)


def _hooked(out: Tensor) -> None:
    if out.requires_grad:
        out.register_hook(lambda grad: 2 * grad)


for _name, _hook in HOOKS.items():
    for _place in ("fc1", "n1", "block", "tail", "net"):
        afterwards(
            "hook",
            f"{_name}, {_place}",
            lambda parts, kit, hook=_hook, place=_place: hook(parts[place]),
            (lambda plan: plan.chain) if _place == "tail" else lambda plan: True,
        )


@contextlib.contextmanager
def _globally(acts: bool) -> Iterator[None]:
    def hook(module: Any, inputs: Any, out: Any) -> Any:
        return out * 0.5 if acts and isinstance(module, nn.Linear) else None

    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


add("hook", "acts, everywhere", lambda plan: setattr(plan, "around", partial(_globally, True)))
add("hook", "records, everywhere", lambda plan: setattr(plan, "around", partial(_globally, False)))

# Contexts, by place.
CONTEXTS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad(False)": lambda: torch.set_grad_enabled(False),
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "no autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16, enabled=False),
    "enable_grad": torch.enable_grad,
}


def _cast_back(net: Any, current: Tensor, *_: int) -> Tensor:
    # Tensors made in inference mode cannot be saved for a backward pass.
    current = current.clone() if current.is_inference() else current
    return current.double() if current.dtype == torch.float64 else current.float()


def _in_context(plan: Plan, place: str, context: Callable[[], Any]) -> None:
    plan.contexts[place] = context
    plan.inline.append(_cast_back)


for _name, _context in CONTEXTS.items():
    for _place in ("block", "neuron", "between", "step"):
        add("context", f"{_name}, {_place}", partial(_in_context, place=_place, context=_context), is_class)
    for _place in ("fc1", "n1", "block", "net"):
        add(
            "context",
            f"{_name}, patched into {_place}",
            partial(_in_context, place=f"patched {_place}", context=_context),
        )


# Functions between a layer and its neuron.
def _skip(net: Any, current: Tensor, *_: int) -> Tensor:
    return current + 0.125 if net.training else current


def _item(net: Any, current: Tensor, *_: int) -> Tensor:
    return current if float(current.detach().sum()) > 10 else current * 0.5


def _plus(net: Any, current: Tensor, *_: int) -> Tensor:
    current += 0.25
    return current


def _set_first(net: Any, current: Tensor, *_: int) -> Tensor:
    current = current * 1.0
    current[..., 0] = 2.0
    return current


def _add_to_first(net: Any, current: Tensor, *_: int) -> Tensor:
    current = current * 1.0
    current[..., 0] += 2.0
    return current


def _set_masked(net: Any, current: Tensor, *_: int) -> Tensor:
    current = current.clone()
    current[current < 0.5] = 0.0
    return current


def _through_view(net: Any, current: Tensor, *_: int) -> Tensor:
    current = current * 1.0
    part = current[..., :2]
    part += 1.0
    return current


def _through_view_zeros(net: Any, current: Tensor, *_: int) -> Tensor:
    out = torch.zeros_like(current)
    out[..., :4] = current[..., :4]
    out.narrow(-1, 2, 2).fill_(1.5)
    return out


def _data(net: Any, current: Tensor, *_: int) -> Tensor:
    current = current * 1.0
    current.data.mul_(0.5)
    return current


def _copied(net: Any, current: Tensor, *_: int) -> Tensor:
    out = torch.empty_like(current)
    out.copy_(current * 2.0)
    return out


def _gradient_hook(net: Any, current: Tensor, *_: int) -> Tensor:
    current = current * 1.0
    if current.requires_grad:
        current.register_hook(lambda grad: 2 * grad)
    return current


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (4 * x).round() / 4

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


def _batch_normed(net: Any, current: Tensor, *_: int) -> Tensor:
    if current.dim() != 2:
        return current
    return functional.batch_norm(current, net.mean, net.variance, training=net.training)


def _counted(net: Any, current: Tensor, *_: int) -> Tensor:
    net.calls = getattr(net, "calls", 0) + 1
    return current


def _by_count(net: Any, current: Tensor, *_: int) -> Tensor:
    return _counted(net, current) * (1.0 if net.calls % 3 else 2.0)


def _only_once(net: Any, current: Tensor, *_: int) -> Tensor:
    return _counted(net, current) * (2.0 if net.calls == 1 else 1.0)


def _running(net: Any, current: Tensor, *_: int) -> Tensor:
    net.mean.mul_(0.5).add_(0.5 * current.detach().mean())
    return current


def _into_list(net: Any, current: Tensor, *_: int) -> Tensor:
    parts = [*current.chunk(2, -1)]
    return torch.cat(parts[::-1], -1)


def _tuples(net: Any, current: Tensor, *_: int) -> Tensor:
    values, _indices = current.sort(dim=-1)
    low, high = values.split(values.shape[-1] // 2, -1)
    return torch.cat([high, low], -1)


def _as_module(plan: Plan, function: Inline) -> None:
    plan.inline.append(function)
    plan.as_module = True


INLINE: dict[str, dict[str, Inline]] = {
    "branch": {
        "factor in training": lambda net, c, *_: c * (1.0 if net.training else 0.5),
        "calls in training": _skip,
        "calls in evaluation": lambda net, c, *_: c if net.training else c * 0.5,
        "p in training": lambda net, c, *_: functional.dropout(c, 0.5 if net.training else 0.0),
        "tensor in training": lambda net, c, *_: torch.where(torch.tensor(net.training), c, 0.5 * c),
        "value of x": _item,
        "value of x as a number": lambda net, c, *_: c / float(c.detach().abs().max().clamp(min=1)),
    },
    "size": {
        "samples": lambda net, c, n, t, _: c * (n / 5),
        "branch on samples": lambda net, c, n, t, _: c * (1.0 if n < 4 else 2.0),
        "ones of samples": lambda net, c, n, t, _: c + torch.ones(*c.shape[:-1], 1),
        "expand": lambda net, c, n, t, _: c + net.bump.to(c).expand(c.shape) if hasattr(net, "bump") else c,
        "arange": lambda net, c, n, t, _: c + torch.arange(c.shape[0]).view(-1, *[1] * (c.dim() - 1)) / 16,
        "view": lambda net, c, n, t, _: c.view(*c.shape[:-1], -1),
        "steps": lambda net, c, n, t, _: c * (t / 6),
        "branch on steps": lambda net, c, n, t, _: c * (1.0 if t < 5 else 2.0),
        "step": lambda net, c, n, t, i: c * (1 + i / 4),
        "last step": lambda net, c, n, t, i: c * (2.0 if i == t - 1 else 1.0),
        "mean of samples": lambda net, c, n, t, _: c - 0.5 * c.mean(0),
        "numel": lambda net, c, n, t, _: c * (c.numel() / 40),
        "len": lambda net, c, n, t, _: c * (len(c) / 5),
    },
    "in place": {
        "+=": _plus,
        "clamp_": lambda net, c, *_: (c * 1.0).clamp_(min=0.0),
        "relu_": lambda net, c, *_: functional.relu(c * 1.0, inplace=True),
        "masked_fill_": lambda net, c, *_: (c * 1.0).masked_fill_(c < 0.5, 0.0),
        "index": _set_first,
        "index +=": _add_to_first,
        "mask": _set_masked,
        "view": _through_view,
        "view of zeros": _through_view_zeros,
        "data": _data,
        "copy_": _copied,
        "buffer": _running,
        "lerp_": lambda net, c, *_: (c * 1.0).lerp_(2 * c, 0.5),
        "neg_": lambda net, c, *_: (c * 1.0).neg_().neg_(),
        "zero_": lambda net, c, *_: c + (c * 1.0).zero_(),
        "sigmoid_": lambda net, c, *_: 2 * (c * 1.0).sigmoid_(),
    },
    "dropout": {
        "in training": lambda net, c, *_: functional.dropout(c, 0.5, net.training),
        "always": lambda net, c, *_: functional.dropout(c, 0.5),
        "by keyword": lambda net, c, *_: functional.dropout(c, p=0.5, training=net.training),
        "p = 0": lambda net, c, *_: functional.dropout(c, 0.0, net.training),
        "in place": lambda net, c, *_: functional.dropout(c * 1.0, 0.5, net.training, inplace=True),
        "alpha": lambda net, c, *_: functional.alpha_dropout(c, 0.5, net.training),
    },
    "function": {
        "detach": lambda net, c, *_: c.detach(),
        "partly detached": lambda net, c, *_: c + (c.clamp(0, 1) - c).detach(),
        "hook on a gradient": _gradient_hook,
        "a backward pass of its own": lambda net, c, *_: _Rounded.apply(c),
        "double and back": lambda net, c, *_: c.double().to(c.dtype) * 1.0,
        "half and back": lambda net, c, *_: c.to(torch.bfloat16).to(c.dtype),
        "batch norm": _batch_normed,
        "layer norm": lambda net, c, *_: functional.layer_norm(c, c.shape[-1:]),
        "softmax": lambda net, c, *_: 8 * c.softmax(-1),
        "softmax over samples": lambda net, c, *_: 8 * c.softmax(0),
        "list": _into_list,
        "tuples": _tuples,
        "cumsum": lambda net, c, *_: c.cumsum(-1) / 4,
        "roll of samples": lambda net, c, *_: c.roll(1, 0),
        "flip": lambda net, c, *_: c.flip(-1),
        "where": lambda net, c, *_: torch.where(c > 0.5, c, torch.zeros(())),
        "einsum": lambda net, c, *_: torch.einsum("...i,...j->...j", c, c) / 8,
        "checkpoint": lambda net, c, *_: checkpoint(lambda y: y * 2.0, c, use_reentrant=False),
        "maximum of samples": lambda net, c, *_: c - c.max(0).values * 0.25,
        "unsqueezed": lambda net, c, *_: c.unsqueeze(0).squeeze(0),
        "transposed": lambda net, c, *_: c.transpose(0, -1).contiguous().transpose(0, -1),
    },
    "attribute": {
        "counted": _counted,
        "by count": _by_count,
        "only once": _only_once,
    },
}
for _kind, _functions in INLINE.items():
    for _name, _function in _functions.items():
        add(f"{_kind}", _name, lambda plan, function=_function: plan.inline.append(function))
        add(
            f"{_kind}",
            f"{_name}, as a module",
            partial(_as_module, function=_function),
            is_class,
        )
