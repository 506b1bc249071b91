"""A symmetry of the neuron and its gradient that holds for any input: weights and thresholds scale together."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from snnlib import functional as F


def _train(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64) * 1.5 + 0.4


seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds, octaves=st.integers(-6, 6))
def test_scaling_weight_and_threshold(seed: int, octaves: int, path: str) -> None:
    """(W, theta) -> (cW, c theta): same spikes, same dL/dx, dL/dW / c. Powers of two keep every bit."""
    scale = 2.0**octaves
    x = (_train(seed, 12, 2, 7) > 1).double()
    weight = _train(seed + 1, 5, 7)
    q = _train(seed + 2, 12, 2, 5)
    results = []
    for factor in (1.0, scale):
        leaf, w = x.clone().requires_grad_(), (weight * factor).requires_grad_()
        spikes = F.srm_linear(leaf, w, threshold=factor, grad_clamp=None)
        spikes.backward(q)
        results.append((spikes.detach(), leaf.grad, w.grad * factor))
    assert all(map(torch.equal, *results))
