"""Losses on whole sequences: spike times, van Rossum, and the sequences that labels ask for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from snnlib.learning.decoding import first_spike_time
from snnlib.learning.losses import first_spike_loss, spike_time_loss, target_spike_train, van_rossum_loss

seeds = st.integers(0, 10**6)


def _sequences(seed: int, rate: float = 0.3, steps: int = 9) -> tuple[Tensor, Tensor]:
    """Two spike tensors `[T, 2, 3]`."""
    generator = torch.Generator().manual_seed(seed)
    sequence, wanted = (torch.rand(2, steps, 2, 3, generator=generator) < rate).double()
    return sequence, wanted


def _times(sequence: Tensor, sample: int, neuron: int) -> list[int]:
    fired = [t for t in range(len(sequence)) if sequence[t, sample, neuron] != 0]
    return fired + [len(sequence)] * (len(sequence) - len(fired))


@given(seeds)
def test_spike_times_by_loops(seed: int) -> None:
    sequence, wanted = _sequences(seed)
    steps = len(sequence)
    expected, gradient = [0.0, 0.0], torch.zeros_like(sequence)
    for sample in range(2):
        for neuron in range(3):
            pairs = zip(_times(sequence, sample, neuron), _times(wanted, sample, neuron), strict=True)
            for time, target in pairs:
                expected[sample] += ((time - target) / steps) ** 2 / 2
                if time < steps:
                    # dL/ds is minus dL/dt.
                    gradient[time, sample, neuron] = -(time - target) / steps**2
    sequence.requires_grad_()
    loss = spike_time_loss(sequence, wanted, reduction="none")
    loss.sum().backward()
    assert loss.tolist() == pytest.approx(expected)
    torch.testing.assert_close(sequence.grad, gradient)


@given(seeds, st.floats(1, 20))
def test_van_rossum_by_loops(seed: int, tau: float) -> None:
    sequence, wanted = _sequences(seed)
    expected = [0.0, 0.0]
    for sample in range(2):
        for neuron in range(3):
            trace = 0.0
            for t in range(len(sequence)):
                trace = (1 - 1 / tau) * trace + float(sequence[t, sample, neuron] - wanted[t, sample, neuron])
                expected[sample] += trace**2 / tau
    assert van_rossum_loss(sequence, wanted, tau=tau, reduction="none").tolist() == pytest.approx(expected)


def test_van_rossum_gradient_and_limits() -> None:
    sequence, wanted = _sequences(0)
    assert torch.autograd.gradcheck(
        lambda sequence: van_rossum_loss(sequence, wanted, tau=3.0), sequence.requires_grad_()
    )
    # tau 1 compares step by step.
    steps_apart = (sequence - wanted).square().sum() / 2
    torch.testing.assert_close(van_rossum_loss(sequence, wanted, tau=1.0), steps_apart)
    lone = torch.zeros(4000, 1, 1)
    pair = lone.clone()
    lone[100] = 1
    assert van_rossum_loss(lone, pair, tau=50.0).item() == pytest.approx(0.5, rel=0.02)
    pair[130] = 1
    assert van_rossum_loss(lone, pair, tau=50.0).item() == pytest.approx(1 - math.exp(-30 / 50), rel=0.02)


@pytest.mark.parametrize("steps", [1, 7, 30])
def test_target_trains_are_evenly_spaced(steps: int) -> None:
    for desired in range(1, steps + 1):
        sequence = target_spike_train(torch.tensor([2, 0]), steps, 3, desired=desired, undesired=desired // 2)
        assert sequence.sum(0).tolist() == [
            [desired // 2, desired // 2, desired],
            [desired, desired // 2, desired // 2],
        ]
        gaps = sequence[:, 0, 2].nonzero().flatten().diff()
        assert gaps.numel() == 0 or gaps.max() - gaps.min() <= 1
        other = target_spike_train(
            torch.tensor([2, 0]),
            steps,
            3,
            desired=desired,
            undesired=desired // 2,
            batch_first=True,
            dtype=torch.float64,
        )
        assert torch.equal(other, sequence.transpose(0, 1).double())


@pytest.mark.parametrize("loss", [spike_time_loss, van_rossum_loss])
def test_layouts_shapes_and_dtypes(loss: object) -> None:
    sequence, wanted = _sequences(3)
    each = loss(sequence, wanted, reduction="none")
    first = loss(sequence.transpose(0, 1), wanted.transpose(0, 1), batch_first=True, reduction="none")
    torch.testing.assert_close(first, each)
    wide = loss(sequence.view(9, 2, 3, 1, 1), wanted.view(9, 2, 3, 1, 1), reduction="none")
    torch.testing.assert_close(wide, each)
    neurons = torch.rand(2, 3, dtype=torch.float64)
    alone = [loss(sequence[:, :, k : k + 1], wanted[:, :, k : k + 1], reduction="none") for k in range(3)]
    weighted = loss(sequence, wanted, neuron_weight=neurons, reduction="none")
    torch.testing.assert_close(weighted, (torch.stack(alone, 1) * neurons).sum(1))
    weight = torch.tensor([3.0, 1.0])
    torch.testing.assert_close(loss(sequence, wanted, sample_weight=weight), (3 * each[0] + each[1]) / 4)
    assert loss(sequence[:, :0], wanted[:, :0]) == 0
    assert loss(sequence, sequence) == 0
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        half = loss(sequence.to(dtype), wanted.to(dtype), reduction="none")
        assert half.dtype == torch.float32
        torch.testing.assert_close(half.double(), each, rtol=1e-5, atol=1e-6)


def test_silent_outputs_cost_but_have_no_gradient() -> None:
    sequence = torch.zeros(9, 2, 3, requires_grad=True)
    labels = torch.tensor([0, 2])
    wanted = target_spike_train(labels, 9, 3, desired=3, undesired=1)
    for value in (
        first_spike_loss(first_spike_time(sequence), labels, scale=1.0),
        spike_time_loss(sequence, wanted),
    ):
        assert value > 0
        (grad,) = torch.autograd.grad(value, sequence)
        assert grad.eq(0).all()
    # The plain gradient of van Rossum's distance is there; a spiking layer does not read it where no spike is.
    assert torch.autograd.grad(van_rossum_loss(sequence, wanted), sequence)[0].ne(0).any()


def test_train_errors() -> None:
    sequence, wanted = _sequences(0)
    for loss in (spike_time_loss, van_rossum_loss):
        with pytest.raises(TypeError, match=r"spikes: expected a floating dtype, got torch.bool"):
            loss(sequence.bool(), wanted)
        with pytest.raises(TypeError, match=r"target_spikes: expected a floating dtype, got torch.int64"):
            loss(sequence, wanted.long())
        with pytest.raises(ValueError, match=r"spikes: expected \[T, N, ...\], got shape \(9,\)"):
            loss(sequence[:, 0, 0], wanted)
        with pytest.raises(
            ValueError, match=r"target_spikes: expected the shape of spikes, \(9, 2, 3\), got"
        ):
            loss(sequence, wanted[:, :1])
        with pytest.raises(
            ValueError, match=r"neuron_weight: expected shape \(2, 3\), one weight per sample and"
        ):
            loss(sequence, wanted, neuron_weight=torch.ones(3))
    with pytest.raises(ValueError, match=r"spikes: expected at least one time step"):
        spike_time_loss(sequence[:0], wanted[:0])
    assert van_rossum_loss(sequence[:0], wanted[:0]) == 0
    for tau in (0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"tau: expected a finite number of time steps >= 1, got {tau}"):
            van_rossum_loss(sequence, wanted, tau=tau)


def test_target_train_errors() -> None:
    labels = torch.tensor([0, 2])
    for desired, undesired in ((1, 1), (10, 1), (2, -1)):
        with pytest.raises(ValueError, match=r"expected 0 <= undesired < desired <= steps = 9, got"):
            target_spike_train(labels, 9, 3, desired=desired, undesired=undesired)
    with pytest.raises(ValueError, match=r"target: expected labels from 0 to 1, got 0 to 2"):
        target_spike_train(labels, 9, 2, desired=2, undesired=1)
    with pytest.raises(TypeError, match=r"target: expected integer labels, got torch.float32"):
        target_spike_train(labels.float(), 9, 3, desired=2, undesired=1)
    with pytest.raises(TypeError, match=r"^target: expected a torch.Tensor, got list$"):
        target_spike_train([1], 8, 2, desired=4, undesired=1)


def test_autocast_leaves_the_distance_of_trains_in_float32() -> None:
    sequence, wanted = (sequence.float() for sequence in _sequences(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = van_rossum_loss(sequence, wanted)
    assert torch.equal(loss, van_rossum_loss(sequence, wanted))
