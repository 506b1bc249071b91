"""Nets with exact spike times: single spikes, constants of continuous time, times within a step."""

import math

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.neurons import CubaLIF

MODELS = ["IF", "LIF", "PLIF", "CubaLIF"]


# float32 takes the kernels of this processor, float64 the portable ones.
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def _currents(batch_first: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    """Returns currents in 64ths, whose sums do not round."""
    x = torch.rand(20, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = (x * 128).round().div(64).to(dtype)
    return x.transpose(0, 1) if batch_first else x


def _first_only(spikes: Tensor, time_dim: int) -> Tensor:
    return spikes * (spikes.cumsum(time_dim) - spikes == 0)


@every_dtype
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"reset": "subtract"}, {"reset": "subtract", "reset_time": "next"}], ids=str
)
@pytest.mark.parametrize("name", MODELS)
def test_single_spike_is_the_first(
    name: str, options: dict[str, str], batch_first: bool, dtype: torch.dtype
) -> None:
    many = neurons.MODELS[name](batch_first=batch_first, **options)
    one = neurons.MODELS[name](batch_first=batch_first, refractory=math.inf, **options)
    x = _currents(batch_first, dtype)
    expected = _first_only(many(x), int(batch_first))
    assert torch.equal(one(x), expected)
    assert many(x).sum() > expected.sum() > 0
    # A stream knows who has fired.
    time_dim = int(batch_first)
    first, state = one.run(x.narrow(time_dim, 0, 7))
    second, _ = one.run(x.narrow(time_dim, 7, 13), state)
    assert torch.equal(torch.cat((first, second), time_dim), expected)
    assert "refractory=inf" in repr(one)
    assert neurons.from_config(neurons.config(one)).refractory == math.inf


@every_dtype
@pytest.mark.parametrize("gradient", ["surrogate", "event"])
@pytest.mark.parametrize("steps", [1, 4])
def test_a_neuron_rests_for_its_refractory_time(steps: int, gradient: str, dtype: torch.dtype) -> None:
    """Runs the refractory time by hand: after a spike the state stays, and the input is lost."""
    x = _currents(dtype=dtype)
    options = {"gradient": gradient, "threshold": 0.5}
    plain, neuron = CubaLIF(**options), CubaLIF(refractory=steps, **options)
    state, left, expected = torch.zeros(2, *x.shape[1:], dtype=x.dtype), torch.zeros(x.shape[1:]), []
    for now in x:
        value, (after, *_) = plain.run(now[None], (state,))
        rests = left > 0
        state = torch.where(rests, state, after)
        expected.append(torch.where(rests, 0.0, value[0]))
        left = torch.where(rests, left - 1, steps * value[0])
    assert plain(x).sum() > torch.stack(expected).sum() > 5
    assert torch.equal(neuron(x), torch.stack(expected))
    first, after = neuron.run(x[:7])
    assert torch.equal(torch.cat((first, neuron.run(x[7:], after).value)), torch.stack(expected))


def test_wrong_refractory_times_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"^single_spike: expected .*; it is refractory=inf now$"):
        neurons.LIF(single_spike=True)  # type: ignore[call-arg]
    with pytest.raises(
        ValueError, match=r"^refractory: expected a whole number from 0 to 16777216, or infinity, got 0\.5$"
    ):
        neurons.LIF(refractory=0.5)
    with pytest.raises(ValueError, match=r"^refractory: .* to 16777216"):
        neurons.LIF(refractory=2.0**24 + 1)
    with pytest.raises(ValueError, match=r"^refractory: expected 0 without a threshold, got 3$"):
        neurons.LRU(1.0, 0.5, refractory=3)


@pytest.mark.parametrize("kind", ["linear", "conv", "rnn", "delays"])
def test_single_spikes_in_layers(kind: str) -> None:
    torch.manual_seed(0)
    neuron = CubaLIF(gradient="event", refractory=math.inf)
    if kind == "conv":
        layer, x = snnlib.SpikingConv2d(2, 3, 3, neuron=neuron), (torch.rand(12, 2, 2, 6, 6) < 0.5).float()
    else:
        x = (torch.rand(12, 2, 6) < 0.5).float()
        late = snnlib.Delays(2) if kind == "delays" else None
        layer = (
            snnlib.SpikingRNN(6, 8, neuron=neuron)
            if kind == "rnn"
            else snnlib.SpikingLinear(6, 8, neuron=neuron, delays=late)
        )
    with torch.no_grad():
        for weight in layer.parameters():
            weight.mul_(5)
    spikes = layer(x)
    assert spikes.sum(0).max() == 1
    assert spikes.sum() > 5
    stream = snnlib.Stream(layer)
    assert torch.equal(torch.cat([stream(chunk) for chunk in x.split(5)]), spikes)


@every_dtype
def test_gradient_of_a_single_spike(dtype: torch.dtype) -> None:
    """It is that of the neuron that fires on, at its first spike alone."""
    x = _currents(dtype=dtype)
    weight = torch.randn(20, 3, 4, dtype=dtype, generator=torch.Generator().manual_seed(1))
    found = []
    for single in (True, False):
        leaf = x.clone().requires_grad_()
        spikes = CubaLIF(gradient="event", refractory=math.inf if single else 0)(leaf)
        q = weight if single else weight * _first_only(spikes.detach(), 0)
        found.append(torch.autograd.grad(spikes, leaf, q)[0])
    assert found[0].abs().sum() > 0
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def test_single_spike_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^levels: expected 1 beside refractory=inf, got 3$"):
        neurons.LIF(levels=3, refractory=math.inf)


def test_prepare_takes_single_spikes() -> None:
    torch.manual_seed(0)
    layer = snnlib.SpikingLinear(6, 20, neuron=CubaLIF(gradient="event", refractory=math.inf))
    x = (torch.rand(30, 16, 6) < 0.2).float()
    snnlib.prepare_(nn.Sequential(layer), x, 0.02)
    assert layer(x).mean() > 0


@pytest.mark.parametrize(("tau_m", "tau_s"), [(2.0, 1.0), (1.0, 3.0), (1.5, 1.5)])
@pytest.mark.parametrize("dt", [0.1, 0.01])
def test_constants_of_continuous_time(tau_m: float, tau_s: float, dt: float) -> None:
    """The potential of one spike of weight 0.7 is the kernel's at the ends of the steps."""
    neuron = CubaLIF.from_continuous(tau_m, tau_s, dt, threshold=0.5)
    current = torch.zeros(300, 1, 1, dtype=torch.float64)
    current[0] = 0.7
    t = torch.arange(1, 301, dtype=torch.float64) * dt
    if tau_m == tau_s:
        kernel = t / tau_m * torch.exp(-t / tau_m)
    else:
        kernel = tau_m / (tau_m - tau_s) * (torch.exp(-t / tau_m) - torch.exp(-t / tau_s))
    torch.testing.assert_close(
        neuron.free_potential(current).flatten() * 0.5, 0.7 * kernel, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("difference", [0.0, 1e-15, 1e-12, 1e-9, -1e-12])
def test_nearly_equal_time_constants_lose_no_digit(difference: float) -> None:
    """The equation with equal ones, up to a share of the difference."""
    neuron = CubaLIF.from_continuous(2.0, 2.0 + difference, 0.01)
    assert float(neuron.threshold) == pytest.approx(200 * math.exp(0.005), rel=1e-9)


def test_from_continuous_scales_all_potentials() -> None:
    given = {"threshold": 1.0, "reset_value": 0.5, "rest": 0.5, "start_value": 0.25}
    neuron = CubaLIF.from_continuous(2.0, 1.0, 0.01, **given)
    for name, value in given.items():
        assert float(getattr(neuron, name)) == pytest.approx(value * float(neuron.threshold))


def test_from_continuous_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"^dt: expected at most the shorter time constant 1, got 2$"):
        CubaLIF.from_continuous(2.0, 1.0, 2.0)
    with pytest.raises(ValueError, match=r"^tau_s: expected a finite time > 0, got -1.0$"):
        CubaLIF.from_continuous(2.0, -1.0, 0.1)


def test_times_within_a_step() -> None:
    """A crossing to a fraction of a step comes closer to the kernel's by the square of the step."""
    weight = 6.0
    # 2 w (y - y^2) = 1 with y = exp(-t / 2), the earlier root.
    y = (1 + math.sqrt(1 - 2 / weight)) / 2
    exact = -2 * math.log(y)
    errors = []
    for dt in (0.04, 0.02, 0.01):
        neuron = CubaLIF.from_continuous(2.0, 1.0, dt, gradient="event", refractory=math.inf)
        current = torch.zeros(int(4 / dt), 1, 1, dtype=torch.float64)
        current[0] = weight
        current.requires_grad_()
        spikes = neuron(current)
        times = snnlib.readout.first_spike_time(spikes, potential=neuron.free_potential(current))
        whole = snnlib.readout.first_spike_time(spikes)
        assert 0 <= float((whole - times).detach()) < 1
        errors.append(abs((float(times.detach()) + 1) * dt - exact))
        # The gradient is that of whole steps.
        assert torch.equal(*(torch.autograd.grad(t, current, retain_graph=True)[0] for t in (times, whole)))
    assert errors[0] < 2e-3
    assert errors[1] < errors[0] / 2
    assert errors[2] < errors[1] / 2


def test_potentials_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^potential: expected shape \(3, 1, 2\), got \(3, 1\)$"):
        snnlib.readout.first_spike_time(torch.ones(3, 1, 2), potential=torch.ones(3, 1))


SEQUENCES = [
    {},
    {"reset_states": "all"},
    {"reset_value": -0.2, "compare": ">"},
    {"rest": 0.1, "reset_value": -0.1},
    {"refractory": math.inf},
    {"refractory": math.inf, "reset_states": "all", "decay_input": False},
    {"tau_m": torch.tensor([4.0, 5.0, 6.0, 7.0]), "discretisation": "exponential", "decay_current": True},
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("options", SEQUENCES, ids=lambda options: " ".join(options) or "default")
def test_sequence_gives_what_steps_give(
    options: dict[str, object], batch_first: bool, dtype: torch.dtype
) -> None:
    """A node for the whole sequence has the bits of `step` forwards, and its gradients to rounding, states included."""
    neuron = CubaLIF(gradient="event", batch_first=batch_first, **options)
    x = _currents(batch_first).to(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    generator = torch.Generator().manual_seed(2)
    start = torch.rand(len(neuron.state_names), 3, 4, dtype=wide, generator=generator)
    if neuron.refractory:
        # The reset left those that have fired at 0.
        start[2] = (start[2] < 0.2).to(wide)
        start[0] *= 1 - start[2]
    weights = (
        torch.randn(20, 3, 4, dtype=wide, generator=generator),
        torch.randn(start.shape, generator=generator),
    )
    found = []
    for run in (neuron.run, neuron.reference):
        leaf, state = x.clone().requires_grad_(), start.clone().requires_grad_()
        value, after = run(leaf, (state,))
        spikes = value.transpose(0, 1) if batch_first else value
        loss = (spikes * weights[0]).sum() + (after[0] * weights[1]).sum()
        found.append((value, after[0], *torch.autograd.grad(loss, (leaf, state))))
    assert found[0][0].sum() > 5
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    precision = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    for part, expected in zip(found[0][2:], found[1][2:], strict=True):
        scale = float(expected.abs().max())
        torch.testing.assert_close(part, expected, rtol=precision, atol=precision * scale)


def test_nan_potentials_give_nan_spikes() -> None:
    x = _currents()
    x[3, 1, 2] = math.nan
    spikes = CubaLIF(gradient="event")(x)
    assert spikes[3:, 1, 2].isnan().all()
    assert spikes.isnan().sum() == 17
