"""Statistics of batch norm: running statistics, and statistics over several processes on CPUs."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def update_statistics(norm: _BatchNorm, mean: Tensor, variance: Tensor, count: float) -> None:
    """Updates the running statistics by those of a batch of `count` values per channel, as torch's batch norm does.

    Mean and variance are without gradients.
    """
    if not (norm.training and norm.track_running_stats) or norm.running_mean is None:
        return
    assert norm.running_var is not None and norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    for running, now in ((norm.running_mean, mean), (norm.running_var, variance * (count / (count - 1)))):
        running.mul_(1 - share).add_(share * now.to(running.dtype))


def along(values: Tensor, frames: Tensor) -> Tensor:
    """Returns values per channel `[C]` in the shape that multiplies frames `[B, C, ...]`."""
    return values.to(frames.dtype).reshape(-1, *[1] * (frames.dim() - 2))


def is_joint(norm: nn.Module, frames: Tensor) -> bool:
    """Returns whether statistics are over several processes on CPUs, which torch's `SyncBatchNorm` rejects."""
    synced = isinstance(norm, nn.SyncBatchNorm) and norm.training and frames.device.type == "cpu"
    return synced and dist.is_available() and dist.is_initialized()


class _JointSum(torch.autograd.Function):
    """Sum of a tensor over processes, which every process gets."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = tensor.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _JointSum.apply(grad, ctx.group), None  # type: ignore[no-untyped-call]


def normalize_jointly(norm: Any, frames: Tensor, scale: float) -> Tensor:
    """Returns frames normalised by the statistics of all processes' batches."""
    over = [0, *range(2, frames.dim())]
    wide = frames.to(torch.promote_types(frames.dtype, torch.float32))

    def joint_sum(values: Tensor) -> Tensor:
        return _JointSum.apply(values, norm.process_group)  # type: ignore[no-any-return, no-untyped-call]

    count = float(joint_sum(torch.tensor(frames.numel() / frames.shape[1], dtype=torch.float64)))
    if count < 2:
        raise ValueError(f"x: expected more than one value per channel in all processes, got {count:g}")
    mean = joint_sum(wide.sum(over)) / count
    centred = wide - along(mean, wide)
    variance = joint_sum(centred.square().sum(over)) / count
    update_statistics(norm, mean.detach(), variance.detach(), count)
    factor = (variance + norm.eps).rsqrt() * scale
    out = centred * along(factor if norm.weight is None else factor * norm.weight, wide)
    return (out if norm.bias is None else out + along(norm.bias, wide)).to(frames.dtype)
