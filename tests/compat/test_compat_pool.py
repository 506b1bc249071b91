"""Inverse-scaled average pooling under the papers' names."""

import pytest
import torch
from torch import Tensor

from snnlib import compat

# (input rows, kernel, gradient, expected gradient), of worked windows.
VECTORS = {
    "windows of 1 and 4 events": (
        [[1, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]],
        (2, 2),
        [[1, 2], [3, 4]],
        [[1, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 0, 0, 4], [0, 0, 0, 0]],
    ),
    "odd size": (
        [[1] * 5] * 5,
        2,
        [[1, 2], [3, 4]],
        [[0.25, 0.25, 0.5, 0.5, 0]] * 2 + [[0.75, 0.75, 1, 1, 0]] * 2 + [[0] * 5],
    ),
    "silent": ([[0, 0], [0, 0]], (2, 2), [[1]], [[0, 0], [0, 0]]),
}


def _frame(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)[None, None]


@pytest.mark.parametrize(("rows", "kernel", "g", "expected"), VECTORS.values(), ids=list(VECTORS))
def test_vectors(
    rows: list[list[float]], kernel: int, g: list[list[float]], expected: list[list[float]]
) -> None:
    x = _frame(rows).requires_grad_()
    compat.PoolFunc.apply(x, kernel).backward(_frame(g))
    torch.testing.assert_close(x.grad, _frame(expected))


def test_stacked_modules_keep_the_sum() -> None:
    x = torch.zeros(1, 1, 1, 4, 4)
    for row, column in ((0, 0), (0, 1), (0, 2), (2, 2)):
        x[..., row, column] = 1
    x.requires_grad_()
    compat.Pooling()(compat.Pooling()(x)).sum().backward()
    assert torch.equal(x.grad, 0.25 * x.detach())
