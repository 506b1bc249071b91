"""POKER-DVS from a folder of hand-made files: samples, splits, and a folder that holds something else."""

from pathlib import Path

import numpy as np
import pytest

from snnlib.data import EVENT_DTYPE, POKERDVS, EventFileError, write


def put(folder: Path, suits: tuple[str, ...]) -> None:
    for label, suit in enumerate(suits):
        (folder / suit).mkdir()
        for number in range(12):
            events = np.array([(0, label, number, 0), (9, 34, 34, 1)], EVENT_DTYPE)
            write(folder / suit / f"{number}.dat", events, sensor_size=(35, 35))


def test_suits_and_splits(tmp_path: Path) -> None:
    put(tmp_path, ("cl", "di", "he", "sp"))
    whole = POKERDVS(tmp_path, None)
    assert whole.classes == ("cl", "di", "he", "sp") and len(whole) == 48 and whole.sensor_size == (35, 35)
    events, label = whole[13]
    assert label == 1 and events["x"][0] == 1
    parts = [set(POKERDVS(tmp_path, split).files) for split in ("train", "val", "test")]
    assert set.union(*parts) == set(whole.files) and sum(map(len, parts)) == 48


def test_other_folders_are_refused(tmp_path: Path) -> None:
    put(tmp_path, ("cl", "joker"))
    with pytest.raises(
        EventFileError, match=r"expected classes of POKERDVS only, found joker; fetch POKER-DVS"
    ):
        POKERDVS(tmp_path)
