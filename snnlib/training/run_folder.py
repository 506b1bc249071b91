"""The run folder: where each file of a run lies, and the checks before anything is written to it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from snnlib.training.config import TrainConfig
from snnlib.training.errors import ConfigError


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
        """One row per epoch."""
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
        run = cls(path or Path("runs", f"{config.data}-{datetime.now():%Y%m%d-%H%M%S}"))
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            # A lone config.json is of a run that found its data missing before it began.
            if any(path != run.config for path in run.path.iterdir()):
                raise ConfigError(
                    "out",
                    f"expected a new or empty folder, got {str(run.path)!r} with files in it "
                    f"(to go on with that run: --resume {run.path})",
                )
            config.save(run.config)
        except OSError as error:
            raise ConfigError("out", _not_writable(run.path, error)) from error
        return run

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
