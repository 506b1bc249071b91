"""The software cochlea against a plain filter bank in float64, its spikes, and sound files that are damaged."""

import io
import pickle
import wave

import numpy as np
import pytest
import torch

from snnlib.data import Cochlea, EventFileError, SpokenDigits, read_wav


def wav(samples: bytes, *, rate: int = 8000, channels: int = 1, width: int = 2) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(samples)
    return content.getvalue()


def filter_bank(waveform: torch.Tensor, cochlea: Cochlea, taps: int) -> np.ndarray:
    """Envelopes `[steps, channels]` by direct convolution in float64, from the equations."""
    t = np.arange(taps) / cochlea.sample_rate
    result = []
    for f in cochlea.frequencies.numpy():
        b = 1.019 * 24.7 * (1 + 4.37 * f / 1000)
        g = t**3 * np.exp(-2 * np.pi * b * t) * np.exp(2j * np.pi * f * t)
        g *= 2 / np.abs(g).sum()
        filtered = np.convolve(waveform.double().numpy(), g)[: len(waveform)]
        result.append(np.abs(filtered[:: cochlea.hop]))
    return np.stack(result, 1)


@pytest.mark.parametrize(
    ("samples", "options"),
    [
        (5000, {"channels": 24}),
        # Blocks end within the sound, and a step of sound is left over.
        (20_003, {"channels": 3, "low_hz": 200.0}),
        (3000, {"channels": 5, "sample_rate": 11025, "step_us": 500}),
        (9, {"channels": 2}),
        (900, {"channels": 4, "sample_rate": 1000, "low_hz": 60.0, "step_us": 1000}),
    ],
)
def test_envelopes_are_those_of_a_plain_filter_bank(samples: int, options: dict[str, float]) -> None:
    cochlea = Cochlea(**options)
    waveform = 0.3 * torch.randn(samples, generator=torch.Generator().manual_seed(0))
    found = cochlea.envelopes(waveform)
    # Twice as long as the cochlea's, so that what it cuts off is seen.
    expected = filter_bank(waveform, cochlea, 2 * cochlea._before * cochlea.hop)
    assert found.shape == expected.shape == (-(-samples // cochlea.hop), cochlea.channels)
    assert np.abs(found.numpy() - expected).max() <= 2e-6 * expected.max()


def test_a_tone_has_its_amplitude_in_its_channel() -> None:
    cochlea = Cochlea(40)
    channel = 25
    t = torch.arange(8000, dtype=torch.float64) / 8000
    envelopes = cochlea.envelopes((0.25 * torch.sin(2 * torch.pi * cochlea.frequencies[channel] * t)).float())
    assert int(envelopes[500].argmax()) == channel
    assert float(envelopes[500, channel]) == pytest.approx(0.25, rel=0.01)
    # Even distances on the ear's scale, 21.4 log10(1 + 4.37 f / 1000).
    steps = torch.diff(torch.log10(1 + 4.37e-3 * cochlea.frequencies))
    assert torch.allclose(steps, steps[:1])
    assert cochlea.frequencies[0] == pytest.approx(80)
    assert cochlea.frequencies[-1] == pytest.approx(3600)


def test_spikes_come_where_the_integral_of_the_rate_is_whole() -> None:
    cochlea = Cochlea(3, max_rate=200.0)
    levels = torch.tensor([[1.0, 0.5, 0.0]]).repeat(100, 1)
    events = cochlea.events_of(levels)
    times = {channel: events["t"][events["x"] == channel].tolist() for channel in range(3)}
    assert times[0] == list(range(4000, 100_000, 5000))
    assert times[1] == list(range(9000, 100_000, 10_000))
    assert times[2] == []
    assert set(events["y"]) == {0}
    assert set(events["p"]) == {1}
    assert (np.diff(events["t"]) >= 0).all()


def test_levels() -> None:
    """The reference is 1; 40 dB below is silence, and so is silence."""
    waveform = torch.randn(4000, generator=torch.Generator().manual_seed(1))
    envelopes = Cochlea(10).envelopes(waveform)
    cochlea = Cochlea(10, compression="log", reference=float(envelopes.max()))
    levels = cochlea.levels(waveform)
    assert float(levels.max()) == pytest.approx(1)
    assert float(levels.min()) == 0
    assert torch.equal(levels > 0, envelopes > envelopes.max() / 100)
    lower = Cochlea(10, compression="log")
    assert float(lower.levels(waveform / 2).max()) == pytest.approx(
        1 + 20 * np.log10(float(envelopes.max()) / 2) / 40, rel=1e-5
    )
    assert not cochlea.levels(torch.zeros(100)).any()
    assert len(cochlea(torch.zeros(100))) == 0
    again = pickle.loads(pickle.dumps(cochlea))
    assert again._spectra is None
    assert np.array_equal(again(waveform), cochlea(waveform))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 0}, "channels"),
        (
            {"low_hz": 0},
            "low_hz, high_hz: expected 0 < low_hz <= high_hz <= 4000, half the sample rate, got 0 and",
        ),
        ({"high_hz": 5000}, "got 80 and 5000"),
        (
            {"max_rate": 2000},
            "max_rate: expected spikes, at most one per step of 1000 us, 1000 a second, got 2000",
        ),
        ({"dynamic_range_db": float("nan")}, "dynamic_range_db: expected a finite number > 0, got nan"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cochlea(**options)


@pytest.mark.parametrize(
    ("waveform", "message"),
    [
        (torch.zeros(2, 100), r"waveform: expected a floating tensor \[samples\], got \(2, 100\)"),
        (torch.zeros(0), r"waveform: expected finite samples up to 1e\+15, got none"),
        (torch.full((3,), torch.nan), r"waveform: expected finite samples up to 1e\+15, got nan"),
        # Its power would be infinite in float32, and the mean of PCEN no number.
        (torch.full((3,), 1e19), r"waveform: expected finite samples up to 1e\+15, got 1e\+19"),
        (np.zeros(3), "waveform: expected a floating tensor .*, got ndarray"),
    ],
)
def test_sound_that_does_not_fit(waveform: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cochlea(4)(waveform)


@pytest.mark.parametrize(
    ("width", "values"),
    [(1, [0, 128, 192]), (2, [-(2**15), 0, 2**14]), (3, [-(2**23), 0, 2**22]), (4, [-(2**31), 0, 2**30])],
)
def test_samples_of_every_width(width: int, values: list[int], tmp_path) -> None:
    path = tmp_path / "a.wav"
    data = b"".join(value.to_bytes(width, "little", signed=width > 1) for value in values)
    path.write_bytes(wav(data, width=width, rate=16000))
    waveform, rate = read_wav(path)
    assert (waveform.tolist(), rate) == ([-1.0, 0.0, 0.5], 16000)
    # Channels become their mean.
    path.write_bytes(
        wav(data[:width] * 2 + data[width : 2 * width] + data[2 * width :], width=width, channels=2)
    )
    assert read_wav(path, sample_rate=8000)[0].tolist() == [-1.0, 0.25]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (wav(b"\0\0" * 100, rate=16000), "expected 8000 samples a second, found 16000"),
        (wav(b""), "expected sound, found no samples"),
        (wav(b"\0\0" * 100)[:-20], "offset 224: expected 100 samples, found 90: the file is truncated"),
        (wav(b"\0\0" * 100)[:30], "offset 20: expected a WAV file with 16 bytes of format, found 10"),
        (wav(b"\0\0" * 100)[:40], "offset 40: expected a WAV file with a chunk fmt and then data, found its"),
        (b"", "offset 0: expected a WAV file, which begins with RIFF and WAVE, found b''"),
        (b"RIFF" + bytes(60), "expected a WAV file, which begins with RIFF and WAVE, found b'RIFF"),
    ],
)
def test_bad_sound_files_are_one_error(content: bytes, message: str, tmp_path) -> None:
    path = tmp_path / "3_anna_0.wav"
    path.write_bytes(content)
    with pytest.raises(EventFileError, match=message) as error:
        read_wav(path, sample_rate=8000)
    assert str(path) in str(error.value)


def test_a_truncated_recording_of_a_data_set_is_named(tmp_path) -> None:
    for number in range(2):
        (tmp_path / f"{number}_anna_0.wav").write_bytes(wav(b"\0\1" * 50)[: -20 * number or None])
    digits = SpokenDigits(tmp_path, "test", Cochlea(4))
    assert len(digits) == 2
    assert digits[0][0].dtype.names == ("t", "x", "y", "p")
    with pytest.raises(
        EventFileError,
        match=r"1_anna_0\.wav: byte offset 124: expected 50 samples, found 40: the file is truncated",
    ):
        digits[1]
