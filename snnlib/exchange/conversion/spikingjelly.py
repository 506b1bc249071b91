"""Neurons of SpikingJelly as snnlib's, in its dialect."""

from __future__ import annotations

from typing import Any

from snnlib.neurons import IF, KLIF, LIF, PLIF, PSN, CubaLIF, Izhikevich, MaskedPSN, Neuron, SlidingPSN
from snnlib.neurons.surrogate_match import match
from snnlib.structure.unsupported import Unsupported
from snnlib.surrogate import Surrogate

# What Izhikevich's constants are called there and here.
_IZHIKEVICH = {"tau": "tau_m", "tau_w": "tau_a", "v_c": "critical", "a0": "curvature", "v_rest": "rest"}
_IZHIKEVICH |= {"a": "a", "b": "b"}

_PARALLEL = ("PSN", "MaskedPSN", "SlidingPSN")
_KINDS = {
    "IFNode",
    "SimpleIFNode",
    "LIFNode",
    "SimpleLIFNode",
    "ParametricLIFNode",
    "KLIFNode",
    "CUBALIFNode",
}
_KINDS |= {"IzhikevichNode", *_PARALLEL}


def neuron(module: Any) -> Neuron:
    """The neuron that a module of SpikingJelly is.

    Raises:
        Unsupported: an option or a class that has no counterpart; the message says which.
    """
    kind = type(module).__name__
    if kind not in _KINDS:
        raise Unsupported(f"SpikingJelly's {kind} has no counterpart")
    return _parallel(module) if kind in _PARALLEL else _with_reset(module, kind)


def _with_reset(module: Any, kind: str) -> Neuron:
    options = _firing(module)
    if kind in ("IFNode", "SimpleIFNode"):
        return IF(**options)
    if kind in ("LIFNode", "SimpleLIFNode"):
        return LIF(float(module.tau), decay_input=module.decay_input, **options)
    if kind == "ParametricLIFNode":
        made = PLIF(decay_input=module.decay_input, **options)
        # The very parameter, so that both nets learn it.
        made.w = module.w
        return made
    if kind == "KLIFNode":
        klif = KLIF(
            float(module.tau), decay_input=module.decay_input, scale_reset=module.scale_reset, **options
        )
        klif.k = module.k
        return klif
    if kind == "CUBALIFNode":
        taus = (1 / (1 - float(decay)) for decay in (module.v_decay, module.c_decay))
        return CubaLIF(*taus, **options)
    options |= {ours: float(getattr(module, theirs)) for theirs, ours in _IZHIKEVICH.items()}
    return Izhikevich(**options)


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
    return surrogate


def _firing(module: Any) -> dict[str, Any]:
    threshold = float(module.v_threshold)
    surrogate = _surrogate(module, threshold)
    zero = module.v_reset is not None
    for name, start in getattr(module, "_memories_rv", {}).items():
        if start != (module.v_reset if zero and name == "v" else 0):
            raise Unsupported(f"its {name} starts at {start}, which has no counterpart")
    options: dict[str, Any] = {"reset_value": float(module.v_reset)} if zero else {"reset": "subtract"}
    return {
        "threshold": threshold,
        "surrogate": surrogate,
        "detach_reset": bool(module.detach_reset),
        "dialect": "spikingjelly",
        **options,
    }
