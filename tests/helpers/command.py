"""Runs the command `snnlib` within a test."""

import csv
from pathlib import Path
from typing import Any

import pytest


def options(config: Any, **changes: object) -> list[str]:
    """The command line that gives these settings."""
    values = config.settings() | changes
    words: list[str] = []
    for name, value in values.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            words += [f"--{option}", str(value)]
    return words


def run(capture: Any, *arguments: object) -> tuple[int, str, str]:
    """Exit code, and what went to both streams; `capture` is pytest's `capsys` or `capfd`."""
    cli = pytest.importorskip("snnlib.app.cli", reason="the command needs snnlib[train]")
    code = 0
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capture.readouterr()
    return code, said.out, said.err


def done(capture: Any, *arguments: object) -> str:
    """Returns the output of a command that succeeds."""
    code, out, err = run(capture, *arguments)
    assert code == 0, err
    return out


def refused(capture: Any, *arguments: object) -> str:
    """The error of a command that refuses its input."""
    code, _, err = run(capture, *arguments)
    assert code == 2
    return err


def metrics(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's `metrics.csv`."""
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))
