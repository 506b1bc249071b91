"""Reading event files: million events per second by format, beside NumPy, other readers and the floor.

    python benchmarks/cpu/event_readers.py --fresh-memory --threads 1

A recording of ten million events of a 180 x 240 sensor, random pixels at 0.5 events a microsecond, is written in every
format and read again from the system's file cache, readers in turns. The floor reads the file's bytes and fills fresh
memory for the events, and does nothing else: what no reader can beat that gives events in memory. `snnlib, NumPy` is
the reference without the compiled module. `dv_processing` (AEDAT 4, a tenth of the events) and `h5py` are timed where
they are installed; the first line says which are not.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from turns import COLUMNS, Report, Task, parser, take_turns

import snnlib
from snnlib.data import EVENT_DTYPE, Events, read, write

SENSOR = (180, 240)
FORMATS = ("evt2", "evt21", "evt3", "dat", "aedat2", "aedat3", "nmnist", "npy")
OTHERS = ("dv_processing", "h5py")
_BUFFER = 1 << 18


def recording(count: int) -> Events:
    """Events in order of time, 0.5 a microsecond, at random pixels."""
    rng = np.random.default_rng(0)
    events = np.empty(count, EVENT_DTYPE)
    events["t"] = np.sort(rng.integers(0, 2 * count, count))
    events["x"], events["y"] = rng.integers(0, SENSOR[1], count), rng.integers(0, SENSOR[0], count)
    events["p"] = rng.integers(0, 2, count)
    return events


def floor(path: Path, count: int) -> None:
    """All bytes of the file once into a small buffer, and all bytes of the events once into fresh memory."""
    buffer = bytearray(_BUFFER)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    np.empty(count, EVENT_DTYPE).view(np.uint8).fill(0)


def read_on(path: Path, name: str, way: snnlib.backends.native.Path) -> None:
    """Read by this library."""
    with snnlib.use_path(way):
        read(path, format=name, origin="first")


def dv_reader(path: Path) -> None:
    """Read by dv-processing into NumPy arrays, one per batch, all kept as the others keep theirs."""
    import dv_processing  # noqa: PLC0415

    kept = []
    file = dv_processing.io.MonoCameraRecording(str(path))
    while file.isRunning():
        if (events := file.getNextEventBatch()) is not None:
            kept.append(events.numpy())


def h5py_reader(path: Path) -> None:
    """The four columns by h5py into one array of events."""
    import h5py  # noqa: PLC0415

    with h5py.File(path, "r") as file:
        columns = file["events"]
        events = np.empty(len(columns["t"]), EVENT_DTYPE)
        for name in ("t", "x", "y", "p"):
            events[name] = columns[name][:]


def installed(name: str) -> bool:
    """Returns whether a package can be imported."""
    return importlib.util.find_spec(name) is not None


def tasks_of(name: str, events: Events, folder: Path) -> tuple[dict[str, Task], int]:
    """Write the recording in a format: what reads it (nothing where no package writes it), and the number of events."""
    path = folder / {"nmnist": "a.bin", "npy": "a.npy", "dat": "a.dat", "hdf5": "a.h5"}.get(name, "a.raw")
    others: dict[str, Callable[[Path], None]] = {}
    if name == "hdf5":
        if not installed("h5py"):
            return {}, 0
        import h5py  # noqa: PLC0415

        with h5py.File(path, "w") as file:
            for field in ("t", "x", "y", "p"):
                file[f"events/{field}"] = events[field]
        others["h5py"] = h5py_reader
    elif name == "aedat4":
        if not installed("dv_processing"):
            return {}, 0
        path, events = folder / "a.aedat4", events[: len(events) // 10]
        write_aedat4(path, events)
        others["dv-processing"] = dv_reader
    else:
        write(path, events, format=name, sensor_size=SENSOR)
    tasks: dict[str, Task] = {"floor": partial(floor, path, len(events))}
    tasks["snnlib"] = partial(read_on, path, name, "auto")
    if name in ("evt2", "evt21", "evt3"):
        tasks["snnlib, NumPy"] = partial(read_on, path, name, "reference")
    for title, other in others.items():
        tasks[title] = partial(other, path)
    return tasks, len(events)


def write_aedat4(path: Path, events: Events) -> None:
    """Writes LZ4-compressed AEDAT 4 by dv-processing."""
    import dv_processing  # noqa: PLC0415

    size = (SENSOR[1], SENSOR[0])
    config = dv_processing.io.MonoCameraWriter.EventOnlyConfig("DVXplorer", size)
    writer = dv_processing.io.MonoCameraWriter(str(path), config)
    for start in range(0, len(events), 10_000):
        store = dv_processing.EventStore()
        for t, x, y, p in events[start : start + 10_000].tolist():
            store.push_back(t, x, y, bool(p))
        writer.writeEvents(store)


def main() -> None:
    arguments = parser(__doc__, turns=5)
    arguments.add_argument("--events", type=int, default=10_000_000, help="number of events")
    arguments.add_argument("--formats", nargs="*", default=[*FORMATS, "hdf5", "aedat4"], help="only these")
    options = arguments.parse_args()
    COLUMNS["million_per_s"] = ("million/s", 1)
    report = Report(options)
    missing = [name for name in OTHERS if not installed(name)]
    print(f"other readers that are not installed: {', '.join(missing) or 'none'}")
    events = recording(20_000 if options.quick else options.events)
    for name in options.formats:
        with tempfile.TemporaryDirectory() as folder:
            tasks, count = tasks_of(name, events, Path(folder))
            if not tasks:
                print(f"\n{name}: not timed, its writer is not installed")
                continue
            table = take_turns(tasks, options.turns)
        for row in table.values():
            row["million_per_s"] = count / row["processor_ms"] / 1000
        report.add(name, table)
    report.write()


if __name__ == "__main__":
    main()
