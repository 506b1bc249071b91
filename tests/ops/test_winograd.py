"""Input gradients of dense 3x3 convolutions by Winograd's algorithm."""

import itertools

import pytest
import torch
from compare import assert_bits
from torch import Tensor

from snnlib.backends import dense, native
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.ops import conv_layout, torch_conv, winograd

pytestmark = pytest.mark.skipif(native._module is None, reason="needs the compiled module")

# name: (frames, C, O, (H, W), padding); sizes that fill vectors, tiles and tasks, and that do not.
SIZES = {
    "whole": (2, 64, 32, (8, 8), 1),
    "many channels": (1, 192, 128, (6, 6), 1),
    "odd": (3, 21, 19, (7, 5), 1),
    "no padding": (2, 64, 37, (9, 12), 0),
    "wide padding": (2, 70, 16, (4, 3), 2),
    "one pixel": (5, 64, 32, (1, 1), 1),
    "no frames": (0, 64, 32, (4, 4), 1),
}


def _case(name: str) -> tuple[Tensor, Tensor, tuple[int, int], int]:
    frames, inputs, outputs, size, padding = SIZES[name]
    generator = torch.Generator().manual_seed(0)
    space = [length + 2 * padding - 2 for length in size]
    signal = torch.randn(frames, outputs, *space, generator=generator)
    weight = torch.randn(outputs, inputs, 3, 3, generator=generator)
    return signal.contiguous(memory_format=torch.channels_last), weight, size, padding


def _by_taps(signal: Tensor, weight: Tensor, size: tuple[int, int], padding: int) -> Tensor:
    """The transposed convolution, tap by tap."""
    batch, _, height, width = signal.shape
    wide = signal.new_zeros(batch, weight.shape[1], *(length + 2 * padding for length in size))
    for y in range(3):
        for x in range(3):
            seen = torch.einsum("bohw,oc->bchw", signal, weight[:, :, y, x])
            wide[:, :, y : y + height, x : x + width] += seen
    return wide[:, :, padding : padding + size[0], padding : padding + size[1]]


@pytest.mark.parametrize("name", SIZES)
def test_adjoint_is_the_transposed_convolution(name: str) -> None:
    signal, weight, size, padding = _case(name)
    found = winograd.adjoint(signal, weight, size, padding)
    expected = _by_taps(signal.double(), weight.double(), size, padding)
    assert found.shape == expected.shape and found.is_contiguous(memory_format=torch.channels_last)
    assert (found - expected).abs().sum() <= 1e-6 * expected.abs().sum()
    if found.numel():
        assert (found - expected).abs().max() <= 2e-6 * expected.abs().max()


@pytest.mark.parametrize("threads", [1, 3])
def test_bits_do_not_depend_on_threads_or_vectors(threads: int, isas: list[str]) -> None:
    case = _case("no padding")
    expected = winograd.adjoint(*case)
    torch.set_num_threads(threads)
    for name in isas:
        native._module.select_isa(name)
        assert_bits(winograd.adjoint(*case), expected)


def test_convolution_is_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(2)
    for (height, width), padding in itertools.product([(4, 4), (1, 1), (7, 5)], (0, 1, 2)):
        size = [length + 2 * padding - 2 for length in (height, width)]
        if min(size) < 1:
            continue
        frames = torch.randn(3, 37, height, width, generator=generator)
        weight = torch.randn(21, 37, 3, 3, generator=generator)
        found = winograd.convolve(frames.contiguous(memory_format=torch.channels_last), weight, size, padding)
        expected = torch.nn.functional.conv2d(frames.double(), weight.double(), padding=padding)
        assert (found - expected).abs().max() <= 2e-6 * expected.abs().max()


@pytest.mark.parametrize("name", ["adjoint", "convolve"])
def test_dense_passes_take_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.fuses_multiply_add():
        pytest.skip("needs a processor with fused multiply-add")
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 64, 7, 6), torch.randn(64, 64, 3, 3)
    signal = conv_layout.empty_sequence(x, 64, (7, 6), torch.float32).normal_()
    options = ConvOptions((1, 1), (1, 1), (1, 1), 1)

    def run() -> Tensor:
        if name == "convolve":
            return torch_conv.currents(x, weight, options)
        return torch_conv.field(signal, x, weight, options)

    calls, run_it = [], getattr(winograd, name)
    monkeypatch.setattr(winograd, name, lambda *given: calls.append(given) or run_it(*given))
    found = run()
    assert len(calls) == 1
    plan_pass = torch_conv.plan_pass
    monkeypatch.setattr(torch_conv, "plan_pass", lambda *given: plan_pass(*given)._replace(algorithm="torch"))
    expected = run()
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6 * float(expected.abs().max()))


@pytest.mark.parametrize(
    "options",
    [
        ConvOptions((2, 1), (1, 1), (1, 1), 1),
        ConvOptions((1, 1), (1, 2), (1, 1), 1),
        ConvOptions((1, 1), (3, 3), (1, 1), 1),
        ConvOptions((1, 1), (1, 1), (1, 2), 1),
        ConvOptions((1, 1), (1, 1), (1, 1), 2),
    ],
)
def test_other_convolutions_are_left_to_others(options: ConvOptions) -> None:
    def fits(size: int, options: ConvOptions) -> bool:
        x, weight = torch.empty(1, 1, 64, 8, 8), torch.empty(64, 64 // options.groups, size, size)
        return dense.fits_winograd(geometry(x, weight, options), "input")

    plain = ConvOptions((1, 1), (1, 1), (1, 1), 1)
    assert fits(3, plain)
    assert not fits(3, options)
    assert not fits(5, plain)
    assert not winograd.has_kernel(torch.zeros(1, 64, 8, 8, device="meta"))
