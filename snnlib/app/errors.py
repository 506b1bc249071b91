"""Errors that a user can correct: one line that names the setting or the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ConfigError(ValueError):
    """A setting that cannot be used; `field` is its name in `TrainConfig`, or the file that holds it."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field, self.text = field, text


class CheckpointError(ValueError):
    """A checkpoint file that is damaged or missing; the message names it."""


@contextmanager
def naming(
    field: str, errors: tuple[type[Exception], ...] = (OSError, ValueError, ImportError)
) -> Iterator[None]:
    """Re-raises errors of the block as `ConfigError(field)`, unless they name a setting or a file already.

    Args:
        field: the setting, or the argument of a command, whose fault it is.
        errors: those that are; by default those of data that cannot be read.
    """
    try:
        yield
    except (CheckpointError, ConfigError):
        raise
    except errors as error:
        raise ConfigError(field, str(error)) from error
