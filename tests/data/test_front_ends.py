"""Front ends for sound and beats: against their equations, in parts, cut short, and moved at random."""

import os
from itertools import pairwise
from math import cos, pi, sin
from pathlib import Path

import numpy as np
import pytest
import torch

import snnlib
from snnlib.data import (
    AugmentChannels,
    AugmentSound,
    FrameCache,
    LogMel,
    SpeechCommands,
    Transformed,
)
from snnlib.data.log_mel import _FRACTION


def sound(samples: int = 8000, seed: int = 0) -> torch.Tensor:
    """Noise that comes and goes, and a tone."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.arange(samples) / 16_000
    noise = 0.1 * torch.randn(samples, generator=generator) * torch.sin(2 * torch.pi * 3 * t).clamp(min=0.01)
    return (noise + 0.2 * torch.sin(2 * torch.pi * 900 * t) * (t > 0.2)).clamp(-1, 1)


def turned(real: int, imag: int, angle: float) -> tuple[int, int]:
    """A complex number times exp(-i angle), in integers of any size."""
    c, s = round(2**14 * cos(angle)), round(2**14 * sin(angle))
    return (real * c + imag * s + 2**13) >> 14, (imag * c - real * s + 2**13) >> 14


def spectrum(values: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The transform by its definition: that of the even and that of the odd values, one turned."""
    if len(values) == 1:
        return values
    even, odd = spectrum(values[::2]), spectrum(values[1::2])
    ends = [turned(*value, 2 * pi * k / len(values)) for k, value in enumerate(odd)]
    both = list(zip(even, ends, strict=True))
    return [(a + c, b + d) for (a, b), (c, d) in both] + [(a - c, b - d) for (a, b), (c, d) in both]


def logarithm(number: int) -> int:
    bits = number.bit_length() - 1
    return 256 * bits + round(256 * np.log2(1 + ((number >> (bits - 7)) - 128 + 0.5) / 128))


def in_integers(
    samples: list[int], channels: int, low: float, high: float, table: list[int]
) -> list[list[int]]:
    """Frames of 30 ms every 10 ms at 16 kHz, by Python's integers and one value after the other."""
    mel = [1127 * np.log1p(hertz / 700) for hertz in (low, high)]
    window = [round(2**14 * sin(pi * (n + 0.5) / 480) ** 2) for n in range(480)]
    means, frames = [(16 * 256) << 5] * channels, []
    for end in range(160, len(samples) + 1, 160):
        part = ([0] * 320 + samples)[end - 160 : end + 320]
        x = [(a * b + 2 ** (13 - _FRACTION)) >> (14 - _FRACTION) for a, b in zip(part, window, strict=True)]
        x += [0] * 32
        z = spectrum(list(zip(x[::2], x[1::2], strict=True)))
        energies = [0] * channels
        for k in range(1, 256):
            (a, b), (c, d) = z[k], z[256 - k]
            real, imag = turned(b + d, c - a, 2 * pi * k / 512)
            power = (a + c + real) ** 2 + (b - d + imag) ** 2
            place = (1127 * np.log1p(k * 16000 / 512 / 700) - mel[0]) / (mel[1] - mel[0]) * (channels + 1)
            weight, channel = round(255 * (place % 1)), int(np.floor(place))
            for c_, w in ((channel, weight), (channel - 1, 255 - weight)):
                if 0 <= place < channels + 1 and 0 <= c_ < channels:
                    energies[c_] += power * w
        energies = [energy >> 12 for energy in energies]
        means = [mean + energy - (mean >> 5) for mean, energy in zip(means, energies, strict=True)]
        levels = [
            (logarithm(energy + 4096) - (251 * logarithm((mean >> 5) + 4096) >> 8) + 6 * 256) >> 4
            for energy, mean in zip(energies, means, strict=True)
        ]
        frames.append([table[min(max(level, 0), 255)] for level in levels])
    return frames


def test_log_mel_is_what_its_integers_say() -> None:
    front = LogMel(12, low_hz=100, high_hz=7000)
    loud = (2 * sound(960) * 32768).round().clamp(-32768, 32767).short()
    # Full scale throughout, where sums are largest.
    square = torch.where(torch.arange(640) % 16 < 8, 32767, -32768).short()
    for waveform in (loud, square, torch.ones(320, dtype=torch.int16)):
        expected = in_integers(waveform.tolist(), 12, 100, 7000, front.table.tolist())
        assert front(waveform).tolist() == expected


def test_log_mel_is_a_mel_spectrogram() -> None:
    front, waveform = LogMel(40), sound()
    samples = np.concatenate([np.zeros(320, np.int64), front.samples(waveform)])
    frames = np.lib.stride_tricks.sliding_window_view(samples, 480)[::160]
    power = np.abs(np.fft.rfft(frames * np.sin(np.pi * (np.arange(480) + 0.5) / 480) ** 2, 512)) ** 2
    mel = np.log1p(np.array([60, 7600]) / 700)
    place = (np.log1p(np.arange(257) * 31.25 / 700) - mel[0]) / (mel[1] - mel[0]) * 41
    triangles = (1 - np.abs(place[:, None] - np.arange(1, 41))).clip(0)
    # Twice the spectrum of three more bits, weights of 255, less 12 bits.
    expected = power @ triangles * (4 * 64 * 255 / 4096)
    found = front.energies(samples)
    assert found.shape == expected.shape == (50, 40)
    # Decibels of sound above the rounding of 16 bits: weights of 8 bits are off by 1 in 10 where one is near 0.
    loud = expected > 1e5
    assert loud.mean() > 0.9
    assert np.abs(10 * np.log10(found[loud] / expected[loud])).max() < 0.5
    assert np.abs(10 * np.log10(found[loud] / expected[loud])).mean() < 0.02


def test_levels_of_log_mel() -> None:
    waveform = sound()
    log = LogMel(compression="log")
    energies = log.energies(np.concatenate([np.zeros(320, np.int64), log.samples(waveform)]))
    octaves = np.log2((energies + 4096) / 4096)
    assert np.abs(log(waveform).numpy() - (8 * octaves).clip(0, 255)).max() <= 1.1
    # Published equation in float64; entries of the table are 1 / 16 of an octave apart.
    pcen, mean, expected = LogMel(), np.full(40, 4096.0), []
    for energy in energies.astype(float):
        mean += (energy - mean) / 32
        expected.append(32 * (np.sqrt((energy + 4096) / (mean + 4096) ** (251 / 256) + 2) - np.sqrt(2)))
    found = pcen(waveform).numpy().astype(float)
    assert np.abs(found - expected).max() < 3 and np.abs(found - expected).mean() < 0.5
    assert not log(torch.zeros(4000)).any()


def test_log_mel_goes_on_where_it_stopped() -> None:
    front, waveform = LogMel(), sound(8123)
    whole, state, parts = front(waveform), None, []
    for first, last in pairwise((0, 160, 480, 3200, 3360, 8123)):
        frames, state = front.run(waveform[first:last], state)
        parts.append(frames)
    assert whole.shape == (50, 40) and torch.equal(torch.cat(parts), whole)
    assert front(waveform[:100]).shape == (0, 40)
    assert torch.equal(front((waveform * 32768).round().short()), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 0}, "channels: expected an integer >= 1, got 0"),
        ({"channels": 100}, "channels: expected so few that each has a bin of 31.25 Hz"),
        ({"step_us": 9999}, "step_us: expected whole samples at 16000 a second, got 9999"),
        ({"window_us": 5000}, "window_us: expected an integer >= 10000"),
        ({"high_hz": 9000}, "low_hz, high_hz: expected 0 <= low_hz < high_hz <= 8000"),
        ({"compression": "root"}, "compression: expected one of pcen, log"),
        ({"smoothing": 11}, r"smoothing: expected an integer in 1\.\.10, got 11"),
    ],
)
def test_options_of_log_mel_that_do_not_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogMel(**options)


@pytest.mark.parametrize(
    ("waveform", "message"),
    [
        (torch.zeros(2, 100), r"waveform: expected a tensor \[samples\], got \(2, 100\)"),
        (np.zeros(100), r"waveform: expected a tensor \[samples\], got ndarray"),
        (torch.full((3,), torch.nan), "waveform: expected int16, or finite floats"),
        (
            torch.zeros(3, dtype=torch.int32),
            "waveform: expected int16, or finite floats in -1..1, got torch.int32",
        ),
    ],
)
def test_sound_that_log_mel_refuses(waveform: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogMel()(waveform)


@pytest.mark.parametrize("compression", ["pcen", "log"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.99])
def test_what_comes_later_changes_nothing_before(compression: str, share: float) -> None:
    front, waveform = LogMel(compression=compression), sound(6400)
    whole, cut = front(waveform), front(waveform[: int(share * len(waveform))])
    assert 0 < len(cut) < len(whole) and whole.float().std() > 0
    assert torch.equal(cut, whole[: len(cut)])


def test_sound_is_mixed_with_noise() -> None:
    torch.manual_seed(0)
    noise = [torch.arange(1000.0), -torch.arange(2000.0)]
    mixed = [AugmentSound(noise=noise, level=0.5)(torch.zeros(10)) for _ in range(200)]
    slopes = torch.stack([sample.diff().mean() for sample in mixed])
    assert 0.7 < float((slopes != 0).float().mean()) < 0.9 and float(slopes.abs().max()) <= 0.5
    assert bool((slopes > 0).any()) and bool((slopes < 0).any())
    # Pieces begin anywhere.
    starts = [float((sample / slope)[0]) for sample, slope in zip(mixed, slopes, strict=True) if slope]
    assert min(starts) < 100 and max(starts) > 1800
    waveform = torch.arange(1.0, 101.0)
    assert torch.equal(AugmentSound(noise=noise, share=0.0)(waveform), waveform)
    with pytest.raises(ValueError, match=r"noise\[0\]: expected at least 2000 samples, got 1000"):
        AugmentSound(noise=noise[:1], share=1.0)(torch.zeros(2000))
    with pytest.raises(ValueError, match="share: expected a probability"):
        AugmentSound(noise=noise, share=2)
    with pytest.raises(ValueError, match=r"waveform: expected a tensor \[samples\]"):
        AugmentSound(noise=noise)(torch.zeros(2, 3))


def test_runs_of_steps_and_of_channels_are_masked() -> None:
    torch.manual_seed(0)
    # Each cell says its step and channel.
    frames = (torch.arange(1.0, 51)[:, None] * 100 + torch.arange(20)).unsqueeze(1).expand(50, 64, 20)
    masked = AugmentChannels(masks=2, mask_steps=5, mask_channels=3)(frames)
    gone = masked == 0
    assert torch.allclose(masked[~gone], frames[~gone])
    steps, channels = gone.all(2).sum(0), gone.all(0).sum(1)
    assert (gone == (gone.all(2, keepdim=True) | gone.all(0, keepdim=True))).all()
    assert int(steps.min()) <= 1 and 7 <= int(steps.max()) <= 10
    assert int(channels.min()) <= 1 and 5 <= int(channels.max()) <= 6
    # Anywhere, the ends among it.
    assert gone.all(2)[0].any() and gone.all(2)[-1].any()
    one = AugmentChannels(masks=1)(frames[:, 0].byte())
    assert one.shape == (50, 20) and one.dtype == torch.uint8
    with pytest.raises(ValueError, match=r"frames: expected a tensor \[T, C\] or \[T, N, C\]"):
        AugmentChannels()(frames[None])
    with pytest.raises(ValueError, match=r"mask_steps: expected an integer >= 0, got -1"):
        AugmentChannels(mask_steps=-1)


def test_thresholds_by_lead() -> None:
    signal = torch.randn(200, 3, 2, generator=torch.Generator().manual_seed(0)).cumsum(0)
    both = snnlib.encoding.delta(signal, torch.tensor([0.5, 2.0]))
    for lead, threshold in enumerate((0.5, 2.0)):
        assert torch.equal(both[..., lead], snnlib.encoding.delta(signal[..., lead], threshold))
    assert torch.equal(snnlib.encoding.delta(signal[:70], torch.tensor([0.5, 2.0])), both[:70])
    with pytest.raises(ValueError, match=r"threshold: expected finite numbers > 0, got \[0.5, 0.0\]"):
        snnlib.encoding.delta(signal, torch.tensor([0.5, 0.0]))


def test_intervals_become_spikes() -> None:
    beats = torch.zeros(60, 2)
    beats[[3, 13, 23, 28, 43], 0] = 1
    beats[[0, 59], 1] = 1
    found = snnlib.encoding.intervals(beats, [8, 12])
    assert found.nonzero().tolist() == [[13, 0, 1], [23, 0, 1], [28, 0, 0], [43, 0, 2], [59, 1, 2]]
    for cut in (20, 28, 29):
        assert torch.equal(snnlib.encoding.intervals(beats[:cut], [8, 12]), found[:cut])
    first = snnlib.encoding.intervals(beats.T, [8, 12], batch_first=True)
    assert torch.equal(first.transpose(0, 1), found)
    with pytest.raises(ValueError, match=r"bounds: expected rising numbers, got \[2, 1\]"):
        snnlib.encoding.intervals(beats, [2, 1])
    with pytest.raises(ValueError, match=r"spikes: expected \[T, N\]"):
        snnlib.encoding.intervals(beats[0], [1])


def test_real_words_are_heard_and_kept() -> None:
    archive = Path(os.environ.get("SNNLIB_DATA", "")) / "keywords" / "speech_commands_test_v2_folds0123.zip"
    if not archive.is_file():
        pytest.skip("SNNLIB_DATA holds no keywords")
    cache = FrameCache(SpeechCommands(archive, "test", LogMel(), fold=0))
    frames, label = cache[5]
    assert frames.shape == (100, 40) and label == 0 and cache.nbytes == 722 * 4000
    assert Transformed(cache, AugmentChannels(masks=2))[300][0].shape == (100, 40)
    assert 10 < float(cache[300][0].mean()) < 80
