"""Superpixel pooling: worked vectors, one-hot oracle, pool and unpool as projections, labels, layouts, messages."""

from typing import Any

import pytest
import torch
import torch.nn.functional as torch_f
from compare import assert_close
from torch import Tensor

import snnlib
from snnlib import functional as F

TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}


def _oracle(image: Tensor, labels: Tensor, num_segments: int) -> Tensor:
    """Float64 means with one-hot matrices; empty superpixels 0."""
    hot = torch.stack([labels == k for k in range(num_segments)], -1).double().flatten(-3, -2)
    sums = image.double().flatten(-2) @ hot
    return sums / hot.sum(-2, keepdim=True).clamp(min=1)


def _random(
    rng: torch.Generator, lead: tuple[int, ...], channels: int, used: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    image = torch.randn(*lead, channels, 6, 7, generator=rng, dtype=torch.float64).to(dtype)
    return image, torch.randint(0, used, (lead[-1], 6, 7), generator=rng)


def test_labels_with_gaps() -> None:
    image = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
    labels = torch.tensor([[[0, 0, 1, 1], [0, 0, 1, 1], [3, 3, 3, 1], [3, 3, 3, 1]]])
    means = F.superpixel_avg_pool2d(image, labels, 5)
    assert means.flatten().tolist() == pytest.approx([2.5, 22 / 3, 0, 11, 0])
    counts = snnlib.vision.superpixel.superpixel_counts(labels, 5)
    assert counts.tolist() == [[4, 6, 0, 6, 0]] and counts.dtype == torch.int64
    means.backward(torch.tensor([[[1.0, 2, 3, 4, torch.nan]]]))
    expected = torch.tensor([0.25, 1 / 3, torch.nan, 2 / 3])[labels]
    assert torch.equal(image.grad[0], expected)


@pytest.mark.parametrize("channels", [1, 3, 9])
@pytest.mark.parametrize("lead", [(2,), (3, 2), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_against_one_hot_matrices(
    dtype: torch.dtype, lead: tuple[int, ...], channels: int, rng: torch.Generator
) -> None:
    """Labels per image, gaps and empty superpixels, both orders of memory, slices."""
    image, labels = _random(rng, lead, channels, 5, dtype)
    expected = _oracle(image, labels, 8)
    channels_last = image.movedim(-3, -1).contiguous().movedim(-1, -3)
    padded = torch_f.pad(image, (1, 2, 3, 0))[..., 3:, 1:-2]
    for layout in (image, channels_last, padded):
        means = F.superpixel_avg_pool2d(layout, labels, 8)
        assert means.dtype == dtype and means.shape == (*lead, channels, 8)
        assert_close(means, expected, TOLERANCE[dtype])


def test_labels_per_step(rng: torch.Generator) -> None:
    image, _ = _random(rng, (3, 2), 4, 5)
    labels = torch.randint(0, 5, (3, 2, 6, 7), generator=rng)
    for frames in (image, image.movedim(-3, -1).contiguous().movedim(-1, -3)):
        assert_close(F.superpixel_avg_pool2d(frames, labels, 5), _oracle(image, labels, 5), 1e-14)


def test_default_number_of_superpixels_is_that_of_the_batch() -> None:
    image = torch.ones(2, 1, 2, 2)
    labels = torch.tensor([[[0, 1], [0, 1]], [[0, 1], [2, 3]]])
    means = F.superpixel_avg_pool2d(image, labels)
    assert means.tolist() == [[[1, 1, 0, 0]], [[1, 1, 1, 1]]]
    assert snnlib.vision.superpixel.superpixel_counts(labels).tolist() == [[2, 2, 0, 0], [1, 1, 1, 1]]


def test_fill_is_the_value_of_empty_superpixels() -> None:
    image = torch.ones(1, 2, 2, 2, requires_grad=True)
    means = F.superpixel_avg_pool2d(image, torch.zeros(1, 2, 2, dtype=torch.uint8), 3, fill=-1.5)
    assert means[0, 0].tolist() == [1, -1.5, -1.5]
    means.sum().backward()
    assert (image.grad == 0.25).all()


@pytest.mark.parametrize("ignored", [255, -1, 1])
def test_ignored_pixels_take_no_part(ignored: int) -> None:
    labels = torch.tensor([[[0, ignored], [2, 2]]])
    image = torch.tensor([[[[1.0, torch.nan], [3, 5]]]], requires_grad=True)
    pool = snnlib.SuperpixelAvgPool2d(ignore_index=ignored)
    for frames in (image, image.expand(1, 2, 2, 2).movedim(1, -1).contiguous().movedim(-1, 1)):
        means = pool(frames, labels)
        assert means[0, 0].tolist() == [1, 0, 4]
        (gradient,) = torch.autograd.grad(means[:, 0].sum(), image)
        assert gradient.tolist() == [[[[1, 0], [0.5, 0.5]]]]
    assert snnlib.vision.superpixel.superpixel_counts(labels, ignore_index=ignored).tolist() == [[1, 0, 2]]
    spread = F.superpixel_unpool(means, labels, ignore_index=ignored, fill=-7)
    assert spread[0, 0].tolist() == [[1, -7], [4, 4]]
    (gradient,) = torch.autograd.grad(spread.sum(), means)
    assert gradient[0, 0].tolist() == [1, 0, 2]


def test_silent_images_and_empty_batches() -> None:
    labels = torch.zeros(2, 4, 4, dtype=torch.int64)
    image = torch.zeros(5, 2, 3, 4, 4, requires_grad=True)
    means = F.superpixel_avg_pool2d(image, labels, 2)
    assert not means.any()
    means.square().sum().backward()
    assert not image.grad.any()
    assert F.superpixel_avg_pool2d(image[:, :0], labels[:0], 2).shape == (5, 0, 3, 2)
    assert F.superpixel_avg_pool2d(image[:, :0], labels[:0]).shape == (5, 0, 3, 0)
    assert F.superpixel_avg_pool2d(image[:0], labels, 2).shape == (0, 2, 3, 2)
    assert F.superpixel_avg_pool2d(torch.zeros(2, 3, 0, 4), labels[:, :0], 2).shape == (2, 3, 2)


def test_nan_stays_in_its_superpixel(rng: torch.Generator) -> None:
    image, labels = _random(rng, (2,), 8, 4, torch.float32)
    image[1, 2, 3, 3] = torch.nan
    expected = torch.zeros(2, 8, 4, dtype=torch.bool)
    expected[1, 2, labels[1, 3, 3]] = True
    assert torch.equal(F.superpixel_avg_pool2d(image, labels, 4).isnan(), expected)


@pytest.mark.parametrize("used", [1, 2, 100])
def test_error_does_not_grow_with_the_image(used: int, rng: torch.Generator) -> None:
    """A running sum in float32 over these pixels loses 1e-2; constant images stay constant."""
    labels = torch.randint(0, used, (1, 800, 1000), generator=rng)
    image = torch.tensor([0.1, 0.7]).reshape(1, 2, 1, 1).expand(1, 2, 800, 1000).contiguous()
    means = F.superpixel_avg_pool2d(image, labels, used)
    torch.testing.assert_close(means, image[:, :, 0, :used].expand(1, 2, used), rtol=1.2e-7, atol=0)


def test_half_precision_sums_in_float32() -> None:
    """The sum of 90 000 ones is beyond float16."""
    image = torch.ones(1, 2, 300, 300, dtype=torch.float16, requires_grad=True)
    labels = torch.zeros(1, 300, 300, dtype=torch.int64)
    means = F.superpixel_avg_pool2d(image, labels)
    assert (means == 1).all()
    means.sum().backward()
    assert torch.equal(image.grad, torch.full_like(image, 1 / 90_000))
    pooled = means.detach().requires_grad_()
    (F.superpixel_unpool(pooled, labels) / 9).sum().backward()
    # The sum of the rounded ninths; a float16 sum stops at 256.
    ninth = torch.tensor(1 / 9, dtype=torch.float16).item()
    assert pooled.grad.flatten().tolist() == pytest.approx([90_000 * ninth] * 2, rel=1e-3)


def test_gradients(rng: torch.Generator) -> None:
    image, labels = _random(rng, (2,), 2, 4)
    image.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: F.superpixel_avg_pool2d(x, labels, 5).square(), image)
    assert torch.autograd.gradgradcheck(lambda x: F.superpixel_avg_pool2d(x, labels, 5).square(), image)
    pooled = torch.randn(2, 2, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: F.superpixel_unpool(x, labels).square(), pooled)
    assert torch.autograd.gradgradcheck(lambda x: F.superpixel_unpool(x, labels).square(), pooled)


def test_sum_of_gradients_is_kept_and_the_image_is_not(rng: torch.Generator) -> None:
    image, labels = _random(rng, (4,), 9, 3, torch.float32)
    leaf = image.clone().requires_grad_()
    sizes: list[int] = []

    def pack(saved: Tensor) -> Tensor:
        if saved.is_floating_point():
            sizes.append(saved.untyped_storage().nbytes())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        means = F.superpixel_avg_pool2d(leaf, labels, 5)
    assert max(sizes, default=0) < image.nbytes / 2
    g = torch.randn(means.shape, generator=rng)
    means.backward(g)
    kept = g.double() * (snnlib.vision.superpixel.superpixel_counts(labels, 5) > 0).unsqueeze(1)
    assert float(leaf.grad.double().sum()) == pytest.approx(float(kept.sum()), abs=1e-5)


def test_layer_is_the_function(rng: torch.Generator) -> None:
    image, labels = _random(rng, (2,), 3, 4)
    layer = snnlib.SuperpixelAvgPool2d(6)
    assert torch.equal(layer(image, labels), F.superpixel_avg_pool2d(image, labels, 6))
    assert repr(layer) == "SuperpixelAvgPool2d(num_segments=6, ignore_index=None)"
    assert not layer.state_dict()


IMAGE, LABELS = torch.zeros(2, 3, 4, 5), torch.zeros(2, 4, 5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("image", "labels", "error", "message"),
    [
        (IMAGE.long(), LABELS, TypeError, "image: expected a floating dtype, got torch.int64"),
        (IMAGE[0, 0], LABELS, ValueError, r"image: expected \[\.\.\., C, H, W\], got shape \(4, 5\)"),
        (IMAGE, LABELS.float(), TypeError, "labels: expected an integer dtype, got torch.float32"),
        (IMAGE, LABELS.bool(), TypeError, "labels: expected an integer dtype, got torch.bool"),
        (IMAGE, LABELS[0, 0], ValueError, r"labels: expected \[\.\.\., H, W\], got shape \(5,\)"),
        (IMAGE, LABELS[:1], ValueError, r"labels: expected one map for each image in image \(2, 3, .* got \(1, 4, 5\)"),
        (IMAGE, LABELS[None], ValueError, r"labels: expected one map .*, got \(1, 2, 4, 5\)"),
        (IMAGE, LABELS[..., :4], ValueError, r"labels: expected H, W of image \(4, 5\), got \(4, 4\)"),
        (IMAGE.to("meta"), LABELS, ValueError, "labels: expected a tensor on meta, got one on cpu"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_arguments(image: Any, labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        F.superpixel_avg_pool2d(image, labels, 3)


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_labels_out_of_range(bad: int) -> None:
    labels = LABELS.clone()
    labels[1, 2, 3] = bad
    message = rf"labels: expected integers in \[0, 3\), got {bad} at \(1, 2, 3\)"
    with pytest.raises(ValueError, match=message):
        F.superpixel_avg_pool2d(IMAGE, labels, 3)
    with pytest.raises(ValueError, match=message):
        snnlib.vision.superpixel.superpixel_counts(labels, 3, ignore_index=9)
    with pytest.raises(ValueError, match=message):
        F.superpixel_unpool(torch.zeros(2, 1, 3), labels)


@pytest.mark.parametrize("count", [-1, 2.0])
def test_number_of_superpixels(count: Any) -> None:
    with pytest.raises(ValueError, match=f"num_segments: expected an integer >= 0, got {count}"):
        F.superpixel_avg_pool2d(IMAGE, LABELS, count)


def test_negative_labels_need_ignore_index() -> None:
    with pytest.raises(ValueError, match=r"labels: expected integers in \[0, 2\), got -1 at \(0, 0, 1\)"):
        F.superpixel_avg_pool2d(IMAGE[:1], torch.tensor([[0, -1, 1, 0, 0]] * 4)[None])


def test_wrong_arguments_of_unpool() -> None:
    with pytest.raises(TypeError, match="pooled: expected a floating dtype"):
        F.superpixel_unpool(torch.zeros(2, 1, 3).long(), LABELS)
    with pytest.raises(ValueError, match=r"pooled: expected \[\.\.\., C, K\], got shape \(3,\)"):
        F.superpixel_unpool(torch.zeros(3), LABELS)
    with pytest.raises(
        ValueError, match=r"labels: expected one map for each image in pooled \(3, 1, 3\), got"
    ):
        F.superpixel_unpool(torch.zeros(3, 1, 3), LABELS)


def test_an_ignored_label_outside_the_dtype_of_labels_ignores_none() -> None:
    """-1 as uint8 would be 255, a label like any other."""
    labels = torch.tensor([[255, 0], [1, 1]], dtype=torch.uint8)
    counts = snnlib.vision.superpixel.superpixel_counts(labels, 256, ignore_index=-1)
    assert counts[[0, 1, 255]].tolist() == [1, 2, 1]
