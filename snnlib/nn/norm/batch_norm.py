"""Batch normalisation over sequences: statistics shared over time or per step, scaled to the threshold."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnlib.checks import check_count, check_flag, check_floating, check_number
from snnlib.neurons.module import move_keys
from snnlib.nn.norm.joint_statistics import along, is_joint, normalize_jointly
from snnlib.sequences.time_first import time_first

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]

# Parameters, buffers, options and methods of torch's batch norm, which is a part of the module here.
_TENSORS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_OPTIONS = ("num_features", "eps", "momentum", "affine", "track_running_stats")
_OF_TORCH = frozenset((*_TENSORS, *_OPTIONS, "reset_parameters", "reset_running_stats"))


class BatchNorm(nn.Module):
    """Base of `BatchNorm1d` to `BatchNorm3d`: torch's batch norm `norm` over the frames of a sequence.

    Tools that search for `torch.nn.BatchNorm2d` find `norm`, and may freeze it, reset it or replace it by a
    `SyncBatchNorm`; its mode and options apply. Tensors and options of `norm` are also attributes of this module. The
    keys of the `state_dict` are torch's.
    """

    # Shapes of a step of one sample.
    layouts: tuple[str, ...]
    # Torch's class for folded frames.
    kind: ClassVar[type[_BatchNorm]]
    norm: _BatchNorm

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        time_steps: int | None = None,
        threshold: float | None = None,
        alpha: float = 1.0,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_count("channels", channels)
        if time_steps is not None:
            check_count("time_steps", time_steps)
        check_number("eps", eps)
        if not 0 <= eps < math.inf:
            raise ValueError(f"eps: expected a finite number >= 0, got {eps}")
        if momentum is not None:
            check_number("momentum", momentum)
            if not 0 <= momentum <= 1:
                raise ValueError(f"momentum: expected a share of 0 to 1, or None, got {momentum}")
        flags = {"affine": affine, "track_running_stats": track_running_stats, "batch_first": batch_first}
        for name, flag in flags.items():
            check_flag(name, flag)
        for name, value in (("threshold", threshold), ("alpha", alpha)):
            if value is not None:
                check_number(name, value)
                if not value > 0:
                    raise ValueError(f"{name}: expected a number > 0, got {value}")
        super().__init__()
        numbers = channels * (1 if time_steps is None else time_steps)
        self.norm = self.kind(numbers, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.channels, self.time_steps, self.batch_first = channels, time_steps, batch_first
        self.threshold, self.alpha = threshold, alpha

    def __getattr__(self, name: str) -> Any:
        """Returns attributes of torch's batch norm in addition to the module's own."""
        return getattr(self.norm, name) if name in _OF_TORCH else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Passes tensors and options of torch's batch norm on to it."""
        if name in _OF_TORCH:
            setattr(self.norm, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def scale(self) -> float:
        """Factor of the normalised currents, `alpha * threshold`."""
        return self.alpha * (1.0 if self.threshold is None else self.threshold)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the normalised currents, in the input's shape."""
        check_floating("x", x)
        ranks = [layout.count(",") + 3 for layout in self.layouts]
        if x.dim() not in ranks or x.shape[2] != self.channels:
            first = "N, T" if self.batch_first else "T, N"
            expected = " or ".join(f"[{first}, {layout}]" for layout in self.layouts)
            raise ValueError(f"x: expected {expected} with C = {self.channels}, got shape {tuple(x.shape)}")
        self._check_dtype(x)
        if self.time_steps is None:
            return self._normalize(x.flatten(0, 1)).view_as(x)
        sequence = time_first(x, self.batch_first)
        if len(sequence) != self.time_steps:
            raise ValueError(
                f"x: expected {self.time_steps} time steps, each with statistics of its own, got shape {tuple(x.shape)}"
            )
        # A channel of a step is a channel of its own.
        by_sample = sequence.transpose(0, 1)
        out = self._normalize(by_sample.flatten(1, 2)).view(by_sample.shape)
        return time_first(out.transpose(0, 1), self.batch_first)

    @property
    def _dtype(self) -> torch.dtype | None:
        """Dtype of weight and running statistics; None without either."""
        own = self.weight if self.weight is not None else self.running_mean
        return None if own is None else own.dtype

    def _check_dtype(self, x: Tensor) -> None:
        # Half-precision currents with parameters of float32 are torch's mixed precision.
        mixed = x.dtype in (torch.float16, torch.bfloat16) and self._dtype == torch.float32
        if self._dtype is not None and x.dtype != self._dtype and not mixed:
            raise TypeError(
                f"x: expected {self._dtype}, the dtype of weight and running statistics, got {x.dtype}; "
                f"convert one of them, e.g. with .to({self._dtype})"
            )

    def _normalize(self, frames: Tensor) -> Tensor:
        norm = self.norm
        if is_joint(norm, frames):
            return normalize_jointly(norm, frames, self.scale)
        by_batch = norm.training or norm.running_mean is None
        if by_batch and 0 < frames.numel() <= frames.shape[1]:
            raise ValueError(
                "x: expected more than one value per channel for statistics of the batch, got "
                f"{frames.numel()} in {frames.shape[1]} channels"
            )
        if self.scale == 1:
            return norm(frames)  # type: ignore[no-any-return]
        out = norm(frames) * self.scale
        return out if norm.bias is None else out + along(norm.bias * (1 - self.scale), out)  # type: ignore[no-any-return]

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Returns the `state_dict` with the keys of torch's batch norm, without `norm.`."""
        stored = super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        move_keys(stored, _TENSORS, f"{prefix}norm.", prefix)
        return stored

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        move_keys(state_dict, _TENSORS, prefix, f"{prefix}norm.")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """Options, those over time where they differ from the defaults."""
        text = f"{self.channels}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        shown = {"time_steps": self.time_steps, "threshold": self.threshold}
        text += "".join(f", {name}={value}" for name, value in shown.items() if value is not None)
        if self.alpha != 1:
            text += f", alpha={self.alpha:g}"
        return text + (", batch_first=True" if self.batch_first else "")

    def __repr__(self) -> str:
        """Returns one line, with the class of `norm` if a tool has replaced it."""
        kind = type(self.norm)
        other = "" if kind is self.kind else f", {kind.__name__}"
        return f"{type(self).__name__}({self.extra_repr()}{other})"


class BatchNorm1d(BatchNorm):
    """Batch normalisation of sequences `[T, N, C]` or `[T, N, C, L]`; see `BatchNorm2d`."""

    layouts = ("C", "C, L")
    kind = nn.BatchNorm1d


class BatchNorm2d(BatchNorm):
    """Batch normalisation of sequences `[T, N, C, H, W]`, between a convolution and its neurons.

    ::

        y = scale weight (x - mean) / sqrt(variance + eps) + bias,    scale = alpha threshold

    Training uses the statistics of the batch, eval mode the running ones, as in `torch.nn.BatchNorm2d`. The attribute
    `norm` is such a module with all parameters and buffers, so that `update_bn`, `convert_sync_batchnorm` and filters
    by class find it. As a `SyncBatchNorm` it uses the statistics of all processes, on CPUs too. Statistics are over
    samples, space and

    - all time steps (default): one mean per channel. `snnlib.fuse_` makes it part of the neurons behind it;
    - the samples of each step, with `time_steps`: each step has its own mean, variance, weight and bias, `[T * C]` in
      the order of steps. All sequences then have T steps.

    Args:
        channels: channels of the input.
        eps: added to the variance. Default 1e-5.
        momentum: weight of a new batch in the running statistics; None averages over all batches. Default 0.1.
        affine: whether weight and bias are learned. Default True.
        track_running_stats: whether to keep running statistics; if False, eval mode uses the batch's. Default True.
        time_steps: number of time steps, each with its own statistics. Default None: shared over time.
        threshold: firing threshold of the next neurons, to which normalised currents are scaled, so that layers at all
            depths fire at similar rates. Default None: a scale of `alpha`.
        alpha: further factor; `1 / sqrt(2)` for each of two branches that are added. Default 1.
        batch_first: whether sequences are `[N, T, ...]`; matters with `time_steps`. Default False.
        device, dtype: of weight, bias and statistics.

    Raises:
        ValueError: an option out of its range, or an input that does not fit.

    Source: Zheng et al., "Going Deeper With Directly-Trained Larger Spiking Neural Networks", AAAI 2021 (`threshold`,
    `alpha`); Kim and Panda, "Revisiting Batch Normalization for Training Low-Latency Deep Spiking Neural Networks from
    Scratch", 2021 (`time_steps`).

    >>> import torch, snnlib
    >>> conv = snnlib.PerStep(torch.nn.Conv2d(2, 4, 3, bias=False))
    >>> net = torch.nn.Sequential(conv, snnlib.BatchNorm2d(4, threshold=1.0), snnlib.neurons.LIF())
    >>> net(torch.rand(5, 2, 2, 8, 8)).shape                         # [T, N, C, H, W]
    torch.Size([5, 2, 4, 6, 6])
    """

    layouts = ("C, H, W",)
    kind = nn.BatchNorm2d


class BatchNorm3d(BatchNorm):
    """Batch normalisation of sequences `[T, N, C, D, H, W]`; see `BatchNorm2d`."""

    layouts = ("C, D, H, W",)
    kind = nn.BatchNorm3d
