"""Transforms of events and frames against plain loops."""

import inspect
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from event_files import random_events

from snnlib import data as sd
from snnlib.data import (
    AugmentEvents,
    CenterCrop,
    Denoise,
    DownsampleTime,
    MergePolarities,
    RandomCrop,
    RefractoryFilter,
    RemoveHotPixels,
    TimeWindow,
    ToFrames,
    ToTimeSurface,
    as_events,
    describe_events,
    to_frames,
)

SIZE = (7, 9)
EVENTS = random_events(700, SIZE, last_us=4000)
EMPTY = EVENTS[:0]


def rows(events):
    return [tuple(event) for event in events.tolist()]


@pytest.mark.parametrize("filter_us", [0, 3, 40, 10_000])
def test_denoise(filter_us):
    last, stays = {}, []
    for t, x, y, p in rows(EVENTS):
        near = [(x + dx, y + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)]
        if any(pixel in last and t - last[pixel] <= filter_us for pixel in near):
            stays.append((t, x, y, p))
        last[x, y] = t
    assert rows(Denoise(filter_us)(EVENTS)) == stays and (0 < len(stays) < 700)


@pytest.mark.parametrize("period_us", [0, 1, 90, 1000, 10**6])
def test_refractory_filter(period_us):
    last, stays = {}, []
    for t, x, y, p in rows(EVENTS):
        if (x, y) not in last or t - last[x, y] >= period_us:
            stays.append((t, x, y, p))
            last[x, y] = t
    assert rows(RefractoryFilter(period_us)(EVENTS)) == stays


def test_hot_pixels_are_those_that_info_lists():
    hot = as_events(np.arange(3000), np.full(3000, 4), np.full(3000, 5), np.ones(3000, int))
    both = np.concatenate((EVENTS, hot))
    assert [pixel[:2] for pixel in describe_events(both).hot_pixels] == [(4, 5)]
    assert rows(RemoveHotPixels()(both)) == [row for row in rows(both) if row[1:3] != (4, 5)]
    assert len(RemoveHotPixels(factor=1000)(both)) == len(both)


def test_time_window_and_coarser_times():
    first = int(EVENTS["t"][0])
    expected = [(t - first - 500, *rest) for t, *rest in rows(EVENTS) if 500 <= t - first < 1700]
    assert rows(TimeWindow(start_us=500, length_us=1200)(EVENTS)) == expected
    torch.manual_seed(0)
    window = TimeWindow(start_us="random", length_us=1000)
    lengths = [len(window(EVENTS)) for _ in range(20)]
    torch.manual_seed(0)
    assert lengths == [len(window(EVENTS)) for _ in range(20)] and len(set(lengths)) > 5
    assert len(TimeWindow(start_us="random", length_us=10**6)(EVENTS)) == len(EVENTS)
    coarse = [(t // 300 * 300, *rest) for t, *rest in rows(EVENTS)]
    assert rows(DownsampleTime(step_us=300)(EVENTS)) == coarse
    assert rows(DownsampleTime(step_us=300, merge=True)(EVENTS)) == list(dict.fromkeys(coarse))


def test_crops_of_events_and_frames_agree():
    options = {"time_steps": 4, "step_us": 1001, "mode": "count"}
    frames = to_frames(EVENTS, sensor_size=SIZE, **options)
    for kind in (CenterCrop, RandomCrop):
        for seed in range(6):
            transform = kind((4, 5), SIZE)
            torch.manual_seed(seed)
            part = transform(frames)
            torch.manual_seed(seed)
            assert torch.equal(to_frames(transform(EVENTS), sensor_size=(4, 5), **options), part)
            if kind is CenterCrop:
                assert torch.equal(part, frames[..., 1:5, 2:7])
    assert RandomCrop(SIZE, SIZE)(EVENTS).tolist() == EVENTS.tolist()
    with pytest.raises(ValueError, match=r"size\[0\] \(height\): expected an integer in 1..7, got 8"):
        CenterCrop((8, 5), SIZE)
    with pytest.raises(ValueError, match=r"expected frames of at least \(4, 5\), got shape \(3, 9\)"):
        CenterCrop((4, 5), SIZE)(torch.zeros(3, 9))


def test_polarities_merge_in_events_and_frames():
    for mode in ("binary", "count"):
        options = {"time_steps": 4, "step_us": 1001, "mode": mode, "sensor_size": SIZE}
        merged = to_frames(MergePolarities()(EVENTS), **options)[:, 1:]
        assert torch.equal(MergePolarities(mode)(to_frames(EVENTS, **options)), merged)
    with pytest.raises(ValueError, match=r"expected frames \[..., 2, H, W\], got shape \(3, 9\)"):
        MergePolarities()(torch.zeros(3, 9))


def test_time_surface():
    transform = ToTimeSurface(tau_us=700.0, time_steps=6, step_us=500, sensor_size=SIZE, dtype=torch.float64)
    expected = torch.zeros(6, 2, *SIZE, dtype=torch.float64)
    for step in range(6):
        end, last = (step + 1) * 500, {}
        for t, x, y, p in rows(EVENTS):
            if t < end:
                last[p, y, x] = t
        for cell, t in last.items():
            expected[(step, *cell)] = math.exp((t - end) / 700)
    assert torch.allclose(transform(EVENTS), expected, rtol=1e-14, atol=0)
    assert torch.equal(transform(EVENTS[::-1]), transform(EVENTS)) and not transform(EMPTY).any()
    with pytest.raises(ValueError, match="tau_us: expected a finite number > 0, got 0"):
        ToTimeSurface(tau_us=0)


@pytest.mark.parametrize(
    "options", [{"by": "slices"}, {"by": "count"}, {"by": "count", "events_per_step": 60}]
)
@pytest.mark.parametrize("late", ["clamp", "drop"])
def test_frames_by_count_and_slices(options, late):
    frames = to_frames(EVENTS, time_steps=8, sensor_size=SIZE, mode="count", late=late, **options)
    expected = torch.zeros(8, 2, *SIZE)
    first, last = int(EVENTS["t"][0]), int(EVENTS["t"][-1])
    for number, (t, x, y, p) in enumerate(rows(EVENTS)):
        if options["by"] == "slices":
            step = (t - first) * 8 // (last - first + 1)
        else:
            step = number // options["events_per_step"] if "events_per_step" in options else number * 8 // 700
        if step < 8 or late == "clamp":
            expected[min(step, 7), p, y, x] += 1
    assert torch.equal(frames, expected)
    assert not ToFrames(sensor_size=SIZE, **options)(EMPTY).any()


def test_frames_by_count_check_their_options():
    with pytest.raises(ValueError, match="events_per_step: expected None with by='slices', got 5"):
        ToFrames(by="slices", events_per_step=5)
    with pytest.raises(ValueError, match="expected at most 16 with late='error', got 700"):
        to_frames(EVENTS, time_steps=8, sensor_size=SIZE, late="error", by="count", events_per_step=2)


def test_spatial_jitter():
    torch.manual_seed(1)
    many = random_events(20_000, (200, 200))
    jittered = AugmentEvents(jitter_pixels=1.5, sensor_size=(200, 200))(many)
    torch.manual_seed(1)
    again = AugmentEvents(jitter_pixels=1.5, sensor_size=(200, 200))(many)
    assert np.array_equal(jittered, again) and 0.98 < len(jittered) / len(many) < 1
    middle = as_events(np.arange(5000), np.full(5000, 100), np.full(5000, 100), np.ones(5000, int))
    moved = AugmentEvents(jitter_pixels=1.5, sensor_size=(200, 200))(middle)
    # Rounding adds a variance of 1 / 12.
    assert moved["x"].std() == pytest.approx(math.sqrt(1.5**2 + 1 / 12), rel=0.05)
    assert abs(np.corrcoef(moved["x"], moved["y"])[0, 1]) < 0.06


@pytest.mark.parametrize(
    "transform",
    [
        *(
            Denoise(5),
            RefractoryFilter(5),
            RemoveHotPixels(),
            TimeWindow(length_us=9),
            DownsampleTime(step_us=7),
        ),
        *(MergePolarities(), CenterCrop((3, 3), SIZE), RandomCrop((3, 3), SIZE)),
    ],
)
def test_transforms_travel_and_leave_their_input_alone(transform):
    before = EVENTS.copy()
    copy = pickle.loads(pickle.dumps(transform))
    assert repr(copy) == repr(transform) and " at 0x" not in repr(transform)
    torch.manual_seed(0)
    found = copy(EVENTS)
    torch.manual_seed(0)
    assert np.array_equal(found, transform(EVENTS)) and found.dtype == EVENTS.dtype
    assert np.array_equal(before, EVENTS) and len(transform(EMPTY)) == 0
    with pytest.raises(TypeError, match="expected a NumPy structured array"):
        transform([1, 2])


def test_filters_need_events_in_order():
    for transform in (Denoise(5), RefractoryFilter(5)):
        with pytest.raises(ValueError, match=r"expected times that never decrease, got .* then .* at event"):
            transform(EVENTS[::-1])


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda: sd.ToFrames(n_time_bins=10), "it is called time_steps"),
        (lambda: sd.ToFrames(event_count=100), 'it is called events_per_step, with by="count"'),
        (lambda: sd.ToVoxelGrid(n_time_bins=10), "it is called time_steps"),
        (lambda: sd.NMNIST(save_to="x"), "it is called root"),
        (lambda: sd.DVSGesture("x", frames_number=20, split_by="number"), r"ToFrames\(time_steps=\.\.\., by"),
        (lambda: sd.DownsampleTime(step=3), r"did you mean step_us\?"),
        (lambda: sd.AugmentEvents(rotation=3), r"did you mean rotate\?"),
        (lambda: sd.FrameCache(dataset=[], size=3), "it has"),
        (lambda: sd.LogMel(n_mels=40), "it has channels"),
    ],
)
def test_unknown_arguments_of_data_are_answered(call: Callable[[], object], answer: str) -> None:
    with pytest.raises(TypeError, match=rf"^\w+: expected an option of \w+, got an unknown one; .*{answer}"):
        call()


def _call(kind: type) -> str:
    return str(inspect.signature(kind.__init__))


def test_every_class_of_data_checks_its_arguments_by_name() -> None:
    kinds = [kind for name in sd.__all__ if inspect.isclass(kind := getattr(sd, name))]
    # Data sets of event files hand their other arguments on to `EventFolder`.
    asked = [kind for kind in kinds if not issubclass(kind, Exception | tuple) and "**" not in _call(kind)]
    assert len(asked) > 30
    for kind in asked:
        with pytest.raises(TypeError, match=r"^no_such: expected an option of"):
            kind(no_such=1)
