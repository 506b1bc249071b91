"""Nets with exact weights, spikes for them, and graphs of a single node."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import snnlib

nir: Any = pytest.importorskip("nir", reason="NIR graphs need the package nir, which is not installed")


DT = 1e-4


LOW = snnlib.surrogate.Triangle(height=0.5)


def dyadic(net: nn.Module) -> nn.Module:
    """Weights that are multiples of 1/8: sums of them are exact in any order."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if not name.endswith("delays.steps"):
                parameter.copy_((parameter * 16).round() / 8)
    return net.eval()


def spikes(*shape: int, rate: float = 0.3) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(0)) < rate).float()


def single(node: Any, shape: tuple[int, ...]) -> Any:
    nodes = {
        "input": nir.Input({"input": np.array(shape)}),
        "node": node,
        "output": nir.Output({"output": np.array(shape)}),
    }
    return nir.NIRGraph(nodes, [("input", "node"), ("node", "output")], type_check=False)
