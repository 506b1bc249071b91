"""The run folder: where each file of a run lies, and the checks before anything is written to it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from snnlib.app.errors import ConfigError
from snnlib.app.training.config import TrainConfig

_DEFAULT_PARENT = Path("runs")


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run's files.

    >>> RunFolder(Path("runs/first")).report.as_posix()
    'runs/first/report.html'
    """

    path: Path

    @property
    def config(self) -> Path:
        """Settings of the run, `TrainConfig` as JSON."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """Path of the metrics, a row per epoch."""
        return self.path / "metrics.csv"

    @property
    def checkpoints(self) -> Path:
        """Folder of `last.ckpt` and `best.ckpt`."""
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        """The page that shows and explains the run."""
        return self.path / "report.html"

    @classmethod
    def create(cls, path: Path | None, config: TrainConfig) -> RunFolder:
        """Make the folder (default `runs/<data>-<time>`) and write `config.json` into it.

        Raises:
            ConfigError: the folder holds files already, or cannot be written to.
        """
        run = cls(path or Path(_DEFAULT_PARENT, f"{config.data.data}-{datetime.now():%Y%m%d-%H%M%S}"))
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            # Two processes may start in one folder: the second finds the first one's settings.
            with run.lock("out"):
                if any(path != run._lock_file for path in run.path.iterdir()):
                    raise ConfigError(
                        "out",
                        f"expected a new or empty folder, got {str(run.path)!r} with files in it "
                        f"(to go on with that run: --resume {run.path})",
                    )
                config.save(run.config)
        except OSError as error:
            raise ConfigError("out", _not_writable(run.path, error)) from error
        return run

    @contextmanager
    def lock(self, option: str = "resume") -> Iterator[None]:
        """Hold the folder for this process in a `with` block; the system frees it where the process is killed.

        Raises:
            ConfigError: another process holds it; names `option`.
        """
        lock = FileLock(self._lock_file, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise ConfigError(
                option,
                f"expected a run that no process is training, got {str(self.path)!r}, which is in training",
            ) from None
        try:
            yield
        finally:
            lock.release()

    def remove_if_unused(self) -> None:
        """Remove the folder of a run that failed before it began: one with nothing but its settings."""
        if self.path.is_dir() and {*self.path.iterdir()} <= {self.config, self._lock_file}:
            self.config.unlink(missing_ok=True)
            self._lock_file.unlink(missing_ok=True)
            # Files that another process put there meanwhile stay.
            with contextlib.suppress(OSError):
                self.path.rmdir()
                if self.path.parent == _DEFAULT_PARENT:
                    self.path.parent.rmdir()

    @property
    def _lock_file(self) -> Path:
        return self.path / ".lock"

    @classmethod
    def open(cls, path: Path, option: str, writable: bool = False) -> tuple[RunFolder, TrainConfig]:
        """An existing run and its settings; `option` is named where the folder is no run.

        Raises:
            ConfigError: no such folder, no run in it, a damaged `config.json`, or (`writable`) a read-only folder.
        """
        run = cls(path)
        if not run.config.is_file():
            what = (
                "a folder without config.json"
                if path.is_dir()
                else "a file"
                if path.exists()
                else "nothing there"
            )
            raise ConfigError(
                option, f"expected the folder of a run of `snnlib train`, got {what}: {str(path)!r}"
            )
        try:
            config = TrainConfig.load(run.config)
            if writable:
                tempfile.TemporaryFile(dir=path).close()
        except OSError as error:
            raise ConfigError(option, _not_writable(path, error)) from error
        return run, config


def _not_writable(path: Path, error: OSError) -> str:
    return f"expected a folder that can be written to, got {str(path)!r}: {error.strerror or error}"
