"""Golden spikes and potentials of a test: compare, explain what changed, write anew on request.

pytest-regressions finds files beside a test in much the same way, but it writes a missing golden file without being
asked and knows no tolerance, so little of it would be left here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from snnlib.checks import check_floating, check_rank, check_tensor
from snnlib.files.atomic import write_bytes_atomically
from snnlib.testing.diff import Difference, potential_difference, spike_difference
from snnlib.testing.golden import GoldenError, Spikes, encode, read_potentials, read_spikes

Array = NDArray[Any]


@dataclass(kw_only=True)
class SpikeRegression:
    """The object that the fixture `spike_regression` gives to a test; made by the plugin.

    Args:
        golden_folder: where the golden files lie, beside the test.
        test_name: name of the file of a check without a name.
        obtained_folder: where a failure leaves the spikes it got and the picture.
        update: write golden files that are missing or differ, instead of failing.
        written: golden files written in this run; a second check of one compares.
        command: how to run this test with `update`, for messages.
    """

    golden_folder: Path
    test_name: str
    obtained_folder: Path
    update: bool
    written: set[Path]
    command: str
    _checked: set[str] = field(default_factory=set, init=False)

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
        sequences = _arrays("spikes", "spike tensor", spikes, _spikes)
        if not 0 <= max_changed < (1 if isinstance(max_changed, float) else math.inf):
            raise ValueError(
                f"max_changed: expected an integer >= 0 or a fraction in [0, 1), got {max_changed}"
            )
        self._check(
            self._golden_file(name),
            read_spikes,
            sequences,
            spike_difference,
            lambda golden: max_changed * (golden.sum() if isinstance(max_changed, float) else 1),
            "spikes differ from the golden ones",
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
        values = _arrays("potentials", "tensor", potentials, _potentials)
        if not 0 <= tolerance < math.inf:
            raise ValueError(f"tolerance: expected a number >= 0, got {tolerance}")
        self._check(
            self._golden_file(f"{self.test_name}.potentials" if name is None else name),
            read_potentials,
            values,
            lambda golden, value: potential_difference(golden, value, tolerance),
            lambda golden: 0,
            f"potentials differ from the golden ones by more than {tolerance:g}",
        )

    def _check(
        self,
        golden: Path,
        read: Callable[[Path], dict[str, Array]],
        tensors: Mapping[str, Array],
        compare: Callable[[Array, Array], Difference],
        allowed: Callable[[Array], float],
        headline: str,
    ) -> None:
        """Compare with the golden file, or write it where that is asked for; `allowed` changes of a tensor pass."""
        __tracebackhide__ = True
        data = encode(tensors)
        may_write = self.update and golden not in self.written
        try:
            expected = read(golden)
        except (FileNotFoundError, GoldenError) as error:
            if not may_write and isinstance(error, GoldenError):
                raise GoldenError(f"{error}\nRestore the file, or write it anew: {self.command}") from None
            if not may_write:
                raise AssertionError(f"{golden}: no such golden file\nTo create it: {self.command}") from None
            expected = {}
        problems: list[str] = []
        changed: dict[str, tuple[Array, Array]] = {}
        for name, values in tensors.items():
            if name not in expected:
                problems.append(f"{name}: not in the golden file")
            elif values.shape != expected[name].shape:
                problems.append(f"{name}: shape {values.shape}, expected {expected[name].shape}")
            elif (found := compare(expected[name], values)).changes:
                changed[name] = expected[name], values
                if found.changes > allowed(expected[name]):
                    problems.append(f"{name}: {found.text}")
        problems += [
            f"{name}: in the golden file, but not checked" for name in expected if name not in tensors
        ]
        if may_write and (problems or changed):
            golden.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomically(golden, data)
            self.written.add(golden)
        elif problems:
            raise AssertionError("\n".join([headline, *problems, *self._failure(golden, data, changed)]))

    def _golden_file(self, name: str | None) -> Path:
        if name is None:
            name = self.test_name
        elif not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ValueError(f"name: expected letters, digits and _ . - only, got {name!r}")
        if name in self._checked:
            raise ValueError(f"name: expected one of its own for every check in a test, got {name!r} again")
        self._checked.add(name)
        return self.golden_folder / f"{name}.npz"

    def _failure(
        self, golden: Path, data: bytes, changed: Mapping[str, tuple[Array, Array]]
    ) -> Iterator[str]:
        """Writes what was obtained, and the picture of changed spikes; gives the lines that say where."""
        obtained = self.obtained_folder / f"{golden.stem}.obtained.npz"
        write_bytes_atomically(obtained, data)
        yield f"golden:   {golden}"
        yield f"obtained: {obtained}"
        if spikes := {name: pair for name, pair in changed.items() if pair[0].dtype == bool}:
            yield f"picture:  {_draw(spikes, obtained.with_name(f'{golden.stem}.png'))}"
        if golden in self.written:
            yield "Another test of this run wrote the golden file: give each a name of its own."
        else:
            yield f"If the change is intended: {self.command}"


def _arrays(
    argument: str,
    kind: str,
    given: Tensor | Mapping[str, Tensor],
    convert: Callable[[str, Tensor], Array],
) -> dict[str, Array]:
    """Returns the arrays of an argument by name; `convert` takes what messages call a tensor, and the tensor."""
    tensors = given if isinstance(given, Mapping) else {argument: given}
    if not tensors:
        raise ValueError(f"{argument}: expected at least one {kind}, got none")
    arrays = {}
    for name, tensor in tensors.items():
        label = f"{argument}[{name!r}]" if isinstance(given, Mapping) else argument
        check_tensor(label, tensor)
        check_rank(label, tensor, "[T, N, ...]", at_least=2)
        arrays[name] = convert(label, tensor)
    return arrays


def _spikes(label: str, sequence: Tensor) -> Spikes:
    odd = (sequence != 0) & (sequence != 1)
    if odd.any():
        index = odd.nonzero()[0].tolist()
        raise ValueError(f"{label}: expected zeros and ones, got {sequence[tuple(index)].item()} at {index}")
    return (sequence != 0).cpu().numpy()


def _potentials(label: str, tensor: Tensor) -> Array:
    check_floating(label, tensor)
    # NumPy has no bfloat16.
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32)).cpu().numpy()


def _draw(changed: Mapping[str, tuple[Spikes, Spikes]], path: Path) -> str:
    """The path of the picture, or why there is none."""
    # matplotlib is optional, and slow to import for a test that passes.
    try:
        from snnlib.testing.picture import difference_raster  # noqa: PLC0415
    except ImportError as error:
        return f"none ({error}; pip install matplotlib)"
    difference_raster(changed, path.stem).savefig(path)
    return str(path)
