"""Properties of the neuron and its gradient that hold for any input: scaling, shifts, permutations, causality."""

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


@given(seed=seeds, delay=st.integers(1, 9))
def test_time_shift(seed: int, delay: int, path: str) -> None:
    current, q = _train(seed, 10, 2, 5), _train(seed + 1, 10, 2, 5)
    silence = torch.zeros(delay, 2, 5, dtype=torch.float64)
    late = torch.cat((silence, current))
    assert torch.equal(F.srm_neuron(late), torch.cat((silence, F.srm_neuron(current))))
    shifted = F.srm_backward(torch.cat((silence, q)), late)
    for signal, expected in zip(shifted, F.srm_backward(q, current), strict=True):
        assert torch.equal(signal[delay:], expected)


@given(seed=seeds)
def test_permutation_of_batch_and_neurons(seed: int, path: str) -> None:
    """More neurons than a SIMD block: lanes know nothing of each other."""
    current, q = _train(seed, 8, 5, 31), _train(seed + 1, 8, 5, 31)
    threshold = torch.rand(31, generator=torch.Generator().manual_seed(seed)) + 0.5
    generator = torch.Generator().manual_seed(seed)
    batch, neurons = torch.randperm(5, generator=generator), torch.randperm(31, generator=generator)

    def permute(x: Tensor) -> Tensor:
        return x[:, batch][:, :, neurons]

    spikes = F.srm_neuron(current, threshold=threshold)
    assert torch.equal(F.srm_neuron(permute(current), threshold=threshold[neurons]), permute(spikes))
    moved = F.srm_backward(permute(q), permute(current), threshold=threshold[neurons])
    for signal, expected in zip(moved, F.srm_backward(q, current, threshold=threshold), strict=True):
        assert torch.equal(signal, permute(expected))


@given(seed=seeds, cut=st.integers(0, 11))
def test_causality(seed: int, cut: int, path: str) -> None:
    """Currents from step `cut` on change no spike before it; gradients before a spike know nothing of later ones."""
    current = _train(seed, 12, 2, 5)
    other = current.clone()
    other[cut:] = _train(seed + 1, 12 - cut, 2, 5)
    assert torch.equal(F.srm_neuron(current)[:cut], F.srm_neuron(other)[:cut])


@given(seed=seeds)
def test_each_spike_is_paid_by_the_inputs_since_the_one_before(seed: int, path: str) -> None:
    """A gradient at one spike reaches back to the spike before it and no further."""
    current = _train(seed, 16, 1, 3)
    spikes = F.srm_neuron(current)
    for n in range(3):
        steps = spikes[:, 0, n].nonzero().flatten().tolist()
        for before, step in zip([-1, *steps], steps, strict=False):
            q = torch.zeros_like(current)
            q[step, 0, n] = 1
            a, b = F.srm_backward(q, current)
            for signal in (a, b):
                assert signal[before + 1 : step + 1, 0, n].all()
                signal[before + 1 : step + 1, 0, n] = 0
                assert not signal.any()
