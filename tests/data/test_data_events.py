import numpy as np
import pytest

from snnlib.data import (
    EVENT_DTYPE,
    AugmentEvents,
    Denoise,
    EventBatch,
    ToChannels,
    as_events,
    time_surface,
    to_frames,
    voxel_grid,
)


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
        (
            ([0.5], [0], [0], [0]),
            TypeError,
            "t: expected integers, got dtype float64; float times need their unit",
        ),
        (([0], [0, 1], [0], [0]), ValueError, r"x: expected as many values as t, 1, got 2"),
        (([0], [-1], [0], [0]), ValueError, "x: expected 0..32767, got -1 at event 0"),
        (([0, 1], [0, 0], [0, 40000], [0, 0]), ValueError, "y: expected 0..32767, got 40000 at event 1"),
        (([0], [0], [0], [-1]), ValueError, 'p: expected 0..1, got -1 at event 0; polarity="signed" takes'),
        (([0], [0], [0], [2]), ValueError, "p: expected 0..1, got 2"),
        (([[0]], [0], [0], [0]), ValueError, "t: expected one dimension"),
    ],
)
def test_wrong_columns(columns, error, text):
    with pytest.raises(error, match=text):
        as_events(*columns)


def test_unsigned_times_above_int64_are_refused():
    with pytest.raises(ValueError, match="t: expected times within"):
        as_events(np.array([2**63], np.uint64), [0], [0], [0])


@pytest.mark.parametrize(
    ("t", "unit", "origin", "expected"),
    [
        ([3, 1], "ms", None, [1000, 3000]),
        ([1999, -1], "ns", None, [-1, 1]),
        ([2, 1], "s", None, [1_000_000, 2_000_000]),
        (np.array([0.5, 0.25], np.float16), "s", None, [250_000, 500_000]),
        ([0.0015, 0.0025], "ms", None, [2, 2]),
        ([10, 25], "us", "first", [0, 15]),
        ([25, 10], "ms", "first", [0, 15_000]),
        ([10, 25], "us", 20, [-10, 5]),
        ([10.5, 25.5], "s", 10.25, [250_000, 15_250_000]),
        # A double holds 1.6e18 ns to 256 ns only, integers hold it exactly.
        ([1_600_000_000_000_000_123, 1_600_000_000_000_001_123], "ns", "first", [0, 1]),
        (np.array([2**64 - 1, 2**64 - 6], np.uint64), "us", "first", [0, 5]),
        ([], "s", "first", []),
    ],
)
def test_units_and_origins(t, unit, origin, expected):
    zeros = [0] * len(expected)
    assert as_events(t, zeros, zeros, zeros, unit=unit, origin=origin)["t"].tolist() == expected


def test_signed_polarity():
    assert as_events([0, 1], [0, 0], [0, 0], [-1, 1], polarity="signed")["p"].tolist() == [0, 1]
    assert as_events([0], [0], [0], [-1.0 < 0], polarity="signed")["p"].tolist() == [1]
    with pytest.raises(ValueError, match='p: expected -1 or \\+1 with polarity="signed", got 0 at event 1'):
        as_events([0, 1], [0, 0], [0, 0], [1, 0], polarity="signed")


@pytest.mark.parametrize(
    ("t", "options", "error", "text"),
    [
        ([np.nan], {"unit": "s"}, ValueError, "t: expected finite times, got nan at event 0"),
        (
            [0, np.inf],
            {"unit": "s", "origin": "first"},
            ValueError,
            "t: expected finite times, got inf at event 1",
        ),
        ([1e13], {"unit": "s"}, ValueError, "t: expected times within .* of the origin, got 1"),
        ([2**61], {"unit": "ms"}, ValueError, "t: expected times within"),
        ([2**62], {"origin": -(2**62)}, ValueError, "t: expected times within"),
        ([0], {"unit": "min"}, ValueError, "unit: expected one of"),
        ([0], {"origin": "last"}, ValueError, "origin: expected one of first"),
        ([0], {"origin": True}, TypeError, "origin: expected None, 'first' or a finite time"),
        ([0], {"polarity": "auto"}, ValueError, "polarity: expected one of"),
        (["a"], {"unit": "s"}, TypeError, "t: expected integers or floats"),
    ],
)
def test_wrong_units_and_origins(t, options, error, text):
    with pytest.raises(error, match=text):
        as_events(t, [0] * len(t), [0] * len(t), [0] * len(t), **options)


@pytest.mark.parametrize("field", ["t", "x", "y", "p"])
def test_floats_are_never_cut_off(field):
    dtype = np.dtype([(name, "f8" if name == field else "i8") for name in "txyp"])
    transforms = (
        to_frames,
        ToChannels(step_us=10, channels=4),
        Denoise(10),
        lambda events: EventBatch([events], step_us=10),
        lambda events: time_surface(events, tau_us=10),
        lambda events: voxel_grid(events, 3, (34, 34)),
    )
    for transform in transforms:
        with pytest.raises(
            TypeError, match=rf"expected integers in the field {field}, got dtype float64; as_events"
        ):
            transform(np.zeros(3, dtype))


def test_times_of_a_clock_are_no_steps():
    events = as_events([1_700_000_000_000_000], [1], [0], [1])
    with pytest.raises(
        ValueError, match=r'got 1\d+; as_events\(..., origin="first"\) starts at the first event'
    ):
        ToChannels(step_us=10, channels=4)(events)


IN_FRAMES = (
    lambda events: to_frames(events, time_steps=3, step_us=10, sensor_size=(2, 3)),
    lambda events: voxel_grid(events, 3, (2, 3)),
    AugmentEvents(sensor_size=(2, 3)),
)


@pytest.mark.parametrize("transform", IN_FRAMES)
@pytest.mark.parametrize(
    ("field", "value", "allowed"), [("x", 3, "0..2"), ("y", -1, "0..1"), ("p", 2, "0..1"), ("p", -1, "0..1")]
)
def test_events_out_of_range(transform, field, value, allowed):
    events = as_events([0, 5, 9, 10, 20], [1, 1, 2, 0, 2], [0, 0, 1, 1, 1], [1, 1, 0, 1, 0])
    events[field][2] = value
    text = rf"field {field} in {allowed}, got {value} at event 2 \(1 such events, 0.2 of all\)"
    with pytest.raises(ValueError, match=text):
        transform(events)


@pytest.mark.parametrize("transform", IN_FRAMES)
def test_what_is_no_events(transform):
    with pytest.raises(TypeError, match="events: expected a NumPy structured array"):
        transform([1, 2])
    with pytest.raises(TypeError, match="events: expected the fields t, x, y, p"):
        transform(np.zeros(3))
