"""A layer in integers, and the simulation that defines its results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib.exchange.structure.connections import Connections, Shape

__all__ = ["IntegerLayer"]

# Bits of a leak: a product with a state of 16 bits fits into 32.
LEAK_BITS = 15
# The largest count of a cell of a frame, which is a byte.
LARGEST_COUNT = 255


@dataclass(kw_only=True)
class IntegerLayer(Connections):
    """A layer in integers; the head of `net_layer.h` has the equations.

    Weights are int8, the bias int32.

    Args:
        scale: what a unit of the sums is in the float net `[O]`; of a layer that gives potentials one number for all.
        threshold: int64 `[O]`, up to 2^31, which no state reaches; None for potentials.
        reset: int32 `[O]`, what a spike sets the membrane to, or adds to it where it `subtracts`; None for potentials.
        leak_m, leak_s: leaks in units of 2^-15; leak_s is None without a synapse.
        fraction: bits of a state below a unit of the sums.
        state_bits: 16 or 32.
        subtracts: whether a spike adds `reset` to the membrane in place of setting it.
        weight_bits: 8 or 4.
        levels: most spikes of a neuron in a step; above 1 with `subtracts` alone.
        drive: int32 `[O]`, what comes into each membrane in every step, or None.
        refractory: steps that a membrane stays as a spike left it, while the current runs on.
        toward_zero: whether what a state keeps is rounded towards zero, not its leak to the nearest, as on Loihi.
    """

    scale: Tensor
    threshold: Tensor | None
    reset: Tensor | None
    leak_m: int
    leak_s: int | None
    fraction: int
    state_bits: int
    subtracts: bool
    weight_bits: int
    levels: int = 1
    drive: Tensor | None = None
    refractory: int = 0
    toward_zero: bool = False

    @property
    def period(self) -> int:
        """Longest delay + 1, the slots of pending inputs."""
        given = (self.delay, self.weight_delay, self.recurrent_delay)
        return 1 + max((int(steps.max()) for steps in given if steps is not None), default=0)

    @property
    def sees_all(self) -> bool:
        """Returns whether one cell of neurons sees the whole frame, so that what its weights delay waits as sums."""
        whole = tuple(self.weight.shape[2:]) == self.input[1:] and self.padding == (0, 0)
        return self.neurons[1:] == (1, 1) and whole

    @property
    def waiting(self) -> tuple[int, int]:
        """Bytes of pending input frames, and number of pending sums."""
        by_weight = self.weight_delay is not None
        framed = self.delay is not None or (by_weight and not self.sees_all)
        summed = self.recurrent_delay is not None or (by_weight and self.sees_all)
        return self.period * size_of(self.input) if framed else 0, self.period * self.neurons[
            0
        ] if summed else 0

    def sums(self, frames: Tensor) -> Tensor:
        """Sums over inputs `[T, B, O, H, W]` of frames of counts `[T, B, C, H, W]`, exact in float64."""
        sums = self.products(frames.double())
        return sums if self.bias is None else sums + self.bias.double().view(-1, 1, 1)


class LayerStep(NamedTuple):
    """A time step of a layer: current, membrane before a spike resets it, and the output, spikes or the membrane."""

    current: Tensor
    membrane: Tensor
    output: Tensor


def steps_of(layer: IntegerLayer, frames: Tensor) -> Iterator[LayerStep]:
    """Yields the time steps of a layer for frames of counts `[T, N, C, H, W]`, by its equations."""
    sums = layer.sums(frames).long()
    low, high = bounds(layer.state_bits)

    def decayed(z: Tensor, leak: int) -> Tensor:
        if layer.toward_zero:
            return z.sign() * ((z.abs() * ((1 << LEAK_BITS) - leak)) >> LEAK_BITS)
        return z - ((z * leak + (1 << (LEAK_BITS - 1))) >> LEAK_BITS)

    def by_channel(value: Tensor) -> Tensor:
        return value.long().view(1, -1, 1, 1)

    reset = torch.zeros(1, dtype=torch.long) if layer.reset is None else by_channel(layer.reset)
    v = sums.new_zeros(sums.shape[1:]) + (0 if layer.subtracts else reset)
    i, spikes = torch.zeros_like(v), list[Tensor]()
    drive = 0 if layer.drive is None else by_channel(layer.drive)
    left = torch.zeros_like(v)
    for now in sums:
        total = now
        if layer.recurrent is not None and spikes:
            total = total + layer.returned(spikes).long().view(total.shape)
        current = total.clamp(low >> layer.fraction, high >> layer.fraction) << layer.fraction
        if layer.leak_s is not None:
            i = current = (decayed(i, layer.leak_s) + current).clamp(low, high)
        moved = (decayed(v, layer.leak_m) + current + drive).clamp(low, high)
        v = torch.where(left > 0, v, moved)
        if layer.threshold is None:
            yield LayerStep(current, v, v)
            continue
        s, charged = torch.zeros_like(v), v
        for _ in range(layer.levels):
            fires = (v >= by_channel(layer.threshold)) & (left == 0)
            v = torch.where(fires, v + reset if layer.subtracts else reset, v)
            s = s + fires
        yield LayerStep(current, charged, s)
        left = torch.where(s > 0, layer.refractory, (left - 1).clamp(min=0))
        if layer.resets_all:
            i = torch.where(s > 0, 0, i)
        spikes.insert(0, s)


def run_layer(layer: IntegerLayer, frames: Tensor) -> Tensor:
    """Spikes or potentials `[T, N, O, H, W]` of a layer, int32."""
    return torch.stack([step.output.int() for step in steps_of(layer, frames)])


def bounds(bits: int) -> tuple[int, int]:
    """Returns the least and the largest integer of this width."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def size_of(shape: Shape) -> int:
    return shape[0] * shape[1] * shape[2]
