"""Gradients at the edges: silence, empty sequences, double backward, autocast, layouts of nets."""

from collections.abc import Callable

import op_calls
import pytest
import torch
from rates import set_rates_
from torch import Tensor, nn

import snnlib
from snnlib import functional as F


def _small_net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(4, 4, 3, padding=1),
        snnlib.SpikeMaxPool2d(2),
        nn.Flatten(2),
        snnlib.SRMLinear(16, 5),
    )


def _assert_zero_gradients(net: nn.Module, x: Tensor) -> None:
    for tensor in (x, *net.parameters()):
        assert tensor.grad is not None
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5, 6])
def test_silent_input_gives_exact_zeros(layers: int, path: str) -> None:
    """Dead neurons and silent windows divide by nothing: zero spikes and zero gradients, never NaN."""
    net = _small_net()[:layers]
    x = torch.zeros(6, 2, 2, 8, 8, requires_grad=True)
    out = net(x)
    assert torch.equal(out, torch.zeros_like(out))
    out.backward(torch.full_like(out, torch.nan) if layers in (1, 3, 6) else torch.ones_like(out))
    _assert_zero_gradients(net, x)


@pytest.mark.parametrize("shape", [(0, 2, 2, 8, 8), (6, 0, 2, 8, 8)], ids=["T = 0", "N = 0"])
def test_empty_trains(shape: tuple[int, ...], path: str) -> None:
    net = _small_net()
    x = torch.zeros(shape, requires_grad=True)
    out = net(x)
    assert out.shape == (*shape[:2], 5)
    out.sum().backward()
    _assert_zero_gradients(net, x)


def test_no_inputs_give_no_spikes(path: str) -> None:
    x, weight = torch.zeros(4, 2, 0, requires_grad=True), torch.zeros(3, 0, requires_grad=True)
    spikes = F.srm_linear(x, weight)
    spikes.sum().backward()
    assert torch.equal(spikes, torch.zeros(4, 2, 3))
    assert x.grad is not None and x.grad.shape == x.shape
    assert weight.grad is not None and weight.grad.shape == weight.shape


@pytest.mark.parametrize("kind", ["convolution", "fully connected", "pool"])
def test_output_may_be_changed_in_place(kind: str, rng: torch.Generator, path: str) -> None:
    """As `nn.Dropout(inplace=True)` behind a layer does."""
    layers = {
        "convolution": _small_net()[:1],
        "fully connected": snnlib.SRMLinear(128, 5),
        "pool": _small_net()[:2],
    }
    x = (torch.rand(6, 2, 2, 8, 8, generator=rng) < 0.5).float()
    expected, changed = (x.clone().requires_grad_() for _ in range(2))
    layers[kind](expected).mul(2).sum().backward()
    layers[kind](changed).mul_(2).sum().backward()
    assert expected.grad is not None and changed.grad is not None
    assert expected.grad.abs().sum() > 0
    assert torch.equal(changed.grad, expected.grad)


def test_silent_neurons_beside_firing_ones(rng: torch.Generator, path: str) -> None:
    current = torch.randn(15, 4, 40, generator=rng) * 0.9
    q = torch.randn(current.shape, generator=rng)
    spikes = F.srm_neuron(current)
    silent = (spikes.sum(0) == 0).expand_as(current)
    assert 0.05 < silent.float().mean() < 0.95
    for signal in F.srm_backward(q, current):
        assert not signal[silent].any()
        assert signal[~silent].any()


def test_zero_after_the_last_spike(rng: torch.Generator, path: str) -> None:
    current = torch.randn(15, 4, 40, generator=rng)
    after = F.srm_neuron(current).flip(0).cumsum(0).flip(0) == 0
    assert after.any()
    for signal in F.srm_backward(torch.ones_like(current), current):
        assert not signal[after].any()
        assert signal[~after].all()


def test_silent_pixels_get_no_gradient(rng: torch.Generator, path: str) -> None:
    x = (torch.rand(8, 2, 3, 6, 6, generator=rng) < 0.2).float().requires_grad_()
    weight = torch.rand(4, 3, 3, 3, generator=rng)
    F.srm_conv2d(x, weight, padding=1).sum().backward()
    assert x.grad.any()
    assert not x.grad[x == 0].any()


def _neuron(x: Tensor) -> Tensor:
    return F.srm_neuron(x)


def _layer(x: Tensor) -> Tensor:
    return F.srm_linear(x, torch.eye(4, dtype=x.dtype) * 2)


def _pool(x: Tensor) -> Tensor:
    return F.spike_avg_pool1d(x[:, :, None], 2)


def _shifted(x: Tensor) -> Tensor:
    layer = snnlib.SpikingConv1d(4, 3, 1, delays=snnlib.Delays(3), neuron=snnlib.neurons.LIF())
    return layer(x[..., None])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_neuron, "expected one backward pass|does not require grad"),
        (snnlib.neurons.LIF(), "expected one backward pass"),
        (snnlib.SpikingRNN(4, 3), "expected one backward pass"),
        (
            snnlib.SpikingLinear(4, 3, delays=snnlib.Delays(3), neuron=snnlib.neurons.LIF()),
            "expected one backward pass",
        ),
        (_shifted, "expected one backward pass"),
        (_layer, "expected one backward pass"),
        (_pool, "expected one derivative of spike average pooling"),
    ],
)
def test_double_backward_raises(function: Callable[[Tensor], Tensor], message: str, path: str) -> None:
    """There is no second derivative of a spike time here: an error, not a wrong number."""
    x = torch.full((6, 2, 4), 2.0, requires_grad=True)
    out = function(x)
    scale = torch.ones_like(out, requires_grad=True)
    (first,) = torch.autograd.grad(out, x, scale, create_graph=True)
    with pytest.raises(RuntimeError, match=message):
        first.sum().backward()


@pytest.mark.parametrize("surrogate", [snnlib.surrogate.ATan(), snnlib.surrogate.Triangle(), None])
def test_penalty_on_gradients_raises(surrogate: snnlib.surrogate.Surrogate | None, path: str) -> None:
    """The gradient of a sum comes in as a constant; what the layer makes of it depends on the weight all the same."""
    neuron = snnlib.neurons.SRM() if surrogate is None else snnlib.neurons.LIF(surrogate=surrogate)
    layer = snnlib.SpikingLinear(4, 3, neuron=neuron)
    x = torch.full((6, 2, 4), 2.0, requires_grad=True)
    (first,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="expected one backward pass"):
        first.square().sum().backward()


def test_autocast(path: str) -> None:
    """Under autocast layers run in bfloat16 with float32 state; parameters keep float32 gradients."""
    net = _small_net()
    x = (torch.rand(8, 2, 2, 8, 8, generator=torch.Generator().manual_seed(0)) < 0.4).float().requires_grad_()
    with torch.no_grad():
        set_rates_(net, x, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
        assert out.dtype == torch.bfloat16
        assert out.sum() > 0
        loss = out.float().sum(0).square().mean()
    loss.backward()
    for tensor in (x, *net.parameters()):
        assert tensor.grad.dtype == torch.float32
        assert tensor.grad.isfinite().all()
        assert tensor.grad.any()


def test_a_spike_without_a_rise_stops_the_credit(path: str) -> None:
    """A given state above the threshold fires at once, falling: no slope to divide by, but a reset all the same."""
    state = torch.tensor([3.0, 0.0, 0.0], dtype=torch.float64).reshape(3, 1, 1)
    current = torch.tensor([0.1, 9.0], dtype=torch.float64).reshape(2, 1, 1)
    q = torch.ones_like(current)
    constants = (5.0, 3.0, 3.0, 4.0, 0)
    spikes, _ = op_calls.srm_forward(current, torch.tensor(1.0), state, *constants, True)
    assert spikes.flatten().tolist() == [1, 1]
    a, b = op_calls.srm_backward(q, current, torch.tensor(1.0), state, *constants, True, True)
    assert a.flatten().tolist() == pytest.approx([0, 1 / 9], rel=1e-12)
    assert b.flatten().tolist() == pytest.approx([10, 1 / 9], rel=1e-12)


@pytest.mark.parametrize("path", ["native", "reference"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_volume_layer_without_outputs_has_a_gradient_of_zeros(path: str, groups: int) -> None:
    x = (torch.rand(3, 2, 2, 4, 4, 4) < 0.5).float().requires_grad_()
    weight = torch.zeros(0, 2 // groups, 3, 3, 3, requires_grad=True)
    with snnlib.use_path(path):
        spikes = snnlib.functional.srm_conv3d(x, weight, groups=groups)
        spikes.sum().backward()
    assert spikes.shape == (3, 2, 0, 2, 2, 2)
    assert weight.grad is not None
    assert weight.grad.shape == weight.shape
    assert x.grad is not None
    assert not x.grad.any()
