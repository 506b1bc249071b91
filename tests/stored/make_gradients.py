"""Writes the gradients that the smoke suite of an installation compares: `python tests/stored/make_gradients.py`.

A line per neuron and option. It is run again where models or options come or change, with the pinned torch; a line
that changes without such a reason is an error.
"""

import inspect
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import snnlib.testing.smoke.test_installed as smoke
from snnlib.neurons import MODELS, Neuron

# Values of options without a list of choices: bounds, and what takes other ways through the code.
VALUES: dict[str, Any] = {
    **dict.fromkeys(("tau", "tau_m", "tau_s"), 1.0),
    **dict.fromkeys(("tau_a", "tau_rise"), 1.5),
    **dict.fromkeys(("rest", "reset_value", "grad_clamp"), 0.25),
    **{"threshold": 0.875, "start_value": -0.25, "gamma": 0.0, "rho": 0.5, "floor": 0.0, "levels": 3},
    "refractory": math.inf,
    "reset_states": "membrane",
    **dict.fromkeys(("beta", "gain", "b", "bias_current"), 0.5),
    **dict.fromkeys(("a", "v_start", "w_rest", "w_start", "offset", "phase", "theta"), 0.25),
    **{
        "k": 2,
        "damping": -0.5,
        "tau_decay": 12.0,
        "omega": 4.0,
        "dt": 0.0625,
        "curvature": 0.5,
        "critical": 0.75,
        "nu": 2.0,
    },
}
# Options that have their gradients in other tests: of `run`, of layers, of surrogates and of constants per channel.
ELSEWHERE = {
    *(
        "channels",
        "dialect",
        "input_grad_scale",
        "input_gradient",
        "learnable",
        "surrogate",
        "weight_exponent",
    )
}
# Options that an option needs beside it.
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("PLIF", "tau"): {"tau": 1.5},
    ("SRM", "tau_s"): {"tau_grad": 2.0},
    ("CubaLIF", "grad_clamp"): {"gradient": "event"},
    ("LRU", "refractory"): {"threshold": 1.0},
    **{(name, "level_rounding"): {"levels": 3} for name in ("IF", "LIF", "PLIF", "CubaLIF")},
}


def variants(model: type[Neuron]) -> Iterator[dict[str, Any]]:
    """The options of a model one at a time, with all its constants learnable."""
    parameters, fields = inspect.signature(model).parameters, getattr(model, "fields", {})
    single: list[dict[str, Any]] = [{}, *({"dialect": name} for name in getattr(model, "dialects", {}))]
    for name, parameter in parameters.items():
        if name in ELSEWHERE:
            continue
        flag, known = isinstance(parameter.default, bool), [VALUES[name]] if name in VALUES else []
        choices = getattr(getattr(fields.get(name), "check", None), "choices", known)
        values = [not parameter.default] if flag else [one for one in choices if one != parameter.default]
        single += [{name: value, **BESIDE.get((model.__name__, name), {})} for value in values]
    for options in single:
        learns = "learnable" in parameters and options.get("gradient") != "event"
        yield {**options, "learnable": model(**options).constant_names} if learns else options


def size_for(neuron: Neuron) -> float:
    """The currents at which a tenth of the neurons' steps have a spike: doubled from 1 until they do, at most to 64."""
    spikes: list[float] = []

    def counted(x: Any) -> Any:
        out = neuron.reference(x)
        spikes.append(float((out.value.detach() != 0).double().mean()))
        return out

    for size in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        smoke.gradients(counted, neuron, size)
        if spikes[-1] >= 0.1:
            break
    return size


def stored() -> Iterator[list[Any]]:
    """The lines of the file."""
    for name, model in MODELS.items():
        for options in variants(model):
            neuron = model(**options)
            size = size_for(neuron)
            yield [name, options, size, smoke.weighed(smoke.gradients(neuron.run, neuron, size))]


if __name__ == "__main__":
    lines = ",\n".join(json.dumps([*line[:3], [round(x, 9) for x in line[3]]]) for line in stored())
    (Path(smoke.__file__).parent / "gradients.json").write_text(f"[\n{lines}\n]\n")
