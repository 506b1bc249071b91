"""Golden spike trains of a test: compare, explain what changed, write anew on request.

pytest-regressions finds files beside a test in much the same way, but it writes a missing golden file without being
asked and knows neither a tolerance nor notes on tests that pass, so little of it would be left here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from snnlib.data.atomic import write_bytes_atomically
from snnlib.functional._check import check_rank
from snnlib.testing.diff import SpikeDiff
from snnlib.testing.golden import GoldenError, Spikes, encode, read_spikes


class SpikeRegression:
    """What the fixture `spike_regression` gives to a test; made by the plugin.

    Args:
        golden_folder: where the golden files lie, beside the test.
        test_name: name of the file of a check without a name.
        obtained_folder: where a failure leaves the trains it got and the picture.
        update: write golden files that are missing or differ, instead of failing.
        written: golden files written in this run; a second check of one compares.
        command: how to run this test with `update`, for messages.
        note: takes what is to be told of a check that passes.
    """

    def __init__(
        self,
        golden_folder: Path,
        test_name: str,
        *,
        obtained_folder: Path,
        update: bool,
        written: set[Path],
        command: str,
        note: Callable[[str], None],
    ) -> None:
        self._golden_folder, self._test_name, self._obtained_folder = (
            golden_folder,
            test_name,
            obtained_folder,
        )
        self._update, self._written, self._command, self._note = update, written, command, note
        self._checked: set[str] = set()

    def check(
        self, spikes: Tensor | Mapping[str, Tensor], name: str | None = None, *, max_changed: float = 0
    ) -> None:
        """Assert that spikes are those of the golden file.

        Args:
            spikes: a train `[T, N, ...]` of zeros and ones in any dtype and on any device, or several by name, best in
                the order of the net: the first change is then the place to look for the cause.
            name: of the golden file; the test's own name with its parameters if None. Needed for a second check in a
                test, and for golden trains that several tests or all parameters share.
            max_changed: changes allowed per train, moved, appeared and vanished spikes together: a number, or as a
                float below 1 a fraction of the golden spikes. Default 0.

        Raises:
            AssertionError: spikes, shapes or names of trains differ, or there is no golden file; the message tells
                what changed and how to write the file.
            GoldenError: the golden file is damaged.
            TypeError, ValueError: an argument is not as described.
        """
        __tracebackhide__ = True
        trains = _as_trains(spikes)
        if not 0 <= max_changed < (1 if isinstance(max_changed, float) else math.inf):
            raise ValueError(
                f"max_changed: expected an integer >= 0 or a fraction in [0, 1), got {max_changed}"
            )
        name = self._new_name(name)
        golden = self._golden_folder / f"{name}.npz"
        try:
            expected = read_spikes(golden)
        except (FileNotFoundError, GoldenError) as error:
            if self._update and golden not in self._written:
                self._write(golden, trains, "written")
                return
            if isinstance(error, GoldenError):
                raise GoldenError(f"{error}\nRestore the file, or write it anew: {self._command}") from None
            raise AssertionError(f"{golden}: no such golden file\nTo create it: {self._command}") from None

        problems, tolerated, diffs = _compare(expected, trains, max_changed)
        if (problems or tolerated) and self._update and golden not in self._written:
            self._write(golden, trains, "\n  ".join(("rewritten", *problems, *tolerated)))
        elif problems:
            raise AssertionError(self._failure(golden, trains, problems + tolerated, diffs))
        elif tolerated:
            self._note("\n  ".join((f"{golden.name}: changes within max_changed={max_changed}", *tolerated)))

    def _new_name(self, name: str | None) -> str:
        if name is None:
            name = self._test_name
        elif not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ValueError(f"name: expected letters, digits and _ . - only, got {name!r}")
        if name in self._checked:
            raise ValueError(f"name: expected one of its own for every check in a test, got {name!r} again")
        self._checked.add(name)
        return name

    def _write(self, golden: Path, trains: Mapping[str, Spikes], what: str) -> None:
        golden.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomically(golden, encode(trains))
        self._written.add(golden)
        self._note(f"{golden.name}: {what}")

    def _failure(
        self, golden: Path, trains: Mapping[str, Spikes], problems: list[str], diffs: Mapping[str, SpikeDiff]
    ) -> str:
        obtained = self._obtained_folder / f"{golden.stem}.obtained.npz"
        write_bytes_atomically(obtained, encode(trains))
        lines = [
            "spikes differ from the golden ones",
            *problems,
            f"golden:   {golden}",
            f"obtained: {obtained}",
        ]
        if diffs:
            lines.append(f"picture:  {_draw(diffs, obtained.with_name(f'{golden.stem}.png'))}")
        if golden in self._written:
            lines.append("Another test of this run wrote the golden file: give each a name of its own.")
        else:
            lines.append(f"If the change is intended: {self._command}")
        return "\n".join(lines)


def _as_trains(spikes: Tensor | Mapping[str, Tensor]) -> dict[str, Spikes]:
    trains = spikes if isinstance(spikes, Mapping) else {"spikes": spikes}
    if not trains:
        raise ValueError("spikes: expected at least one train, got none")
    for name, train in trains.items():
        label = f"spikes[{name!r}]" if isinstance(spikes, Mapping) else "spikes"
        if not isinstance(train, Tensor):
            raise TypeError(f"{label}: expected a torch.Tensor, got {type(train).__name__}")
        check_rank(label, train, "[T, N, ...]", at_least=2)
        odd = (train != 0) & (train != 1)
        if odd.any():
            index = odd.nonzero()[0].tolist()
            raise ValueError(f"{label}: expected zeros and ones, got {train[tuple(index)].item()} at {index}")
    return {name: (train != 0).cpu().numpy() for name, train in trains.items()}


def _compare(
    expected: Mapping[str, Spikes], actual: Mapping[str, Spikes], max_changed: float
) -> tuple[list[str], list[str], dict[str, SpikeDiff]]:
    """Problems, tolerated changes, and the differences of all trains that changed."""
    problems: list[str] = []
    tolerated: list[str] = []
    diffs: dict[str, SpikeDiff] = {}
    for name, train in actual.items():
        if name not in expected:
            problems.append(f"{name}: {train.sum()} spikes, but no such train in the golden file")
        elif train.shape != expected[name].shape:
            problems.append(
                f"{name}: shape {train.shape}, expected {expected[name].shape}; "
                f"{train.sum()} spikes, expected {expected[name].sum()}"
            )
        elif len(diff := SpikeDiff(expected[name], train)):
            diffs[name] = diff
            allowed = max_changed * expected[name].sum() if isinstance(max_changed, float) else max_changed
            (problems if len(diff) > allowed else tolerated).append(f"{name}: {diff}")
    problems += [f"{name}: in the golden file, but not checked" for name in expected if name not in actual]
    return problems, tolerated, diffs


def _draw(diffs: Mapping[str, SpikeDiff], path: Path) -> str:
    """The path of the picture, or why there is none."""
    # matplotlib is optional, and slow to import for a test that passes.
    try:
        from snnlib.testing.picture import difference_raster  # noqa: PLC0415
        from snnlib.visual.canvas import save_png  # noqa: PLC0415
    except ImportError as error:
        return f"none ({error}; pip install matplotlib)"
    save_png(difference_raster(diffs, path.stem), path)
    return str(path)
