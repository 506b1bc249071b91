"""Keyword arguments that a layer does not have: what their author may have meant."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

# Names that other libraries have for what is called otherwise here, or is left out.
_HINTS = {
    "bias": "spiking layers here have no bias, without events nothing happens",
    "beta": "the membrane's decay per step is 1 - 1/tau_m, so tau_m = 1 / (1 - beta)",
    "alpha": "the synapse's decay per step is 1 - 1/tau_s, so tau_s = 1 / (1 - alpha)",
    "tau": "tau_m is the membrane's time constant, tau_s the synapse's",
    "v_threshold": "it is called threshold",
    "spike_grad": "gradients follow spike times, there is no surrogate to choose",
    "surrogate_function": "gradients follow spike times, there is no surrogate to choose",
    "padding_mode": "padding is with zeros",
}


def check_options(layer: str, options: Mapping[str, object], known: Collection[str]) -> None:
    """Raise TypeError for the first option that is not `known`, with a hint where there is one.

    >>> check_options("SRMLinear", {"taum": 5.0}, ["tau_m", "tau_s"])
    Traceback (most recent call last):
    TypeError: taum: expected an option of SRMLinear, got an unknown one; did you mean tau_m?
    """
    for name in options:
        if name in known:
            continue
        close = get_close_matches(name, known, n=1)
        hint = _HINTS.get(name) or (
            f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(known))}"
        )
        raise TypeError(f"{name}: expected an option of {layer}, got an unknown one; {hint}")
