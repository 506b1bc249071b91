"""Base of recurrent layers, and the fully connected recurrent layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from snnlib.checks import check_choice, check_count, shows, warn_caller
from snnlib.functional.currents import Delayed, SequenceMap
from snnlib.functional.operators import FullyConnected, LinearOperator
from snnlib.functional.plan import plan_layer
from snnlib.functional.recurrent import Recurrence
from snnlib.functional.sparse import SparselyConnected, fan_in
from snnlib.neurons import CubaLIF, Neuron
from snnlib.neurons.constants import mean_threshold
from snnlib.neurons.surrogate import Surrogate, Triangle
from snnlib.nn.layers.delays import Delays, check_sequence
from snnlib.nn.layers.spiking_layer import (
    LayerOptions,
    SpikingLayer,
    draw_weight,
    named_overflow,
)
from snnlib.nn.weights.sparse import Sparse, check_without_delays, connect, set_values
from snnlib.ops.sequence_layout import cat
from snnlib.sequences.spike_count import is_graded
from snnlib.sequences.time_first import runs_time_first

__all__ = ["RecurrentLayer"]

# Peak of a surrogate under recurrence from which on gradients grew to NaN (docs/time.md).
_HIGHEST_PEAK = 1.0


def default_neuron() -> Neuron:
    """Returns `CubaLIF` with a surrogate gradient that stays bounded under recurrence (docs/time.md)."""
    return CubaLIF(surrogate=Triangle(width=0.5, height=0.4))


class Recurrent(SpikingLayer):
    """Base of recurrent layers: `s[t] = neuron(input current[t] + back(s[t-1], recurrent_weight))`.

    The state has neuron states `[K, N, H]` and last spikes `[D, N, H]`, newest first. D is 1, 2 if input spikes may get
    the spike-time gradient, or `max_delay + 2` with recurrent delays. With input delays or the spike-time gradient a
    third part holds the last steps of the input, packed to bits if they are binary and no gradient flows through them.
    """

    neurons_apart = False
    recurrent_weight: nn.Parameter
    recurrent_delays: Delays | None
    # A full matrix if absent.
    recurrent_operator: LinearOperator | None
    recurrent_gradient: str = "bptt"

    def add_recurrence(self, shape: Sequence[int], operator: LinearOperator | None = None) -> None:
        """Creates and draws a recurrent weight of this shape."""
        self.recurrent_operator, self.recurrent_delays = operator, None
        self.recurrent_weight = nn.Parameter(self.weight.new_empty(*shape))
        if isinstance(operator, SparselyConnected):
            operator.bind(self, "recurrent_weight")
        self._reset_recurrent()

    def reset_parameters(self) -> None:
        """Draws both weights, uniform with mean 0.

        The input weight is drawn as in other layers, the recurrent weight with `std = threshold / (sqrt(K)
        response_std)` for K recurrent connections per neuron: at a firing rate r the recurrent potential is about
        `sqrt(r)` thresholds.
        """
        super().reset_parameters()
        if hasattr(self, "recurrent_weight"):
            self._reset_recurrent()

    def _reset_recurrent(self) -> None:
        if self.recurrent_weight.is_meta:
            return
        count = max(fan_in(self.recurrent_operator, self.recurrent_weight), 1)
        bound = mean_threshold(self.neuron) * math.sqrt(3 / count) / self.response_std()
        draw_weight(self.recurrent_weight, bound)

    def check_delays(self, x: Tensor) -> None:
        """See `SpikingLayer.check_delays`."""
        super().check_delays(x)
        check_sequence("recurrent_delays", self.recurrent_delays, x.shape[0])

    def call_operator(self, before: int = 0) -> Recurrence:
        """See `SpikingLayer.call_operator`; with the recurrence."""
        return self._recurrence(self.delayed_operator(before))

    def _recurrence(self, source: LinearOperator | Delayed | None) -> Recurrence:
        weight, delays = self.rounded(self.recurrent_weight), self.recurrent_delays
        eprop = self.recurrent_gradient == "eprop"
        if delays is None:
            return Recurrence(source, weight, self.recurrent_operator, eprop=eprop)
        whole = not self.training or self.neuron.gradient == "event"
        steps, operator = delays(), self.recurrent_operator
        if isinstance(operator, SparselyConnected) and delays.per == "channel":
            steps = steps[operator.sources()]
        return Recurrence(source, weight, operator, steps, delays.max_delay, whole, eprop)

    @runs_time_first
    def sent_back(self, spikes: Tensor) -> Tensor:
        """Returns the recurrent currents `[T, N, ...]` of a spike sequence, one step later, without delays."""
        before = cat((torch.zeros_like(spikes[:1]), spikes[:-1]), spikes)
        operator = FullyConnected() if self.recurrent_operator is None else self.recurrent_operator
        weight = self.rounded(self.recurrent_weight).to(before.dtype)
        return SequenceMap(operator, by_events=False).currents(before, weight)

    @runs_time_first
    def fire(self, current: Tensor) -> Tensor:
        """Returns the spikes for an input current `[T, N, H]` or `[T, N, C, ...]`, with the recurrence."""
        back = self._recurrence(None)
        try:
            return plan_layer(current, back.weight, back, self.neuron).run(current, back.weight).value
        except OverflowError as error:
            raise named_overflow(self, error) from error


class RecurrentLayer(Recurrent):
    """Layer of a `SpikingRNN`: `s[t] = neuron(weight x[t] + recurrent_weight s[t-1])`.

    `weight` `[H, inputs]` acts on the input and `recurrent_weight` `[H, H]` on the layer's own last spikes; `prepare_`
    scales `weight` to set the firing rates, with the recurrence active. `recurrent_delays` `[H, H]` delay the
    recurrent spikes further. Weights and delays of sparse connections are `[connections]`.

    >>> import snnlib
    >>> [type(layer).__name__ for layer in snnlib.SpikingRNN(20, 8, num_layers=2).layers]
    ['RecurrentLayer', 'RecurrentLayer']
    """

    @shows(LayerOptions, SpikingLayer.__init__)
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        connections: Sparse | None = None,
        recurrent_connections: Sparse | None = None,
        recurrent_delays: Delays | None = None,
        recurrent_gradient: str = "bptt",
        **options: Unpack[LayerOptions],
    ) -> None:
        self.recurrent_gradient = check_choice("recurrent_gradient", recurrent_gradient, "bptt", "eprop")
        check_count("input_size", input_size)
        check_count("hidden_size", hidden_size)
        self.input_size, self.hidden_size = input_size, hidden_size
        if options.get("neuron") is None:
            options["neuron"] = default_neuron()
        device = options.get("device")
        operator, shape, values, late = connect(input_size, hidden_size, connections, device)
        check_without_delays(late)
        super().__init__(operator, shape, **options)
        set_values(self.weight, values)
        operator, shape, values, late = connect(hidden_size, hidden_size, recurrent_connections, device)
        self.add_recurrence(shape, operator if isinstance(operator, SparselyConnected) else None)
        set_values(self.recurrent_weight, values)
        if recurrent_delays is not None and not isinstance(recurrent_delays, Delays):
            raise TypeError(
                f"recurrent_delays: expected an instance of snnlib.Delays, got {recurrent_delays!r}"
            )
        if late is not None:
            recurrent_delays = _starting_at(recurrent_delays, late)
        self.recurrent_delays = recurrent_delays
        if recurrent_delays is not None:
            own = isinstance(recurrent_delays.initial, Tensor) and recurrent_delays.initial.dim()
            if own and late is None and recurrent_connections and not recurrent_connections.keeps_order:
                raise ValueError(
                    "initial: expected delays in the order of the weights, which are sorted by input, got a list of "
                    "connections in another order: give the delays to Sparse.from_coo(..., delays=)"
                )
            recurrent_delays.build(hidden_size, self.recurrent_weight)

    def extra_repr(self) -> str:
        """Sizes, and options that differ from the defaults."""
        eprop = ', recurrent_gradient="eprop"' if self.recurrent_gradient == "eprop" else ""
        return super().extra_repr() + eprop


def _starting_at(delays: Delays | None, initial: Tensor) -> Delays:
    """Returns recurrent delays that begin at the delays `[connections]` of a list of connections.

    Raises:
        ValueError: delays per channel, with other initial values, or with a `max_delay` that is too short.
    """
    longest = max(math.ceil(initial.max()), 1) if len(initial) else 1
    if delays is None:
        return Delays(longest, "connection", initial=initial)
    if delays.per != "connection" or delays.initial is not None:
        raise ValueError(
            'recurrent_delays: expected None or Delays(max_delay, per="connection") without initial beside '
            f"Sparse.from_coo(..., delays=), got {delays!r}"
        )
    if delays.max_delay < longest:
        raise ValueError(
            f"recurrent_delays: expected a max_delay >= {longest}, the longest delay of the list, got {delays!r}"
        )
    delays.initial = initial
    return delays


def warn_of_high_surrogate(neuron: Neuron) -> None:
    """Warns if a surrogate gradient can grow without bound under recurrence."""
    bump = getattr(neuron, "surrogate", None)
    if not isinstance(bump, Surrogate) or neuron.gradient != "surrogate":
        return
    threshold = neuron.constants().get("threshold")
    if threshold is None or threshold.is_meta:
        return
    peak = float(bump.coefficients(threshold.detach())[0].max())
    if peak >= _HIGHEST_PEAK:
        lower = "snnlib.surrogate.Triangle(width=0.5, height=0.4)"
        if is_graded(neuron):
            lower = f"snnlib.surrogate.EveryThreshold({lower})"
        warn_caller(
            f"neuron: its surrogate {bump} has a peak of {peak:g}; under recurrence a peak of 1 and more can let "
            f"gradients grow to NaN: take surrogate={lower}"
        )
