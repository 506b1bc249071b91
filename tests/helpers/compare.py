"""Comparisons that cannot hide an error: bits, elements, and gradients as vectors."""

from collections.abc import Iterable

import torch
from torch import Tensor


def assert_bits(actual: Tensor, expected: Tensor, what: str = "result") -> None:
    """Same shape, dtype, values and signs of zeros, NaN where NaN; says where the first difference is."""
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, expected {expected.dtype}"
    if actual.is_complex():
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    different = (actual != expected) | (actual.signbit() != expected.signbit())
    different &= ~(actual.isnan() & expected.isnan())
    if different.any():
        first = tuple(different.nonzero()[0].tolist())
        raise AssertionError(
            f"{what}: {int(different.sum())} of {different.numel()} elements differ, first at {first}: "
            f"{actual[first].item()!r}, expected {expected[first].item()!r}"
        )


def _steps(x: Tensor) -> list[int]:
    """Strides of the axes along which a tensor has more than one element."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def assert_same_bits(
    actual: Iterable[Tensor], expected: Iterable[Tensor], what: str = "results", strides: bool = False
) -> None:
    """`assert_bits` of each pair; with `strides` they lie alike in memory, too."""
    for number, (out, other) in enumerate(zip(actual, expected, strict=True)):
        assert not strides or _steps(out) == _steps(other), f"{what}, output {number}"
        assert_bits(out, other, f"{what}, output {number}")


def assert_close(actual: Tensor, expected: Tensor, tolerance: float, what: str = "result") -> None:
    """`|actual - expected| <= tolerance (1 + |expected|)` for every element; NaN fails."""
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    if actual.numel() == 0:
        return
    excess = (actual.double() - expected).abs() / (1 + expected.abs())
    worst = int(excess.nan_to_num(nan=torch.inf).argmax())
    assert bool((excess <= tolerance).all()), (
        f"{what}: relative error {excess.flatten()[worst].item():.3g} > {tolerance:.3g} at flat index {worst}: "
        f"{actual.flatten()[worst].item()!r}, expected {expected.flatten()[worst].item()!r}"
    )


def assert_gradient(
    actual: Tensor, expected: Tensor, tolerance: float, what: str = "gradient", element: float | None = None
) -> None:
    """Elements, and the whole as a vector: relative L1 and L2, cosine, signed bias. A lost gradient shows in one."""
    assert_close(actual, expected, tolerance if element is None else element, what)
    a, e = actual.double().flatten(), expected.double().flatten()
    l1, l2 = e.abs().sum(), e.norm()
    assert l2 > 0, f"{what}: the expected gradient is zero, so the comparison shows nothing"
    measures = {
        "relative L1": (a - e).abs().sum() / l1,
        "relative L2": (a - e).norm() / l2,
        "cosine distance": 1 - a @ e / (a.norm() * l2),
        "signed bias": (a - e).sum().abs() / l1,
    }
    for name, value in measures.items():
        assert value <= tolerance, f"{what}: {name} {value.item():.3g} > {tolerance:.3g}"
