"""`export_c`: writes an integer net as a C program with a test."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from snnlib.exchange.integers.c_layout import (
    constants_of,
    list_sizes,
    memory_of,
    numbers_of,
    part_size,
    ring_size,
    row_sizes,
)
from snnlib.exchange.integers.c_sound import SoundInput
from snnlib.exchange.integers.integer_net import IntegerNet
from snnlib.exchange.structure.hooks import check_no_acting_hooks
from snnlib.files.atomic import write_bytes_atomically

if TYPE_CHECKING:
    from snnlib.data import LogMel, StackFrames

__all__ = ["export_c"]

# Headers in the order in which they include each other.
_KERNELS = (
    *("net_layer.h", "net_list.h", "net_sums.h", "net_delays.h", "net_neurons.h", "net_scatter.h"),
    "integer_net.h",
)
_PER_LINE = 24


def export_c(
    net: IntegerNet,
    folder: str | Path,
    x: Tensor,
    *,
    binary: bool = True,
    notes: Sequence[str] = (),
    names: Sequence[str] = (),
    front_end: LogMel | None = None,
    stack: StackFrames | None = None,
) -> dict[str, int]:
    """Writes an integer net as a C program without dependencies or allocation, and a test of it.

    The files are valid C99 and C++11 or newer, without warnings, and functions have C names. `net.c` and `net.h` are
    the program: `net_event` takes an event, `net_frame` all counts of a step, `net_step` ends the step and returns the
    output of the net, `net_reset` resets the state. The program has one state, in static arrays. `make check` in the
    folder compiles it and compares its output with `net.integers(x)`, stored in `vectors.bin`, event by event and
    frame by frame. With a front end, `net_sound` takes sound samples, and the check covers it too.

    Args:
        net: the result of `snnlib.to_integers`.
        folder: output folder; created if it is missing.
        x: inputs of the test `[T, N, ...]`; with a front end sound `[samples, N]`, int16 or floats in -1..1.
        binary: whether several events of a pixel in a step count as one, as in binary frames; if False, they are
            counted, up to 255. Default True.
        notes: lines of a comment at the top of `net.h`, such as the length of a time step in microseconds. Default
            none.
        names: names of the outputs, `NET_NAMES` in `net.h`. Default none.
        front_end: front end from sound to frames. Default none: the program takes frames or events.
        stack: stacks the front end's frames to steps. Default: each frame is a step.

    Returns:
        Bytes of RAM (`"ram"`: states, frames, scratch) and of constants (`"flash"`). Code takes flash beside the
            constants; the compiler decides how much, see the tables in docs/moving-nets.md.

    Raises:
        ValueError: an input that does not fit the net, a wrong number of names, or a forward hook that acts.
        OSError: the folder cannot be written to.

    >>> import snnlib, tempfile, torch
    >>> from snnlib.exchange import export_c
    >>> x = (torch.rand(20, 3, 20) < 0.2).float()
    >>> small = snnlib.to_integers(torch.nn.Sequential(snnlib.SRMLinear(20, 4)).eval(), x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sizes = export_c(small, folder, x)
    ...     sorted(path.name for path in Path(folder).iterdir()), sizes["ram"] < 500
    (['Makefile', 'check.c', 'net.c', 'net.h', 'vectors.bin'], True)
    """
    if not isinstance(net, IntegerNet):
        raise TypeError(f"net: expected the result of snnlib.to_integers(net, x), got {type(net).__name__}")
    sound = None if front_end is None else SoundInput(front_end, stack)
    frames, samples = (x, None) if sound is None else sound.heard(x)
    check_no_acting_hooks(net, frames)
    vectors = _vectors(net, frames, samples)
    ram, flash = net.ram_bytes, net.flash_bytes
    if sound is not None:
        ram, flash = ram + sound.ram_bytes, flash + sound.flash_bytes
    about = [f"{ram} bytes of RAM, {flash} of constants beside the code.", *notes]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    files = {
        "net.h": _header(net, len(frames), binary, about, names, sound),
        "net.c": _program(net, binary, sound),
        "check.c": _text("check.c"),
        "Makefile": _text("program.mk"),
    }
    for name, text in files.items():
        write_bytes_atomically(target / name, text.encode())
    write_bytes_atomically(target / "vectors.bin", vectors)
    return {"ram": ram, "flash": flash}


def _header(
    net: IntegerNet,
    steps: int,
    binary: bool,
    about: Sequence[str],
    names: Sequence[str],
    sound: SoundInput | None,
) -> str:
    channels, height, width = net.layers[0].input
    outputs, rows, columns = net.layers[-1].neurons
    last = net.layers[-1]
    kind = f"spikes, 0 to {last.levels}" if last.threshold is not None else "membrane potentials"
    # A name of a class may hold what begins or ends a comment, or a trigraph.
    pairs = r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)"
    comment = "\n".join(f" * {re.sub(pairs, ' ', line)}" for line in about)
    if names and len(names) != outputs * rows * columns:
        raise ValueError(f"names: expected {outputs * rows * columns}, one for each output, got {len(names)}")
    named = ", ".join(_string(name) for name in names)
    return f"""/* A spiking net in integers, written by snnlib.
{comment} */
#ifndef NET_H
#define NET_H

#include <stdint.h>

#if defined(__cplusplus)
extern "C" {{
#endif

#define NET_WIDTH {width}
#define NET_HEIGHT {height}
#define NET_CHANNELS {channels}
#define NET_OUTPUTS {outputs * rows * columns}
{f"#define NET_NAMES {named}" if names else ""}
/* Time steps of a sequence of the test. */
#define NET_STEPS {steps}
/* What a unit of the output, {kind}, is in the net that was trained. */
#define NET_OUTPUT_SCALE {net.output_scale!r}

/* Begin a sequence. */
void net_reset(void);

/* Add an event to the current time step; several in a cell count {"as one" if binary else "up to 255"}.
 * Returns 0, or -1 for an event outside of the frame, which is left out. */
int net_event(int32_t x, int32_t y, int32_t channel);

/* Set all counts of the current time step, [channel][y][x]. */
void net_frame(const uint8_t* counts);

/* End the current time step: its output, [y][x][output]. The next step has no events yet. */
void net_step(int32_t output[NET_OUTPUTS]);
{"" if sound is None else sound.lines()}
#if defined(__cplusplus)
}}
#endif

#endif
"""


def _program(net: IntegerNet, binary: bool, sound: SoundInput | None) -> str:
    parts = ['#include "net.h"\n', *(_kernels(name) for name in _KERNELS)]
    initialisers = []
    for number, layer in enumerate(net.layers):
        members = _members("net_layer.h", "snn_layer")
        arrays, fields = _fields(
            members, str(number), numbers_of(layer), constants_of(layer), memory_of(layer)
        )
        parts += arrays
        initialisers.append(f"    {fields}")
    if sound is not None:
        members = _members("log_mel.h", "snn_log_mel")
        arrays, fields = _fields(members, "_mel", sound.numbers, sound.constants, sound.memory)
        parts += [_kernels("log_mel.h"), *arrays, f"static const snn_log_mel mel = {fields};"]
        parts.append(
            "static uint8_t heard[NET_CHANNELS * NET_HEIGHT * NET_WIDTH];\nstatic int32_t new_frames;"
        )
    row, window_row = row_sizes(net.layers)
    frame = net.layers[0].input
    parts += [
        f"static uint8_t frame[{frame[0] * frame[1] * frame[2]}];",
        *(
            f"static uint16_t columns{turn}[{cells}], places{turn}[{cells} + SNN_SPARE];\n"
            f"static uint8_t counts{turn}[{cells}];\nstatic int32_t rows{turn}[{rows}];"
            for turn, (cells, rows) in enumerate(list_sizes(net.layers))
        ),
        "static const snn_list lists[2] = {{columns0, places0, counts0, rows0}, {columns1, places1, counts1, rows1}};",
        f"static int32_t sums[{row}];",
        f"static SNN_ALIGNED int16_t parts[{part_size(net.layers)}];",
        f"static uint8_t spikes[{row}], window[{row}];",
        f"static uint16_t fired[{row} + SNN_SPARE];",
        f"static uint8_t pooled[{window_row}];",
        f"static SNN_ALIGNED int16_t ring[{ring_size(net.layers)}];",
        "static const snn_scratch scratch = {sums, parts, spikes, window, fired, pooled, ring};",
        f"static const snn_layer layers[{len(net.layers)}] = {{\n" + ",\n".join(initialisers) + "};",
        "\n"
        + _text("net_functions.c.in")
        .replace("BINARY", "1" if binary else "0")
        .replace("LAYERS", str(len(net.layers)))
        .replace("  STEPS;\n", "".join(_step(number, len(net.layers)) for number in range(len(net.layers)))),
    ]
    return "\n".join(parts)


def _members(header: str, structure: str) -> list[str]:
    """Names of a structure's fields in their order, by which C before C99 and C++ before C++20 initialise it."""
    code = re.sub(r"/\*.*?\*/", "", _text(header), flags=re.DOTALL)
    return re.findall(r"(\w+)[,;]", re.findall(rf"struct \{{([^}}]*)\}} {structure};", code)[0])


def _fields(
    members: Sequence[str],
    suffix: str,
    numbers: Mapping[str, int],
    constants: Mapping[str, Tensor],
    memory: Mapping[str, tuple[torch.dtype, int]],
) -> tuple[list[str], str]:
    """Arrays of a structure, named as its fields are, and its initialiser; fields without a value are 0."""
    arrays = [_array(f"{name}{suffix}", values) for name, values in constants.items()]
    arrays += [
        f"static SNN_ALIGNED {_type(kind)} {name}{suffix}[{size}];" for name, (kind, size) in memory.items()
    ]
    fields = {**numbers, **{name: f"{name}{suffix}" for name in (*constants, *memory)}}
    values = ", ".join(f"/* {name} */ {fields.pop(name, 0)}" for name in members)
    assert not fields, f"no field of the structure: {list(fields)}"
    return arrays, f"{{{values}}}"


def _string(text: str) -> str:
    """A literal of any text: bytes beyond printable ASCII by number, and `?`, two of which may begin a trigraph."""
    shown = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in text.encode()
    )
    return f'"{"".join(shown)}"'


def _text(name: str) -> str:
    """Returns a file that lies beside this one."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _kernels(name: str) -> str:
    lines = _text(name).splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith('#include "'))


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.") + "_t"


def _array(name: str, values: Tensor) -> str:
    numbers = [str(number) for number in values.flatten().tolist()]
    lines = [",".join(numbers[at : at + _PER_LINE]) for at in range(0, len(numbers), _PER_LINE)]
    return (
        f"static const SNN_ALIGNED {_type(values.dtype)} {name}[{len(numbers)}] = {{\n"
        + ",\n".join(lines)
        + "};"
    )


def _step(number: int, layers: int) -> str:
    """A call of its own for every layer, so that the compiler knows its sizes."""
    last = number == layers - 1
    turns = f"&lists[{number & 1}], {'0' if last else f'&lists[{~number & 1}]'}"
    return f"  snn_step(&layers[{number}], {turns}, &scratch, {'output' if last else '0'});\n"


def _vectors(net: IntegerNet, x: Tensor, sound: Tensor | None) -> bytes:
    """Samples as the check reads them: numbers of 32 bits, the lowest byte first.

    samples, steps, outputs; then for each step of each sample the number of events, their x, y and channel, a count
    each, and the output; at the end the sound of each sample.
    """
    frames = net.frames(x)
    steps, samples = frames.shape[:2]
    out = net.integers(x).reshape(steps, samples, -1)
    layer = net.layers[-1].neurons
    out = out.view(steps, samples, *layer).permute(0, 1, 3, 4, 2).reshape(steps, samples, -1)
    words: list[Tensor] = [torch.tensor([samples, steps, out.shape[2]])]
    for sample in range(samples):
        for step in range(steps):
            c, row, column = frames[step, sample].nonzero(as_tuple=True)
            counts = frames[step, sample][c, row, column]
            events = torch.stack((column, row, c, counts.long()), 1)
            words += [torch.tensor([len(events)]), events.flatten(), out[step, sample].long()]
    if sound is not None:
        words.append(sound.t().flatten())
    return torch.cat(words).to(torch.int32).numpy().astype("<i4").tobytes()
