"""Count+, cross-entropy on counts and its balanced form: values and gradients by loops, silence, options, errors."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from snnlib.learning.losses import (
    count_cross_entropy,
    count_cross_entropy_plus,
    spike_count_loss,
    spike_count_plus_loss,
)

problems = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6))


def _problem(samples: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 8, (samples, classes), generator=generator).double()
    return counts, torch.randint(0, classes, (samples,), generator=generator)


def _softmax(counts: list[float], scale: float) -> list[float]:
    parts = [math.exp(scale * count) for count in counts]
    return [part / sum(parts) for part in parts]


@given(problems, st.booleans())
def test_count_plus_by_loops(problem: tuple[int, int, int], one_sided: bool) -> None:
    counts, target = _problem(*problem)
    rows, labels = counts.tolist(), target.tolist()
    of_labels = sum(row[label] for row, label in zip(rows, labels, strict=True))
    of_others = sum(map(sum, rows)) - of_labels
    ratio = max(1.0, of_others / max(len(rows[0]) - 1, 1) / max(of_labels, 1.0))
    expected, gradient = 0.0, []
    for row, label in zip(rows, labels, strict=True):
        gradient.append([])
        for neuron, count in enumerate(row):
            excess = count - (5.5 if neuron == label else 1.5)
            if one_sided:
                excess = min(excess, 0) if neuron == label else max(excess, 0)
            factor = ratio if neuron == label else 1.0
            expected += factor * excess**2 / 2
            gradient[-1].append(factor * excess / max(count, 1))
    counts.requires_grad_()
    loss = spike_count_plus_loss(
        counts, target, desired=5.5, undesired=1.5, one_sided=one_sided, reduction="sum"
    )
    loss.backward()
    assert loss.item() == pytest.approx(expected)
    torch.testing.assert_close(counts.grad, torch.tensor(gradient, dtype=torch.float64))


@given(problems, st.floats(0.1, 2), st.floats(0, 0.9))
def test_cross_entropy_by_loops(problem: tuple[int, int, int], scale: float, smoothing: float) -> None:
    counts, target = _problem(*problem)
    expected, gradient, shared = [], [], []
    for row, label in zip(counts.tolist(), target.tolist(), strict=True):
        probable = _softmax(row, scale)
        wanted = [smoothing / len(row) + (1 - smoothing) * (neuron == label) for neuron in range(len(row))]
        expected.append(-sum(w * math.log(p) for w, p in zip(wanted, probable, strict=True)))
        gradient.append([scale * (p - w) for w, p in zip(wanted, probable, strict=True)])
        alive = row[label] > 0
        shared.append([g / max(n, 1) * alive for g, n in zip(gradient[-1], row, strict=True)])
    for function, wanted_gradient in ((count_cross_entropy, gradient), (count_cross_entropy_plus, shared)):
        leaf = counts.clone().requires_grad_()
        loss = function(leaf, target, scale=scale, label_smoothing=smoothing, reduction="none")
        loss.sum().backward()
        torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64))
        torch.testing.assert_close(leaf.grad, torch.tensor(wanted_gradient, dtype=torch.float64))


LOSSES = [
    lambda counts, target, **options: spike_count_loss(counts, target, desired=6, undesired=1, **options),
    lambda counts, target, **options: spike_count_plus_loss(
        counts, target, desired=6, undesired=1, **options
    ),
    count_cross_entropy,
    count_cross_entropy_plus,
]


def test_gradcheck_of_the_plain_one() -> None:
    counts, target = _problem(3, 4, 0)
    assert torch.autograd.gradcheck(
        lambda counts: count_cross_entropy(counts, target, label_smoothing=0.1), (counts + 1).requires_grad_()
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_shared_options(loss: object) -> None:
    counts, target = _problem(4, 3, 1)
    each = loss(counts, target, reduction="none")
    assert each.shape == (4,)
    torch.testing.assert_close(loss(counts, target), each.mean())
    weight = torch.tensor([1.0, 0.0, 2.5, 0.5], dtype=torch.float64)
    weighted = loss(counts, target, sample_weight=weight, reduction="none")
    torch.testing.assert_close(weighted, each * weight)
    torch.testing.assert_close(loss(counts, target, sample_weight=weight), weighted.sum() / 4)
    assert loss(counts, target, sample_weight=0 * weight) == 0
    assert loss(counts[:0], target[:0]) == 0
    assert loss(counts[:0], target[:0], sample_weight=weight[:0]) == 0
    strided = torch.stack((counts, counts), 2)[:, :, 0]
    torch.testing.assert_close(loss(strided, target.int()), each.mean())
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        half = loss(counts.to(dtype), target, sample_weight=weight.to(dtype))
        assert half.dtype == torch.float32
        torch.testing.assert_close(half.double(), weighted.sum() / 4, rtol=1e-5, atol=0)


@pytest.mark.parametrize("loss", LOSSES)
def test_silence_gives_finite_gradients(loss: object) -> None:
    """A class, a label or everything silent: nothing is infinite, and a class no sample has is no error."""
    for counts in (torch.zeros(2, 3), torch.tensor([[0.0, 4.0, 2.0], [3.0, 0.0, 0.0]])):
        counts.requires_grad_()
        value = loss(counts, torch.tensor([0, 0]))
        value.backward()
        assert value.isfinite()
        assert counts.grad.isfinite().all()


NO_INTEGERS = (torch.float32, torch.bool, torch.complex64)


@pytest.mark.parametrize("loss", LOSSES)
def test_shared_errors(loss: object) -> None:
    counts, target = _problem(2, 3, 0)
    with pytest.raises(TypeError, match=r"counts: expected a floating dtype, got torch.int64"):
        loss(counts.long(), target)
    with pytest.raises(ValueError, match=r"counts: expected \[N, classes\], got shape \(3,\)"):
        loss(counts[0], target)
    with pytest.raises(ValueError, match=r"counts: expected counts >= 0, got -1"):
        loss(torch.full((2, 3), -1.0), target)
    for labels, error, message in (
        (torch.tensor([0, 3]), ValueError, "expected labels from 0 to 2, got 0 to 3"),
        (torch.tensor([-1, 0]), ValueError, "expected labels from 0 to 2, got -1 to 0"),
        (torch.zeros(3).long(), ValueError, r"expected shape \(2,\), one label per sample, got"),
        (torch.zeros(2, 3).long(), ValueError, r"expected shape \(2,\), one label per sample, got"),
        (torch.zeros(()).long(), ValueError, r"expected shape \(2,\), one label per sample, got"),
        *((target.to(dtype), TypeError, f"expected integer labels, got {dtype}") for dtype in NO_INTEGERS),
        ([0, 2], TypeError, "expected a torch.Tensor, got list$"),
    ):
        with pytest.raises(error, match=f"^target: {message}"):
            loss(counts, labels)
    with pytest.raises(
        ValueError, match=r"sample_weight: expected shape \(2,\), one weight per sample, got \(1,\)"
    ):
        loss(counts, target, sample_weight=torch.ones(1))
    with pytest.raises(TypeError, match=r"sample_weight: expected a floating dtype, got torch.int64"):
        loss(counts, target, sample_weight=torch.ones(2, dtype=torch.int64))
    for bad in (-0.5, torch.nan):
        with pytest.raises(ValueError, match=rf"sample_weight: expected weights >= 0, got {bad}"):
            loss(counts, target, sample_weight=torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match=r"reduction: expected one of mean, sum, none, got 'max'"):
        loss(counts, target, reduction="max")


@pytest.mark.parametrize("loss", [count_cross_entropy, count_cross_entropy_plus])
def test_entropy_errors(loss: object) -> None:
    counts, target = _problem(2, 3, 0)
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"scale: expected a finite number > 0, got {scale}"):
            loss(counts, target, scale=scale)
    for smoothing in (-0.1, 1.0, math.nan):
        with pytest.raises(
            ValueError, match=rf"label_smoothing: expected a number in \[0, 1\), got {smoothing}"
        ):
            loss(counts, target, label_smoothing=smoothing)
