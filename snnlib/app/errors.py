"""What a user can put right: settings and files, each error in one line that names them."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that cannot be used; `field` is its name in `TrainConfig`, or the file that holds it."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field, self.text = field, text


class CheckpointError(ValueError):
    """A checkpoint file that is damaged or missing; the message names it."""
