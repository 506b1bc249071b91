"""The report of check.py: what the figures belong to, the results of every stage, and a table of them."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# What `make gpu-bundle` leaves for a machine that has neither git nor, perhaps, what the build needs.
BUNDLE = ROOT / "build" / "gpu"


class Report:
    """Facts and stages, in a file that is whole at any time, with a copy in another folder.

    Args:
        file: the JSON file.
        folder: gets a copy of it, and the outputs of stages; the file's own by default.
    """

    def __init__(self, file: Path, folder: Path | None, facts: dict[str, str]) -> None:
        self.file, self.folder, self.facts = file, folder or file.parent, facts
        self.stages: dict[str, Any] = {}
        self._lock = threading.Lock()
        for place in (self.file.parent, self.folder):
            place.mkdir(parents=True, exist_ok=True)

    def output(self, lane: int) -> Path:
        """The file for what stages print that run one after another in this lane."""
        return self.folder / f"output-{lane}.txt"

    def add(self, name: str, stage: dict[str, Any]) -> None:
        """Note a stage that has ended, and write what is known."""
        with self._lock:
            self.stages[name] = stage
            self.write()
            print(f"{name:18} {'passed' if stage['passed'] else 'FAILED'} {stage['seconds']:6} s", flush=True)

    def write(self) -> None:
        """What is known so far; whatever ends this run, it stays."""
        text = json.dumps({"facts": self.facts, "stages": self.stages}, indent=2) + "\n"
        for file in {self.file, self.folder / self.file.name}:
            partial = file.with_name(file.name + ".part")
            partial.write_text(text, encoding="utf-8")
            partial.replace(file)

    def add_earlier_stages(self) -> None:
        """Take over the stages of a report of the same code and device, which a call for some stages adds to."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
            if all(found["facts"][name] == self.facts[name] for name in ("commit", "device", "torch")):
                self.stages = dict(found["stages"])
        except (OSError, ValueError, KeyError, TypeError):
            return

    def print_table(self) -> None:
        for name, value in self.facts.items():
            print(f"{name:14} {value}")
        for name, stage in self.stages.items():
            print(f"\n{'passed' if stage['passed'] else 'FAILED'}  {name}  ({stage['seconds']} s)")
            if "end of the process" in stage:
                print(f"    the process ended with: {stage['end of the process']}")
            for key, value in stage.get("results", {}).items():
                print(f"    {key:62} {value}")
            if not stage["passed"]:
                # The end of a traceback says what failed.
                print("    " + "\n    ".join(stage["error"].splitlines()[-12:]))
        failed = [name for name, stage in self.stages.items() if not stage["passed"]]
        total = len(self.stages)
        print(
            f"\n{total - len(failed)} of {total} stages passed"
            + f"; failed: {', '.join(failed)}" * bool(failed)
        )


def facts(device: str, commit: str) -> dict[str, str]:
    """What the figures belong to."""
    import torch  # noqa: PLC0415

    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit or _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device,
    }
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
        found["CUDA of torch"] = str(torch.version.cuda)
        found["cuDNN"] = str(torch.backends.cudnn.version())
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found["driver"] = _line_of(query) or "unknown"
    return found


def _commit() -> str:
    """Of the sources, or where they came without git the one that was noted beside them."""
    found = _line_of(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"])
    noted = BUNDLE / "commit"
    return found or (noted.read_text(encoding="utf-8").strip() if noted.exists() else "unknown")


def _line_of(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
