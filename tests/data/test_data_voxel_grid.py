import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snnlib.data import ToVoxelGrid, as_events, voxel_grid

# Times 0, 1/4, 1/2, 1 of the recording in one pixel, polarities + - + +.
EVENTS = as_events(t=[0, 250, 500, 1000], x=[0] * 4, y=[0] * 4, p=[1, 0, 1, 1])


def test_worked_vector():
    """With 3 bins the events are at t* = 0, 1/2, 1, 2."""
    grid = voxel_grid(EVENTS, 3, (1, 1))
    assert grid.shape == (3, 1, 1) and grid.dtype == torch.float32
    assert grid.flatten().tolist() == [0.5, 0.5, 1]
    channels = voxel_grid(EVENTS, 3, (1, 1), polarity="channels")
    assert channels[..., 0, 0].tolist() == [[0.5, 1], [0.5, 1], [0, 1]]


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 4), st.integers(0, 2), st.integers(0, 1)), max_size=40
    ),
    st.integers(1, 9),
    st.integers(-(10**15), 10**15),
)
def test_against_a_plain_loop(rows, bins, origin):
    events = as_events(*(np.array([row[k] for row in rows], np.int64) for k in range(4)))
    signed, counts = torch.zeros(bins, 3, 5).double(), torch.zeros(bins, 2, 3, 5).double()
    times = [row[0] for row in rows]
    for t, x, y, p in rows:
        span = max(times) - min(times)
        star = (bins - 1) * (t - min(times)) / span if span else 0.0
        for b in range(bins):
            weight = max(0.0, 1 - abs(b - star))
            signed[b, y, x] += weight * (2 * p - 1)
            counts[b, p, y, x] += weight
    events["t"] += origin
    for polarity, expected in (("sign", signed), ("channels", counts)):
        made = voxel_grid(events, bins, (3, 5), polarity=polarity, dtype=torch.float64)
        torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
        shuffled = np.random.default_rng(0).permutation(events)
        torch.testing.assert_close(voxel_grid(shuffled, bins, (3, 5), polarity=polarity).double(), made)


def test_sum_of_the_grid_is_the_sum_of_the_polarities():
    rng = np.random.default_rng(1)
    events = as_events(
        rng.integers(0, 10**6, 5000), rng.integers(0, 34, 5000), rng.integers(0, 30, 5000), rng.integers(0, 2, 5000)
    )  # fmt: skip
    assert voxel_grid(events, 7, (30, 34)).sum().item() == pytest.approx(
        2 * int(events["p"].sum()) - 5000, abs=1e-3
    )
    assert voxel_grid(events, 7, (30, 34), polarity="channels").sum().item() == pytest.approx(5000)


@pytest.mark.parametrize("bins", [1, 2, 5])
def test_no_events_and_a_single_time(bins):
    assert torch.equal(voxel_grid(EVENTS[:0], bins, (2, 3)), torch.zeros(bins, 2, 3))
    assert torch.equal(voxel_grid(EVENTS[:0], bins, (2, 3), polarity="channels"), torch.zeros(bins, 2, 2, 3))
    same = as_events(t=[7] * 3, x=[2, 2, 0], y=[1, 1, 0], p=[1, 1, 0])
    expected = torch.zeros(bins, 2, 3)
    expected[0, 1, 2], expected[0, 0, 0] = 2, -1
    assert torch.equal(voxel_grid(same, bins, (2, 3)), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtype_of_the_result(dtype):
    made = voxel_grid(EVENTS, 3, (1, 1), dtype=dtype)
    assert made.dtype == dtype and made.flatten().tolist() == [0.5, 0.5, 1]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"bins": 0}, ValueError, "bins: expected an integer >= 1, got 0"),
        ({"bins": 2.5}, TypeError, "bins: expected an integer >= 1, got 2.5"),
        ({"sensor_size": (34,)}, TypeError, r"sensor_size: expected a pair \(height, width\), got \(34,\)"),
        ({"polarity": "both"}, ValueError, "polarity: expected one of sign, channels, got 'both'"),
        ({"dtype": torch.int32}, TypeError, "dtype: expected a floating torch dtype, got torch.int32"),
        ({"dtype": np.float32}, TypeError, "dtype: expected a floating torch dtype"),
    ],
)
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        ToVoxelGrid(**{"bins": 3, "sensor_size": (2, 2), **options})


def test_transform_pickles_and_says_what_it_does():
    transform = ToVoxelGrid(3, (1, 1), polarity="channels")
    again = pickle.loads(pickle.dumps(transform))
    assert torch.equal(again(EVENTS), voxel_grid(EVENTS, 3, (1, 1), polarity="channels"))
    assert repr(again) == "ToVoxelGrid(bins=3, sensor_size=(1, 1), polarity='channels', dtype=torch.float32)"
