"""All settings of a training run, kept as `config.json`."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from snnlib import __version__
from snnlib.app.errors import ConfigError
from snnlib.app.setting import describe, settings_of
from snnlib.app.training.config_rules import check_together
from snnlib.app.training.settings import DataSettings, Group, LearningSettings, NetSettings, RunSettings
from snnlib.files.atomic import write_bytes_atomically
from snnlib.files.pointers import check_fetched

# Key of snnlib's version in the file, and the first version whose runs later ones read.
_VERSION_KEY = "snnlib_version"
_FIRST = (0, 3)
# Settings that may differ when a run is resumed: they say how the work is done, not what is learned.
MACHINE_FIELDS = frozenset({"root", "threads", "workers"})

_GROUPS: dict[str, type[Group]] = {
    "data": DataSettings,
    "net": NetSettings,
    "learning": LearningSettings,
    "run": RunSettings,
}
# Default of every setting, by the name that options and files have for it.
DEFAULTS = {setting.name: setting.default for group in _GROUPS.values() for setting in settings_of(group)}


@describe
@dataclass(frozen=True, init=False)
class TrainConfig:
    """Settings of a run in four groups, checked when made. The defaults are the recipe for the embedded digits.

    Raises:
        ConfigError: a setting out of its range; names it, what was expected and what came.
        TypeError: an unknown setting.

    >>> config = TrainConfig(epochs=3, tau=4.0)
    >>> config.learning.epochs, config.net.tau, config.changed(epochs=5).learning.epochs
    (3, 4.0, 5)

    >>> TrainConfig(epochs=0)
    Traceback (most recent call last):
    snnlib.app.errors.ConfigError: epochs: expected an integer >= 1, got 0
    """

    data: DataSettings
    net: NetSettings
    learning: LearningSettings
    run: RunSettings

    def __init__(self, **settings: Any) -> None:
        unknown = settings.keys() - DEFAULTS.keys()
        if unknown:
            raise TypeError(f"{min(unknown)}: expected a setting of a run, got an unknown one")
        for name, group in _GROUPS.items():
            own = (setting.name for setting in settings_of(group))
            object.__setattr__(self, name, group(**{key: settings[key] for key in own if key in settings}))
        check_together(self)

    def settings(self) -> dict[str, Any]:
        """Returns all settings by name, as files have them."""
        return {name: value for group in _GROUPS for name, value in asdict(getattr(self, group)).items()}

    def changed(self, **settings: Any) -> TrainConfig:
        """Returns these settings with others in their place."""
        return TrainConfig(**{**self.settings(), **settings})

    def save(self, path: Path) -> None:
        """Write as JSON; a crash leaves the old file or the new one."""
        values = {_VERSION_KEY: __version__, **self.settings()}
        write_bytes_atomically(path, (json.dumps(values, indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> TrainConfig:
        """Read what `save` wrote.

        Raises:
            ConfigError: no JSON object, an unknown setting or one out of its range; names the file.
            OSError: the file cannot be read.

        Warns:
            UserWarning: another version of snnlib wrote it; lists the settings that it does not name, which take
                today's defaults.
        """
        check_fetched(path, lambda text: ConfigError(*text.split(": ", 1)))
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        # Brackets within brackets without end exceed Python's recursion limit.
        except (ValueError, RecursionError) as error:
            raise ConfigError(str(path), f"expected JSON, got invalid text ({error})") from error
        if not isinstance(values, dict):
            raise ConfigError(str(path), f"expected a JSON object of settings, got {type(values).__name__}")
        version = str(values.pop(_VERSION_KEY, "0.1.0"))
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _FIRST:
            first = ".".join(str(part) for part in _FIRST)
            raise ConfigError(
                str(path), f"expected a run of snnlib {first} or newer, got one of {version}; train it anew"
            )
        unknown = sorted(values.keys() - DEFAULTS.keys())
        if unknown:
            raise ConfigError(str(path), f"expected known settings only, got {', '.join(unknown)}")
        try:
            config = cls(**values)
        except ConfigError as error:
            raise ConfigError(str(path), str(error)) from error
        missing = [f"{name}={default}" for name, default in DEFAULTS.items() if name not in values]
        if version != __version__ or missing:
            warnings.warn(
                f"{path}: written by snnlib {version}, read by {__version__}; "
                f"settings missing from the file: {', '.join(missing) or 'none'}",
                stacklevel=2,
            )
        return config
