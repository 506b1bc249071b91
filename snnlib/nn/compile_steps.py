"""Turns on compiled blocks of steps for the neurons of a net that no kernel knows."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from snnlib.checks import check_count
from snnlib.neurons.base import Neuron
from snnlib.neurons.compiled_steps import STEPS, CompiledSteps

__all__ = ["compile_steps_"]

Net = TypeVar("Net", bound=nn.Module)


def compile_steps_(net: Net, steps: int = STEPS) -> Net:
    """Compile the `step` of a net's own neurons, in place; returns the net.

    Neurons that no kernel knows run step by step in torch, one pass over memory for each operation. From now on they
    run in blocks of steps that torch's compiler has made, which needs a C++ compiler. The first call compiles: some ten
    seconds for each neuron and dtype, and for training and inference apart; a line on standard error says so. Values
    and gradients are those of the loop up to the order of sums. Steps that are left over, and sequences shorter than a
    block, run in the loop; so does a `step` that cannot be compiled, and a warning says why.

    Neurons with kernels and recurrent layers stay as they are, and so do `state_dict` and settings.

    Args:
        net: any module, or a neuron.
        steps: time steps of a block. Default 20: compiling takes longer in proportion, and a longer block is hardly
            faster.

    Raises:
        ValueError, TypeError: `steps` is no whole number >= 1.

    >>> import torch, snnlib
    >>> class Leaky(snnlib.neurons.Neuron):
    ...     state_names = ("v",)
    ...     def step(self, state, current, params):
    ...         v = 0.9 * state[0] + current
    ...         spike = snnlib.surrogate.spike(v - 1, torch.ones(()), snnlib.surrogate.Triangle())
    ...         return spike, (v * (1 - spike.detach()),)
    >>> net = snnlib.compile_steps_(torch.nn.Sequential(snnlib.SpikingLinear(8, 4, neuron=Leaky())))
    >>> net(torch.rand(10, 2, 8)).shape  # shorter than a block
    torch.Size([10, 2, 4])
    """
    check_count("steps", steps)
    for module in net.modules():
        if not isinstance(module, Neuron) or type(module)._over_steps is not Neuron._over_steps:
            continue
        # Those with dynamics run by kernels, which look at every attribute of a neuron before they keep its tables.
        if module._own_dynamics() is None:
            module.compiled_steps = CompiledSteps(Neuron._over_steps, steps)
    return net
