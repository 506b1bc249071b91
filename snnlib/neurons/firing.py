"""Threshold, reset and surrogate gradient: what spiking models share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from snnlib.neurons.base import Neuron, Params, Reset
from snnlib.neurons.surrogate import (
    ATan,
    Surrogate,
    SurrogateLike,
    check_surrogate,
    spike,
)
from snnlib.reference.surrogate import KINDS


class SpikingNeuron(Neuron):
    """A neuron that fires where its membrane potential reaches a threshold, and is reset then.

    Args (those of every spiking model; a dialect sets those that are not given):
        threshold: firing threshold, > 0, a number or one value per channel. Default 1.
        reset: `"zero"` sets the membrane to `reset_value`, `"subtract"` takes the threshold off, `"none"` leaves it.
        reset_value: what `"zero"` sets. Default 0.
        reset_states: `"membrane"`, or `"all"` for the other states as well (to 0).
        reset_time: `"same"` resets at the end of the step that fired; `"next"` after decay and input of the following
            step, which costs it that step's input (`"zero"`) or takes the whole threshold off (`"subtract"`).
        detach_reset: whether the reset passes no gradient to the spike that caused it. Default True.
        compare: `">="` or `">"`.
        surrogate: one of `snnlib.surrogate` or a function of `u = h - threshold`. Default `ATan(2)`.
        learnable, channels, batch_first: as in `Neuron`.
    """

    # The library's own defaults, and what each dialect has instead.
    defaults: ClassVar[dict[str, Any]] = {
        "threshold": 1.0,
        "reset": "zero",
        "reset_value": 0.0,
        "reset_states": "membrane",
        "reset_time": "same",
        "detach_reset": True,
        "compare": ">=",
        "surrogate": ATan(2.0),
    }
    dialects: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(
        self,
        constants: Mapping[str, float | Tensor],
        settings: Mapping[str, Any],
        *,
        learnable: Sequence[str] = (),
        channels: int | None = None,
        batch_first: bool = False,
    ) -> None:
        threshold = settings["threshold"]
        if not isinstance(threshold, torch.nn.Parameter) and not bool((torch.as_tensor(threshold) > 0).all()):
            raise ValueError(f"threshold: expected numbers > 0, got {threshold}")
        super().__init__(
            {**constants, "threshold": threshold},
            learnable=learnable,
            channels=channels,
            batch_first=batch_first,
        )
        for name, choices in (
            ("reset", get_args(Reset)),
            ("reset_states", ("membrane", "all")),
            ("reset_time", ("same", "next")),
            ("compare", (">=", ">")),
        ):
            if settings[name] not in choices:
                raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {settings[name]!r}")
        check_surrogate(settings["surrogate"])
        self.reset: Reset = settings["reset"]
        self.reset_value = float(settings["reset_value"])
        self.reset_states: str = settings["reset_states"]
        self.reset_time: str = settings["reset_time"]
        self.detach_reset = bool(settings["detach_reset"])
        self.compare: str = settings["compare"]
        self.surrogate: SurrogateLike = settings["surrogate"]
        if self.reset_time == "next":
            # The last step's spikes are state as well.
            self.state_names = (*type(self).state_names, "spike")  # type: ignore[misc]

    @classmethod
    def settings(cls, dialect: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults, then what the dialect has instead, then what was given (not None)."""
        chosen: Mapping[str, Any] = {}
        if dialect is not None:
            if dialect not in cls.dialects:
                known = ", ".join(cls.dialects) or "none for this model"
                raise ValueError(f"dialect: expected one of {known}, got {dialect!r}")
            chosen = cls.dialects[dialect]
        explicit = {name: value for name, value in given.items() if value is not None}
        return {**SpikingNeuron.defaults, **cls.defaults, **chosen, **explicit}

    def fire(self, membrane: Tensor, params: Params) -> Tensor:
        """Spikes where the membrane reaches the threshold."""
        return spike(
            membrane - params["threshold"], params["threshold"], self.surrogate, strict=self.compare == ">"
        )

    def reset_membrane(self, membrane: Tensor, spikes: Tensor, params: Params) -> Tensor:
        """The membrane after the reset by these spikes."""
        s = spikes.detach() if self.detach_reset else spikes
        if self.reset == "zero":
            return s * self.reset_value + (1 - s) * membrane
        return membrane - s * params["threshold"] if self.reset == "subtract" else membrane

    def firing(self, params: Params, states: int) -> dict[str, Any] | None:
        """The arguments of `Dynamics` that say how it fires and is reset; None for a surrogate of the user's own."""
        if not isinstance(self.surrogate, Surrogate):
            return None
        threshold = params["threshold"]
        height, scale = self.surrogate.coefficients(threshold.detach())
        keep: list[float] = [1.0] * states
        offset: list[float | Tensor] = [0.0] * states
        if self.reset == "zero":
            keep[0], offset[0] = 0.0, self.reset_value
            if self.reset_states == "all":
                keep = [0.0] * states
        elif self.reset == "subtract":
            offset[0] = -threshold
        return {
            "threshold": threshold,
            "keep": keep,
            "offset": offset,
            "kind": KINDS.index(self.surrogate.kind),
            "height": height,
            "scale": scale,
            "strict": self.compare == ">",
            "detach_reset": self.detach_reset,
            "reset_next": self.reset_time == "next",
        }

    def options(self) -> dict[str, Any]:
        """Options that differ from the library's defaults, and the surrogate."""
        shown: dict[str, Any] = {}
        for name, default in SpikingNeuron.defaults.items():
            if name not in ("threshold", "surrogate") and getattr(self, name) != default:
                shown[name] = getattr(self, name)
        return {**shown, "surrogate": self.surrogate}
