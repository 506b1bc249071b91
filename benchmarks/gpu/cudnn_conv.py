"""Convolution backward through cuDNN directly against `aten::convolution_backward`: errors and milliseconds.

    python benchmarks/gpu/cudnn_conv.py [--device cuda] [--frames 1.0] [--json FILE]

Every case runs with the tensors of one layer, for the gradient of the input and of the weight. Errors are the largest
difference from aten in float64 relative to the largest element. Times are medians of rounds of back-to-back calls, the
two ways taking turns round by round, after both have chosen their engines. `--device cpu` only shows that it runs:
there both columns are aten.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import snnlib
from snnlib.backends.cudnn_flags import torch_flags

if TYPE_CHECKING:
    from .stages import Setting

ROUNDS, CALLS = 7, 10


@dataclass(frozen=True)
class Layer:
    name: str
    x: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


LAYERS = (
    Layer("VGG, T=12, N=50", (600, 128, 32, 32), (128, 128, 3, 3), padding=(1, 1)),
    Layer("N-MNIST 1, T=30, N=50", (1500, 2, 34, 34), (12, 2, 5, 5), padding=(1, 1)),
    Layer("N-MNIST 2, T=30, N=50", (1500, 12, 16, 16), (64, 12, 5, 5)),
    Layer("one tap", (240, 64, 32, 32), (128, 64, 1, 1)),
    Layer("stride 2", (240, 64, 33, 32), (96, 64, 3, 3), stride=(2, 2), padding=(1, 1)),
    Layer("dilation 2", (240, 32, 32, 32), (32, 32, 3, 3), padding=(2, 2), dilation=(2, 2)),
    Layer("4 groups", (240, 64, 32, 32), (64, 16, 3, 3), padding=(1, 1), groups=4),
    Layer("depthwise", (240, 64, 32, 32), (64, 1, 3, 3), padding=(1, 1), groups=64),
    Layer("all options differ", (64, 12, 29, 31), (10, 6, 3, 2), (2, 1), (1, 2), (1, 3), groups=2),
)


@dataclass(frozen=True)
class Variant:
    dtype: torch.dtype = torch.float32
    channels_last: bool = False
    benchmark: bool = False
    deterministic: bool = False
    allow_tf32: bool = False

    @property
    def limit(self) -> float:
        """Error to accept: the rounding of operands or result; in float32 that of sums of up to 600,000
        products, and of Winograd's method."""
        if self.dtype == torch.float32:
            return 5e-3 if self.allow_tf32 else 1e-4
        return {torch.float16: 2e-3, torch.bfloat16: 1e-2}[self.dtype]

    def __str__(self) -> str:
        flags = [name for name in ("benchmark", "deterministic", "allow_tf32") if getattr(self, name)]
        layout = "channels last" if self.channels_last else "contiguous"
        return ", ".join([str(self.dtype).removeprefix("torch."), layout, *flags])


VARIANTS = (
    Variant(torch.bfloat16, channels_last=True),
    Variant(),
    Variant(allow_tf32=True),
    Variant(deterministic=True),
    Variant(torch.bfloat16, channels_last=True, benchmark=True),
)


@dataclass(frozen=True)
class Row:
    case: str
    error: float
    limit: float
    ms: float
    ms_aten: float
    # Why aten did the work after all; empty where it did not.
    fallback: str
    # Whether two calls gave the same bits.
    repeatable: bool

    @property
    def wrong(self) -> bool:
        return not self.error <= self.limit or ("deterministic" in self.case and not self.repeatable)

    @property
    def ok(self) -> bool:
        return not self.wrong and not self.fallback


def _timer(device: torch.device) -> Callable[[Callable[[], Tensor]], float]:
    if device.type != "cuda":

        def on_cpu(call: Callable[[], Tensor]) -> float:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e3

        return on_cpu

    def on_gpu(call: Callable[[], Tensor]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / CALLS

    return on_gpu


def _tensors(layer: Layer, variant: Variant, frames: float, device: torch.device) -> tuple[Tensor, ...]:
    generator = torch.Generator(device).manual_seed(3)
    layout = torch.channels_last if variant.channels_last else torch.contiguous_format
    x_size = (math.ceil(layer.x[0] * frames), *layer.x[1:])
    space = []
    for axis in range(2):
        extent = layer.dilation[axis] * (layer.weight[axis + 2] - 1) + 1
        space.append((layer.x[axis + 2] + 2 * layer.padding[axis] - extent) // layer.stride[axis] + 1)
    sizes = (x_size, layer.weight, (x_size[0], layer.weight[0], *space))
    return tuple(
        torch.randn(size, generator=generator, device=device).to(variant.dtype, memory_format=layout)
        for size in sizes
    )


def _row(layer: Layer, variant: Variant, to_input: bool, frames: float, device: torch.device) -> Row:
    # Where a run that is stopped was.
    print(f"{layer.name}, {'input' if to_input else 'weight'}, {variant}", flush=True)
    x, weight, g = _tensors(layer, variant, frames, device)
    geometry = (layer.stride, layer.padding, layer.dilation)
    mask = [to_input, not to_input, False]

    def aten(x: Tensor, weight: Tensor, g: Tensor) -> Tensor:
        arguments = (g, x, weight, None, *geometry, False, [0, 0], layer.groups, mask)
        return torch.ops.aten.convolution_backward(*arguments)[0 if to_input else 1]

    function = (
        snnlib.functional.conv2d_input_backward if to_input else snnlib.functional.conv2d_weight_backward
    )
    size, operand = (x.shape, weight) if to_input else (weight.shape, x)

    def ours() -> Tensor:
        return function(
            size,
            g,
            operand,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
            benchmark=variant.benchmark,
            deterministic=variant.deterministic,
            allow_tf32=variant.allow_tf32,
        )

    flags = (variant.benchmark, variant.deterministic, variant.allow_tf32)

    fallback = ""
    try:
        # This path has no fallback.
        with snnlib.use_path("native"):
            first, second = ours(), ours()
    except RuntimeError as error:
        fallback = str(error)
        with snnlib.use_path("reference"):
            first, second = ours(), ours()
    exact = aten(x.double(), weight.double(), g.double())
    error = float((first.double() - exact).abs().max() / exact.abs().max())

    measure = _timer(device)
    times: list[tuple[float, float]] = []
    with snnlib.use_path("reference" if fallback else "native"), torch_flags(*flags):
        for call in (ours, lambda: aten(x, weight, g)):
            measure(call)
        for _ in range(ROUNDS if device.type == "cuda" else 1):
            times.append((measure(ours), measure(lambda: aten(x, weight, g))))
    ms, ms_aten = (statistics.median(column) for column in zip(*times, strict=True))
    case = f"{layer.name}: {'input' if to_input else 'weight'}, {variant}"
    # CPUs without instructions for bfloat16 add in it.
    limit = variant.limit * (3 if device.type == "cpu" and variant.dtype == torch.bfloat16 else 1)
    return Row(case, error, limit, ms, ms_aten, fallback, torch.equal(first, second))


def run(device: str = "cuda", frames: float = 1.0, variants: Sequence[Variant] = VARIANTS) -> list[Row]:
    """All cases on a device, with `frames` times as many frames as a layer has."""
    place = torch.device(device)
    return [
        _row(layer, variant, to_input, frames, place)
        for layer in LAYERS
        for variant in variants
        for to_input in (True, False)
    ]


def convolution_speed(setting: Setting) -> dict[str, Any]:
    """Stage of check.py: times of the VGG layer with all its frames, errors of all layers with few."""
    # Here, as the program alone is not of the package.
    from .stages import note  # noqa: PLC0415

    rows = []
    for variant in VARIANTS:
        for side in (True, False):
            row = _row(LAYERS[0], variant, side, 0.001 if setting.small else 1.0, setting.device)
            note({row.case: f"{row.ms:.3f} ms, {row.ms / row.ms_aten:.2f} of aten's, error {row.error:.1e}"})
            rows.append(row)
    rows += run(
        str(setting.device), 0.001 if setting.small else 0.05, VARIANTS[:2] if setting.small else VARIANTS
    )
    wrong = [row for row in rows if row.wrong]
    assert not wrong, table(wrong)
    direct = sum(not row.fallback for row in rows) if setting.on_gpu else 0
    return {"cases through cuDNN directly": f"{direct} of {len(rows)}"}


def table(rows: list[Row]) -> str:
    width = max(len(row.case) for row in rows)
    lines = [f"{'case':{width}}     error     ms  ms aten  ratio"]
    for row in rows:
        note = "" if row.ok else f"  <- {row.fallback or 'not repeatable' * (not row.repeatable) or 'error'}"
        lines.append(
            f"{row.case:{width}}  {row.error:8.1e} {row.ms:6.3f}  {row.ms_aten:7.3f}  {row.ms / row.ms_aten:5.2f}{note}"
        )
    ratio = statistics.geometric_mean(row.ms / row.ms_aten for row in rows)
    lines.append(f"{sum(row.ok for row in rows)} of {len(rows)} as they should be; mean ratio {ratio:.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--frames", type=float, default=1.0, help="share of the layers' frames to run with")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("no CUDA device; --device cpu --frames 0.002 shows that it runs")
    rows = run(options.device, options.frames)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    sys.exit(not all(row.ok for row in rows))


if __name__ == "__main__":
    main()
