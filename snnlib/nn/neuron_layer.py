"""The base of layers with neurons behind a weight, whatever the neuron: what tools for nets rely on."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from snnlib.functional.operators import LinearOperator
from snnlib.functional.spiking import layer_currents
from snnlib.neurons.base import Neuron
from snnlib.neurons.training_watch import TrainingWatch, cannot_watch
from snnlib.nn.gain import WeightWithGain
from snnlib.nn.stored_weight import learned_weight, standardization_of
from snnlib.sequences.spike_count import channel_rates

# Share of inputs that fire in a time step of typical event data; N-MNIST at 10 ms has 4 %.
EXPECTED_INPUT_RATE = 0.05


# A multiple of the threshold over the response to white noise, beyond which no weight need go.
_SURE = 4.0
# Steps after which the response of a neuron that forgets has died down.
_RESPONSE_STEPS = 256
# Constants and options of neurons, none of which is an attribute of a layer.
_OF_NEURONS = frozenset(
    ("tau", "tau_m", "tau_s", "tau_grad", "grad_clamp", "beta", "alpha", "v_threshold", "reset", "surrogate")
)


class NeuronLayer(WeightWithGain):
    """A linear operator with neurons behind it: `spikes = fire(operator(x, effective_weight))`."""

    operator: LinearOperator
    neuron: Neuron
    batch_first: bool
    training_watch: TrainingWatch
    # Whether neurons act on each other only through the layer's output.
    neurons_apart: ClassVar[bool] = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse constants of the neurons, which would be a new attribute without any effect."""
        if name in _OF_NEURONS and not hasattr(self, name):
            raise AttributeError(
                f"{name}: expected an attribute of {type(self).__name__}, got a constant of its neurons, which get "
                "theirs when the layer is made"
            )
        super().__setattr__(name, value)

    def observe(self, x: Tensor, weight: Tensor, spikes: Tensor) -> None:
        """Watch a forward pass; with homeostasis also move the weight's bias, once its backward pass is through."""
        self.training_watch.watch(self, x, weight, spikes)
        if "parametrizations" not in self._modules or not (self.training and weight.requires_grad):
            return
        step = standardization_of(self)
        if step is None or self.training_watch.stopped or cannot_watch(x) or not spikes.numel():
            return
        if step.gain is not None and step.gain.requires_grad:
            self.training_watch.watch_standardization(self, learned_weight(self), step.gain)
        bias = step.bias if step.rate is not None else None
        if bias is None or not bias.requires_grad:
            return
        with torch.no_grad():
            change = step.homeostatic_step(channel_rates(spikes.detach()))
        handles: list[Any] = []

        def on_gradient(_gradient: Tensor) -> None:
            handles.pop().remove()
            # Not before: a checkpoint computes the weight a second time for the backward pass.
            bias.data.add_(change)

        handles.append(weight.register_hook(on_gradient))  # type: ignore[no-untyped-call]

    def reset_parameters(self) -> None:
        """Draw the weight so that a spike tensor at 5 % input rate gives a potential of about the threshold.

        Uniform with mean 0 and `std = threshold / (sqrt(fan_in * rate) * response_std)`. Real data differ:
        `snnlib.prepare_` sets every layer's rate.
        """
        if self.weight.is_meta:
            return
        fan_in = math.prod(self.weight.shape[1:])
        gain = math.sqrt(max(fan_in, 1) * EXPECTED_INPUT_RATE) * self.response_std()
        bound = math.sqrt(3) * self.mean_threshold() / gain
        draw_weight(self.weight, bound)
        nn.init.ones_(self.gain)

    def input_current(self, x: Tensor, weight: Tensor) -> Tensor:
        """Input current `[T, N, C, ...]` for a spike tensor, with a weight that is given."""
        return layer_currents(x, weight, self.operator, int(self.batch_first))

    def unit_weight_current(self, x: Tensor) -> Tensor:
        """`input_current` of weights that are all 1, the same in every channel of a group."""
        weight = self.effective_weight.detach()
        groups = getattr(self.operator, "groups", 1)
        one = self.input_current(x, torch.ones_like(weight[:groups]))
        return (
            one.repeat_interleave(len(weight) // groups, 2)
            if groups > 1
            else one.expand(*one.shape[:2], len(weight), *one.shape[3:])
        )

    @property
    def learns_when_silent(self) -> bool:
        """Returns whether neurons get a gradient where they do not fire, as with a surrogate gradient."""
        return self.neuron.learns_when_silent

    def fire(self, current: Tensor) -> Tensor:
        """Spikes of the neurons alone for an input current `[T, N, C, ...]`."""
        return self.neuron(current)  # type: ignore[no-any-return]

    def free_potential(self, current: Tensor) -> Tensor:
        """Membrane potential at every step, in units of the mean threshold, of neurons that never fire."""
        return self.neuron.free_potential(current)

    def firing_weight(self) -> float:
        """A weight with which a single event makes a neuron fire, about: the threshold over the first response."""
        return self.mean_threshold() / self.response_std() * _SURE

    def mean_threshold(self) -> float:
        """Mean firing threshold of the channels."""
        return self.neuron.mean_threshold()

    def response_std(self) -> float:
        """Standard deviation of the free membrane potential for white input current of variance 1; 1 where unknown.

        The root of the summed squares of the membrane's response to one unit of current.
        """
        with torch.no_grad():
            dynamics = self.neuron._own_dynamics()
            if dynamics is None or dynamics.quadratic:
                return 1.0
            rows = [[float(torch.as_tensor(value).mean()) for value in row] for row in dynamics.a]
            state = [float(torch.as_tensor(value).mean()) for value in dynamics.b]
        total = 0.0
        for _ in range(_RESPONSE_STEPS):
            total += state[0] ** 2
            state = [sum(a * y for a, y in zip(row, state, strict=True)) for row in rows]
        return math.sqrt(total) or 1.0


def draw_weight(weight: Tensor, bound: float) -> None:
    """Draw uniformly from -`bound` to `bound`, in place.

    Raises:
        ValueError: a bound that the weight's dtype does not hold.
    """
    # A uniform distribution's range has to fit as well.
    most = torch.finfo(weight.dtype).max / 2
    if not bound <= most:
        raise ValueError(
            f"neuron: expected one that weights of {weight.dtype} up to {most:.2g} make fire, got a threshold and time "
            f"constants that need weights up to {bound:.2g}"
        )
    nn.init.uniform_(weight, -bound, bound)
