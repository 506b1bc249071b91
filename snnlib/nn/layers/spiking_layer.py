"""Base of layers with a weight and any neurons: the interface that tools for nets use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn

from snnlib.checks import (
    LAYER_HINTS,
    check_flag,
    check_no_state,
    check_traced,
    check_untransformed,
    warn_caller,
)
from snnlib.functional.currents import Delayed
from snnlib.functional.operators import LinearOperator
from snnlib.functional.plan import LayerPlan, layer_currents, plan_layer
from snnlib.functional.quantize import fixed_point_weight
from snnlib.functional.recurrent import Recurrence
from snnlib.functional.sparse import SparselyConnected, fan_in
from snnlib.neurons import LIF, Neuron, Output
from snnlib.neurons.constants import mean_threshold
from snnlib.neurons.training_watch import TrainingWatch, cannot_watch
from snnlib.nn.layers.delays import Delays, check_sequence
from snnlib.nn.weights.gain import WeightWithGain
from snnlib.nn.weights.stored_weight import learned_weight, standardization_of
from snnlib.sequences.history import joined, last_steps
from snnlib.sequences.lengths import run_with_lengths
from snnlib.sequences.spike_count import channel_rates
from snnlib.sequences.time_first import runs_time_first

__all__ = ["SpikingLayer"]

# Share of inputs that fire in a time step of typical event data; N-MNIST at 10 ms has 4 %.
EXPECTED_INPUT_RATE = 0.05
# Upper bound of a useful weight, in thresholds per unit of the response to white noise.
_SURE = 4.0
# Steps after which the response of a neuron that forgets has died down.
_RESPONSE_STEPS = 256
# Constants and options of neurons, none of which is an attribute of a layer.
_OF_NEURONS = frozenset(
    ("tau", "tau_m", "tau_s", "tau_grad", "grad_clamp", "beta", "alpha", "v_threshold", "reset", "surrogate")
)


class PlainOptions(TypedDict, total=False):
    """Keyword arguments of the constructors of spiking layers without delays."""

    neuron: Neuron | None
    batch_first: bool
    device: torch.device | str | None
    dtype: torch.dtype | None


class LayerOptions(PlainOptions, total=False):
    """Keyword arguments of the constructors of other spiking layers."""

    delays: Delays | None


class SpikingLayer(WeightWithGain):
    """Base of spiking layers: `neuron(operator(x, effective_weight))`, with a state for chunks.

    The layer keeps no state between calls: `layer(x)` maps a whole sequence, `layer.run(x, state)` a chunk.
    """

    option_hints = LAYER_HINTS
    # True once `fuse_`, `prepare_` or `SpikeDoctor` has checked the module in front.
    input_known: bool = False
    # True if neurons act on each other only through the layer's output.
    neurons_apart: ClassVar[bool] = True

    def __init__(
        self,
        operator: LinearOperator,
        weight_shape: Sequence[int],
        neuron: Neuron | None = None,
        *,
        delays: Delays | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_flag("batch_first", batch_first)
        if delays is not None and not isinstance(delays, Delays):
            raise TypeError(f"delays: expected an instance of snnlib.Delays, got {delays!r}")
        if neuron is not None and not isinstance(neuron, Neuron):
            raise TypeError(f"neuron: expected an instance of snnlib.neurons.Neuron, got {neuron!r}")
        self.operator = operator
        self.neuron = LIF() if neuron is None else neuron
        self.batch_first = batch_first
        self.neuron.to(device)
        self.weight = nn.Parameter(torch.empty(*weight_shape, device=device, dtype=dtype))
        if self.weight.dtype == torch.float64:
            self.neuron.to(torch.float64)
        self.register_gain()
        self.training_watch = TrainingWatch()
        self.reset_parameters()
        self.delays = delays
        if isinstance(operator, SparselyConnected):
            operator.bind(self, "weight")
            check_sparse_delays("delays", delays)
        if delays is not None:
            delays.build(self.sizes[1], self.weight)

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises an error for constants of the neurons, which as attributes of the layer would have no effect."""
        if name in _OF_NEURONS and not hasattr(self, name):
            raise AttributeError(
                f"{name}: expected an attribute of {type(self).__name__}, got a constant of its neurons, which get "
                "theirs when the layer is made"
            )
        super().__setattr__(name, value)

    @property
    def batch_first(self) -> bool:
        """Returns whether sequences are `[N, T, ...]`, an option of the neurons."""
        return self.neuron.batch_first

    @batch_first.setter
    def batch_first(self, batch_first: bool) -> None:
        self.neuron.batch_first = batch_first

    def rounded(self, weight: Tensor) -> Tensor:
        """See `WeightWithGain.rounded`."""
        neuron = self.neuron
        return fixed_point_weight(weight, neuron.weight_exponent) if neuron.fixed_point else weight

    @property
    def sizes(self) -> tuple[int, int]:
        """Channels of the output and of the input, in their dimension 2."""
        if isinstance(self.operator, SparselyConnected):
            return self.operator.shape
        outputs, inputs = self.weight.shape[:2]
        return outputs, inputs * getattr(self.operator, "groups", 1)

    @runs_time_first
    def forward(self, x: Tensor, *state: Any, pool: tuple[int, int] = (1, 1)) -> Tensor:
        """Returns the spikes of a sequence from the initial state, averaged over windows `pool` without overlap."""
        check_no_state(self, state)
        check_untransformed(type(self).__name__, batches=True)
        weight = self.effective_weight
        check_traced(type(self).__name__, weight)
        try:
            plan = self.plan(x, weight, return_state=False, pool=pool)
            self.check_delays(x)
            value = plan.run(x, weight).value
        except OverflowError as error:
            raise named_overflow(self, error) from error
        self.observe(x, weight, value)
        return value

    @runs_time_first
    def run(
        self,
        x: Tensor,
        state: tuple[Tensor, ...] | None = None,
        lengths: Tensor | None = None,
        *,
        pool: tuple[int, int] = (1, 1),
    ) -> Output:
        """Runs a sequence from a state; returns spikes and the last state. Gradients flow through states.

        With `lengths` `[N]`, the number of steps of each sample, later spikes are 0 and the state is the one after
        each sample's own last step; the sequence runs in one chunk per distinct length.
        """
        if lengths is not None and (self.neurons_apart or self.keeps_input):
            run = partial(self._run, lengths=None, pool=pool)
            return Output(*run_with_lengths(run, x, state, lengths))
        return self._run(x, state, lengths, pool)

    def _run(
        self, x: Tensor, state: tuple[Tensor, ...] | None, lengths: Tensor | None, pool: tuple[int, int]
    ) -> Output:
        weight = self.effective_weight
        own, events, before = (state, x, 0) if self.delays is None else self._with_history(x, state)
        try:
            plan = self.plan(events, weight, state=own, before=before, pool=pool)
            value, after = plan.run(events, weight, own, lengths)
        except OverflowError as error:
            raise named_overflow(self, error) from error
        return Output(value, after if self.delays is None else (*after, *self._history(events)))

    def plan(
        self,
        x: Tensor,
        weight: Tensor,
        *,
        state: tuple[Tensor, ...] | None = None,
        before: int = 0,
        return_state: bool = True,
        pool: tuple[int, int] = (1, 1),
    ) -> LayerPlan:
        """Returns the plan of a call with this effective weight and state of the neurons.

        The first `before` steps of x belong to the past and have no output.
        """
        operator = self.call_operator(before)
        return plan_layer(x, weight, operator, self.neuron, state=state, return_state=return_state, pool=pool)

    def check_delays(self, x: Tensor) -> None:
        """Raises ValueError unless a sequence is longer than the delays."""
        if self.delays is not None:
            check_sequence("delays", self.delays, x.shape[0])

    @property
    def keeps_input(self) -> bool:
        """Returns whether the state also holds the last steps of the input."""
        return self.delays is not None or self.neuron.exact_times

    def call_operator(self, before: int = 0) -> LinearOperator | Delayed | Recurrence:
        """The operator that a call is planned with; `before` as in `plan`."""
        return self.operator if self.delays is None else self.delayed_operator(before)

    def delayed_operator(self, before: int = 0) -> LinearOperator | Delayed:
        """Returns the operator with the layer's delays, if it has any; `before` as in `plan`."""
        if self.delays is None:
            return self.operator
        rounded = not self.training or self.neuron.gradient == "event"
        return Delayed(self.operator, self.delays(), before, rounded)

    def _history(self, events: Tensor) -> tuple[Tensor, ...]:
        """Returns the last steps of the input, whose events arrive later: the last part of the state with delays."""
        if self.delays is None:
            return ()
        return (last_steps(events, self.delays.history),)

    def _with_history(
        self, x: Tensor, state: tuple[Tensor, ...] | None
    ) -> tuple[tuple[Tensor, ...] | None, Tensor, int]:
        """Returns the neurons' state, the input after its delayed past, and the number of past steps."""
        if self.delays is None or state is None:
            return state, x, 0
        if not isinstance(state, tuple) or len(state) < 2:
            got = f"{len(state)} parts" if isinstance(state, tuple) else type(state).__name__
            raise TypeError(
                f"state: expected the tuple (neuron states, input steps) that run returned, got {got}"
            )
        before = self.delays.history
        return state[:-1], joined(x, state[-1], before), before

    @runs_time_first
    def input_current(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the input current `[T, N, C, ...]` of a spike tensor for a given weight."""
        return layer_currents(x, weight, self.delayed_operator())

    def unit_weight_current(self, x: Tensor) -> Tensor:
        """Returns `input_current` for weights of 1, equal in all channels of a group without delays."""
        if self.delays is not None or isinstance(self.operator, SparselyConnected):
            return self.input_current(x, torch.ones_like(self.weight))
        weight = self.effective_weight.detach()
        groups = getattr(self.operator, "groups", 1)
        one = self.input_current(x, torch.ones_like(weight[:groups]))
        return (
            one.repeat_interleave(len(weight) // groups, 2)
            if groups > 1
            else one.expand(*one.shape[:2], len(weight), *one.shape[3:])
        )

    def observe(self, x: Tensor, weight: Tensor, spikes: Tensor) -> None:
        """Watches a forward pass; with homeostasis it also adjusts the weight's bias after the backward pass."""
        self._say_what_input_is(x)
        step = standardization_of(self) if "parametrizations" in self._modules else None
        if step is not None:
            self.training_watch.wakes = step.rate is not None
        self.training_watch.watch(self, x, weight, spikes)
        if not (self.training and weight.requires_grad):
            return
        if step is None or self.training_watch.stopped or cannot_watch(x) or not spikes.numel():
            return
        if step.gain is not None and step.gain.requires_grad:
            # A rate is known for the start of `prepare_`, and said at a net's input alone.
            batch = x if step.spread < 1 and step.rate is not None and not x.requires_grad else None
            self.training_watch.watch_standardization(self, learned_weight(self), step.gain, batch)
        bias = step.bias if step.rate is not None else None
        if bias is None or not bias.requires_grad:
            return
        with torch.no_grad():
            fires_once = getattr(self.neuron, "refractory", 0) == math.inf
            once_in = len(spikes) if fires_once else None
            change = step.homeostatic_step(channel_rates(spikes.detach()), once_in)
        handles: list[Any] = []

        def on_gradient(_gradient: Tensor) -> None:
            handles.pop().remove()
            # Not before: a checkpoint computes the weight a second time for the backward pass.
            bias.data.add_(change)

        handles.append(weight.register_hook(on_gradient))  # type: ignore[no-untyped-call]

    def _say_what_input_is(self, x: Tensor) -> None:
        """Warns once if exact spike times assume an unchecked input to be spikes."""
        chosen = not self.neuron.exact_times or self.neuron.input_gradient is not None
        if chosen or self.input_known or not self.training or torch.compiler.is_compiling():
            return
        if x.requires_grad and torch.is_grad_enabled():
            self.input_known = True
            warn_caller(
                "input_gradient: None takes the input of a layer for events, which get the gradient by their time: "
                'choose "dense" behind a module with weights or neurons with a surrogate gradient, else "time", or '
                "let snnlib.prepare_, fuse_ or SpikeDoctor(net) check the module before "
                f"{self.training_watch.name or repr(self)}"
            )

    def reset_parameters(self) -> None:
        """Draws the weight so that a spike tensor at 5 % input rate gives a potential of about the threshold.

        Uniform with mean 0 and `std = threshold / (sqrt(fan_in * rate) * response_std)`. Real data differ:
        `snnlib.prepare_` sets every layer's rate.
        """
        if self.weight.is_meta:
            return
        gain = (
            math.sqrt(max(fan_in(self.operator, self.weight), 1) * EXPECTED_INPUT_RATE) * self.response_std()
        )
        bound = math.sqrt(3) * mean_threshold(self.neuron) / gain
        draw_weight(self.weight, bound)
        nn.init.ones_(self.gain)

    def fire(self, current: Tensor) -> Tensor:
        """Returns the spikes of the neurons for an input current `[T, N, C, ...]`."""
        return self.neuron(current)  # type: ignore[no-any-return]

    def free_potential(self, current: Tensor) -> Tensor:
        """Membrane potential at every step, in units of the mean threshold, of neurons that never fire."""
        return self.neuron.free_potential(current)

    def firing_weight(self) -> float:
        """Returns a weight at which a single event makes a neuron fire, approximately."""
        return mean_threshold(self.neuron) / self.response_std() * _SURE

    def response_std(self) -> float:
        """Standard deviation of the free membrane potential for white input current of variance 1; 1 if unknown.

        It is the root of the summed squares of the membrane's response to a unit impulse.
        """
        with torch.no_grad():
            dynamics = self.neuron.dynamics(self.neuron.constants())
            if dynamics is None or dynamics.quadratic:
                return 1.0
            rows = [[float(torch.as_tensor(value).mean()) for value in row] for row in dynamics.a]
            state = [float(torch.as_tensor(value).mean()) for value in dynamics.b]
        total = 0.0
        for _ in range(_RESPONSE_STEPS):
            total += state[0] ** 2
            state = [sum(a * y for a, y in zip(row, state, strict=True)) for row in rows]
        return math.sqrt(total) or 1.0

    def extra_repr(self) -> str:
        """Sizes, and options that differ from the defaults."""
        outputs, inputs = self.sizes
        text = f"{inputs}, {outputs}"
        if len(self.weight.shape) > 2:
            text += f", kernel_size={tuple(self.weight.shape[2:])}, {self.operator!r}"
        return text + (", batch_first=True" if self.batch_first else "")


def named_overflow(layer: SpikingLayer, error: OverflowError) -> OverflowError:
    """Returns an error of a call with the layer's name."""
    name = layer.training_watch.name or " ".join(repr(layer).split())
    return OverflowError(f"{name}: {error}")


def check_sparse_delays(name: str, delays: Delays | None) -> None:
    """Raises ValueError for delays per connection, which the input of a sparse layer lacks."""
    if delays is not None and delays.per == "connection":
        raise ValueError(f"{name}: expected None or one per channel with sparse connections, got {delays!r}")


def draw_weight(weight: Tensor, bound: float) -> None:
    """Draws uniformly from -`bound` to `bound`, in place.

    Raises:
        ValueError: a bound that the weight's dtype cannot represent.
    """
    # A uniform distribution's range has to fit as well.
    most = torch.finfo(weight.dtype).max / 2
    if not bound <= most:
        raise ValueError(
            f"neuron: expected one that weights of {weight.dtype} up to {most:.2g} make fire, got a threshold and time "
            f"constants that need weights up to {bound:.2g}"
        )
    nn.init.uniform_(weight, -bound, bound)
