"""The native forward pass of a convolution under neurons: what all neuron models share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor

from snnlib.backends import native
from snnlib.backends.geometry import ConvOptions, Geometry, scatters
from snnlib.ops import conv_layout, counting, torch_conv
from snnlib.ops.weight_layout import kernel_rows


class ForwardCall(NamedTuple):
    """One forward pass, whose currents come from events or, where rates are high, from torch's convolution."""

    x: Tensor
    weight: Tensor
    g: Geometry
    options: ConvOptions
    time_dim: int
    pool: Sequence[int]
    algorithm: Literal["events", "dense"]

    def run(
        self,
        kernel: Callable[..., Any],
        neuron: tuple[int, int, int, tuple[int, ...]],
        out: Tensor,
        *,
        constants: tuple[float, ...] = (0.0,) * 5,
        threshold: Tensor | None = None,
        state_in: Tensor | None = None,
        state_out: Tensor | None = None,
        bits: Tensor | None = None,
    ) -> Any:
        """Fills `out`, and where they are given the state after the last step and the bits; returns the record.

        `constants` and `threshold` are those of SRM neurons.
        """
        x, weight, g, options = self[:4]
        scatter = scatters(g)
        by_events = self.algorithm == "events"
        rows = kernel_rows(weight, options.dilation, scatter) if by_events else None
        currents = None if by_events else torch_conv.currents(x, weight, options)
        tally = counting.active() if bits is None else None
        record = kernel(
            g.shape,
            g.bands(self.pool[0]),
            constants,
            conv_layout.strided_input(x, self.time_dim),
            native.address(rows),
            scatter,
            native.address(currents),
            conv_layout.frame_order(g, self.time_dim),
            self.pool,
            native.address(threshold),
            1 if threshold is None else max(threshold.numel(), 1),
            native.address(state_in),
            native.address(state_out),
            conv_layout.stored(out),
            native.address(bits),
            neuron,
            0 if tally is None else tally.fan_out.data_ptr(),
        )
        if tally is not None:
            tally.take(record.tally, by_events)
        return record
