"""Peak memory of a process that streams a large recording, over what it takes to import the library.

    python benchmarks/cpu/stream_memory.py --gigabytes 2 --format dat evt2 evt3 aedat3

A recording of that size is written to a temporary folder, read window by window with `snnlib.data.iter_events` in a
process of its own, and removed. Linux only: the peak is the kernel's `VmHWM`, which begins anew after the import.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from snnlib.data import EVENT_DTYPE, write

SENSOR = (180, 240)
# Events that are made at once, and the time that they take.
PART, PART_US = 1_000_000, 2_000_000
# `ru_maxrss` would not do: a new process starts with that of the one that made it.
STREAM = """
import sys
from pathlib import Path
from snnlib.data import iter_events
def peak_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
Path("/proc/self/clear_refs").write_text("5")
before = peak_kib()
events = sum(len(window) for window in iter_events(sys.argv[1], int(sys.argv[3]), format=sys.argv[2]))
print(events, peak_kib() - before)
"""


def write_large(path: Path, name: str, size: int) -> int:
    """Write a recording of `size` bytes at least; the number of its events.

    One part is encoded again and again with later times; what follows the header is appended.
    """
    rng = np.random.default_rng(0)
    events = np.empty(PART, EVENT_DTYPE)
    events["t"] = np.sort(rng.integers(0, PART_US, PART))
    events["x"], events["y"] = rng.integers(0, SENSOR[1], PART), rng.integers(0, SENSOR[0], PART)
    events["p"] = rng.integers(0, 2, PART)
    part = path.with_suffix(".part")
    write(part, events[:0], format=name, sensor_size=SENSOR)
    header = part.stat().st_size
    count = 0
    with path.open("wb") as file:
        file.write(part.read_bytes())
        while file.tell() < size:
            write(part, events, format=name, sensor_size=SENSOR)
            file.write(memoryview(part.read_bytes())[header:])
            events["t"] += PART_US
            count += PART
    part.unlink()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the recording (1e9 bytes)")
    parser.add_argument("--format", nargs="*", default=["dat", "evt3"], help="formats to try")
    parser.add_argument("--window-us", type=int, default=10_000, help="length of a window")
    parser.add_argument(
        "--folder", type=Path, help="where to write it; default: the system's temporary folder"
    )
    options = parser.parse_args()
    for name in options.format:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder, "large.events")
            count = write_large(path, name, int(options.gigabytes * 1e9))
            size = path.stat().st_size
            command = [sys.executable, "-c", STREAM, str(path), name, str(options.window_us)]
            begin = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds = time.perf_counter() - begin
        found, peak_kib = map(int, done.stdout.split())
        if found != count:
            raise RuntimeError(f"{name}: expected {count} events, got {found}")
        print(
            f"{name}: {size / 1e9:.2f} GB, {count / 1e6:.0f} million events in {seconds:.1f} s, peak memory over "
            f"import {peak_kib / 1024:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
