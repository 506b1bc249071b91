"""Large images and many channels: offsets beyond 2^31, in the arithmetic alone and in layers that fit into memory."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.backends import native
from snnlib.backends.geometry import ConvOptions, Geometry, geometry

ROOT = Path(__file__).parents[2]


def test_offset_arithmetic(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    program = tmp_path / "offsets"
    command = [compiler, "-std=c++17", "-O1", "-DSNNLIB_ISA=portable", f"-I{ROOT / 'cpp' / 'include'}"]
    subprocess.run([*command, ROOT / "tests" / "native" / "offsets.cpp", "-o", program], check=True)
    run = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stdout


def _events(*shape: int, rate: float) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return (torch.rand(shape, generator=generator) < rate).float()


@pytest.mark.skipif(native._module is None, reason="needs the compiled module")
@pytest.mark.parametrize(
    ("layer", "x"),
    [
        # (W + padding) * C_in * C_out is above 2^31 from pixel 16384 on.
        (lambda: snnlib.SRMConv1d(256, 512, 1), (2, 1, 256, 17000)),
        (lambda: snnlib.SRMConv2d(1024, 1024, 1), (2, 1, 1024, 1, 2200)),
    ],
    ids=["sound", "image"],
)
def test_forward_is_that_of_both_halves(layer: Callable[[], nn.Module], x: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    net, events = layer(), _events(*x, rate=0.002)
    # So that two steps are enough to fire.
    nn.init.uniform_(net.weight, 0.0, 2.0)
    half = events.shape[-1] // 2
    with torch.no_grad(), snnlib.use_convolution("events"):
        whole = net(events)
        parts = [net(part.contiguous()) for part in events.split(half, -1)]
    assert 0.001 < whole.mean() < 0.5
    assert torch.equal(whole, torch.cat(parts, -1))


@pytest.mark.skipif(native._module is None, reason="needs the compiled module")
def test_backward_is_that_of_both_halves() -> None:
    """Spikes gather from weights of 128 x 512 per pixel: above 2^31 from pixel 32768 on."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(512, 128, 1, generator=generator).requires_grad_()
    # Few events, so that few neurons fire, as output spikes drive the gradients.
    events = _events(1, 1, 128, 34000, rate=0.0005)
    gradients = []
    with snnlib.use_convolution("events"):
        for parts in ([events], events.split(17000, -1)):
            inputs = [part.clone().requires_grad_() for part in parts]
            for x in inputs:
                snnlib.functional.srm_conv1d(x, weight, threshold=0.5).sum().backward()
            gradients.append((torch.cat([x.grad for x in inputs], -1), weight.grad))  # type: ignore[misc]
            weight.grad = None
    (x_whole, w_whole), (x_parts, w_parts) = gradients
    assert x_whole.abs().sum() > 0
    assert torch.equal(x_whole, x_parts)
    torch.testing.assert_close(w_whole, w_parts, rtol=0, atol=1e-5 * float(w_parts.abs().max()))


def _sizes(x: tuple[int, ...], weight: tuple[int, ...]) -> Geometry:
    options = ConvOptions((1, 1), (0, 0), (1, 1), 1)
    return geometry(torch.empty(x, device="meta"), torch.empty(weight, device="meta"), options)


@pytest.mark.parametrize(
    ("x", "weight", "fits"),
    [
        ((2, 1, 256, 1, 20000), (512, 256, 1, 1), True),
        ((1, 1, 1, 40000, 40000), (1, 1, 1, 1), False),
        ((1, 1, 1, 1, 1 << 25), (128, 1, 1, 1), False),
        ((1, 1, 40000, 1, 1), (60000, 40000, 1, 1), False),
    ],
    ids=["sound", "frame", "row of neurons", "kernel"],
)
def test_what_does_not_fit_into_32_bits_is_convolved_densely(
    x: tuple[int, ...], weight: tuple[int, ...], fits: bool
) -> None:
    assert (_sizes(x, weight).unsupported == "") == fits
