"""The simulated camera, against a slow loop over pixels that follows the model's words."""

import math

import numpy as np
import pytest
import torch

from snnlib.data import EventCache, EventCamera, ImageFolder, SimulatedEvents, ToFrames
from snnlib.data.camera_pixels import log_intensity, stream, thresholds
from snnlib.data.saccades import saccades

QUIET = {"noise_rate": 0.0}
MOTION = (np.array([100, 3_100, 9_000]), np.array([[0.0, 0.0], [3.0, -2.0], [3.0, 1.5]]))


def bar(height=12, width=10):
    picture = np.zeros((height, width), np.uint8)
    picture[3:9, 4:7] = 200
    return picture


def obvious_events(camera, logs, times, sample):
    """Simulates pixel by pixel and step by step, as `EventCamera` says. `logs` are `[K, pixels]`."""
    one = np.float32
    pixels = logs.shape[1]
    theta_on, theta_off = thresholds(
        camera.seed, pixels, camera.threshold_on, camera.threshold_off, camera.threshold_spread
    )
    words = stream(camera.seed, 1, sample).random_raw(pixels)
    events = []
    for pixel in range(pixels):
        phase = one(words[pixel] >> np.uint64(40)) / one(2**24)
        start = -theta_on[pixel] if phase < 0.5 else theta_off[pixel]
        reference = start * abs(2 * phase - 1) * one(0.99) + logs[0, pixel]
        free = None
        for k in range(len(times) - 1):
            begin, end = int(times[k]), int(times[k + 1])
            slope = logs[k + 1, pixel] - logs[k, pixel]
            now = begin
            while True:
                if free is not None:
                    if free >= end:
                        break
                    now = max(free, begin)
                    reference = logs[k, pixel] + slope * (one(now - begin) / one(end - begin))
                    free = None
                change = logs[k + 1, pixel] - reference
                if change >= theta_on[pixel]:
                    polarity, target = 1, reference + theta_on[pixel]
                elif change <= -theta_off[pixel]:
                    polarity, target = 0, reference - theta_off[pixel]
                else:
                    break
                part = min(max((target - logs[k, pixel]) / slope, one(0)), one(1))
                t = max(begin + math.floor(part * one(end - begin - 1)), now)
                events.append((t, pixel, polarity))
                free = t + camera.refractory_us
    columns = camera.sensor_size[1]
    return [(t, pixel % columns, pixel // columns, p) for t, pixel, p in sorted(events)]


def as_list(events):
    return [tuple(event) for event in events.tolist()]


@pytest.mark.parametrize("refractory_us", [1, 300, 999, 1000, 2500])
def test_film_is_the_obvious_loop(refractory_us):
    camera = EventCamera((5, 4), refractory_us=refractory_us, threshold_off=0.3, **QUIET)
    frames = np.random.default_rng(0).integers(0, 256, (9, 5, 4), np.uint8)
    # Frames at odd times, from far beyond 32 bits.
    times = 10**13 + np.cumsum([0, 1000, 700, 4100, 1, 350, 1000, 33_333, 2])
    logs = np.stack([log_intensity(frame.astype(float).ravel(), 255, 1.0, 0.1) for frame in frames])
    events = camera.film(frames, times, sample=3)
    assert as_list(events) == obvious_events(camera, logs, times, 3)
    assert len(events) > 80
    if refractory_us < 999:
        # More than one event of a pixel between two frames.
        in_gap = events[(events["t"] >= times[6]) & (events["t"] < times[7])]
        assert np.unique(in_gap[["x", "y"]]).size < len(in_gap)


@pytest.mark.parametrize("negative", [False, True])
def test_motion_is_the_obvious_loop(negative):
    camera = EventCamera((14, 13), step_us=800, gamma=2.2, black=0.05, refractory_us=900, seed=4, **QUIET)
    size = (9, 15)
    (events,) = camera.watch(bar()[None], MOTION, size=size, negative=negative, samples=[7])
    times = [*range(100, 9_000, 800), 9_000]
    logs = []
    for t in times:
        x, y = (np.interp(t, MOTION[0], MOTION[1][:, axis]) for axis in (0, 1))
        seen = np.zeros((14, 13))
        for row in range(14):
            for column in range(13):
                place_y = (row - 6.5 - y) / (9 / 12) + 5.5
                place_x = (column - 6 - x) / (15 / 10) + 4.5
                for i in range(12):
                    for j in range(10):
                        seen[row, column] += cubic(place_y - i) * cubic(place_x - j) * bar()[i, j]
        seen = 255 - seen if negative else seen
        logs.append(log_intensity(seen.ravel(), 255, 2.2, 0.05))
    assert as_list(events) == obvious_events(camera, np.stack(logs), times, 7)
    assert len(events) > 50


def cubic(distance):
    d = abs(distance)
    value = 0.0
    if d <= 1:
        value = (1.5 * d - 2.5) * d * d + 1
    elif d < 2:
        value = ((-0.5 * d + 2.5) * d - 4) * d + 2
    return round(value * 2**20) / 2**20


def test_polarity_follows_the_light():
    """A bar that goes right: its right edge brightens, its left edge darkens; in the negative the other way round."""
    camera = EventCamera((12, 30), threshold_spread=0, **QUIET)
    motion = (np.array([0, 50_000]), np.array([[-6.0, 0.0], [6.0, 0.0]]))
    for negative in (False, True):
        (events,) = camera.watch(bar()[None], motion, negative=negative)
        early = events[events["t"] < 8_000]
        ahead = early["x"][early["p"] == (0 if negative else 1)].mean()
        behind = early["x"][early["p"] == (1 if negative else 0)].mean()
        assert ahead > behind + 2


def test_floats_and_integers_are_seen_alike():
    camera = EventCamera((14, 13))
    whole = camera.watch(bar()[None], MOTION)[0]
    # 255 levels and 4095 round a light to neighbouring ones of 4096.
    floats = camera.watch(bar()[None] / 255, MOTION)[0]
    assert abs(len(whole) - len(floats)) <= 0.02 * len(whole)
    assert np.array_equal(whole, camera.watch(bar()[None].astype(np.int32), MOTION, white=255)[0])
    assert np.array_equal(whole, camera.watch(torch.from_numpy(bar())[None, None], MOTION)[0])
    half = torch.from_numpy(bar())[None].bfloat16()
    same = camera.watch(half.float(), MOTION, white=255)[0]
    assert np.array_equal(camera.watch(half, MOTION, white=255)[0], same)


def test_colour_is_refused_or_made_grey():
    colours = np.stack([bar(), bar(), bar()])[None]
    with pytest.raises(ValueError, match=r"pictures: expected grey .*EventCamera\(grey=True\)"):
        EventCamera().watch(colours, MOTION)
    grey = EventCamera(grey=True)
    assert np.array_equal(grey.watch(colours, MOTION)[0], EventCamera().watch(bar()[None], MOTION)[0])
    red = EventCamera((12, 10), grey=True).film(
        np.stack([bar()[None] * np.array([[[1]], [[0]], [[0]]], np.uint8)] * 2), [0, 9]
    )
    assert red.dtype == grey.watch(colours, MOTION)[0].dtype


def test_order_company_and_seeds():
    pictures = np.random.default_rng(1).integers(0, 256, (70, 10, 10), np.uint8)
    camera = EventCamera((12, 12))
    together = camera.watch(pictures, MOTION)
    numbers = [69, 3, 0]
    alone = [camera.watch(pictures[[number]], MOTION, samples=[number])[0] for number in numbers]
    assert all(np.array_equal(together[number], one) for number, one in zip(numbers, alone, strict=True))
    again = EventCamera((12, 12)).watch(pictures, MOTION)
    assert all(np.array_equal(a, b) for a, b in zip(together, again, strict=True))
    assert not np.array_equal(together[0], EventCamera((12, 12), seed=1).watch(pictures[:1], MOTION)[0])
    assert not np.array_equal(together[0], camera.watch(pictures[:1], MOTION, samples=[1])[0])


@pytest.mark.parametrize("rate", [0.2, 5.0])
def test_noise_has_its_rate(rate):
    camera = EventCamera((40, 50), noise_rate=rate)
    events = camera.film(np.full((2, 40, 50), 0.5), [1000, 3_001_000])
    expected = rate * 3 * 2000
    assert abs(len(events) - expected) < 5 * math.sqrt(expected)
    assert events["t"].min() >= 1000 and events["t"].max() < 3_001_000
    assert bool((np.diff(events["t"]) >= 0).all())
    assert 0.45 < events["p"].mean() < 0.55
    assert (events["x"].max(), events["y"].max()) == (49, 39)
    # Spread over the time, each third alike.
    thirds = np.bincount((events["t"] - 1000) // 1_000_000, minlength=3)
    assert (abs(thirds - expected / 3) < 5 * math.sqrt(expected / 3)).all()


def test_a_still_picture_is_silent():
    motion = (np.array([0, 20_000]), np.zeros((2, 2)))
    assert len(EventCamera(**QUIET).watch(bar()[None], motion)[0]) == 0


def test_saccades_pass_their_corners():
    corners = [(-1.0, 0.0), (2.0, 1.0), (0.0, -3.0)]
    t_us, offsets = saccades(corners, [10_000, 50_000, 90_000], 30_000, 130_000)
    for t, corner in ((0, corners[0]), (45_000, corners[1]), (85_000, corners[2]), (130_000, corners[0])):
        assert offsets[t_us == t][0].tolist() == pytest.approx(corner)


WATCH, FILM, SEEN = EventCamera().watch, EventCamera((12, 10)).film, bar()[None]
TWO_SIZES = SimulatedEvents([(bar(), 0), (bar(5, 9), 1)])


@pytest.mark.parametrize(
    ("act", "error", "text"),
    [
        (lambda: EventCamera((0, 4)), ValueError, "sensor_size"),
        (
            lambda: EventCamera(threshold_on=0),
            ValueError,
            "threshold_on: expected a finite number > 0, got 0",
        ),
        (lambda: EventCamera(threshold_off="a"), TypeError, "threshold_off: expected a number, got str"),
        (
            lambda: EventCamera(threshold_spread=0.3),
            ValueError,
            "threshold_spread: expected a number in 0..0.25, got 0.3",
        ),
        (lambda: EventCamera(refractory_us=0), ValueError, "refractory_us: expected an integer >= 1, got 0"),
        (
            lambda: EventCamera(noise_rate=1e6),
            ValueError,
            r"noise_rate: expected a number in 0..1000, got 1000000",
        ),
        (lambda: EventCamera(black=0), ValueError, "black: expected a number in 1e-06..1, got 0"),
        (lambda: EventCamera(step_us=1.5), TypeError, "step_us: expected an integer >= 1, got 1.5"),
        (lambda: EventCamera().watch(bar()), ValueError, r"pictures: expected \[B, H, W\]"),
        (lambda: WATCH(SEEN > 0), TypeError, "pictures: expected integers or floats, got dtype bool"),
        (lambda: WATCH(SEEN.astype(int)), TypeError, "white: expected the value that is white"),
        (lambda: WATCH(SEEN / 100), ValueError, r"pictures: expected values in 0\.\.1, got 0.0 to 2.0"),
        (lambda: WATCH(SEEN * np.nan), ValueError, "pictures: expected values in"),
        (lambda: WATCH(SEEN, samples=[1, 2]), ValueError, "samples: expected a number for each of 1"),
        (lambda: WATCH(SEEN, samples=[-1]), ValueError, "samples: expected"),
        (lambda: WATCH(SEEN, size=(0, 3)), ValueError, "size"),
        (lambda: WATCH(SEEN, 3), TypeError, "motion: expected a pair of times and displacements"),
        (lambda: WATCH(SEEN, ([0, 5], [[0, 0]])), ValueError, r"motion\[1\] .*at each of 2 times"),
        (lambda: WATCH(SEEN, ([0.0, 5], [[0, 0]] * 2)), TypeError, r"motion\[0\] .*whole microseconds"),
        (lambda: WATCH(SEEN, ([5, 5], [[0, 0]] * 2)), ValueError, r"motion\[0\] .*rising times"),
        (
            lambda: EventCamera().film(SEEN, [0, 1]),
            ValueError,
            "frames: expected 34 rows and 34 columns .* got 12 and 10",
        ),
        (lambda: FILM(SEEN, [0, 1]), ValueError, "t_us: expected a time for each of 1 frames, got 2"),
        (lambda: FILM(SEEN, [0]), ValueError, "t_us: expected two times or more"),
        (lambda: FILM(SEEN, [0, 2**31]), ValueError, "t_us: expected at most"),
        (lambda: SimulatedEvents(3), TypeError, "images: expected __len__"),
        (lambda: SimulatedEvents([], 3), TypeError, "camera: expected an EventCamera or None, got 3"),
        (lambda: TWO_SIZES.__getitems__([0, 1]), ValueError, "images: expected one size"),
        (lambda: SimulatedEvents([(bar(), 0)])[1], IndexError, "index"),
    ],
)
def test_wrong_arguments(act, error, text):
    with pytest.raises(error, match=text):
        act()


def images(count=5):
    return [(np.roll(bar(), number, 1), number % 3) for number in range(count)]


def test_data_set_gives_each_sample_its_own_noise():
    data = SimulatedEvents(images(), motion=MOTION, target_transform=lambda label: label + 10)
    assert len(data) == 5 and data.sensor_size == (34, 34)
    events, label = data[2]
    expected = EventCamera().watch(images()[2][0][None], MOTION, negative=True, samples=[2])[0]
    assert label == 12 and np.array_equal(events, expected)
    assert np.array_equal(data[-3][0], events)
    together = data.__getitems__([4, 2])
    assert np.array_equal(together[1][0], events)


def test_cache_of_simulated_events(tmp_path):
    data = SimulatedEvents(images(), motion=MOTION)
    cache = EventCache(data, tmp_path, transform=ToFrames(step_us=300), progress=False)
    assert cache.targets.tolist() == [0, 1, 2, 0, 1]
    frames, label = cache[3]
    assert label == 0 and torch.equal(frames, ToFrames(step_us=300)(data[3][0]))
    made = cache.path.stat().st_mtime_ns
    assert (
        EventCache(SimulatedEvents(images(), motion=MOTION), tmp_path, progress=False).path.stat().st_mtime_ns
        == made
    )
    other = EventCache(
        SimulatedEvents(images(), EventCamera(seed=1), motion=MOTION), tmp_path, progress=False
    )
    moved = EventCache(SimulatedEvents(images()), tmp_path, progress=False)
    changed = EventCache(SimulatedEvents([*images(4), (bar(), 1)], motion=MOTION), tmp_path, progress=False)
    assert len({cache.path, other.path, moved.path, changed.path}) == 4
    assert not np.array_equal(changed[4][0], data[4][0]) and np.array_equal(changed[3][0], data[3][0])


def test_cache_follows_the_files(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for number, (image, label) in enumerate(images()):
        (tmp_path / "images" / str(label)).mkdir(parents=True, exist_ok=True)
        pillow.fromarray(image).save(tmp_path / "images" / str(label) / f"{number}.png")

    def cache():
        folder = ImageFolder(tmp_path / "images", split=None)
        return EventCache(SimulatedEvents(folder, motion=MOTION), tmp_path / "cache", progress=False)

    first = cache()
    assert first.dataset.classes == ("0", "1", "2") and len(first) == 5
    made = first.path.stat().st_mtime_ns
    assert cache().path.stat().st_mtime_ns == made
    pillow.fromarray(255 - bar()).save(tmp_path / "images" / "2" / "2.png")
    with pytest.warns(UserWarning, match="1 recordings new, changed or relabelled"):
        cache()
