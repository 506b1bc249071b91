"""Sound to whole numbers of 0 to 255 per frequency channel, in integer arithmetic."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from snnlib.checks import check_choice
from snnlib.data.checks import check_int

__all__ = ["LogMel"]

Array = np.ndarray[Any, Any]

# Fraction bits of the sound in the transform: its rounding is then far below that of 16-bit samples.
_FRACTION = 3
# Fraction bits of window and twiddle factors, which 16 bits hold, 1 among them.
_FACTOR = 14
# A bin's weight in the channel above and in the one below add up to this.
_WEIGHT = 255
# Bits of energies that are dropped: what is left of the rounding of 16-bit samples is about 2^8.
_ENERGY = 12
# Samples of the longest window: twice its spectrum at full scale, 2^18 a sample, fits in 32 bits with the rounding of
# twelve stages.
_LONGEST = 8180
# Logarithms are in 256ths of an octave, from a table by the 7 bits below the highest one.
_LOG_BITS, _OCTAVE = 7, 256
# The table of outputs has 256 entries: by compression, the octaves below 0 of the first one, and the bits of
# 256ths of an octave that are dropped, 16 entries to an octave from -6 to 10, or 8 from 0 to 32; then the gain, and the
# share of the running mean that is divided out, in 256ths.
_LEVELS, _COMPRESSIONS = 256, {"pcen": (6, 4, 32, 251), "log": (0, 5, 8, 0)}
# Frames that are transformed at once, so that their spectra stay in a core's cache.
_CHUNK = 128
# The energy below which sound is taken for silence, 16 times the rounding noise of 16-bit samples in one bin.
_SILENCE = 1 << 12


class _State(NamedTuple):
    """State of `LogMel` between chunks of a sound: the last samples, and the running mean `[C]`."""

    samples: Array
    mean: Array


class LogMel:
    """Converts sound to frames, uint8 `[T, channels]`: compressed log-mel energies, causal and in integer arithmetic.

    Frame t covers the `window_us` before the end of step t; sound before the beginning is silence. With x the samples
    in 16 bits, h a Hann window, L the logarithm to base 2 and all roundings as in `energies` and `compress`::

        E[t, c] = sum_k w_c[k] |FFT(h x)[k]|^2                         w_c: triangles at even distances in mel
        M[t, c] = M[t-1, c] + (E[t, c] - M[t-1, c]) / 2^smoothing      the running mean
        D[t, c] = L(E) - 0.98 L(M),  or by "log" L(E)                  in octaves; by "log" above silence
        y[t, c] = f(D),  rounded and cut off to 0..255

    `compression="pcen"` (per-channel energy normalisation): `f(D) = 32 ((2^D + 2)^0.5 - 2^0.5)`, which removes
    constant factors: distance, microphone, steady noise. `"log"`: `f(D) = 8 D`. f is a table of 256 values.

    Sound at full scale fits into the integers at every rate. The weighted power of a window adds up to at most
    `255 (3/4) 2^36 size window`, with `size` the next power of two. Where that exceeds 64 bits, for windows of more
    than 1,024 samples such as 30 ms at 44.1 and 48 kHz, each power first loses the excess bits, and silence is higher
    by as many octaves. The factors of the transform have 14 bits, so that a tone leaves up to -78 dB of its power in
    other channels: beside a tone at full scale quiet channels read up to 44 of 255 levels too loud by "log", 9 by
    "pcen".

    The frames are counts for integer nets (`to_integers`), which take 0 to 255, or currents after a division. `run`
    continues a recording in chunks, with the frames of the whole.

    Args:
        channels: number of frequency channels C. Default 40.
        sample_rate: samples per second. Default 16000.
        step_us: length of a step in microseconds, a whole number of samples. Default 10000.
        window_us: length of the window in microseconds. Default 30000, which resolves pitch.
        low_hz, high_hz: limits of the lowest and of the highest triangle. Default 60 and 0.475 times the sample rate.
        compression: `"pcen"` (default) or `"log"`.
        smoothing: the mean's time constant is `2^smoothing` steps. Default 5.

    Attributes:
        table: uint8 `[256]`, the compression.

    Raises:
        ValueError: an option out of its range, a window of more than 8,180 samples, or channels too narrow for a bin
            of the spectrum; in a call, not a waveform `[samples]` of floats in -1..1 or int16.

    Source: mel scale of O'Shaughnessy, "Speech Communication", 1987; Wang et al., "Trainable Frontend For Robust and
    Far-Field Keyword Spotting", ICASSP 2017.

    >>> import torch, snnlib
    >>> t = torch.arange(16000) / 16000
    >>> frames = snnlib.data.LogMel()(0.5 * torch.sin(2 * torch.pi * 1000 * t))
    >>> frames.shape, frames.dtype
    (torch.Size([100, 40]), torch.uint8)
    """

    def __init__(
        self,
        channels: int = 40,
        *,
        sample_rate: int = 16_000,
        step_us: int = 10_000,
        window_us: int = 30_000,
        low_hz: float = 60.0,
        high_hz: float | None = None,
        compression: Literal["pcen", "log"] = "pcen",
        smoothing: int = 5,
    ) -> None:
        self.channels, self.sample_rate = check_int("channels", channels, 1), sample_rate
        self.compression = check_choice("compression", compression, "pcen", "log")
        self.step_us, self.window_us = check_int("step_us", step_us, 1), window_us
        self.hop = step_us * check_int("sample_rate", sample_rate, 1) // 1_000_000
        self.window = check_int("window_us", window_us, step_us) * sample_rate // 1_000_000
        self.low_hz, self.high_hz = float(low_hz), 0.475 * sample_rate if high_hz is None else float(high_hz)
        self.smoothing = check_int("smoothing", smoothing, 1, 10)
        if self.hop < 1 or self.hop * 1_000_000 != step_us * sample_rate:
            raise ValueError(f"step_us: expected whole samples at {sample_rate} a second, got {step_us}")
        if self.window > _LONGEST:
            raise ValueError(
                f"window_us: expected at most {_LONGEST} samples, {_LONGEST * 1_000_000 // sample_rate} us at "
                f"{sample_rate} a second, so that sums fit in 32 bits, got {window_us}"
            )
        if not 0 <= low_hz < self.high_hz <= sample_rate / 2:
            raise ValueError(
                f"low_hz, high_hz: expected 0 <= low_hz < high_hz <= {sample_rate / 2:g}, half the sample rate, got "
                f"{low_hz:g} and {self.high_hz:g}"
            )
        # Size of the real transform; the complex one of its even and odd samples has half the length.
        self._size = max(1 << (self.window - 1).bit_length(), 8)
        self._constants()
        # The output of each level of D, in the middle of what an entry stands for.
        below, self._shift, gain, self._strength = _COMPRESSIONS[compression]
        level = (np.arange(_LEVELS) + 0.5) * 2.0**self._shift / _OCTAVE - below
        pcen = compression == "pcen"
        # Offset of octaves for a level: octaves above silence where loudness counts.
        self._offset = below * _OCTAVE - (0 if pcen else int(self._log(np.array(_SILENCE))))
        curve = np.sqrt(2.0**level + 2) - np.sqrt(2) if pcen else level
        self.table = (gain * curve).round().clip(0, 255).astype(np.uint8)

    def _constants(self) -> None:
        """Window, twiddle factors, weights of the bins, logarithms; float64 is exact enough to round to integers."""
        one, half = 1 << _FACTOR, self._size // 2
        n = np.arange(self.window) + 0.5
        self._hann = (one * np.sin(np.pi * n / self.window) ** 2).round()
        # Parseval: all bins of half of twice the spectrum together, at full scale; and 1 % for roundings.
        loudest = self._hann * 2.0 ** (15 + _FRACTION - _FACTOR)
        bound = math.log2(1.01 * _WEIGHT * 2 * self._size * float(loudest @ loudest))
        self._power = max(math.ceil(bound) - 64, 0)
        angle = 2 * np.pi * np.arange(half) / self._size
        # As float64, whose products of whole numbers below 2^53 are exact and twice as fast as those of int64.
        self._cos, self._sin = (one * np.cos(angle)).round(), (one * np.sin(angle)).round()
        bits = half.bit_length() - 1
        self._reversed = np.array([int(f"{i:0{bits}b}"[::-1], 2) for i in range(half)])
        hertz = np.arange(1, half) * self.sample_rate / self._size
        low, high = (1127 * math.log1p(edge / 700) for edge in (self.low_hz, self.high_hz))
        # Unit: distances between channels, 0 at the lower end of the lowest triangle.
        place = (1127 * np.log1p(hertz / 700) - low) / (high - low) * (self.channels + 1)
        inside = (place >= 0) & (place < self.channels + 1)
        self._bins = slice(1 + int(inside.argmax()), 1 + int(inside.argmax()) + int(inside.sum()))
        place = place[inside]
        self._weights = (_WEIGHT * (place % 1)).round().astype(np.uint64)
        if len(np.unique(place.astype(int))) <= self.channels:
            raise ValueError(
                f"channels: expected so few that each has a bin of {self.sample_rate / self._size:g} Hz between its "
                f"neighbours, got {self.channels}; a longer window_us has narrower bins"
            )
        self._starts = np.searchsorted(place.astype(int), np.arange(self.channels + 1))
        steps = np.arange(1 << _LOG_BITS) + 0.5
        self._logs = (_OCTAVE * np.log2(1 + steps / (1 << _LOG_BITS))).round().astype(np.int64)

    def program(self) -> tuple[dict[str, int], dict[str, Array]]:
        """Numbers and tables of the same in C, by the names of the fields of `snn_log_mel` in `log_mel.h`."""
        numbers = {
            "channels": self.channels,
            "hop": self.hop,
            "window": self.window,
            "size": self._size,
            "fraction": _FRACTION,
            "factor_bits": _FACTOR,
            "power_bits": self._power,
            "energy_bits": _ENERGY,
            "first_bin": self._bins.start,
            "whole_weight": _WEIGHT,
            "smoothing": self.smoothing,
            "silence": _SILENCE,
            "strength": self._strength,
            "log_bits": _LOG_BITS,
            "offset": self._offset,
            "shift": self._shift,
        }
        tables = {
            "hann": self._hann[: (self.window + 1) // 2].astype(np.int16),
            "cosine": self._cos.astype(np.int16),
            "sine": self._sin.astype(np.int16),
            "weight": self._weights.astype(np.uint8),
            "start": np.append(self._starts, len(self._weights)).astype(np.uint16),
            "logarithm": self._logs.astype(np.uint8),
            "level": self.table,
        }
        return numbers, tables

    def start(self) -> _State:
        """Returns the state before a sound: silence."""
        silence = np.full(self.channels, _SILENCE << self.smoothing, np.int64)
        return _State(np.zeros(self.window - self.hop, np.int64), silence)

    def run(self, waveform: Tensor, state: _State | None = None) -> tuple[Tensor, _State]:
        """Returns frames of the next chunk of a sound, and the state after it.

        Args:
            waveform: `[samples]`, a whole number of steps except in the last chunk, whose remainder is left out.
            state: state after the chunk before. Default None: the sound begins.
        """
        state = self.start() if state is None else state
        sound = np.concatenate([state.samples, self.samples(waveform)])
        frames, mean = self.compress(self.energies(sound), state.mean)
        rest = sound[len(frames) * self.hop :][: self.window - self.hop]
        return torch.from_numpy(frames), _State(rest, mean)

    def __call__(self, waveform: Tensor) -> Tensor:
        """Returns frames of a whole sound `[samples]`, uint8 `[T, channels]` with T complete steps."""
        return self.run(waveform)[0]

    def samples(self, waveform: Tensor) -> Array:
        """Returns the samples of a waveform as 16-bit numbers, int64."""
        if not isinstance(waveform, Tensor) or waveform.dim() != 1:
            got = tuple(waveform.shape) if isinstance(waveform, Tensor) else type(waveform).__name__
            raise ValueError(f"waveform: expected a tensor [samples], got {got}")
        if waveform.dtype == torch.int16:
            return waveform.numpy().astype(np.int64)
        if not waveform.is_floating_point() or not bool(waveform.isfinite().all()):
            raise ValueError(f"waveform: expected int16, or finite floats in -1..1, got {waveform.dtype}")
        return (waveform.double() * 2**15).round().clamp(-(2**15), 2**15 - 1).numpy().astype(np.int64)

    def energies(self, sound: Array) -> Array:
        """Energies int64 `[T, channels]` of samples, of which the first `window - hop` came before the first step."""
        count = (len(sound) - self.window) // self.hop + 1
        if count < 1:
            return np.zeros((0, self.channels), np.int64)
        frames = np.lib.stride_tricks.sliding_window_view(sound, self.window)[:: self.hop][:count]
        return np.concatenate([self._energies(frames[i : i + _CHUNK]) for i in range(0, count, _CHUNK)])

    def _energies(self, frames: Array) -> Array:
        half = self._size // 2
        shift = 1 << (_FACTOR - _FRACTION)
        windowed = np.zeros((len(frames), self._size))
        windowed[:, : self.window] = np.floor((frames * self._hann + shift // 2) / shift)
        # Even samples are the real parts, odd ones the imaginary parts, in the order of reversed bits.
        real, imag = windowed.reshape(-1, half, 2)[:, self._reversed].T.copy()
        span = 1
        while span < half:
            # Twiddle factors exp(-pi i j / span) of this stage, of the table for the whole size.
            stride = self._size // (2 * span)
            cos, sin = self._cos[::stride, None], self._sin[::stride, None]
            real, imag = (part.reshape(half // (2 * span), 2, span, -1) for part in (real, imag))
            turned_real, turned_imag = _turned(real[:, 1], imag[:, 1], cos, sin)
            for part, turned in ((real, turned_real), (imag, turned_imag)):
                np.subtract(part[:, 0], turned, out=part[:, 1])
                part[:, 0] += turned
            span *= 2
        real, imag = real.reshape(half, -1), imag.reshape(half, -1)
        # Twice the spectrum of the real sound, of that of its even and odd samples together.
        here, there = self._bins, slice(half - self._bins.start, half - self._bins.stop, -1)
        even_real, even_imag = real[here] + real[there], imag[here] - imag[there]
        odd_real, odd_imag = imag[here] + imag[there], real[there] - real[here]
        turned_real, turned_imag = _turned(odd_real, odd_imag, self._cos[here, None], self._sin[here, None])
        # Squares pass 2^53, and their weighted sums 2^63.
        squares = [part.astype(np.int64) ** 2 for part in (even_real + turned_real, even_imag + turned_imag)]
        power = (sum(squares) >> self._power).astype(np.uint64)
        rising = np.add.reduceat(power * self._weights[:, None], self._starts)
        both = np.add.reduceat(power, self._starts)
        energies: Array = (rising[:-1] + _WEIGHT * both[1:] - rising[1:]) >> _ENERGY
        return energies.T.astype(np.int64)

    def compress(self, energies: Array, mean: Array) -> tuple[Array, Array]:
        """Frames uint8 of energies `[T, channels]`, and the running mean times `2^smoothing` after them."""
        means = np.empty_like(energies)
        mean = mean.copy()
        for step, energy in enumerate(energies):
            mean += energy - (mean >> self.smoothing)
            means[step] = mean >> self.smoothing
        octaves = self._log(energies + _SILENCE) - (self._strength * self._log(means + _SILENCE) >> 8)
        levels = (octaves + self._offset) >> self._shift
        return self.table[levels.clip(0, _LEVELS - 1)], mean

    def _log(self, numbers: Array) -> Array:
        """Logarithms to base 2 in 256ths of whole numbers from 2^7 up to 2^53."""
        bits = np.frexp(numbers.astype(np.float64))[1] - 1
        entry = (numbers >> (bits - _LOG_BITS)) - (1 << _LOG_BITS)
        logarithms: Array = bits * _OCTAVE + self._logs[entry]
        return logarithms

    def __repr__(self) -> str:
        return (
            f"LogMel({self.channels} channels, {self.low_hz:g} to {self.high_hz:g} Hz, {self.compression}, "
            f"{self.sample_rate} samples a second, steps of {self.step_us} us)"
        )


def _turned(real: Array, imag: Array, cos: Array, sin: Array) -> tuple[Array, Array]:
    """`(real + i imag) (cos - i sin)`, rounded to whole numbers: `(... + 2^13) >> 14`."""
    half, scale = 1 << (_FACTOR - 1), 1.0 / (1 << _FACTOR)
    return (
        np.floor((real * cos + imag * sin + half) * scale),
        np.floor((imag * cos - real * sin + half) * scale),
    )
