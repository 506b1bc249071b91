"""What may surround a module, by kind: changes of a plan, which `convert` has to keep or to refuse by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from convert_nets import Inline, Plan
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune
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


def _add(kind: str, name: str, change: Callable[[Plan], None], fits: Callable[[Plan], bool] = lambda plan: True) -> None:
    OPTIONS.append(Option(kind, name, change, fits))


def _afterwards(kind: str, name: str, change: Callable[[dict[str, Any], Any], Any], fits: Any = lambda plan: True) -> None:
    _add(kind, name, lambda plan: plan.changes.append(change), fits)


def _classes(plan: Plan) -> bool:
    return not plan.chain


# Hooks, by what they do and where.
def _halved(out: Any) -> Any:
    return (out[0] * 0.5, *out[1:]) if isinstance(out, tuple) else out * 0.5


def _first(out: Any) -> Tensor:
    return out[0] if isinstance(out, tuple) else out  # type: ignore[no-any-return]


HOOKS: dict[str, Callable[[Any], Any]] = {
    "acts": lambda m: m.register_forward_hook(lambda module, inputs, out: _halved(out)),
    "acts before": lambda m: m.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0.5, *inputs[1:])),
    "acts with keywords": lambda m: m.register_forward_hook(
        lambda module, inputs, kwargs, out: _halved(out), with_kwargs=True
    ),
    "acts before with keywords": lambda m: m.register_forward_pre_hook(
        lambda module, inputs, kwargs: ((inputs[0] * 0.5, *inputs[1:]), kwargs), with_kwargs=True
    ),
    "acts always": lambda m: m.register_forward_hook(
        lambda module, inputs, out: _halved(out), always_call=True
    ),
    "acts in training": lambda m: m.register_forward_hook(
        lambda module, inputs, out: _halved(out) if module.training else None
    ),
    "acts on positive sums": lambda m: m.register_forward_hook(
        lambda module, inputs, out: _halved(out) if float(_first(out).sum()) > 3 else None
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
    "acts on gradients": lambda m: m.register_forward_hook(
        lambda module, inputs, out: _hooked(_first(out))
    ),
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
        _afterwards(
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


_add("hook", "acts, everywhere", lambda plan: setattr(plan, "around", partial(_globally, True)))
_add("hook", "records, everywhere", lambda plan: setattr(plan, "around", partial(_globally, False)))

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
    # What inference mode made cannot be saved for a backward pass.
    current = current.clone() if current.is_inference() else current
    return current.double() if current.dtype == torch.float64 else current.float()


def _in_context(plan: Plan, place: str, context: Callable[[], Any]) -> None:
    plan.contexts[place] = context
    plan.inline.append(_cast_back)


for _name, _context in CONTEXTS.items():
    for _place in ("block", "neuron", "between", "step"):
        _add("context", f"{_name}, {_place}", partial(_in_context, place=_place, context=_context), _classes)
    for _place in ("fc1", "n1", "block", "net"):
        _add(
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
        _add(f"{_kind}", _name, lambda plan, function=_function: plan.inline.append(function))
        _add(
            f"{_kind}",
            f"{_name}, as a module",
            lambda plan, function=_function: (plan.inline.append(function), setattr(plan, "as_module", True)) and None,
            _classes,
        )


# Modes.
def _with(make: Callable[[Any], nn.Module]) -> Callable[[dict[str, Any], Any], None]:
    def change(parts: dict[str, Any], kit: Any) -> None:
        parts["block"].mid = parts["mid"] = make(kit)

    return change


def _frozen(module: Any) -> None:
    for parameter in module.parameters():
        parameter.requires_grad_(False)


LAYERS: dict[str, Callable[[Any], nn.Module]] = {
    "norm": lambda kit: kit.norm(8),
    "torch's norm": lambda kit: nn.BatchNorm1d(8),
    "dropout": lambda kit: kit.dropout(0.5),
    "torch's dropout": lambda kit: nn.Dropout(0.5),
}


def _layer_fits(plan: Plan, name: str) -> bool:
    # torch's batch norm takes no sequences of vectors.
    return not plan.conv and not (plan.whole and name == "torch's norm")


for _name, _layer in LAYERS.items():
    for _mode in ("", "evaluation within training", "training within evaluation", "evaluation"):

        def _moded(parts: dict[str, Any], kit: Any, layer: Any = _layer, mode: str = _mode) -> None:
            _with(layer)(parts, kit)
            parts["net"].train("evaluation" not in mode.split(" ")[-1])
            if "within" in mode:
                parts["mid"].train(mode.startswith("training"))

        _afterwards("mode", f"{_name} {_mode}".strip(), _moded, partial(_layer_fits, name=_name))
MODES: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "evaluation": lambda parts, kit: parts["net"].eval(),
    "neuron in evaluation": lambda parts, kit: parts["n1"].eval(),
    "block in evaluation": lambda parts, kit: parts["block"].eval(),
    "net alone in evaluation": lambda parts, kit: setattr(parts["net"], "training", False),
    "fc1 without gradient": lambda parts, kit: _frozen(parts["fc1"]),
    "fc2 without gradient": lambda parts, kit: _frozen(parts["fc2"]),
    "weight without gradient": lambda parts, kit: _layer_in(parts["fc1"]).weight.requires_grad_(False),
}
for _name, _change in MODES.items():
    _afterwards("mode", _name, _change)


# Places that share a module or a weight, in nets without a convolution.
def _module_again(parts: dict[str, Any], kit: Any, name: str, of: str) -> None:
    holder = parts.get("tail", parts["net"]) if name in ("fc2", "n2") else parts["net"]
    places = [key for key, child in holder._modules.items() if child is parts[name]]
    setattr(holder, places[0], parts[of])


SHARED: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "layer": lambda parts, kit: _module_again(parts, kit, "fc2", "fc1"),
    "neuron": lambda parts, kit: _module_again(parts, kit, "n2", "n1"),
    "weight": lambda parts, kit: setattr(parts["fc2"], "weight", parts["fc1"].weight),
    "bias": lambda parts, kit: setattr(parts["fc2"], "bias", parts["fc1"].bias),
    "second name of a neuron": lambda parts, kit: setattr(parts["net"], "other", parts["n1"]),
    "second name of a layer": lambda parts, kit: setattr(parts["net"], "other", parts["fc1"]),
    "weight norm": lambda parts, kit: parametrizations.weight_norm(_layer_in(parts["fc1"])),
    "spectral norm": lambda parts, kit: parametrizations.spectral_norm(_layer_in(parts["fc1"])),
    "pruned": lambda parts, kit: prune.l1_unstructured(_layer_in(parts["fc1"]), "weight", 0.3),
    "without bias": lambda parts, kit: setattr(_layer_in(parts["fc1"]), "bias", None),
    "a forward of its own": lambda parts, kit: _own_forward(parts["fc1"]),
    "a neuron's forward of its own": lambda parts, kit: _own_forward(parts["n1"]),
    "a class of its own": lambda parts, kit: _own_class(parts["fc1"]),
    "a neuron's class of its own": lambda parts, kit: _own_class(parts["n1"]),
}


def _layer_in(module: Any) -> Any:
    return getattr(module, "lifted_module", module)


def _own_forward(module: Any) -> None:
    forward = module.forward
    module.forward = lambda *args, **kwargs: _halved(forward(*args, **kwargs))


def _own_class(module: Any) -> None:
    kind = type(module)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _halved(kind.forward(self, *args, **kwargs))

    module.__class__ = type(kind.__name__, (kind,), {"forward": forward})


for _name, _change in SHARED.items():
    _afterwards(
        "shared",
        _name,
        _change,
        lambda plan, name=_name: not plan.conv
        and not (plan.library == "norse" and plan.chain and (name.startswith("second") or name in ("layer", "neuron")))
        and not (plan.library == "norse" and plan.whole and name in ("weight", "bias"))
        and not (plan.chain and name.startswith("second")),
    )


# States of the first neuron before a step.
def _states(function: Callable[[Tensor], Tensor], every: int = 1) -> Callable[[Any, Any, int], Any]:
    def carry(net: Any, state: Any, t: int) -> Any:
        if t % every:
            return state
        if state is None or (isinstance(state, tuple) and not state):
            name = "mem" if net.kit[0].library == "snntorch" else "v"
            setattr(net.n1, name, function(getattr(net.n1, name)))
            return state
        if hasattr(state, "_replace"):
            return state._replace(v=function(state.v))
        return tuple(map(function, state))

    return carry


STATES = {
    "detached": _states(torch.Tensor.detach),
    "detached every third step": _states(torch.Tensor.detach, 3),
    "halved": _states(lambda v: v * 0.5),
    "clamped": _states(lambda v: v.clamp(-0.5, 0.5)),
    "replaced": _states(torch.zeros_like),
    "replaced every third step": _states(torch.zeros_like, 3),
    "half precision": _states(lambda v: v.bfloat16().to(v.dtype)),
}
for _name, _carry in STATES.items():
    _add("state", _name, lambda plan, carry=_carry: setattr(plan, "carry", carry), lambda plan: plan.form.startswith("inside"))


# Results of a loop.
def _written(net: Any, spikes: list[Tensor], potentials: list[Any]) -> Tensor:
    out = torch.zeros(len(spikes), *spikes[0].shape, dtype=spikes[0].dtype)
    for t, step in enumerate(spikes):
        out[t] = step
    return out


def _summed(net: Any, spikes: list[Tensor], potentials: list[Any]) -> Tensor:
    total = torch.zeros_like(spikes[0])
    for step in spikes:
        total += step
    return total


OUTPUTS: dict[str, Callable[[Any, list[Tensor], list[Any]], Any]] = {
    "spikes and potentials": lambda net, s, v: (torch.stack(s), torch.stack(v)),
    "dictionary": lambda net, s, v: {"spikes": torch.stack(s), "rate": torch.stack(s).mean(0)},
    "sum": lambda net, s, v: sum(s),
    "sum in place": _summed,
    "sum by reduce": lambda net, s, v: torch.stack(s).sum(0),
    "mean by number of steps": lambda net, s, v: sum(s) / len(s),
    "last potential": lambda net, s, v: v[-1],
    "first step": lambda net, s, v: s[0],
    "middle step": lambda net, s, v: s[len(s) // 2],
    "list of steps": lambda net, s, v: s,
    "stacked along dimension 1": lambda net, s, v: torch.stack(s, 1),
    "stacked along the last": lambda net, s, v: torch.stack(s, -1),
    "concatenated": lambda net, s, v: torch.cat([step.unsqueeze(0) for step in s]),
    "written": _written,
    "largest potential": lambda net, s, v: torch.stack(v).max(0).values,
    "every second step": lambda net, s, v: torch.stack(s[::2]),
    "reversed": lambda net, s, v: torch.stack(s[::-1]),
    "weighted by step": lambda net, s, v: sum(step * (t + 1) for t, step in enumerate(s)),
    "potential of spikes": lambda net, s, v: torch.stack([a * b for a, b in zip(s, v, strict=True)]),
    "all but the first": lambda net, s, v: torch.stack(s[1:]),
    "detached": lambda net, s, v: torch.stack(s).detach(),
    "number": lambda net, s, v: (torch.stack(s), len(s)),
    "without gradient": lambda net, s, v: (torch.stack(s), torch.stack(v).detach()),
}
for _name, _output in OUTPUTS.items():
    _add(
        "output",
        _name,
        lambda plan, output=_output: setattr(plan, "output", output),
        lambda plan: plan.form.startswith("inside"),
    )


# Numbers and inputs.
# snnTorch's spikes are float32.
_add("dtype", "float64", lambda plan: setattr(plan, "double", True), lambda plan: plan.library != "snntorch")
_add("input", "not contiguous", lambda plan: setattr(plan, "x", lambda x: x.transpose(0, 1).contiguous().transpose(0, 1)))
_add("input", "real numbers", lambda plan: setattr(plan, "x", lambda x: (x * torch.linspace(0.25, 1.75, x.shape[-1]).to(x))))
_add("input", "zeros in most", lambda plan: setattr(plan, "x", lambda x: x * (torch.arange(x.shape[-1]) < 2).to(x)))
_add("input", "strong", lambda plan: setattr(plan, "x", lambda x: 16 * x))
_add("input", "negative", lambda plan: setattr(plan, "x", lambda x: 2 * x - 1))


# Constants of neurons, by shape.
SHAPES: dict[str, Callable[[bool], tuple[int, ...]]] = {
    "[]": lambda conv: (),
    "[1]": lambda conv: (1,),
    "[n]": lambda conv: (4 if conv else 8,),
    "[C, 1, 1]": lambda conv: (4, 1, 1) if conv else (8, 1, 1),
    "[C, H, W]": lambda conv: (4, 4, 4) if conv else (5, 8),
    "[1, n]": lambda conv: (1, 4 if conv else 8),
}
# By library and neuron its constants, with ranges and the name of the option that learns each.
CONSTANTS: dict[str, dict[str, dict[str, tuple[float, float]]]] = {
    "snntorch": {
        "Leaky": {"beta": (0.5, 1.0), "threshold": (0.5, 2.0), "graded_spikes_factor": (1.0, 2.0)},
        "Synaptic": {"alpha": (0.25, 0.75), "beta": (0.5, 1.0), "threshold": (0.5, 2.0)},
        "Alpha": {"alpha": (0.75, 0.9), "beta": (0.25, 0.5), "threshold": (0.0625, 0.25)},
        "RLeaky": {"beta": (0.5, 1.0), "threshold": (0.5, 2.0)},
        "Lapicque": {"beta": (0.5, 0.9375), "threshold": (0.5, 2.0)},
    },
    "spikingjelly": {
        "LIFNode": {"tau": (2.0, 8.0), "v_threshold": (0.5, 2.0), "v_reset": (-0.5, 0.25)},
        "IFNode": {"v_threshold": (0.5, 2.0), "v_reset": (-0.5, 0.25)},
        "ParametricLIFNode": {"v_threshold": (0.5, 2.0), "v_reset": (-0.5, 0.25), "w": (-1.0, 1.0)},
        "KLIFNode": {"tau": (2.0, 8.0), "v_threshold": (0.5, 2.0), "k": (0.5, 2.0)},
    },
    "norse": {
        "LIF": {
            "tau_mem_inv": (125.0, 500.0),
            "tau_syn_inv": (125.0, 500.0),
            "v_leak": (-0.25, 0.25),
            "v_th": (0.5, 2.0),
            "v_reset": (-0.25, 0.25),
            "alpha": (50.0, 100.0),
        },
        "LIFBox": {"tau_mem_inv": (125.0, 500.0), "v_th": (0.5, 2.0), "v_leak": (-0.25, 0.25)},
        "LSNN": {"tau_adapt_inv": (62.5, 500.0), "beta": (0.5, 2.0), "v_th": (0.5, 2.0)},
        "LI": {"tau_mem_inv": (125.0, 500.0), "tau_syn_inv": (125.0, 500.0), "v_leak": (-0.25, 0.25)},
    },
}


def _constant(kit: Any, kind: str, name: str, shape: tuple[int, ...], bounds: tuple[float, float], learned: bool) -> Any:
    low, high = bounds
    size = torch.Size(shape).numel()
    value = torch.linspace(low, high, size).reshape(shape) if size > 1 else torch.full(shape, low)
    if kit.library == "norse":
        return kit.neuron(kind, **{name: nn.Parameter(value) if learned else value})
    module = kit.neuron(kind)
    # As constructors do, and users afterwards.
    for holder in (module._buffers, module._parameters, module.__dict__):
        holder.pop(name, None)
    if learned:
        setattr(module, name, nn.Parameter(value))
    elif kit.library == "snntorch":
        module.register_buffer(name, value)
    else:
        # A number where the library wants one.
        setattr(module, name, float(value) if not shape else value)
    return module


def _second(kit: Any, kind: str) -> Any:
    return kit.neuron() if kind in ("RLeaky", "LI") else kit.neuron(kind)


def _with_constant(plan: Plan, kind: str, name: str, shape: Any, bounds: tuple[float, float], learned: bool, conv: bool) -> None:
    plan.conv = conv
    plan.neurons = lambda kit: (
        _constant(kit, kind, name, shape(conv), bounds, learned),
        _second(kit, kind),
    )


for _library, _kinds in CONSTANTS.items():
    for _kind, _bounds in _kinds.items():
        for _name, _range in _bounds.items():
            for _shape, _of in SHAPES.items():
                for _learned in (False, True):
                    for _conv in (False, True):
                        _add(
                            "constant",
                            f"{_kind}.{_name} {_shape}{' learned' * _learned}{' of frames' * _conv}",
                            partial(
                                _with_constant,
                                kind=_kind,
                                name=_name,
                                shape=_of,
                                bounds=_range,
                                learned=_learned,
                                conv=_conv,
                            ),
                            lambda plan, library=_library, kind=_kind, conv=_conv: plan.library == library
                            and not (kind == "RLeaky" and conv),
                        )

# Attributes of the first neuron that are set after it was made.
def _set(**values: Any) -> Callable[[Any, Any], None]:
    def change(neuron: Any, kit: Any) -> None:
        for name, value in values.items():
            setattr(neuron, name, value)

    return change


def _replaced(**values: Any) -> Callable[[Any, Any], None]:
    def change(neuron: Any, kit: Any) -> None:
        neuron.p = neuron.p._replace(**{n: torch.as_tensor(v) if not isinstance(v, str) else v for n, v in values.items()})

    return change


class _Triangle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        return (u >= 0).to(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return grad * (1 - u.abs()).clamp(min=0)


ATTRIBUTES: dict[str, dict[str, Callable[[Any, Any], Any]]] = {
    "snntorch": {
        "reset_mechanism zero": _set(reset_mechanism="zero"),
        "reset_mechanism none": _set(reset_mechanism="none"),
        "threshold": _set(threshold=torch.tensor(0.5)),
        "threshold below 0": _set(threshold=torch.tensor(-0.5)),
        "beta": _set(beta=torch.tensor(0.5)),
        "beta above 1": _set(beta=torch.tensor(1.5)),
        "beta below 0": _set(beta=torch.tensor(-0.5)),
        "spike_grad": _set(spike_grad=_Triangle.apply),
        "inhibition": _set(inhibition=True),
        "reset_delay": _set(reset_delay=False),
        "state_function": lambda n, kit: setattr(n, "state_function", n._base_zero),
        "state_quant": _set(state_quant=lambda v: (8 * v).round() / 8),
        "graded_spikes_factor": _set(graded_spikes_factor=torch.tensor(2.0)),
        "mem": _set(mem=torch.full((5, 8), 0.5)),
        "fire": lambda n, kit: setattr(n, "fire", lambda mem: n.spike_grad(mem - 2 * n.threshold)),
        "mem_reset": lambda n, kit: setattr(n, "mem_reset", torch.zeros_like),
    },
    "spikingjelly": {
        "v_threshold": _set(v_threshold=0.5),
        "v_threshold below 0": _set(v_threshold=-0.5),
        "v_reset": _set(v_reset=-0.25),
        "soft reset": _set(v_reset=None),
        "tau": _set(tau=4.0),
        "detach_reset": _set(detach_reset=True),
        "decay_input": _set(decay_input=False),
        "surrogate_function": _set(surrogate_function=_Triangle.apply),
        "v": _set(v=0.5),
        "charge": lambda n, kit: setattr(n, "neuronal_charge", lambda x: setattr(n, "v", n.v + x)),
        "fire": lambda n, kit: setattr(n, "neuronal_fire", lambda: n.surrogate_function(n.v - 2 * n.v_threshold)),
        "store_v_seq": _set(store_v_seq=True),
        "other step mode": lambda n, kit: setattr(n, "step_mode", "m" if n.step_mode == "s" else "s"),
    },
    "norse": {
        "v_th": _replaced(v_th=0.5),
        "v_th below 0": _replaced(v_th=-0.5),
        "v_reset": _replaced(v_reset=-0.25),
        "v_leak": _replaced(v_leak=0.25),
        "alpha": _replaced(alpha=10.0),
        "method": _replaced(method="heavi_erf"),
        "dt": _set(dt=0.0005),
        "activation": lambda n, kit: setattr(n, "activation", _doubled(n.activation)),
        "state_fallback": lambda n, kit: setattr(n, "state_fallback", _raised(n.state_fallback)),
    },
}


def _doubled(activation: Any) -> Any:
    return lambda x, *rest: activation(2 * x, *rest)


def _raised(start: Any) -> Any:
    def fallback(x: Tensor) -> Any:
        state = start(x)
        return state._replace(v=state.v + 0.5)

    return fallback


for _library, _setters in ATTRIBUTES.items():
    for _name, _setter in _setters.items():
        _afterwards(
            "set later",
            _name,
            lambda parts, kit, setter=_setter: setter(parts["n1"], kit),
            lambda plan, library=_library: plan.library == library and not plan.conv,
        )
