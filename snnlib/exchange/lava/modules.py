"""Modules over sequences `[T, N, ...]` that nets read from lava-dl's files need beside the library's own."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from snnlib.exchange.lava.net_file import Values
from snnlib.functional.quantize import quantize_power_of_two

# The grid of lava-dl: even numbers of 8 bits times 1/64.
_on_grid = partial(quantize_power_of_two, exponent=5, bits=8, rounding="nearest", symmetric=False)


class AnalogInput(nn.Module):
    """Input block of lava-dl for analogue frames: currents `q(x) q(weight) + q(bias)` of the neurons behind.

    q rounds to multiples of 1/32 from -4 to 4 - 1/32, with the gradient of the identity within them.

    Args:
        weight, bias: one number each, in thresholds' units: 1/64 of those in the file.
    """

    def __init__(self, weight: float, bias: float) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.tensor(weight)), nn.Parameter(torch.tensor(bias))

    def forward(self, x: Tensor) -> Tensor:
        """The currents."""
        weight, bias = (_on_grid(value).to(x.dtype) for value in (self.weight, self.bias))
        return _on_grid(x) * weight + bias

    def mantissas(self) -> dict[str, float]:
        """Returns weight and bias as a file has them."""
        return {name: _on_grid(own).item() * 64 for name, own in self.named_parameters()}


def keep(module: nn.Module, values: Values) -> None:
    """Hold what a file said of a module, so that it can be written as it was read."""
    vars(module)["lava_values"] = values


def kept(module: nn.Module) -> Values:
    """Returns what `keep` holds; nothing of a module that came from no file."""
    found: Values = vars(module).get("lava_values", {})
    return found
