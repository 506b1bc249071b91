"""Modes of a net's modules, places that share one, states and results of a loop, and inputs: more surroundings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from convert_nets import Plan
from convert_surroundings import add, afterwards, halved
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune


def _add_to_loops(area: str, attribute: str, made: dict[str, Any]) -> None:
    """Adds surroundings that set an attribute of plans with a loop over time inside."""
    for name, value in made.items():
        add(
            area,
            name,
            lambda plan, value=value: setattr(plan, attribute, value),
            lambda plan: plan.form.startswith("inside"),
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
            parts["net"].train(not mode.endswith("evaluation"))
            if "within" in mode:
                parts["mid"].train(mode.startswith("training"))

        afterwards("mode", f"{_name} {_mode}".strip(), _moded, partial(_layer_fits, name=_name))
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
    afterwards("mode", _name, _change)


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
    module.forward = lambda *args, **kwargs: halved(forward(*args, **kwargs))


def _own_class(module: Any) -> None:
    kind = type(module)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return halved(kind.forward(self, *args, **kwargs))

    module.__class__ = type(kind.__name__, (kind,), {"forward": forward})


for _name, _change in SHARED.items():
    afterwards(
        "shared",
        _name,
        _change,
        lambda plan, name=_name: (
            not plan.conv
            and not (
                plan.library == "norse"
                and plan.chain
                and (name.startswith("second") or name in ("layer", "neuron"))
            )
            and not (plan.library == "norse" and plan.whole and name in ("weight", "bias"))
            and not (plan.chain and name.startswith("second"))
        ),
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
_add_to_loops("state", "carry", STATES)


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
_add_to_loops("output", "output", OUTPUTS)


# Numbers and inputs.
# snnTorch's spikes are float32.
add("dtype", "float64", lambda plan: setattr(plan, "double", True), lambda plan: plan.library != "snntorch")
add(
    "input",
    "not contiguous",
    lambda plan: setattr(plan, "x", lambda x: x.transpose(0, 1).contiguous().transpose(0, 1)),
)
add(
    "input",
    "real numbers",
    lambda plan: setattr(plan, "x", lambda x: x * torch.linspace(0.25, 1.75, x.shape[-1]).to(x)),
)
add(
    "input",
    "zeros in most",
    lambda plan: setattr(plan, "x", lambda x: x * (torch.arange(x.shape[-1]) < 2).to(x)),
)
add("input", "strong", lambda plan: setattr(plan, "x", lambda x: 16 * x))
add("input", "negative", lambda plan: setattr(plan, "x", lambda x: 2 * x - 1))
