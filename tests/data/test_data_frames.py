import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snnlib.data import FrameCache, ToFrames, as_events, stack_time_first, to_frames

# Worked by hand for bins of 10 us: bins 0, 0, 0, 1, 2 (late for T = 2).
pytestmark = pytest.mark.filterwarnings("ignore:events. .* lie")
EVENTS = as_events(t=[0, 5, 9, 10, 20], x=[1, 1, 2, 0, 2], y=[0, 0, 1, 1, 1], p=[1, 1, 0, 1, 0])
SMALL = {"time_steps": 2, "step_us": 10, "sensor_size": (2, 3)}


def frames(**cells: float) -> torch.Tensor:
    made = torch.zeros(2, 2, 2, 3)
    for cell, value in cells.items():
        made[tuple(int(digit) for digit in cell[1:])] = value
    return made


@pytest.mark.parametrize(
    ("mode", "late", "expected"),
    [
        ("binary", "clamp", frames(_0101=1, _0012=1, _1110=1, _1012=1)),
        ("binary", "drop", frames(_0101=1, _0012=1, _1110=1)),
        ("count", "clamp", frames(_0101=2, _0012=1, _1110=1, _1012=1)),
        ("count", "drop", frames(_0101=2, _0012=1, _1110=1)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bfloat16])
def test_hand_vectors(mode, late, expected, dtype):
    made = to_frames(EVENTS, mode=mode, late=late, dtype=dtype, **SMALL)
    assert made.dtype == dtype and torch.equal(made, expected.to(dtype))


def test_defaults():
    made = to_frames(as_events([299_999, 300_000, 10_000], [33, 33, 0], [32, 32, 5], [0, 0, 1]))
    assert made.shape == (30, 2, 34, 34) and made.dtype == torch.float32
    assert made.nonzero().tolist() == [[1, 1, 5, 0], [29, 0, 32, 33]] and made.max() == 1


def test_no_events_give_zeros():
    assert not to_frames(EVENTS[:0]).any()


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 4), st.integers(0, 2), st.integers(0, 1)), max_size=40
    ),
    st.integers(1, 12),
    st.integers(1, 30),
)
def test_against_a_plain_loop(rows, time_steps, step_us):
    events = as_events(*(np.array([row[k] for row in rows], np.int64) for k in range(4)))
    counts = {"clamp": torch.zeros(time_steps, 2, 3, 5), "drop": torch.zeros(time_steps, 2, 3, 5)}
    for t, x, y, p in rows:
        k = t // step_us
        counts["clamp"][min(k, time_steps - 1), p, y, x] += 1
        if k < time_steps:
            counts["drop"][k, p, y, x] += 1
    for late, expected in counts.items():
        options = {"time_steps": time_steps, "step_us": step_us, "sensor_size": (3, 5), "late": late}
        assert torch.equal(to_frames(events, mode="count", **options), expected)
        assert torch.equal(to_frames(events, mode="binary", **options), expected.clamp(max=1))


def test_times_before_the_first_step() -> None:
    events = EVENTS.copy()
    events["t"][4] = -7
    with pytest.raises(ValueError, match=r"field t >= 0, got -7 at event 4 .*; as_events"):
        to_frames(events, **SMALL)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"time_steps": 0}, ValueError, "time_steps: expected an integer >= 1, got 0"),
        ({"time_steps": 2.5}, TypeError, "time_steps: expected an integer >= 1, got 2.5"),
        ({"step_us": True}, TypeError, "step_us: expected an integer >= 1, got True"),
        ({"sensor_size": (34,)}, TypeError, r"sensor_size: expected a pair \(height, width\), got \(34,\)"),
        ({"mode": "sum"}, ValueError, "mode: expected one of binary, count, got 'sum'"),
        ({"late": None}, ValueError, "late: expected one of clamp, drop, error, got None"),
        ({"dtype": np.float32}, TypeError, "dtype: expected a real torch dtype"),
    ],
)
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        ToFrames(**options)


@pytest.mark.parametrize(("count", "dtype"), [(256, torch.uint8), (2, torch.bool), (257, torch.bfloat16)])
def test_counts_that_do_not_fit(count, dtype):
    events = as_events([0] * count, [0] * count, [0] * count, [1] * count)
    with pytest.raises(ValueError, match=f"dtype must hold counts up to {count}"):
        to_frames(events, mode="count", dtype=dtype)
    assert to_frames(events[:-1], mode="count", dtype=dtype)[0, 1, 0, 0] == count - 1


def test_transform_pickles_and_says_what_it_does():
    transform = ToFrames(mode="count", **SMALL)
    again = pickle.loads(pickle.dumps(transform))
    assert torch.equal(again(EVENTS), to_frames(EVENTS, mode="count", **SMALL))
    assert repr(again) == (
        "ToFrames(time_steps=2, step_us=10, sensor_size=(2, 3), mode='count', late='clamp', dtype=torch.float32, "
        "by='time', events_per_step=None)"
    )


def test_stack_time_first():
    samples = [(torch.full((3, 2, 4, 5), float(n)), n) for n in range(6)]
    spikes, labels = stack_time_first(samples)
    assert spikes.shape == (3, 6, 2, 4, 5) and spikes.is_contiguous()
    assert labels.tolist() == list(range(6)) and labels.dtype == torch.int64
    assert all(torch.equal(spikes[:, n], samples[n][0]) for n in range(6))
    with pytest.raises(ValueError, match="at least one sample"):
        stack_time_first([])
    with pytest.raises(ValueError, match=r"one shape, got \[\(2, 1\), \(3, 1\)\]"):
        stack_time_first([(torch.zeros(2, 1), 0), (torch.zeros(3, 1), 0)])
    with pytest.raises(TypeError, match=r"batch: expected integer labels, got 1.7"):
        stack_time_first([(torch.zeros(2, 1), 1.7)])


class Counted:
    """Counts how often each sample is read."""

    def __init__(self, samples):
        self.samples, self.reads = samples, [0] * len(samples)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        self.reads[index] += 1
        return self.samples[index]


def test_cache_reads_each_sample_once():
    source = Counted([(torch.full((2, 2, 3, 3), float(n)), n) for n in (0, 1, 255)])
    cache = FrameCache(source)
    assert cache.nbytes == 0
    for _ in range(3):
        assert [(int(f.max()), label, f.dtype) for f, label in cache] == [
            (n, n, torch.float32) for n in (0, 1, 255)
        ]
    assert source.reads == [1, 1, 1] and cache.nbytes == 3 * 36
    again = pickle.loads(pickle.dumps(cache))
    assert torch.equal(again[-1][0], cache[2][0]) and again.dataset.reads == [1, 1, 1]
    assert "3 of 3 samples in memory" in repr(again)


def test_cache_preload_and_copies(capsys):
    source = Counted([(torch.ones(2, 2, dtype=torch.uint8), torch.tensor(4))] * 3)
    cache = FrameCache(source, preload=True, dtype=torch.uint8)
    assert source.reads == [1, 1, 1] and "caching frames" in capsys.readouterr().err
    cache[0][0].zero_()
    assert cache[0][0].all() and cache[0][1] == 4


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([(torch.full((2,), 0.5), 1)], ValueError, r"whole numbers in 0..255, got 0.5"),
        ([(torch.full((2,), 256), 1)], ValueError, r"whole numbers in 0..255, got 256"),
        ([(torch.full((2,), float("nan")), 1)], ValueError, r"whole numbers in 0..255, got nan"),
        ([(torch.zeros(2), "3")], TypeError, r"dataset\[0\] label: expected an integer"),
        ([(EVENTS, 1)], TypeError, r"dataset\[0\] must give a tensor first .*got ndarray"),
        (
            [(torch.zeros(2), 0), (torch.zeros(3), 0)],
            ValueError,
            r"dataset\[1\] must have shape \(2,\), got \(3,\)",
        ),
    ],
)
def test_cache_refuses(samples, error, text):
    with pytest.raises(error, match=text):
        FrameCache(samples, preload=True, progress=False)
    with pytest.raises(TypeError, match="dataset: expected __len__"):
        FrameCache(3)
    with pytest.raises(IndexError, match=r"index: expected -1..0, got 1"):
        FrameCache(samples[:1])[1]
