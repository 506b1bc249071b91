"""Layout of an integer layer for `net_layer.h`: order of weights, constants by row, sizes of arrays."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.exchange.integers.integer_layer import IntegerLayer, bounds, size_of

# As in net_layer.h: what vectors may reach beyond an array, and which layers' inputs go to all rows at once.
SPARE, SHORT_RUN, RING_ROWS = 32, 128, 16
# Bytes of a cell in a list.
CELL_BYTES = 5
# Fields of the header that point to constants.
_CONSTANTS = (
    *("weight", "recurrent", "delay", "weight_delay", "recurrent_delay"),
    *("bias", "drive", "above", "offset"),
)
# Fields of its sizes: of the input, the neurons and the kernel.
_SIZES = (
    *("in_channels", "in_height", "in_width"),
    *("channels", "height", "width"),
    *("kernel_height", "kernel_width"),
)
# Cells of a column are numbered in 16 bits, as are those of a row of neurons.
LARGEST_NUMBER = 2**16 - 1


def list_sizes(layers: list[IntegerLayer]) -> list[tuple[int, int]]:
    """Cells and rows of the two lists that frames of even and odd layers take turns in."""
    found = []
    for turn in (layers[0::2], layers[1::2]):
        cells = max((size_of(layer.input) for layer in turn), default=1)
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


def constants_of(layer: IntegerLayer) -> dict[str, Tensor]:
    """Constants as the header's `snn_layer` reads them, by the names of its fields; those that the layer has."""
    found = {
        # [kh][I][kw, last tap first][O]
        "weight": _as_bytes(_by_rows(layer.weight), layer.weight_bits),
        # [from][to]
        "recurrent": None if layer.recurrent is None else _as_bytes(layer.recurrent.t(), layer.weight_bits),
        # Delays of inputs [H][W][C], of weights as these lie.
        "delay": None if layer.delay is None else layer.delay.permute(1, 2, 0),
        "weight_delay": None if layer.weight_delay is None else _by_rows(layer.weight_delay),
        "recurrent_delay": None if layer.recurrent_delay is None else layer.recurrent_delay.t(),
    }
    return {
        name: values.to(torch.uint8).contiguous() for name, values in found.items() if values is not None
    } | _rows_of(layer)


def constant_bytes(layer: IntegerLayer) -> int:
    return sum(part.numel() * part.element_size() for part in constants_of(layer).values())


def memory_of(layer: IntegerLayer) -> dict[str, tuple[torch.dtype, int]]:
    """States and scratch of a layer by the names of the header's fields: type and number of each."""
    state = torch.int32 if layer.state_bits == 32 else torch.int16
    neurons = size_of(layer.neurons)
    found = {
        "potential": (state, neurons),
        "current": (state, 0 if layer.leak_s is None else neurons),
        "left": (torch.uint8, neurons if layer.refractory else 0),
        "last": (torch.uint8, 0 if layer.recurrent is None else layer.neurons[0]),
        "waiting": (torch.uint8, layer.waiting[0]),
        "waiting_sum": (torch.int32, layer.waiting[1]),
        "now": (torch.int32, int(any(layer.waiting))),
    }
    return {name: given for name, given in found.items() if given[1]}


def _by_rows(weight: Tensor) -> Tensor:
    return weight.flip(3).permute(2, 1, 3, 0)


def _as_bytes(weight: Tensor, bits: int) -> Tensor:
    flat = weight.contiguous().flatten().view(torch.uint8)
    if bits == 8:
        return flat
    nibbles = F.pad(flat & 15, (0, flat.numel() % 2)).view(-1, 2)
    return nibbles[:, 0] | (nibbles[:, 1] << 4)


def _rows_of(layer: IntegerLayer) -> dict[str, Tensor]:
    """Constants of a row of neurons `[width][channels]`: two in 32 bits, the others as wide as the state."""
    wide = torch.int32 if layer.state_bits == 32 else torch.int16
    both = {"bias": layer.bias, "drive": layer.drive}
    found: dict[str, Tensor] = {name: value for name, value in both.items() if value is not None}
    if layer.threshold is not None:
        low, high = bounds(layer.state_bits)
        # A threshold beyond the state's range is never reached: no state is above the highest.
        found["above"] = (layer.threshold.long() - 1).clamp(low, high).to(wide)
        assert layer.reset is not None
        found["offset"] = layer.reset.long().clamp(low, high).to(wide)
    return {name: value.repeat(layer.neurons[2]).contiguous() for name, value in found.items()}


def numbers_of(layer: IntegerLayer) -> dict[str, int]:
    """The numbers of the header's `snn_layer`, by the names of its fields."""
    sizes = (*layer.input, *layer.neurons, *layer.weight.shape[2:])
    by_axis = {
        f"{name}_{axis}": value
        for name in ("stride", "padding", "dilation", "pool")
        for axis, value in zip("yx", getattr(layer, name), strict=True)
    }
    return {
        **dict(zip(_SIZES, sizes, strict=True)),
        **by_axis,
        "period": layer.period,
        "leak_m": layer.leak_m,
        "leak_s": layer.leak_s or 0,
        "fraction": layer.fraction,
        "has_synapse": int(layer.leak_s is not None),
        "resets_all": int(layer.resets_all),
        "keep": int(layer.subtracts),
        "refractory": layer.refractory,
        "toward_zero": int(layer.toward_zero),
        "levels": layer.levels,
        "is_wide": int(layer.state_bits == 32),
        "packed": int(layer.weight_bits == 4),
    }


def described_layer(layer: IntegerLayer) -> dict[str, Any]:
    """A layer for the native simulation: the fields of `snn_layer` by name."""
    return {**numbers_of(layer), **dict.fromkeys(_CONSTANTS), **constants_of(layer)}
