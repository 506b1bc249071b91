"""Files `network.net` of lava-dl: HDF5 with a group of data sets for each block, `layer/0`, `layer/1` and so on.

A block has `type`, `shape` and what its `export_hdf5` wrote: `weight`, `bias`, `delay`, sizes, `neuron/...`. Versions
differ in the shape and dtype of data sets (scalars or arrays of one, text of fixed length or not, weights of fewer
axes), so that numbers are read by their count, and are whole whatever their dtype.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from snnlib.files.atomic import write_bytes_atomically
from snnlib.files.hdf5 import DAMAGED, check_dataset, import_h5py, open_file, read_element
from snnlib.files.pointers import check_fetched

Array = npt.NDArray[Any]
# Data sets by their path.
Values = dict[str, Array]

_LEAST, _MOST = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class NetBlock:
    """A block of a net: data sets by their path below it, and where it stands, for messages."""

    where: str
    values: Values

    def error(self, name: str, text: object) -> ValueError:
        """Returns an error that names file, block and data set."""
        return ValueError(f"{self.where}/{name}: {text}")

    def text(self, name: str, default: str | None = None) -> str:
        """Returns a text, of fixed length or not."""
        value = np.asarray(self.values.get(name, default), dtype=object).reshape(-1)
        found = value[0].decode("utf-8", "replace") if isinstance(value[0], bytes) else value[0]
        if not isinstance(found, str):
            raise self.error(name, f"expected a text, got {found}")
        return found

    def numbers(
        self,
        name: str,
        default: int | Sequence[int] | None = None,
        sizes: Collection[int] = (),
        low: int = _LEAST,
        high: int = _MOST,
    ) -> Array:
        """Returns whole numbers within bounds, int64 in one axis, as many as one of `sizes` if any are given."""
        given = self.values.get(name, default)
        if given is None:
            raise self.error(name, "expected whole numbers, got no such data set")
        found = np.asarray(given).reshape(-1)
        right = found.dtype.kind in "iufb" and bool(np.all((found >= low) & (found <= high)))
        right = right and bool(np.all(found % 1 == 0))
        if not right or (sizes and len(found) not in sizes):
            many = f"{' or '.join(map(str, sorted(set(sizes))))} " if sizes else ""
            bounds = f" from {low} to {high}" if (low, high) != (_LEAST, _MOST) else ""
            got = ", ".join(map(str, found[:3].tolist())) + (
                f", ..., {len(found)} in all" if len(found) > 3 else ""
            )
            raise self.error(name, f"expected {many}whole numbers{bounds}, got {got}")
        return found.astype(np.int64)

    def number(self, name: str, default: int | None = None, low: int = _LEAST, high: int = _MOST) -> int:
        """Returns one whole number."""
        return int(self.numbers(name, default, (1,), low, high)[0])

    def pair(self, name: str, default: int | Sequence[int], low: int = 1) -> tuple[int, int]:
        """Returns a size per axis (y, x), or one for both twice."""
        found = self.numbers(name, default, (1, 2), low, 2**16)
        return int(found[0]), int(found[-1])

    def shape(self) -> tuple[int, ...]:
        """Returns sizes (channels, y, x), or the number of features, which may have axes of one element beside it."""
        found = self.numbers("shape", sizes=(1, 2, 3), low=1).tolist()
        return tuple(found) if sum(size > 1 for size in found) > 1 else (math.prod(found),)


def read_net(path: str | Path) -> tuple[list[NetBlock], Values]:
    """Returns the blocks of a file in their order, and the data sets that belong to none.

    Raises:
        ImportError: the package h5py is missing.
        OSError: no such file.
        ValueError: a damaged file, by the data set where there is one, or no blocks with numbers from 0 on.
    """
    check_fetched(path)
    h5py, size, where = import_h5py(), Path(path).stat().st_size, f"{path}"
    blocks, rest, names = dict[str, Values](), Values(), list[str]()
    try:
        with open_file(path) as file:
            file.visit(names.append)
            for name in names:
                where = f"{path}: {name}"
                if isinstance(data := file[name], h5py.Dataset):
                    check_dataset(data, size)
                    top, number, *below = *name.split("/", 2), "", ""
                    own = blocks.setdefault(number, {}) if top == "layer" and below[0] else rest
                    text = data.dtype.kind == "O" and data.size == 1
                    value = read_element(data, 0, size).tobytes() if text else data[()]
                    own[below[0] if own is not rest else name] = np.array(value, data.dtype).reshape(
                        data.shape
                    )
    except DAMAGED as error:
        raise ValueError(f"{where}: expected an HDF5 file as lava-dl writes it, got {error!r}") from error
    order = [str(number) for number in range(len(blocks))]
    if not blocks or set(order) != set(blocks):
        found = ", ".join(sorted(blocks)) or "none"
        raise ValueError(f"{path}: layer: expected blocks with numbers from 0 on, got {found}")
    return [NetBlock(f"{path}: layer/{number}", blocks[number]) for number in order], rest


def text_type() -> Any:
    """Returns the dtype of a text of any length."""
    return import_h5py().string_dtype()


def write_net(path: str | Path, blocks: Sequence[Values], rest: Values) -> None:
    """Write a file; one that stands is whole."""
    buffer = io.BytesIO()
    of_blocks = {
        f"layer/{n}/{name}": value for n, block in enumerate(blocks) for name, value in block.items()
    }
    with import_h5py().File(buffer, "w") as file:
        for name, value in (of_blocks | rest).items():
            file.create_dataset(name, data=value, dtype=value.dtype)
    write_bytes_atomically(path, buffer.getvalue())
