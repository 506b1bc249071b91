"""Milliseconds of segment sums and superpixel pooling: snnlib and the formulations that torch offers for the same task.

    python benchmarks/cpu/segments.py [--json FILE] [--picture FILE]

Superpixel pooling: image [8, 64, 256, 256], 400 labels per image (nearest of random centres). Segment sums: 1e6 rows
of 16 in 1e5 segments. All candidates take turns, so that a drift of the machine's speed meets all of them; figures are
medians, ratios are medians of the ratios to snnlib within one turn: above 1, snnlib is faster. `snnlib` includes its
argument checks; "without kernels" is its reference path. Backward passes write a gradient of the size of the input, in
memory that is kept between turns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as torch_f
from charts import bars
from torch import Tensor
from turns import Report, Task, parser, take_turns

import snnlib
from snnlib import functional as F

# Labels per image and numbers per row.
K, WIDTH = 400, 16


def _labels(samples: int, side: int, generator: torch.Generator) -> Tensor:
    """Voronoi cells: `[N, H, W]`"""
    line = torch.arange(side, dtype=torch.float32)
    pixels = torch.cartesian_prod(line, line)
    maps = [
        torch.cdist(pixels, torch.rand(K, 2, generator=generator) * side).argmin(1).reshape(side, side)
        for _ in range(samples)
    ]
    return torch.stack(maps)


def _prefix_sum(rows: Tensor, sorted_ids: Tensor) -> Tensor:
    """Differences of a running sum: the error grows with the number of rows, NaN spreads."""
    last = torch.cat((sorted_ids[1:] != sorted_ids[:-1], torch.ones(1, dtype=torch.bool)))
    ends = rows.cumsum(0)[last]
    return torch.cat((ends[:1], ends[1:] - ends[:-1]))


def _divide(sums: Tensor, ids: Tensor) -> Tensor:
    counts = torch.zeros(len(ids), K).scatter_add_(1, ids, torch.ones(()).expand(ids.shape))
    return sums / counts.unsqueeze(1).clamp(min=1)


def _scatter_add(image: Tensor, ids: Tensor) -> Tensor:
    index = ids.unsqueeze(1).expand(-1, image.shape[1], -1)
    return _divide(image.new_zeros(*image.shape[:2], K).scatter_add_(2, index, image.flatten(2)), ids)


def _scatter_reduce(image: Tensor, ids: Tensor) -> Tensor:
    index = ids.unsqueeze(1).expand(-1, image.shape[1], -1)
    return _divide(
        image.new_zeros(*image.shape[:2], K).scatter_reduce(2, index, image.flatten(2), "sum"), ids
    )


def _index_add(image: Tensor, ids: Tensor) -> Tensor:
    planes = image.flatten(2)
    sums = [
        own.new_zeros(len(own), K).index_add(1, labels, own) for own, labels in zip(planes, ids, strict=True)
    ]
    return _divide(torch.stack(sums), ids)


def _index_add_rows(image: Tensor, ids: Tensor) -> Tensor:
    n, c = image.shape[:2]
    rows = image.permute(0, 2, 3, 1).reshape(-1, c)
    flat = (ids + K * torch.arange(n).unsqueeze(1)).flatten()
    sums = torch.zeros(n * K, c).index_add(0, flat, rows)
    return _divide(sums.reshape(n, K, c).transpose(1, 2), ids)


def _segment_reduce(image: Tensor, ids: Tensor) -> Tensor:
    n, c = image.shape[:2]
    rows = image.permute(0, 2, 3, 1).reshape(-1, c)
    flat = (ids + K * torch.arange(n).unsqueeze(1)).flatten()
    lengths = torch.bincount(flat, minlength=n * K)
    sums = torch.segment_reduce(rows[flat.argsort(stable=True)], "sum", lengths=lengths, axis=0)
    return _divide(sums.reshape(n, K, c).transpose(1, 2), ids)


def _prefix_sum_planes(image: Tensor, ids: Tensor) -> Tensor:
    maps = []
    for planes, own in zip(image.flatten(2), ids, strict=True):
        ends = torch.bincount(own, minlength=K).cumsum(0)
        running = torch_f.pad(planes[:, own.argsort(stable=True)].cumsum(1), (1, 0))
        maps.append(running[:, ends].diff(dim=1, prepend=planes.new_zeros(len(planes), 1)))
    return _divide(torch.stack(maps), ids)


def _without_kernels(image: Tensor, labels: Tensor) -> Tensor:
    with snnlib.use_path("reference"):
        return F.superpixel_avg_pool2d(image, labels, K)


def _superpixel_tasks(image: Tensor, labels: Tensor) -> dict[str, dict[str, Task]]:
    """Forward, and forward with backward, of every candidate."""
    ids = labels.flatten(1)
    candidates: dict[str, Callable[[Tensor], Tensor]] = {
        "snnlib": lambda x: F.superpixel_avg_pool2d(x, labels, K),
        "snnlib without kernels": lambda x: _without_kernels(x, labels),
        "scatter_add": lambda x: _scatter_add(x, ids),
        "scatter_reduce": lambda x: _scatter_reduce(x, ids),
        "index_add per image": lambda x: _index_add(x, ids),
        "index_add on pixels": lambda x: _index_add_rows(x, ids),
        "segment_reduce": lambda x: _segment_reduce(x, ids),
        "prefix sum": lambda x: _prefix_sum_planes(x, ids),
    }
    leaf = image.clone().requires_grad_()
    g = torch.rand(*image.shape[:2], K)

    def both(pool: Callable[[Tensor], Tensor]) -> Task:
        return lambda: torch.autograd.grad(pool(leaf), leaf, g)

    return {
        "forward": {name: lambda pool=pool: pool(image) for name, pool in candidates.items()},
        "forward + backward": {name: both(pool) for name, pool in candidates.items()},
    }


def _segment_tasks(count: int, segments: int, generator: torch.Generator) -> dict[str, dict[str, Task]]:
    x = torch.rand(count, WIDTH, generator=generator)
    ids = torch.randint(0, segments, (count,), generator=generator)
    ids[:segments] = torch.arange(segments)
    in_order = ids.sort().values
    # Ids are what a grid gives; ranks are known to be integers only.
    ranks, ranks_in_order = ids * 1009 + 17, in_order * 1009 + 17

    def consecutive() -> tuple[Tensor, Tensor]:
        _, inverse, lengths = torch.unique_consecutive(
            ranks_in_order, return_inverse=True, return_counts=True
        )
        return inverse, lengths

    def unique() -> Tensor:
        return torch.unique(ranks, return_inverse=True)[1]

    def index_add(own: Tensor) -> Tensor:
        return torch.zeros(segments, WIDTH).index_add_(0, own, x)

    def scatter_add(own: Tensor) -> Tensor:
        return torch.zeros(segments, WIDTH).scatter_add_(0, own.unsqueeze(1).expand(-1, WIDTH), x)

    def segment_reduce(rows: Tensor, lengths: Tensor) -> Tensor:
        return torch.segment_reduce(rows, "sum", lengths=lengths, axis=0)

    def sorted_reduce(own: Tensor) -> Tensor:
        own, order = own.sort(stable=True)
        return segment_reduce(x[order], torch.unique_consecutive(own, return_counts=True)[1])

    def sorted_prefix(own: Tensor) -> Tensor:
        own, order = own.sort(stable=True)
        return _prefix_sum(x[order], own)

    return {
        "sorted ranks": {
            "snnlib": lambda: F.segment_sum(x, ranks_in_order, assume_sorted=True),
            "index_add": lambda: index_add(consecutive()[0]),
            "scatter_add": lambda: scatter_add(consecutive()[0]),
            "segment_reduce": lambda: segment_reduce(x, consecutive()[1]),
            "prefix sum": lambda: _prefix_sum(x, ranks_in_order),
        },
        "unsorted, known ids": {
            "snnlib": lambda: F.segment_sum_dense(x, ids, segments),
            "index_add": lambda: index_add(ids),
            "scatter_add": lambda: scatter_add(ids),
            "segment_reduce": lambda: sorted_reduce(ids),
            "prefix sum": lambda: sorted_prefix(ids),
        },
        "unsorted, unknown ranks": {
            "snnlib": lambda: F.segment_sum(x, ranks),
            "index_add": lambda: index_add(unique()),
            "scatter_add": lambda: scatter_add(unique()),
            "segment_reduce": lambda: sorted_reduce(ranks),
            "prefix sum": lambda: sorted_prefix(ranks),
        },
    }


def main() -> None:
    arguments = parser(__doc__).parse_args()
    report = Report(arguments)
    generator = torch.Generator().manual_seed(0)
    samples, channels, side = (2, 3, 32) if arguments.quick else (8, 64, 256)
    image = torch.rand(samples, channels, side, side, generator=generator)
    labels = _labels(samples, side, generator)
    groups = {
        "superpixel pooling": _superpixel_tasks(image, labels),
        "superpixel pooling, channels last": _superpixel_tasks(
            image.to(memory_format=torch.channels_last), labels
        ),
        "segment sum": _segment_tasks(*((1000, 100) if arguments.quick else (10**6, 10**5)), generator),
    }
    for group, cases in groups.items():
        for case, tasks in cases.items():
            report.add(f"{group}, {case}", take_turns(tasks, arguments.turns))
    report.write(partial(bars, title="Sums over segments"))


if __name__ == "__main__":
    main()
