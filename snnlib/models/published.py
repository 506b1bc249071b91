"""Nets of the event-driven learning papers with their time constants."""

from __future__ import annotations

from typing import Unpack

from torch import nn

from snnlib.models.notation import from_notation
from snnlib.nn.srm import LayerOptions


def nmnist_net(classes: int = 10, **options: Unpack[LayerOptions]) -> nn.Sequential:
    """The N-MNIST net `12C5p1-P2-64C5-P2-10` for trains `[30, N, 2, 34, 34]`, `tau_m, tau_s, tau_grad = 8, 4, 4`.

    The paper trains with tau_grad 3; the default here keeps sums of gradients exactly. Pass `tau_grad=3.0` for the
    paper's own. Calibrate it on a batch before training (`snnlib.init.calibrate_firing_rate_`).

    Source: Zhu et al., NeurIPS 2022, section 4 and its N-MNIST configuration (T = 30).

    >>> import snnlib, torch
    >>> snnlib.models.nmnist_net()(torch.zeros(30, 2, 2, 34, 34)).shape
    torch.Size([30, 2, 10])
    """
    constants: LayerOptions = {"tau_m": 8.0, "tau_s": 4.0, **options}
    return from_notation(f"12C5p1-P2-64C5-P2-{classes}", (2, 34, 34), **constants)
