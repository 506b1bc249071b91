"""Programs in C that hear: frames of the front end, answers of the net and the example's words are those of Python."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import wavfile
from torch import nn

import snnlib
from snnlib.data import LogMel, StackFrames
from snnlib.exchange import export_c

EXAMPLE = Path(__file__).parents[2] / "examples/keyword"
pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("make")), reason="compiles C programs; there is no cc or make"
)


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("options", "stack"),
    [
        ({"compression": "log"}, (4, 8)),
        ({"compression": "pcen"}, (1, 1)),
        (
            {"compression": "pcen", "channels": 7, "sample_rate": 8000, "window_us": 10_000, "smoothing": 1},
            (2, 3),
        ),
        ({"compression": "log", "channels": 16, "window_us": 50_000, "low_hz": 200.0}, (1, 2)),
    ],
)
def test_frames_are_those_of_python(options: dict[str, Any], stack: tuple[int, int], tmp_path: Path) -> None:
    front_end, frames = LogMel(**options), StackFrames(*stack)
    samples = 16_100
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(samples, generator=generator)
    square = torch.where(torch.arange(samples) // 23 % 2 == 0, 32767, -32768)
    loud = (noise * torch.logspace(0, 4.5, samples)).round().clamp(-(2**15), 2**15 - 1).long()
    sound = torch.stack([loud, square, torch.zeros_like(square)], 1).to(torch.int16)
    # A net that shows what it gets.
    size = frames.window * front_end.channels
    net = nn.Sequential(nn.Flatten(2), snnlib.PerStep(nn.Linear(size, size, bias=False))).eval()
    net[1][0].weight.data = torch.eye(size)  # type: ignore[union-attr,index]
    x = frames(front_end(sound[:, 0])).unsqueeze(1).float()
    small = snnlib.to_integers(net, x, state_bits=32)
    assert torch.allclose(small(x), x.flatten(2)) and len(x.unique()) > 20
    sizes = export_c(
        small, tmp_path, sound, binary=False, front_end=front_end, stack=frames, names=['"'] * size
    )
    assert f"#define NET_STEPS {len(x)}" in (tmp_path / "net.h").read_text()
    done = run("make", "check", "CFLAGS=-O1 -Werror", folder=tmp_path)
    assert done.returncode == 0 and "by sound: 0" in done.stdout, done.stdout + done.stderr
    # It tells a wrong sample.
    wrong = bytearray((tmp_path / "vectors.bin").read_bytes())
    wrong[-4 * front_end.hop * frames.hop + 1] ^= 64
    (tmp_path / "wrong.bin").write_bytes(wrong)
    done = run("./check", "wrong.bin", folder=tmp_path)
    assert done.returncode == 1 and "0 by frames" in done.stdout and "by sound: 0" not in done.stdout
    # Its own count of memory is the compiler's, up to padding.
    if shutil.which("size"):
        assert run("cc", "-std=c99", "-O0", "-c", "net.c", folder=tmp_path).returncode == 0
        bss = int(re.split(r"\s+", run("size", "net.o", folder=tmp_path).stdout.splitlines()[1].strip())[2])
        assert sizes["ram"] <= bss <= sizes["ram"] + 512 + 64 * 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_says_a_word(tmp_path: Path) -> None:
    done = run(sys.executable, EXAMPLE / "program.py", tmp_path, folder=EXAMPLE.parents[1])
    assert done.returncode == 0, done.stderr
    heard = re.search("heard in twelve tones: (.*);", done.stdout)[1].split()  # type: ignore[index]
    done = run("make", "check", "keyword", f"PROGRAM={tmp_path}", "CFLAGS=-O1 -Werror", folder=EXAMPLE)
    assert done.returncode == 0 and "by sound: 0" in done.stdout, done.stdout + done.stderr
    names = re.search("NET_NAMES (.*)", (tmp_path / "net.h").read_text())[1].strip('"').split('", "')  # type: ignore[index]
    assert names == list(snnlib.models.load("keywords-chip").classes) and len(set(heard)) > 1
    # The sound at the end of the vectors.
    words = np.fromfile(tmp_path / "vectors.bin", "<i4")[-12 * 16_000 :].astype(np.int16).reshape(12, -1)
    said = []
    for number, samples in enumerate(words):
        wavfile.write(tmp_path / f"{number}.wav", 16_000, samples)
        said.append(run("./keyword", f"{number}.wav", folder=tmp_path).stdout.strip())
    assert said == heard
    steps = run("./keyword", "--steps", "0.wav", folder=tmp_path).stdout.splitlines()
    assert len(steps) == 25 and steps[-1] == f"24 {said[0]}"
    # A short recording goes on in silence.
    wavfile.write(tmp_path / "short.wav", 16_000, words[0, :5001])
    assert run("./keyword", "short.wav", folder=tmp_path).stdout.strip() in names

    wavfile.write(tmp_path / "stereo.wav", 16_000, words[:2].T)
    wavfile.write(tmp_path / "slow.wav", 8_000, words[0])
    (tmp_path / "cut.wav").write_bytes((tmp_path / "0.wav").read_bytes()[:30])
    (tmp_path / "text.wav").write_text("no sound at all")
    for file, reason in {
        "stereo.wav": "expected PCM of one channel, 16 bits and 16000 Hz",
        "slow.wav": "expected PCM of one channel, 16 bits and 16000 Hz",
        "cut.wav": "expected a chunk fmt and a chunk data",
        "text.wav": "expected a WAV file",
        "absent.wav": "expected a file that can be read",
    }.items():
        done = run("./keyword", file, folder=tmp_path)
        assert done.returncode == 2 and f"{file}: {reason}" in done.stderr
