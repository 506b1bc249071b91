"""The neurons that the settings of a run name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from snnlib import neurons, surrogate
from snnlib.app.setting import wrong
from snnlib.neurons.surrogate import Surrogate

if TYPE_CHECKING:
    from snnlib.app.training.settings import NetSettings

# Peak of the surrogate of recurrent layers: from 1 on gradients can grow to NaN (docs/time.md).
_RECURRENT_PEAK = 0.4

# Sequential MNIST in Higuchi et al., "Balanced Resonate-and-Fire Neurons", ICML 2024.
_BRF_OMEGA, _BRF_OFFSET = (15.0, 50.0), (0.1, 1.0)

# Clamp for neurons with many spikes, in time steps per threshold.
_STEPS_CLAMP = 4.0
# Clamp for neurons that fire once, whose potentials rise slowly to the threshold, in synaptic time constants.
_ONE_SPIKE_CLAMP = 20.0

SURROGATES: Mapping[str, Callable[[float], Surrogate]] = {
    "triangle": surrogate.Triangle,
    "rectangle": surrogate.Rectangle,
    "atan": lambda _width: surrogate.ATan(),
    "sigmoid": lambda _width: surrogate.Sigmoid(),
    "fast-sigmoid": lambda _width: surrogate.FastSigmoid(),
    "straight-through": lambda _width: surrogate.StraightThrough(),
}


def _graded(of: NetSettings) -> dict[str, Any]:
    """Returns the options of neurons with several levels; those of a chip have neither."""
    return {} if of.dialect else {"threshold": of.threshold, "levels": of.levels}


# Makes a neuron from the settings and a surrogate.
NEURONS: Mapping[str, Callable[[NetSettings, Surrogate], neurons.Neuron] | None] = {
    # Layers of their own have them.
    "srm": None,
    # Many spikes learn by gradients of amplitudes, with the reset and the bound of SRM neurons; single ones by those of
    # times.
    "cuba-event": lambda of, _shape: neurons.CubaLIF(
        of.tau_m,
        of.tau_s,
        gradient="event",
        reset_states="all",
        input_gradient="dense",
        grad_clamp=_STEPS_CLAMP / of.tau_s,
    ),
    "cuba-once": lambda of, _shape: neurons.CubaLIF.from_continuous(
        of.tau_m, of.tau_s, 1.0, gradient="event", refractory=torch.inf, grad_clamp=_ONE_SPIKE_CLAMP
    ),
    "if": lambda of, shape: neurons.IF(**_graded(of), surrogate=shape),
    "lif": lambda of, shape: (neurons.LoihiLIF if of.dialect else neurons.LIF)(
        of.tau, **_graded(of), surrogate=shape
    ),
    "plif": lambda of, shape: neurons.PLIF(of.tau, **_graded(of), surrogate=shape),
    "cubalif": lambda of, shape: (neurons.LoihiCubaLIF if of.dialect else neurons.CubaLIF)(
        of.tau, neurons.CubaLIF().tau_s, **_graded(of), surrogate=shape
    ),
    "alif": lambda of, shape: neurons.ALIF(of.tau, surrogate=shape),
    "adlif": lambda of, shape: neurons.AdLIF(of.tau, surrogate=shape),
    "brf": lambda _of, _shape: neurons.BRF(),
    "lru": lambda _of, _shape: neurons.LRU(),
    "spiking-lru": lambda _of, shape: neurons.LRU(threshold=1.0, surrogate=shape),
}
# Neurons that learn from the times of their spikes, with the time constants `tau_m` and `tau_s`.
SPIKE_TIME_NEURONS = frozenset({"srm", "cuba-event", "cuba-once"})
# Neurons of state-space blocks, and of no other layer.
STATE_SPACE_NEURONS = frozenset({"lru", "spiking-lru"})
# Neurons that give graded spikes.
GRADED_NEURONS = frozenset({"if", "lif", "plif", "cubalif"})
# Neurons that a setting can have compute as a chip does.
FIXED_POINT_NEURONS = frozenset({"lif", "cubalif"})


def build_neuron(config: NetSettings) -> neurons.Neuron | None:
    """A neuron of which every layer gets a copy; None for SRM neurons."""
    model = NEURONS[config.neuron]
    return model(config, SURROGATES[config.surrogate](config.surrogate_width)) if model else None


def build_recurrent_neuron(config: NetSettings, size: int) -> neurons.Neuron:
    """Neurons of a recurrent layer or a state-space block, each with constants of its own that learn within bounds.

    Time constants are drawn log-uniformly: of membranes from `tau` to `10 tau`, of the synapses of `cubalif` from
    `0.4 tau` to `4 tau`, of the adaptation of `adlif` from `10 tau` to `60 tau`, with couplings a in 0..1 and b in
    0..2. The surrogate has a peak of 0.4. With `tau` 5 these are the neurons of `examples/ecg.py`. Those of `brf` have
    the constants and the surrogate of their paper, those of `lru` and `spiking-lru` lie in a ring (`LRU.ring`), whose
    constants need no bounds.

    Raises:
        ConfigError: a neuron or a surrogate that recurrent layers do not take.
    """
    if config.neuron == "lru":
        return neurons.LRU.ring(size)
    if config.neuron == "spiking-lru":
        return neurons.LRU.ring(
            size, threshold=1.0, surrogate=SURROGATES[config.surrogate](config.surrogate_width)
        )
    if config.neuron == "brf":
        omega, offset = torch.empty(size).uniform_(*_BRF_OMEGA), torch.empty(size).uniform_(*_BRF_OFFSET)
        return neurons.BRF(omega, offset)
    if config.surrogate not in ("triangle", "rectangle"):
        raise wrong(config, "surrogate", "triangle or rectangle for recurrent layers")
    shape = surrogate.Triangle if config.surrogate == "triangle" else surrogate.Rectangle
    bump, tau = shape(config.surrogate_width, _RECURRENT_PEAK), config.tau

    def spread(low: float, high: float) -> torch.Tensor:
        return neurons.log_uniform(max(low * tau, 1.0), max(high * tau, 1.0), size)

    def bounds(low: float, high: float) -> tuple[float, float]:
        return max(low * tau, 1.0), high * tau

    if config.neuron == "lif":
        lif = neurons.LIF(spread(1, 10), reset="subtract", surrogate=bump, learnable=("tau",))
        return neurons.bound_(lif, tau=bounds(0.3, 60))
    if config.neuron == "cubalif":
        cuba = neurons.CubaLIF(
            spread(1, 10), spread(0.4, 4), reset="subtract", surrogate=bump, learnable=("tau_m", "tau_s")
        )
        return neurons.bound_(cuba, tau_m=bounds(0.3, 60), tau_s=bounds(0.2, 20))
    if config.neuron == "adlif":
        adlif = neurons.AdLIF(
            tau_m=spread(1, 10),
            tau_a=spread(10, 60),
            a=torch.rand(size),
            b=2 * torch.rand(size),
            rho=60.0,
            surrogate=bump,
            learnable=("tau_m", "tau_a", "a", "b"),
        )
        return neurons.bound_(
            adlif, tau_m=bounds(0.3, 60), tau_a=bounds(2, 200), a=(0.01, 1.0), b=(0.01, 2.0)
        )
    raise wrong(config, "neuron", "lif, cubalif, adlif or brf for recurrent layers")
