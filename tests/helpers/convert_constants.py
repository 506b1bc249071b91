"""Constants of each neuron in each shape, and attributes that are set after it was made: more surroundings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from convert_nets import Plan
from convert_surroundings import add, afterwards
from standin_libraries import Heaviside
from torch import Tensor, nn

# Constants of neurons, by shape.
SHAPES: dict[str, Callable[[bool], tuple[int, ...]]] = {
    "[]": lambda conv: (),
    "[1]": lambda conv: (1,),
    "[n]": lambda conv: (4 if conv else 8,),
    "[C, 1, 1]": lambda conv: (4, 1, 1) if conv else (8, 1, 1),
    "[C, H, W]": lambda conv: (4, 4, 4) if conv else (5, 8),
    "[1, n]": lambda conv: (1, 4 if conv else 8),
}
# Shapes, whether they are learned, and whether the neuron stands behind a convolution.
CASES = [
    *((shape, False, False) for shape in ("[]", "[1]", "[n]", "[1, n]")),
    *((shape, True, False) for shape in ("[]", "[1]", "[n]")),
    *((shape, False, True) for shape in ("[n]", "[C, 1, 1]", "[C, H, W]")),
    ("[n]", True, True),
]
# Constants by library and neuron, with ranges and the name of the option that learns each.
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


def _constant(
    kit: Any, kind: str, name: str, shape: tuple[int, ...], bounds: tuple[float, float], learned: bool
) -> Any:
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


def _with_constant(
    plan: Plan, kind: str, name: str, shape: Any, bounds: tuple[float, float], learned: bool, conv: bool
) -> None:
    plan.conv = conv
    plan.neurons = lambda kit: (
        _constant(kit, kind, name, shape(conv), bounds, learned),
        _second(kit, kind),
    )


for _library, _kinds in CONSTANTS.items():
    for _kind, _bounds in _kinds.items():
        for _name, _range in _bounds.items():
            for _shape, _learned, _conv in CASES:
                add(
                    "constant",
                    f"{_kind}.{_name} {_shape}{' learned' * _learned}{' of frames' * _conv}",
                    partial(
                        _with_constant,
                        kind=_kind,
                        name=_name,
                        shape=SHAPES[_shape],
                        bounds=_range,
                        learned=_learned,
                        conv=_conv,
                    ),
                    lambda plan, library=_library, kind=_kind, conv=_conv: (
                        plan.library == library
                        and not (kind == "RLeaky" and conv)
                        and not (kind == "LIFBox" and plan.whole)
                    ),
                )


# Attributes of the first neuron that are set after it was made.
def _set(**values: Any) -> Callable[[Any, Any], None]:
    def change(neuron: Any, kit: Any) -> None:
        for name, value in values.items():
            setattr(neuron, name, value)

    return change


def _replaced(**values: Any) -> Callable[[Any, Any], None]:
    def change(neuron: Any, kit: Any) -> None:
        neuron.p = neuron.p._replace(
            **{n: torch.as_tensor(v) if not isinstance(v, str) else v for n, v in values.items()}
        )

    return change


class _Triangle(Heaviside):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return grad * (1 - u.abs()).clamp(min=0)


class _TriangleModule(nn.Module):
    def forward(self, u: Tensor) -> Tensor:
        return _Triangle.apply(u)


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
        "surrogate_function": _set(surrogate_function=_TriangleModule()),
        "v": _set(v=0.5),
        "charge": lambda n, kit: setattr(n, "neuronal_charge", lambda x: setattr(n, "v", n.v + x)),
        "fire": lambda n, kit: setattr(
            n, "neuronal_fire", lambda: n.surrogate_function(n.v - 2 * n.v_threshold)
        ),
        "store_v_seq": _set(store_v_seq=True),
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
        afterwards(
            "set later",
            _name,
            lambda parts, kit, setter=_setter: setter(parts["n1"], kit),
            lambda plan, library=_library: plan.library == library and not plan.conv,
        )
