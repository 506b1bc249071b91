"""Threshold, reset and surrogate gradient: what spiking models share."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast, get_args

import torch
from torch import Tensor

from snnlib.backends.reference.surrogate import KINDS
from snnlib.checks import check_flag, check_number
from snnlib.neurons.base import Neuron, Output, Params, Reset, State
from snnlib.neurons.dialects import check_threshold, choose, finite_number, shown_options
from snnlib.neurons.spike import Surrogate, SurrogateLike, check_surrogate, spike
from snnlib.neurons.surrogate import ATan, Triangle


class SpikingNeuron(Neuron):
    """A neuron that fires where its membrane potential reaches a threshold, and is reset then.

    Args (those of every spiking model; a dialect sets those that are not given):
        threshold: firing threshold, > 0, a number or one value per channel. Default 1.
        reset: `"zero"` sets the membrane to `reset_value`, `"subtract"` takes the threshold off, `"none"` leaves it.
        reset_value: what `"zero"` sets, and where the membrane starts before the first step, as in SpikingJelly; with
            another reset it starts at 0. Default 0.
        reset_states: `"membrane"`, or `"all"` for the other states as well (to 0).
        reset_time: `"same"` resets at the end of the step that fired; `"next"` after decay and input of the following
            step, which costs it that step's input (`"zero"`) or takes the whole threshold off (`"subtract"`).
        detach_reset: whether the reset passes no gradient to the spike that caused it. Default True.
        compare: `">="` or `">"`.
        surrogate: one of `snnlib.surrogate` or a function of `u = h - threshold`. Default `ATan(2)`.
        floor: least membrane potential, after the reset. Default none.
        max_spikes: most spikes in one step; above 1 a step gives `floor(h / threshold)` of them, `"subtract"` takes
            the threshold off for each, and the neuron runs by `step`. Default 1.
        single_spike: whether a neuron stays refractory after its first spike, for codes by the time of one spike; the
            state has one more part, whether it has fired, and the neuron runs by `step`. Not beside `max_spikes` above
            1. Default False.
        gradient_through_time: whether gradients flow to earlier steps; without, each step learns from its own input
            alone. Default True.
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
        "floor": None,
        "max_spikes": 1,
        "single_spike": False,
        "gradient_through_time": True,
    }
    dialects: ClassVar[dict[str, dict[str, Any]]] = {}
    # Shares of active steps while they are measured, and that of the last batch.
    _active: list[Tensor] | None = None
    last_share: Tensor | None = None
    # The membrane before the first step, of models that have the option; None for `reset_value` or 0.
    start_value: float | None = None
    # What each of these options may be.
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "reset": get_args(Reset),
        "reset_states": ("membrane", "all"),
        "reset_time": ("same", "next"),
        "compare": (">=", ">"),
    }

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
        check_threshold(threshold)
        shape = settings["surrogate"]
        # A surrogate with a target share has its width in the neuron, which moves it.
        self.target_share: float | None = getattr(shape, "share", None)
        own_width = {} if self.target_share is None else {"surrogate_width": shape.width}
        super().__init__(
            {**constants, "threshold": threshold, **own_width},
            learnable=learnable,
            channels=channels,
            batch_first=batch_first,
        )
        for name, choices in self.choices.items():
            if settings[name] not in choices:
                raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {settings[name]!r}")
        check_surrogate(settings["surrogate"])
        for name in ("floor", "max_spikes"):
            if settings[name] is not None:
                check_number(name, settings[name])
        self.reset: Reset = settings["reset"]
        self.reset_value = finite_number("reset_value", settings["reset_value"])
        self.reset_states: str = settings["reset_states"]
        self.reset_time: str = settings["reset_time"]
        self.detach_reset = check_flag("detach_reset", settings["detach_reset"])
        self.compare: str = settings["compare"]
        self.surrogate: SurrogateLike = settings["surrogate"]
        self.floor: float | None = settings["floor"]
        self.max_spikes: float = settings["max_spikes"]
        self.gradient_through_time = check_flag("gradient_through_time", settings["gradient_through_time"])
        if self.floor is not None and not self.floor < torch.inf:
            raise ValueError(f"floor: expected a number below infinity, got {self.floor}")
        if not self.max_spikes >= 1 or self.max_spikes % 1 > 0:
            raise ValueError(f"max_spikes: expected a whole number >= 1, or infinity, got {self.max_spikes}")
        self.single_spike = check_flag("single_spike", settings["single_spike"])
        if self.single_spike and self.max_spikes != 1:
            raise ValueError(f"single_spike: expected False beside max_spikes={self.max_spikes:g}, got True")
        # With a later reset the last step's spikes are state as well.
        added = (*["spike"] * (self.reset_time == "next"), *["fired"] * self.single_spike)
        if added:
            self.state_names = (*type(self).state_names, *added)  # type: ignore[misc]

    @classmethod
    def settings(cls, dialect: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults, then what the dialect has instead, then what was given (not None)."""
        return choose({**SpikingNeuron.defaults, **cls.defaults}, cls.dialects, dialect, given)

    def advance(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """`step`; with `single_spike` a neuron that has fired stays as its spike left it."""
        if not self.single_spike:
            return self.step(state, current, params)
        *own, fired = state
        spikes, after = self.step(tuple(own), current, params)
        over = fired != 0
        spikes = spikes.masked_fill(over, 0.0)
        held = [torch.where(over, *pair) for pair in zip(own, after, strict=True)]
        return spikes, (*held, torch.maximum(fired, spikes).detach())

    def free_potential(self, x: Tensor) -> Tensor:
        """See `Neuron.free_potential`."""
        if not self.single_spike:
            return super().free_potential(x)
        many = copy.copy(self)
        many.single_spike = False
        return many.free_potential(x)

    def fire(self, membrane: Tensor, params: Params) -> Tensor:
        """Spikes where the membrane reaches the threshold."""
        threshold = params["threshold"]
        spikes = self.spikes_at(membrane - threshold, threshold, params)
        if self.max_spikes == 1:
            return spikes
        count = (membrane.detach() / threshold.detach()).floor().clamp(1, self.max_spikes)
        # The gradient is that of one spike, as in sinabs.
        return spikes + (spikes.detach() * count - spikes.detach())

    def spikes_at(self, distance: Tensor, unit: Tensor, params: Params) -> Tensor:
        """Spikes by the distance from the threshold; `unit` is what the surrogate's width counts in."""
        spikes = spike(distance, unit, self.surrogate_of(params), strict=self.compare == ">")
        if self._active is not None:
            width = params["surrogate_width"] * unit.detach()
            self._active.append((distance.detach().abs() < width).double().mean())
        return spikes

    def surrogate_of(self, params: Params) -> SurrogateLike:
        """The surrogate, with the neuron's own width where it has a target share."""
        if self.target_share is None:
            return self.surrogate
        return cast(Triangle, self.surrogate).at_width(params["surrogate_width"])

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """See `Neuron.run`; in training the share of active steps is measured where it has a target."""
        if lengths is None and self.wants_share and torch.is_grad_enabled():
            self.measure_share(x.detach())
        return super().run(x, state, lengths)

    def stored_constants(self) -> dict[str, Tensor]:
        """As in `Neuron`, without the width that follows the share: files bring another one without a note."""
        constants = super().stored_constants()
        constants.pop("surrogate_width", None)
        return constants

    @property
    def wants_share(self) -> bool:
        """Whether the share of active steps of a forward pass is to be noted."""
        return self.target_share is not None and self.training and not torch.compiler.is_compiling()

    def note_share(self, share: Tensor) -> None:
        """Keep the share of active steps of the last batch for `surrogate.update_widths_`."""
        self.last_share = share.double()

    @torch.no_grad()
    def measure_share(self, x: Tensor) -> None:
        """By `step` on the first sample: the scan's kernel gives no potentials."""
        batch_dim = 0 if self.batch_first else 1
        if not x.numel():
            return
        self._active = []
        try:
            self.reference(x.narrow(batch_dim, 0, 1))
            self.note_share(torch.stack(self._active).mean())
        finally:
            self._active = None

    def reset_states_by(self, states: Sequence[Tensor], spikes: Tensor, params: Params) -> State:
        """The states, the membrane first, after the reset by these spikes."""
        s = spikes.detach() if self.detach_reset else spikes
        membrane, *others = states
        if self.reset == "subtract":
            return (membrane - s * self.reset_amount(states, params), *others)
        if self.reset == "none":
            return tuple(states)
        # Several spikes in a step reset once.
        s = s if self.max_spikes == 1 else s.clamp(max=1)
        if self.reset_states == "all":
            others = [(1 - s) * other for other in others]
        return (s * self.reset_value + (1 - s) * membrane, *others)

    def reset_amount(self, states: Sequence[Tensor], params: Params) -> Tensor:
        """What `"subtract"` takes off the membrane."""
        return params["threshold"]

    def fire_and_reset(self, charged: Sequence[Tensor], state: State, params: Params) -> tuple[Tensor, State]:
        """Spikes and next states, from the states after decay and input and those before the step."""
        if self.reset_time == "next":
            charged = self.reset_states_by(charged, state[-1], params)
            spikes = self.fire(charged[0], params)
            return spikes, (self.floored(charged[0]), *charged[1:], spikes)
        spikes = self.fire(charged[0], params)
        membrane, *others = self.reset_states_by(charged, spikes, params)
        return spikes, (self.floored(membrane), *others)

    def floored(self, membrane: Tensor) -> Tensor:
        """The membrane, not below the floor."""
        return membrane if self.floor is None else membrane.clamp(min=self.floor)

    def choose_start(self, start: float | None, dialect: str | None, rest: float) -> None:
        """Keep where the membrane starts: where it is told to, or in Norse's dialect where it rests."""
        start = rest if start is None and dialect == "norse" else start
        if start is not None and finite_number("start_value", start) != self.first_membrane:
            self.start_value = float(start)

    @property
    def first_membrane(self) -> float:
        """The membrane before the first step."""
        if self.start_value is not None:
            return self.start_value
        return self.reset_value if self.reset == "zero" else 0.0

    @property
    def starts_at_zero(self) -> bool:
        """See `initial_state`."""
        return type(self).initial_state is SpikingNeuron.initial_state and self.first_membrane == 0

    def initial_state(self, current: Tensor, params: Params) -> State:
        """The membrane starts at `first_membrane`, all else at 0."""
        zeros = [torch.zeros_like(current) for _ in self.state_names[1:]]
        return (torch.full_like(current, self.first_membrane), *zeros)

    def firing(self, params: Params, states: int) -> dict[str, Any] | None:
        """The arguments of `Dynamics` that say how it fires and is reset; None if only `step` can."""
        if not isinstance(self.surrogate, Surrogate) or not self.surrogate.has_shape or self.max_spikes != 1:
            return None
        if self.single_spike:
            return None
        threshold = params["threshold"]
        shape = cast(Surrogate, self.surrogate_of(params))
        height, scale = shape.coefficients(threshold.detach())
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
            "floor": -torch.inf if self.floor is None else self.floor,
            "through_time": self.gradient_through_time,
            "strict": self.compare == ">",
            "detach_reset": self.detach_reset,
            "reset_next": self.reset_time == "next",
        }

    def options(self) -> dict[str, Any]:
        """Options that differ from the library's defaults, and the surrogate."""
        defaults = {**SpikingNeuron.defaults, **self.defaults}
        return {**shown_options(self, defaults), "surrogate": self.surrogate}
