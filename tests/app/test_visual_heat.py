"""Heat maps as pictures: what is drawn, on which scale, and the GIF."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

import snnlib
from snnlib.app.visual import heat_animation, heat_strips, save_gif


def sample() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    frames = (torch.rand(7, 2, 5, 6, generator=generator) < 0.2).to(torch.uint8)
    return frames, torch.rand(7, 5, 6, generator=generator)


def test_stretches_show_their_mean_map_and_their_events() -> None:
    frames, maps = sample()
    figure = heat_strips([("one", frames, maps), ("two", frames, maps)], step_ms=10.0, parts=3)
    pictures = [axes for axes in figure.axes if axes.images]
    assert len(pictures) == 8
    parts = list(zip(frames.tensor_split(3), maps.tensor_split(3), strict=True))
    for axes, (events, heat) in zip(pictures, [*parts, (frames, maps)], strict=False):
        torch.testing.assert_close(torch.tensor(axes.images[0].get_array()), heat.double().mean(0))
        dots = {tuple(map(int, place)) for place in axes.collections[0].get_offsets()}
        assert dots == {(column, row) for row, column in events.sum((0, 1)).nonzero().tolist()}
    # The stretches of a sample share a scale, which its hottest place ends.
    limits = [axes.images[0].get_clim() for axes in pictures[:4]]
    hottest = max(float(heat.double().mean(0).max()) for _, heat in parts)
    assert limits[:3] == [(0, pytest.approx(hottest))] * 3
    assert limits[3] == (0, pytest.approx(float(maps.double().mean(0).max())))
    titles = [axes.get_title(loc="left") for axes in pictures[:4]]
    assert titles == ["0 to 30 ms", "30 to 50 ms", "50 to 70 ms", "whole sample"]


def test_busier_pixels_have_darker_dots() -> None:
    frames = torch.zeros(4, 1, 1, 2)
    frames[0, 0, 0, 0] = 1
    frames[:, 0, 0, 1] = 1
    figure = heat_strips([("", frames, torch.zeros(4, 1, 2))], step_ms=1.0, parts=1)
    colours = figure.axes[0].collections[0].get_facecolors()
    assert colours[:, 3].tolist() == [0.5, 1]


def test_silent_samples_without_heat_are_drawn(tmp_path: Path) -> None:
    frames, maps = torch.zeros(3, 2, 4, 4), torch.zeros(3, 4, 4)
    snnlib.visual.save_png(heat_strips([("", frames, maps)], step_ms=1.0), tmp_path / "a.png")
    save_gif(heat_animation(frames, maps, step_ms=1.0), tmp_path / "a.gif")


def test_gif_has_a_picture_per_step(tmp_path: Path) -> None:
    frames, maps = sample()
    pictures = heat_animation(frames, maps, step_ms=10.0)
    assert len({picture.tobytes() for picture in pictures}) == 7
    save_gif(pictures, tmp_path / "a.gif", frame_ms=200)
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"]
    with Image.open(tmp_path / "a.gif") as gif:
        assert (gif.n_frames, gif.info["duration"], gif.info["loop"]) == (7, 200, 0)
        for number, picture in enumerate(pictures):
            gif.seek(number)
            difference = torch.tensor(list(gif.convert("RGB").tobytes())).sub(
                torch.tensor(list(picture.tobytes()))
            )
            # 256 colours are enough for all steps.
            assert float(difference.abs().double().mean()) < 4


def test_animation_keeps_its_axes_in_place() -> None:
    """Steps without events and heat differ in their heading only, the last line of which is above the axes."""
    first, *_, last = heat_animation(torch.zeros(12, 1, 4, 4), torch.zeros(12, 4, 4), step_ms=10.0)
    box = (0, 60, *first.size)
    assert first.crop(box).tobytes() == last.crop(box).tobytes()


@pytest.mark.parametrize(
    ("frames", "maps", "message"),
    [
        ((4, 5, 6), (4, 5, 6), r"frames: expected shape \[T, C, H, W\] with steps, got \(4, 5, 6\)"),
        ((0, 2, 5, 6), (0, 5, 6), r"frames: expected shape \[T, C, H, W\] with steps, got \(0, 2, 5, 6\)"),
        ((4, 2, 5, 6), (3, 5, 6), r"maps: expected shape \(4, 5, 6\), one map per frame, got \(3, 5, 6\)"),
    ],
)
def test_shapes_that_do_not_fit(frames: tuple[int, ...], maps: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        heat_strips([("", torch.zeros(frames), torch.zeros(maps))], step_ms=1.0)
    with pytest.raises(ValueError, match=message):
        heat_animation(torch.zeros(frames), torch.zeros(maps), step_ms=1.0)


@pytest.mark.parametrize("parts", [-2, 0, 5])
def test_parts_have_steps(parts: int) -> None:
    with pytest.raises(ValueError, match=rf"parts: expected 1 to 4, the number of steps, got {parts}"):
        heat_strips([("", torch.zeros(4, 2, 5, 6), torch.zeros(4, 5, 6))], step_ms=1.0, parts=parts)


def test_no_samples() -> None:
    with pytest.raises(ValueError, match="samples: expected at least one, got none"):
        heat_strips([], step_ms=1.0)


def test_an_animation_has_pictures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pictures: expected at least one, got none"):
        save_gif([], tmp_path / "a.gif")
