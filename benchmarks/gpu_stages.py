"""The stages of gpu_check.py: where each is defined, and how many seconds it may take."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch

# Checks first, and the measurements that are the point of the run before the slow checks.
STAGES = {
    "install": ("gpu_op_checks", 60),
    "ops": ("gpu_op_checks", 90),
    "scans": ("gpu_op_checks", 60),
    "recurrent": ("gpu_recurrent", 60),
    "bandwidth": ("gpu_timings", 60),
    "layer": ("gpu_timings", 60),
    "step": ("gpu_timings", 90),
    "recurrent_speed": ("gpu_recurrent", 60),
    "network": ("gpu_net_checks", 60),
    "streams": ("gpu_op_checks", 40),
    "determinism": ("gpu_net_checks", 40),
    "exact": ("gpu_net_checks", 40),
    "graph": ("gpu_net_checks", 40),
    "autocast": ("gpu_net_checks", 40),
    "errors": ("gpu_op_checks", 40),
    "large": ("gpu_op_checks", 60),
    "convolution": ("gpu_op_checks", 90),
    "convolution_speed": ("cudnn_conv", 90),
    "pytest": ("gpu_outside_checks", 60),
    "compiled": ("gpu_net_checks", 100),
    "training": ("gpu_net_checks", 120),
    "graph_training": ("gpu_net_checks", 120),
    "kernels": ("gpu_outside_checks", 60),
    "sanitizer": ("gpu_outside_checks", 180),
}
LIMITS = {name: limit for name, (_, limit) in STAGES.items()}


@dataclass(frozen=True)
class Setting:
    """Where a stage runs; `small` asks for sizes that only try the code."""

    device: torch.device
    small: bool

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"


def run(name: str, device: str, small: bool) -> dict[str, Any]:
    """Results of one stage by name; raises where a check fails."""
    stage = getattr(importlib.import_module(STAGES[name][0]), name)
    results: dict[str, Any] = stage(Setting(torch.device(device), small))
    return results
