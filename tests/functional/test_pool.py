"""Spike average pooling: worked vectors, all options against torch, conservation, silent and cancelling windows."""

import itertools
from typing import Any

import oracles
import pytest
import torch
import torch.nn.functional as torch_f
from compare import assert_bits, assert_close
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import snnlib
from snnlib import functional as F


def _frame(rows: list[list[float]]) -> Tensor:
    """[1, 1, 1, H, W]"""
    return torch.tensor(rows, dtype=torch.float64)[None, None, None]


def _pool(
    rows: list[list[float]], g: list[list[float]], *args: Any, **kwargs: Any
) -> tuple[list[Any], list[Any]]:
    x = _frame(rows).requires_grad_()
    y = F.spike_avg_pool2d(x, *args, **kwargs)
    y.backward(_frame(g))
    return y[0, 0, 0].tolist(), x.grad[0, 0, 0].tolist()


def test_binary_windows(path: str) -> None:
    y, gx = _pool([[1, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]], [[1, 2], [3, 4]], 2)
    assert y == [[0.25, 1], [0, 0.25]]
    assert gx == [[1, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 0, 0, 4], [0, 0, 0, 0]]


def test_silent_input(path: str) -> None:
    y, gx = _pool([[0.0] * 4] * 4, [[float("nan")] * 2] * 2, 2)
    assert y == [[0, 0], [0, 0]]
    assert gx == [[0.0] * 4] * 4


OPTIONS = [
    (kernel, stride, padding, ceil_mode, include, divisor)
    for kernel, stride, padding, ceil_mode, include, divisor in itertools.product(
        [1, 3, (2, 3)], [None, 1, 2], [0, 1], [False, True], [False, True], [None, 3]
    )
    if padding == 0 or kernel != 1
]


def test_forward_is_avg_pool2d(rng: torch.Generator, path: str) -> None:
    """Small integers have exact sums: equal to the last bit for every option, in both orders of memory."""
    x = torch.randint(-3, 4, (2, 2, 3, 7, 8), generator=rng).float()
    frames = x.flatten(0, 1)
    for options in OPTIONS:
        expected = torch_f.avg_pool2d(frames, *options).reshape(
            2, 2, 3, *torch_f.avg_pool2d(frames, *options).shape[2:]
        )
        assert_bits(F.spike_avg_pool2d(x, *options), expected, str(options))
        moved = x.movedim(2, -1).contiguous().movedim(-1, 2)
        assert_bits(F.spike_avg_pool2d(moved, *options), expected, f"{options}, channels last")


def test_backward_is_the_adjoint_of_avg_pool_on_g_over_y(rng: torch.Generator, path: str) -> None:
    x = torch.rand(2, 2, 3, 7, 8, generator=rng, dtype=torch.float64) + 0.1
    for options in OPTIONS:
        leaf, other = x.clone().requires_grad_(), x.flatten(0, 1).requires_grad_()
        out, plain = F.spike_avg_pool2d(leaf, *options), torch_f.avg_pool2d(other, *options)
        g = torch.randn(out.shape, generator=rng, dtype=torch.float64)
        out.backward(g)
        plain.backward(g.flatten(0, 1) / plain.detach())
        torch.testing.assert_close(
            leaf.grad.flatten(0, 1), other.grad * other.detach(), rtol=1e-12, atol=1e-12
        )


@given(amplitude=st.floats(1e-30, 1e30))
def test_a_single_event_gets_everything_whatever_its_amplitude(amplitude: float, path: str) -> None:
    x = torch.zeros(1, 1, 1, 4, 4)
    x[0, 0, 0, 1, 2] = amplitude
    x.requires_grad_()
    F.spike_avg_pool2d(x, 4).sum().backward()
    expected = torch.zeros(4, 4)
    expected[1, 2] = 1
    # amplitude / amplitude in two roundings.
    torch.testing.assert_close(x.grad[0, 0, 0], expected, rtol=3e-7, atol=0)


def test_cancelling_window_is_silent(path: str) -> None:
    """0.1 + 0.2 - 0.3 is 3e-8 in float32 by rounding alone: dividing by it would give noise times 1e7."""
    for rest, silent in ((-0.3, True), (-0.29, False)):
        x = torch.tensor([[0.1, 0.2], [rest, 0.0]]).reshape(1, 1, 1, 2, 2).requires_grad_()
        F.spike_avg_pool2d(x, 2).sum().backward()
        assert bool((x.grad == 0).all()) == silent
        assert x.grad.isfinite().all()
        if not silent:
            assert x.grad.sum().item() == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_sums_in_float32(dtype: torch.dtype, path: str) -> None:
    """300 ones: a bfloat16 sum would stop at 256."""
    x = torch.ones(1, 1, 1, 20, 15, dtype=dtype, requires_grad=True)
    y = F.spike_avg_pool2d(x, (20, 15), divisor_override=1)
    assert y.item() == torch.tensor(300.0).to(dtype).item()
    y.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 1 / 300))


def test_amplitudes_beyond_float16_do_not_overflow_on_the_way(path: str) -> None:
    x = torch.full((1, 1, 1, 4, 4), 60000.0, dtype=torch.float16)
    assert F.spike_avg_pool2d(x, 4).item() == 60000.0


def test_nan_stays_in_its_window(path: str) -> None:
    x = torch.ones(1, 1, 1, 2, 4)
    x[0, 0, 0, 0, 0] = torch.nan
    x.requires_grad_()
    y = F.spike_avg_pool2d(x, 2)
    y.sum().backward()
    assert y.flatten().isnan().tolist() == [True, False]
    assert x.grad[..., :2].isnan().all()
    assert torch.equal(x.grad[..., 2:], torch.full((1, 1, 1, 2, 2), 0.25))


@pytest.mark.parametrize("channels", [1, 4, 40])
def test_cells_in_no_window_get_zeros_of_one_sign(channels: int, path: str) -> None:
    """The product of a cell and a sum of no shares, by every loop of the kernel for channels."""
    row = torch.tensor([1.0, -1.0, -2.0, 3.0, -2.0])
    x = row[:, None].repeat(1, 1, 3, 1, channels).movedim(-1, 2).requires_grad_()
    F.spike_avg_pool2d(x, 3).sum().backward()
    assert_bits(x.grad[..., 3:], 0.0 * x.detach()[..., 3:])


def test_layer_is_the_function() -> None:
    x = torch.rand(3, 2, 4, 7, 6)
    layer = snnlib.SpikeAvgPool2d(3, 2, 1, True, False, None)
    assert torch.equal(layer(x), F.spike_avg_pool2d(x, 3, 2, 1, True, False, None))
    assert "kernel_size=3, stride=2, padding=1" in repr(layer)
    assert "stride=2" in repr(snnlib.SpikeAvgPool2d(2))


@pytest.mark.parametrize(
    "options",
    # (kernel, stride, padding, ceil_mode): input smaller than the window, which fits by padding or by ceil_mode.
    [
        ([3] * 3, [1] * 3, [1] * 3, False),
        ([3] * 3, [2] * 3, [1] * 3, True),
        ([2, 3, 3], [3, 1, 2], [1] * 3, True),
        ([2] * 3, [2] * 3, [0] * 3, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("include_pad", [True, False])
def test_three_axes_smaller_than_the_window(
    options: tuple[Any, ...], include_pad: bool, rng: torch.Generator, path: str
) -> None:
    """torch's own 3-D pooling refuses what its 2-D pooling does, and the kernels."""
    x = torch.randint(0, 3, (2, 1, 2, 1, 2, 2), generator=rng).double().requires_grad_()
    y = F.spike_avg_pool3d(x, *options, include_pad)
    g = torch.randn(y.shape, generator=rng, dtype=torch.float64)
    y.backward(g)
    frames, grads = (part.detach().flatten(0, 1).numpy() for part in (x, g))
    assert_close(
        y.detach().flatten(0, 1), torch.from_numpy(oracles.avg_pool(frames, *options, include_pad)), 1e-12
    )
    assert_close(
        x.grad.flatten(0, 1), torch.from_numpy(oracles.avg_pool_credit(grads, frames, *options)), 1e-12
    )
    assert x.grad.any()


@pytest.mark.parametrize("pool", [F.spike_avg_pool2d, F.spike_max_pool2d])
def test_layouts_and_graphs_do_not_matter(pool: Any, rng: torch.Generator) -> None:
    x = (torch.rand(3, 2, 4, 6, 6, generator=rng) < 0.4).float().requires_grad_()
    grad = torch.randn(3, 2, 4, 3, 3, generator=rng)
    out = pool(x, 2)
    (expected,) = torch.autograd.grad(out, x, grad)
    last = x.detach().movedim(2, -1).contiguous().movedim(-1, 2).requires_grad_()
    again = pool(last, 2)
    assert_bits(again, out)
    assert again.stride() != out.stride()
    for each in (grad, grad.movedim(2, -1).contiguous().movedim(-1, 2)):
        assert_bits(torch.autograd.grad(again, last, each, retain_graph=True)[0], expected)
    # Such a gradient runs through the op, which knows its own derivative.
    graph = torch.autograd.grad(pool(x, 2), x, grad.requires_grad_(), create_graph=True)[0]
    assert_bits(graph, expected)
    assert graph.requires_grad


def test_a_wrong_call_after_a_right_one_of_the_same_shape() -> None:
    x = torch.ones(3, 1, 2, 4, 4)
    F.spike_avg_pool2d(x, 2)
    with pytest.raises(ValueError, match="padding: expected at most half of kernel_size"):
        F.spike_avg_pool2d(x, 2, padding=2)
    with pytest.raises(TypeError, match="x: expected a floating"):
        F.spike_avg_pool2d(x.int(), 2)
