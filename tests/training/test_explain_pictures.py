"""Heat maps as pictures: what is drawn, on which scale, the GIF, and their place in the report."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

import snnlib
from snnlib.readout import first_spike_time, spike_count
from snnlib.training import RunFolder, TrainConfig
from snnlib.training.pictures import PICTURES, draw_pictures, last_conv
from snnlib.training.report import write_report
from snnlib.training.run import train_run
from snnlib.visual import heat_animation, heat_strips, save_gif

HEAT = next(picture for picture in PICTURES if picture.file == "heat.png")


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
    # One scale for the stretches of a sample, which its hottest place ends.
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


# In the report of a run


def result_of(notation: str, labels: list[int], steps: int = 6) -> Any:
    """What a run leaves, as far as the heat picture reads it: a net with random weights and its test set."""
    torch.manual_seed(0)
    net = snnlib.models.from_notation(notation, (2, 34, 34), tau_m=8.0, tau_s=4.0).eval()
    generator = torch.Generator().manual_seed(0)
    frames = [(torch.rand(steps, 2, 34, 34, generator=generator) < 0.1).to(torch.uint8) for _ in labels]
    return SimpleNamespace(
        module=SimpleNamespace(
            net=net, config=SimpleNamespace(step_ms=10.0), objective=SimpleNamespace(scores=spike_count)
        ),
        data=SimpleNamespace(test_set=list(zip(frames, labels, strict=True))),
    )


def headings(result: Any) -> list[str]:
    figure = HEAT.draw(result)
    return [] if figure is None else [row.get_suptitle() for row in figure.subfigs]


def test_shows_hits_of_two_digits_and_a_mistake_twice() -> None:
    result = result_of("4C5s4-P2-10", [0] * 6)
    net = result.module.net
    for parameter in net.parameters():
        # As large as makes all layers fire.
        parameter.data *= 4
    frames = torch.stack([frames for frames, _ in result.data.test_set], 1).float()
    answers = net(frames).sum(0).argmax(1).tolist()
    # Labels are the net's own answers but for one.
    wrong = (answers[3] + 1) % 10
    labels = [*answers[:3], wrong, *answers[4:]]
    result.data.test_set = [
        (frames, label) for (frames, _), label in zip(result.data.test_set, labels, strict=True)
    ]
    hits = list(dict.fromkeys(answers[:3] + answers[4:]))[:2]
    assert len(hits) == 2
    taken = f"a {wrong}, taken for a {answers[3]}: evidence for"
    assert headings(result) == [
        *(f"a {label}, recognised: evidence for {label}" for label in hits),
        f"{taken} {answers[3]}",
        f"{taken} {wrong}",
    ]


def test_a_run_that_decides_by_first_spikes_is_shown_by_them() -> None:
    result = result_of("4C5s4-P2-10", [0] * 8, steps=20)
    for parameter in result.module.net.parameters():
        # As large as makes all layers fire.
        parameter.data *= 4
    frames = torch.stack([frames for frames, _ in result.data.test_set], 1).float()
    spikes = result.module.net(frames)
    first = first_spike_time(spikes).argmin(1)
    assert not torch.equal(first, spike_count(spikes).argmax(1))
    result.data.test_set = [
        (frames, int(label)) for (frames, _), label in zip(result.data.test_set, first, strict=True)
    ]
    result.module.objective.scores = lambda spikes: -first_spike_time(spikes)
    assert all("recognised" in heading for heading in headings(result))


def test_a_run_of_one_step_has_one_stretch() -> None:
    figure = HEAT.draw(result_of("4C5s4-P2-10", [0, 1], steps=1))
    assert figure is not None
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.images]
    assert titles[:2] == ["0 to 10 ms", "whole sample"]


def test_stride_is_the_product_of_the_layers_steps() -> None:
    net = snnlib.models.from_notation("4C3s2p1-P2-6C3-P2-10", (2, 34, 34))
    assert last_conv(net) == (net.conv2, 4)
    assert last_conv(snnlib.nn.standardize_weights(net)) == (net.conv2, 4)
    assert last_conv(snnlib.models.nmnist_net())[1] == 2


def test_nets_without_a_conv_layer_have_a_word_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snnlib.training.pictures.PICTURES", (HEAT,))
    assert draw_pictures(result_of("P2-10", [0]), tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert draw_pictures(result_of("4C5s4-10", [0, 1]), tmp_path) == ["heat.png"]
    assert "no convolutional layer" in HEAT.absent


@pytest.mark.parametrize(("net", "pictures"), [("4C5s4-P2-10", len(PICTURES)), ("P2-10", len(PICTURES) - 1)])
def test_report_with_and_without(net: str, pictures: int, config: TrainConfig, tmp_path: Path) -> None:
    settings = dataclasses.replace(config, net=net, epochs=1)
    run = RunFolder.create(tmp_path / "run", settings)
    write_report(train_run(settings, run, progress=False), run)
    page = run.report.read_text()
    assert page.count("data:image/png;base64,") == pictures
    assert (HEAT.absent in page) == (pictures < len(PICTURES))
    assert (HEAT.text[:40] in page) == (pictures == len(PICTURES))


def test_an_animation_has_pictures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pictures: expected at least one, got none"):
        save_gif([], tmp_path / "a.gif")
