"""A net in integers: its layers, and the simulation that defines what it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snnlib.backends import native

# Bits of a leak: a product with a state of 16 bits fits into 32.
LEAK_BITS = 15
# As in net_layer.h: what vectors may reach beyond an array, and which layers' inputs go to all rows at once.
SPARE, SHORT_RUN, RING_ROWS = 32, 128, 16
# Bytes of a cell in a list.
_CELL_BYTES = 5
# Cells of a column are numbered in 16 bits, as are those of a row of neurons.
LARGEST_NUMBER = 2**16 - 1
# Widths of states, and the numbers that they hold.
BOUNDS = {16: (-(2**15), 2**15 - 1), 32: (-(2**31), 2**31 - 1)}


@dataclass(frozen=True)
class IntegerLayer:
    """A layer in integers; what it computes stands at the head of `net_layer.h`.

    Args:
        name: path of the layer in the float net.
        weight: int8 `[O, I, kh, kw]`.
        scale: what a unit of the sums is in the float net `[O]`; of a layer that gives potentials one number for all.
        bias: int32 `[O]` or None.
        recurrent: int8 `[O, O]` or None.
        threshold: int32 `[O]`; None for potentials.
        reset: int32 `[O]`, what a spike sets the membrane to, or adds to it where it `subtracts`; None for potentials.
        leak_m, leak_s: leaks in units of 2^-15; leak_s is None without a synapse.
        fraction: bits of a state below a unit of the sums.
        state_bits: 16 or 32.
        input: shape of the input frame `[C, H, W]`.
        delay: steps that each cell of the input waits `[C, H, W]`, or None.
        weight_delay: steps of each weight, or None.
        recurrent_delay: steps of each recurrent weight beyond one, or None.
        axes: of space that the layer's output has in the float net, 0 for none.
    """

    name: str
    weight: Tensor
    scale: Tensor
    bias: Tensor | None
    recurrent: Tensor | None
    threshold: Tensor | None
    reset: Tensor | None
    leak_m: int
    leak_s: int | None
    fraction: int
    state_bits: int
    resets_all: bool
    subtracts: bool
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    pool: tuple[int, int]
    input: tuple[int, int, int]
    neurons: tuple[int, int, int]
    weight_bits: int
    delay: Tensor | None = None
    weight_delay: Tensor | None = None
    recurrent_delay: Tensor | None = None
    axes: int = 0

    @property
    def period(self) -> int:
        """One more than the longest delay."""
        given = (self.delay, self.weight_delay, self.recurrent_delay)
        return 1 + max((int(steps.max()) for steps in given if steps is not None), default=0)

    @property
    def sees_all(self) -> bool:
        """Whether one cell of neurons sees the whole frame, so that what its weights delay waits as sums."""
        whole = tuple(self.weight.shape[2:]) == self.input[1:] and self.padding == (0, 0)
        return self.neurons[1:] == (1, 1) and whole

    @property
    def waiting(self) -> tuple[int, int]:
        """Bytes of input frames that wait, and numbers of sums that do."""
        by_weight = self.weight_delay is not None
        framed = self.delay is not None or (by_weight and not self.sees_all)
        summed = self.recurrent_delay is not None or (by_weight and self.sees_all)
        return self.period * _size(self.input) if framed else 0, self.period * self.neurons[
            0
        ] if summed else 0

    @property
    def output(self) -> tuple[int, int, int]:
        """Shape of the frame that the next layer reads."""
        channels, height, width = self.neurons
        return channels, height // self.pool[0], width // self.pool[1]

    def sums(self, frames: Tensor) -> Tensor:
        """Sums over inputs `[T, B, O, H, W]` of frames of counts `[T, B, C, H, W]`, exact in float64."""
        x = frames.double()
        if self.delay is not None:
            x = torch.stack([_later(x, step) * (self.delay == step) for step in _values(self.delay)]).sum(0)
        if self.weight_delay is None:
            return self._products(x, self.weight.double())
        steps, weight = self.weight_delay, self.weight.double()
        # Without the bias, which comes once.
        parts = [self._products(_later(x, step), weight * (steps == step), False) for step in _values(steps)]
        return torch.stack(parts).sum(0) + (0 if self.bias is None else self.bias.double().view(-1, 1, 1))

    def _products(self, x: Tensor, weight: Tensor, biased: bool = True) -> Tensor:
        bias = self.bias.double() if biased and self.bias is not None else None
        sums = F.conv2d(x.flatten(0, 1), weight, bias, self.stride, self.padding, self.dilation)
        return sums.view(*x.shape[:2], *self.neurons)

    def returned(self, spikes: list[Tensor]) -> Tensor:
        """What the neurons' own spikes `[B, O, 1, 1]`, the newest first, bring in the next step `[B, O]`."""
        assert self.recurrent is not None
        weight = self.recurrent.double()
        steps = torch.zeros_like(weight) if self.recurrent_delay is None else self.recurrent_delay
        total = spikes[0].new_zeros(spikes[0].flatten(1).shape, dtype=torch.float64)
        for step in _values(steps):
            if step < len(spikes):
                total += spikes[step].flatten(1).double() @ (weight * (steps == step)).t()
        return total


def _values(steps: Tensor) -> list[int]:
    return sorted({int(step) for step in steps.flatten().tolist()})


def _later(x: Tensor, steps: int) -> Tensor:
    """A sequence `[T, ...]` so many steps later."""
    return torch.cat((torch.zeros_like(x[:steps]), x[: max(len(x) - steps, 0)]))


class IntegerNet(nn.Module):
    """A spiking net in integers, made by `snnlib.to_integers`: spike counts in, spikes or potentials out.

    `net(x)` gives what the float net gives, `[T, N, ...]`: spikes, or potentials in the float net's units.
    `net.integers(x)` gives the integers, which the exported C program gives as well, to the last bit.

    Args:
        layers: first to last.
    """

    def __init__(self, layers: list[IntegerLayer]) -> None:
        super().__init__()
        self.layers = layers

    @property
    def output_scale(self) -> float:
        """What a unit of the output is in the float net; 1 for spikes."""
        last = self.layers[-1]
        return 1.0 if last.threshold is not None else float(last.scale[0]) * 2.0**-last.fraction

    def forward(self, x: Tensor) -> Tensor:
        """Spikes or potentials of the last layer, in the dtype of x."""
        out = self.integers(x)
        channels, *space = self.layers[-1].neurons
        axes = self.layers[-1].axes
        shape = (channels, *space[2 - axes :]) if axes else (channels * space[0] * space[1],)
        return (out.double() * self.output_scale).to(x.dtype).view(*out.shape[:2], *shape)

    @torch.no_grad()
    def integers(self, x: Tensor) -> Tensor:
        """Integers of the last layer, int32 `[T, N, O, H, W]`, or `[T, N, O]` where it has one cell.

        Raises:
            ValueError: an input of another shape, or of other numbers than counts from 0 to 255.
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
        described, kept = zip(*(described_layer(layer) for layer in self.layers), strict=True)
        run(list(described), steps, batch, counts.data_ptr(), out.data_ptr())
        del kept
        return self._shaped(out.permute(1, 0, 4, 2, 3).contiguous())

    @torch.no_grad()
    def reference(self, x: Tensor, until: int | None = None) -> Tensor:
        """`integers` in plain torch, the slow definition; with `until`, counts of spikes that this layer hands on."""
        frames = self.frames(x) if x.dtype != torch.uint8 or x.dim() != 5 else x
        for number, layer in enumerate(self.layers):
            last = number == len(self.layers) - 1
            frames = _layer_reference(layer, frames)
            if not last:
                frames = _pooled(frames, layer.pool)
            if until == number:
                break
        return frames

    def frames(self, x: Tensor) -> Tensor:
        """Counts `[T, N, C, H, W]` in 8 bits.

        Raises:
            ValueError: as in `integers`.
        """
        shape = self.layers[0].input
        if x.dim() < 3 or x.shape[2:].numel() != shape[0] * shape[1] * shape[2]:
            raise ValueError(f"x: expected [T, N, {', '.join(map(str, shape))}], got shape {tuple(x.shape)}")
        counts = x.detach().reshape(*x.shape[:2], *shape).cpu()
        if not bool(((counts >= 0) & (counts <= 255) & (counts == counts.round())).all()):
            raise ValueError("x: expected counts of events, whole numbers from 0 to 255, got others")
        return counts.to(torch.uint8)

    def _shaped(self, out: Tensor) -> Tensor:
        return out.flatten(2) if out.shape[3:] == (1, 1) else out

    @property
    def flash_bytes(self) -> int:
        """Bytes of weights and constants in the exported program."""
        return sum(_constant_bytes(layer) for layer in self.layers)

    @property
    def ram_bytes(self) -> int:
        """Bytes of states, frame, lists and scratch in the exported program."""
        states = sum(
            _size(layer.neurons) * layer.state_bits // 8 * (1 if layer.leak_s is None else 2)
            + (layer.neurons[0] if layer.recurrent is not None else 0)
            + (layer.waiting[0] + 4 * layer.waiting[1] + 4 if any(layer.waiting) else 0)
            for layer in self.layers
        )
        lists = sum(_CELL_BYTES * cells + 2 * SPARE + 4 * rows for cells, rows in list_sizes(self.layers))
        row, window_row = row_sizes(self.layers)
        # Sums, spikes, windows, and places of spikes.
        scratch = 8 * row + 2 * SPARE + 2 * (part_size(self.layers) + ring_size(self.layers)) + window_row
        return _size(self.layers[0].input) + states + lists + scratch

    def extra_repr(self) -> str:
        """One line per layer."""
        return "\n".join(
            f"{layer.name}: int{layer.weight_bits} {tuple(layer.weight.shape)}, states of {layer.state_bits} bits, "
            f"{layer.fraction} below the point"
            for layer in self.layers
        )


def _size(shape: tuple[int, int, int]) -> int:
    return shape[0] * shape[1] * shape[2]


def list_sizes(layers: list[IntegerLayer]) -> list[tuple[int, int]]:
    """Cells and rows of the two lists that frames of even and odd layers take turns in."""
    found = []
    for turn in (layers[0::2], layers[1::2]):
        cells = max((_size(layer.input) for layer in turn), default=1)
        found.append((cells, max((layer.input[1] for layer in turn), default=0) + 1))
    return found


def row_sizes(layers: list[IntegerLayer]) -> tuple[int, int]:
    """Neurons of the widest row, and cells of the widest row of windows."""
    windows = max((layer.neurons[0] * layer.output[2] for layer in layers[:-1]), default=1)
    return max(layer.neurons[0] * layer.neurons[2] for layer in layers), max(windows, 1)


def _reach(layer: IntegerLayer) -> int:
    """Numbers of a row of sums with as many places beyond the neurons as inputs reach (`snn_reach`)."""
    channels, _, width = layer.neurons
    margin = max(layer.weight.shape[3] - 1 - layer.padding[1], 0)
    return (margin + max(layer.input[2] + layer.padding[1], width)) * channels


def part_size(layers: list[IntegerLayer]) -> int:
    """Numbers in a row of sums of a few inputs (`snn_part_row`)."""
    rows = [SPARE]
    for layer in layers:
        channels, _, width = layer.neurons
        along_x = layer.stride[1] == layer.dilation[1] == 1 and layer.weight_delay is None
        rows.append(
            SPARE + (_reach(layer) if along_x and layer.weight.shape[3] <= width else channels * width)
        )
    return max(rows)


def ring_size(layers: list[IntegerLayer]) -> int:
    """Numbers in the rows of sums of layers whose inputs go to all rows at once (`net_scatter.h`)."""
    numbers = 1
    for layer in layers:
        channels, height, _ = layer.neurons
        kernel, taps = layer.weight.shape[2:]
        plain = layer.stride == (1, 1) and layer.dilation == (1, 1) and layer.weight_delay is None
        if plain and height > 1 and 1 < kernel <= RING_ROWS and taps * channels <= SHORT_RUN:
            numbers = max(numbers, kernel * _reach(layer) + SPARE)
    return numbers


def _constant_bytes(layer: IntegerLayer) -> int:
    constants = (*weights_in_order(layer), *rows_of(layer).values(), *delays_in_order(layer).values())
    return sum(part.numel() * part.element_size() for part in constants if part is not None)


def _pooled(spikes: Tensor, pool: tuple[int, int]) -> Tensor:
    steps, batch = spikes.shape[:2]
    if pool == (1, 1):
        return spikes.to(torch.uint8)
    sums = F.avg_pool2d(spikes.flatten(0, 1).double(), pool) * (pool[0] * pool[1])
    return sums.round().to(torch.uint8).view(steps, batch, *sums.shape[1:])


def _layer_reference(layer: IntegerLayer, frames: Tensor) -> Tensor:
    """Spikes or potentials `[T, N, O, H, W]` of a layer, as the equations say."""
    sums = layer.sums(frames).long()
    low, high = BOUNDS[layer.state_bits]

    def decayed(z: Tensor, leak: int) -> Tensor:
        return z - ((z * leak + (1 << (LEAK_BITS - 1))) >> LEAK_BITS)

    def by_channel(value: Tensor) -> Tensor:
        return value.long().view(1, -1, 1, 1)

    reset = torch.zeros(1, dtype=torch.long) if layer.reset is None else by_channel(layer.reset)
    v = sums.new_zeros(sums.shape[1:]) + (0 if layer.subtracts else reset)
    i, spikes = torch.zeros_like(v), list[Tensor]()
    values = []
    for now in sums:
        total = now
        if layer.recurrent is not None and spikes:
            total = total + layer.returned(spikes).long().view(total.shape)
        current = total.clamp(low >> layer.fraction, high >> layer.fraction) << layer.fraction
        if layer.leak_s is not None:
            i = current = (decayed(i, layer.leak_s) + current).clamp(low, high)
        v = (decayed(v, layer.leak_m) + current).clamp(low, high)
        if layer.threshold is None:
            values.append(v.int())
            continue
        threshold = by_channel(layer.threshold)
        s = v >= threshold
        v = torch.where(s, v + reset if layer.subtracts else reset, v)
        if layer.resets_all:
            i = torch.where(s, 0, i)
        spikes.insert(0, s)
        values.append(s.int())
    return torch.stack(values)


def weights_in_order(layer: IntegerLayer) -> tuple[Tensor, Tensor | None]:
    """Bytes of weights as the header reads them: `[kh][I][kw, last tap first][O]`, and recurrent ones `[from][to]`."""
    weight = layer.weight.flip(3).permute(2, 1, 3, 0)
    recurrent = None if layer.recurrent is None else layer.recurrent.t()
    return _as_bytes(weight, layer.weight_bits), None if recurrent is None else _as_bytes(
        recurrent, layer.weight_bits
    )


def delays_in_order(layer: IntegerLayer) -> dict[str, Tensor | None]:
    """Bytes of delays as the header reads them: of inputs `[H][W][C]`, of weights as these lie."""
    delay = None if layer.delay is None else layer.delay.permute(1, 2, 0)
    weight = None if layer.weight_delay is None else layer.weight_delay.flip(3).permute(2, 1, 3, 0)
    recurrent = None if layer.recurrent_delay is None else layer.recurrent_delay.t()
    found = {"delay": delay, "weight_delay": weight, "recurrent_delay": recurrent}
    return {
        name: None if steps is None else steps.to(torch.uint8).contiguous() for name, steps in found.items()
    }


def _as_bytes(weight: Tensor, bits: int) -> Tensor:
    flat = weight.contiguous().flatten().view(torch.uint8)
    if bits == 8:
        return flat
    nibbles = F.pad(flat & 15, (0, flat.numel() % 2)).view(-1, 2)
    return nibbles[:, 0] | (nibbles[:, 1] << 4)


def rows_of(layer: IntegerLayer) -> dict[str, Tensor | None]:
    """Constants of a row of neurons `[width][channels]`: bias in 32 bits, the others as wide as the state."""
    wide = torch.int32 if layer.state_bits == 32 else torch.int16
    found: dict[str, Tensor | None] = {"bias": layer.bias, "above": None, "offset": None}
    if layer.threshold is not None:
        low, high = BOUNDS[layer.state_bits]
        # A threshold beyond the state's range is never reached: no state is above the highest.
        found["above"] = (layer.threshold.long() - 1).clamp(low, high).to(wide)
        assert layer.reset is not None
        found["offset"] = layer.reset.long().clamp(low, high).to(wide)
    return {
        name: None if value is None else value.repeat(layer.neurons[2]).contiguous()
        for name, value in found.items()
    }


def numbers_of(layer: IntegerLayer) -> dict[str, int]:
    """The numbers of the header's `snn_layer`, by the names of its fields."""
    channels, height, width = layer.neurons
    return {
        "in_height": layer.input[1],
        "in_width": layer.input[2],
        "in_channels": layer.input[0],
        "height": height,
        "width": width,
        "channels": channels,
        "kernel_height": layer.weight.shape[2],
        "kernel_width": layer.weight.shape[3],
        "stride_y": layer.stride[0],
        "stride_x": layer.stride[1],
        "padding_y": layer.padding[0],
        "padding_x": layer.padding[1],
        "dilation_y": layer.dilation[0],
        "dilation_x": layer.dilation[1],
        "pool_y": layer.pool[0],
        "pool_x": layer.pool[1],
        "period": layer.period,
        "leak_m": layer.leak_m,
        "leak_s": layer.leak_s or 0,
        "fraction": layer.fraction,
        "has_synapse": int(layer.leak_s is not None),
        "resets_all": int(layer.resets_all),
        "keep": int(layer.subtracts),
        "is_wide": int(layer.state_bits == 32),
        "packed": int(layer.weight_bits == 4),
    }


def described_layer(layer: IntegerLayer) -> tuple[dict[str, int], list[Tensor]]:
    """A layer for the native simulation: numbers and addresses, and the tensors that these point to."""
    weight, recurrent = weights_in_order(layer)
    tensors: dict[str, Any] = {
        "weight": weight,
        "recurrent": recurrent,
        **delays_in_order(layer),
        **rows_of(layer),
    }
    addresses = {name: 0 if tensor is None else tensor.data_ptr() for name, tensor in tensors.items()}
    return {**numbers_of(layer), **addresses}, [tensor for tensor in tensors.values() if tensor is not None]
