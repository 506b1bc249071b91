"""What a user can put right: settings and files, each error in one line that names them."""

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
    """What is wrong in a `with` block becomes a ConfigError of `field`, unless it names a setting or a file already.

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
