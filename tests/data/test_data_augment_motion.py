"""Shifts, turns and flips of events and frames, against slices, numpy and loops."""

import itertools
import math

import numpy as np
import pytest
import torch
from event_samples import (
    BINNING,
    SIZE,
    STILL,
    one_event_per_pixel,
    picture,
    recording,
    slice_shift,
    times_image,
    within_4_sigma,
)

from snnlib.data import AugmentEvents, AugmentFrames, as_events, to_frames
from snnlib.data.transforms.events import move_events
from snnlib.data.transforms.frames import move_frames
from snnlib.data.transforms.options import rotation


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
