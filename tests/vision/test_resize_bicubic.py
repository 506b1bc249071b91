"""Bicubic resizing against the definition in plain Python, torch, Pillow and OpenCV."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from snnlib import BicubicResize2d
from snnlib.functional import resize_bicubic

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ALIGNS = ["half_pixel", "corner"]
# Shrinks, grows, both at once, whole and broken ratios, a single pixel.
SIZES = [(5, 4), (3, 17), (22, 18), (11, 9), (1, 1), (6, 30)]


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7)).to(dtype)


def keys(t: float, a: float) -> float:
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def rows(pixels: int, out: int, ratio: float, a: float, antialias: bool, align: str) -> np.ndarray:
    """Weights `[out, pixels]` of one axis, tap by tap."""
    matrix = np.zeros((out, pixels))
    for i in range(out):
        source = (i + 0.5) * ratio - 0.5 if align == "half_pixel" else i * ratio
        if antialias:
            matrix[i] = [keys((j - source) / max(ratio, 1), a) for j in range(pixels)]
            matrix[i] /= matrix[i].sum()
        else:
            for j in range(math.floor(source) - 1, math.floor(source) + 3):
                matrix[i, min(max(j, 0), pixels - 1)] += keys(j - source, a)
    return matrix


def weights(pixels: int, out: int, **options: object) -> Tensor:
    """The library's weights `[out, pixels]` of one axis, float64: its answer to unit frames of one row."""
    unit = torch.eye(pixels, dtype=torch.float64).reshape(pixels, 1, pixels)
    return resize_bicubic(unit, (1, out), **options).reshape(pixels, out).T


# --- the kernel and the weights ---


@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("a", [-1.0, -0.75, -0.6, -0.5])
def test_equals_the_definition(a: float, antialias: bool, align: str) -> None:
    x = random(2, 11, 9)
    options = {"a": a, "antialias": antialias, "align": align}
    for size in SIZES:
        high, wide = (
            rows(pixels, out, pixels / out, **options) for pixels, out in zip((11, 9), size, strict=True)
        )
        y = resize_bicubic(x, size, **options)
        np.testing.assert_allclose(y.numpy(), high @ x.numpy() @ wide.T, rtol=0, atol=4e-14)
        np.testing.assert_allclose(weights(9, size[1], **options).sum(1), 1, rtol=0, atol=1e-15)
    for factor in (0.3, 0.5, 1 / 3, 0.75, 1.7):
        high, wide = (rows(n, math.floor(n * factor), 1 / factor, **options) for n in (11, 9))
        y = resize_bicubic(x, scale_factor=factor, **options)
        np.testing.assert_allclose(y.numpy(), high @ x.numpy() @ wide.T, rtol=0, atol=4e-14)


# --- other implementations ---


@pytest.mark.parametrize(("a", "antialias"), [(-0.75, False), (-0.5, True)])
@pytest.mark.parametrize(
    "target", [*({"size": s} for s in SIZES), {"scale_factor": 0.3}, {"scale_factor": (1.7, 0.6)}], ids=str
)
def test_equals_torch(target: dict[str, tuple[int, ...]], a: float, antialias: bool) -> None:
    x, twin = (random(2, 3, 11, 9).requires_grad_() for _ in range(2))
    y = resize_bicubic(x, a=a, antialias=antialias, **target)
    expected = F.interpolate(twin, mode="bicubic", align_corners=False, antialias=antialias, **target)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)
    g = random(*y.shape)
    y.backward(g)
    expected.backward(g)
    torch.testing.assert_close(x.grad, twin.grad, rtol=0, atol=2e-14)


@pytest.mark.parametrize("size", [(5, 4), (13, 20), (40, 6), (37, 29)])
def test_equals_pillow(size: tuple[int, int]) -> None:
    x = random(37, 29, dtype=torch.float32)
    expected = np.asarray(Image.fromarray(x.numpy(), mode="F").resize(size[::-1], Image.Resampling.BICUBIC))
    y = resize_bicubic(x, size, a=-0.5, antialias=True)
    np.testing.assert_allclose(y.numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [(5, 4), (13, 20), (40, 6), (37, 29)])
def test_equals_opencv(size: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2")
    x = random(37, 29, dtype=torch.float32)
    expected = cv2.resize(x.numpy(), size[::-1], interpolation=cv2.INTER_CUBIC)
    np.testing.assert_allclose(resize_bicubic(x, size).numpy(), expected, rtol=0, atol=2e-6)


# --- vectors and properties of frames ---


@pytest.mark.parametrize("a", [-1.0, -0.75, -0.7, -0.5, 0.3])
@pytest.mark.parametrize("target", [{"size": 4}, {"scale_factor": 0.25}], ids=str)
def test_corner_alignment_at_whole_ratios_takes_every_pixel_of_the_lattice(
    target: dict[str, float], a: float
) -> None:
    x = random(3, 16, 16, dtype=torch.float32).requires_grad_()
    y = resize_bicubic(x, a=a, align="corner", **target)
    assert torch.equal(y, x[..., ::4, ::4])
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.sum(0).count_nonzero() == 16


@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize("antialias", [False, True])
def test_identity_and_symmetries(antialias: bool, align: str) -> None:
    def resized(x: Tensor) -> Tensor:
        return resize_bicubic(x, (7, 20), antialias=antialias, align=align)

    x = random(13, 10)
    assert torch.equal(resize_bicubic(x, (13, 10), antialias=antialias, align=align), x)
    torch.testing.assert_close(resize_bicubic(x.T, (20, 7), antialias=antialias, align=align), resized(x).T)
    if align == "half_pixel":
        torch.testing.assert_close(resized(x.flip(0, 1)), resized(x).flip(0, 1))


@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize("antialias", [False, True])
def test_gradients_of_any_order(antialias: bool, align: str) -> None:
    def resized(x: Tensor) -> Tensor:
        return resize_bicubic(x, (4, 8), antialias=antialias, align=align)

    x = random(2, 7, 5).requires_grad_()
    assert torch.autograd.gradcheck(resized, x, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(resized, x)
    g = random(2, 4, 8)
    (gradient,) = torch.autograd.grad(resized(x), x, g)
    # The adjoint: <y, g> = <x, W^T g>.
    torch.testing.assert_close((resized(x) * g).sum(), (x * gradient).sum())


# --- dtypes, layouts, transforms ---


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_half_types_accumulate_in_float32(dtype: torch.dtype, antialias: bool) -> None:
    x = (random(3, 2, 40, 30) * 100).to(dtype).requires_grad_()
    y = resize_bicubic(x, (13, 50), antialias=antialias)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    expected = resize_bicubic(x.detach().double(), (13, 50), antialias=antialias)
    error = (y.double() - expected).abs()
    # Half a unit in the last place of the result, and float32's rounding of sums of about 1000.
    assert (error <= 0.51 * torch.finfo(dtype).eps * expected.abs() + 1e-6 * 1000).all()


def test_autocast_leaves_it_alone() -> None:
    x = random(2, 9, 9, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = resize_bicubic(x, 5)
    assert torch.equal(y, resize_bicubic(x, 5))


def test_memory_layouts() -> None:
    x = random(2, 3, 9, 10)
    expected = resize_bicubic(x, (4, 15))
    wide = random(2, 3, 18, 30)
    wide[..., ::2, ::3] = x
    layouts = (x.to(memory_format=torch.channels_last), wide[..., ::2, ::3], x.mT.contiguous().mT)
    for other in layouts:
        assert not other.is_contiguous()
        torch.testing.assert_close(resize_bicubic(other, (4, 15)), expected, rtol=0, atol=1e-14)
    one = x[:1, :1].expand(2, 3, 9, 10)
    torch.testing.assert_close(resize_bicubic(one, (4, 15)), expected[:1, :1].expand(2, 3, 4, 15))


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (4, 2, 3), (2, 1, 2, 1, 2)])
def test_leading_dimensions_are_frames(leading: tuple[int, ...]) -> None:
    x = random(*leading, 6, 7)
    y = resize_bicubic(x, (3, 9))
    assert y.shape == (*leading, 3, 9)
    frames = [resize_bicubic(frame, (3, 9)) for frame in x.reshape(-1, 6, 7)]
    torch.testing.assert_close(y.reshape(-1, 3, 9), torch.stack(frames))


@pytest.mark.parametrize("leading", [(0,), (0, 3), (4, 0, 2)])
def test_empty_batches(leading: tuple[int, ...]) -> None:
    x = torch.zeros(*leading, 6, 7, requires_grad=True)
    y = resize_bicubic(x, 3)
    y.sum().backward()
    assert y.shape == (*leading, 3, 3)
    assert x.grad.shape == x.shape


def test_vmap() -> None:
    x = random(3, 2, 6, 7)
    batched = torch.func.vmap(lambda frame: resize_bicubic(frame, 4), in_dims=1)(x)
    torch.testing.assert_close(batched, resize_bicubic(x, 4).movedim(1, 0))


# torch's compiler calls functions that torch deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("antialias", "shapes"),
    [(False, [(2, 10, 12)]), (True, [(2, 10, 12), (2, 15, 8)])],
    ids=["plain", "antialias"],
)
def test_compiles_for_any_frame_size(antialias: bool, shapes: list[tuple[int, ...]]) -> None:
    torch._dynamo.reset()
    module = BicubicResize2d(scale_factor=0.4, antialias=antialias)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for shape in shapes:
        x = random(*shape).requires_grad_()
        y, expected = compiled(x), module(x)
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)
        g = random(*y.shape)
        (gradient,), (other,) = (torch.autograd.grad(out, x, g) for out in (y, expected))
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-14)


# --- the module, the neighbours, the errors ---


def test_module_is_the_function() -> None:
    x = random(2, 3, 9, 8)
    module = BicubicResize2d((4, 5), a=-0.5, antialias=True, align="corner")
    expected = resize_bicubic(x, (4, 5), a=-0.5, antialias=True, align="corner")
    for twin in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(x), expected)
    assert not module.state_dict()
    assert repr(module) == "BicubicResize2d(size=(4, 5), a=-0.5, antialias=True, align='corner')"
    halved = BicubicResize2d(scale_factor=0.5)
    assert torch.equal(halved(x), resize_bicubic(x, scale_factor=0.5))
    assert repr(halved) == "BicubicResize2d(scale_factor=0.5, a=-0.75, antialias=False, align='half_pixel')"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"^size: expected either size or scale_factor, got None and None$"),
        ({"size": 2, "scale_factor": 0.5}, r"^size: expected either size or scale_factor, got 2 and 0.5$"),
        ({"size": 0}, r"^size: expected an integer >= 1 or 2 of them, got 0$"),
        ({"size": (3, 0)}, r"^size: expected an integer >= 1 or 2 of them, got \(3, 0\)$"),
        ({"size": (3, 3, 3)}, r"^size: expected an integer >= 1 or 2 of them"),
        ({"size": 2.5}, r"^size: expected an integer >= 1 or 2 of them, got 2.5$"),
        ({"scale_factor": 0.0}, r"^scale_factor: expected a number > 0 or 2 of them, got 0.0$"),
        ({"scale_factor": -1.0}, r"^scale_factor: expected a number > 0 or 2 of them, got -1.0$"),
        ({"scale_factor": math.inf}, r"^scale_factor: expected a number > 0 or 2 of them, got inf$"),
        ({"scale_factor": math.nan}, r"^scale_factor: expected a number > 0 or 2 of them, got nan$"),
        ({"scale_factor": (1.0, 1.0, 1.0)}, r"^scale_factor: expected a number > 0 or 2 of them"),
        (
            {"scale_factor": 0.2},
            r"^scale_factor: expected an output of at least one pixel from \(5, 4\), got 0.2$",
        ),
        ({"size": 2, "align": "top"}, r"^align: expected one of half_pixel, corner, got 'top'$"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resize_bicubic(torch.zeros(5, 4), **options)


def test_wrong_frames() -> None:
    with pytest.raises(TypeError, match=r"^x: expected a floating dtype, got torch.uint8"):
        resize_bicubic(torch.zeros(4, 4, dtype=torch.uint8), 2)
    with pytest.raises(ValueError, match=r"^x: expected \[..., H, W\], got shape \(4,\)$"):
        resize_bicubic(torch.zeros(4), 2)
    for shape in ((2, 0, 4), (2, 4, 0)):
        with pytest.raises(ValueError, match=r"^x: expected at least one pixel, got shape "):
            resize_bicubic(torch.zeros(shape), 2)
