"""Base of recurrent layers, and the fully connected recurrent layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from snnlib.checks import (
    check_count,
    check_floating,
    check_lengths,
    check_rank,
    check_traced,
    check_untransformed,
    shows,
    warn_caller,
)
from snnlib.functional.currents import layer_currents
from snnlib.functional.operators import FullyConnected, LinearOperator
from snnlib.functional.plan import pooled
from snnlib.functional.recurrent import spiking_recurrent
from snnlib.functional.sparse import SparselyConnected, fan_in
from snnlib.neurons import CubaLIF, Neuron, Output
from snnlib.neurons.constants import mean_threshold
from snnlib.neurons.surrogate import Surrogate, Triangle
from snnlib.nn.layers.delays import Delays, check_sequence
from snnlib.nn.layers.spiking_layer import (
    LayerOptions,
    SpikingLayer,
    check_sparse_delays,
    draw_weight,
    naming_overflow,
)
from snnlib.nn.weights.sparse import Sparse, connect, set_values
from snnlib.sequences.input_time import spike_time_gradient
from snnlib.sequences.lengths import run_with_lengths, without_padding

__all__ = ["RecurrentLayer"]

# Of a surrogate under recurrence: from this peak on, gradients grew to NaN (docs/time.md).
_HIGHEST_PEAK = 1.0


def default_neuron() -> Neuron:
    """Returns `CubaLIF` with a surrogate gradient that stays bounded under recurrence (docs/time.md)."""
    return CubaLIF(surrogate=Triangle(width=0.5, height=0.4))


class Recurrent(SpikingLayer):
    """Base of recurrent layers: `s[t] = neuron(input current[t] + back(s[t-1], recurrent_weight))`."""

    neurons_apart = False
    recurrent_weight: nn.Parameter
    recurrent_delays: Delays | None
    # None is a full matrix.
    recurrent_operator: LinearOperator | None

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

    def forward(self, x: Tensor, *, pool: tuple[int, int] = (1, 1)) -> Tensor:
        """Returns the spikes of a sequence from the initial state, averaged over windows `pool` without overlap."""
        check_untransformed(type(self).__name__, batches=True)
        check_traced(type(self).__name__, self.weight)
        weight = self.effective_weight
        check_floating("x", x)
        check_rank("x", x, "[T, N, ...]", at_least=3)
        steps = x.shape[int(self.batch_first)]
        check_sequence("delays", self.delays, steps)
        check_sequence("recurrent_delays", self.recurrent_delays, steps)
        out = self._spikes(x, weight, None, None).value
        self.observe(x, weight, out)
        return pooled(out, pool, self.neuron)

    def run(
        self,
        x: Tensor,
        state: tuple[Tensor, ...] | None = None,
        lengths: Tensor | None = None,
        *,
        pool: tuple[int, int] = (1, 1),
    ) -> Output:
        """Returns spikes and the last state: neuron states `[K, N, H]`, last spikes `[D, N, H]`, newest first.

        D is 1, 2 if input spikes may get the spike-time gradient, or `max_delay + 2` with recurrent delays. With input
        delays or the spike-time gradient a third part holds the last steps of the input, packed to bits if they are
        binary and no gradient flows through them.
        """
        if lengths is not None and self.keeps_input:
            run = partial(self.run, pool=pool)
            return Output(*run_with_lengths(run, x, state, lengths, int(self.batch_first)))
        value, after = self._spikes(x, self.effective_weight, state, lengths)
        return Output(pooled(value, pool, self.neuron), after)

    @property
    def keeps_input(self) -> bool:
        """Returns whether the state also holds the last steps of the input."""
        return self.delays is not None or self.neuron.exact_times

    def _spikes(
        self, x: Tensor, weight: Tensor, state: tuple[Tensor, ...] | None, lengths: Tensor | None
    ) -> Output:
        time_dim, by_time = int(self.batch_first), self.neuron.input_gradient != "dense"
        if lengths is not None:
            # Padding may hold anything, and a product with the signal of 0 would keep what is no number.
            check_floating("x", x)
            check_rank("x", x, "[T, N, ...]", at_least=3)
            lengths = check_lengths(lengths, x, time_dim)
            x = without_padding(x, lengths, time_dim)
        after: tuple[Tensor, ...] = ()
        if self.delays is None:
            timed = x
            if self.neuron.exact_times:
                timed, state, last = spike_time_gradient(x, state, 2, by_time, time_dim)
                after = (last,)
            current = layer_currents(timed, weight, self.operator, time_dim)
        else:
            state, timed, before = self._with_history(x, state)
            after = self._history(timed)
            if self.neuron.exact_times:
                timed = spike_time_gradient(timed, None, 0, by_time, time_dim).x
            current = layer_currents(timed, weight, self.delayed_operator(before), time_dim)
        out = self._recur(current, state, lengths)
        return Output(out.value.to(x.dtype), (*out.state, *after))

    def _recur(
        self, current: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        weight = self.rounded(self.recurrent_weight).to(current.dtype)
        delays = self.recurrent_delays
        given: dict[str, Any] = {"operator": self.recurrent_operator}
        if delays is not None:
            whole = not self.training or self.neuron.gradient == "event"
            given = {"delay": delays(), "max_delay": delays.max_delay, "rounded": whole}
        with naming_overflow(self):
            return spiking_recurrent(current, weight, self.neuron, state=state, lengths=lengths, **given)

    def sent_back(self, spikes: Tensor) -> Tensor:
        """Returns the recurrent currents `[T, N, ...]` of a spike sequence, one step later, without delays."""
        time_dim = int(self.batch_first)
        before = torch.cat(
            (
                torch.zeros_like(spikes.narrow(time_dim, 0, 1)),
                spikes.narrow(time_dim, 0, spikes.shape[time_dim] - 1),
            ),
            time_dim,
        )
        operator = FullyConnected() if self.recurrent_operator is None else self.recurrent_operator
        frames = before.flatten(0, 1)
        return operator.forward(frames, self.rounded(self.recurrent_weight).to(frames.dtype)).reshape(
            spikes.shape
        )

    def fire(self, current: Tensor) -> Tensor:
        """Returns the spikes for an input current `[T, N, H]` or `[T, N, C, ...]`, with the recurrence."""
        return self._recur(current).value


class RecurrentLayer(Recurrent):
    """Layer of a `SpikingRNN`: `s[t] = neuron(weight x[t] + recurrent_weight s[t-1])`.

    `weight` `[H, inputs]` acts on the input and `recurrent_weight` `[H, H]` on the layer's own last spikes; `prepare_`
    scales `weight` to set the firing rates, with the recurrence active. `recurrent_delays` `[H, H]` delay the
    recurrent spikes further. Weights of sparse connections are `[connections]`.

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
        **options: Unpack[LayerOptions],
    ) -> None:
        check_count("input_size", input_size)
        check_count("hidden_size", hidden_size)
        self.input_size, self.hidden_size = input_size, hidden_size
        if options.get("neuron") is None:
            options["neuron"] = default_neuron()
        device = options.get("device")
        operator, shape, values = connect(input_size, hidden_size, connections, device)
        super().__init__(operator, shape, **options)
        set_values(self.weight, values)
        operator, shape, values = connect(hidden_size, hidden_size, recurrent_connections, device)
        sparse = isinstance(operator, SparselyConnected)
        self.add_recurrence(shape, operator if sparse else None)
        set_values(self.recurrent_weight, values)
        if recurrent_delays is not None and not isinstance(recurrent_delays, Delays):
            raise TypeError(
                f"recurrent_delays: expected an instance of snnlib.Delays, got {recurrent_delays!r}"
            )
        if sparse:
            check_sparse_delays("recurrent_delays", recurrent_delays, per_channel=False)
        self.recurrent_delays = recurrent_delays
        if recurrent_delays is not None:
            recurrent_delays.build(hidden_size, self.recurrent_weight)

    def input_channels(self) -> int:
        """Inputs."""
        return self.input_size

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.input_size}, {self.hidden_size}{super().extra_repr()}"


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
        warn_caller(
            f"neuron: its surrogate {bump} has a peak of {peak:g}; under recurrence a peak of 1 and more can let "
            "gradients grow to NaN: take surrogate=snnlib.surrogate.Triangle(width=0.5, height=0.4)"
        )
