"""The batches of a report's loader: `(x, labels)`, `(x, labels, lengths)`, or x alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib.checks import check_lengths


def labelled_steps(x: Tensor, labels: Tensor | None) -> bool:
    """Whether there is a label, or a row of them, for every step."""
    return labels is not None and labels.dim() in (2, 3) and labels.shape[:2] == x.shape[:2]


def parts_of(batch: Any, number: int, batch_first: bool) -> list[tuple[Tensor, Tensor | None]]:
    """Inputs and labels of a batch, cut to the samples' own steps: a part for each length.

    Raises:
        ValueError: a batch of another form, or lengths that do not fit.
    """
    if isinstance(batch, Tensor):
        batch = (batch,)
    if not (isinstance(batch, (tuple, list)) and 1 <= len(batch) <= 3):
        raise ValueError(
            "loader: expected batches (x, labels), (x, labels, lengths) or x alone, got "
            f"{type(batch).__name__} as batch {number}"
        )
    x, labels, *rest = (*batch, None) if len(batch) == 1 else batch
    labels = None if labels is None else torch.as_tensor(labels)
    per_step = isinstance(x, Tensor) and labelled_steps(x, labels)
    samples = x.shape[0 if batch_first else 1] if isinstance(x, Tensor) and x.dim() > 2 else -1
    several = labels is not None and labels.dim() == 2 and len(labels) == samples
    fits = labels is None or per_step or several or labels.dim() == 1
    if samples < 0 or not fits or (labels is not None and labels.is_complex()):
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        found = "no labels" if labels is None else f"{tuple(labels.shape)} {labels.dtype}"
        raise ValueError(
            "loader: expected x [T, N, ...] and labels [N] or [N, K], or [T, N] and [T, N, K] for every step, got "
            f"{shape} and {found} as batch {number}"
        )
    if labels is not None and not labels.is_floating_point() and labels.dtype != torch.bool:
        labels = labels.long()
    if not rest:
        return [(x, labels)]
    time_dim = int(batch_first)
    lengths = check_lengths(torch.as_tensor(rest[0]).to(x.device), x, time_dim)
    if len(lengths) and int(lengths.min()) < 1:
        raise ValueError(f"loader: expected samples of at least one step, got lengths {lengths.tolist()}")
    parts: list[tuple[Tensor, Tensor | None]] = []
    for length in sorted(set(lengths.tolist())):
        own = (lengths == length).nonzero().squeeze(1)
        kept = x.index_select(1 - time_dim, own).narrow(time_dim, 0, length)
        if labels is None:
            parts.append((kept, None))
            continue
        some = labels.index_select(1 - time_dim if per_step else 0, own.to(labels.device))
        parts.append((kept, some.narrow(time_dim, 0, length) if per_step else some))
    return parts
