"""Pooling over superpixels: means of the pixels that share a label, and their expansion back to the pixels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.checks import check_count, check_device, check_floating, check_integers, check_rank
from snnlib.vision.segment import check_below

__all__ = ["superpixel_avg_pool2d", "superpixel_unpool"]


def _segments(labels: Tensor, num_segments: int | None, ignore_index: int | None) -> tuple[Tensor, int]:
    """Segment of each pixel `[..., H * W]` and the number of segments, which ignored pixels have as their segment."""
    check_integers("labels", labels)
    check_rank("labels", labels, "[..., H, W]", at_least=2)
    # Before any comparison: -1 as uint8 would be 255.
    labels = labels.long()
    if num_segments is None:
        used = labels if ignore_index is None else labels[labels != ignore_index]
        num_segments = int(used.max()) + 1 if used.numel() else 0
    check_count("num_segments", num_segments, least=0)
    check_below("labels", labels, num_segments, but=ignore_index)
    if ignore_index is not None:
        labels = labels.masked_fill(labels == ignore_index, num_segments)
    return labels.flatten(-2), num_segments


def _check_labels(labels: Tensor, name: str, like: Tensor, lead: torch.Size) -> None:
    """Labels fit when their dimensions before H and W are the last of `lead`."""
    check_device("labels", labels, like)
    own = labels.shape[:-2]
    if own != lead[len(lead) - len(own) :]:
        raise ValueError(
            f"labels: expected one map for each image in {name} {tuple(like.shape)}, got {tuple(labels.shape)}"
        )


def _sums(segments: Tensor, num_segments: int, values: Tensor | None = None) -> Tensor:
    """Sums `[..., K]` of the values of each segment `[..., P]`, or numbers of its pixels, in float64."""
    values = torch.ones_like(segments) if values is None else values
    sums = values.new_zeros(*values.shape[:-1], num_segments + 1, dtype=torch.float64)
    return sums.scatter_add(-1, segments.expand_as(values), values.double())[..., :num_segments]


def superpixel_counts(
    labels: Tensor, num_segments: int | None = None, *, ignore_index: int | None = None
) -> Tensor:
    """Pixels of each superpixel: `n[k] = #{ p : labels[p] = k }`.

    Arguments and errors as in `superpixel_avg_pool2d`.

    Returns:
        Counts `[..., K]` for labels `[..., H, W]`, int64.

    >>> import torch, snnlib
    >>> snnlib.vision.superpixel.superpixel_counts(torch.tensor([[0, 1], [1, 1]]), 3).tolist()
    [1, 3, 0]
    """
    return _sums(*_segments(labels, num_segments, ignore_index)).long()


def superpixel_avg_pool2d(
    image: Tensor,
    labels: Tensor,
    num_segments: int | None = None,
    *,
    ignore_index: int | None = None,
    fill: float = 0.0,
) -> Tensor:
    """Mean of the pixels of each superpixel.

    With `n_k = #{ p : labels[p] = k }`::

        y[c, k] = 1 / n_k sum over { p : labels[p] = k } of image[c, p]
        dL/dimage[c, p] = g[c, k] / n_k with k = labels[p]

    Superpixels without pixels give `fill` and pass no gradient, so the sum of dL/dimage equals the sum of g over the
    others. Sums are taken in float64: their error does not grow with the size of the image. The image is not saved for
    the backward pass. Results are the same in every call; on a GPU with `torch.use_deterministic_algorithms(True)`.

    Args:
        image: `[N, C, H, W]` or `[T, N, C, H, W]`, or any other dimensions before C; any floating dtype.
        labels: integers in `[0, K)`, `[N, H, W]` (one map per image, the same at all times) or `[T, N, H, W]`: their
            dimensions before H are the last ones of the image before C.
        num_segments: number of superpixels K. Default `labels.max() + 1`, which waits for a GPU and makes the shape of
            the result depend on the batch: pass it in training and under `torch.compile`.
        ignore_index: label of pixels that belong to no superpixel; may lie outside `[0, K)`.
        fill: value of superpixels without pixels.

    Returns:
        Means `[..., C, K]` in the dtype of `image`.

    Raises:
        TypeError: `image` is not a floating-point tensor or `labels` not an integer tensor.
        ValueError: shapes that do not fit, or a label out of range; the message says where.

    Source: the mean of Kwak, Hong and Han, "Weakly Supervised Semantic Segmentation Using Superpixel Pooling Network",
    AAAI 2017.

    >>> import torch, snnlib
    >>> image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> labels = torch.tensor([[[0, 1], [1, 1]]])
    >>> snnlib.functional.superpixel_avg_pool2d(image, labels, 3)
    tensor([[[1., 3., 0.]]])
    """
    check_floating("image", image)
    check_rank("image", image, "[..., C, H, W]", at_least=3)
    segments, num_segments = _segments(labels, num_segments, ignore_index)
    _check_labels(labels, "image", image, image.shape[:-3])
    if labels.shape[-2:] != image.shape[-2:]:
        raise ValueError(
            f"labels: expected H, W of image {tuple(image.shape[-2:])}, got {tuple(labels.shape[-2:])}"
        )
    segments = segments.unsqueeze(-2)
    sums, counts = _sums(segments, num_segments, image.flatten(-2)), _sums(segments, num_segments)
    return torch.where(counts > 0, sums / counts.clamp(min=1), fill).to(image.dtype)


def superpixel_unpool(
    pooled: Tensor, labels: Tensor, *, ignore_index: int | None = None, fill: float = 0.0
) -> Tensor:
    """Give every pixel the value of its superpixel: `image[c, p] = pooled[c, labels[p]]`.

    After `superpixel_avg_pool2d` it is the orthogonal projection onto images that are constant on superpixels; before,
    with the same labels, the identity on superpixels that have pixels. The gradient of a superpixel is the sum over
    its pixels, rounded once.

    Args:
        pooled: values `[..., C, K]`, any floating dtype.
        labels: integers in `[0, K)`, `[N, H, W]` or `[T, N, H, W]` as in `superpixel_avg_pool2d`.
        ignore_index: label of pixels that belong to no superpixel.
        fill: value of those pixels.

    Returns:
        Image `[..., C, H, W]` in the dtype of `pooled`.

    Raises:
        TypeError: `pooled` is not a floating-point tensor or `labels` not an integer tensor.
        ValueError: shapes that do not fit, or a label out of range; the message says where.

    >>> import torch, snnlib
    >>> pooled = torch.tensor([[[5.0, 7.0, 9.0]]])
    >>> snnlib.functional.superpixel_unpool(pooled, torch.tensor([[[0, 1], [1, 1]]]))
    tensor([[[[5., 7.],
              [7., 7.]]]])
    """
    check_floating("pooled", pooled)
    check_rank("pooled", pooled, "[..., C, K]", at_least=2)
    segments, _ = _segments(labels, pooled.shape[-1], ignore_index)
    _check_labels(labels, "pooled", pooled, pooled.shape[:-2])
    values = F.pad(pooled.double(), (0, 1), value=fill)
    pixels = values.gather(-1, segments.unsqueeze(-2).expand(*values.shape[:-1], -1))
    return pixels.reshape(*values.shape[:-1], *labels.shape[-2:]).to(pooled.dtype)
