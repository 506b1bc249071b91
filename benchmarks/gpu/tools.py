"""What the stages of check.py share: currents, a net whose sums are exact, comparisons, and other programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import snnlib
from snnlib.learning.preparing.calibration import calibrate_firing_rate_

from .stages import Setting

ROOT = Path(__file__).resolve().parents[2]
# The op list and the comparisons of the test suite.
sys.path.insert(0, str(ROOT / "tests" / "helpers"))
from compare import assert_bits, assert_close  # noqa: E402
from opdb import DTYPES, OPS  # noqa: E402

__all__ = [
    "CONSTANTS",
    "DTYPES",
    "OPS",
    "ROOT",
    "Results",
    "assert_bits",
    "assert_close",
    "close",
    "currents",
    "dyadic_net",
    "gradients",
    "relayed",
    "signals",
    "to_device",
    "without_tf32",
]

Results = dict[str, Any]
CONSTANTS = (5.0, 3.0, 3.0, 4.0)


def to_device(device: torch.device, value: Any) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def relayed(
    command: Sequence[str | Path], environment: Mapping[str, str], folder: str | None = None
) -> tuple[int, list[str]]:
    """Exit status and lines of another program, which are printed as they come: they count though it is stopped."""
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
        cwd=folder,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            # Marked, as a stage's own lines may be results.
            print("|", line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    return process.returncode, lines


def signals(like: Tensor) -> Tensor:
    """Weights from -1 to 1 of a sum over all elements, made on the CPU: the same bits for every device."""
    return torch.linspace(-1, 1, like.numel()).to(like.device, like.dtype).reshape(like.shape)


def currents(run: Setting, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator) * 1.2 + 0.3).to(run.device, dtype)


def dyadic_net(run: Setting) -> tuple[nn.Module, Tensor]:
    """A small net with every kind of layer, firing, and its input events."""
    torch.manual_seed(3)
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 8, 5, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(8, 16, 3),
        snnlib.SpikeAvgPool2d(2),
        nn.Flatten(2),
        snnlib.SRMLinear(16 * 9, 10),
    )
    x = (torch.rand(20, 4, 2, 20, 20) < 0.1).float()
    calibrate_firing_rate_(net, x, 0.1)
    # Multiples of 1/64: sums of them are exact, in whatever order a convolution adds.
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_((weight * 64).round() / 64)
    return net.to(run.device), x.to(run.device)


def gradients(forward: Callable[[Tensor], Tensor], net: nn.Module, x: Tensor) -> list[Tensor]:
    """Spikes and the gradients of all weights."""
    spikes = forward(x)
    return [
        spikes.detach(),
        *torch.autograd.grad((spikes * signals(spikes)).sum(), list(net.parameters())),
    ]


def close(actual: list[Tensor], expected: list[Tensor], what: str) -> Results:
    """Spikes may flip where a convolution rounds otherwise: one in a thousand. Gradients follow them."""
    flips = (actual[0].cpu() != expected[0].cpu()).double().mean().item()
    assert flips <= 1e-3, f"{what}: {flips:.2%} of spikes differ"
    distances = [
        ((a.cpu() - e.cpu()).norm() / e.cpu().norm()).item()
        for a, e in zip(actual[1:], expected[1:], strict=True)
    ]
    assert max(distances) <= (1e-4 if flips == 0 else 0.1), (
        f"{what}: gradients differ by {max(distances):.3g}"
    )
    return {
        f"{what}: share of spikes that differ": flips,
        f"{what}: largest relative difference of gradients": max(distances),
    }


@contextmanager
def without_tf32() -> Iterator[None]:
    """Convolutions in full float32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
