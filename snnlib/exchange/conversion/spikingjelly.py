"""Neurons of SpikingJelly as snnlib's, in its dialect."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from snnlib.exchange.conversion.tied import check_above_zero, check_spike_at_threshold, one_number
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.neurons import IF, KLIF, LIF, PLIF, PSN, CubaLIF, Izhikevich, MaskedPSN, Neuron, SlidingPSN
from snnlib.surrogate import EveryThreshold, Rectangle, StraightThrough, Surrogate, match

# Names of Izhikevich's constants there and here.
_IZHIKEVICH = {"tau": "tau_m", "tau_w": "tau_a", "v_c": "critical", "a0": "curvature", "v_rest": "rest"}
_IZHIKEVICH |= {"a": "a", "b": "b"}

_PARALLEL = ("PSN", "MaskedPSN", "SlidingPSN")


def neuron(module: Any) -> Neuron:
    """The neuron that a module of SpikingJelly is.

    Raises:
        Unsupported: an option or a class that has no counterpart; the message says which.
    """
    kind = type(module).__name__
    if kind in _PARALLEL:
        return _parallel(module)
    if kind == "ILIFNode":
        return _graded(module)
    if kind not in _WITH_RESET:
        raise Unsupported(f"SpikingJelly's {kind} has no counterpart")
    return _WITH_RESET[kind](module, _firing(module))


def _if(_: Any, options: dict[str, Any]) -> Neuron:
    return IF(**options)


def _lif(module: Any, options: dict[str, Any]) -> Neuron:
    return LIF(one_number("tau", module.tau), decay_input=module.decay_input, **options)


def _plif(module: Any, options: dict[str, Any]) -> Neuron:
    made = PLIF(decay_input=module.decay_input, **options)
    # The very parameter, so that both nets learn it.
    made.w = _learned(module, "w")
    return made


def _learned(module: Any, name: str) -> nn.Parameter:
    """Returns a number that the module learns."""
    found = getattr(module, name)
    if not isinstance(found, nn.Parameter) or found.numel() != 1:
        raise Unsupported(f"a {name} that is not one learned number has no counterpart")
    return found


def _klif(module: Any, options: dict[str, Any]) -> Neuron:
    own = {"decay_input": module.decay_input, "scale_reset": module.scale_reset}
    made = KLIF(one_number("tau", module.tau), **own, **options)
    made.k = _learned(module, "k")
    return made


def _cuba(module: Any, options: dict[str, Any]) -> Neuron:
    leaks = (1 - one_number("decay", decay) for decay in (module.v_decay, module.c_decay))
    taus = (1 / leak if leak else math.inf for leak in leaks)
    return CubaLIF(*taus, **options)


def _izhikevich(module: Any, options: dict[str, Any]) -> Neuron:
    own: dict[str, Any] = {
        ours: one_number(theirs, getattr(module, theirs)) for theirs, ours in _IZHIKEVICH.items()
    }
    return Izhikevich(**options, **own)


_WITH_RESET = {
    **dict.fromkeys(("IFNode", "SimpleIFNode"), _if),
    **dict.fromkeys(("LIFNode", "SimpleLIFNode"), _lif),
    **{"ParametricLIFNode": _plif, "KLIFNode": _klif, "CUBALIFNode": _cuba, "IzhikevichNode": _izhikevich},
}


def _parallel(module: Any) -> PSN | SlidingPSN:
    made: PSN | SlidingPSN
    surrogate = _surrogate(module, 1.0)
    if type(module).__name__ == "PSN":
        made = PSN(module.T, surrogate=surrogate)
    elif type(module).__name__ == "MaskedPSN":
        made = MaskedPSN(module.k, module.T, lambda_=float(module.lambda_), surrogate=surrogate)
    else:
        made = SlidingPSN(module.k, surrogate=surrogate)
    made.weight, made.bias = module.weight, module.bias
    return made


def _surrogate(module: Any, threshold: float) -> Surrogate:
    function = module.surrogate_function
    if not getattr(function, "spiking", True):
        raise Unsupported("a surrogate function that does not spike has no counterpart")
    surrogate = match(function, threshold)
    if surrogate is None:
        raise Unsupported(f"its surrogate gradient {type(function).__name__} has no counterpart")
    check_spike_at_threshold(function, expected=True)
    return surrogate


def _graded(module: Any) -> Neuron:
    """ILIFNode, whose halves of a spike round to the even number, here up."""
    count, threshold = module.surrogate_function, _threshold(module)
    levels, window = int(count.max_spike_count), (float(count.grad_min), float(count.grad_max))
    if levels == 1:
        raise Unsupported(
            "max_spike_count=1 fires at half the threshold, takes all of it off, and has no counterpart"
        )
    surrogates: dict[tuple[float, float], Surrogate] = {
        # Bumps that meet halfway between two thresholds, and reach the very ends of the window.
        (0.0, levels): EveryThreshold(Rectangle(0.5 + 2.0**-20, 1 / threshold)),
        (0.5, levels + 0.5): StraightThrough(),
    }
    if window not in surrogates:
        raise Unsupported(f"its gradient window {window} has no counterpart")
    # It takes the threshold off whatever its attribute `v_reset` says.
    options = _options(module, threshold, surrogates[window], zero=False)
    return LIF(one_number("tau", module.tau), decay_input=False, levels=levels, **options)


def _firing(module: Any) -> dict[str, Any]:
    threshold = _threshold(module)
    return _options(module, threshold, _surrogate(module, threshold), module.v_reset is not None)


def _threshold(module: Any) -> float:
    threshold = one_number("v_threshold", module.v_threshold)
    check_above_zero(threshold)
    return threshold


def _options(module: Any, threshold: float, surrogate: Surrogate, zero: bool) -> dict[str, Any]:
    options: dict[str, Any] = (
        {"reset_value": one_number("v_reset", module.v_reset)} if zero else {"reset": "subtract"}
    )
    for name, start in getattr(module, "_memories_rv", {}).items():
        if one_number(name, start) != (options["reset_value"] if zero and name == "v" else 0):
            raise Unsupported(f"its {name} starts at {start}, which has no counterpart")
    return {
        "threshold": threshold,
        "surrogate": surrogate,
        "detach_reset": bool(module.detach_reset),
        "dialect": "spikingjelly",
        **options,
    }
