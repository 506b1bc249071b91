import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from snnlib.data import AugmentEvents, AugmentFrames, FrameCache, ToFrames, Transformed, as_events, to_frames
from snnlib.data.augment.events import move_events
from snnlib.data.augment.frames import draw_warp, move_frames
from snnlib.data.augment.options import rotation

SIZE = (12, 16)
BINNING = {"time_steps": 5, "step_us": 200, "sensor_size": SIZE, "mode": "count"}
STILL = np.zeros(2, np.int64)


def recording(count=400, size=SIZE, seed=0):
    rng = np.random.default_rng(seed)
    height, width = size
    columns = (rng.integers(0, high, count) for high in (1000, width, height, 2))
    return as_events(*columns)


def picture(size=SIZE):
    """Distinct values in every cell, [3, 2, H, W]."""
    return torch.arange(1, 6 * math.prod(size) + 1, dtype=torch.float32).view(3, 2, *size)


def one_event_per_pixel(size):
    y, x = np.indices(size).reshape(2, -1)
    return as_events(np.arange(x.size), x, y, np.zeros(x.size, int))


def slice_shift(image, dx, dy):
    """Oracle: `image` [..., H, W] in a frame of zeros, cut out again."""
    height, width = image.shape[-2:]
    big = np.pad(image, [(0, 0)] * (image.ndim - 2) + [(60, 60), (60, 60)])
    return big[..., 60 - dy : 60 - dy + height, 60 - dx : 60 - dx + width]


def times_image(events, size):
    """One event per pixel as an image of its times + 1; 0 where none is."""
    image = np.zeros(size, np.int64)
    image[events["y"], events["x"]] = events["t"] + 1
    assert np.count_nonzero(image) == events.size
    return image


def within_4_sigma(hits, draws, probability):
    return abs(hits - draws * probability) < 4 * math.sqrt(draws * probability * (1 - probability))


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


@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (3, 0), (0, -2), (-4, 5), (15, 11), (16, 0), (0, -50)])
def test_shift_against_slices(dx, dy):
    shift = np.array([dx, dy])
    moved = move_frames(picture(), np.eye(2), shift)
    assert np.array_equal(moved.numpy(), slice_shift(picture().numpy(), dx, dy))
    events = one_event_per_pixel(SIZE)
    moved = times_image(move_events(events, np.eye(2), shift, SIZE), SIZE)
    assert np.array_equal(moved, slice_shift(times_image(events, SIZE), dx, dy))


@pytest.mark.parametrize("make", [AugmentEvents, AugmentFrames])
def test_shifts_are_uniform(make):
    torch.manual_seed(0)
    counts = dict.fromkeys(itertools.product((-1, 0, 1), repeat=2), 0)
    event, frames = as_events([0], [4], [4], [1]), torch.zeros(1, 2, 9, 9)
    frames[0, 1, 4, 4] = 1
    for _ in range(900):
        if make is AugmentEvents:
            made = make(shift=1)(event)
            y, x = made["y"][0], made["x"][0]
        else:
            _, _, y, x = make(shift=1)(frames).nonzero()[0].tolist()
        counts[int(x) - 4, int(y) - 4] += 1
    assert all(within_4_sigma(count, 900, 1 / 9) for count in counts.values()), counts


@pytest.mark.parametrize("size", [(6, 6), (7, 7)])
@pytest.mark.parametrize("quarters", [-1, 0, 1, 2, 3])
def test_quarter_turns_against_rot90(size, quarters):
    turn = rotation(90 * quarters)
    moved = move_frames(picture(size), turn, STILL)
    assert np.array_equal(moved.numpy(), np.rot90(picture(size).numpy(), quarters, (2, 3)))
    events = one_event_per_pixel(size)
    moved = times_image(move_events(events, turn, STILL, size), size)
    assert np.array_equal(moved, np.rot90(times_image(events, size), quarters))


@pytest.mark.parametrize("degrees", [-33.0, 10.0, 77.0])
@pytest.mark.parametrize("mirror", [1.0, -1.0])
def test_flip_turn_and_shift_are_one_motion(degrees, mirror):
    """Against a loop over complex numbers; the imaginary axis points up, so rows count downwards."""
    height, width = SIZE
    shift, turn = np.array([2, -1]), complex(math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
    matrix = rotation(degrees) @ np.diag([mirror, 1.0])
    middle = complex((width - 1) / 2, -(height - 1) / 2)

    expected = []
    events = recording()
    for t, x, y, p in events.tolist():
        from_middle = complex(x, -y) - middle
        target = complex(mirror * from_middle.real, from_middle.imag) * turn + middle + complex(2, 1)
        x_new, y_new = round(target.real), round(-target.imag)
        if 0 <= x_new < width and 0 <= y_new < height:
            expected.append((t, x_new, y_new, p))
    assert move_events(events, matrix, shift, SIZE).tolist() == expected
    assert 0 < len(expected) < events.size

    frames, made = picture(), torch.zeros(3, 2, *SIZE)
    for y, x in np.ndindex(SIZE):
        from_middle = (complex(x, -y) - complex(2, 1) - middle) / turn
        source = complex(mirror * from_middle.real, from_middle.imag) + middle
        x_old, y_old = round(source.real), round(-source.imag)
        if 0 <= x_old < width and 0 <= y_old < height:
            made[..., y, x] = frames[..., y_old, x_old]
    assert torch.equal(move_frames(frames, matrix, shift), made)


def test_angles_are_uniform_up_to_rotate():
    """An event 10000 pixels right of the centre shows the angle."""
    torch.manual_seed(0)
    size, event = (20001, 20001), as_events([0], [20000], [10000], [1])
    augment = AugmentEvents(rotate=30, sensor_size=size)
    made = np.concatenate([augment(event) for _ in range(600)])
    degrees = np.degrees(np.arctan2(10000.0 - made["y"], made["x"] - 10000.0))
    assert made.size == 600 and np.abs(degrees).max() <= 30.01
    # The mean of 600 draws of a uniform law has sigma 30 / sqrt(3 * 600).
    assert abs(degrees.mean()) < 4 * 30 / math.sqrt(1800)
    assert within_4_sigma(np.count_nonzero(np.abs(degrees) > 20), 600, 1 / 3)


@pytest.mark.parametrize(
    ("option", "axis"), [("flip_horizontal", 3), ("flip_vertical", 2), ("flip_polarity", 1)]
)
def test_flips_against_numpy(option, axis):
    events, options = recording(), {option: 1.0}
    expected = torch.from_numpy(np.flip(to_frames(events, **BINNING).numpy(), axis).copy())
    assert torch.equal(AugmentFrames(**options)(to_frames(events, **BINNING)), expected)
    made = AugmentEvents(sensor_size=SIZE, **options)(events)
    assert torch.equal(to_frames(made, **BINNING), expected)
    assert made["t"].tolist() == events["t"].tolist()


@pytest.mark.parametrize("option", ["flip_horizontal", "flip_vertical", "flip_polarity"])
@pytest.mark.parametrize("make", [AugmentEvents, AugmentFrames])
def test_flips_come_with_their_probability(make, option):
    torch.manual_seed(0)
    augment = make(**{option: 0.3})
    sample = as_events([0], [1], [2], [1]) if make is AugmentEvents else picture()
    still = np.asarray(make()(sample))
    hits = sum(bool((np.asarray(augment(sample)) != still).any()) for _ in range(400))
    assert within_4_sigma(hits, 400, 0.3)


@pytest.mark.parametrize("seed", range(5))
def test_one_seed_moves_events_and_frames_alike(seed):
    options = {"shift": 3, "drop_area": 0.2} | dict.fromkeys(
        ("flip_horizontal", "flip_vertical", "flip_polarity"), 0.5
    )
    events = recording()
    torch.manual_seed(seed)
    early = to_frames(AugmentEvents(sensor_size=SIZE, **options)(events), **BINNING)
    torch.manual_seed(seed)
    late = AugmentFrames(**options)(to_frames(events, **BINNING))
    assert torch.equal(early, late) and 0 < late.sum() < 400


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
        ({"shift": -1}, ValueError, "shift must be an integer >= 0, got -1"),
        ({"shift": 1.5}, TypeError, "shift must be an integer >= 0, got 1.5"),
        ({"rotate": 181}, ValueError, "rotate must be degrees in 0..180, got 181"),
        ({"rotate": -1.0}, ValueError, "rotate must be degrees in 0..180, got -1.0"),
        ({"rotate": "10"}, TypeError, "rotate must be degrees in 0..180, got '10'"),
        ({"flip_horizontal": True}, TypeError, "flip_horizontal must be a probability in 0..1, got True"),
        ({"flip_vertical": 2}, ValueError, "flip_vertical must be a probability in 0..1, got 2"),
        ({"flip_polarity": float("nan")}, ValueError, "flip_polarity must be a probability in 0..1, got nan"),
        ({"drop": 10}, ValueError, "drop must be a share in 0..1, got 10"),
        ({"drop_time": None}, TypeError, "drop_time must be a share in 0..1, got None"),
        ({"drop_area": -0.1}, ValueError, "drop_area must be a share in 0..1, got -0.1"),
    ],
)
@pytest.mark.parametrize("make", [AugmentEvents, AugmentFrames])
def test_wrong_options(make, options, error, text):
    with pytest.raises(error, match=text):
        make(**options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"jitter_us": -5}, ValueError, "jitter_us must be finite microseconds >= 0, got -5"),
        ({"jitter_us": math.inf}, ValueError, "jitter_us must be finite microseconds >= 0, got inf"),
        ({"sensor_size": 34}, TypeError, r"sensor_size must be a pair \(height, width\), got 34"),
    ],
)
def test_wrong_options_of_events(options, error, text):
    with pytest.raises(error, match=text):
        AugmentEvents(**options)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("x", 16, r"events: field x must be in 0..15, got 16 at event 2 \(1 such events\)"),
        ("y", -1, "events: field y must be in 0..11, got -1 at event 2"),
        ("p", 2, "events: field p must be in 0..1, got 2 at event 2"),
    ],
)
def test_events_out_of_range(field, value, text):
    events = recording(5)
    events[field][2] = value
    with pytest.raises(ValueError, match=text):
        AugmentEvents(sensor_size=SIZE)(events)


def test_wrong_samples():
    with pytest.raises(TypeError, match="events must be a NumPy structured array"):
        AugmentEvents()(picture())
    with pytest.raises(TypeError, match=r"frames must be a tensor \[T, C, H, W\], got ndarray"):
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
    with pytest.raises(TypeError, match="dataset must have __len__ and __getitem__, got int"):
        Transformed(3)
    with pytest.raises(TypeError, match="transforms must be callable, got 7"):
        Transformed([], ToFrames(), 7)


def test_a_warp_looks_up_displaced_pixels():
    """Against a loop; a constant warp is a shift the other way."""
    generator = np.random.default_rng(3)
    warp, frames = generator.normal(0, 2, (2, *SIZE)), picture()
    made = torch.zeros_like(frames)
    for y, x in np.ndindex(SIZE):
        x_old, y_old = round(x - 1 + warp[0, y, x]), round(y + 2 + warp[1, y, x])
        if 0 <= x_old < SIZE[1] and 0 <= y_old < SIZE[0]:
            made[..., y, x] = frames[..., y_old, x_old]
    assert torch.equal(move_frames(frames, np.eye(2), np.array([1, -2]), warp), made)
    constant = np.broadcast_to(np.array([3.0, -1.0])[:, None, None], (2, *SIZE))
    moved = move_frames(frames, np.eye(2), STILL, constant)
    assert np.array_equal(moved.numpy(), slice_shift(frames.numpy(), -3, 1))


def test_a_warp_is_smooth_and_of_its_size():
    fields = np.stack([draw_warp(np.random.default_rng(seed), 33, 41, 1.5) for seed in range(400)])
    assert fields.shape == (400, 2, 33, 41)
    # The corners are among the points that are drawn.
    corners = fields[:, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert abs(corners.std() - 1.5) < 0.1 and abs(corners.mean()) < 0.1
    # Points lie 8 rows apart: steps from row to row are a fraction of the size.
    assert np.diff(fields, axis=2).std() < 1.5 / 4
    # Along x and along y independently.
    assert abs(np.corrcoef(fields[:, 0].ravel(), fields[:, 1].ravel())[0, 1]) < 0.1


def test_a_warp_keeps_values_and_differs_between_samples():
    torch.manual_seed(0)
    frames = picture()
    made = [AugmentFrames(warp=1.0)(frames) for _ in range(2)]
    assert not torch.equal(made[0], made[1])
    assert set(made[0].unique().tolist()) <= {0.0, *frames.unique().tolist()}
    torch.manual_seed(0)
    assert torch.equal(AugmentFrames(warp=1.0)(frames), made[0])
    assert torch.equal(AugmentFrames(warp=1e-9)(frames), frames)


def test_wrong_warp():
    with pytest.raises(ValueError, match=r"warp must be finite pixels >= 0, got -1\.0"):
        AugmentFrames(warp=-1.0)
    with pytest.raises(TypeError, match="warp must be finite pixels >= 0, got '2'"):
        AugmentFrames(warp="2")
