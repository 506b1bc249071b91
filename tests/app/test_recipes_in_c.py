"""Programs in C of trained nets: every test file of their recipes gets the answer of the simulation."""

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import snnlib
from snnlib.app.training.data_module import EventData
from snnlib.app.training.exporting import batch_of
from snnlib.exchange import export_c
from snnlib.recipes import recipe


class Program:
    """An exported program in this process."""

    def __init__(self, folder: Path) -> None:
        command = ("cc", "-std=c99", "-O2", "-shared", "-fPIC", "-o", "net.so", "net.c")
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.library = ctypes.CDLL(str(folder / "net.so"))

    def __call__(self, inputs: np.ndarray[Any, Any], outputs: int, how: str) -> np.ndarray[Any, Any]:
        """Outputs of each step, of sound `[hops, samples]` or of frames `[steps, counts]`."""
        out, found = np.empty(outputs, np.int32), []
        self.library.net_reset()
        for given in np.ascontiguousarray(inputs):
            if getattr(self.library, how)(given.ctypes.data_as(ctypes.c_void_p)) or how == "net_frame":
                self.library.net_step(out.ctypes.data_as(ctypes.c_void_p))
                found.append(out.copy())
        return np.stack(found)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.environ.get("SNNLIB_DATA"), reason="needs recordings, SNNLIB_DATA")
@pytest.mark.parametrize(("name", "fold", "files"), [("keywords-chip", 3, 1_000), ("beats", 3, 10_000)])
def test_all_test_files(name: str, fold: int, files: int, tmp_path: Path) -> None:
    folder = Path(os.environ["SNNLIB_DATA"])
    root = next((folder / "keywords").glob("*.zip")) if name == "keywords-chip" else folder / "mitbih"
    config = recipe(name).config(root=str(root), fold=fold)
    data = EventData(config, False)
    data.setup("fit")
    x: Tensor = batch_of(data, data.train_set, 200)[0]
    small = snnlib.to_integers(snnlib.models.load(name).net, x[:, :100], state_bits=32)
    kind: Any = data.kind
    is_sound = name == "keywords-chip"
    word = kind.transform(config, torch.float32)
    options = {"front_end": word.front_end, "stack": word.stack} if is_sound else {}
    sounds = kind.recordings(config, "test", word.sound) if is_sound else None
    export_c(small, tmp_path, sounds[0][0].unsqueeze(1) if is_sound else x[:, :1], binary=False, **options)
    program = Program(tmp_path)
    frames, labels = batch_of(data, data.test_set)
    assert frames.shape[1] > files
    expected = small.integers(frames).numpy()
    assert (expected != 0).mean() > 0.5
    differ = right = 0
    for number in range(frames.shape[1]):
        if is_sound:
            heard = (
                (sounds[number][0] * 2**15).round().to(torch.int16).view(-1, options["front_end"].hop).numpy()
            )
            answers = program(heard, expected.shape[2], "net_sound")
        else:
            answers = program(frames[:, number].to(torch.uint8).numpy(), expected.shape[2], "net_frame")
        differ += not np.array_equal(answers, expected[:, number])
        right += int(answers.sum(0).argmax() == labels[number])
    assert differ == 0
    # Weights of 8 bits cost words half a point, and beats, whose net is stored with 16 bits, 1.14.
    assert right / frames.shape[1] > snnlib.models.load(name).card.accuracy - 0.012
