"""The weight of a layer in files: as it acts, whatever parametrization it is learned by.

`weight` is stored always. A standardised layer (`WeightStandardization`) stores what it learns beside it:

    weight                       the standardised weight
    standardization.original     V, and likewise standardization.scale, .gain, .bias and .rate

A plain layer loads the first, a standardised one the others, and where these are missing it sets them by the weight.
"""

from __future__ import annotations

from textwrap import indent
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from snnlib.neurons.module import CheckedModule
from snnlib.nn.weight_standardization import WeightStandardization

_STORED = "standardization."
# What a weight may change by on its way through the standardisation, relative to its norm.
_ROUNDING = 1e-2
_ORIGINAL, _STEP = "parametrizations.weight.original", "parametrizations.weight.0."


def standardization_of(layer: nn.Module) -> WeightStandardization | None:
    """The first parametrization of the layer's weight, if it standardises."""
    if not is_parametrized(layer, "weight"):
        return None
    step = cast(nn.ModuleList, cast(nn.ModuleDict, layer.parametrizations)["weight"])[0]
    return step if isinstance(step, WeightStandardization) else None


def learned_weight(layer: nn.Module) -> Tensor:
    """The parameter by which a layer's weight is learned: that behind its parametrization, if it has one."""
    if not is_parametrized(layer, "weight"):
        return cast(Tensor, layer.weight)
    return next(cast(nn.ModuleDict, layer.parametrizations)["weight"].parameters(recurse=False))


class StoredWeight(CheckedModule):
    """A layer whose `weight` is in its `state_dict`, standardised or not."""

    # Modules that `extra_repr` speaks of, so that they are not printed apart.
    hidden_parts: ClassVar[tuple[str, ...]] = ()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """As of any module; `weight` and `standardization.*` in the place of `parametrizations.*`."""
        stored = super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        step = standardization_of(self)
        if step is not None:
            original = stored.pop(prefix + _ORIGINAL)
            with torch.no_grad():
                stored[prefix + "weight"] = step(original.detach())
            stored[f"{prefix}{_STORED}original"] = original
            for name in step.state_dict():
                stored[prefix + _STORED + name] = stored.pop(prefix + _STEP + name)
        return stored

    def __repr__(self) -> str:
        """As of a plain layer, with a word on the standardisation, where nothing else makes the weight."""
        step = standardization_of(self)
        if step is None and not self.hidden_parts:
            return super().__repr__()
        if is_parametrized(self, "weight") and (
            step is None or len(cast(Any, self.parametrizations)["weight"]) > 1
        ):
            return super().__repr__()
        main = self.extra_repr()
        if step is not None:
            learned = [name for name in ("gain", "bias") if getattr(step, name) is not None]
            main += ", standardised" + (f" with {' and '.join(learned)}" if learned else "")
        name = type_before_parametrizations(self).__name__
        hidden = {"parametrizations", *self.hidden_parts}
        parts = [f"({key}): {module!r}" for key, module in self.named_children() if key not in hidden]
        if not parts:
            return f"{name}({main})"
        return f"{name}(\n" + "".join(f"{indent(part, '  ')}\n" for part in (main, *parts)) + ")"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles: torch gives a parametrized layer a class of its own, which is not found by its name."""
        if is_parametrized(self, "weight"):
            raise TypeError(
                "net: expected layers with plain weights, got one with a parametrization, which cannot be pickled; "
                "take torch.save(net.state_dict(), file), which loads into a plain net too"
            )
        return super().__reduce_ex__(protocol)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        parts, step = _take_standardization(state_dict, prefix), standardization_of(self)
        weight = state_dict.pop(f"{prefix}weight", None)
        if weight is None and parts:
            weight = _standardized(parts)
        if weight is not None and step is not None:
            if not _reaches(step, parts):
                parts = _parts_of(step, weight)
                lost = (_standardized(parts) - weight).norm() / weight.norm()
                if float(lost) > _ROUNDING:
                    errors: list[str] = rest[-1]
                    errors.append(
                        f"{prefix}weight: expected the mean of every channel to be 0, as this layer's standardisation "
                        f"has no bias, got a weight of which it would lose {float(lost):.1%}; standardise with "
                        "bias=True"
                    )
            state_dict[prefix + _ORIGINAL] = parts["original"]
            for name, own in step.state_dict().items():
                # A gain of 1 and a bias of 0 are what a file without them means; it knows no rates.
                neutral = own if name == "rate" else torch.full_like(own, float(name == "gain"))
                state_dict[prefix + _STEP + name] = parts.get(name, neutral)
        elif weight is not None:
            state_dict.setdefault(
                prefix + (_ORIGINAL if is_parametrized(self, "weight") else "weight"), weight
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _take_standardization(state_dict: Any, prefix: str) -> dict[str, Tensor]:
    """Takes a standardisation out of a file: original, scale, gain, bias and rate."""
    start = prefix + _STORED
    return {key.removeprefix(start): state_dict.pop(key) for key in list(state_dict) if key.startswith(start)}


def _step(channels: int, gain: bool, bias: bool, like: Tensor) -> WeightStandardization:
    return WeightStandardization(channels, gain=gain, bias=bias, device=like.device, dtype=like.dtype)


@torch.no_grad()
def _standardized(parts: dict[str, Tensor]) -> Tensor:
    """The weight that a standardisation in a file gives."""
    step = _step(len(parts["scale"]), "gain" in parts, "bias" in parts, parts["scale"])
    step.load_state_dict({name: parts[name] for name in step.state_dict()})
    return cast(Tensor, step(parts["original"]))


@torch.no_grad()
def _parts_of(step: WeightStandardization, weight: Tensor) -> dict[str, Tensor]:
    """Returns what a standardisation of this kind learns of a weight."""
    like = weight.new_empty(0, dtype=step.scale.dtype)
    alike = _step(step.channels, step.gain is not None, step.bias is not None, like)
    return {"original": alike.right_inverse(weight), **alike.state_dict()}


def _reaches(step: WeightStandardization, parts: dict[str, Tensor]) -> bool:
    """Returns whether a file's standardisation fits one that may lack a gain or a bias."""
    lacks_gain = "gain" in parts and step.gain is None
    lacks_bias = "bias" in parts and step.bias is None
    return bool(parts) and not lacks_gain and not lacks_bias
