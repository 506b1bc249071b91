"""A block of convolution, batch norm, surrogate neurons and pooling: `PerStep(conv, norm)` with neurons behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib import ops
from snnlib.functional._autocast import autocast_dtype
from snnlib.functional._check import check_dtype, check_floating
from snnlib.functional.event_driven import as_event_driven
from snnlib.functional.normalized import after_affine, batch_normalized_neurons
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator
from snnlib.functional.spiking import fused_layer, layer_currents, run_and_pool, spiking_layer
from snnlib.neurons import Neuron
from snnlib.nn.batch_norm import BatchNorm, BatchNorm1d, BatchNorm2d, count_batch
from snnlib.nn.fused_block import Block, Child, check_pool
from snnlib.nn.per_step import AvgPool2d, PerStep, pooling_window

Linear = nn.Conv1d | nn.Conv2d | nn.Linear
Norm = nn.BatchNorm1d | nn.BatchNorm2d | BatchNorm
_NORMS = {
    nn.Conv1d: (nn.BatchNorm1d, BatchNorm1d),
    nn.Conv2d: (nn.BatchNorm2d, BatchNorm2d),
    nn.Linear: (nn.BatchNorm1d, BatchNorm1d),
}


def linear_and_norm(children: Sequence[nn.Module]) -> tuple[Linear, Norm | None, int] | None:
    """What a block begins with: the map, its batch norm if it has one, and of how many children they are made."""
    per_step = children[0]
    if type(per_step) is not PerStep or not 1 <= len(per_step) <= 2:
        return None
    linear = per_step[0]
    kinds = _NORMS.get(type_before_parametrizations(linear))
    if kinds is None or getattr(linear, "padding_mode", "zeros") != "zeros":
        return None
    norm, used = None, 1
    if len(per_step) == 2:
        norm = per_step[1]
        if type(norm) is not kinds[0]:
            return None
    elif len(children) > 1 and type(children[1]) is kinds[1] and children[1].time_steps is None:
        norm, used = children[1], 2
    return cast(Linear, linear), cast("Norm | None", norm), used


class NormalizedNeurons(Block):
    """Event-driven currents, batch norm that the neurons apply as they read them, and pooling of their spikes."""

    def __init__(
        self,
        parts: Sequence[nn.Module],
        linear: Linear,
        norm: Norm | None,
        neuron: Neuron,
        window: tuple[int, int],
    ) -> None:
        super().__init__(parts, linear, neuron, window)
        # A tuple, as they are children of the net and not of the block.
        self._before = linear, norm

    def run_fused(self, x: Tensor) -> Tensor:
        """Pooled spikes."""
        check_floating("x", x)
        (linear, norm), neuron = self._before, cast(Neuron, self.neurons)
        weight = linear.weight
        if autocast_dtype(x) is None:
            check_dtype("x", x, weight.dtype)
        plain = x.dtype == weight.dtype == torch.float32 and autocast_dtype(x) is None
        # torch's linear maps act on the last axis alone.
        if not plain or torch.compiler.is_compiling() or (isinstance(linear, nn.Linear) and x.dim() != 3):
            return self.run_apart(x)
        operator, time_dim = _operator(linear), int(neuron.batch_first)
        if norm is None and linear.bias is None:
            return spiking_layer(x, weight, operator, neuron, return_state=False, pool=self.window).value
        operator.check(x, weight)
        neuron.check_channels(len(weight), x)
        if norm is not None and _by_batch(norm):
            current = layer_currents(x, weight, operator, time_dim)
            if current.numel() // max(current.shape[2], 1) < 2:
                # torch has an error for it.
                return self.run_apart(x)
            return _by_statistics(current, linear.bias, norm, neuron, self.window)
        scale, shift = _running_affine(linear.bias, norm, len(weight))
        conv = as_event_driven(operator, x, weight)
        dynamics = neuron.dynamics(neuron.constants())
        learns = any(tensor.requires_grad for tensor in (scale, shift, x, weight)) and torch.is_grad_enabled()
        if dynamics is not None and not isinstance(conv, str) and not learns:
            out = fused_layer(conv, neuron, after_affine(dynamics, scale, shift), None, False, self.window)
            if out is not None:
                return out.value
        current = layer_currents(x, weight, operator, time_dim)
        normalized = current * _along(scale.float(), current) + _along(shift.float(), current)
        return run_and_pool(neuron, normalized, None, self.window, normalized.dtype).value


def _operator(linear: Linear) -> LinearOperator:
    if isinstance(linear, nn.Linear):
        return FullyConnected()
    return Convolution(len(linear.kernel_size), linear.stride, linear.padding, linear.dilation, linear.groups)


def _by_batch(norm: Norm) -> bool:
    return norm.training or norm.running_mean is None


def _gamma(norm: Norm) -> Tensor:
    """The factor of the normalised currents."""
    if norm.affine:
        gamma: Tensor = norm.weight
    else:
        gamma = torch.ones(norm.num_features, device=getattr(norm.running_mean, "device", None))
    return gamma * norm.scale if isinstance(norm, BatchNorm) else gamma


def _running_affine(bias: Tensor | None, norm: Norm | None, channels: int) -> tuple[Tensor, Tensor]:
    """(scale, shift) per channel in float64, of a bias and of batch norm by its running statistics."""
    offset = torch.zeros(channels, dtype=torch.float64) if bias is None else bias.double()
    if norm is None:
        return torch.ones_like(offset), offset
    assert norm.running_mean is not None and norm.running_var is not None
    scale = _gamma(norm).double() * (norm.running_var.double() + norm.eps).rsqrt()
    shift = (offset - norm.running_mean.double()) * scale
    return scale, shift if norm.bias is None else shift + norm.bias.double()


def _along(values: Tensor, current: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (current.dim() - 3))


def _by_statistics(
    current: Tensor, bias: Tensor | None, norm: Norm, neuron: Neuron, window: tuple[int, int]
) -> Tensor:
    """Pooled neurons on currents that are normalised by their own statistics, which also move the running ones."""
    gamma = _gamma(norm)
    beta: Tensor = torch.zeros_like(gamma) if norm.bias is None else norm.bias
    if bias is not None:
        # It goes with the mean: its gradient is zero, as everywhere else.
        beta = beta + 0 * bias
    moments = ops.batch_norm.moments(current.detach())
    mean = moments[0] if bias is None else moments[0] + bias.detach().double()
    _update(norm, mean, moments[1], current.numel() // current.shape[2])
    value = batch_normalized_neurons(current, moments, gamma, beta, norm.eps, neuron, window)
    if value is not None:
        return value
    frames = F.batch_norm(current.flatten(0, 1), None, None, gamma, beta, True, 0.0, norm.eps)
    return run_and_pool(neuron, frames.view_as(current), None, window, current.dtype).value


@torch.no_grad()
def _update(norm: Norm, mean: Tensor, variance: Tensor, count: int) -> None:
    """Running statistics, as in `torch.nn.BatchNorm2d`."""
    if not norm.training or norm.running_mean is None:
        return
    assert norm.running_var is not None
    share = count_batch(norm)
    for running, now in ((norm.running_mean, mean), (norm.running_var, variance * (count / (count - 1)))):
        running.mul_(1 - share).add_(share * now.to(running.dtype))


def normalized_neurons_at(children: Sequence[Child]) -> NormalizedNeurons | None:
    """The block of this kind that begins with the first of these neighbours, if there is one."""
    modules = [module for _, module in children]
    found = linear_and_norm(modules)
    if found is None or len(modules) <= found[2]:
        return None
    linear, norm, used = found
    neuron = modules[used]
    # Weights of neurons with an event-driven gradient get another signal than their currents.
    if not isinstance(neuron, Neuron) or neuron.gradient != "surrogate":
        return None
    window, parts = (1, 1), modules[: used + 1]
    if len(modules) > used + 1:
        (name, _), (pool_name, pool) = children[used : used + 2]
        check_pool(name, pool_name, pool)
        own = pooling_window(pool) if type(pool) is AvgPool2d and isinstance(linear, nn.Conv2d) else None
        if own is not None:
            window, parts = own, modules[: used + 2]
    return NormalizedNeurons(parts, linear, norm, neuron, window)
