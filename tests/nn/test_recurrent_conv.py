"""Convolutional recurrence: its definition, gradients, chunks, lengths, what tools make of it, and errors."""

import re
from typing import Any

import pytest
import torch
from compare import assert_bits
from soft_neuron import Soft
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.functional import Convolution, spiking_recurrent

COMPACT = surrogate.Triangle(width=0.5, height=0.4)


def _layer() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    layer = snnlib.SpikingConvRNN2d(2, 4, 3, padding=1)
    x = (torch.rand(8, 3, 2, 6, 5) < 0.3).float()
    snnlib.prepare_(layer, x, 0.2)
    return layer, x


def test_every_gradient_by_finite_differences() -> None:
    neuron = Soft()
    generator = torch.Generator().manual_seed(1)
    current, weight, state = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((3, 2, 2, 4), (2, 1, 3), (1, 2, 2, 4))
    )
    lengths = torch.tensor([3, 2])

    def run(current: Tensor, w: Tensor, v: Tensor, s: Tensor) -> Any:
        operator = Convolution(1, padding="same", groups=2)
        value, after = spiking_recurrent(current, w, neuron, operator=operator, state=(v, s), lengths=lengths)
        return value, *after

    leaves = [current, weight, state, state.flip(0, 1).clone()]
    assert torch.autograd.gradcheck(run, [leaf.requires_grad_() for leaf in leaves])


def test_a_kernel_as_large_as_its_frame_is_a_full_matrix() -> None:
    """A single pixel: the centre of the kernel is the matrix of a fully connected recurrent layer."""
    torch.manual_seed(0)
    neuron = neurons.LIF(3.0, surrogate=COMPACT)
    current, weight = torch.randn(12, 2, 5) + 0.5, torch.randn(5, 5) / 2
    results = []
    for conv in (False, True):
        leaves = [part.clone().requires_grad_() for part in (current, weight)]
        if conv:
            operator = Convolution(2, padding="same")
            frames, kernel = leaves[0][..., None, None], leaves[1][..., None, None]
            out = spiking_recurrent(frames, kernel, neuron, operator=operator).value[..., 0, 0]
        else:
            out = spiking_recurrent(leaves[0], leaves[1], neuron).value
        out.mul(torch.arange(12.0)[:, None, None]).sum().backward()
        results.append((out, *(leaf.grad for leaf in leaves)))
    assert float(results[0][0].detach().mean()) > 0.05
    assert_bits(results[0][0], results[1][0])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_groups_and_more_axes() -> None:
    line = snnlib.SpikingConvRNN1d(4, 6, 5, stride=2, padding=2, groups=2, recurrent_kernel_size=5)
    assert line(torch.rand(5, 2, 4, 9)).shape == (5, 2, 6, 5)
    assert line.recurrent_weight.shape == (6, 3, 5)
    volume = snnlib.SpikingConvRNN3d(1, 2, 3)
    assert volume(torch.rand(2, 1, 1, 4, 5, 6)).shape == (2, 1, 2, 2, 3, 4)


def test_tools_see_the_recurrence() -> None:
    layer, x = _layer()
    pooled = snnlib.fuse_(nn.Sequential(layer, snnlib.AvgPool2d(2)))
    torch.testing.assert_close(
        pooled(x), nn.functional.avg_pool2d(layer(x).flatten(0, 1), 2).unflatten(0, (8, 3))
    )
    operations = snnlib.losses.SynapticOperationsLoss(layer)
    with operations:
        spikes = layer(x)
    assert float(spikes.detach().mean()) > 0.05
    profile = snnlib.profile(layer, x)
    assert operations.operations().item() == (profile.total.acs + profile.total.macs) / 3
    explanation = snnlib.explain_dispatch(layer, x)
    assert explanation.rate == pytest.approx(float(spikes.detach().mean()))
    assert explanation.recurrence == "step by step in torch (the recurrence is an operator)"
    restored = snnlib.SpikingConvRNN2d(2, 4, 3, padding=1)
    restored.load_state_dict(layer.state_dict())
    assert_bits(restored(x), layer(x))


def _currents_through(operator: Convolution, **options: Any) -> Any:
    current, weight = torch.ones(2, 1, 2, 4), torch.ones(2, 2, 3)
    return spiking_recurrent(current, weight, neurons.LIF(), operator=operator, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: snnlib.SpikingConvRNN2d(2, 4, 3, recurrent_kernel_size=0),
            "recurrent_kernel_size: expected",
        ),
        (lambda: snnlib.SpikingConvRNN2d(3, 4, 3, groups=2), "in_channels: expected a positive multiple"),
        (
            lambda: _layer()[0].run(torch.ones(2, 1, 2, 6, 5), (torch.zeros(2, 1, 4, 6, 5),) * 3),
            "state: expected",
        ),
        (
            lambda: _currents_through(Convolution(1)),
            "weight: expected an operator that keeps the frames' shape (2, 4), got one that makes them (2, 2)",
        ),
        (
            lambda: _currents_through(Convolution(1, padding="same"), delay=torch.zeros(2)),
            "delay: expected None with Convolution, whose connections take one step, got a tensor",
        ),
    ],
)
def test_what_does_not_fit_is_named(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()


@pytest.mark.parametrize("levels", [1, 4])
def test_a_high_surrogate_warns(levels: int) -> None:
    with pytest.warns(UserWarning, match="has a peak of 1") as warned:
        snnlib.SpikingConvRNN2d(1, 1, 3, neuron=neurons.LIF(levels=levels))
    # The surrogate that the warning names.
    advised = eval(str(warned[0].message).partition("surrogate=")[2])
    layer = snnlib.SpikingConvRNN2d(1, 1, 3, neuron=neurons.LIF(levels=levels, surrogate=advised))
    assert layer.neuron.surrogate.spread == ("first" if levels == 1 else "every")
