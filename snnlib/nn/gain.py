"""A weight that is stored at torch's usual scale and used at the scale that spikes need."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.checks import in_transform
from snnlib.nn.stored_weight import StoredWeight


class WeightWithGain(StoredWeight):
    """A layer that computes with `effective_weight = weight * gain`.

    Weights that make neurons fire at low rates are 4 to 64 times larger than torch's usual ones, so that a step of Adam
    at its usual rate of 1e-3 hardly moves them. `snnlib.prepare_` stores them at the usual scale and puts the rest into
    `gain`, a buffer with a power of two: products with it are exact, and a step moves the effective weight `gain` times
    as far. It is 1 until then. `snnlib.nn.fold_standardization_` makes it one per
    output channel, `[C]`.
    """

    weight: Tensor
    gain: Tensor

    def register_gain(self) -> None:
        """Add the buffer, for a layer that has its `weight`."""
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        self.register_buffer("gain", torch.ones((), device=self.weight.device, dtype=dtype))

    @property
    def effective_weight(self) -> Tensor:
        """The weight that acts on the input, `weight * gain`, as `rounded` leaves it."""
        return self.rounded(self.weight if self._has_unit_gain() else self.weight * self.weight_gain())

    def rounded(self, weight: Tensor) -> Tensor:
        """The weight that a layer computes with, of one in full precision: that itself, unless its neurons round it."""
        return weight

    def weight_gain(self) -> Tensor:
        """The gain in a shape that broadcasts with the weight."""
        return self.gain.reshape(-1, *[1] * (self.weight.dim() - 1)) if self.gain.dim() else self.gain

    def _has_unit_gain(self) -> bool:
        """Returns whether the product can be left out; without it a layer at gain 1 costs nothing more."""
        if torch.compiler.is_compiling() or type(self.gain) is not Tensor:
            return False
        # Read in every call, as a copy of the layer may be given another gain; on a GPU that would wait for the device.
        on_cpu = self.gain.device.type == "cpu" and not in_transform()
        return on_cpu and self.gain.dim() == 0 and self.gain.item() == 1

    def resizable(self) -> dict[str, int | None]:
        """The gain, shared or one per channel."""
        return {"gain": self.weight.shape[0]}
