"""Recurrent layers: gradients against finite differences, chunks, lengths, layouts, neurons of one's own, errors."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_close
from runs import assert_samples_as_alone, results_in_chunks
from soft_neuron import Soft
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.functional import spiking_recurrent

COMPACT = surrogate.Triangle(width=0.5, height=0.4)


def _currents(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5


def test_every_gradient_by_finite_differences() -> None:
    """Currents, recurrent weights, constants and both parts of the state, with samples of different lengths."""
    neuron = Soft(learnable=("beta", "threshold"), channels=3)
    weight = _currents(3, 3, seed=2)
    lengths = torch.tensor([4, 2])

    def run(current: Tensor, w: Tensor, v: Tensor, s: Tensor, beta: Tensor, threshold: Tensor) -> Any:
        # The parameters are float32, too coarse for finite differences.
        neuron.constants = lambda: {"beta": beta, "threshold": threshold}  # type: ignore[method-assign]
        value, state = spiking_recurrent(current, w, neuron, state=(v, s), lengths=lengths)
        return value, *state

    leaves = [_currents(4, 2, 3), weight, _currents(1, 2, 3, seed=3), _currents(1, 2, 3, seed=4)]
    leaves += [torch.tensor([0.7, 0.5, 0.8]).double(), torch.tensor([1.0, 0.8, 1.2]).double()]
    assert torch.autograd.gradcheck(run, [leaf.requires_grad_() for leaf in leaves])


RNNS: dict[str, Callable[[], nn.Module]] = {
    "default": lambda: snnlib.SpikingRNN(6, 16),
    "two layers": lambda: snnlib.SpikingRNN(6, 16, 2),
    "AdLIF": lambda: snnlib.SpikingRNN(6, 16, neuron=neurons.AdLIF(surrogate=COMPACT)),
    "next": lambda: snnlib.SpikingRNN(
        6, 16, neuron=neurons.LIF(3.0, dialect="snntorch", surrogate=COMPACT, detach_reset=False)
    ),
    "own step": lambda: snnlib.SpikingRNN(6, 16, neuron=Soft()),
    "learnable": lambda: snnlib.SpikingRNN(
        6, 16, neuron=neurons.CubaLIF(surrogate=COMPACT, learnable=("tau_m", "tau_s"), channels=16)
    ),
    "delays": lambda: snnlib.SpikingRNN(6, 16, recurrent_delays=snnlib.Delays(3)),
    "convolution": lambda: snnlib.SpikingConvRNN2d(
        6, 4, 3, padding=1, neuron=neurons.AdLIF(surrogate=COMPACT)
    ),
}


@pytest.mark.parametrize("late", [None, "channel", "connection"])
@pytest.mark.parametrize("model", ["IF", "LIF", "KLIF", "CubaLIF", "ALIF", "AdLIF", "BRF", "Izhikevich"])
def test_kernels_equal_steps(
    model: str, late: str | None, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(3)
    neuron = neurons.MODELS[model](surrogate=COMPACT).double()
    current = torch.rand(25, 2, 9, generator=generator).double()
    # Currents at which it fires.
    scale = next(s for s in (2.0**i for i in range(16)) if float(neuron(current * s).detach().mean()) > 0.05)
    current = current * scale
    weight = scale * (torch.rand(9, 9, generator=generator).double() - 0.5) / 4
    leaves = [current.requires_grad_(), weight.requires_grad_()]
    delay: dict[str, Any] = {}
    if late:
        shape = (9,) if late == "channel" else (9, 9)
        leaves.append((torch.rand(shape, generator=generator).double() * 3).requires_grad_())
        delay = {"delay": leaves[2], "max_delay": 3}
    signal = torch.rand(25, 2, 9, generator=generator).double()

    def run() -> tuple[Tensor, list[Tensor]]:
        out = spiking_recurrent(current, weight, neuron, **delay)
        loss = (out.value * signal).sum() + sum(part.square().sum() for part in out.state) / scale**2
        return out.value, list(torch.autograd.grad(loss, leaves))

    dynamics = neuron.dynamics(neuron.constants())
    assert dynamics is not None
    value, gradients = run()
    assert 0.01 < float(value.detach().mean()) < 0.7
    monkeypatch.setattr(type(neuron), "kernel", lambda *_: None)
    stepped, expected = run()
    assert torch.equal(value, stepped)
    for got, want in zip(gradients, expected, strict=True):
        assert float(want.abs().max()) > 0
        assert torch.allclose(got, want, rtol=0, atol=1e-10 * float(want.abs().max()))


every_rnn = pytest.mark.parametrize("name", RNNS)


def _rnn(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    space = (4, 5) if name == "convolution" else ()
    return RNNS[name](), (torch.rand(12, 3, 6, *space) < 0.4).float() * 2


@every_rnn
@pytest.mark.parametrize("sizes", [[1] * 6, [1, 5]], ids=str)
def test_chunks_give_the_whole_sequence(name: str, sizes: list[int], path: str) -> None:
    layer, x = _rnn(name)
    results = [results_in_chunks(layer, x[:6], cut) for cut in ([6], sizes)]
    assert results[0][0].sum() > 0
    # The reference's products by torch round by the number of rows on some processors, as an own step's may.
    states = len(results[0]) - 2 - len(list(layer.parameters()))
    exact = states + 1 if path == "native" and name != "own step" else 0
    for number, (whole, chunks) in enumerate(zip(*results, strict=True)):
        assert whole.abs().max() > 0
        if number < exact:
            assert_bits(chunks, whole)
        else:
            assert (whole - chunks).abs().max() <= 2e-6 * whole.abs().max(), number


@every_rnn
def test_a_sample_in_a_batch_is_the_sample_alone(name: str, path: str) -> None:
    """Values, states and gradients of samples of different lengths; what padding holds does not matter."""
    layer, x = _rnn(name)
    lengths = torch.tensor([12, 5, 0])
    x[5:, 1] = math.nan
    assert_samples_as_alone(layer, x, lengths, 1e-6)


@every_rnn
def test_batch_first_and_run(name: str) -> None:
    layer, x = _rnn(name)
    out = layer(x)
    assert_bits(layer.run(x).value, out)
    turned = RNNS[name]()
    turned.load_state_dict(layer.state_dict())
    for module in turned.modules():
        if hasattr(module, "batch_first"):
            module.batch_first = True
    assert_bits(turned(x.transpose(0, 1)).transpose(0, 1), out)
    turned_state = turned.run(x.transpose(0, 1), lengths=torch.tensor([12, 3, 1])).state
    for a, b in zip(turned_state, layer.run(x, lengths=torch.tensor([12, 3, 1])).state, strict=True):
        assert_bits(a, b)


def test_streams_prepare_and_dropout() -> None:
    layer, x = _rnn("two layers")
    net = nn.Sequential(layer, nn.Linear(16, 4), neurons.Integrator(5.0))
    stream = snnlib.Stream(net)
    assert_close(torch.cat([stream(chunk) for chunk in x.split([5, 7])]), net(x).double(), 1e-6)
    report = snnlib.prepare_(net, x)
    rates = [entry.rate for entry in report.layers if entry.rate is not None]
    assert len(rates) == 2
    assert all(abs(rate - 0.1) < 0.05 for rate in rates), rates
    dropped = snnlib.SpikingRNN(6, 16, 2, dropout=0.5)
    assert not torch.equal(dropped(x), dropped(x))
    dropped.eval()
    assert_bits(dropped(x), dropped(x))


def test_errors() -> None:
    layer, x = _rnn("default")
    state = layer.run(x).state
    with pytest.raises(ValueError, match="lengths: expected numbers from 0 to 12 steps, got 3 to 13"):
        layer.run(x, lengths=torch.tensor([3, 13, 4]))
    with pytest.raises(ValueError, match=r"lengths: expected shape \(3,\)"):
        layer.run(x, lengths=torch.tensor([3, 4]))
    with pytest.raises(TypeError, match=r"lengths: expected integers, got torch\.float32"):
        layer.run(x, lengths=torch.ones(3))
    with pytest.raises(TypeError, match="state: expected the tuple of 2"):
        layer.run(x, state[:1])
    with pytest.raises(ValueError, match="state: expected"):
        layer.run(x[:, :2], state)
    with pytest.raises(ValueError, match="weight: expected shape"):
        spiking_recurrent(torch.ones(2, 2, 3), torch.ones(3, 4), neurons.LIF())
    with pytest.raises(TypeError, match=r"weight: expected torch\.float32, got torch\.float64"):
        spiking_recurrent(torch.ones(2, 2, 3), torch.ones(3, 3).double(), neurons.LIF())
    with pytest.raises(ValueError, match="hidden_size: expected an integer >= 1"):
        snnlib.SpikingRNN(3, 0)
    with pytest.raises(ValueError, match="dropout"):
        snnlib.SpikingRNN(3, 2, dropout=1.0)
    with pytest.warns(UserWarning, match="peak of 1;"):
        snnlib.SpikingRNN(3, 2, neuron=neurons.LIF())


@pytest.mark.parametrize("model", ["CubaLIF", "AdLIF"])
def test_prepare_reaches_the_rate_asked_of_a_recurrent_layer(model: str) -> None:
    """Rates of a hidden layer alone, and of neurons that answer inhibition with spikes."""
    torch.manual_seed(0)
    x = (torch.rand(150, 8, 4) < 0.1).float()
    taus = {"tau_m": neurons.log_uniform(5.0, 50.0, 20)}
    couplings = {"a": torch.rand(20), "b": 2 * torch.rand(20), "rho": 60.0} if model == "AdLIF" else {}
    neuron = neurons.MODELS[model](**taus, **couplings, surrogate=surrogate.Triangle(0.5, 0.4))
    rnn = snnlib.SpikingRNN(4, 20, neuron=neuron)
    (found,) = snnlib.prepare_(rnn, x, 0.08).layers
    assert found.target == 0.08
    assert found.rate == pytest.approx(0.08, rel=0.25)
