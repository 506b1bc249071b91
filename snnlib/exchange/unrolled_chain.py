"""An unrolled net as a chain of torch's layers and integrate-and-fire neurons of any library."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.exchange.structure.stages import Stage
from snnlib.exchange.structure.unsupported import Unsupported, naming
from snnlib.nn import PerStep

# Makes neurons over sequences from threshold and start of the membrane; they fire where it is reached and subtract it.
NeuronMaker = Callable[[float, float], nn.Module]


class FirstVirtualStep(nn.Module):
    """Sums currents `[T given, N, C, H, W]` of a time step into its first virtual step `[T levels, N, C, H, W]`.

    Args:
        given: virtual steps of the currents in a time step.
        levels: virtual steps of the output.
        bias: `[C]`, which comes once in a time step, or None.
    """

    bias: Tensor | None

    def __init__(self, given: int, levels: int, bias: Tensor | None) -> None:
        super().__init__()
        self.given, self.levels = given, levels
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the currents of the neurons."""
        sums = x.reshape(-1, self.given, *x.shape[1:]).sum(1)
        if self.bias is not None:
            sums = sums + self.bias.view(-1, 1, 1)
        rest = sums.new_zeros(len(sums), self.levels - 1, *sums.shape[1:])
        return torch.cat((sums[:, None], rest), 1).flatten(0, 1)

    def extra_repr(self) -> str:
        """Numbers of virtual steps."""
        return f"given={self.given}, levels={self.levels}"


def chain_of(stages: list[Stage], neuron: NeuronMaker, dtype: torch.dtype) -> nn.Sequential:
    """Returns layers over virtual steps `[T levels, N, ...]`; see `UnrolledNet.chain`.

    Raises:
        Unsupported: a layer with neurons that integrate-and-fire neurons are not; the message names it.
    """
    modules: list[nn.Module] = [PerStep(nn.Flatten(), nn.Unflatten(1, stages[0].input))]
    given = 1
    for stage in stages:
        threshold, half = _constants(stage)
        outputs, inputs, height, width = stage.weight.shape
        sizes = stage.stride, stage.padding, stage.dilation
        convolution = nn.Conv2d(inputs, outputs, (height, width), *sizes, bias=False)
        convolution.weight = nn.Parameter(stage.weight.to(dtype, copy=True), requires_grad=False)
        assert stage.cell is not None
        levels = int(stage.cell.levels)
        bias = None if stage.bias is None else stage.bias.to(dtype, copy=True)
        modules += [PerStep(convolution), FirstVirtualStep(given, levels, bias), neuron(threshold, half)]
        if stage.pool != (1, 1):
            modules.append(PerStep(nn.AvgPool2d(stage.pool)))
        given = levels
    return nn.Sequential(*modules)


def _constants(stage: Stage) -> tuple[float, float]:
    """Threshold, and start of the membrane, which is what the first level lacks of a threshold."""
    cell = stage.cell
    assert cell is not None
    with naming(stage.name):
        if cell.threshold is None or cell.fires_at is None:
            raise Unsupported("potentials are no spikes; write the layer apart from the chain")
        extra = (stage.recurrent, stage.delay, stage.weight_delay, cell.decay_s)
        if not bool(np.all(cell.decay == 1)) or any(part is not None for part in extra):
            raise Unsupported(
                "a leak, a synapse, delays and recurrence have no counterpart in neurons that integrate alike in all "
                "virtual steps; only IF has"
            )
        if cell.strict or cell.reset_value is not None or np.unique(cell.threshold).size > 1:
            raise Unsupported(
                "expected compare='>=', reset='subtract' and one threshold for all neurons of a layer"
            )
        return float(cell.threshold.flat[0]), float((cell.threshold - cell.fires_at).flat[0])
