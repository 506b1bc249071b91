"""Augmentation: dropped shares, windows, edges, repeatable draws, and wrong options."""

import math
import pickle

import numpy as np
import pytest
import torch
from event_samples import BINNING, SIZE, one_event_per_pixel, picture, recording, times_image, within_4_sigma
from torch.utils.data import DataLoader

from snnlib.data import AugmentEvents, AugmentFrames, FrameCache, ToFrames, Transformed, as_events


def test_without_options_nothing_changes():
    events = np.random.default_rng(1).permutation(recording())
    made = AugmentEvents(sensor_size=SIZE)(events)
    assert made.dtype == events.dtype and made.tobytes() == events.tobytes()
    for dtype in (torch.uint8, torch.bool, torch.float64, torch.float32, torch.float16, torch.bfloat16):
        frames = picture().to(dtype)
        made = AugmentFrames()(frames)
        assert made.dtype == dtype and torch.equal(made, frames)


@pytest.mark.parametrize("make", [AugmentEvents, AugmentFrames])
def test_the_sample_itself_is_not_changed(make):
    options = dict.fromkeys(("rotate", "shift", "flip_horizontal", "flip_vertical", "flip_polarity"), 1)
    sample = recording(size=(34, 34)) if make is AugmentEvents else picture()
    before = np.asarray(sample).copy()
    make(**options, drop=0.5, drop_time=0.5, drop_area=0.5)(sample)
    make()(sample)[...] = 0
    assert np.array_equal(np.asarray(sample), before)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.7, 1.0])
def test_dropped_share(share):
    torch.manual_seed(0)
    events = recording(20_000)
    kept = AugmentEvents(drop=share, sensor_size=SIZE)(events)
    frames = AugmentFrames(drop=share)(torch.ones(20, 2, 20, 25))
    if share in {0, 1}:
        assert kept.size == (1 - share) * 20_000 and frames.sum() == (1 - share) * 20_000
    else:
        assert within_4_sigma(kept.size, 20_000, 1 - share)
        assert within_4_sigma(int(frames.sum()), 20_000, 1 - share)


def test_dropped_events_leave_the_others_in_order():
    events = recording(1000)
    events["t"] = np.arange(1000)
    kept = AugmentEvents(drop=0.5, sensor_size=SIZE)(events)
    assert 0 < kept.size < 1000
    assert kept.tobytes() == events[kept["t"]].tobytes() and np.all(np.diff(kept["t"]) > 0)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_dropped_window_of_time(share):
    torch.manual_seed(0)
    origin, starts = 1_700_000_000_000_000, set()
    events = as_events(origin + np.arange(100), np.zeros(100, int), np.zeros(100, int), np.ones(100, int))
    for _ in range(100):
        times = set((AugmentEvents(drop_time=share)(events)["t"] - origin).tolist())
        gone = sorted(set(range(100)) - times)
        assert gone == list(range(gone[0], gone[0] + round(100 * share)) if gone else [])
        assert len(gone) == round(100 * share)
        starts.update(gone[:1])
        steps = AugmentFrames(drop_time=share)(torch.ones(10, 2, 3, 3))[:, 0, 0, 0]
        changes = int((steps.diff() != 0).sum())
        assert steps.sum() == 10 - round(10 * share) and changes <= 2
    if share == 0.3:
        assert min(starts) <= 8 and max(starts) >= 62


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_dropped_area_is_a_rectangle(share):
    torch.manual_seed(0)
    height, width = (round(side * math.sqrt(share)) for side in SIZE)
    seen = np.zeros(SIZE, bool)
    for _ in range(100):
        frames = AugmentFrames(drop_area=share)(picture()) != 0
        assert bool((frames == frames[0, 0]).all())
        kept = times_image(AugmentEvents(drop_area=share, sensor_size=SIZE)(one_event_per_pixel(SIZE)), SIZE)
        for gone in (~frames[0, 0].numpy(), kept == 0):
            assert np.count_nonzero(gone) == height * width
            if height:
                assert np.ptp(gone.nonzero()[0]) == height - 1 and np.ptp(gone.nonzero()[1]) == width - 1
            seen |= gone
    assert seen.all() == (share > 0)


def test_jitter():
    torch.manual_seed(0)
    origin, count = 1_700_000_000_000_000, 1024
    times = origin + 1000 * np.arange(count)
    # Column and row number the events.
    events = as_events(times, np.arange(count) % 32, np.arange(count) // 32, np.arange(count) % 2)
    made = AugmentEvents(jitter_us=5000)(events)
    assert made.size == count and np.all(np.diff(made["t"]) >= 0)
    assert made["t"].min() >= times[0] and made["t"].max() <= times[-1]
    number = made["y"].astype(int) * 32 + made["x"]
    assert sorted(number) == list(range(count)) and np.array_equal(made["p"], number % 2)
    noise = (made["t"] - times[number])[(number > 25) & (number < count - 25)]
    assert abs(noise.mean()) < 4 * 5000 / math.sqrt(noise.size)
    # The standard deviation of n draws has sigma s / sqrt(2 n).
    assert abs(noise.std() - 5000) < 4 * 5000 / math.sqrt(2 * noise.size)
    huge = AugmentEvents(jitter_us=1e300)(events)["t"]
    assert set(huge.tolist()) == {int(times[0]), int(times[-1])}


def test_events_that_leave_the_sensor_are_lost():
    torch.manual_seed(0)
    kept = AugmentEvents(shift=6, rotate=180, sensor_size=SIZE)(recording())
    assert 0 < kept.size < 400
    assert kept["x"].min() >= 0 and kept["x"].max() < 16 and kept["y"].min() >= 0 and kept["y"].max() < 12
    corner = as_events([0, 7], [0, 0], [0, 0], [1, 0])
    gone = [AugmentEvents(shift=40, jitter_us=3, drop_time=0.5)(corner).size for _ in range(50)]
    assert min(gone) == 0


def test_recordings_without_events_and_frames_without_steps():
    options = {"shift": 2, "rotate": 9, "drop": 0.5, "drop_time": 0.5, "drop_area": 0.5, "flip_polarity": 1}
    made = AugmentEvents(jitter_us=10, **options)(recording(0))
    assert made.size == 0 and made.dtype == recording().dtype
    assert AugmentFrames(**options)(torch.zeros(0, 2, 4, 4)).shape == (0, 2, 4, 4)


def test_further_fields_stay_with_their_event():
    plain = recording(100)
    events = np.zeros(100, [*plain.dtype.descr, ("id", "i4")])
    for field in plain.dtype.names:
        events[field] = plain[field]
    events["id"] = np.arange(100)
    made = AugmentEvents(shift=2, drop=0.3, jitter_us=50, sensor_size=SIZE)(events)
    assert made.dtype == events.dtype and np.array_equal(made["p"], plain["p"][made["id"]])


def test_frames_that_are_not_contiguous():
    frames = picture((16, 12)).transpose(2, 3)
    augment = AugmentFrames(shift=2, rotate=20, drop=0.2)
    torch.manual_seed(3)
    made = augment(frames)
    torch.manual_seed(3)
    assert torch.equal(augment(frames.contiguous()), made) and made.shape == frames.shape


@pytest.mark.parametrize("make", [AugmentEvents, AugmentFrames])
def test_a_call_takes_one_draw_whatever_the_options(make):
    sample = recording(size=(34, 34)) if make is AugmentEvents else picture()
    torch.manual_seed(0)
    torch.randint(2**63 - 1, ())
    expected = torch.rand(3)
    for options in ({}, {"drop": 0.5}, {"shift": 1, "rotate": 3, "drop_time": 0.2, "flip_polarity": 0.5}):
        torch.manual_seed(0)
        make(**options)(sample)
        assert torch.equal(torch.rand(3), expected)


def epochs(workers, seed, count=2):
    """Samples and labels of some epochs over one recording, 12 times the same."""
    data = Transformed(
        [(recording(), label) for _ in range(6) for label in (3, 8)],
        AugmentEvents(shift=3, rotate=10, drop=0.1, jitter_us=20, sensor_size=SIZE),
        ToFrames(**BINNING),
        AugmentFrames(shift=1, drop=0.1),
    )
    loader = DataLoader(data, batch_size=1, num_workers=workers)
    torch.manual_seed(seed)
    pairs = [pair for _ in range(count) for pair in loader]
    assert [int(label) for _, label in pairs] == [3, 8] * 6 * count
    return torch.stack([frames[0] for frames, _ in pairs])


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_repeat_with_a_seed_and_differ_between_workers_samples_and_epochs(workers):
    first = epochs(workers, 0)
    assert torch.equal(epochs(workers, 0), first)
    assert len(first.flatten(1).unique(dim=0)) == 24
    assert not torch.equal(epochs(workers, 1), first)


def test_behind_a_frame_cache_each_epoch_is_new():
    cache = FrameCache([(torch.ones(3, 2, 8, 8), 5)], preload=True, progress=False)
    data = Transformed(cache, AugmentFrames(drop=0.5))
    (first, label), (second, _) = data[0], data[0]
    assert not torch.equal(first, second) and label == 5 and bool((cache[0][0] == 1).all())


@pytest.mark.parametrize("make", [AugmentEvents, AugmentFrames])
def test_pickles_and_says_what_it_does(make):
    augment = pickle.loads(pickle.dumps(make(shift=2, drop=0.1)))
    assert augment == make(shift=2, drop=0.1)
    assert repr(augment).startswith(f"{make.__name__}(shift=2, rotate=0.0,") and "drop=0.1" in repr(augment)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"shift": -1}, ValueError, "shift: expected an integer >= 0, got -1"),
        ({"shift": 1.5}, TypeError, "shift: expected an integer >= 0, got 1.5"),
        ({"rotate": 181}, ValueError, "rotate: expected degrees in 0..180, got 181"),
        ({"rotate": -1.0}, ValueError, "rotate: expected degrees in 0..180, got -1.0"),
        ({"rotate": "10"}, TypeError, "rotate: expected degrees in 0..180, got '10'"),
        ({"flip_horizontal": True}, TypeError, "flip_horizontal: expected a probability in 0..1, got True"),
        ({"flip_vertical": 2}, ValueError, "flip_vertical: expected a probability in 0..1, got 2"),
        (
            {"flip_polarity": float("nan")},
            ValueError,
            "flip_polarity: expected a probability in 0..1, got nan",
        ),
        ({"drop": 10}, ValueError, "drop: expected a share in 0..1, got 10"),
        ({"drop_time": None}, TypeError, "drop_time: expected a share in 0..1, got None"),
        ({"drop_area": -0.1}, ValueError, "drop_area: expected a share in 0..1, got -0.1"),
    ],
)
@pytest.mark.parametrize("make", [AugmentEvents, AugmentFrames])
def test_wrong_options(make, options, error, text):
    with pytest.raises(error, match=text):
        make(**options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"jitter_us": -5}, ValueError, "jitter_us: expected finite microseconds >= 0, got -5"),
        ({"jitter_us": math.inf}, ValueError, "jitter_us: expected finite microseconds >= 0, got inf"),
        ({"sensor_size": 34}, TypeError, r"sensor_size: expected a pair \(height, width\), got 34"),
    ],
)
def test_wrong_options_of_events(options, error, text):
    with pytest.raises(error, match=text):
        AugmentEvents(**options)


def test_wrong_samples():
    with pytest.raises(TypeError, match="events: expected a NumPy structured array"):
        AugmentEvents()(picture())
    with pytest.raises(TypeError, match=r"frames: expected a tensor \[T, C, H, W\], got ndarray"):
        AugmentFrames()(recording())
    with pytest.raises(ValueError, match=r"those of one sample, \[T, C, H, W\], got shape \(5, 4, 2, 3, 3\)"):
        AugmentFrames()(torch.zeros(5, 4, 2, 3, 3))
    with pytest.raises(
        ValueError, match=r"two channels OFF and ON for flip_polarity, got shape \(5, 1, 3, 3\)"
    ):
        AugmentFrames(flip_polarity=0.1)(torch.zeros(5, 1, 3, 3))
    assert AugmentFrames()(torch.zeros(5, 1, 3, 3)).shape == (5, 1, 3, 3)


def test_transformed():
    data = Transformed([(1, "a"), (2, "b")], lambda number: number + 1, lambda number: number * 10)
    assert len(data) == 2 and list(data) == [(20, "a"), (30, "b")]
    assert repr(Transformed([(1, 2)], ToFrames())).startswith("Transformed([(1, 2)], ToFrames(")
    with pytest.raises(TypeError, match="dataset: expected __len__ and __getitem__, got int"):
        Transformed(3)
    with pytest.raises(TypeError, match="transforms: expected callables, got 7"):
        Transformed([], ToFrames(), 7)
