"""Convolution backward on a GPU through cuDNN: values, determinism, streams, graphs."""

import pytest
import torch
from compare import assert_close
from op_samples import CONVS, conv_backward_sample
from opdb import CONV_TOLERANCE
from torch import Tensor

import snnlib
from snnlib import functional
from snnlib.backends import cudnn, cudnn_flags

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.skipif(torch.cuda.is_available() and bool(cudnn.unsupported()), reason=cudnn.describe()),
]
FUNCTIONS = {False: functional.conv2d_input_backward, True: functional.conv2d_weight_backward}
DTYPES = [dtype for dtype in CONV_TOLERANCE if dtype in cudnn.DTYPES]


def _call(
    name: str, weight: bool, dtype: torch.dtype, device: str = "cuda", wide: bool = False, **flags: bool
) -> Tensor:
    """Returns the op's result for a sample of this type, with `wide` computed in float64."""
    sample = conv_backward_sample(name, weight=weight)
    size, g, operand, stride, padding, dilation, groups, *_ = sample.arguments(dtype)
    if wide:
        g, operand = g.double(), operand.double()
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return FUNCTIONS[weight](size, g.to(device), operand.to(device), **options, **flags)


# (benchmark, deterministic). Each benchmark tries ten engines, so that two geometries have to do.
FLAGS = {name: [(False, False), (False, True)] for name in CONVS}
for name in ("size kept", "depthwise, channels last"):
    FLAGS[name].append((True, False))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("weight", [False, True], ids=["input", "weight"])
@pytest.mark.parametrize(("name", "flags"), [(name, flags) for name in CONVS for flags in FLAGS[name]])
def test_values(name: str, weight: bool, dtype: torch.dtype, flags: tuple[bool, bool]) -> None:
    expected = _call(name, weight, dtype, "cpu", wide=True)
    benchmark, deterministic = flags
    try:
        with snnlib.use_path("native"):
            out = _call(
                *(name, weight, dtype), benchmark=benchmark, deterministic=deterministic, allow_tf32=False
            )
    except RuntimeError as error:
        if not isinstance(error.__cause__, cudnn.UnavailableError):
            raise
        # CuDNN alone knows for which geometries it has engines: layers take aten elsewhere.
        pytest.skip(str(error.__cause__))
    assert_close(out.cpu(), expected, CONV_TOLERANCE[dtype], f"{name}, {flags}")


@pytest.mark.parametrize("weight", [False, True], ids=["input", "weight"])
def test_float64_goes_through_aten(weight: bool) -> None:
    out = _call("size kept", weight, torch.float64)
    assert_close(out.cpu(), _call("size kept", weight, torch.float64, "cpu"), CONV_TOLERANCE[torch.float64])
    with snnlib.use_path("native"), pytest.raises(RuntimeError, match="cuDNN convolves float32"):
        _call("size kept", weight, torch.float64)


def _large() -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(5)
    g = torch.randn(64, 32, 32, 32, generator=generator, device="cuda")
    return g, torch.randn(32, 32, 3, 3, generator=generator, device="cuda")


def test_deterministic_gives_the_same_bits() -> None:
    g, _ = _large()
    x = g.flip(0).contiguous()
    with snnlib.use_path("native"):
        first, *others = (
            functional.conv2d_weight_backward((32, 32, 3, 3), g, x, padding=1, deterministic=True)
            for _ in range(20)
        )
    for other in others:
        assert torch.equal(other, first)


def test_work_is_queued_on_the_current_stream() -> None:
    g, weight = _large()
    call = functional.conv2d_input_backward
    with snnlib.use_path("native"):
        expected = call(g.shape, g, weight, padding=1, deterministic=True)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            late = torch.zeros_like(g)
            # The convolution must wait for what is before it on this stream.
            torch.cuda._sleep(50_000_000)
            late.copy_(g)
            out = call(g.shape, late, weight, padding=1, deterministic=True)
        stream.synchronize()
    assert torch.equal(out, expected)


def test_runs_in_a_cuda_graph() -> None:
    g, weight = _large()
    call = functional.conv2d_input_backward
    with snnlib.use_path("native"):
        expected = call(g.shape, g, weight, padding=1, deterministic=True)
        static = torch.zeros_like(g)
        call(g.shape, static, weight, padding=1, deterministic=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call(g.shape, static, weight, padding=1, deterministic=True)
    static.copy_(g)
    graph.replay()
    assert torch.equal(out, expected)


def test_misaligned_tensors() -> None:
    g, weight = _large()
    shifted = torch.empty(g.numel() + 1, device="cuda")[1:].view(g.shape).copy_(g)
    with snnlib.use_path("native"):
        expected = functional.conv2d_input_backward(g.shape, g, weight, padding=1, allow_tf32=False)
        out = functional.conv2d_input_backward(g.shape, shifted, weight, padding=1, allow_tf32=False)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_mixed_devices() -> None:
    g, weight = _large()
    with pytest.raises(ValueError, match="weight: expected a tensor on cuda:0, got one on cpu"):
        functional.conv2d_input_backward(g.shape, g, weight.cpu(), padding=1)
    with pytest.raises(ValueError, match="weight: expected a CUDA tensor, got one on cpu"):
        cudnn.convolution_backward(
            True, g, weight.cpu(), g, [1, 1], [1, 1], [1, 1], cudnn_flags.resolve(None, None, None)
        )
