"""Neurons of snnTorch as snnlib's, in its dialect."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from snnlib.exchange.conversion.sequence_modules import RecurrentNeurons
from snnlib.exchange.conversion.tied import (
    Source,
    check_above_zero,
    check_spike_at_threshold,
    matched,
    number,
    with_shared_constants,
)
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.neurons import IF, LIF, Alpha, CubaLIF, Neuron

# Values that calls return beside spikes, by class; recurrent ones have an R before their names.
STATES = {"Leaky": ("v",), "Lapicque": ("v",), "Synaptic": ("i", "v"), "Alpha": ("e", "i", "v")}

# Resets by the state function that the constructor binds.
_RESETS = {"_base_sub": "subtract", "_base_zero": "zero", "_base_int": "none"}


def neuron(module: Any) -> Neuron | RecurrentNeurons:
    """The neuron that a module of snnTorch is.

    Raises:
        Unsupported: an option or a class that has no counterpart; the message says which.
    """
    name = type(module).__name__
    kind = name.removeprefix("R")
    builders = {"Leaky": _leaky, "Lapicque": _lapicque, "Synaptic": _synaptic, "Alpha": _alpha}
    if kind not in builders:
        raise Unsupported(f"snnTorch's {name} has no counterpart")
    for option in ("inhibition", "state_quant"):
        if getattr(module, option, False):
            raise Unsupported(f"{option} has no counterpart")
    if not getattr(module, "reset_delay", True):
        raise Unsupported("reset_delay=False has no counterpart")
    if bool((torch.as_tensor(getattr(module, "graded_spikes_factor", 1.0)) != 1).any()):
        raise Unsupported("graded_spikes_factor has no counterpart")
    made: Any = builders[kind](module)
    if kind == name:
        return made  # type: ignore[no-any-return]
    if made.reset == "zero":
        # It takes the reset off after the recurrent current has been added.
        raise Unsupported("a reset to zero under recurrence has no counterpart")
    feedback = module.recurrent
    if isinstance(feedback, nn.Linear):
        return RecurrentNeurons(made, feedback.weight, feedback.bias)
    if isinstance(feedback, nn.Conv2d):
        raise Unsupported("convolutional recurrence has no counterpart")
    return RecurrentNeurons(made, feedback.V)


def _firing(module: Any) -> dict[str, Any]:
    threshold = number("threshold", module.threshold)
    check_above_zero(threshold)
    surrogate = matched(module.spike_grad, module.threshold)
    if surrogate is None:
        raise Unsupported("its surrogate gradient has no counterpart")
    check_spike_at_threshold(module.spike_grad, expected=False)
    return {
        "threshold": threshold.detach(),
        "surrogate": surrogate,
        "reset": _reset(module),
        "dialect": "snntorch",
    }


def _reset(module: Any) -> str:
    """The reset that a neuron runs: a `reset_mechanism` that is set later changes nothing."""
    bound = getattr(getattr(module, "state_function", None), "__name__", None)
    # A stand-in without the function runs what its attribute says.
    found: str = module.reset_mechanism if bound is None else _RESETS.get(bound, "")
    if not found:
        raise Unsupported(f"its state function {bound} has no counterpart")
    return found


def _shared(module: Any, **taus: str) -> dict[str, Source]:
    """The constants that the module learns: of each what makes it of which parameter."""
    sources: dict[str, Source] = {name: (module, theirs, tau_of_beta) for name, theirs in taus.items()}
    sources["threshold"] = (module, "threshold", Tensor.double)
    return {
        name: source
        for name, source in sources.items()
        if isinstance(getattr(module, source[1]), nn.Parameter)
    }


def _leaky(module: Any) -> Any:
    beta, shared = number("beta", module.beta), _shared(module, tau="beta")
    options = _firing(module)
    if bool((beta.detach() == 1).all()) and "tau" not in shared:
        return with_shared_constants(IF(**options), shared)
    return with_shared_constants(LIF(tau_of_beta(beta.detach()), **options), shared)


def _lapicque(module: Any) -> LIF:
    if any(isinstance(value, nn.Parameter) for value in (module.beta, module.threshold)):
        raise Unsupported("learned constants of Lapicque have no counterpart")
    step, gain = float(module.time_step), float(module.R)
    tau = number("RC", torch.as_tensor(module.R * module.C)) / step
    options = _firing(module)
    if gain != 1:
        raise Unsupported("R other than 1 has no counterpart")
    return LIF(tau, **{**options, "dialect": "lapicque"})


def _synaptic(module: Any) -> Any:
    shared = _shared(module, tau_m="beta", tau_s="alpha")
    taus = (tau_of_beta(number(name, getattr(module, name)).detach()) for name in ("beta", "alpha"))
    return with_shared_constants(CubaLIF(*taus, **_firing(module)), shared)


def _alpha(module: Any) -> Alpha:
    if any(isinstance(value, nn.Parameter) for value in (module.alpha, module.beta, module.threshold)):
        raise Unsupported("learned constants of Alpha have no counterpart")
    taus = (tau_of_beta(number(name, getattr(module, name))) for name in ("alpha", "beta"))
    return Alpha(*taus, **_firing(module))


def tau_of_beta(beta: Tensor) -> Tensor:
    """Time constant in steps of a membrane that keeps the share beta."""
    leak = 1 - beta.double().clamp(0, 1)
    if isinstance(beta, nn.Parameter):
        # At beta = 1 an infinite time constant would have no gradient; from this leak to 1 it rounds away.
        leak = leak + 2.0**-54 * (leak == 0)
    return 1 / leak
