"""A software cochlea: sound to spike events of frequency channels, by a gammatone filter bank."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from snnlib.data.checks import check_choice, check_int
from snnlib.data.events import EVENT_DTYPE, Events

__all__ = ["Cochlea"]

# Patterson's bandwidth of a fourth-order gammatone filter in equivalent rectangular bandwidths.
_BANDWIDTH = 1.019
# (2 pi b t)^3 exp(-2 pi b t) is 5e-7 of its largest value there: where the impulse response is cut off.
_TAIL = 24.0
# Smallest power of an envelope that counts, below that of 16-bit samples' rounding.
_SILENCE = 1e-10
# PCEN: units of its levels, at which speech seldom passes 1; share of the running mean's decibels that is divided out;
# and the mean's time constant in microseconds.
_GAIN, _STRENGTH, _MEAN_US = 0.25, 0.98, 400_000
# The largest sample, whose power float32 holds by far.
_LARGEST = 1e15
# Blocks are so many impulse responses long, so that most of each is new sound.
_BLOCK = 4


def erb(frequency: Tensor) -> Tensor:
    """Equivalent rectangular bandwidth of the human ear in Hz: `24.7 (1 + 4.37 f / 1000)`.

    Source: Glasberg and Moore, "Derivation of auditory filter shapes from notched-noise data", Hearing Research 47,
    1990.
    """
    return 24.7 * (1 + 4.37e-3 * frequency)


class Cochlea:
    """Sound to spike events, one channel per frequency: a gammatone filter bank, compression, and integrate-and-fire.

    Causal: what comes later changes nothing before. For a waveform x and channel c with centre frequency f_c, all in
    float32::

        g_c(t)  = t^3 exp(-2 pi b_c t) exp(2 pi i f_c t),   b_c = 1.019 ERB(f_c),   scaled to a gain of 1 at f_c
        e_c(t)  = |(g_c * x)(t)|                              the envelope, every `step_us`: the cochleagram
        m_c(t)  = m_c(t-1) + s (e_c(t)^2 - m_c(t-1))          the running mean of its power, 1 / s steps are 0.4 s
        l_c(t)  = 0.25 ((e_c^2 / (1e-10 + m_c)^0.98 + 2)^0.5 - 2^0.5)                            its level, by "pcen",
        l_c(t)  = max(0, 1 + 20 log10(e_c(t) / reference) / dynamic_range_db)               or by "log"
        spikes where the integral of `max_rate l_c` passes a whole number

    Levels are currents; `events_of` makes spikes of them. Channels are spaced evenly on the ear's frequency scale. A
    low channel answers some milliseconds later than a high one, as in the ear: its filter is narrower.

    Args:
        channels: number of frequency channels. Default 70; SHD and SSC have 700.
        sample_rate: samples per second of the sound. Default 8000, which telephone speech and `data.SpokenDigits` have.
        low_hz: lowest centre frequency. Default 80.
        high_hz: highest centre frequency. Default 0.45 times the sample rate, at most 8000.
        step_us: resolution of the spikes in microseconds, a whole number of samples: at another one times are off by
            up to half a sample. Default 1000.
        max_rate: spikes per second at level 1. Default 100.
        compression: `"pcen"` (default), per-channel energy normalisation, which divides what stays as loud as it has
            been; or `"log"`.
        dynamic_range_db: of "log": sound this far below the reference is silence. Default 40.
        reference: of "log": envelope that counts as level 1; a sine of amplitude A has envelope A. Default 1, the
            largest amplitude. `fit_` sets one per channel.

    Raises:
        ValueError: an option out of its range; (called) no waveform `[samples]`, an empty one, or one with NaN or
            above 1e15.

    Source: filters of Patterson et al., "An efficient auditory filterbank based on the gammatone function", 1987;
    compare Cramer et al., IEEE TNNLS 33(7), 2022, whose model is larger; Wang et al., "Trainable Frontend For Robust
    and Far-Field Keyword Spotting", ICASSP 2017.

    >>> import torch, snnlib
    >>> t = torch.arange(8000) / 8000
    >>> tone = 0.5 * torch.sin(2 * torch.pi * 1000 * t) * (t > 0.2)
    >>> cochlea = snnlib.data.Cochlea(channels=70, compression="log", reference=0.5)
    >>> events = cochlea(tone)
    >>> round(float(cochlea.frequencies[int(events["x"][events["t"] > 500_000].mean())]), -2)
    1000.0
    >>> bool(events["t"].min() > 200_000)
    True
    """

    def __init__(
        self,
        channels: int = 70,
        *,
        sample_rate: int = 8000,
        low_hz: float = 80.0,
        high_hz: float | None = None,
        step_us: int = 1000,
        max_rate: float = 100.0,
        compression: Literal["pcen", "log"] = "pcen",
        dynamic_range_db: float = 40.0,
        reference: float = 1.0,
    ) -> None:
        self.channels = check_int("channels", channels, 1)
        self.sample_rate = check_int("sample_rate", sample_rate, 1)
        self.step_us = check_int("step_us", step_us, 1)
        high = min(0.45 * sample_rate, 8000.0) if high_hz is None else float(high_hz)
        if not 0 < low_hz <= high <= sample_rate / 2:
            raise ValueError(
                f"low_hz, high_hz: expected 0 < low_hz <= high_hz <= {sample_rate / 2:g}, half the sample rate, got "
                f"{low_hz:g} and {high:g}"
            )
        self.compression = check_choice("compression", compression, ("pcen", "log"))
        for name, value in (("dynamic_range_db", dynamic_range_db), ("reference", reference)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name}: expected a finite number > 0, got {value}")
        if not 0 < max_rate * step_us <= 1e6:
            raise ValueError(
                f"max_rate: expected spikes, at most one per step of {step_us} us, {1e6 / step_us:g} a second, got "
                f"{max_rate:g}"
            )
        self.low_hz, self.high_hz = float(low_hz), high
        self.dynamic_range_db, self.max_rate = dynamic_range_db, max_rate
        self.reference: float | Tensor = reference
        # Samples from one value of the envelope to the next.
        self.hop = max(round(sample_rate * step_us / 1e6), 1)
        self.frequencies = _centres(self.low_hz, high, self.channels)
        decay = 2 * math.pi * _BANDWIDTH * float(erb(self.frequencies[:1]))
        # Whole steps of sound before each block that its filters still hear.
        self._before = math.ceil(_TAIL / decay * sample_rate / self.hop)
        self._steps = 1 << math.ceil(math.log2(_BLOCK * self._before))
        self._spectra: Tensor | None = None

    @property
    def sensor_size(self) -> tuple[int, int]:
        """`(1, channels)`."""
        return 1, self.channels

    def impulse_responses(self, samples: int) -> Tensor:
        """The filters at the sound's samples, complex128 `[channels, samples]`, each with a gain of 1 at its centre."""
        t = torch.arange(samples, dtype=torch.float64) / self.sample_rate
        width = (2 * math.pi * _BANDWIDTH * erb(self.frequencies)).unsqueeze(1)
        phase = 2 * math.pi * self.frequencies.unsqueeze(1) * t
        size = (width * t) ** 3 * torch.exp(-width * t)
        # A real sine has half its amplitude at its positive frequency.
        return torch.polar(2 * size / size.sum(1, keepdim=True), phase)

    @torch.no_grad()
    def envelopes(self, waveform: Tensor) -> Tensor:
        """The cochleagram: float32 `[steps, channels]`, the envelope of each channel at the start of each step."""
        if not isinstance(waveform, Tensor) or waveform.dim() != 1 or not waveform.is_floating_point():
            got = tuple(waveform.shape) if isinstance(waveform, Tensor) else type(waveform).__name__
            raise ValueError(f"waveform: expected a floating tensor [samples], got {got}")
        if len(waveform) == 0 or not bool((waveform.double().abs() <= _LARGEST).all()):
            largest = "none" if len(waveform) == 0 else f"{float(waveform.abs().max()):g}"
            raise ValueError(f"waveform: expected finite samples up to {_LARGEST:g}, got {largest}")
        steps = -(-len(waveform) // self.hop)
        # Blocks overlap by what the filters hear of the sound before; the first hears silence.
        new, before, length = self._steps - self._before, self._before * self.hop, self._steps * self.hop
        blocks = -(-steps // new)
        sound = waveform.new_zeros(before + blocks * new * self.hop, dtype=torch.float32)
        sound[before : before + len(waveform)] = waveform
        spectra = torch.fft.fft(sound.unfold(0, length, new * self.hop))
        # Every hop-th sample of the product's inverse transform: the parts of the spectrum that then look alike add up,
        # for each frequency by a product of matrices, [blocks, hop] and [hop, channels].
        parts = spectra.view(blocks, self.hop, self._steps).permute(2, 0, 1)
        filtered = torch.fft.ifft(torch.bmm(parts, self._filters()), dim=0)[self._before :]
        # Several times as fast as abs().
        envelopes: Tensor = filtered.real.square().addcmul_(filtered.imag, filtered.imag).sqrt_() / self.hop
        return envelopes.transpose(0, 1).reshape(blocks * new, self.channels)[:steps]

    def levels(self, waveform: Tensor) -> Tensor:
        """Level of each channel at each step, float32 `[steps, channels]`: 0 for silence."""
        envelopes = self.envelopes(waveform)
        if self.compression == "pcen":
            power = envelopes.square()
            means, mean = np.empty(power.shape, np.float32), np.zeros(self.channels)
            for number, row in enumerate(power.numpy()):
                mean += self.step_us / _MEAN_US * (row - mean)
                means[number] = mean
            normalised = power / (_SILENCE + torch.from_numpy(means)) ** _STRENGTH
            return _GAIN * ((normalised + 2).sqrt() - math.sqrt(2))
        return (1 + 20 / self.dynamic_range_db * torch.log10(envelopes / self.reference)).clamp(min=0)

    def fit_(self, waveforms: Iterable[Tensor]) -> Cochlea:
        """Sets the reference of each channel and the dynamic range of "log" by a training set, and returns itself.

        The mean of a channel's decibels then has level 0.5, and four standard deviations of all channels about their
        means are the dynamic range.

        Args:
            waveforms: sounds of the training set, `[samples]` each.
        """
        if self.compression != "log":
            raise ValueError('fit_: expected compression="log"; "pcen" follows each sound by itself')
        power = torch.cat([self.envelopes(waveform) for waveform in waveforms]).square()
        decibels = 10 * (power + _SILENCE).log10()
        mean = decibels.mean(0)
        deviation = float((decibels - mean).square().mean().sqrt())
        self.dynamic_range_db, self.reference = 4 * deviation, 10 ** ((mean + 2 * deviation) / 20)
        return self

    def __call__(self, waveform: Tensor) -> Events:
        """Events of a waveform `[samples]`: x = channel, y = 0, p = 1, sorted by time; t in microseconds."""
        return self.events_of(self.levels(waveform))

    def events_of(self, levels: Tensor) -> Events:
        """Events of levels `[steps, channels]`."""
        rates = (levels * (self.max_rate * self.hop / self.sample_rate)).numpy()
        # In float64, as whole numbers decide; row by row, a third of the time of a cumulative sum along the first axis.
        charge = np.zeros(self.channels)
        whole = np.zeros((len(rates) + 1, self.channels), np.int32)
        for number, rate in enumerate(rates, start=1):
            charge += rate
            whole[number] = charge
        # A channel louder than the reference may pass more than one: it fires once all the same.
        step, channel = np.divmod(np.flatnonzero(whole[1:] != whole[:-1]), self.channels)
        events = np.zeros(len(step), EVENT_DTYPE)
        events["t"] = step * (self.hop * 1_000_000) // self.sample_rate
        events["x"], events["p"] = channel, 1
        return events

    def _filters(self) -> Tensor:
        """Spectra of the impulse responses, complex64 `[steps of a block, hop, channels]`."""
        if self._spectra is None:
            responses = self.impulse_responses(self._before * self.hop)
            # In parts, as those of 700 channels take a hundred megabytes in double precision.
            parts = [
                torch.fft.fft(part, n=self._steps * self.hop).to(torch.complex64)
                for part in torch.split(responses, 64)
            ]
            spectra = torch.cat(parts).view(self.channels, self.hop, self._steps)
            self._spectra = spectra.permute(2, 1, 0).contiguous()
        return self._spectra

    def __getstate__(self) -> dict[str, object]:
        """Without the spectra, which a process of a data loader computes for itself."""
        return {**self.__dict__, "_spectra": None}

    def __repr__(self) -> str:
        return (
            f"Cochlea({self.channels} channels, {self.low_hz:g} to {self.high_hz:g} Hz, "
            f"{self.sample_rate} samples a second, steps of {self.step_us} us)"
        )


def _centres(low: float, high: float, channels: int) -> Tensor:
    """Frequencies at equal distances on the scale of equivalent rectangular bandwidths, float64."""
    ends = torch.log10(1 + 4.37e-3 * torch.tensor([low, high], dtype=torch.float64))
    places = torch.linspace(float(ends[0]), float(ends[1]), channels, dtype=torch.float64)
    return (10**places - 1) / 4.37e-3
