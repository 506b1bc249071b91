"""Layouts of a layer's output, written with a letter per dimension, and how each becomes `[T, N, C, H, W]`."""

from __future__ import annotations

import math

from torch import Tensor

# Layouts by number of dimensions: tokens of a transformer, a conv layer, a spiking conv layer.
_BY_RANK = {3: "NLC", 4: "NCHW", 5: "TNCHW"}
_LETTERS = [set("NLC"), set("NCHW"), set("TNLC"), set("TNCHW")]


def check_layout(layout: str) -> None:
    """Raise ValueError unless `layout` has each of N, C and L or H, W once, and T at most once."""
    if set(layout) not in _LETTERS or len(set(layout)) != len(layout):
        raise ValueError(
            f"layout: expected N, C and either L or H, W, with or without T, such as 'TNCHW', got {layout!r}"
        )


def layout_of(output: Tensor, layout: str | None) -> str:
    """The layout of a layer's output: the one given, or the usual one of its rank."""
    found = _BY_RANK.get(output.dim(), "") if layout is None else layout
    if len(found) != output.dim():
        expected = "3 to 5 dimensions" if layout is None else f"layout {layout!r}"
        raise ValueError(
            f"target_layer: expected an output of {expected}, got shape {tuple(output.shape)}; "
            "name its dimensions with layout="
        )
    if any(size == 0 for letter, size in zip(found, output.shape, strict=True) if letter != "N"):
        raise ValueError(f"target_layer: expected an output with cells, got shape {tuple(output.shape)}")
    return found


def batch_first(layout: str) -> bool:
    """Returns whether the batch dimension comes before time."""
    return "T" in layout and layout.index("N") < layout.index("T")


def to_frames(x: Tensor, layout: str) -> Tensor:
    """`[T, N, C, H, W]`, or `[T, N, C, L]` for tokens; T is 1 where the layout has none."""
    frames = x.permute([layout.index(letter) for letter in "TNCHWL" if letter in layout])
    return frames if "T" in layout else frames.unsqueeze(0)


def patch_grid(
    tokens: int, prefix_tokens: int | None, grid: tuple[int, ...] | None, size: tuple[int, int]
) -> tuple[int, tuple[int, ...]]:
    """Returns how many tokens come before the patches, and rows and columns of the patches.

    A grid that is not given has the shape of the input (patches are square); prefix tokens that are not given are
    none or one.

    >>> patch_grid(17, None, None, (32, 32)), patch_grid(10, 2, None, (16, 32))
    ((1, (4, 4)), (2, (2, 4)))
    """
    if grid is not None:
        prefix = tokens - grid[0] * grid[1]
        if prefix < 0 or prefix_tokens not in (None, prefix):
            raise ValueError(
                f"grid: expected {tokens} tokens less {prefix_tokens or 0} prefix tokens, "
                f"got {grid[0]} x {grid[1]}"
            )
        return prefix, grid
    height, width = size
    for prefix in (0, 1) if prefix_tokens is None else (prefix_tokens,):
        patches = tokens - prefix
        rows = max(1, round(math.sqrt(max(patches, 0) * height / width)))
        columns = patches // rows
        if 0 < rows * columns == patches and rows * width == columns * height:
            return prefix, (rows, columns)
    prefixes = "0 or 1" if prefix_tokens is None else prefix_tokens
    raise ValueError(
        f"grid: expected rows and columns, as {tokens} tokens with {prefixes} prefix tokens are no grid of square "
        f"patches over an input of {height} x {width}, got none"
    )
