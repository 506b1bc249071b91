"""All event formats, and which one a file has."""

from __future__ import annotations

from typing import Any

from snnlib.data.formats.aedat2 import FORMAT as AEDAT2
from snnlib.data.formats.aedat2 import FORMAT_1 as AEDAT1
from snnlib.data.formats.aedat3 import FORMAT as AEDAT3
from snnlib.data.formats.aedat4 import FORMAT as AEDAT4
from snnlib.data.formats.base import Format
from snnlib.data.formats.dat import FORMAT as DAT
from snnlib.data.formats.event_file import EventFile, EventFileError
from snnlib.data.formats.evt2 import FORMAT as EVT2
from snnlib.data.formats.evt3 import FORMAT as EVT3
from snnlib.data.formats.evt21 import FORMAT as EVT21
from snnlib.data.formats.hdf5 import FORMAT as HDF5
from snnlib.data.formats.matlab import FORMAT as MATLAB
from snnlib.data.formats.nmnist_bin import FORMAT as NMNIST
from snnlib.data.formats.numpy_arrays import FORMAT as NPY
from snnlib.data.formats.numpy_arrays import FORMAT_NPZ as NPZ
from snnlib.data.formats.text import FORMAT as TEXT
from snnlib.data.sources import ARCHIVES

# Formats in the order in which they are asked whether a file is theirs.
_ALL = (
    *(NMNIST, AEDAT2, AEDAT1, AEDAT3, AEDAT4),
    *(EVT2, EVT21, EVT3, TEXT, DAT),
    *(NPY, NPZ, MATLAB, HDF5),
)
FORMATS: dict[str, Format] = {item.name: item for item in _ALL}
SUFFIXES = frozenset(suffix for item in FORMATS.values() for suffix in item.suffixes)
# Files without a header that are read, where `format=` names the format; and where the suffix does.
HEADLESS, BY_SUFFIX = ("aedat1", "aedat2", "evt2", "evt21", "evt3"), ("nmnist", "csv")
# First bytes of formats that are not read, and their names.
_FOREIGN = {
    b"Event Stream": "Event Stream (.es), which is not read",
    b"#ROSBAG": "ROS (a bag), which is not read",
    b"PAR1": "Parquet, which is not read",
    **{magic: f"{name}; unpack it" for magic, name in ARCHIVES.items()},
}
# Fewer bytes than these may be events as well.
_SURE = 4
# AEDAT lines and Prophesee headers name their version within this.
HEAD_BYTES = 4096


def named_format(name: str) -> Format:
    """The format called `name`.

    Raises:
        ValueError: there is none.
    """
    if name not in FORMATS:
        raise ValueError(f"format: expected one of {', '.join(FORMATS)}, got {name!r}")
    return FORMATS[name]


def check_named(file: EventFile, chosen: Format) -> None:
    """Raises EventFileError where a file begins like another format than the one that the caller names.

    Formats without a header find false events in any bytes.
    """
    head = file.peek(HEAD_BYTES)
    # Lines that begin with % are also those of a DAT file, and comments of a text.
    others = (item for item in FORMATS.values() if item not in (chosen, DAT, TEXT))
    titles = (item.title for item in others if item.detect is not None and item.detect(head))
    found = _foreign(head, _SURE) or next(titles, "")
    if found:
        raise file.error(f"expected {chosen.title}, found a file of {found}", 0)


def _foreign(head: bytes, least: int = 0) -> str:
    """Returns the name of a format that is not read, by the first bytes of a file; "" where they are of none."""
    return next(
        (name for magic, name in _FOREIGN.items() if len(magic) >= least and head.startswith(magic)), ""
    )


def find_format(file: EventFile) -> Format:
    """The format of a file: by its first bytes, else by its suffix.

    Raises:
        EventFileError: the first bytes are of no known format, and the suffix does not belong to one without a header.
    """
    head = file.peek(HEAD_BYTES)
    for item in FORMATS.values():
        if item.detect is not None and item.detect(head):
            return item
    by_suffix = [item for item in FORMATS.values() if file.suffix in item.suffixes]
    decided = next((item for item in by_suffix if item.name in BY_SUFFIX), None)
    if foreign := _foreign(head, _SURE if decided else 0):
        raise file.error(f"expected an event file, found one of {foreign}", 0)
    if decided is not None:
        return decided
    if by_suffix:
        names = " or ".join(item.title for item in by_suffix)
        headless = ", ".join(item.name for item in by_suffix if item.name in HEADLESS)
        # A header of another version is no missing one.
        missing = headless and not head.startswith((b"#!", b"%"))
        hint = f"; give format= ({headless}) where the header is missing" if missing else ""
        raise file.error(f"expected the header of {names}, found {_first_line(head)!r}{hint}", 0)
    titles = ", ".join(item.title for item in FORMATS.values())
    hint = f"; give format= ({', '.join(BY_SUFFIX + HEADLESS)}) where the file has no header"
    raise EventFileError(f"{file.name}: expected an event file ({titles}), found {head[:16]!r}{hint}")


def _first_line(head: bytes) -> bytes:
    """The line of a header that names a version, else the first bytes."""
    lines = [line.strip() for line in head.split(b"\n") if line.startswith(b"%")]
    return next((line for line in lines if line.lower().startswith((b"% evt", b"% format"))), head[:16])[:60]


def format_to_write(suffix: str, name: str | None) -> Format:
    """The format to write: by name, else by the file's suffix.

    Raises:
        ValueError: no such format, none with a writer for the suffix, or several.
    """
    writable = [item for item in FORMATS.values() if item.encode is not None]
    if name is not None:
        chosen = named_format(name)
        if chosen.encode is None:
            names = ", ".join(item.name for item in writable)
            raise ValueError(f"format: expected one that can be written ({names}), got {name!r}")
        return chosen
    fitting = [item for item in writable if suffix.lower() in item.suffixes]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(repr(item.name) for item in fitting)
        raise ValueError(f"format: expected one of {names} for the suffix {suffix}, got none")
    known = ", ".join(sorted({suffix for item in writable for suffix in item.suffixes}))
    raise ValueError(f"path: expected a suffix among {known}, or format=, got {suffix!r}")


def check_options(options: dict[str, Any], known: dict[str, str], name: str) -> None:
    """Raise TypeError for an option that the format does not have."""
    for option in options:
        if option not in known:
            wanted = "; ".join(f"{key}: {text}" for key, text in known.items()) or "none"
            raise TypeError(f"{option}: expected an option of format {name} ({wanted}), got an unknown one")
