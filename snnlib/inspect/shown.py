"""Texts for notebooks, tables in columns and layers by name, shared by all reports."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Generic, Protocol, TypeVar


class ShownAsText:
    """Shows in a notebook what `print` does, columns and lines as they are, in place of the object's `repr`.

    >>> class Rates(ShownAsText):
    ...     def __str__(self):
    ...         return "rate < 0.1"
    >>> Rates()._repr_html_()
    '<pre>rate &lt; 0.1</pre>'
    """

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def in_columns(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Lines of a table whose first columns are aligned to the left, the others to the right.

    >>> in_columns([("layer", "rate"), ("0", "0.12")], left=1)
    ['layer  rate', '0      0.12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


L = TypeVar("L", bound=_Named)


class ByLayer(Generic[L]):
    """A report whose layers are found by their names."""

    layers: tuple[L, ...]

    def __getitem__(self, name: str) -> L:
        """The layer of this name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"expected one of {', '.join(layer.name for layer in self.layers)}, got {name!r}")
