"""Recurrent kernels, whose threads work together, give the bits of the CPU's, in whatever order the threads run."""

import functools
import math
from collections.abc import Callable
from typing import Any

import emulation
import pytest
import torch
from compare import assert_same_bits
from torch import Tensor

import snnlib
from snnlib import neurons, surrogate
from snnlib.functional import spiking_recurrent

# Threads run in either order.
pytestmark = pytest.mark.parametrize("emulated", [False, True], ids=["forwards", "backwards"], indirect=True)
MODELS: dict[str, Callable[..., neurons.Neuron]] = {
    "LIF": neurons.LIF,
    "LIF, learned": functools.partial(neurons.LIF, learnable=("tau", "threshold")),
    "LIF, next": functools.partial(neurons.LIF, reset_time="next", detach_reset=False),
    "LIF, triangle": functools.partial(neurons.LIF, surrogate=surrogate.Triangle(0.5)),
    "LIF, no gradient through time": functools.partial(neurons.LIF, gradient_through_time=False),
    "CubaLIF": neurons.CubaLIF,
    "AdLIF, learned": functools.partial(neurons.AdLIF, learnable=("threshold",)),
    "Alpha": neurons.Alpha,
    "KLIF": neurons.KLIF,
    "Izhikevich": functools.partial(neurons.Izhikevich, a=0.5, b=0.25),
    "BRF, learned": functools.partial(neurons.BRF, 6.0, 0.5, dt=0.125, learnable=("omega", "threshold")),
}


def _run(
    neuron: neurons.Neuron,
    steps: int,
    batch: int,
    size: int,
    dtype: torch.dtype = torch.float32,
    lengths: Tensor | None = None,
    stateful: bool = True,
) -> list[Tensor]:
    """Spikes, states and all gradients of numbers that round."""
    generator = torch.Generator().manual_seed(size + steps)
    shape = (batch, steps, size) if neuron.batch_first else (steps, batch, size)
    current = (torch.randn(shape, generator=generator) * 1.5 + 0.6).to(dtype).requires_grad_()
    weight = torch.randn(size, size, generator=generator).div(math.sqrt(size)).to(dtype).requires_grad_()
    state = None
    if stateful:
        wide = torch.promote_types(dtype, torch.float32)
        own = torch.rand(len(neuron.state_names), batch, size, generator=generator).to(wide) * 0.5
        spikes = (torch.rand(1, batch, size, generator=generator) < 0.3).to(wide)
        state = (own.requires_grad_(), spikes.requires_grad_())
    value, final = spiking_recurrent(current, weight, neuron, state=state, lengths=lengths)
    loss = sum(
        (part * torch.linspace(-1, 1, part.numel(), dtype=part.dtype).reshape(part.shape)).sum()
        for part in (value, *final)
    )
    leaves = [current, weight, *(state or ()), *neuron.parameters()]
    return [value, *final, *torch.autograd.grad(loss, leaves)]


def _both(emulated: Callable[..., Any], run: Callable[[], list[Tensor]]) -> list[Tensor]:
    expected = run()
    assert_same_bits(emulated(run), expected)
    return expected


# Parts of a warp, whole warps, and two neurons for some threads of a block.
@pytest.mark.parametrize("size", [1, 5, 32, 33, 150, 520])
def test_sizes(size: int, emulated: Callable[..., Any]) -> None:
    value, *_ = _both(emulated, lambda: _run(neurons.LIF(), 6, 2, size))
    assert size < 5 or 0.05 < value.mean() < 0.8


# Every model in both layouts and both types, and one of them in all pairs of these.
@pytest.mark.parametrize(
    ("name", "batch_first", "dtype"),
    [
        (name, batch_first, dtype)
        for name in MODELS
        for batch_first in (False, True)
        for dtype in (torch.float32, torch.float64)
        if name == "LIF, learned" or batch_first == (dtype == torch.float64)
    ],
)
def test_models(name: str, batch_first: bool, dtype: torch.dtype, emulated: Callable[..., Any]) -> None:
    """Samples of several lengths; more neurons than a block of the larger kernels has threads, for one model."""
    lengths = torch.tensor([5, 0, 1, 4])
    size = 260 if name.startswith("AdLIF") and dtype == torch.float32 else 37
    for given in (None, lengths):
        neuron = MODELS[name](batch_first=batch_first)
        _both(emulated, lambda n=neuron, g=given: _run(n, 5, 4, size, dtype, g, g is None))


def test_more_rows_than_a_block_looks_at_together(emulated: Callable[..., Any]) -> None:
    """The gradient of the weights: 600 steps and samples, of which a block of threads takes 512."""
    _both(emulated, lambda: _run(neurons.LIF(batch_first=True), 200, 3, 20))


def test_numbers_that_are_none_stay_with_their_sample(emulated: Callable[..., Any]) -> None:
    def run() -> list[Tensor]:
        current = torch.rand(6, 3, 40, generator=torch.Generator().manual_seed(1))
        current[2, 1, 7], current[3, 2, 9] = torch.nan, torch.inf
        current.requires_grad_()
        weight = torch.linspace(-0.3, 0.3, 1600).reshape(40, 40)
        value, _ = spiking_recurrent(current, weight, neurons.LIF())
        return [value, *torch.autograd.grad(value[:, 0].sum(), current)]

    value, grad = _both(emulated, run)
    assert value[:, 0].isfinite().all()
    assert value[3:, 1].isnan().all()
    assert grad[:, 0].any()


def test_an_infinite_credit_reaches_no_neuron_without_slope(emulated: Callable[..., Any]) -> None:
    """It is left out where the surrogate is zero; times zero it would be NaN."""

    def run() -> list[Tensor]:
        generator = torch.Generator().manual_seed(5)
        current = (torch.randn(30, 6, 8, generator=generator) + 0.4).requires_grad_()
        weight = torch.zeros(8, 8)
        weight[0, 1] = 3e38
        neuron = neurons.LIF(surrogate=surrogate.Triangle(0.5))
        value, _ = spiking_recurrent(current, weight, neuron)
        return list(torch.autograd.grad(1e3 * value.sum(), current))

    (grad,) = _both(emulated, run)
    assert grad.isinf().any()


def test_layers_too_large_for_a_block_take_the_definition(emulated: Callable[..., Any]) -> None:
    most = emulation.module().most_recurrent_neurons
    current = torch.zeros(1, 1, most + 1)
    reason = emulated(lambda: snnlib.ops.recurrent_args.unsupported(current, current.shape[2]))
    assert reason == f"recurrent kernels of cpu take up to {most} neurons, got {most + 1}"
    assert not emulated(lambda: snnlib.ops.recurrent_args.unsupported(current, current.shape[2] - 1))
    assert emulated(lambda: snnlib.ops.recurrent_args.unsupported(current.double(), current.shape[2] - 1))


def test_eprop(emulated: Callable[..., Any]) -> None:
    """No neuron is listed whose spikes get a gradient by the weights."""
    generator = torch.Generator().manual_seed(3)
    current = (3 * torch.randn(6, 3, 37, generator=generator)).requires_grad_()
    layer = snnlib.SpikingRNN(37, 37, recurrent_gradient="eprop").layers[0]
    torch.nn.init.eye_(layer.weight)

    def run() -> list[Tensor]:
        value, state = layer.run(current)
        loss = (value * current.detach()).sum() + state[1].square().sum()
        return [value, *torch.autograd.grad(loss, [current, layer.recurrent_weight])]

    value, *gradients = _both(emulated, run)
    assert value.any() and all(part.any() for part in gradients)
    layer.recurrent_gradient = "bptt"
    assert not torch.equal(run()[1], gradients[0])


def test_a_layer_launches_once_forward(emulated: Callable[..., Any]) -> None:
    """A block per sample, a thread per neuron in whole warps."""
    layer = snnlib.SpikingRNN(6, 40)
    with torch.no_grad():
        emulated(lambda: layer(torch.zeros(9, 5, 6)))
    launch = emulation.module().last_launch()
    assert (launch["blocks"], launch["threads"]) == (5, 64)
