"""Pooling over superpixels: means of the pixels that share a label, and their expansion back to the pixels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from snnlib.checks import check_device, check_floating, check_rank
from snnlib.vision.segment import check_below, check_count, check_integers, segment_sum_dense


def _segments(labels: Tensor, num_segments: int | None, ignore_index: int | None) -> tuple[Tensor, int, int]:
    """Segment of each pixel `[..., H * W]`, number of segments, and that number with one for ignored pixels."""
    check_integers("labels", labels)
    check_rank("labels", labels, "[..., H, W]", at_least=2)
    # Before any comparison: -1 as uint8 would be 255.
    labels = labels.long()
    ignored = None if ignore_index is None else labels == ignore_index
    if num_segments is None:
        used = labels if ignored is None else labels[~ignored]
        num_segments = int(used.max()) + 1 if used.numel() else 0
    check_count("num_segments", num_segments)
    check_below("labels", labels, num_segments, but=ignore_index)
    segments = labels.flatten(-2)
    if ignored is None:
        return segments, num_segments, num_segments
    return segments.masked_fill(ignored.flatten(-2), num_segments), num_segments, num_segments + 1


def _check_labels(labels: Tensor, name: str, like: Tensor, lead: torch.Size) -> None:
    """Labels fit when their dimensions before H and W are the last of `lead`."""
    check_device("labels", labels, like)
    own = labels.shape[:-2]
    if own != lead[len(lead) - len(own) :]:
        raise ValueError(
            f"labels: expected one map for each image in {name} {tuple(like.shape)}, got {tuple(labels.shape)}"
        )


def _count(segments: Tensor, num_segments: int) -> Tensor:
    ones = torch.ones((), dtype=torch.int64, device=segments.device).expand_as(segments)
    return torch.zeros(
        *segments.shape[:-1], num_segments, dtype=torch.int64, device=segments.device
    ).scatter_add_(-1, segments, ones)


def _sum_rows(image: Tensor, segments: Tensor, count: int) -> Tensor:
    """Sums `[..., C, K]` over pixels whose channels are neighbours in memory (`torch.channels_last`)."""
    lead, channels = image.shape[:-3], image.shape[-3]
    rows = image.movedim(-3, -1).reshape(-1, channels)
    first = torch.arange(lead.numel(), device=segments.device).reshape(*lead, 1) * count
    sums = segment_sum_dense(rows, (segments + first).flatten(), lead.numel() * count)
    return sums.reshape(*lead, count, channels).transpose(-1, -2)


def _add_planes(planes: Tensor, segments: Tensor, count: int) -> Tensor:
    """Returns sums `[..., C, K]` of `[..., C, H * W]`, added in float64 in the order of the pixels and rounded once."""
    sums = planes.new_zeros(*planes.shape[:-1], count, dtype=torch.float64)
    if torch.compiler.is_compiling():
        # One operation whatever the batch; a loop over its images would be a graph of their number.
        index = segments.unsqueeze(-2).expand(planes.shape)
        return sums.scatter_add_(-1, index, planes.double()).to(planes.dtype)
    # Map by map: an index per pixel of a map, and not of every plane, is three times as fast as the scatter.
    maps = segments.reshape(segments.shape[:-1].numel(), segments.shape[-1])
    alike = planes.shape[: planes.dim() - 1 - segments.dim()].numel()
    parts = planes.reshape(alike, len(maps), *planes.shape[-2:])
    by_map = sums.view(alike, len(maps), *sums.shape[-2:])
    for number, index in enumerate(maps):
        by_map[:, number].index_add_(-1, index, parts[:, number].double())
    return sums.to(planes.dtype)


class _SumPlanes(torch.autograd.Function):
    """The same plane by plane; backward every pixel gets the gradient of its segment."""

    @staticmethod
    def forward(image: Tensor, segments: Tensor, count: int) -> Tensor:
        return _add_planes(image.flatten(-2), segments, count)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        image, segments, _ = inputs
        ctx.save_for_backward(segments)
        ctx.size = image.shape[-2:]  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[Tensor, None, None]:
        (segments,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return _spread(g, segments, ctx.size), None, None  # type: ignore[attr-defined]


class _Spread(torch.autograd.Function):
    """Values `[..., C, K]` at the pixels `[..., C, H, W]`; backward the sums over the pixels."""

    @staticmethod
    def forward(values: Tensor, segments: Tensor, size: torch.Size) -> Tensor:
        index = segments.unsqueeze(-2).expand(*values.shape[:-1], segments.shape[-1])
        return values.gather(-1, index).reshape(*values.shape[:-1], *size)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, Tensor, torch.Size], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.count = inputs[0].shape[-1]  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[Tensor, None, None]:
        (segments,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return _sum(g, segments, ctx.count), None, None  # type: ignore[attr-defined]


def _sum(image: Tensor, segments: Tensor, count: int) -> Tensor:
    if image.stride(-3) == 1 and image.shape[-3] > 1:
        return _sum_rows(image, segments, count)
    sums: Tensor = _SumPlanes.apply(image, segments, count)  # type: ignore[no-untyped-call]
    return sums


def _spread(values: Tensor, segments: Tensor, size: torch.Size) -> Tensor:
    image: Tensor = _Spread.apply(values, segments, size)  # type: ignore[no-untyped-call]
    return image


def superpixel_counts(
    labels: Tensor, num_segments: int | None = None, *, ignore_index: int | None = None
) -> Tensor:
    """Pixels of each superpixel: `n[k] = #{ p : labels[p] = k }`.

    Arguments and errors as in `superpixel_avg_pool2d`.

    Returns:
        Counts `[..., K]` for labels `[..., H, W]`, int64.

    >>> import torch, snnlib
    >>> snnlib.functional.superpixel_counts(torch.tensor([[0, 1], [1, 1]]), 3).tolist()
    [1, 3, 0]
    """
    segments, num_segments, count = _segments(labels, num_segments, ignore_index)
    return _count(segments, count)[..., :num_segments]


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
    others. Sums are taken in float64, or of pixels that are channels-last in pieces: their error does not grow with the
    size of the image. The image is not kept for the backward pass. Results are the same in every call; on a GPU with
    `torch.use_deterministic_algorithms(True)`.

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
        TypeError: `image` is no floating tensor or `labels` none of integers.
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
    segments, num_segments, count = _segments(labels, num_segments, ignore_index)
    _check_labels(labels, "image", image, image.shape[:-3])
    if labels.shape[-2:] != image.shape[-2:]:
        raise ValueError(
            f"labels: expected H, W of image {tuple(image.shape[-2:])}, got {tuple(labels.shape[-2:])}"
        )
    values = image.to(torch.promote_types(image.dtype, torch.float32))
    sums = _sum(values, segments, count)[..., :num_segments]
    counts = _count(segments, count)[..., :num_segments].unsqueeze(-2)
    means = sums / counts.clamp(min=1)
    if fill != 0:
        means = torch.where(counts > 0, means, fill)
    return means.to(image.dtype)


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
        TypeError: `pooled` is no floating tensor or `labels` none of integers.
        ValueError: shapes that do not fit, or a label out of range; the message says where.

    >>> import torch, snnlib
    >>> pooled = torch.tensor([[[5.0, 7.0, 9.0]]])
    >>> snnlib.functional.superpixel_unpool(pooled, torch.tensor([[[0, 1], [1, 1]]]))
    tensor([[[[5., 7.],
              [7., 7.]]]])
    """
    check_floating("pooled", pooled)
    check_rank("pooled", pooled, "[..., C, K]", at_least=2)
    segments, num_segments, count = _segments(labels, pooled.shape[-1], ignore_index)
    _check_labels(labels, "pooled", pooled, pooled.shape[:-2])
    values = pooled.to(torch.promote_types(pooled.dtype, torch.float32))
    values = F.pad(values, (0, count - num_segments), value=fill)
    return _spread(values, segments, labels.shape[-2:]).to(pooled.dtype)
