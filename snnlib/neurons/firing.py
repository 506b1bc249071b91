"""Threshold, reset and surrogate gradient: what spiking models share."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import InitVar
from typing import Any, ClassVar, cast, get_args

import torch
from torch import Tensor

from snnlib.backends.flags import LONGEST_REFRACTORY, MOST_LEVELS
from snnlib.backends.levels import Levels
from snnlib.backends.surrogate import KINDS, SPREADS
from snnlib.checks import check_number
from snnlib.neurons.base import Neuron, Params, Reset, State
from snnlib.neurons.checks import check_threshold
from snnlib.neurons.dynamics import Coefficient, Dynamics, at_least
from snnlib.neurons.fields import Check, Constant, constant, fixed, one_of, option
from snnlib.neurons.spike import check_surrogate, graded_spike, spike
from snnlib.neurons.surrogate import ATan, StraightThrough, Surrogate, SurrogateLike


def surrogate_option(name: str, value: Any) -> SurrogateLike:
    """Returns the surrogate if it is valid, as the check of an option."""
    check_surrogate(value)
    return cast(SurrogateLike, value)


def _floor(name: str, value: Any) -> Any:
    check_number(name, value)
    if not value < torch.inf:
        raise ValueError(f"{name}: expected a number below infinity, got {value}")
    return value


def _whole(least: int, most: float = torch.inf) -> Check:
    def check(name: str, value: Any) -> Any:
        check_number(name, value)
        if not value >= least or value % 1 > 0 or most < value < torch.inf:
            bounds = f">= {least}" if most == torch.inf else f"from {least} to {most}"
            raise ValueError(f"{name}: expected a whole number {bounds}, or infinity, got {value}")
        return value if value == torch.inf else int(value)

    return check


class SpikingNeuron(Neuron):
    """Base of neurons that fire when their membrane potential reaches a threshold, and are then reset.

    Args (shared by all spiking models; a dialect sets the arguments that are not given):
        threshold: firing threshold, > 0, a number or one value per channel. Default 1.
        reset: `"zero"` sets the membrane to `reset_value`, `"subtract"` subtracts the threshold for each spike,
            `"none"` leaves it. Default `"zero"`, with several levels `"subtract"`.
        reset_value: membrane after a `"zero"` reset and before the first step, as in SpikingJelly; with another reset
            the membrane starts at 0. Default 0.
        reset_states: `"membrane"`, or `"all"` to set the other states to 0 as well, with `reset="zero"` alone.
        reset_time: `"same"` resets at the end of the step with the spike; `"next"` resets after decay and input of the
            following step, so that `"zero"` deletes that step's input and `"subtract"` subtracts an undecayed
            threshold.
        detach_reset: whether the reset passes no gradient to the spike that caused it. Default True.
        compare: `">="` or `">"`.
        surrogate: one of `snnlib.surrogate` or a function of `u = h - threshold`. Default `ATan(2)`, with several
            levels `StraightThrough()`, the slope of the line that they round.
        floor: lower bound of the membrane potential after the reset. Default none.
        levels: largest number of spikes per step. Above 1 the spikes of a step are graded, whole numbers
            `s = clamp(floor(h / threshold + 1/2), 0, levels)`; `math.inf` sets no bound. With `compare=">"`
            `ceil(x) - 1` stands for `floor(x)`. A learned threshold is the scale of the numbers. Default 1.
        level_rounding: `"round"` to the nearest number of thresholds, as above, or `"floor"`, `floor(h / threshold)`.
            One level is reached at the threshold with either. Default `"round"`.
        refractory: number of steps after a spike in which the states are frozen and the input is lost, up to 2^24;
            `math.inf` allows one spike per sequence, for codes by spike time. The state then has one more tensor, the
            steps that remain (with `math.inf`, 1 after the spike). Excludes `levels` above 1. Default 0.
        gradient_through_time: whether gradients flow to earlier steps; if False, each step learns from its own input
            alone. Default True.
        learnable, channels, batch_first: as in `Neuron`.
    """

    former: ClassVar[Mapping[str, Any]] = {
        "single_spike": lambda once: {"refractory": math.inf} if once else {},
        # A bump at the first threshold alone.
        "max_spikes": lambda most: {"levels": most, "level_rounding": "floor"},
    }

    threshold: Constant = constant(default=1.0, check=check_threshold)
    # The membrane before the first step, of models that have the option; None for `reset_value` or 0.
    start_value: float | None = fixed(None)
    reset: Reset = option(default="zero", check=one_of(*get_args(Reset)))
    reset_value: float = option(default=0.0)
    reset_states: str = option(default="membrane", check=one_of("membrane", "all"))
    reset_time: str = option(default="same", check=one_of("same", "next"))
    detach_reset: bool = option(default=True)
    compare: str = option(default=">=", check=one_of(">=", ">"))
    surrogate: SurrogateLike = option(default=ATan(2.0), check=surrogate_option, repr=False)
    floor: float | None = option(default=None, check=_floor)
    levels: float = option(default=1, check=_whole(1, MOST_LEVELS))
    level_rounding: str = option(default="round", check=one_of("round", "floor"))
    refractory: float = option(default=0, check=_whole(0, LONGEST_REFRACTORY), beside={"levels": 1})
    gradient_through_time: bool = option(default=True)
    dialect: InitVar[str | None] = option(default=None)
    learnable: Sequence[str] = option(default=(), repr=False)
    channels: InitVar[int | None] = option(default=None)
    batch_first: bool = option(default=False, repr=False)

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets reset and surrogate by the levels, rest and start of the membrane, and the names of the states."""
        if values["levels"] > 1:
            said = {*given, *({} if dialect is None else cls.dialects[dialect])}
            several = {"reset": "subtract", "surrogate": StraightThrough()}
            values.update({name: value for name, value in several.items() if name not in said})
        if values.get("rest", 0.0) is None:
            values["rest"] = values["reset_value"]
        if values["start_value"] == (values["reset_value"] if values["reset"] == "zero" else 0.0):
            values["start_value"] = None
        # With a later reset the last step's spikes are state as well. Parts that are added come last, in this order:
        # kernels and `step` read a model's own states from the first on, `fire_and_reset` the spikes behind them, and
        # `_advance` takes its part off the end before `step` sees the others.
        added = (*["spike"] * (values["reset_time"] == "next"), *["refractory"] * bool(values["refractory"]))
        if added:
            values["state_names"] = (*values.get("state_names", cls.state_names), *added)

    def _advance(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs `step`; the states of a refractory neuron are frozen, on Loihi its membrane alone."""
        if not self.refractory:
            return self.step(state, current, params)
        *own, left = *state[:-1], state[-1].detach()
        spikes, after = self.step(tuple(own), current, params)
        rests = left != 0
        spikes = spikes.masked_fill(rests, 0.0)
        held = [torch.where(rests, *pair) for pair in zip(own, after, strict=True)]
        held[1:] = after[1:] if self.fixed_point else held[1:]
        for_ever = self.refractory == torch.inf
        begun = (spikes > 0).to(left.dtype) * (1.0 if for_ever else self.refractory)
        return spikes, (*held, torch.where(rests, left if for_ever else left - 1, begun))

    def fire(self, membrane: Tensor, params: Params) -> Tensor:
        """Returns spikes where the membrane reaches the threshold, or as many as it has levels."""
        threshold = params["threshold"]
        if self.levels == 1:
            return self.spikes_at(membrane - threshold, threshold)
        levels = Levels(self.levels, self.level_rounding == "round")
        return graded_spike(membrane, threshold, levels, self.surrogate, strict=self.compare == ">")

    def spikes_at(self, distance: Tensor, unit: Tensor) -> Tensor:
        """Returns spikes for distances from the threshold; `unit` is the unit of the surrogate's width."""
        return spike(distance, unit, self.surrogate, strict=self.compare == ">")

    def reset_states_by(self, states: Sequence[Tensor], spikes: Tensor, params: Params) -> State:
        """Returns the states, membrane first, after the reset by these spikes."""
        s = spikes.detach() if self.detach_reset else spikes
        membrane, *others = states
        if self.reset == "subtract":
            return (membrane - s * self.reset_amount(states, params), *others)
        if self.reset == "none":
            return tuple(states)
        if self.levels > 1:
            # Several spikes in a step reset once, with the gradient of one.
            s = s.detach().clamp(max=1) + (s - s.detach())
        if self.reset_states == "all":
            others = [(1 - s) * other for other in others]
        return (s * self.reset_value + (1 - s) * membrane, *others)

    def reset_amount(self, states: Sequence[Tensor], params: Params) -> Tensor:
        """Returns the amount that `"subtract"` subtracts from the membrane."""
        return params["threshold"]

    def fire_and_reset(self, charged: Sequence[Tensor], state: State, params: Params) -> tuple[Tensor, State]:
        """Returns spikes and next states, from the states after decay and input and the states before the step."""
        if self.reset_time == "next":
            charged = self.reset_states_by(charged, state[-1], params)
            spikes = self.fire(charged[0], params)
            return spikes, (self.floored(charged[0]), *charged[1:], spikes)
        spikes = self.fire(charged[0], params)
        membrane, *others = self.reset_states_by(charged, spikes, params)
        return spikes, (self.floored(membrane), *others)

    def floored(self, membrane: Tensor) -> Tensor:
        """Returns the membrane, at least the floor."""
        return membrane if self.floor is None else at_least(membrane, self.floor)

    @property
    def initial_membrane(self) -> float:  # type: ignore[override]
        """The membrane before the first step."""
        if self.start_value is not None:
            return self.start_value
        return self.reset_value if self.reset == "zero" else 0.0

    def with_reset(
        self, params: Params, a: Sequence[Sequence[Coefficient]], b: Sequence[Coefficient], **others: Any
    ) -> Dynamics | None:
        """Returns the `Dynamics` with these coefficients, threshold and reset, or None if only `step` can run it."""
        # Options of all models that keep a neuron from the kernels say so here alone, those of one model in its
        # `dynamics`. Layers, recurrence, fusion and exporters ask for the dynamics and know no option by name.
        if not isinstance(self.surrogate, Surrogate) or not self.surrogate.has_shape:
            return None
        # Kernels add what a reset sets once for each spike, and jumps and moving thresholds once for all of a step.
        of_one_spike = (self.reset == "zero" and self.reset_value) or {"j", "r"} & others.keys()
        if self.levels > 1 and of_one_spike:
            return None
        threshold = params["threshold"]
        height, scale = self.surrogate.coefficients(threshold.detach())
        keep: list[float] = [1.0] * len(b)
        offset: list[float | Tensor] = [0.0] * len(b)
        if self.reset == "zero":
            keep[0], offset[0] = 0.0, self.reset_value
            if self.reset_states == "all":
                keep = [0.0] * len(b)
        elif self.reset == "subtract":
            offset[0] = -threshold
        firing = {
            "threshold": threshold,
            "keep": keep,
            "offset": offset,
            "kind": KINDS.index(self.surrogate.kind),
            "height": height,
            "scale": scale,
            "floor": -torch.inf if self.floor is None else self.floor,
            "through_time": self.gradient_through_time,
            "strict": self.compare == ">",
            "detach_reset": self.detach_reset,
            "reset_next": self.reset_time == "next",
            "fixed_point": self.fixed_point,
            "refractory": -1 if self.refractory == torch.inf else int(self.refractory),
        }
        if self.levels > 1:
            firing |= {
                "levels": -1 if self.levels == torch.inf else int(self.levels),
                "rounds": self.level_rounding == "round",
                "spread": SPREADS.index(self.surrogate.spread),
            }
        return Dynamics(a=a, b=b, **{**firing, **others})

    def options(self) -> dict[str, Any]:
        """Options that differ from their defaults, and the surrogate."""
        return {**super().options(), "surrogate": self.surrogate}


class SimplyReset(SpikingNeuron):
    """Base of models with one spike per step, which resets the membrane in the same step."""

    reset_states: str = fixed("membrane")
    reset_time: str = fixed("same")
    levels: float = fixed(1)
    level_rounding: str = fixed("floor")
