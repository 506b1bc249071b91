"""Neurons of Norse as snnlib's, in its dialect. Its rates are per second; steps have a length there."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.exchange.conversion.sequence_modules import RecurrentNeurons
from snnlib.exchange.conversion.tied import check_above_zero, number
from snnlib.exchange.sequences import Affine
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.neurons import ALIF, IF, LIF, CubaLIF, Integrator, Neuron
from snnlib.nn import PerStep
from snnlib.surrogate import Triangle, match


def neuron(module: Any) -> Neuron | nn.Sequential:
    """The neuron that a module of Norse is.

    Raises:
        Unsupported: an option or a class that has no counterpart; the message says which.
    """
    kind = type(module).__name__.removesuffix("Cell")
    recurrent = kind.endswith("Recurrent")
    builders = {"LIF": _lif, "LIFBox": _lif_box, "LI": _li, "LSNN": _lsnn, "IAF": _iaf}
    name = kind.removesuffix("Recurrent")
    if name not in builders:
        raise Unsupported(f"Norse's {type(module).__name__} has no counterpart")
    if getattr(module, "record_states", False):
        raise Unsupported("record_states=True has no counterpart")
    for constant, value in module.p._asdict().items():
        one = not isinstance(value, Tensor) or value.numel() == 1 or constant.startswith("tau")
        # Norse's IAF asks for a gradient of its own v_reset in every run.
        asked = getattr(value, "requires_grad", False) and (name, constant) != ("IAF", "v_reset")
        if not one or asked or isinstance(value, nn.Parameter):
            raise Unsupported(f"a {constant} that is learned or differs between neurons has no counterpart")
    made: Any = builders[name](module, module.p, float(module.dt))
    if not recurrent:
        return made  # type: ignore[no-any-return]
    if name != "LIF":
        raise Unsupported(f"Norse's {type(module).__name__} has no counterpart")
    # Its recurrent cell passes no gradient through the reset, its feed-forward one does.
    made.detach_reset = True
    return nn.Sequential(
        PerStep(_bias_free(module.input_weights)), RecurrentNeurons(made, module.recurrent_weights)
    )


def _bias_free(weight: Tensor) -> nn.Linear:
    """A linear layer of this very weight `[out, in]`."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight, requires_grad=False)
    return linear


def _firing(p: Any) -> dict[str, Any]:
    threshold = float(number("v_th", p.v_th))
    check_above_zero(threshold)
    options = {"threshold": threshold, "dialect": "norse"}
    if p.method == "super":
        return options
    surrogate: Any = None
    if p.method == "triangle":
        surrogate = Triangle(width=1 / threshold, height=float(number("alpha", p.alpha)))
    elif p.method == "tanh":
        surrogate = match(partial(_tanh, k=float(number("alpha", p.alpha))), threshold)
    if surrogate is None:
        raise Unsupported(f"method {p.method!r} has no counterpart")
    return {**options, "surrogate": surrogate}


def _tanh(u: Tensor, k: float) -> Tensor:
    return torch.tanh(k * u) / k


def _tau(name: str, rate: Any, dt: float) -> Tensor:
    return 1 / (number(name, rate).double() * dt)


def _lif(_: Any, p: Any, dt: float) -> CubaLIF:
    taus = (_tau(name, getattr(p, name), dt) for name in ("tau_mem_inv", "tau_syn_inv"))
    return CubaLIF(*taus, rest=float(p.v_leak), reset_value=float(p.v_reset), **_firing(p))


def _lif_box(_: Any, p: Any, dt: float) -> LIF:
    v, z, reset = torch.tensor([0.25, 1.5]), torch.tensor([0.0, 1.0]), torch.tensor(-0.5)
    if not torch.equal(p.reset_method(z, v, reset, torch.ones(())), torch.where(z > 0, reset, v)):
        method = getattr(p.reset_method, "__name__", p.reset_method)
        raise Unsupported(f"reset_method {method!r} has no counterpart")
    tau = _tau("tau_mem_inv", p.tau_mem_inv, dt)
    return LIF(tau, rest=float(p.v_leak), reset_value=float(p.v_reset), **_firing(p))


def _li(_: Any, p: Any, dt: float) -> Integrator | nn.Sequential:
    tau_s = _tau("tau_syn_inv", p.tau_syn_inv, dt)
    made = Integrator(_tau("tau_mem_inv", p.tau_mem_inv, dt), tau_s=tau_s, dialect="norse")
    # A potential that is never reset may be measured from where it rests, which is where it starts.
    rest = float(p.v_leak)
    return nn.Sequential(made, Affine(offset=rest)) if rest else made


def _lsnn(_: Any, p: Any, dt: float) -> ALIF:
    for name in ("v_leak", "v_reset"):
        if float(getattr(p, name)):
            raise Unsupported(f"{name} other than 0 has no counterpart")
    taus = (_tau(name, getattr(p, name), dt) for name in ("tau_mem_inv", "tau_adapt_inv", "tau_syn_inv"))
    tau_m, tau_a, tau_s = taus
    return ALIF(tau_m, tau_a, float(p.beta), tau_s=tau_s, **_firing(p))


def _iaf(_: Any, p: Any, __: float) -> IF:
    return IF(reset_value=float(p.v_reset), **_firing(p))
