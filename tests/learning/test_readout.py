"""Counts, rates and first spike times: values by loops, gradients by their definition, and signs through a neuron."""

import warnings
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import snnlib
from snnlib.learning.decoding import (
    firing_rate,
    first_spike_time,
    spike_count,
    spike_times,
    time_weighted_count,
)

READOUTS = [spike_count, firing_rate, time_weighted_count, first_spike_time, spike_times]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
trains = st.integers(1, 8).flatmap(
    lambda neurons: st.lists(
        st.lists(st.booleans(), min_size=neurons, max_size=neurons), min_size=1, max_size=12
    )
)


def as_train(rows: list[list[bool]], batch_first: bool = False) -> Tensor:
    train = torch.tensor(rows, dtype=torch.float32).unsqueeze(1)
    return train.transpose(0, 1) if batch_first else train


@given(trains, st.booleans())
def test_values_by_loops(rows: list[list[bool]], batch_first: bool) -> None:
    train = as_train(rows, batch_first)
    columns = list(zip(*rows, strict=True))
    steps = len(rows)
    assert spike_count(train, batch_first).tolist() == [[float(sum(column)) for column in columns]]
    assert firing_rate(train, batch_first).tolist() == [
        pytest.approx([sum(column) / steps for column in columns])
    ]
    times = [float(column.index(True)) if any(column) else float(steps) for column in columns]
    assert first_spike_time(train, batch_first).tolist() == [times]
    weighted = [sum(1 - t / steps for t, fired in enumerate(column) if fired) for column in columns]
    assert time_weighted_count(train, batch_first).tolist() == [pytest.approx(weighted)]
    ordered = [sorted([float(t) if fired else float(steps) for t, fired in enumerate(c)]) for c in columns]
    every = spike_times(train, batch_first)
    assert every.shape == train.shape
    assert (every[0].t() if batch_first else every[:, 0].t()).tolist() == ordered


@given(trains, st.booleans())
def test_gradients(rows: list[list[bool]], batch_first: bool) -> None:
    train = as_train(rows, batch_first)
    grad = torch.arange(1.0, len(rows[0]) + 1).unsqueeze(0)

    def gradient(readout: Callable[..., Tensor], signal: Tensor) -> Tensor:
        leaf = train.clone().requires_grad_()
        return torch.autograd.grad(readout(leaf, batch_first), leaf, signal)[0]

    assert torch.equal(gradient(spike_count, grad), grad.unsqueeze(int(batch_first)).expand_as(train))

    weight = 1 - torch.arange(len(rows)) / len(rows)
    expected = weight.view(-1, 1, 1) * grad
    expected = expected.transpose(0, 1) if batch_first else expected
    torch.testing.assert_close(gradient(time_weighted_count, grad), expected)

    # Every spike has its own number as gradient, so that each must find its way back.
    mark = torch.arange(1.0, train.numel() + 1).view_as(train)
    expected = torch.zeros_like(train)
    for neuron in range(len(rows[0])):
        number = 0
        for t, row in enumerate(rows):
            if row[neuron]:
                place = (0, t, neuron) if batch_first else (t, 0, neuron)
                expected[place] = -mark[(0, number, neuron) if batch_first else (number, 0, neuron)]
                number += 1
    assert torch.equal(gradient(spike_times, mark), expected)

    expected = torch.zeros_like(train)
    by_step = expected[0] if batch_first else expected[:, 0]
    for neuron, column in enumerate(zip(*rows, strict=True)):
        if any(column):
            by_step[column.index(True), neuron] = -grad[0, neuron]
    assert torch.equal(gradient(first_spike_time, grad), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_is_summed_in_float32(dtype: torch.dtype) -> None:
    train = torch.ones(3001, 1, 2, dtype=dtype, requires_grad=True)
    count = spike_count(train)
    assert count.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert count.tolist() == [[3001.0, 3001.0]]
    assert firing_rate(train).tolist() == [[1.0, 1.0]]
    count.sum().backward()
    assert train.grad.dtype == dtype
    late = torch.zeros(3001, 1, 1, dtype=dtype)
    late[2999] = 1
    assert first_spike_time(late).item() == 2999
    assert first_spike_time(late).dtype == count.dtype
    assert spike_times(late)[0].item() == 2999
    assert time_weighted_count(late).item() == pytest.approx(2 / 3001, rel=1e-3)


def test_silent_neurons() -> None:
    train = torch.zeros(4, 2, 3, requires_grad=True)
    assert first_spike_time(train).eq(4).all()
    assert first_spike_time(train, no_spike=9.5).eq(9.5).all()
    first_spike_time(train).sum().backward()
    assert train.grad.eq(0).all()


def test_amplitudes_count_and_nan_is_not_hidden() -> None:
    train = torch.tensor([[0.0, 0.0, torch.nan], [-0.25, torch.inf, 1.0]]).unsqueeze(1)
    times = first_spike_time(train)[0]
    assert times[0] == 1
    assert times[2].isnan()
    assert spike_count(train)[0, 0] == -0.25


def test_shapes() -> None:
    train = torch.zeros(5, 2, 3, 4, 6)
    for readout in (spike_count, firing_rate, first_spike_time):
        assert readout(train).shape == (2, 3, 4, 6)
        assert readout(train, batch_first=True).shape == (5, 3, 4, 6)
        assert readout(train[:, :, 0, 0, 0]).shape == (2,)
        assert readout(torch.zeros(5, 0, 3)).shape == (0, 3)
    assert time_weighted_count(train).shape == (2, 3, 4, 6)
    assert spike_times(train).shape == train.shape
    assert spike_times(train, batch_first=True)[0, :, 0, 0, 0].eq(2).all()
    assert spike_count(torch.zeros(0, 2, 3)).eq(0).all()
    assert time_weighted_count(torch.zeros(0, 2, 3)).eq(0).all()
    for readout in (firing_rate, first_spike_time, spike_times):
        with pytest.raises(
            ValueError, match=r"spikes: expected at least one time step, got shape \(0, 2, 3\)"
        ):
            readout(torch.zeros(0, 2, 3))


@pytest.mark.parametrize("readout", READOUTS)
def test_errors_name_the_argument(readout: object) -> None:
    with pytest.raises(TypeError, match=r"spikes: expected a floating dtype, got torch.bool"):
        readout(torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"spikes: expected \[T, N, ...\], got shape \(2,\)"):
        readout(torch.ones(2))


def test_signs_through_a_neuron() -> None:
    """Descending an earlier time or a higher count must raise the current of a neuron that fires."""
    current = torch.full((20, 1, 1), 0.6, dtype=torch.float64, requires_grad=True)
    spikes = snnlib.functional.srm_neuron(current)
    assert 1 < spikes.sum() < 10
    (of_time,) = torch.autograd.grad(first_spike_time(spikes).sum(), current, retain_graph=True)
    (of_count,) = torch.autograd.grad(-spike_count(spikes).sum(), current)
    for grad in (of_time, of_count):
        assert (grad <= 0).all()
        assert grad.sum() < 0
    earlier = snnlib.functional.srm_neuron(current - of_time)
    assert first_spike_time(earlier).item() < first_spike_time(spikes).item()


COUNTS = torch.tensor([[3.0, 0.0, 12.0], [1.0, 7.0, 2.0]])


@pytest.mark.parametrize("name", sorted(vars(snnlib.readout)["__all__"]))
def test_counts_in_place_of_spikes_are_named(name: str) -> None:
    read = getattr(snnlib.readout, name)
    with pytest.warns(UserWarning, match=r"^spikes: expected a sequence .* up to 12 of") as said:
        read(COUNTS)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Spikes of one neuron [T, N], and graded spikes [T, N, neurons].
        read((COUNTS > 2).float())
        read(COUNTS[None])
