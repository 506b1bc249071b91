"""Spike max pooling: a window fires when one of its inputs does; its gradient goes to the first largest event."""

from typing import Any

import op_calls
import pytest
import torch
import torch.nn.functional as torch_f
from compare import assert_bits
from opdb import DTYPES

import snnlib
from snnlib import functional as F
from snnlib.backends.arguments import Windows
from snnlib.functional.pool import max_pool2d


@pytest.mark.parametrize("options", [(2,), (3, 2, 1), (2, 1, 0, 2), (20, 3)], ids=str)
def test_torch_options_without_channels(options: tuple[int, ...]) -> None:
    """Torch takes frames without samples, not without channels."""
    some, none = (torch.rand(3, 2, channels, 41, 42) for channels in (1, 0))
    expected = snnlib.MaxPool2d(*options)(some).shape
    assert snnlib.MaxPool2d(*options)(none.requires_grad_()).shape == (3, 2, 0, *expected[3:])
    snnlib.MaxPool2d(*options)(none).sum().backward()
    assert none.grad.shape == none.shape


def test_gradient_goes_to_the_first_of_equals() -> None:
    x = torch.tensor([[0.0, 1, 2, 0], [1, 0, 3, 3]]).reshape(1, 1, 1, 2, 4).requires_grad_()
    F.spike_max_pool2d(x, 2).backward(torch.tensor([5.0, 7.0]).reshape(1, 1, 1, 1, 2))
    assert x.grad.flatten().tolist() == [0, 5, 0, 0, 0, 0, 7, 0]


def test_silent_window_passes_nothing() -> None:
    x = torch.zeros(1, 1, 1, 2, 4)
    x[..., 3] = 1
    x.requires_grad_()
    out = F.spike_max_pool2d(x, 2)
    assert out.flatten().tolist() == [0, 1]
    out.sum().backward()
    assert x.grad.flatten().tolist() == [0, 0, 0, 1, 0, 0, 0, 0]


def test_layer_is_the_function() -> None:
    x = torch.rand(2, 2, 3, 9, 9)
    layer = snnlib.SpikeMaxPool2d(3, 2, 1, 2, True)
    assert torch.equal(layer(x), F.spike_max_pool2d(x, 3, 2, 1, 2, True))
    assert "kernel_size=3, stride=2, padding=1" in repr(layer)


# (frames, kernel, stride, padding, dilation, ceil_mode)
GEOMETRIES = [
    ((3, 5, 9, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 40, 9, 8), (3, 3), (2, 2), (1, 1), (1, 1), True),
    ((2, 17, 11, 13), (2, 3), (3, 5), (0, 1), (1, 1), False),
    ((2, 3, 20, 40), (3, 3), (1, 1), (1, 1), (1, 1), False),
    ((2, 33, 12, 12), (5, 4), (2, 1), (2, 1), (1, 1), True),
    ((2, 3, 9, 70), (4, 4), (4, 4), (0, 0), (1, 1), True),
    ((2, 3, 9, 9), (2, 2), (2, 1), (1, 0), (2, 3), False),
    ((1, 2, 20, 20), (17, 17), (1, 1), (0, 0), (1, 1), False),
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
def test_bits_of_torch(
    geometry: tuple[Any, ...], dtype: torch.dtype, last: bool, rng: torch.Generator
) -> None:
    """Ties, infinities, NaN and signed zeros; overlapping windows add in torch's order."""
    shape, *options, ceil_mode = geometry
    x = torch.randint(-1, 3, shape, generator=rng).to(dtype)
    kind = torch.rand(shape, generator=rng)
    x[kind < 0.1], x[kind > 0.5], x[(kind > 0.4) & (kind < 0.5)] = torch.nan, -torch.inf, -0.0
    x = x.to(memory_format=torch.channels_last if last else torch.contiguous_format)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    with snnlib.use_path("auto"):
        out = max_pool2d(ours, Windows(*options[:3], ceil_mode), options[3])
    expected = torch_f.max_pool2d(theirs, *options, ceil_mode)
    assert_bits(out, expected)
    number = ~out.isnan()
    assert torch.equal(out.signbit()[number], expected.signbit()[number])
    assert out.stride() == expected.stride()
    g = torch.randn(out.shape, generator=rng).to(dtype)
    g[torch.rand(g.shape, generator=rng) < 0.2] = -0.0
    out.backward(g), expected.backward(g)
    assert_bits(ours.grad, theirs.grad)
    assert torch.equal(ours.grad.signbit(), theirs.grad.signbit())


def test_kernels_keep_a_byte_per_window() -> None:
    x = torch.rand(4, 2, 8, 8, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        max_pool2d(x, Windows.nonoverlapping((2, 2)))
    assert sum(kept) == 4 * 2 * 4 * 4


def test_second_derivatives(rng: torch.Generator) -> None:
    x = torch.randn(2, 3, 7, 6, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda x: max_pool2d(x.square(), Windows((3, 2), (2, 1), (1, 0), ceil_mode=True)), x
    )


def test_taps_of_no_forward_pass() -> None:
    options = ([4, 4], [2, 2], [2, 2], [1, 1])
    taps = torch.full((1, 1, 3, 3), 255, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"taps: expected the windows of \(4, 4\), got 2 on axis 1"):
        op_calls.max_pool_backward(torch.ones(1, 1, 3, 2), taps[..., :2], *options)
    with pytest.raises(ValueError, match=r"taps: expected the uint8 numbers of windows"):
        op_calls.max_pool_backward(torch.ones(1, 1, 3, 3), taps.int(), *options)
    with pytest.raises(ValueError, match=r"kernel: expected at most 256 cells, got \[17, 17\]"):
        op_calls.max_pool(torch.ones(1, 1, 20, 20), [17, 17], [1, 1], [0, 0], False)


def test_layer_over_sequences_refuses_indices() -> None:
    with pytest.raises(ValueError, match="return_indices: expected False, got True"):
        snnlib.MaxPool2d(2, return_indices=True)(torch.ones(1, 1, 1, 4, 4))


def test_taps_that_no_forward_pass_gives_get_nothing(path: str) -> None:
    backward = op_calls.max_pool_backward
    taps = torch.full((1, 2, 3), 255, dtype=torch.uint8)
    assert not backward(torch.ones(1, 2, 3), taps, [6], [2], [2], [0]).any()
    # The first cell of the first window is padding, the last one of the last window lies behind the image.
    taps = torch.tensor([[[0, 0, 2]]], dtype=torch.uint8)
    grad = backward(torch.tensor([[[1.0, 2.0, 4.0]]]), taps, [5], [3], [2], [1])
    assert grad.tolist() == [[[0.0, 2.0, 0.0, 0.0, 0.0]]]


def test_dilated_windows_of_padding_alone_are_refused() -> None:
    """torch's backward writes outside of its memory there."""
    with pytest.raises(ValueError, match=r"padding: expected a cell of the input in every window"):
        F.spike_max_pool2d(torch.ones(1, 1, 3, 1, 9), (2, 4), 2, 1, (2, 2))
    with pytest.raises(ValueError, match=r"padding: expected a cell of the input in every window"):
        snnlib.MaxPool2d((2, 4), 2, 1, (2, 2))(torch.ones(1, 1, 3, 1, 9))
