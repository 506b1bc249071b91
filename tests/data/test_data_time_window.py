"""Warnings of a time window that does not fit the recording."""

import pickle
import warnings

import numpy as np
import pytest
import torch

from snnlib.data import NMNIST, ToFrames, as_events, to_frames

STEADY = np.arange(0, 300_000, 1_000)


def events_at(t, **options):
    return as_events(t, [0] * len(t), [0] * len(t), [0] * len(t), **options)


def messages(transform, events):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        transform(events)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("t", "text"),
    [
        (
            STEADY + 1_700_000_000_000_000,
            "100 % of 300 lie after the last time step .from 300000 us on.* counted in",
        ),
        (STEADY * 2, "50 % of 300 lie after the last time step"),
        (np.append(STEADY, [10**9] * 16), "5.06 % of 316 lie after"),
        (
            STEADY // 1000,
            "100 % of 300 lie in a single time step of 30 .here step 0; 10000 us each.*origin='first'",
        ),
        (
            np.append(STEADY[:20], [200_000] * 21),
            "51.2 % of 41 lie in a single time step of 30 .here step 20",
        ),
    ],
)
def test_a_window_that_does_not_fit(t, text):
    with pytest.warns(UserWarning, match=text):
        to_frames(events_at(t))


@pytest.mark.parametrize(
    "t", [STEADY, np.append(STEADY, [10**9] * 15), np.append(STEADY[:20], [200_000] * 20), [7_000] * 19, []]
)
def test_no_false_alarm(t):
    assert messages(to_frames, events_at(t)) == []
    assert messages(lambda events: to_frames(events, time_steps=3, step_us=10**9), events_at(t)) == []


def test_late_events_left_out_or_refused():
    late = events_at(STEADY * 2)
    with pytest.warns(UserWarning, match="50 % of 300 lie after .* are left out"):
        assert to_frames(late, late="drop").sum() == 30
    text = "expected all before 300000 us with late='error', got 50 % of 300 after the last time step"
    with pytest.raises(ValueError, match=text):
        to_frames(late, late="error")
    with pytest.raises(ValueError, match="of 301 after the last time step"):
        ToFrames(late="error")(events_at(np.append(STEADY, 300_000)))
    assert torch.equal(to_frames(events_at(STEADY), late="error"), to_frames(events_at(STEADY)))


def test_a_transform_warns_once():
    transform = ToFrames()
    assert messages(transform, events_at(STEADY)) == []
    (message,) = messages(transform, events_at(STEADY * 2))
    assert "25 % of 600" in message and "said once" in message
    assert messages(transform, events_at(STEADY * 3)) == []
    assert len(messages(ToFrames(), events_at(STEADY * 3))) == 1
    assert repr(pickle.loads(pickle.dumps(transform))) == repr(ToFrames())


def test_one_odd_recording_among_many_is_no_alarm():
    transform, odd = ToFrames(), events_at(STEADY * 11 // 10)
    assert "9 % of 300" in messages(to_frames, odd)[0]
    assert [messages(transform, events_at(STEADY)), messages(transform, odd)] == [[], []]


def test_the_remedy_helps():
    absolute = 1_700_000_000 + STEADY / 1e6
    assert messages(to_frames, events_at(absolute, unit="s", origin="first")) == []


def test_real_recordings_give_no_warning(nmnist_root):
    transform = ToFrames()
    for train in (True, False):
        samples = NMNIST(nmnist_root, train)
        for index in range(len(samples)):
            assert messages(transform, samples[index][0]) == []
