"""States in fixed point that leave their bits raise OverflowError, whatever way a sequence takes."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.neurons import LoihiCubaLIF, LoihiIntegrator, LoihiLIF, Neuron

_LOW: Any = {"surrogate": snnlib.surrogate.Triangle(width=0.5, height=0.4)}
# Synaptic currents overflow in all of them, in one without a synapse the membrane.
NEURONS: dict[str, Callable[[], Neuron]] = {
    "LIF": lambda: LoihiLIF(20.0, threshold=2000.0, **_LOW),
    "refractory LIF": lambda: LoihiLIF(20.0, threshold=2000.0, refractory=2, **_LOW),
    "CubaLIF": lambda: LoihiCubaLIF(50.0, 20.0, threshold=2000.0, **_LOW),
    "refractory CubaLIF": lambda: LoihiCubaLIF(50.0, 20.0, threshold=2000.0, refractory=2, **_LOW),
    "CubaLIF of one spike": lambda: LoihiCubaLIF(50.0, 20.0, threshold=1.0, refractory=math.inf, **_LOW),
    "Integrator": lambda: LoihiIntegrator(20.0),
    "Integrator with a synapse": lambda: LoihiIntegrator(20.0, tau_s=50.0),
}
CURRENT, FEATURES, FRAMES = torch.full((6, 2, 4), 1500.0), torch.ones(6, 2, 5), torch.ones(6, 2, 2, 4, 4)


def heavy(net: nn.Module) -> Any:
    """The net with weights whose sums exceed a state in a few steps."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(500.0)
    return net


def rnn(neuron: Neuron, **options: Any) -> Any:
    return heavy(snnlib.SpikingRNN(5, 4, neuron=neuron, **options))


def linear(neuron: Neuron, **options: Any) -> Any:
    return heavy(snnlib.SpikingLinear(5, 4, neuron=neuron, **options))


def conv(neuron: Neuron) -> Any:
    return heavy(snnlib.SpikingConv2d(2, 3, 3, neuron=neuron))


def streamed(net: nn.Module, x: Tensor) -> None:
    stream = snnlib.Stream(net)
    for chunk in x.split(2):
        stream(chunk)


ALONE: dict[str, Callable[[Neuron], Any]] = {
    "call": lambda neuron: neuron(CURRENT),
    "float64": lambda neuron: neuron(CURRENT.double()),
    "step": lambda neuron: neuron.reference(CURRENT),
    "potential": lambda neuron: neuron.potential(CURRENT),
    "chunks": lambda neuron: [neuron.run(chunk) for chunk in CURRENT.split(3)],
    "lengths": lambda neuron: neuron.run(CURRENT, lengths=torch.tensor([6, 3])),
    "readout": lambda neuron: nn.Sequential(snnlib.PerStep(heavy(nn.Linear(5, 4))), neuron)(FEATURES),
}
LAYERS: dict[str, Callable[[Neuron], Any]] = {
    "linear": lambda neuron: linear(neuron)(FEATURES),
    "linear, run": lambda neuron: linear(neuron).run(FEATURES),
    "linear, stream": lambda neuron: streamed(linear(neuron), FEATURES),
    "linear, delays": lambda neuron: linear(neuron, delays=snnlib.Delays(2))(FEATURES),
    "linear, checkpoint": lambda neuron: snnlib.checkpoint_time(linear(neuron), FEATURES, steps=2),
    "convolution": lambda neuron: conv(neuron)(FRAMES),
    "convolution, pooled": lambda neuron: snnlib.fuse_(nn.Sequential(conv(neuron), snnlib.AvgPool2d(2)))(
        FRAMES
    ),
    "recurrence": lambda neuron: rnn(neuron)(FEATURES),
    "recurrence, run": lambda neuron: rnn(neuron).run(FEATURES, lengths=torch.tensor([6, 4])),
    "recurrence, stream": lambda neuron: streamed(rnn(neuron), FEATURES),
    "recurrence, delays": lambda neuron: rnn(neuron, delays=snnlib.Delays(3))(FEATURES),
    "recurrence, recurrent delays": lambda neuron: rnn(neuron, recurrent_delays=snnlib.Delays(3))(FEATURES),
    "recurrence, sparse": lambda neuron: rnn(neuron, recurrent_connections=snnlib.Sparse(density=0.9))(
        FEATURES
    ),
    "recurrence, both ways": lambda neuron: snnlib.Bidirectional(rnn(neuron))(FEATURES),
    "convolutional recurrence": lambda neuron: heavy(snnlib.SpikingConvRNN2d(2, 3, 3, neuron=neuron))(FRAMES),
    "convolutional recurrence, stream": lambda neuron: streamed(
        heavy(snnlib.SpikingConvRNN2d(2, 3, 3, neuron=neuron)), FRAMES
    ),
}


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("way", [*ALONE, *LAYERS])
def test_overflow_is_told(way: str, path: Any) -> None:
    """The error has the layer's name where there is a layer."""
    named = r"(Spiking|Recurrent|Conv)\w*\(.*\): " if way in LAYERS else ""
    run = (ALONE | LAYERS)[way]
    for make in NEURONS.values():
        with snnlib.use_path(path), pytest.raises(OverflowError, match=f"^{named}state: expected 23 bits"):
            run(make())


@pytest.mark.parametrize("name", NEURONS)
def test_states_within_their_bits_run(name: str) -> None:
    with torch.no_grad():
        net = snnlib.SpikingRNN(5, 4, neuron=NEURONS[name]())
        for parameter in net.parameters():
            parameter.fill_(1 / 64)
        _, states = net.run(FEATURES)
    assert all(part.isfinite().all() for part in torch.utils._pytree.tree_leaves(states))
