"""Golden spikes and potentials of a test: compare, explain what changed, write anew on request.

pytest-regressions finds files beside a test in much the same way, but it writes a missing golden file without being
asked and knows neither a tolerance nor notes on tests that pass, so little of it would be left here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from snnlib.checks import check_floating, check_rank, check_tensor
from snnlib.files.atomic import write_bytes_atomically
from snnlib.testing.diff import Difference, PotentialDiff, SpikeDiff
from snnlib.testing.golden import GoldenError, Spikes, encode, encode_potentials, read_potentials, read_spikes

Array = NDArray[Any]
# Problems, changes that are tolerated, and the differences of all tensors that changed.
Found = tuple[list[str], list[str], dict[str, Difference]]


class SpikeRegression:
    """The object that the fixture `spike_regression` gives to a test; made by the plugin.

    Args:
        golden_folder: where the golden files lie, beside the test.
        test_name: name of the file of a check without a name.
        obtained_folder: where a failure leaves the spikes it got and the picture.
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
            spikes: a spike tensor `[T, N, ...]` of zeros and ones in any dtype and on any device, or several by name,
                best in the order of the net: the first change is then the place to look for the cause.
            name: of the golden file; the test's own name with its parameters if None. Needed for a second check in a
                test, and for golden sequences that several tests or all parameters share.
            max_changed: changes allowed per sequence, moved, appeared and vanished spikes together: a number, or as a
                float below 1 a fraction of the golden spikes. Default 0.

        Raises:
            AssertionError: spikes, shapes or names of sequences differ, or there is no golden file; the message tells
                what changed and how to write the file.
            GoldenError: the golden file is damaged.
            TypeError, ValueError: an argument is not as described.
        """
        __tracebackhide__ = True
        sequences = _as_sequences(spikes)
        if not 0 <= max_changed < (1 if isinstance(max_changed, float) else math.inf):
            raise ValueError(
                f"max_changed: expected an integer >= 0 or a fraction in [0, 1), got {max_changed}"
            )
        self._check(
            self._golden_file(name),
            read_spikes,
            encode(sequences),
            lambda expected: _compare(expected, sequences, max_changed),
            "spikes differ from the golden ones",
            f"changes within max_changed={max_changed}",
            _draw,
        )

    def check_potentials(
        self, potentials: Tensor | Mapping[str, Tensor], name: str | None = None, *, tolerance: float
    ) -> None:
        """Assert that potentials, or other real tensors, are those of the golden file up to a tolerance.

        Args:
            potentials: a tensor `[T, N, ...]` of a floating dtype, or several by name, best in the order of the net.
            name: of the golden file; the test's own name with its parameters and `.potentials` if None.
            tolerance: largest absolute difference allowed, in the potentials' own unit. Rounding of float32 sums gives
                about 1e-6 of the largest addend; 1e-5 of the threshold is a usual choice.

        Raises:
            AssertionError: a potential, a shape or the names differ, or there is no golden file; the message tells
                where and by how much, and how to write the file.
            GoldenError: the golden file is damaged.
            TypeError, ValueError: an argument is not as described.
        """
        __tracebackhide__ = True
        values = _as_potentials(potentials)
        if not 0 <= tolerance < math.inf:
            raise ValueError(f"tolerance: expected a number >= 0, got {tolerance}")
        self._check(
            self._golden_file(f"{self._test_name}.potentials" if name is None else name),
            read_potentials,
            encode_potentials(values),
            lambda expected: _compare_potentials(expected, values, tolerance),
            f"potentials differ from the golden ones by more than {tolerance:g}",
        )

    def _check(
        self,
        golden: Path,
        read: Callable[[Path], dict[str, Array]],
        data: bytes,
        compare: Callable[[dict[str, Array]], Found],
        headline: str,
        tolerance: str = "",
        draw: Callable[[Mapping[str, Any], Path], str] | None = None,
    ) -> None:
        """Compare with the golden file, or write `data` where that is asked for."""
        __tracebackhide__ = True
        expected = self._stored(golden, read, data)
        if expected is None:
            return
        problems, tolerated, diffs = compare(expected)
        if (problems or tolerated) and self._update and golden not in self._written:
            self._write(golden, data, "\n  ".join(("rewritten", *problems, *tolerated)))
        elif problems:
            raise AssertionError(self._failure(golden, data, [headline, *problems, *tolerated], diffs, draw))
        elif tolerated:
            self._note("\n  ".join((f"{golden.name}: {tolerance}", *tolerated)))

    def _stored(
        self, golden: Path, read: Callable[[Path], dict[str, Array]], data: bytes
    ) -> dict[str, Array] | None:
        """The tensors of the golden file; None where there was no readable one and `data` was written."""
        __tracebackhide__ = True
        try:
            return read(golden)
        except (FileNotFoundError, GoldenError) as error:
            if self._update and golden not in self._written:
                self._write(golden, data, "written")
                return None
            if isinstance(error, GoldenError):
                raise GoldenError(f"{error}\nRestore the file, or write it anew: {self._command}") from None
            raise AssertionError(f"{golden}: no such golden file\nTo create it: {self._command}") from None

    def _golden_file(self, name: str | None) -> Path:
        if name is None:
            name = self._test_name
        elif not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ValueError(f"name: expected letters, digits and _ . - only, got {name!r}")
        if name in self._checked:
            raise ValueError(f"name: expected one of its own for every check in a test, got {name!r} again")
        self._checked.add(name)
        return self._golden_folder / f"{name}.npz"

    def _write(self, golden: Path, data: bytes, what: str) -> None:
        golden.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomically(golden, data)
        self._written.add(golden)
        self._note(f"{golden.name}: {what}")

    def _failure(
        self,
        golden: Path,
        data: bytes,
        lines: list[str],
        diffs: Mapping[str, Difference],
        draw: Callable[[Mapping[str, Any], Path], str] | None = None,
    ) -> str:
        obtained = self._obtained_folder / f"{golden.stem}.obtained.npz"
        write_bytes_atomically(obtained, data)
        lines = [*lines, f"golden:   {golden}", f"obtained: {obtained}"]
        if any(diff.is_cut for diff in diffs.values()):
            changes = obtained.with_name(f"{golden.stem}.changes.txt")
            text = "".join(f"{name}: {line}\n" for name, diff in diffs.items() for line in diff.lines())
            write_bytes_atomically(changes, text.encode())
            lines.append(f"changes:  {changes}")
        if diffs and draw is not None:
            lines.append(f"picture:  {draw(diffs, obtained.with_name(f'{golden.stem}.png'))}")
        if golden in self._written:
            lines.append("Another test of this run wrote the golden file: give each a name of its own.")
        else:
            lines.append(f"If the change is intended: {self._command}")
        return "\n".join(lines)


def _named(
    argument: str, kind: str, given: Tensor | Mapping[str, Tensor]
) -> Iterator[tuple[str, str, Tensor]]:
    """The tensors of an argument: the name of each, what messages call it, and itself."""
    tensors = given if isinstance(given, Mapping) else {argument: given}
    if not tensors:
        raise ValueError(f"{argument}: expected at least one {kind}, got none")
    for name, tensor in tensors.items():
        label = f"{argument}[{name!r}]" if isinstance(given, Mapping) else argument
        check_tensor(label, tensor)
        check_rank(label, tensor, "[T, N, ...]", at_least=2)
        yield name, label, tensor


def _as_sequences(spikes: Tensor | Mapping[str, Tensor]) -> dict[str, Spikes]:
    sequences = {}
    for name, label, sequence in _named("spikes", "spike tensor", spikes):
        odd = (sequence != 0) & (sequence != 1)
        if odd.any():
            index = odd.nonzero()[0].tolist()
            raise ValueError(
                f"{label}: expected zeros and ones, got {sequence[tuple(index)].item()} at {index}"
            )
        sequences[name] = (sequence != 0).cpu().numpy()
    return sequences


def _as_potentials(potentials: Tensor | Mapping[str, Tensor]) -> dict[str, Array]:
    values = {}
    for name, label, tensor in _named("potentials", "tensor", potentials):
        check_floating(label, tensor)
        # NumPy has no bfloat16.
        wide = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
        values[name] = wide.cpu().numpy()
    return values


def _compare_potentials(
    expected: Mapping[str, Array], actual: Mapping[str, Array], tolerance: float
) -> Found:
    """Differences are of all tensors that are out of tolerance."""
    problems: list[str] = []
    diffs: dict[str, Difference] = {}
    for name, values in actual.items():
        if name not in expected:
            problems.append(f"{name}: no such tensor in the golden file")
        elif values.shape != expected[name].shape:
            problems.append(f"{name}: shape {values.shape}, expected {expected[name].shape}")
        elif len(diff := PotentialDiff(expected[name], values, tolerance)):
            diffs[name] = diff
            problems.append(f"{name}: {diff}")
    problems += [f"{name}: in the golden file, but not checked" for name in expected if name not in actual]
    return problems, [], diffs


def _compare(expected: Mapping[str, Spikes], actual: Mapping[str, Spikes], max_changed: float) -> Found:
    problems: list[str] = []
    tolerated: list[str] = []
    diffs: dict[str, Difference] = {}
    for name, sequence in actual.items():
        if name not in expected:
            problems.append(f"{name}: {sequence.sum()} spikes, but no such sequence in the golden file")
        elif sequence.shape != expected[name].shape:
            problems.append(
                f"{name}: shape {sequence.shape}, expected {expected[name].shape}; "
                f"{sequence.sum()} spikes, expected {expected[name].sum()}"
            )
        elif len(diff := SpikeDiff(expected[name], sequence)):
            diffs[name] = diff
            allowed = max_changed * expected[name].sum() if isinstance(max_changed, float) else max_changed
            (problems if len(diff) > allowed else tolerated).append(f"{name}: {diff}")
    problems += [f"{name}: in the golden file, but not checked" for name in expected if name not in actual]
    return problems, tolerated, diffs


def _draw(diffs: Mapping[str, SpikeDiff], path: Path) -> str:
    """The path of the picture, or why there is none."""
    # matplotlib is optional, and slow to import for a test that passes.
    try:
        from snnlib.app.visual.canvas import save_png  # noqa: PLC0415
        from snnlib.testing.picture import difference_raster  # noqa: PLC0415
    except ImportError as error:
        return f"none ({error}; pip install matplotlib)"
    save_png(difference_raster(diffs, path.stem), path)
    return str(path)
