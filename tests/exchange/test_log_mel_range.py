"""Sound at full scale through `LogMel`, at every rate and window: by the definition in integers of any size, and in C
under a sanitizer, to the last bit."""

import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snnlib.data import LogMel
from snnlib.exchange.integers.c_program import _members

HEADERS = Path(__file__).parents[2] / "snnlib/exchange/integers"
# Microseconds of a step, which are whole samples.
STEPS = dict.fromkeys((8_000, 12_000, 16_000, 24_000, 32_000, 44_100, 48_000, 88_200, 96_000), 10_000)
STEPS |= {11_025: 40_000, 22_050: 20_000}
LONGEST = 8180


def _settings() -> dict[str, LogMel]:
    """Settings of each rate: the usual window, 100 ms, the longest; one channel and many, both compressions."""
    found = {}
    for rate, step in STEPS.items():
        for name, window in (
            ("usual", max(step, 30_000)),
            ("100 ms", 100_000),
            ("longest", LONGEST * 10**6 // rate),
        ):
            if window * rate > LONGEST * 10**6:
                continue
            for channels, compression, smoothing in ((12, "pcen", 5), (1, "log", 10)):
                options: dict[str, Any] = {"compression": compression, "smoothing": smoothing}
                # Long windows in long steps, a few of which fill them.
                hop = step if name == "usual" else window // step * step
                found[f"{rate} Hz, {name}, {channels}"] = LogMel(
                    channels, sample_rate=rate, step_us=hop, window_us=window, **options
                )
    return found


SETTINGS = _settings()


def _square(front: LogMel, channel: int, samples: int) -> Tensor:
    """A square wave at full scale in the middle of a channel, where its weight is largest."""
    low, high = (1127 * math.log1p(edge / 700) for edge in (front.low_hz, front.high_hz))
    mel = low + (channel + 1) * (high - low) / (front.channels + 1)
    hertz = 700 * math.expm1(mel / 1127)
    positive = torch.sin(2 * torch.pi * hertz / front.sample_rate * (torch.arange(samples) + 0.5)) >= 0
    return torch.where(positive, 32767, -32768).short()


def _turned(real: Any, imag: Any, k: Any, size: int) -> tuple[Any, Any]:
    angle = 2 * np.pi * k / size
    c, s = (np.round(2**14 * part(angle)).astype(int).astype(object) for part in (np.cos, np.sin))
    return (real * c + imag * s + 2**13) >> 14, (imag * c - real * s + 2**13) >> 14


def _spectrum(real: Any, imag: Any, size: int) -> tuple[Any, Any]:
    """The transform by its definition: that of the even and that of the odd values, one turned."""
    count = len(real)
    if count == 1:
        return real, imag
    even = _spectrum(real[::2], imag[::2], size)
    odd = _turned(*_spectrum(real[1::2], imag[1::2], size), np.arange(count // 2) * (size // count), size)
    parts = [np.concatenate((a + b, a - b)) for a, b in zip(even, odd, strict=True)]
    return parts[0], parts[1]


def _energies(front: LogMel, samples: list[int]) -> tuple[list[int], int]:
    """Energies of one window by Python's integers, and the largest sum on the way."""
    numbers = front.program()[0]
    window, size, rate = len(samples), numbers["size"], front.sample_rate
    hann = (round(2**14 * math.sin(math.pi * (n + 0.5) / window) ** 2) for n in range(window))
    x = np.zeros(size, object)
    x[:window] = [(a * b + 2**10) >> 11 for a, b in zip(samples, hann, strict=True)]
    half, k = size // 2, np.arange(1, size // 2)
    real, imag = _spectrum(x[::2], x[1::2], size)
    there = half - k
    more = _turned(imag[k] + imag[there], real[there] - real[k], k, size)
    power = (real[k] + real[there] + more[0]) ** 2 + (imag[k] - imag[there] + more[1]) ** 2
    power = power >> numbers["power_bits"]
    mel = [1127 * math.log1p(hertz / 700) for hertz in (front.low_hz, front.high_hz)]
    place = (1127 * np.log1p(k * rate / size / 700) - mel[0]) / (mel[1] - mel[0]) * (front.channels + 1)
    energies = [0] * front.channels
    for where, each in zip(place.tolist(), power.tolist(), strict=True):
        weight, channel = round(255 * (where % 1)), math.floor(where)
        for c, w in ((channel, weight), (channel - 1, 255 - weight)):
            if 0 <= where < front.channels + 1 and 0 <= c < front.channels:
                energies[c] += each * w
    return [energy >> 12 for energy in energies], 255 * sum(power.tolist())


# All settings run in C; big integers take half a second for the longest windows.
@pytest.mark.parametrize(
    "name",
    [
        *(f"{rate} Hz, usual, 12" for rate in STEPS if rate <= 48_000),
        *("16000 Hz, 100 ms, 1", "96000 Hz, longest, 1"),
    ],
)
def test_full_scale_is_what_integers_of_any_size_say(name: str) -> None:
    front = SETTINGS[name]
    dropped = front.program()[0]["power_bits"]
    for channel in {0, front.channels - 1}:
        samples = _square(front, channel, front.window)
        expected, largest = _energies(front, samples.tolist())
        assert front.energies(samples.numpy().astype(np.int64)).tolist() == [expected]
        assert largest < 2**64
        # No more bits are dropped than sums need.
        assert not dropped or largest > 2**61
        assert expected[channel] == max(expected)


def test_a_window_that_fitted_keeps_its_bits() -> None:
    for front in SETTINGS.values():
        assert (front.program()[0]["power_bits"] == 0) == (front.window <= 1024)


def test_a_tone_at_48_000_samples_a_second() -> None:
    t = torch.arange(24_000) / 48_000
    low = LogMel(sample_rate=48_000)(torch.sin(2 * torch.pi * 300 * t))
    assert low.shape == (50, 40) and low.float().std() > 0
    # As at 16,000, where the same channels have a third of the samples.
    for hertz in (300, 1000, 5000):
        levels = []
        for rate in (16_000, 48_000):
            front = LogMel(20, sample_rate=rate, high_hz=7600, compression="log")
            tone = torch.sin(2 * torch.pi * hertz * torch.arange(rate // 2) / rate)
            levels.append(front(tone / 64)[10:].float().mean(0))
        assert levels[0].argmax() == levels[1].argmax()
        # Three times the samples in four times the bins have twelve times the power, of which two bits are dropped.
        assert abs(float(levels[1].max() - levels[0].max()) - 8 * (math.log2(12) - 2)) < 1.5


def test_the_running_mean_of_the_largest_energy_fits() -> None:
    front = LogMel(1, sample_rate=48_000, smoothing=10)
    largest = np.full((3, 1), 2**52 - 1)
    frames, mean = front.compress(largest, np.array([2**52 - 1 << 10]))
    assert mean.tolist() == [2**52 - 1 << 10] and frames.tolist() == [frames[0].tolist()] * 3
    # 52 octaves and no rounding up to 53, as D = 0.02 * 52 octaves from 6 below 0, 16 levels each.
    octaves = 52 * 256 - 1
    assert frames[0, 0] == front.table[(octaves - (251 * octaves >> 8) + 6 * 256) >> 4]


@pytest.mark.parametrize(("rate", "window"), [(8_000, 1_030_000), (48_000, 171_000), (96_000, 86_000)])
def test_a_window_whose_sums_do_not_fit_is_refused(rate: int, window: int) -> None:
    longest = LONGEST * 10**6 // rate
    with pytest.raises(
        ValueError, match=rf"window_us: expected at most 8180 samples, {longest} us at {rate} a second"
    ):
        LogMel(sample_rate=rate, window_us=window)
    assert LogMel(sample_rate=rate, window_us=longest).window <= LONGEST


@pytest.mark.parametrize("options", [{"window_us": 10**15}, {"sample_rate": 10**12}, {"channels": 10**12}])
def test_a_setting_beyond_memory_is_refused_before_its_tables_are_made(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"window_us: expected at most|channels: expected so few"):
        LogMel(**options)  # type: ignore[arg-type]


_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "log_mel.h"

static void* block(size_t size) {
  void* bytes = calloc(size + 1, 1);
  if (!bytes || fread(bytes, 1, size, stdin) != size) exit(3);
  return bytes;
}

int main(void) {
  const int64_t odd[] = {0, 1, 127, -1, -4096, INT64_MIN, INT64_MAX};
  int32_t steps, n;
  while (fread(&steps, sizeof steps, 1, stdin) == 1) {
    snn_log_mel mel;
    uint8_t* frame;
    memset(&mel, 0, sizeof mel);
    READ
    mel.before = (int16_t*)calloc((size_t)mel.window, 2);
    mel.mean = (int64_t*)calloc((size_t)mel.channels, 8);
    mel.real = (int32_t*)calloc((size_t)mel.size, 4);
    mel.imaginary = mel.real + mel.size / 2;
    frame = (uint8_t*)calloc((size_t)mel.channels, 1);
    snn_log_mel_clear(&mel);
    for (n = 0; n < steps; ++n) {
      snn_log_mel_step(&mel, (const int16_t*)block((size_t)mel.hop * 2), frame);
      fwrite(frame, 1, (size_t)mel.channels, stdout);
    }
    for (n = 0; n < 7; ++n) {
      if (snn_log(&mel, odd[n]) < 0) return 4;
    }
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames of any setting by `log_mel.h`, which ends where a sum overflows or an address is wrong."""
    if not shutil.which("cc"):
        pytest.skip("compiles a C program; there is no cc")
    folder = tmp_path_factory.mktemp("log_mel")
    checked = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    if subprocess.run(["cc", *checked, "empty.c"], cwd=folder, capture_output=True, check=False).returncode:
        pytest.skip("cc links no program with -fsanitize=undefined")
    pointers = re.findall(
        r"const (\w+)_t ?\*([^;]*);", (HEADERS / "log_mel.h").read_text().split("State:")[0]
    )
    types = {name.strip(" *"): f"{kind}_t" for kind, names in pointers for name in names.split(",")}
    read = []
    for name in _members("log_mel.h", "snn_log_mel"):
        if name in types:
            size = "fread(&n, 4, 1, stdin) == 1 ? (size_t)n : 0"
            read.append(f"mel.{name} = (const {types[name]}*)block({size});")
        elif name not in ("before", "mean", "real", "imaginary"):
            read.append(f"if (fread(&mel.{name}, 4, 1, stdin) != 1) return 3;")
    (folder / "main.c").write_text(_MAIN.replace("READ", "\n    ".join(read)))
    strict = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1")
    command = ["cc", *strict, *checked, f"-I{HEADERS}", "-o", "main", "main.c"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "main"


def test_full_scale_in_c_is_full_scale_here(program: Path) -> None:
    given, expected = [], []
    for front in SETTINGS.values():
        numbers, tables = front.program()
        steps = -(-front.window // front.hop) + 2
        for channel in {0, front.channels - 1}:
            sound = _square(front, channel, steps * front.hop)
            given.append(np.int32(steps).tobytes())
            for name in _members("log_mel.h", "snn_log_mel"):
                if name in tables:
                    given += [np.int32(tables[name].nbytes).tobytes(), tables[name].tobytes()]
                elif name in numbers:
                    given.append(np.int32(numbers[name]).tobytes())
            given.append(sound.numpy().tobytes())
            expected.append(front(sound).numpy().tobytes())
    done = subprocess.run([program], input=b"".join(given), capture_output=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    assert len(set(expected)) > 20 and done.stdout == b"".join(expected)
