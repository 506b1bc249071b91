import numpy as np
import pytest

from snnlib.data import EVENT_DTYPE, as_events


def test_fields_and_units():
    assert EVENT_DTYPE.names == ("t", "x", "y", "p")
    assert [EVENT_DTYPE[name].str for name in EVENT_DTYPE.names] == ["<i8", "<i2", "<i2", "|i1"]


def test_sort_is_stable():
    events = as_events([5, 1, 5, 1], [0, 1, 2, 3], [0, 0, 0, 0], [True, False, True, False])
    assert events["x"].tolist() == [1, 3, 0, 2]
    assert events["p"].tolist() == [0, 0, 1, 1]


def test_absolute_unix_time_survives():
    assert as_events([1_600_000_000_000_001], [0], [0], [0])["t"][0] == 1_600_000_000_000_001


def test_no_events():
    assert as_events([], [], [], []).shape == (0,)


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        (([0.5], [0], [0], [0]), TypeError, "t must hold integers, got dtype float64"),
        (([0], [0, 1], [0], [0]), ValueError, r"x must be as long as t \(1 events\), got 2"),
        (([0], [-1], [0], [0]), ValueError, "x must be in 0..32767, got -1 at event 0"),
        (([0, 1], [0, 0], [0, 40000], [0, 0]), ValueError, "y must be in 0..32767, got 40000 at event 1"),
        (([0], [0], [0], [-1]), ValueError, "p must be in 0..1, got -1"),
        (([0], [0], [0], [2]), ValueError, "p must be in 0..1, got 2"),
        (([[0]], [0], [0], [0]), ValueError, "t must be one-dimensional"),
    ],
)
def test_wrong_columns(columns, error, text):
    with pytest.raises(error, match=text):
        as_events(*columns)


def test_unsigned_times_above_int64_are_refused():
    with pytest.raises(ValueError, match="t must be in"):
        as_events(np.array([2**63], np.uint64), [0], [0], [0])
