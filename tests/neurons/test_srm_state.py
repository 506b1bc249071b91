"""Gradients through the states of SRM neurons: chunks against the whole, lengths, and states alone."""

from collections.abc import Callable

import pytest
import torch
from runs import assert_samples_as_alone
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.functional.paths import entries_only

CHUNKS = [1, 7, 100]


def _layers() -> dict[str, Callable[[], nn.Module]]:
    narrow = surrogate.Triangle(0.5, 0.4)
    return {
        "scatter": lambda: snnlib.SRMConv2d(2, 8, 5, padding=1),
        "gather": lambda: snnlib.SRMConv2d(2, 40, 3, tau_grad=4.0),
        "stride": lambda: snnlib.SRMConv2d(2, 6, 3, stride=2, tau_m=3.0, tau_s=3.0),
        "groups": lambda: snnlib.SRMConv2d(2, 6, 3, groups=2),
        "linear": lambda: snnlib.SRMLinear(2 * 9 * 9, 7, batch_first=True),
        "LIF": lambda: snnlib.SpikingConv2d(2, 8, 5, padding=1, neuron=neurons.LIF(4.0, surrogate=narrow)),
        "LIF, linear": lambda: snnlib.SpikingLinear(
            2 * 9 * 9, 7, neuron=neurons.LIF(4.0, surrogate=narrow, detach_reset=False)
        ),
        "spike times": lambda: snnlib.SpikingConv2d(
            2, 8, 5, padding=1, neuron=neurons.CubaLIF(gradient="event", threshold=0.4, input_gradient="time")
        ),
        "spike times, linear": lambda: snnlib.SpikingLinear(
            2 * 9 * 9,
            7,
            neuron=neurons.CubaLIF(
                gradient="event", reset_states="all", threshold=0.8, input_gradient="dense"
            ),
        ),
        "LIF, stride": lambda: snnlib.SpikingConv2d(2, 6, 3, stride=2, neuron=neurons.LIF(4.0)),
    }


def _case(name: str, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    """A layer of which some neurons fire and some never do, and its input."""
    torch.manual_seed(3)
    layer = _layers()[name]().to(dtype)
    x = (torch.rand(23, 3, 2, 9, 9) < 0.1).to(dtype)
    with torch.no_grad():
        layer.weight.mul_(3.0)
    return layer, x.requires_grad_()


def _gradients(layer: nn.Module, x: Tensor, steps: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, dL/dx and dL/dW of a call, or of chunks of so many steps; the loss reads the last state as well."""
    time_dim = int(getattr(layer, "batch_first", False))
    state, parts = None, []
    for chunk in [x] if steps is None else x.split(steps, time_dim):
        value, state = layer.run(chunk, state)
        parts.append(value)
    out = torch.cat(parts, time_dim)
    generator = torch.Generator().manual_seed(5)
    weights = torch.rand(out.shape, generator=generator).to(out) - 0.3
    of_state = torch.rand(state[0].shape, generator=generator).to(out) - 0.3
    loss = (out * weights).sum() + (state[0] * of_state).sum()
    return out, *torch.autograd.grad(loss, (x, layer.weight))


@pytest.mark.parametrize("name", _layers())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunks_have_the_gradients_of_the_whole(name: str, dtype: torch.dtype) -> None:
    layer, x = _case(name, dtype)
    wide = _gradients(layer.double(), x.detach().double().requires_grad_(), None)
    layer.to(dtype)
    whole = _gradients(layer, x, None)
    assert 0 < whole[0].mean() < 0.5
    silent = whole[0].sum(int(getattr(layer, "batch_first", False))) == 0
    assert 0.02 < silent.double().mean() < 0.98
    bound = 3e-6 if dtype == torch.float32 else 1e-12
    for algorithm in ("auto", "events", "dense"):
        for steps in (None, *CHUNKS):
            with snnlib.use_convolution(algorithm), entries_only():
                out, *gradients = _gradients(layer, x, steps)
            assert torch.equal(out, whole[0])
            for gradient, expected in zip(gradients, wide[1:], strict=True):
                assert (gradient - expected).abs().max() <= bound * expected.abs().max()


def test_state_alone_has_a_gradient() -> None:
    """Where the loss reads the last state only, and where only the state before learns."""
    layer, x = _case("scatter", torch.float32)
    start = torch.zeros(3, 3, 8, 7, 7, requires_grad=True)
    with torch.no_grad():
        silent = layer.run(x, (start,)).value.sum(0) == 0
    (gradient,) = torch.autograd.grad(layer.run(x, (start,)).state[0][0].sum(), start)
    assert torch.allclose(gradient[0][silent], torch.tensor(0.8**23))
    layer.weight.requires_grad_(False)
    (alone,) = torch.autograd.grad(layer.run(x.detach(), (start,)).value.sum(), start)
    assert alone.abs().sum() > 0


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("layer", [snnlib.SRMLinear, snnlib.SRMReadout])
def test_lengths(layer: type[snnlib.SRMLinear], batch_first: bool) -> None:
    """Each sample of a batch gets what it gets alone, and padding counts for nothing."""
    torch.manual_seed(0)
    made, lengths = layer(6, 4, batch_first=batch_first).double(), torch.tensor([11, 0, 5])
    x = (torch.rand(11, 3, 6, dtype=torch.float64) < 0.5).double()
    padded = torch.where(snnlib.functional.valid_steps(lengths, 11)[..., None], x, torch.nan)
    assert_samples_as_alone(made, padded, lengths, 1e-12)


@pytest.mark.parametrize("reset_states", ["all", "membrane"])
def test_no_gradient_flows_through_the_gradients_own_trace(reset_states: str) -> None:
    neuron = snnlib.neurons.SRM(reset_states=reset_states)
    current = torch.rand(5, 2, 3).requires_grad_()
    for run in (neuron.run, neuron.reference):
        trace = run(current).state[0][2]
        assert trace.abs().sum() > 0
        if trace.requires_grad:
            (grad,) = torch.autograd.grad(trace.sum(), current, allow_unused=True)
            assert grad is None or not grad.any()
