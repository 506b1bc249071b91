"""Keeps the settings of a run as `config.json`, which later versions of snnlib read too."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Self

from snnlib import __version__
from snnlib.app.errors import ConfigError
from snnlib.app.setting import settings_of
from snnlib.data.atomic import write_bytes_atomically

# Key of snnlib's version in the file; 0.1 wrote none.
_VERSION_KEY = "snnlib_version"
# Settings of earlier versions that are gone, with what they said; none of them changed a result.
_RETIRED = {"graph": "whether a training step was one CUDA graph"}


@dataclasses.dataclass(frozen=True)
class StoredSettings:
    """A dataclass of settings that is kept as JSON."""

    def save(self, path: Path) -> None:
        """Write as JSON; a crash leaves the old file or the new one."""
        values = {_VERSION_KEY: __version__, **dataclasses.asdict(self)}
        write_bytes_atomically(path, (json.dumps(values, indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ConfigError: no JSON object, an unknown setting or one out of its range; names the file.
            OSError: the file cannot be read.

        Warns:
            UserWarning: another version of snnlib wrote it; lists the settings that it does not name, which take
                today's defaults.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        # Brackets within brackets without end exceed Python's recursion limit.
        except (ValueError, RecursionError) as error:
            raise ConfigError(str(path), f"expected JSON, got text that is none ({error})") from error
        if not isinstance(values, dict):
            raise ConfigError(str(path), f"expected a JSON object of settings, got {type(values).__name__}")
        version = values.pop(_VERSION_KEY, "0.1.0")
        former = {declared.also: declared.name for declared in settings_of(cls)}
        values = {former.get(name, name): value for name, value in values.items()}
        gone = sorted(_RETIRED.keys() & values.keys())
        fields = {field.name: field.default for field in dataclasses.fields(cls)}
        unknown = sorted(values.keys() - fields.keys() - _RETIRED.keys())
        if unknown:
            raise ConfigError(str(path), f"expected known settings only, got {', '.join(unknown)}")
        try:
            config = cls(**{name: value for name, value in values.items() if name not in gone})
        except ConfigError as error:
            raise ConfigError(str(path), str(error)) from error
        missing = [f"{name}={default}" for name, default in fields.items() if name not in values]
        if version != __version__ or missing:
            left = "".join(f"; no longer a setting: {name}, {_RETIRED[name]}" for name in gone)
            warnings.warn(
                f"{path}: written by snnlib {version}, read by {__version__}; "
                f"settings that it does not name: {', '.join(missing) or 'none'}{left}",
                stacklevel=2,
            )
        return config
