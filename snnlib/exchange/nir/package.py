"""The package `nir`, which holds the classes of a graph's nodes and reads and writes files, loaded when needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from snnlib.checks import import_extra
from snnlib.files.hdf5 import check_dataset, open_file
from snnlib.files.pointers import check_fetched


def nir_package() -> Any:
    """The module `nir`.

    Raises:
        ImportError: it is not installed; the message says what installs it.
    """
    return import_extra("nir", "nir", "NIR graphs")


def read_graph(path: str | Path) -> Any:
    """The graph in a file, as it stands there.

    The package's own check of shapes is left out: of a convolution it knows neither groups nor a kernel whose sides
    differ, and refuses graphs that are right.

    Raises:
        OSError: no such file, or none that HDF5 can open.
        ValueError: a pointer of Git LFS, no NIR graph in it, or one whose data lie in other files.
    """
    nir = nir_package()
    check_fetched(path)
    try:
        with open_file(path) as file:
            size = Path(path).stat().st_size
            names: list[str] = []
            file.visit(names.append)
            for node in map(file.get, names):
                if hasattr(node, "nbytes"):
                    check_dataset(node, size)
        graph = nir.read(path, type_check=False)
    except OSError as error:
        # h5py names a missing file alone.
        if str(path) in str(error):
            raise
        raise OSError(f"{path}: expected an HDF5 file, found another or a damaged one ({error})") from error
    except (KeyError, AssertionError, TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: expected a file with a NIR graph, got {error!r} while reading") from error
    if not hasattr(graph, "nodes"):
        raise ValueError(f"{path}: expected a NIR graph, got a single node {type(graph).__name__}")
    return graph
