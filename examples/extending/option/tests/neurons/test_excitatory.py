"""LIF neurons whose negative currents count as none: against currents cut by hand, and in a layer."""

import torch
from compare import assert_bits

from snnlib import SpikingLinear
from snnlib.neurons import LIF


def test_equals_currents_that_were_cut() -> None:
    x = torch.randn(20, 2, 5, generator=torch.Generator().manual_seed(0))
    for options in ({}, {"refractory": 2}, {"reset": "subtract"}):
        given, cut = x.clone().requires_grad_(), x.clone().requires_grad_()
        spikes, expected = LIF(excitatory=True, **options)(given), LIF(**options).reference(cut.relu()).value
        assert_bits(spikes.detach(), expected.detach())
        spikes[-1].sum().backward()
        expected[-1].sum().backward()
        assert_bits(given.grad, cut.grad)
        assert not given.grad[x < 0].any()


def test_runs_by_step_everywhere() -> None:
    neuron = LIF(excitatory=True)
    assert neuron.dynamics(neuron.constants()) is None
    layer = SpikingLinear(3, 4, neuron=neuron)
    layer(torch.ones(5, 2, 3)).sum().backward()
    assert layer.weight.grad is not None
