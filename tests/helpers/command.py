"""Runs the command `snnlib` within a test."""

from typing import Any

import pytest


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
