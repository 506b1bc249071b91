"""A net in integers: its layers, and their simulation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snnlib.backends import native
from snnlib.checks import check_tensor
from snnlib.exchange.integers.c_layout import (
    CELL_BYTES,
    SPARE,
    constant_bytes,
    described_layer,
    list_sizes,
    memory_of,
    part_size,
    ring_size,
    row_sizes,
)
from snnlib.exchange.integers.integer_layer import IntegerLayer, run_layer, size_of

__all__ = ["IntegerNet"]


class IntegerNet(nn.Module):
    """Spiking net in integers, from `snnlib.to_integers`: maps spike counts to spikes or potentials.

    `net(x)` returns outputs as the float net does, `[T, N, ...]`: spikes, or potentials in the float net's units.
    `net.integers(x)` returns the integers, bit for bit those of the exported C program.

    Args:
        layers: layers from first to last.
    """

    def __init__(self, layers: list[IntegerLayer]) -> None:
        super().__init__()
        self.layers = layers

    @property
    def output_scale(self) -> float:
        """Returns the value of one output unit in the float net; 1 for spikes."""
        last = self.layers[-1]
        return 1.0 if last.threshold is not None else float(last.scale[0]) * 2.0**-last.fraction

    def forward(self, x: Tensor) -> Tensor:
        """Returns spikes or potentials of the last layer, in the dtype of x; float32 for integers and bool."""
        out = self.integers(x)
        channels, *space = self.layers[-1].neurons
        axes = self.layers[-1].axes
        shape = (channels, *space[2 - axes :]) if axes else (channels * space[0] * space[1],)
        dtype = x.dtype if x.is_floating_point() else torch.float32
        return (out.double() * self.output_scale).to(dtype).view(*out.shape[:2], *shape)

    @torch.no_grad()
    def integers(self, x: Tensor) -> Tensor:
        """Returns integers of the last layer, int32 `[T, N, O, H, W]`, or `[T, N, O]` if it has one pixel.

        Raises:
            TypeError: an input that is no tensor, or complex.
            ValueError: an input of a wrong shape, or with values other than counts from 0 to 255.
        """
        frames = self.frames(x)
        # Kernels are chosen by the dtype of tensors of floats.
        run = native.kernel("integer_net", torch.empty(()))
        if run is None:
            return self._shaped(self.reference(frames))
        steps, batch = frames.shape[:2]
        channels, height, width = self.layers[-1].neurons
        counts = frames.permute(1, 0, 3, 4, 2).contiguous()
        out = torch.empty((batch, steps, height, width, channels), dtype=torch.int32)
        described = [described_layer(layer) for layer in self.layers]
        run(layers=described, steps=steps, samples=batch, frames=counts, result=out)
        return self._shaped(out.permute(1, 0, 4, 2, 3).contiguous())

    @torch.no_grad()
    def reference(self, x: Tensor, until: int | None = None) -> Tensor:
        """Computes `integers` in plain torch, the slow definition; with `until`, the spike counts of this layer."""
        frames = self.frames(x) if x.dtype != torch.uint8 or x.dim() != 5 else x
        for number, layer in enumerate(self.layers):
            last = number == len(self.layers) - 1
            frames = run_layer(layer, frames)
            if not last:
                frames = _pooled(frames, layer.pool)
            if until == number:
                break
        return frames

    def frames(self, x: Tensor) -> Tensor:
        """Returns counts `[T, N, C, H, W]` in 8 bits.

        Raises:
            TypeError, ValueError: as in `integers`.
        """
        check_tensor("x", x)
        if x.is_complex():
            raise TypeError(f"x: expected counts of events, got {x.dtype}")
        shape = self.layers[0].input
        if x.dim() < 3 or x.shape[2:].numel() != shape[0] * shape[1] * shape[2]:
            raise ValueError(f"x: expected [T, N, {', '.join(map(str, shape))}], got shape {tuple(x.shape)}")
        counts = x.detach().reshape(*x.shape[:2], *shape).cpu()
        # 255 in int8 is -1.
        counts = counts if counts.is_floating_point() else counts.long()
        if not bool(((counts >= 0) & (counts <= 255) & (counts == counts.round())).all()):
            raise ValueError("x: expected counts of events, whole numbers from 0 to 255, got others")
        return counts.to(torch.uint8)

    def _shaped(self, out: Tensor) -> Tensor:
        return out.flatten(2) if out.shape[3:] == (1, 1) else out

    @property
    def flash_bytes(self) -> int:
        """Bytes of weights and constants in the exported program."""
        return sum(constant_bytes(layer) for layer in self.layers)

    @property
    def ram_bytes(self) -> int:
        """Bytes of states, frame, lists and scratch in the exported program."""
        states = sum(
            size * kind.itemsize for layer in self.layers for kind, size in memory_of(layer).values()
        )
        lists = sum(CELL_BYTES * cells + 2 * SPARE + 4 * rows for cells, rows in list_sizes(self.layers))
        row, window_row = row_sizes(self.layers)
        # Sums, spikes, windows, and places of spikes.
        scratch = 8 * row + 2 * SPARE + 2 * (part_size(self.layers) + ring_size(self.layers)) + window_row
        return size_of(self.layers[0].input) + states + lists + scratch

    def extra_repr(self) -> str:
        """Returns a line per layer."""
        return "\n".join(
            f"{layer.name}: int{layer.weight_bits} {tuple(layer.weight.shape)}, states of {layer.state_bits} bits, "
            f"{layer.fraction} below the point"
            for layer in self.layers
        )


def _pooled(spikes: Tensor, pool: tuple[int, int]) -> Tensor:
    steps, batch = spikes.shape[:2]
    if pool == (1, 1):
        return spikes.to(torch.uint8)
    sums = F.avg_pool2d(spikes.flatten(0, 1).double(), pool) * (pool[0] * pool[1])
    return sums.round().to(torch.uint8).view(steps, batch, *sums.shape[1:])
