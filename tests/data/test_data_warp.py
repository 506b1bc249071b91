"""Warped frames: a smooth random displacement of pixels."""

import numpy as np
import pytest
import torch
from event_samples import SIZE, STILL, picture, slice_shift

from snnlib.data import AugmentFrames
from snnlib.data.transforms.frames import draw_warp, move_frames


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
    with pytest.raises(ValueError, match=r"warp: expected finite pixels >= 0, got -1\.0"):
        AugmentFrames(warp=-1.0)
    with pytest.raises(TypeError, match="warp: expected finite pixels >= 0, got '2'"):
        AugmentFrames(warp="2")
