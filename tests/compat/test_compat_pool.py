"""Inverse-scaled average pooling under the papers' names."""

import pytest
import torch
from torch import Tensor

from snnlib import compat


def _frame(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)[None, None]


@pytest.mark.parametrize("kernel", [2, (2, 2)])
def test_windows_of_1_4_1_and_no_events(kernel: int) -> None:
    x = _frame([[1, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]).requires_grad_()
    compat.PoolFunc.apply(x, kernel).backward(_frame([[1, 2], [3, 4]]))
    expected = [[1, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 0, 0, 4], [0, 0, 0, 0]]
    torch.testing.assert_close(x.grad, _frame(expected))


def test_stacked_modules_keep_the_sum() -> None:
    x = torch.zeros(1, 1, 1, 4, 4)
    for row, column in ((0, 0), (0, 1), (0, 2), (2, 2)):
        x[..., row, column] = 1
    x.requires_grad_()
    compat.Pooling()(compat.Pooling()(x)).sum().backward()
    assert torch.equal(x.grad, 0.25 * x.detach())
