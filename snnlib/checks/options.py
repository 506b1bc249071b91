"""Keyword arguments that a layer or a neuron does not have: what their author may have meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

_NO_BIAS = "spiking layers here have no bias, without events nothing happens"
_OF_NEURON = "it belongs to the neuron, as in neuron=snnlib.neurons.LIF(tau=4.0)"
_SURROGATE = "it is called surrogate, as in surrogate=snnlib.surrogate.ATan()"
# Names that other libraries have for what is called otherwise here, or is left out.
SRM_HINTS = {
    "bias": _NO_BIAS,
    "beta": "the membrane's decay per step is 1 - 1/tau_m, so tau_m = 1 / (1 - beta)",
    "alpha": "the synapse's decay per step is 1 - 1/tau_s, so tau_s = 1 / (1 - alpha)",
    "tau": "tau_m is the membrane's time constant, tau_s the synapse's",
    "v_threshold": "it is called threshold",
    "spike_grad": "gradients follow spike times, there is no surrogate to choose",
    "surrogate_function": "gradients follow spike times, there is no surrogate to choose",
    "padding_mode": "padding is with zeros",
}
LAYER_HINTS = {
    "bias": _NO_BIAS,
    "padding_mode": "padding is with zeros",
    **dict.fromkeys(("tau", "tau_m", "tau_s", "beta", "alpha", "threshold", "v_threshold"), _OF_NEURON),
    **dict.fromkeys(("reset", "surrogate", "spike_grad"), _OF_NEURON),
}
NEURON_HINTS = {
    "beta": "the membrane's decay per step is 1 - 1/tau; LIF.from_beta(beta) takes it",
    "v_threshold": "it is called threshold",
    "v_reset": "it is called reset_value, and reset chooses the kind",
    "reset_mechanism": "it is called reset",
    "spike_grad": _SURROGATE,
    "surrogate_function": _SURROGATE,
    "init_tau": "it is called tau",
}
_FRAMES = "transform=snnlib.data.ToFrames(time_steps=..., by=...) makes frames of events"
DATA_HINTS = {
    "n_time_bins": 'it is called time_steps, with by="slices" for equal parts of each recording',
    "time_window": "it is called step_us",
    "event_count": 'it is called events_per_step, with by="count"',
    "n_event_bins": 'it is called time_steps, with by="count"',
    "save_to": "it is called root",
    **dict.fromkeys(("data_type", "frames_number", "split_by", "duration"), _FRAMES),
}
# Attributes and functions of snnTorch, SpikingJelly and Norse, with the way to the same end here.
_NO_STATE = (
    "layers run whole sequences, so there is no state to reset: snnlib.Stream and run(x, state) keep one"
)
_NO_MODE = "layers take whole sequences, so there is no mode to set: net(x) runs all steps of x [T, N, ...]"
_NO_MEMBRANE = (
    "no membrane is kept between calls: potential(x) gives it at every step, run(x, state) the last state"
)
FOREIGN_NAMES: Mapping[str, str] = {
    # snnTorch
    **dict.fromkeys(
        [f"init_{cell}" for cell in ("leaky", "rleaky", "synaptic", "rsynaptic", "alpha")], _NO_STATE
    ),
    **dict.fromkeys(("init_lapicque", "init_slstm", "init_sconv2dlstm", "init_hidden"), _NO_STATE),
    **dict.fromkeys(("reset_mem", "reset_hidden", "detach_hidden", "mem_reset"), _NO_STATE),
    # SpikingJelly
    **dict.fromkeys(("reset", "reset_net", "reset_", "reset_state", "reset_states"), _NO_STATE),
    **dict.fromkeys(("detach_net", "memories", "named_memories"), _NO_STATE),
    **dict.fromkeys(("step_mode", "set_step_mode", "multi_step_forward", "single_step_forward"), _NO_MODE),
    "seq_to_ann_forward": "snnlib.PerStep(module) runs a module of torch on every step",
    **dict.fromkeys(("mem", "syn", "v", "v_seq", "store_v_seq"), _NO_MEMBRANE),
    # Norse
    **dict.fromkeys(("state_fallback", "LIFState"), _NO_STATE),
}


Init = TypeVar("Init", bound=Callable[..., None])


def shows(options: type, *sources: Callable[..., None]) -> Callable[[Init], Init]:
    """Shows in a constructor's signature what it takes as `**options: Unpack[...]` and hands on.

    Args:
        options: the typed dictionary, whose names are shown.
        sources: constructors, of which the first that has a name gives its default and type.
    """

    def show(init: Init) -> Init:
        own = inspect.signature(init)
        shown = [part for part in own.parameters.values() if part.kind is not part.VAR_KEYWORD]
        for name in options.__annotations__:
            found = (inspect.signature(source).parameters.get(name) for source in sources)
            part = next(part for part in found if part is not None)
            shown.append(part.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        init.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return init

    return show


def check_options(
    layer: str, options: Mapping[str, object], known: Collection[str], hints: Mapping[str, str] = SRM_HINTS
) -> None:
    """Raise TypeError for the first option that is not `known`, with a hint where there is one.

    >>> check_options("SRMLinear", {"taum": 5.0}, ["tau_m", "tau_s"])
    Traceback (most recent call last):
    TypeError: taum: expected an option of SRMLinear, got an unknown one; did you mean tau_m?
    """
    for name in options:
        if name in known:
            continue
        # Models with several time constants have one for the membrane under this name.
        close = ["tau_m"] if name == "tau" and "tau_m" in known else get_close_matches(name, known, n=1)
        hint = hints.get(name) or (
            f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(known))}"
        )
        raise TypeError(f"{name}: expected an option of {layer}, got an unknown one; {hint}")


def hints_of(kind: Any, options: Mapping[str, object]) -> dict[str, str]:
    """Returns a class's `option_hints`, and the counterparts of options that it had, at the values given."""
    hints = dict(kind.option_hints)
    former = getattr(kind, "former", {})
    for name in options.keys() & former.keys():
        meaning = former[name]
        if not callable(meaning):
            hints[name] = f"it was removed, and is always {meaning!r}"
            continue
        words = ", ".join(f"{option}={value!r}" for option, value in meaning(options[name]).items())
        hints[name] = f"it is {words} now" if words else "it was removed"
    return hints


class _OfInit:
    """Signature of a class and of each subclass by its `__init__`; `help` would show that of `__new__`."""

    def __get__(self, instance: object, cls: Any) -> inspect.Signature | None:
        if instance is not None:
            return None
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=[*signature.parameters.values()][1:])


def checks_options(kind: Any, hints: Mapping[str, str] | None = None) -> None:
    """Lets a class and its subclasses raise TypeError for unknown keyword arguments before `__init__` runs.

    Hints come from `hints`, by default from `hints_of`.
    """

    def make(cls: Any, *_args: Any, **options: Any) -> Any:
        known = inspect.signature(cls.__init__).parameters
        if options and not any(option.kind is option.VAR_KEYWORD for option in known.values()):
            own = [name for name in known if name != "self"]
            check_options(cls.__name__, options, own, hints_of(cls, options) if hints is None else hints)
        return object.__new__(cls)

    kind.__signature__ = _OfInit()
    # Copies of parametrized modules call `self.__new__(cls)`.
    kind.__new__ = staticmethod(make)
