"""A block of convolution, batch norm, surrogate neurons and pooling: `PerStep(conv, norm)` with neurons behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib import ops
from snnlib.backends.arguments import LinearKernel
from snnlib.functional.normalized import affine_kernel, along_channels, scaled_neurons
from snnlib.functional.paths import Path
from snnlib.functional.plan import layer_currents, plan_layer
from snnlib.functional.pool import neurons_and_pool, pooled
from snnlib.functional.spiking import spiking_layer
from snnlib.neurons import Neuron
from snnlib.neurons.base import start_state
from snnlib.neurons.constants import check_channels
from snnlib.nn.fusion.event_driven_map import linear_map_of, run_on_events
from snnlib.nn.fusion.fused_block import (
    Block,
    Child,
    check_pool,
    flattened_layer_at,
    flattens,
    pooled_layer_at,
)
from snnlib.nn.fusion.linear_map import LinearMap, operator_of, runs_on_events, with_bias
from snnlib.nn.layers.per_step import AvgPool2d, PerStep, pooling_window
from snnlib.nn.norm.batch_norm import BatchNorm1d, BatchNorm2d
from snnlib.nn.norm.joint_statistics import update_statistics
from snnlib.ops.normalized_scan import Normalization
from snnlib.ops.sequence_layout import frames_of, sequence_of
from snnlib.sequences.time_first import time_first

# Torch's batch norm, and the factor of what it gives.
Norm = tuple[nn.BatchNorm1d | nn.BatchNorm2d, float]
_NORMS = {
    nn.Conv1d: (nn.BatchNorm1d, BatchNorm1d),
    nn.Conv2d: (nn.BatchNorm2d, BatchNorm2d),
    nn.Linear: (nn.BatchNorm1d, BatchNorm1d),
}


def linear_and_norm(children: Sequence[nn.Module]) -> tuple[LinearMap, Norm | None, int] | None:
    """Returns the first modules of a block: the map, its batch norm or None, and the number of children."""
    linear = linear_map_of(children[0])
    if linear is None:
        return None
    kinds = _NORMS.get(type(linear)) or _NORMS.get(type_before_parametrizations(linear))
    if kinds is None:
        return None
    _, *within = children[0]._modules.values()
    behind = children[1] if len(children) > 1 else None
    if within:
        # Others than one batch norm are torch's affair.
        only = type(within[0]) is kinds[0] and len(within) == 1
        return (linear, cast(Norm, (within[0], 1.0)), 1) if only else None
    if type(behind) is PerStep:
        of_torch, *others = behind._modules.values() or [None]
        if type(of_torch) is kinds[0] and not others:
            return linear, cast(Norm, (of_torch, 1.0)), 2
    if type(behind) is kinds[1] and behind.time_steps is None and type(behind.norm) is kinds[0]:
        return linear, cast(Norm, (behind.norm, behind.scale)), 2
    return linear, None, 1


class NormalizedNeurons(Block):
    """Block of event-driven currents, batch norm that the neurons apply on reading, and pooling of their spikes.

    A fully connected map behind a flattening reads frames as they are in memory.
    """

    def __init__(self, parts: Sequence[nn.Module], *rest: Any) -> None:
        super().__init__(parts, *rest)
        self._without_flattening = self.parts[int(flattens(self.parts[0])) :]

    def run_fused(self, x: Tensor) -> Tensor:
        """Pooled spikes."""
        linear, neuron = cast(LinearMap, self.weighted), cast(Neuron, self.neurons)
        parts, order = self._without_flattening, neuron.batch_first
        if not runs_on_events(linear, x, len(parts) < len(self.parts)):
            return self.run_apart(x)
        # Anew in each call, as torch.nn.SyncBatchNorm.convert_sync_batchnorm replaces batch norms of a fused net.
        found = linear_and_norm(parts)
        if found is None or parts[found[2]] is not neuron:
            return self.run_apart(x)
        spikes = self._run_on_events(x, linear, found[1], neuron)
        order = neuron.batch_first
        neuron.training_watch.watch(neuron, time_first(x, order), linear.weight, time_first(spikes, order))
        return spikes

    def _run_on_events(self, x: Tensor, linear: LinearMap, norm: Norm | None, neuron: Neuron) -> Tensor:
        weight, operator = linear.weight, operator_of(linear)
        if norm is None and linear.bias is None:
            return spiking_layer(x, weight, operator, neuron, return_state=False, pool=self.window).value
        check_channels(neuron, weight.shape[0], x)
        on_cpu = x.device.type == "cpu" and not ops.normalized_scan.has_kernels(x)
        run, order = self._run_on_cpu if on_cpu else self._run_on_device, neuron.batch_first
        return time_first(run(time_first(x, order), linear, norm, neuron), order)

    def _run_on_cpu(self, x: Tensor, linear: LinearMap, norm: Norm | None, neuron: Neuron) -> Tensor:
        """Runs neurons that normalise their currents on reading."""
        weight, operator = linear.weight, operator_of(linear)
        if norm is not None and _by_batch(norm):
            current = layer_currents(x, weight, operator)
            if current.numel() // max(current.shape[2], 1) < 2:
                # torch has an error for it.
                return time_first(self.run_apart(time_first(x, neuron.batch_first)), neuron.batch_first)
            return _by_statistics(current, linear.bias, norm, neuron, self.window)
        scale, mean, offset = _running_affine(linear.bias, norm, weight)
        shifted = affine_kernel(neuron, x, scale, offset - mean * scale)
        if shifted is not None:
            plan = plan_layer(
                x, weight, operator, neuron, kernel=shifted, return_state=False, pool=self.window
            )
            if plan.path is Path.LAYER:
                return plan.run(x, weight).value
        current = layer_currents(x, weight, operator)
        return _scaled(current, scale, mean, offset, neuron, self.window)

    def _run_on_device(self, x: Tensor, linear: LinearMap, norm: Norm | None, neuron: Neuron) -> Tensor:
        """Runs neurons that normalise their currents on reading, without waiting for the device.

        Other neurons, layouts and options run torch's batch norm, then neurons and pooling in one kernel.
        """
        current = layer_currents(x, linear.weight, operator_of(linear))
        value = None if norm is None else _normalized(current, linear, norm, neuron, self.window)
        if value is not None:
            return value
        current = with_bias(linear, current)
        parts, order = self._without_flattening, neuron.batch_first
        first, *others = parts[: parts.index(neuron)]
        current = cast(PerStep, first).run_from(1, time_first(current, order))
        for part in others:
            current = part(current)
        return pooled_neurons(time_first(current, order), neuron, self.window)


def _by_batch(norm: Norm) -> bool:
    return norm[0].training or norm[0].running_mean is None


def _normalized(
    current: Tensor, linear: LinearMap, norm: Norm, neuron: Neuron, window: tuple[int, int]
) -> Tensor | None:
    """Returns pooled spikes of neurons that normalise their currents on reading, or None where torch's batch norm runs.

    Updates the running statistics.
    """
    of_torch, factor = norm
    kernel, share = neuron.kernel(current), of_torch.momentum
    # An average over all batches reads their number; torch has an error for a single value.
    few = current.numel() // max(current.shape[2], 1) < 2
    if share is None or few or not isinstance(kernel, LinearKernel):
        return None
    if not ops.normalized_scan.takes(current, kernel):
        return None
    bias: Tensor | None = of_torch.bias
    running = mean, variance = of_torch.running_mean, of_torch.running_var
    if _by_batch(norm):
        if not of_torch.track_running_stats:
            running = None, None
        mean, variance = torch.batch_norm_update_stats(frames_of(current.detach(), current), *running, share)
        if linear.bias is not None:
            # It goes with the mean: its gradient is zero, as everywhere else.
            bias = 0 * linear.bias + (0 if bias is None else bias)
        if running[0] is not None:
            cast(Tensor, of_torch.num_batches_tracked).add_(1)
            if linear.bias is not None:
                running[0].add_(linear.bias.detach(), alpha=share)
    else:
        current = with_bias(linear, current)
    numbers = Normalization(
        cast(Tensor, mean), cast(Tensor, variance), of_torch.weight, bias, of_torch.eps, factor
    )
    start = start_state(neuron, current.shape[1:], current)
    one_pass = ops.scan_pool.can_fuse(current, kernel, window)
    cells = window if one_pass else (1, 1)
    value = ops.normalized_scan.run(current, replace(kernel, state=start), cells, numbers, _by_batch(norm))
    return value if one_pass else pooled(value, window, neuron)


def _gamma(norm: Norm) -> Tensor:
    """Returns the factor of the normalised currents."""
    of_torch, factor = norm
    if of_torch.affine:
        return of_torch.weight * factor
    device = getattr(of_torch.running_mean, "device", None)
    return torch.full((of_torch.num_features,), factor, device=device)


def _running_affine(bias: Tensor | None, norm: Norm | None, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (scale, mean, offset) per channel in float64, from a bias and the running statistics of batch norm."""
    none = weight.new_zeros(len(weight), dtype=torch.float64)
    offset = none if bias is None else bias.double()
    if norm is None:
        return torch.ones_like(none), none, offset
    of_torch = norm[0]
    assert of_torch.running_mean is not None and of_torch.running_var is not None
    scale = _gamma(norm).double() * (of_torch.running_var.double() + of_torch.eps).rsqrt()
    # The bias is an offset of its own, as it learns.
    offset = scale * offset if of_torch.bias is None else scale * offset + of_torch.bias.double()
    return scale, of_torch.running_mean.double(), offset


def _scaled(
    current: Tensor, scale: Tensor, mean: Tensor, offset: Tensor, neuron: Neuron, window: tuple[int, int]
) -> Tensor:
    """Returns pooled spikes of neurons on `scale (current - mean) + offset`."""
    value = scaled_neurons(current, scale, mean, offset, neuron, window)
    if value is not None:
        return value
    normalized = current * along_channels(scale, current) + along_channels(offset - mean * scale, current)
    return pooled_neurons(normalized, neuron, window)


def _by_statistics(
    current: Tensor, bias: Tensor | None, norm: Norm, neuron: Neuron, window: tuple[int, int]
) -> Tensor:
    """Returns pooled spikes for currents normalised by the batch; updates the running statistics."""
    of_torch, factor = norm
    moments = ops.batch_norm.moments(current.detach())
    weight: Tensor | None = of_torch.weight
    beta: Tensor = moments.new_zeros(moments.shape[1]) if of_torch.bias is None else of_torch.bias
    mean = moments[0]
    if bias is not None:
        # It goes with the mean: its gradient is zero, as everywhere else.
        beta, mean = beta + 0 * bias, mean + bias.detach().double()
    update_statistics(of_torch, mean, moments[1], current.numel() // current.shape[2])
    rate = (moments[1] + of_torch.eps).rsqrt_().mul_(factor)
    batch = moments, of_torch.eps
    value = scaled_neurons(current, weight, moments[0], beta, neuron, window, rate, batch)
    if value is not None:
        return value
    numbers = None, None, _gamma(norm), beta.to(current.dtype), True, 0.0, of_torch.eps
    frames = F.batch_norm(frames_of(current, current), *numbers)
    return pooled_neurons(sequence_of(frames, current), neuron, window)


def pooled_neurons(current: Tensor, neuron: Neuron, window: tuple[int, int]) -> Tensor:
    """Returns the pooled spikes of neurons for their currents."""
    return neurons_and_pool(neuron, neuron.kernel(current), current, None, window, current.dtype).value


class FlattenedMap(Block):
    """Block of a flattening and an event-driven fully connected map, which reads frames as they are in memory."""

    def run_fused(self, x: Tensor) -> Tensor:
        """Returns currents."""
        out = run_on_events(cast(PerStep, self.parts[1]), x, flattens=True)
        return self.run_apart(x) if out is None else out


def block_at(children: Sequence[Child]) -> Block | None:
    """Returns the block that begins at the first of these neighbours, or None."""
    found = pooled_layer_at(children) or flattened_layer_at(children) or normalized_neurons_at(children)
    if found is None and len(children) > 1 and flattens(children[0][1]):
        (_, first), (_, behind) = children[:2]
        linear = linear_map_of(behind)
        if isinstance(linear, nn.Linear):
            return FlattenedMap((first, behind), linear, behind, (1, 1))
    return found


def _does_more(neuron: Neuron) -> bool:
    """Returns whether a user's class changes what happens around the steps of its neurons, which a block leaves out."""
    names = "forward", "run", "scan"
    return any(not getattr(type(neuron), name).__module__.startswith("snnlib.") for name in names)


def normalized_neurons_at(children: Sequence[Child]) -> NormalizedNeurons | None:
    """Returns the block of this kind that begins at the first of these neighbours, or None."""
    modules = [module for _, module in children]
    skipped = int(flattens(modules[0]))
    found = linear_and_norm(modules[skipped:]) if len(modules) > skipped else None
    if (
        found is None
        or len(modules) <= skipped + found[2]
        or (skipped and not isinstance(found[0], nn.Linear))
    ):
        return None
    linear, _, used = found
    used += skipped
    neuron = modules[used]
    # Weights of neurons with an event-driven gradient get another signal than their currents.
    if not isinstance(neuron, Neuron) or neuron.gradient != "surrogate" or _does_more(neuron):
        return None
    window, parts = (1, 1), modules[: used + 1]
    if len(modules) > used + 1:
        (name, _), (pool_name, pool) = children[used : used + 2]
        check_pool(name, pool_name, pool)
        own = pooling_window(pool) if type(pool) is AvgPool2d and isinstance(linear, nn.Conv2d) else None
        if own is not None:
            window, parts = own, modules[: used + 2]
    return NormalizedNeurons(parts, linear, neuron, window)
