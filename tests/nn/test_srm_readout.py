"""SRMReadout: potentials by a loop, exact gradients, chunks, and learning without any output spike."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import snnlib
from snnlib.functional import srm_potential, srm_trace


def _by_loop(current: Tensor, tau_m: float, tau_s: float) -> Tensor:
    u = s = torch.zeros_like(current[0])
    potential = []
    for step in current:
        u = (1 - 1 / tau_m) * u + (s + step) / tau_s
        s = (1 - 1 / tau_s) * (s + step)
        potential.append(u)
    return torch.stack(potential)


@given(st.integers(0, 10**6), st.floats(1, 20), st.floats(1, 20), st.booleans())
def test_potential_by_a_loop(seed: int, tau_m: float, tau_s: float, batch_first: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    current = torch.randn(7, 2, 3, generator=generator, dtype=torch.float64)
    expected = _by_loop(current, tau_m, tau_s)
    if batch_first:
        current, expected = current.transpose(0, 1), expected.transpose(0, 1)
    potential = srm_potential(current, tau_m=tau_m, tau_s=tau_s, batch_first=batch_first)
    torch.testing.assert_close(potential, expected)


def test_is_the_neuron_without_spikes() -> None:
    current = torch.rand(30, 2, 3, 4, 4, dtype=torch.float64) - 0.4
    spiking = srm_trace(current, threshold=1e9, tau_m=8.0, tau_s=8.0)
    assert spiking.spikes.sum() == 0
    torch.testing.assert_close(srm_potential(current, tau_m=8.0, tau_s=8.0), spiking.potential)


def test_layer_gradients_are_exact() -> None:
    """Weights by finite differences; an input's gradient is what one more spike there adds to the loss."""
    torch.manual_seed(0)
    layer = snnlib.SRMReadout(4, 2, dtype=torch.float64)
    x = (torch.rand(9, 3, 4) < 0.3).double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda weight: torch.func.functional_call(layer, {"weight": weight}, x.detach()), layer.weight
    )
    mix = torch.randn(9, 3, 2, dtype=torch.float64)
    loss = (layer(x) * mix).sum()
    loss.backward()
    silent = (x == 0).nonzero()[5]
    more = x.detach().clone()
    more[tuple(silent)] = 1
    added = (layer(more) * mix).sum() - loss
    torch.testing.assert_close(x.grad[tuple(silent)], added.detach())


@pytest.mark.parametrize("batch_first", [False, True])
def test_chunks_give_the_potentials_of_the_whole_train(batch_first: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SRMLinear(6, 5, batch_first=batch_first),
        snnlib.SRMReadout(5, 3, batch_first=batch_first, tau_m=6.0),
    )
    x = (torch.rand(20, 4, 6) < 0.5).float()
    x = x.transpose(0, 1) if batch_first else x
    with torch.no_grad():
        whole = net(x)
        stream = snnlib.Stream(net)
        chunks = [stream(chunk) for chunk in x.split([1, 0, 7, 12], int(batch_first))]
    torch.testing.assert_close(torch.cat(chunks, int(batch_first)), whole)
    alone = snnlib.Stream(net[1])
    torch.testing.assert_close(alone(net[0](x)), whole)


def test_dtypes_and_empty() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        layer = snnlib.SRMReadout(4, 2, dtype=dtype)
        x = torch.ones(5, 3, 4, dtype=dtype)
        potential = layer(x)
        assert potential.dtype == dtype
        expected = _by_loop(nn.functional.linear(x, layer.weight).double(), 5.0, 3.0)
        # Rounded once to half types, beside the sums in float32.
        near = max(1e-5, torch.finfo(dtype).eps)
        torch.testing.assert_close(potential.double(), expected, rtol=near, atol=1e-5)
        potential.sum().backward()
        assert layer.weight.grad.dtype == dtype
        assert layer(x[:0]).shape == (0, 3, 2)
        assert layer(x[:, :0]).shape == (5, 0, 2)


def test_starts_at_potentials_of_about_one() -> None:
    torch.manual_seed(0)
    layer = snnlib.SRMReadout(2000, 50, tau_m=8.0, tau_s=4.0)
    potential = layer((torch.rand(60, 8, 2000) < 0.05).float())
    assert 0.5 < potential[30:].std().item() < 2


def test_state_dict_and_repr() -> None:
    layer = snnlib.SRMReadout(4, 2, tau_m=6.0, batch_first=True)
    assert list(layer.state_dict()) == ["weight", "gain", "neuron.tau_m", "neuron.tau_s"]
    assert repr(layer) == "SRMReadout(4, 2, tau_m=6, tau_s=3, batch_first=True)"


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"in_features: expected an integer >= 1, got 0"):
        snnlib.SRMReadout(0, 2)
    with pytest.raises(ValueError, match=r"tau_s: expected a finite number of time steps >= 1, got 0.5"):
        snnlib.SRMReadout(4, 2, tau_s=0.5)
    layer = snnlib.SRMReadout(4, 2)
    with pytest.raises(ValueError, match=r"state: expected shape \(2, 3, 2\) for u and s, got \(3, 3, 2\)"):
        layer.run(torch.ones(5, 3, 4), (torch.zeros(3, 3, 2),))
    with pytest.raises(TypeError, match=r"state: expected the tuple that run returned, got Tensor"):
        layer.run(torch.ones(5, 3, 4), torch.zeros(2, 3, 2))
    with pytest.raises(ValueError, match=r"tau_m: expected a finite number of time steps >= 1, got inf"):
        srm_potential(torch.ones(5, 3), tau_m=math.inf)


def test_autocast_leaves_potentials_in_float32(rng: torch.Generator) -> None:
    current = torch.rand(30, 2, 3, generator=rng)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        potential = srm_potential(current)
        assert snnlib.SRMReadout(3, 2)(current).dtype == torch.float32
    assert torch.equal(potential, srm_potential(current))
