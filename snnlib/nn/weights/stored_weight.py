"""The weight of a layer in files: the standardised value, and the parameters behind it.

`weight` is always stored. A standardised layer (`WeightStandardization`) also stores its parameters:

    weight                       the standardised weight
    standardization.original     V, and likewise standardization.scale, .gain, .bias and .rate

A plain layer loads `weight`, a standardised layer the parameters, which it derives from `weight` if they are missing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from snnlib.nn.weights.weight_standardization import WeightStandardization

_STORED = "standardization."
# Change of a weight on its way through the standardisation, relative to its norm, that counts as rounding.
_ROUNDING = 1e-2
_ORIGINAL, _STEP = "parametrizations.weight.original", "parametrizations.weight.0."


def steps_of(layer: nn.Module) -> ParametrizationList | tuple[()]:
    """Returns the parametrizations of a layer's weight, in order."""
    return cast(Any, layer).parametrizations["weight"] if is_parametrized(layer, "weight") else ()


def standardization_of(layer: nn.Module) -> WeightStandardization | None:
    """Returns the first parametrization of the layer's weight if it is a standardisation, else None."""
    step = next(iter(steps_of(layer)), None)
    return step if isinstance(step, WeightStandardization) else None


def learned_weight(layer: nn.Module) -> Tensor:
    """Returns the parameter behind a layer's weight: the original of its parametrization, if it has one."""
    steps = steps_of(layer)
    return next(steps.parameters(recurse=False)) if steps else cast(Tensor, layer.weight)


def places_of(net: nn.Module) -> Counter[int]:
    """Returns in how many places a net holds each module, parameter and buffer, by id; 0 for a computed tensor."""
    return Counter(
        id(part)
        for module in net.modules()
        for held in (module._modules, module._parameters, module._buffers)
        for part in held.values()
    )


def store_weight(layer: nn.Module, stored: Any, prefix: str) -> None:
    """Replaces `parametrizations.*` in a layer's `state_dict` by `weight` and `standardization.*`."""
    step = standardization_of(layer)
    if step is None:
        return
    original = stored.pop(prefix + _ORIGINAL)
    with torch.no_grad():
        stored[prefix + "weight"] = step(original.detach())
    stored[f"{prefix}{_STORED}original"] = original
    for name in step.state_dict():
        stored[prefix + _STORED + name] = stored.pop(prefix + _STEP + name)


def load_weight(layer: nn.Module, state_dict: Any, prefix: str, errors: list[str]) -> None:
    """Renames the keys of a file to those of the layer, standardised or not."""
    start, step = prefix + _STORED, standardization_of(layer)
    parts = {
        key.removeprefix(start): state_dict.pop(key) for key in list(state_dict) if key.startswith(start)
    }
    weight = state_dict.pop(f"{prefix}weight", None)
    if weight is not None and step is not None:
        if not parts or any(name in parts and getattr(step, name) is None for name in ("gain", "bias")):
            parts, lost = _parts_of(step, weight)
            if lost > _ROUNDING:
                errors.append(
                    f"{prefix}weight: expected the mean of every channel to be 0, as this layer's standardisation "
                    f"has no bias, got a weight of which it would lose {lost:.1%}; standardise with bias=True"
                )
        state_dict[prefix + _ORIGINAL] = parts["original"]
        for name, own in step.state_dict().items():
            # A gain of 1 and a bias of 0 are what a file without them means; it knows no rates.
            neutral = own if name == "rate" else torch.full_like(own, float(name == "gain"))
            state_dict[prefix + _STEP + name] = parts.get(name, neutral)
    elif weight is not None:
        state_dict.setdefault(prefix + (_ORIGINAL if is_parametrized(layer, "weight") else "weight"), weight)


@torch.no_grad()
def _parts_of(step: WeightStandardization, weight: Tensor) -> tuple[dict[str, Tensor], float]:
    """Returns the parameters of such a standardisation for a weight, and the share of the weight that is lost."""
    gain, bias = step.gain is not None, step.bias is not None
    alike = WeightStandardization(
        step.channels, gain=gain, bias=bias, device=weight.device, dtype=step.scale.dtype
    )
    original = alike.right_inverse(weight)
    lost = float((alike(original) - weight).norm() / weight.norm())
    return {"original": original, **alike.state_dict()}, lost
