"""Convolution backward: layouts, double backward, compile, flags; values: opdb."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as torch_F
from compare import assert_close
from torch import Tensor

from snnlib import functional as F


def _pair(rng: torch.Generator, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Frames and weights."""
    return tuple(
        torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
        for shape in ((2, 4, 9, 8), (6, 4, 3, 2))
    )


@pytest.mark.parametrize("channels_last", [False, True])
def test_layout_of_the_result(rng: torch.Generator, channels_last: bool) -> None:
    """Channels last if one of the tensors is, whatever their values' order in memory."""
    x, weight = _pair(rng, torch.float32)
    g = torch.randn(2, 6, 7, 7, generator=rng)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    for left, right in ((layout, torch.contiguous_format), (torch.contiguous_format, layout)):
        to_x = F.conv2d_input_backward(
            x.shape, g.to(memory_format=left), weight.contiguous(memory_format=right)
        )
        to_weight = F.conv2d_weight_backward(
            weight.shape, g.to(memory_format=left), x.contiguous(memory_format=right)
        )
        for out in (to_x, to_weight):
            assert out.is_contiguous(memory_format=layout)
        assert_close(to_x, F.conv2d_input_backward(x.shape, g, weight).double(), 1e-5)
        assert_close(to_weight, F.conv2d_weight_backward(weight.shape, g, x).double(), 1e-5)


def test_strided_and_expanded_tensors(rng: torch.Generator) -> None:
    x, weight = _pair(rng)
    g = torch.randn(2, 6, 14, 7, generator=rng, dtype=torch.float64)[:, :, ::2]
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64).expand(2, 6, 7, 7)
    for credit in (g, one):
        assert torch.equal(
            F.conv2d_input_backward(x.shape, credit, weight.transpose(0, 1).contiguous().transpose(0, 1)),
            F.conv2d_input_backward(x.shape, credit.contiguous(), weight),
        )
        assert torch.equal(
            F.conv2d_weight_backward(weight.shape, credit, x),
            F.conv2d_weight_backward(weight.shape, credit.contiguous(), x),
        )


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": (2, 1), "dilation": 2, "groups": 2}], ids=str
)
def test_two_more_derivatives(rng: torch.Generator, options: dict[str, object]) -> None:
    groups = int(options.get("groups", 1))
    x = torch.randn(1, 2, 5, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2 // groups, 2, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    shape = torch_F.conv2d(x, weight, None, **options).shape
    g = torch.randn(shape, generator=rng, dtype=torch.float64, requires_grad=True)
    calls: list[tuple[Callable[..., Tensor], Tensor]] = [
        (lambda g, w: F.conv2d_input_backward(x.shape, g, w, **options), weight),
        (lambda g, x: F.conv2d_weight_backward(weight.shape, g, x, **options), x),
    ]
    for call, operand in calls:
        assert torch.autograd.gradcheck(call, (g, operand))
        assert torch.autograd.gradgradcheck(call, (g, operand))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_whole(rng: torch.Generator, dynamic: bool) -> None:
    def step(x: Tensor, weight: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        options = {"padding": 1, "benchmark": True}
        return (
            F.conv2d_input_backward(x.shape, g, weight, **options),
            F.conv2d_weight_backward(weight.shape, g, x, **options),
        )

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for frames in (2, 3):
        x = torch.randn(frames, 4, 6, 5, generator=rng)
        weight = torch.randn(3, 4, 3, 3, generator=rng)
        g = torch.randn(frames, 3, 6, 5, generator=rng, requires_grad=True)
        actual, expected = compiled(x, weight, g), step(x, weight, g)
        for a, e in zip(actual, expected, strict=True):
            assert torch.equal(a, e)
        for a, e in zip(
            torch.autograd.grad([out.sum() for out in actual], g),
            torch.autograd.grad([out.sum() for out in expected], g),
            strict=True,
        ):
            torch.testing.assert_close(a, e)


def test_flags_change_nothing_on_a_cpu_and_stay_as_they_were(rng: torch.Generator) -> None:
    x, weight = _pair(rng, torch.float32)
    g = torch.randn(2, 6, 7, 7, generator=rng)
    cudnn = torch.backends.cudnn
    before = (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)
    expected = F.conv2d_input_backward(x.shape, g, weight)
    for benchmark, deterministic, allow_tf32 in itertools.product((False, True), repeat=3):
        out = F.conv2d_input_backward(
            x.shape, g, weight, benchmark=benchmark, deterministic=deterministic, allow_tf32=allow_tf32
        )
        assert torch.equal(out, expected)
        assert (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32) == before
