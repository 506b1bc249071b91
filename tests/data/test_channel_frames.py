"""Frames of channels: other voices, several frames at a step, and heart beats beside those before."""

import numpy as np
import pytest
import torch

from snnlib.data import AugmentChannels, BeatFrames, StackFrames, beat_frames


def test_nothing_asked_for_changes_nothing() -> None:
    frames = torch.randint(0, 256, (50, 3, 20), dtype=torch.uint8)
    assert torch.equal(AugmentChannels()(frames), frames)
    assert torch.equal(AugmentChannels()(frames[:, 0]), frames[:, 0])


def test_a_peak_moves_with_tempo_and_voice() -> None:
    """A bump at the centre stays there under scaling, and moves by shifts within their bounds."""
    t, c = torch.meshgrid(torch.arange(101.0), torch.arange(41.0), indexing="ij")
    bump = torch.exp(-((t - 50) ** 2) / 50 - (c - 20) ** 2 / 8).unsqueeze(1).expand(-1, 200, -1)
    torch.manual_seed(0)

    def centres(**options: float) -> tuple[torch.Tensor, torch.Tensor]:
        out = AugmentChannels(**options)(bump)
        mass = out.sum((0, 2))
        return (out.sum(2) * t[:, :1]).sum(0) / mass, (out.sum(0) * c[0]).sum(1) / mass

    for centre, middle in zip(centres(tempo=0.2, stretch=0.2), (50, 20), strict=True):
        assert torch.allclose(centre, torch.full_like(centre, middle), atol=0.1)
    times, channels = centres(shift=10, shift_channels=3)
    assert 9 < float((times - 50).abs().max()) <= 10.1
    assert 2.7 < float((channels - 20).abs().max()) <= 3.1


def test_whole_numbers_stay_whole_and_samples_differ() -> None:
    frames = torch.randint(0, 256, (30, 1, 12), dtype=torch.uint8).expand(-1, 2, -1)
    warped = AugmentChannels(shift=5, tempo=0.3, shift_channels=2, stretch=0.2)(frames)
    assert warped.dtype == torch.uint8 and not torch.equal(warped[:, 0], warped[:, 1])


def test_steps_of_frames_are_causal() -> None:
    frames = torch.arange(1, 24).view(23, 1)
    steps = StackFrames(4, 8)(frames).squeeze(-1)
    assert steps.shape == (5, 8)
    for step in range(5):
        assert steps[step].tolist() == [max(first, 0) for first in range(4 * step - 3, 4 * step + 5)]
    parts, before = [], None
    for part in frames.split([1, 2, 3, 9, 8]):
        found, before = StackFrames(4, 8).run(part, before)
        parts.append(found)
    assert [len(found) for found in parts] == [0, 0, 1, 2, 2]
    assert torch.equal(torch.cat(parts).squeeze(-1), steps)
    with pytest.raises(ValueError, match="window: expected an integer >= 4, got 3"):
        StackFrames(4, 3)


def _record(beats: int = 12) -> tuple[torch.Tensor, np.ndarray]:
    """Two leads with a spike at each of the peaks, and noise."""
    rng = np.random.default_rng(0)
    peaks = 300 + np.cumsum(rng.integers(220, 380, beats))
    signal = 0.05 * rng.standard_normal((int(peaks[-1]) + 500, 2))
    for peak in peaks:
        signal[peak - 10 : peak + 11] += np.array([1.2, -0.7]) * np.hanning(21)[:, None]
    return torch.from_numpy(signal).float(), peaks


def test_beats_know_nothing_that_comes_later() -> None:
    signal, peaks = _record()
    front_end = BeatFrames()
    whole = front_end(signal, peaks)
    assert whole.shape == (12, front_end.steps, front_end.channels) and whole.dtype == torch.uint8
    for beat in (0, 5, 11):
        end = int(peaks[beat]) + front_end.after
        changed = signal.clone()
        changed[end:] = 3.0
        assert torch.equal(front_end(changed, peaks)[: beat + 1], whole[: beat + 1])
        assert torch.equal(front_end(signal, peaks[: beat + 1]), whole[: beat + 1])


@pytest.mark.parametrize("length", [1, 37, 1000])
def test_beats_of_parts_are_those_of_the_record(length: int) -> None:
    signal, peaks = _record()
    front_end, state, parts, ended = BeatFrames(), None, [], 0
    for first in range(0, len(signal), length):
        inside = peaks[(peaks >= first) & (peaks < first + length)] - first
        beats, state = front_end.run(signal[first : first + length], inside, state)
        parts.append(beats)
        ended += len(beats)
        # An answer comes where a beat ends, no sooner and no later.
        assert ended == int((peaks + front_end.after <= first + length).sum())
    assert torch.equal(torch.cat(parts), front_end(signal, peaks))
    # The state has one length.
    assert state is not None and len(state.units) == 720 + 248 and not len(state.peaks)


def test_a_beat_that_the_record_ends_within_goes_on_as_it_is() -> None:
    signal, peaks = _record()
    cut = signal[: int(peaks[-1]) + 60]
    longer = torch.cat((cut, cut[-1:].expand(400, 2)))
    assert torch.equal(BeatFrames()(cut, peaks), BeatFrames()(longer, peaks))
    assert len(BeatFrames().run(cut, peaks)[0]) == len(peaks) - 1
    assert len(BeatFrames()(cut[:0], peaks[:0])) == 0


def test_beats_of_any_amplitude_are_alike() -> None:
    signal, peaks = _record()
    small, large = (BeatFrames()(factor * signal, peaks).int() for factor in (1.0, 3.0))
    assert float((small - large).abs().float().mean()) < 1


@pytest.mark.parametrize("largest", [5e9, 1e6])
def test_beats_of_the_largest_signal_are_those_of_numbers_of_any_size(largest: float) -> None:
    signal, peaks = _record()
    square = torch.where(signal.double() > 0.1, largest, -largest)
    found = BeatFrames()(square, peaks)
    units = (square.numpy() * 200).round().astype(np.int64).tolist()
    front_end, frames, state = BeatFrames(), [], None
    level = beat_frames._level(np.array(units, object), 0)
    windows = front_end._windows(level, peaks)
    state = beat_frames._State(0, windows[:0], peaks)
    for window, peak in zip(windows * 16, peaks.tolist(), strict=True):
        leads, _, state = beat_frames._beat(window, peak, state)
        frames.append((leads[-1] + 128).clip(0, 255).tolist())
    assert len(frames) == len(found) > 5
    # The last frame of the last step, before the intervals.
    assert found[:, -1, 60:64].tolist() == frames


def test_an_early_beat_has_low_distances_and_an_unusual_one_large_differences() -> None:
    peaks = 300 + 300 * np.arange(12)
    signal = torch.zeros(4500, 2)
    for number, peak in enumerate(peaks):
        signal[peak - 10 : peak + 11] += (-1.0 if number == 8 else 1.0) * torch.hann_window(21)[:, None]
    frames = BeatFrames()(signal, peaks).int() - 128
    assert frames[5, 0, -4:].tolist() == [0, 0, 0, 42]
    differences = frames[:, :, 2:64:4].abs().amax((1, 2))
    assert int(differences[8]) > 60 > 3 * int(differences[7])
    early = peaks - 100 * (np.arange(12) == 6)
    assert all(distance < -20 for distance in (BeatFrames()(signal, early).int() - 128)[6, 0, -3:-1].tolist())
    # The distance from the median vanishes in a long run of early beats, and the long interval is remembered.
    many = 300 + np.cumsum(np.repeat([300, 200], [20, 40]))
    median, _, ratio = (BeatFrames()(torch.zeros(15_000, 2), many).int() - 128)[:, 0, -3:].unbind(1)
    assert ratio[:20].tolist() == [42] * 20 and not median[30:].any() and ratio[20] == -1
    assert (ratio[20:].diff() >= 0).all() and -1 < ratio[-1] < 20


def test_an_early_beat_says_less_where_intervals_differ() -> None:
    regular = np.where(np.arange(40) % 2, 298, 302)
    irregular = np.where(np.arange(40) % 2, 240, 360)
    found = []
    for intervals in (regular, irregular):
        peaks = np.cumsum(np.append(intervals, 200)) + 200
        found.append((BeatFrames()(torch.zeros(int(peaks[-1]) + 200, 2), peaks).int() - 128)[-1, 0, -3:-1])
    # 100 samples early: 33 % below the mean in both, but 50 or more deviations of 2 samples, and fewer than 2 of 60.
    assert found[0].tolist() == [-128, -128]
    assert all(-42 < distance < -10 for distance in found[1].tolist())


@pytest.mark.parametrize(
    ("signal", "peaks", "message"),
    [
        (torch.zeros(900, 3), [300], r"signal: expected a tensor \[samples, 2\]"),
        (torch.zeros(900), [300], r"signal: expected a tensor \[samples, 2\]"),
        (torch.full((900, 2), torch.nan), [300], "signal: expected finite millivolts"),
        (torch.full((900, 2), 1e15), [300], r"signal: expected finite millivolts up to 5.5e\+09, got 1e\+15"),
        (torch.zeros(900, 2), [300, 9000], "peaks: expected rising numbers"),
        (torch.zeros(900, 2), [300, 300], "peaks: expected rising numbers"),
        (torch.zeros(900, 2), [-1, 300], "peaks: expected rising numbers"),
    ],
)
def test_records_that_do_not_fit(signal: torch.Tensor, peaks: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BeatFrames()(signal, np.array(peaks))
