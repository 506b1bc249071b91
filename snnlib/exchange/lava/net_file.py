"""Files `network.net` of lava-dl: HDF5 with a group of data sets for each block, `layer/0`, `layer/1` and so on.

A block has `type`, `shape` and what its `export_hdf5` wrote: `weight`, `bias`, `delay`, sizes, `neuron/...`. Versions
differ in the shape and dtype of data sets (scalars or arrays of one, text of fixed length or not, weights of fewer
axes), so that numbers are read by their count, and are whole whatever their dtype.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from snnlib.data.atomic import write_bytes_atomically
from snnlib.data.formats.hdf5 import DAMAGED, check_size, import_h5py

Array = npt.NDArray[Any]
# Data sets by their path.
Values = dict[str, Array]

_OF_BLOCK = re.compile(r"layer/(\d+)/(.+)")


@dataclass(frozen=True)
class Block:
    """A block of a net: data sets by their path below it, and where it stands, for messages."""

    where: str
    values: Values

    def error(self, name: str, text: str) -> ValueError:
        """Returns an error that names file, block and data set."""
        return ValueError(f"{self.where}/{name}: {text}")

    def text(self, name: str, default: str | None = None) -> str:
        """Returns a text, of fixed length or not."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if value is None or value.size != 1 or value.dtype.kind not in "SUO":
            raise self.error(name, f"expected a text, got {'none' if value is None else value.dtype}")
        found = value.reshape(-1)[0]
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)

    def numbers(
        self,
        name: str,
        default: int | Sequence[int] | None = None,
        *,
        sizes: Collection[int] = (),
        low: int = -(2**31),
        high: int = 2**31 - 1,
    ) -> Array:
        """Returns whole numbers within bounds, int64 in one axis, as many as one of `sizes` if any are given."""
        value = self.values.get(name)
        if value is None and default is None:
            raise self.error(name, "expected whole numbers, got no such data set")
        found = np.asarray(default if value is None else value).reshape(-1)
        bounds = f"from {low} to {high}" if (low, high) != (-(2**31), 2**31 - 1) else "of 32 bits"
        if found.dtype.kind not in "iufb" or not bool(np.all((found >= low) & (found <= high))):
            raise self.error(name, f"expected whole numbers {bounds}, got {_shown(found)}")
        whole = found.astype(np.int64)
        if not np.array_equal(whole, found):
            raise self.error(name, f"expected whole numbers {bounds}, got {_shown(found[whole != found])}")
        if sizes and len(whole) not in sizes:
            wanted = " or ".join(str(size) for size in sorted(set(sizes)))
            raise self.error(name, f"expected {wanted} numbers, got {len(whole)}")
        return whole

    def number(self, name: str, default: int | None = None, **bounds: int) -> int:
        """Returns one whole number."""
        return int(self.numbers(name, default, sizes=(1,), **bounds)[0])

    def pair(self, name: str, default: int | Sequence[int], low: int = 1) -> tuple[int, int]:
        """Returns a size per axis (y, x), or one for both twice."""
        found = self.numbers(name, default, sizes=(1, 2), low=low, high=2**16)
        return int(found[0]), int(found[-1])

    def shape(self) -> tuple[int, ...]:
        """Returns sizes (channels, y, x) or the number of features; axes of one element at either end are left out."""
        found = [int(size) for size in self.numbers("shape", sizes=(1, 2, 3), low=1)]
        return (math.prod(found),) if sum(size > 1 for size in found) < 2 else tuple(found)


def _shown(values: Array) -> str:
    return ", ".join(str(value) for value in values[:3].tolist()) + (", ..." if len(values) > 3 else "")


def read_net(path: str | Path) -> tuple[list[Block], Values]:
    """Returns the blocks of a file in their order, and the data sets that belong to none.

    Raises:
        ImportError: the package h5py is missing.
        OSError: no such file.
        ValueError: a damaged file, by the data set where there is one, or no blocks with numbers from 0 on.
    """
    h5py, values = import_h5py(), Values()
    size, name = Path(path).stat().st_size, ""
    try:
        with h5py.File(path, "r") as file:
            names: list[str] = []
            file.visit(names.append)
            for name in names:
                if isinstance(data := file[name], h5py.Dataset):
                    check_size(data, size)
                    values[name] = np.array(data[()], dtype=data.dtype)
    except DAMAGED as error:
        where = f"{path}: {name}" if name else f"{path}"
        raise ValueError(f"{where}: expected an HDF5 file as lava-dl writes it, got {error!r}") from error
    blocks: dict[int, Values] = {}
    rest = Values()
    for name, value in values.items():
        if match := _OF_BLOCK.fullmatch(name):
            blocks.setdefault(int(match[1]), {})[match[2]] = value
        else:
            rest[name] = value
    if not blocks or sorted(blocks) != list(range(len(blocks))):
        found = ", ".join(str(number) for number in sorted(blocks)) or "none"
        raise ValueError(f"{path}: layer: expected blocks with numbers from 0 on, got {found}")
    return [Block(f"{path}: layer/{n}", blocks[n]) for n in range(len(blocks))], rest


def text_type() -> Any:
    """Returns the dtype of a text of any length."""
    return import_h5py().string_dtype()


def write_net(path: str | Path, blocks: Sequence[Values], rest: Values) -> None:
    """Write a file; one that stands is whole."""
    buffer = io.BytesIO()
    with import_h5py().File(buffer, "w") as file:
        for number, block in enumerate(blocks):
            for name, value in block.items():
                file.create_dataset(f"layer/{number}/{name}", data=value, dtype=value.dtype)
        for name, value in rest.items():
            file.create_dataset(name, data=value, dtype=value.dtype)
    write_bytes_atomically(path, buffer.getvalue())
