"""Processes of check.py: each in a group of its own with a time limit, its output in a file as it comes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Set when the whole run is to end: what runs is stopped, and nothing more is started.
STOPPING = threading.Event()


@dataclass(frozen=True)
class Ended:
    """A process that ended or was stopped."""

    status: int
    output: str
    seconds: float
    # Why it was stopped; empty where it ended by itself.
    stopped: str = ""

    @property
    def well(self) -> bool:
        return self.status == 0 and not self.stopped

    @property
    def problem(self) -> str:
        """What went wrong, after the end of what it printed."""
        why = self.stopped or (f"exit status {self.status}" if self.status else "")
        return f"{self.output.strip()[-3000:]}\n{why}".strip()


def run(
    title: str,
    command: Sequence[str],
    seconds: float,
    file: Path,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command; its output is added to `file` under the title, and nothing of the command is left running."""
    start = time.monotonic()
    with file.open("ab") as output:
        output.write(f"\n== {title}\n".encode())
        output.flush()
        begin = output.tell()
        process = subprocess.Popen(
            # A group, not a session: whoever ends the session of the check ends this too.
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, process_group=0,
        )  # fmt: skip
        try:
            stopped = _wait(process, start + seconds, seconds)
        finally:
            _stop_group(process)
    with file.open("rb") as output:
        output.seek(begin)
        text = output.read().decode(errors="replace")
    return Ended(process.wait(), text, round(time.monotonic() - start, 1), stopped)


def _wait(process: subprocess.Popen[bytes], end: float, seconds: float) -> str:
    """Why a process has to be stopped; empty if it ended by itself."""
    while process.poll() is None:
        if STOPPING.is_set():
            return "stopped with the whole run"
        if time.monotonic() > end:
            return f"took longer than {seconds:.0f} s"
        time.sleep(0.05)
    return ""


def _stop_group(process: subprocess.Popen[bytes]) -> None:
    """End what a process started and left behind: it would run beside later measurements."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
