"""Declares a setting of a run once: its default, the sentence of its help, what it may be, and which data have it.

    epochs: int = setting(8, "Pass this many times over the training set.", count(1))

`check_settings` checks the values of such a dataclass, and `snnlib.app.train_cli` makes the options of its command, in
groups named by the attribute `group` of the dataclasses that hold them. What a setting may be follows from
its type where nothing else is given: one of the words of a `Literal`, a bool, text; and None where the type says so.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from snnlib.app.errors import ConfigError

_LARGEST_COUNT = 2**31 - 1
_Class = TypeVar("_Class", bound=type)

Check = Callable[[Any], str | None]
"""Takes a value, and returns what was expected instead, or None where the value is right."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Declared setting.

    Args:
        help: help of the option; empty if the command has no such option.
        checks: checks, in their order.
        default: default of the field.
        words: allowed values, for a field of type `str`.
        path: whether the option takes a path, which the setting stores as text.
        needs: property that the data must have (`Kind.has`); None if the setting fits all data.
        off: value for data without that property.
        name, type, optional, group: taken from the field: its name, the type of its values, whether it may be None, and
            its group of options.
    """

    help: str
    checks: tuple[Check, ...]
    default: Any
    words: Iterable[str] = ()
    path: bool = False
    needs: str | None = None
    off: Any = None
    name: str = ""
    type: Any = None
    optional: bool = False
    group: str = ""


def setting(default: Any, help: str, *checks: Check, **options: Any) -> Any:
    """Returns the field of a dataclass that declares a setting; for the options see `Setting`, `off` is the default."""
    declared = Setting(help=help, checks=checks, default=default, **{"off": default, **options})
    return dataclasses.field(default=default, metadata={"setting": declared})


def settings_of(config: Any) -> tuple[Setting, ...]:
    """Returns the declared settings of a dataclass, or of an object of one, in its order, those of its groups too."""
    return _settings_of(config if isinstance(config, type) else type(config))


@cache
def _settings_of(config: Any) -> tuple[Setting, ...]:
    hints = get_type_hints(config)

    def declared() -> Iterator[Setting]:
        for field in dataclasses.fields(config):
            if "setting" not in field.metadata:
                yield from _settings_of(hints[field.name])
                continue
            said: Setting = field.metadata["setting"]
            hint, optional = hints[field.name], NoneType in get_args(hints[field.name])
            if optional:
                (hint,) = (part for part in get_args(hint) if part is not NoneType)
            if words := tuple(said.words):
                hint = Literal[words]
            yield dataclasses.replace(
                said,
                checks=said.checks or (_check_of(hint),),
                name=field.name,
                type=hint,
                optional=optional,
                group=getattr(config, "group", ""),
            )

    return tuple(declared())


def check_settings(config: object) -> None:
    """Checks each setting by itself.

    Raises:
        ConfigError: names the first that is wrong, what was expected and what came.
    """
    for declared in settings_of(config):
        value = getattr(config, declared.name)
        if value is None and declared.optional:
            continue
        for check in declared.checks:
            expected = check(value)
            if expected is not None:
                raise wrong(config, declared.name, expected)


def wrong(config: Any, name: str, expected: str) -> ConfigError:
    """Returns the error for the value that a setting has, in a group of settings or in all of them."""
    values = config.settings() if hasattr(config, "settings") else vars(config)
    return ConfigError(name, f"expected {expected}, got {values[name]!r}")


def describe(config: _Class) -> _Class:
    """Adds the settings to the docstring of their class, so that `help` lists them."""
    lines = (f"    {declared.name}: {declared.help}" for declared in settings_of(config) if declared.help)
    config.__doc__ = f"{inspect.cleandoc(config.__doc__ or '')}\n\nArgs:\n" + "\n".join(lines)
    return config


def such_that(right: Callable[[Any], bool], expected: str) -> Check:
    """Returns the check that `right` holds."""
    return lambda value: None if right(value) else expected


def matches(pattern: str, expected: str) -> Check:
    """Returns the check that the whole text matches a regular expression."""
    return such_that(lambda value: re.fullmatch(pattern, str(value)) is not None, expected)


def count(least: int, most: int = _LARGEST_COUNT) -> Check:
    """Returns the check of an integer in `least..most`."""

    def check(value: Any) -> str | None:
        if type(value) is not int or value < least:
            return f"an integer >= {least}"
        return None if value <= most else f"an integer <= {most}"

    return check


def number(*, above: float = -math.inf, least: float = -math.inf) -> Check:
    """Returns the check of a finite number above a bound, or of one at least as large."""
    expected = f"a number > {above:g}" if above > -math.inf else f"a number >= {least:g}"

    def right(value: Any) -> bool:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # An integer may have more digits than any float.
        return is_number and abs(value) <= sys.float_info.max and value > above and value >= least

    return such_that(right, expected)


def _check_of(hint: Any) -> Check:
    """Returns the default check for a type annotation."""
    if get_origin(hint) is Literal:
        words = get_args(hint)
        return such_that(words.__contains__, f"one of {', '.join(words)}")
    if hint is bool:
        return such_that(lambda value: type(value) is bool, "true or false")
    if hint is str:
        return such_that(lambda value: isinstance(value, str), "text")
    raise TypeError(f"hint: expected a Literal, bool or str without a check of its own, got {hint}")
