"""Weight standardisation: the definition, gradients by finite differences, and what a parametrized layer keeps."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import snnlib
from snnlib.nn.weights.quantize import Quantizer
from snnlib.nn.weights.standardize import WeightStandardization


def standardized(weight: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """The definition, one channel at a time, in float64."""
    rows = []
    for channel, g, b in zip(weight.double(), gain.double(), bias.double(), strict=True):
        n = channel.numel()
        mean = channel.sum() / n
        variance = ((channel - mean) ** 2).sum() / (n - 1)
        rows.append((channel - mean) / (variance + 1e-5) ** 0.5 * g + b)
    return torch.stack(rows)


@pytest.mark.parametrize("shape", [(3, 2), (3, 7), (3, 2, 5), (3, 2, 3, 3), (3, 1, 2, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_definition(shape: tuple[int, ...], dtype: torch.dtype, rng: torch.Generator) -> None:
    weight = (torch.randn(shape, generator=rng) * 0.3 + 0.1).to(dtype)
    module = WeightStandardization(3, bias=True)
    with torch.no_grad():
        module.gain.copy_(torch.tensor([0.5, 2.0, -1.0]))
        module.bias.copy_(torch.tensor([0.0, 0.25, 1.0]))
    got = module(weight)
    assert got.dtype == dtype
    eps = torch.finfo(dtype).eps if dtype != torch.float64 else 1e-15
    torch.testing.assert_close(
        got.double(), standardized(weight, module.gain, module.bias), rtol=8 * eps, atol=8 * eps
    )


@pytest.mark.parametrize(("gain", "bias"), [(True, False), (True, True), (False, False), (False, True)])
def test_gradients_by_finite_differences(gain: bool, bias: bool, rng: torch.Generator) -> None:
    module = WeightStandardization(3, gain=gain, bias=bias, dtype=torch.float64)
    weight = torch.randn(3, 2, 2, dtype=torch.float64, generator=rng, requires_grad=True)
    names = [name for name, _ in module.named_parameters()]
    assert names == ["gain"] * gain + ["bias"] * bias

    def function(weight: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (weight,))

    assert torch.autograd.gradcheck(function, (weight, *module.parameters()))


def test_a_constant_channel_gives_zeros_and_finite_gradients() -> None:
    weight = torch.full((1, 4), 0.25, requires_grad=True)
    out = WeightStandardization(1)(weight)
    out.sum().backward()
    assert out.tolist() == [[0.0] * 4]
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize("layer", [nn.Linear(6, 4), nn.Conv2d(2, 4, 3)], ids=["linear", "conv"])
def test_assignment_is_kept_as_far_as_gain_and_bias_reach(layer: nn.Module, rng: torch.Generator) -> None:
    value = torch.randn(layer.weight.shape, generator=rng) * 0.2 + 0.5
    mean = value.flatten(1).mean(1).reshape(-1, *[1] * (value.dim() - 1))
    for gain, bias, expected in ((True, True, value), (True, False, value - mean)):
        net = copy.deepcopy(layer)
        initial = net.weight.detach().clone()
        initial_mean = initial.flatten(1).mean(1).reshape(mean.shape)
        parametrize.register_parametrization(net, "weight", WeightStandardization(4, gain=gain, bias=bias))
        torch.testing.assert_close(net.weight, initial if bias else initial - initial_mean)
        net.weight = value
        torch.testing.assert_close(net.weight.detach(), expected)
        # Scaling reaches the gain: what calibration of firing rates relies on.
        net.weight = value * 3
        torch.testing.assert_close(net.weight.detach(), expected * 3)
    net = copy.deepcopy(layer)
    parametrize.register_parametrization(net, "weight", WeightStandardization(4, gain=False))
    net.weight = value
    # The scale is a buffer: it needs no gain.
    torch.testing.assert_close(net.weight.detach(), value - mean)


def test_folded_net_fires_the_same_spikes_without_parametrizations(rng: torch.Generator) -> None:
    options = {"tau_m": 8.0, "tau_s": 4.0, "dtype": torch.float64}
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 6, 3, threshold=torch.linspace(0.5, 2, 6), **options),
        nn.Flatten(2),
        snnlib.SRMLinear(6 * 36, 4, **options),
    )
    snnlib.nn.standardize_weights_(net)
    with torch.no_grad():
        for layer in (net[0], net[2]):
            step = layer.parametrizations["weight"][0]
            step.gain.copy_(torch.rand(step.channels, generator=rng) + 0.5)
            step.gain[1] *= -1
            step.bias.copy_(torch.rand(step.channels, generator=rng))
        net[0].parametrizations["weight"][0].gain[2] = 0
    x = (torch.rand(40, 3, 2, 8, 8, generator=rng) < 0.2).double()
    expected = net(x)
    assert snnlib.nn.fold_standardization_(net) is net
    assert not [name for name in net.state_dict() if "standardization" in name or "parametrizations" in name]
    assert torch.equal(net(x), expected)
    assert expected.sum() > 100
    # A parameter of the plain kind: trains on and saves.
    assert isinstance(net[0].weight, nn.Parameter)
    deviation = net[0].weight.detach().flatten(1).std(1)[[0, 1, 3, 4, 5]]
    assert bool(((deviation > 0.7) & (deviation < 1.5)).all())
    assert bool((net[0].threshold.frexp().mantissa == torch.linspace(0.5, 2, 6).frexp().mantissa).all())
    again = copy.deepcopy(net.state_dict())
    snnlib.nn.fold_standardization_(net)
    assert all(torch.equal(value, again[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("kind", ["share", "computes"])
def test_weights_that_would_change_are_refused(kind: str) -> None:
    net = nn.Sequential(snnlib.SRMLinear(5, 5), snnlib.SRMLinear(5, 5))
    if kind == "share":
        net[1].weight = net[0].weight
    else:
        nn.utils.parametrizations.weight_norm(net[1])
    with pytest.raises(ValueError, match=f"net: expected a parameter of its own as the weight of .* {kind}$"):
        snnlib.nn.standardize_weights_(net)
    assert not parametrize.is_parametrized(net[0])


def test_folding_refuses_what_it_would_lose() -> None:
    net = nn.Sequential(snnlib.SRMLinear(5, 3))
    parametrize.register_parametrization(net[0], "weight", WeightStandardization(3))
    parametrize.register_parametrization(net[0], "weight", Quantizer(8))
    with pytest.raises(ValueError, match=r"alone on the weight of 0, got WeightStandardization, Quantizer"):
        snnlib.nn.fold_standardization_(net)


@pytest.mark.parametrize("shape", [(3, 1), (3, 1, 1, 1), (3, 0)])
def test_fan_in_below_two_has_no_variance(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"weight: expected a fan-in of 2 or more.*variance.*got shape \(3,"):
        WeightStandardization(3)(torch.zeros(shape))


def test_other_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match=r"weight: expected \[3, ...\], got shape \(4, 2\)"):
        WeightStandardization(3)(torch.zeros(4, 2))
    with pytest.raises(ValueError, match=r"weight: expected \[3, ...\], got shape \(3,\)"):
        WeightStandardization(3)(torch.zeros(3))
    with pytest.raises(TypeError, match=r"weight: expected a floating dtype, got torch.int64"):
        WeightStandardization(3)(torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"channels: expected an integer >= 1, got 0"):
        WeightStandardization(0)


def test_repr_shows_the_options() -> None:
    assert repr(WeightStandardization(3, bias=True)) == "WeightStandardization(3, gain=True, bias=True)"


def test_standardised_layers_print_like_plain_ones() -> None:
    net = snnlib.nn.standardize_weights_(nn.Sequential(snnlib.SRMLinear(4, 3), snnlib.SpikingLinear(3, 2)))
    assert repr(net[0]) == repr(snnlib.SRMLinear(4, 3))[:-1] + ", standardised with gain and bias)"
    lif = snnlib.neurons.LIF()
    assert repr(net[1]) == f"SpikingLinear(\n  3, 2, standardised with gain and bias\n  (neuron): {lif!r}\n)"
    parametrize.register_parametrization(net[0], "weight", Quantizer(8))
    assert "Quantizer" in repr(net[0])
