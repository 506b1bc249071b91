"""Stage of check.py: training steps of a large net in the settings that a user of a GPU can choose from."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

import snnlib
from snnlib.functional import operators

from .stages import Setting, note
from .timings import eager_and_graph

# Layers of `models.cifar10_dvs_vgg`, without its dropout.
LAYERS = "128C3p1-P2-256C3p1-256C3p1-P2-256C3p1-512C3p1-P2-512C3p1-512C3p1-512C3p1-P2-1024-1024-10"
SMALL = "8C3p1-P2-8C3p1-P2-10"


def vgg(run: Setting) -> dict[str, Any]:
    """Forward, backward and Adam of the CIFAR10-DVS VGG, T = 20, batch 32, 48 x 48: {TF32, bf16} x {planes,
    channels-last} x {eager, graph}, layer by layer and fused; of SRM neurons, and of LIF neurons with batch norm.
    """
    layers, steps, batch, size = (SMALL, 4, 2, 12) if run.small else (LAYERS, 20, 32, 48)
    torch.manual_seed(0)
    x = (torch.rand(steps, batch, 2, size, size, device=run.device) < 0.04).float()
    y = torch.randint(0, 10, (batch,), device=run.device)
    options: dict[str, dict[str, Any]] = {
        "SRM": {}, "LIF with batch norm": {"neuron": snnlib.neurons.LIF(2.0), "batch_norm": True},
    }  # fmt: skip
    if run.on_gpu:
        # As convolutions have it by default; the fully connected layers too.
        torch.backends.cuda.matmul.allow_tf32 = True
    rates = {}
    for kind, chosen in options.items():
        start = snnlib.models.from_notation(layers, (2, size, size), **chosen).to(run.device)
        snnlib.prepare_(start, x)
        for precision, layout, fused in product(("TF32", "bf16"), ("planes", "channels-last"), (False, True)):
            net = copy.deepcopy(start)
            if fused:
                snnlib.fuse_(net)
            what = f"{kind}, {precision}, {layout}{', fused' * fused}"
            # Layers convolve channels-last frames; the kernels between two convolutions take every layout.
            last = mock.Mock(return_value=layout == "channels-last")
            with mock.patch.object(operators, "convolved_channels_last", last):
                note(eager_and_graph(run, what, _step(net, x, y, precision == "bf16"), repeats=8))
        with torch.no_grad():
            rates[f"{kind}, spikes of the output per step"] = round(start(x).mean().item(), 4)
    return rates


def _step(net: nn.Module, x: Tensor, y: Tensor, half: bool) -> Callable[[], None]:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, capturable=x.is_cuda)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        # A graph would keep casts of the weights as they were before its first step.
        with torch.autocast(x.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            output = net(x)
        nn.functional.cross_entropy(output.float().sum(0), y).backward()
        optimizer.step()

    return step
