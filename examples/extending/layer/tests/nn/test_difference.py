"""Differences from step to step: values, gradients, chunks and what is refused."""

import pytest
import torch

import snnlib


@pytest.mark.parametrize("batch_first", [False, True])
def test_values_gradients_and_chunks(batch_first: bool) -> None:
    layer, dim = snnlib.nn.Difference(batch_first), int(batch_first)
    x = torch.randn(6, 6, 3, dtype=torch.float64, requires_grad=True)
    expected = x - torch.cat((torch.zeros_like(x.narrow(dim, 0, 1)), x.narrow(dim, 0, 5)), dim)
    assert torch.equal(layer(x), expected)
    assert torch.autograd.gradcheck(layer, x)
    stream = snnlib.Stream(layer)
    assert torch.equal(torch.cat([stream(chunk) for chunk in x.split(2, dim)], dim), expected)


def test_states_of_another_batch_are_refused() -> None:
    layer = snnlib.nn.Difference()
    _, state = layer.run(torch.zeros(2, 4, 3))
    with pytest.raises(ValueError, match=r"^state: expected shape \(5, 3\), got \(4, 3\)$"):
        layer.run(torch.zeros(2, 5, 3), state)
