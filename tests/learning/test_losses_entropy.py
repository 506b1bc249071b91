"""Cross-entropies of first spike times and of potentials at every step (TET)."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snnlib.learning.decoding import first_spike_time
from snnlib.learning.losses import first_spike_loss, tet_loss

seeds = st.integers(0, 10**6)


@given(seeds, st.floats(0, 0.9))
def test_first_spike_by_loops(seed: int, smoothing: float) -> None:
    sequence = (torch.rand(9, 2, 3, generator=torch.Generator().manual_seed(seed)) < 0.3).double()
    labels = [seed % 3, 1]
    expected, gradient = [], torch.zeros_like(sequence)
    for sample, label in enumerate(labels):
        fired = [sequence[:, sample, neuron].nonzero().flatten().tolist() for neuron in range(3)]
        times = [min(steps, default=len(sequence)) for steps in fired]
        odds = [math.exp(-0.4 * time) for time in times]
        wanted = [smoothing / 3 + (1 - smoothing) * (neuron == label) for neuron in range(3)]
        probable = [part / sum(odds) for part in odds]
        expected.append(-sum(w * math.log(p) for w, p in zip(wanted, probable, strict=True)))
        for neuron, time in enumerate(times):
            if time < len(sequence):
                # dL/dt = scale (wanted - p), and dL/ds its negative.
                gradient[time, sample, neuron] = -0.4 * (wanted[neuron] - probable[neuron])
    sequence.requires_grad_()
    loss = first_spike_loss(
        first_spike_time(sequence),
        torch.tensor(labels),
        scale=0.4,
        label_smoothing=smoothing,
        reduction="none",
    )
    loss.sum().backward()
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(sequence.grad, gradient)


def test_deadline_is_a_rival() -> None:
    """Another neuron always fires then: the label is moved forward even where no other neuron fires."""
    times = torch.tensor([[4.0, 7.0], [20.0, 20.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1, 0])
    loss = first_spike_loss(times, labels, scale=0.3, deadline=9.0)
    rival = torch.cat((times.detach(), torch.full((2, 1), 9.0, dtype=torch.float64)), 1)
    torch.testing.assert_close(loss, first_spike_loss(rival, labels, scale=0.3))
    loss.backward()
    # Without a rival the pulls of a sample add up to 0.
    assert (times.grad.sum(1) > 0).all()
    assert torch.autograd.gradcheck(
        lambda times: first_spike_loss(times, labels, scale=0.3, deadline=9.0), times
    )


@given(seeds, st.floats(0, 1), st.booleans())
def test_tet_by_loops(seed: int, share: float, per_step: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    potential = torch.randn(5, 2, 3, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 3, (5, 2) if per_step else (2,), generator=generator)
    expected = [0.0, 0.0]
    for sample in range(2):
        for t in range(5):
            row = potential[t, sample].tolist()
            label = int(target[t, sample] if per_step else target[sample])
            entropy = math.log(sum(math.exp(value) for value in row)) - row[label]
            spread = sum((value - 0.5) ** 2 for value in row) / 3
            expected[sample] += ((1 - share) * entropy + share * spread) / 5
    options = {"regularization": share, "target_potential": 0.5, "reduction": "none"}
    assert tet_loss(potential, target, **options).tolist() == pytest.approx(expected)
    first = tet_loss(
        potential.transpose(0, 1), target.t() if per_step else target, **options, batch_first=True
    )
    assert first.tolist() == pytest.approx(expected)
    assert torch.autograd.gradcheck(
        lambda potential: tet_loss(potential, target, label_smoothing=0.1), potential.requires_grad_()
    )


def test_half_dtypes_and_empty_batches_of_scores() -> None:
    labels = torch.tensor([0, 2])
    for dtype in (torch.float16, torch.bfloat16):
        assert first_spike_loss(torch.ones(2, 3, dtype=dtype), labels, scale=1.0).dtype == torch.float32
        assert tet_loss(torch.ones(4, 2, 3, dtype=dtype), labels).dtype == torch.float32
    assert first_spike_loss(torch.ones(0, 3), labels[:0], scale=1.0) == 0
    assert tet_loss(torch.ones(4, 0, 3), labels[:0]) == 0


def test_score_errors() -> None:
    labels = torch.tensor([0, 2])
    with pytest.raises(ValueError, match=r"times: expected \[N, classes\], got shape \(9, 2, 3\)"):
        first_spike_loss(torch.ones(9, 2, 3), labels, scale=1.0)
    with pytest.raises(ValueError, match=r"scale: expected a finite number > 0, got 0.0"):
        first_spike_loss(torch.ones(2, 3), labels, scale=0.0)
    with pytest.raises(ValueError, match=r"deadline: expected a finite number > 0, got 0.0"):
        first_spike_loss(torch.ones(2, 3), labels, scale=1.0, deadline=0.0)
    potential = torch.ones(4, 2, 3)
    with pytest.raises(ValueError, match=r"potential: expected \[T, N, classes\], got shape \(2, 3\)"):
        tet_loss(potential[0], labels)
    with pytest.raises(
        ValueError, match=r"potential: expected at least one time step, got shape \(0, 2, 3\)"
    ):
        tet_loss(potential[:0], labels)
    with pytest.raises(
        ValueError, match=r"target: expected shape \(4, 2\), one label per step and sample, got"
    ):
        tet_loss(potential, torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"target: expected shape \(2,\), one label per sample, got \(3,\)"):
        tet_loss(potential, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"target: expected labels from 0 to 2, got 0 to 3"):
        tet_loss(potential, torch.tensor([0, 3]))
    with pytest.raises(TypeError, match=r"^target: expected a torch.Tensor, got list$"):
        tet_loss(potential, [1, 0])
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=rf"regularization: expected a number in \[0, 1\], got {share}"):
            tet_loss(potential, labels, regularization=share)
    with pytest.raises(ValueError, match=r"label_smoothing: expected a number in \[0, 1\), got 1"):
        tet_loss(potential, labels, label_smoothing=1)
