"""E-prop: gradients are learning signals times eligibility traces, on every path and with every option."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from compare import assert_close, assert_same_bits
from runs import results_in_chunks
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.backends.native import use_path
from snnlib.neurons.base import advance
from snnlib.neurons.constants import broadcast

WIDTH, HEIGHT, THRESHOLD = 0.8, 0.4, 0.5
BUMP = surrogate.Triangle(width=WIDTH, height=HEIGHT)
FIRING: dict[str, Any] = {"threshold": THRESHOLD, "surrogate": BUMP, "discretisation": "exponential"}
Traces = tuple[np.ndarray, ...]


class Lif:
    """Potentials `[N, H]` and eligibility vectors `[N, H, synapses]`, forward in time, by the paper's equations."""

    neuron: Callable[..., neurons.Neuron] = staticmethod(lambda: neurons.LIF(4.0, **FIRING))

    def __init__(self, shape: tuple[int, ...], synapses: int) -> None:
        self.decay, self.slow = np.exp(-1 / 4.0), np.exp(-1 / 9.0)
        self.v, self.other = np.zeros(shape), np.zeros(shape)
        self.e_v, self.e_other = np.zeros((*shape, synapses)), np.zeros((*shape, synapses))

    def fire(self, height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Spikes and slopes of potentials above the threshold."""
        slope = HEIGHT * np.maximum(0, 1 - np.abs(height) / (WIDTH * THRESHOLD))
        return (height >= 0).astype(float), slope[..., None]

    def step(self, current: np.ndarray, arriving: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Spikes and eligibility traces of a step, from currents and what arrives at each synapse."""
        h = self.decay * self.v + (1 - self.decay) * current
        e_h = self.decay * self.e_v + (1 - self.decay) * arriving
        spikes, slope = self.fire(h - THRESHOLD)
        self.v, self.e_v = h * (1 - spikes), e_h * (1 - spikes[..., None])
        return spikes, slope * e_h


class CubaLif(Lif):
    """A synaptic current and a membrane, from which a spike subtracts the threshold."""

    neuron = staticmethod(
        lambda: neurons.CubaLIF(4.0, 9.0, **FIRING, reset="subtract", decay_input=True, decay_current=False)
    )

    def step(self, current: np.ndarray, arriving: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.other = self.slow * self.other + current
        self.e_other = self.slow * self.e_other + arriving
        h = self.decay * self.v + (1 - self.decay) * self.other
        e_h = self.decay * self.e_v + (1 - self.decay) * self.e_other
        spikes, slope = self.fire(h - THRESHOLD)
        self.v, self.e_v = h - spikes * THRESHOLD, e_h
        return spikes, slope * e_h


class Alif(Lif):
    """An adaptive threshold, whose slow eligibility a neuron's own spikes pass on, as its reset does."""

    neuron = staticmethod(lambda: neurons.ALIF(4.0, 9.0, 0.3, **FIRING, low_pass=False, detach_reset=False))

    def step(self, current: np.ndarray, arriving: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        h = self.decay * self.v + (1 - self.decay) * current
        e_h = self.decay * self.e_v + (1 - self.decay) * arriving
        a, e_a = self.slow * self.other, self.slow * self.e_other
        spikes, slope = self.fire(h - THRESHOLD - a)
        eligible = slope * (e_h - e_a)
        self.v = h - spikes * (THRESHOLD + a)
        self.e_v = e_h - eligible * (THRESHOLD + a)[..., None] - spikes[..., None] * e_a
        self.other, self.e_other = a + 0.3 * spikes, e_a + 0.3 * eligible
        return spikes, eligible


def _forward_in_time(
    model: Lif, x: np.ndarray, weight: np.ndarray, back: np.ndarray, readout: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Spikes, and gradients `[H, synapses]` of `sum (y - target)^2 / 2`, y = readout s: no step looks at another."""
    both, spikes, gradient = np.concatenate((weight, back), 1), np.zeros(model.v.shape), 0.0
    values = []
    for now, wanted in zip(x, target, strict=True):
        arriving = np.concatenate((now, spikes), 1)
        spikes, eligible = model.step(arriving @ both.T, arriving[:, None])
        signal = (spikes @ readout.T - wanted) @ readout
        gradient = gradient + (signal[..., None] * eligible).sum(0)
        values.append(spikes)
    return np.stack(values), gradient  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", [Lif, CubaLif, Alif])
def test_gradients_are_learning_signals_times_eligibility(model: type[Lif], seed: int, path: str) -> None:
    generator = np.random.default_rng(seed)
    steps, batch, inputs, hidden, outputs = 40, 2, *generator.integers(3, 9, 3)
    layer = snnlib.SpikingRNN(
        inputs, hidden, neuron=model.neuron(), recurrent_gradient="eprop", dtype=torch.float64
    )
    rnn, readout = layer.layers[0], generator.normal(size=(outputs, hidden))
    weights = generator.normal(size=(hidden, inputs)), generator.normal(size=(hidden, hidden))
    x, target = (generator.random((steps, batch, n)) for n in (inputs, outputs))
    x = (x < 0.4).astype(float)
    with torch.no_grad():
        rnn.weight.copy_(torch.tensor(weights[0])), rnn.recurrent_weight.copy_(torch.tensor(weights[1]))
    value = layer(torch.tensor(x))
    (0.5 * (value @ torch.tensor(readout).T - torch.tensor(target)).square().sum()).backward()
    spikes, expected = _forward_in_time(model((batch, hidden), inputs + hidden), x, *weights, readout, target)
    np.testing.assert_array_equal(value.detach().numpy(), spikes)
    assert 0.02 < spikes.mean() < 0.9
    found = np.concatenate((rnn.weight.grad.numpy(), rnn.recurrent_weight.grad.numpy()), 1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11 * np.abs(expected).max())


LAYERS: dict[str, dict[str, Any]] = {
    "CubaLIF": {},
    "LIF, next": {"neuron": neurons.LIF(3.0, surrogate=BUMP, reset_time="next", detach_reset=False)},
    "ALIF": {"neuron": neurons.ALIF(5.0, 9.0, surrogate=BUMP, detach_reset=False)},
    "KLIF": {"neuron": neurons.KLIF(surrogate=BUMP, learnable=("tau",))},
    "AdLIF, learned": {"neuron": neurons.AdLIF(4.0, surrogate=BUMP, learnable=("tau_m", "threshold"))},
    "sparse": {"recurrent_connections": snnlib.Sparse(density=0.4)},
    "delays": {"recurrent_delays": snnlib.Delays(3)},
    "exact times": {"neuron": neurons.CubaLIF(gradient="event", threshold=0.4)},
}


def _layer(
    name: str, dtype: torch.dtype = torch.float32, inputs: int = 6, **options: Any
) -> snnlib.SpikingRNN:
    torch.manual_seed(0)
    layer = snnlib.SpikingRNN(
        inputs, 16, **{"recurrent_gradient": "eprop", **copy.deepcopy(LAYERS[name]), **options}
    )
    return layer.to(dtype)


def _input(dtype: torch.dtype = torch.float32) -> Tensor:
    draws = torch.rand(12, 3, 6, generator=torch.Generator().manual_seed(1))
    return (draws < 0.4).to(dtype) * 3


def _learned(layer: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in layer.parameters() if parameter.requires_grad]


def _gradients(value: Tensor, *leaves: Tensor) -> list[Tensor]:
    signal = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape)
    return list(torch.autograd.grad((value * signal).sum(), leaves))


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_spikes_are_constants_of_the_gradient(name: str, path: str) -> None:
    """The gradient is that of a loop over `step` that detaches them, and another than backpropagation's."""
    layer, x = _layer(name, torch.float64).eval(), _input(torch.float64)
    rnn = layer.layers[0]
    back = rnn.call_operator()
    neuron, past = rnn.neuron, [torch.zeros(3, 16).double()] * 5
    state = tuple(torch.zeros(3, 16).double() for _ in neuron.state_names)
    params, values = broadcast(neuron.constants(), 2, torch.float64), []
    weight = back.weight if back.operator is None else back.operator.dense(back.weight)
    delay = torch.zeros(16, 16).long() if back.delay is None else back.delay.round().long().expand(16, 16)
    for current in x @ rnn.weight.t():
        sent = torch.stack(past)[delay, :, torch.arange(16)].movedim(2, 0)
        value, state = advance(neuron, state, current + (sent * weight).sum(2), params)
        values.append(value)
        past = [value.detach(), *past[:-1]]
    expected, value = torch.stack(values), layer(x)
    assert torch.equal(value, expected) and 0.02 < float(value.detach().mean()) < 0.9
    leaves = [rnn.weight, rnn.recurrent_weight, *neuron.parameters()]
    found = _gradients(value, *leaves)
    for mine, theirs in zip(found, _gradients(expected, *leaves), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9 * float(theirs.abs().max()))
    through = _layer(name, torch.float64, recurrent_gradient="bptt").eval()
    (whole,) = _gradients(through(x), through.layers[0].weight)
    assert float((whole - found[0]).norm() / whole.norm()) > 0.01


@pytest.mark.parametrize("lengths", [None, torch.tensor([12, 5, 0])], ids=["whole", "lengths"])
@pytest.mark.parametrize("name", LAYERS)
def test_kernels_have_the_bits_of_the_reference(name: str, lengths: Tensor | None) -> None:
    current, results = torch.randn(12, 3, 16, generator=torch.Generator().manual_seed(2)) * 3, []
    for way in ("native", "reference"):
        with use_path(way):
            layer, leaf = _layer(name, inputs=16), current.clone().requires_grad_()
            # Products with the identity do not round; the gradient of this weight does.
            layer.layers[0].weight = nn.Parameter(torch.eye(16), requires_grad=False)
            value = layer.run(leaf, lengths=lengths).value
            results.append([value, *_gradients(value, leaf, *_learned(layer))])
    native, reference = results
    assert all(bool(part.any()) for part in native)
    assert_same_bits(native[:2], reference[:2])
    # With delays a path sums the gradient of the weights by torch, as it does with any gradient of the recurrence.
    for one, other in zip(native[2:], reference[2:], strict=True):
        assert_close(one, other.double(), 2e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_chunks_give_the_whole_sequence(name: str, path: str) -> None:
    whole, chunks = (results_in_chunks(_layer(name), _input(), cut) for cut in ([12], [1, 4, 7]))
    for one, other in zip(whole, chunks, strict=True):
        assert (one - other).abs().max() <= 2e-6 * one.abs().max()


@pytest.mark.parametrize("name", ["CubaLIF", "ALIF", "LIF, next"])
def test_without_recurrent_weights_it_is_backpropagation(name: str, path: str) -> None:
    results = []
    for kind in ("bptt", "eprop"):
        layer = _layer(name, recurrent_gradient=kind)
        nn.init.zeros_(layer.layers[0].recurrent_weight)
        value = layer(_input())
        results.append([value, *_gradients(value, *_learned(layer))])
    assert all(bool(part.any()) for part in results[0])
    assert_same_bits(*results)


def test_option() -> None:
    assert repr(_layer("CubaLIF").layers[0]).count('recurrent_gradient="eprop"') == 1
    assert "recurrent_gradient" not in repr(snnlib.SpikingRNN(2, 2))
    with pytest.raises(ValueError, match=r"^recurrent_gradient: expected one of bptt, eprop, got 'e-prop'$"):
        snnlib.SpikingRNN(2, 2, recurrent_gradient="e-prop")
