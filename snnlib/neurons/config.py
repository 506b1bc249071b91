"""Neurons as plain data: what a `state_dict` does not hold, such as the reset and the surrogate gradient."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from snnlib.neurons import surrogate as surrogates
from snnlib.neurons.base import Neuron
from snnlib.neurons.module import in_present_options

# Models of the library by name; `snnlib.neurons`, which gathers them, fills it.
MODELS: dict[str, type[Neuron]] = {}
# Models for sequences of one length alone, which are no part of that list: most of what it is read for takes any.
FIXED_LENGTH_MODELS: dict[str, type[Neuron]] = {}
# A dialect is expanded when a neuron is made, and constants have their values per channel.
_EXPANDED = ("self", "dialect", "channels")


def config(neuron: Neuron) -> dict[str, Any]:
    """Returns the arguments that rebuild this neuron, for JSON: `"model"`, then every constant and option.

    A file of weights holds tensors only; store this dictionary beside it. Values per channel become lists, learned
    constants have their present values, a surrogate gradient becomes its name and numbers, and infinity the word
    `"inf"`. Bounds (`bound_`) are left out.

    Raises:
        TypeError: not a neuron.
        ValueError: a surrogate that is your own function, or your own model without an attribute for one of its
            arguments.

    >>> import json, snnlib
    >>> neuron = snnlib.neurons.IF(dialect="snntorch")
    >>> text = json.dumps(snnlib.neurons.config(neuron))
    >>> snnlib.neurons.from_config(json.loads(text))
    IF(threshold=1, reset='subtract', reset_time='next', compare='>', surrogate=ATan(alpha=2.0))
    """
    if not isinstance(neuron, Neuron):
        raise TypeError(f"neuron: expected an instance of snnlib.neurons.Neuron, got {type(neuron).__name__}")
    # torch gives a module with bounds a class of its own.
    model = type(neuron).__mro__[1] if parametrize.is_parametrized(neuron) else type(neuron)
    arguments = _parameters(model)
    return {
        "model": model.__name__,
        **{name: _argument(neuron, made) for name, made in arguments.items()},
    }


def from_config(config: Mapping[str, Any], models: Mapping[str, type[Neuron]] | None = None) -> Neuron:
    """Returns the neuron that `config` described.

    Args:
        config: the result of `config`.
        models: your own models by name, `{"Leaky": Leaky}`, in addition to `snnlib.neurons.MODELS`.

    Raises:
        ValueError: an unknown model or surrogate, or an argument out of its range.
        TypeError: an argument that the model does not have.
    """
    models = {**MODELS, **FIXED_LENGTH_MODELS, **(models or {})}
    given = dict(config)
    model = given.pop("model", None)
    if model not in models:
        raise ValueError(
            f"config: expected a model of {', '.join(models)}, got {model!r}; models= takes those of your own"
        )
    given = in_present_options(models[model], given)
    return models[model](**{name: _value(value) for name, value in given.items()})


def _parameters(model: type[Neuron]) -> dict[str, inspect.Parameter]:
    """Returns the arguments of a model, including its base classes' arguments if it takes `**options`."""
    found: dict[str, inspect.Parameter] = {}
    for kind in model.__mro__:
        if "__init__" not in vars(kind):
            continue
        parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
        for made in parameters:
            named = made.kind not in (made.VAR_POSITIONAL, made.VAR_KEYWORD)
            # The constants of `Neuron` itself are what a model hands it, not what it is given.
            if named and made.name not in _EXPANDED and not (kind is Neuron and made.name == "constants"):
                found.setdefault(made.name, made)
        if kind is Neuron or not any(made.kind is made.VAR_KEYWORD for made in parameters):
            break
    return found


def _argument(neuron: Neuron, made: inspect.Parameter) -> Any:
    name = made.name
    if name not in neuron.constant_names and not hasattr(neuron, name):
        # A constant that was left out has no buffer.
        if made.default is None:
            return None
        raise ValueError(f"neuron: expected {type(neuron).__name__} to keep {name}, got no such attribute")
    value = getattr(neuron, name)
    return _plain_surrogate(value) if name == "surrogate" else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    # JSON has no word for infinity.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _plain_surrogate(value: Any) -> dict[str, Any]:
    name = type(value).__name__
    if getattr(surrogates, name, None) is not type(value):
        raise ValueError(
            f"surrogate: expected one of snnlib.surrogate, got {value!r}, which is not plain data"
        )
    parts = {part.name: getattr(value, part.name) for part in fields(value)}
    plain = {name: _plain_surrogate(part) if is_dataclass(part) else part for name, part in parts.items()}
    return {"name": name, **plain}


def _value(value: Any) -> Any:
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, Mapping):
        numbers = dict(value)
        name = numbers.pop("name", None)
        shape = getattr(surrogates, str(name), None)
        if not isinstance(shape, type) or shape.__module__ != surrogates.__name__:
            raise ValueError(f"config: expected a surrogate of snnlib.surrogate, got {name!r}")
        return shape(**{name: _value(number) for name, number in numbers.items()})
    if isinstance(value, list) and value and not isinstance(value[0], str):
        return torch.tensor([float(part) for part in value], dtype=torch.float64)
    return tuple(value) if isinstance(value, list) else value
