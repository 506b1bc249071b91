"""Options of readers for folders in which several event formats lie side by side."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from snnlib.data.formats.event_file import EventFile, EventFileError
from snnlib.data.formats.registry import FORMATS, find_format, named_format
from snnlib.data.reading import read

# Options that `read` takes for every format.
_GENERAL = frozenset(inspect.signature(read).parameters) - {"source", "options"}


class ReaderOptions:
    """Options of `snnlib.data.read` for files of several formats.

    Args:
        given: options by name, each for the files whose format knows it; and options by suffix, such as
            `{".npy": {"columns": "txyp"}}`, for the files with that suffix alone.

    Raises:
        TypeError: an option that no format has, or options of a suffix that are no mapping.

    >>> options = ReaderOptions({"unit": "ms", ".npy": {"columns": "txyp"}})
    >>> options.own
    {'unit': 'ms'}
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.by_suffix: dict[str, dict[str, Any]] = {}
        # For all formats, and for those that know them.
        self.general: dict[str, Any] = {}
        self.own: dict[str, Any] = {}
        for name, value in given.items():
            if name.startswith("."):
                if not isinstance(value, Mapping):
                    raise TypeError(f"{name}: expected options by name for this suffix, got {value!r}")
                self.by_suffix[name.lower()] = dict(value)
            elif name in _GENERAL:
                self.general[name] = value
            else:
                self.own[name] = value
        known = {name for item in FORMATS.values() for name in item.options}
        for name in (*self.own, *(name for options in self.by_suffix.values() for name in options)):
            if name not in known | _GENERAL:
                raise TypeError(
                    f"{name}: expected an option of a format ({', '.join(sorted(known))}), got another"
                )

    def of(self, path: Path) -> dict[str, Any]:
        """Returns the options for a file; reads its first bytes where its format decides.

        Raises:
            EventFileError, OSError: the file cannot be read, or is of no known format.
        """
        given = {**self.general, **self.by_suffix.get(path.suffix.lower(), {})}
        if not self.own:
            return given
        known = self._known(path, given.get("format"))
        return {**{name: value for name, value in self.own.items() if name in known}, **given}

    def check(self, paths: Iterable[Path]) -> None:
        """Raise TypeError for an option that the format of none of the files has, or a suffix that none of them has."""
        files = list(paths)
        by_suffix = {path.suffix.lower(): path for path in files}
        for suffix in self.by_suffix:
            if suffix not in by_suffix:
                found = ", ".join(sorted(by_suffix))
                raise TypeError(f"{suffix}: expected a suffix of the files ({found}), got one that none has")
        missing = set(self.own)
        # A file of each suffix comes first: more are looked at only where a suffix hides several formats.
        for path in (*by_suffix.values(), *files):
            if not missing:
                return
            missing -= self._known(path, self.general.get("format"), damaged=missing)
        if missing:
            name = min(missing)
            wanted = ", ".join(item.name for item in FORMATS.values() if name in item.options)
            raise TypeError(
                f"{name}: expected files of a format with this option ({wanted}), got none of them"
            )

    def _known(self, path: Path, format: str | None, damaged: set[str] | None = None) -> set[str]:
        """Options of a file's format; `damaged` for a file that is of none, if given."""
        if format is not None:
            return set(named_format(format).options)
        try:
            with EventFile(path) as file:
                return set(find_format(file).options)
        except (EventFileError, OSError):
            if damaged is None:
                raise
            return set()
