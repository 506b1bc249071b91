"""Bounds of potentials and time constants: the values of `clamp`, and a gradient that passes at the bound itself."""

import copy
import math

import pytest
import torch
from compare import assert_bits
from torch import Tensor

import snnlib
from snnlib.neurons.dynamics import at_least
from snnlib.surrogate import ATan, Triangle

VALUES = [-math.inf, -2.0, -0.1, -0.0, 0.0, 1e-40, 0.1, 0.5, math.inf, math.nan]
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("low", [-math.inf, -0.1, -0.0, 0.0, 0.1, math.inf])
@pytest.mark.parametrize("copies", [1, 9])
def test_values_are_those_of_clamp(dtype: torch.dtype, low: float, copies: int) -> None:
    """Ten values go through the loop, ninety through vectors."""
    x = torch.tensor(VALUES * copies, dtype=dtype)
    assert_bits(at_least(x, low), x.clamp(min=low))


def test_layouts_are_kept() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert at_least(x, 0.0).stride() == x.stride()


def slope(x: Tensor) -> Tensor:
    return torch.func.grad(lambda x: at_least(x, 0.5).sum())(x)


# torch scripts its own formulas before the first pass forwards.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is ")
@pytest.mark.parametrize("way", ["eager", "vmap", "forward mode"])
def test_gradient_passes_at_the_bound(way: str) -> None:
    x, expected = torch.tensor([-1.0, 0.25, 0.5, 2.0, math.nan]), [0.0, 0.0, 1.0, 1.0, 1.0]
    if way == "vmap":
        found = torch.func.vmap(slope)(x)
    elif way == "forward mode":
        _, found = torch.func.jvp(lambda x: at_least(x, 0.5), (x,), (torch.ones_like(x),))
    else:
        found = slope(x)
    assert found.tolist() == expected


def test_it_compiles_and_traces() -> None:
    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    compiled = torch.compile(at_least, fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(x, 0.5).sum(), x)
    assert found.tolist() == [0.0, 1.0, 1.0]
    traced = torch.fx.symbolic_trace(lambda x: at_least(x, 0.5))
    assert_bits(traced(x), at_least(x, 0.5))


# A neuron with a constant at its bound, and the constant.
AT_BOUND = [
    (snnlib.neurons.LIF(1.0, learnable=("tau",)), "tau"),
    (snnlib.neurons.QIF(1.0, learnable=("tau",)), "tau"),
    (snnlib.neurons.Izhikevich(tau_m=1.0, tau_a=1.0, a=0.5, learnable=("tau_m", "tau_a")), "tau_m"),
    (snnlib.neurons.Izhikevich(tau_m=1.0, tau_a=1.0, a=0.5, learnable=("tau_m", "tau_a")), "tau_a"),
]


@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize(("neuron", "name"), AT_BOUND, ids=lambda part: str(part)[:12])
def test_constants_at_their_bound_learn(neuron: snnlib.neurons.Neuron, name: str, by_step: bool) -> None:
    """Their gradient there is that right above."""
    x = torch.rand(6, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gradients = []
    for value in (1.0, 1.0 + 2**-20):
        one = copy.deepcopy(neuron)
        getattr(one, name).data.fill_(value)
        state = (one.reference if by_step else one.run)(x).state[0]
        gradients.append(torch.autograd.grad(state[0].sum(), getattr(one, name))[0])
    assert gradients[0] != 0
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


def test_a_membrane_on_its_floor_sees_its_input() -> None:
    """Gradients by `step` equal those of the kernels."""
    neuron, slopes = snnlib.neurons.IF(floor=0.0, surrogate=Triangle()), []
    for run in (neuron.run, neuron.reference):
        x = torch.zeros(4, 1, 1, requires_grad=True)
        slopes.append(torch.autograd.grad(run(x).state[0].sum(), x)[0].flatten().tolist())
    assert slopes == [[1.0] * 4] * 2


def test_several_levels_that_reset_pass_the_gradient_of_one() -> None:
    """A single spike of a neuron that may fire several times in a step."""
    found = []
    for most in (1, 3):
        neuron = snnlib.neurons.IF(
            levels=most, level_rounding="floor", reset="zero", detach_reset=False, surrogate=ATan()
        )
        x = torch.tensor([[[1.25]]], requires_grad=True)
        found.append(torch.autograd.grad(neuron.reference(x).state[0].sum(), x)[0])
    assert_bits(*found)


def test_the_balanced_damping_ends_without_infinities() -> None:
    """At `dt omega = 1`, where the root's slope is infinite, the rest of the frequency's gradient is left."""
    neuron = snnlib.neurons.BRF()
    neuron.omega.data.fill_(1 / neuron.dt)
    neuron.run(torch.ones(4, 1, 1)).state[0].sum().backward()
    assert neuron.omega.grad.isfinite()


def test_operations_at_their_target_lower_the_rate() -> None:
    """The hinge of `SynapticOperationsLoss` at its corner."""
    net = torch.nn.Linear(2, 3)
    loss = snnlib.losses.SynapticOperationsLoss(net, target=6.0)
    x = torch.ones(1, 1, 2, requires_grad=True)
    with loss:
        net(x)
    assert loss() == 0
    assert (torch.autograd.grad(loss(), x)[0] > 0).all()
