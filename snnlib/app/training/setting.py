"""Declares a setting of a run once: its default, the sentence of its help, its group of options, and what it may be.

    epochs: int = setting(8, "Pass this many times over the training set.", "Learning", count(1))

`check_settings` checks the values of such a dataclass, and `snnlib.app.options` makes the options of a command from it.
What a setting may be follows from its type where nothing else is given: one of the words of a `Literal`, a bool, text;
and None where the type says so.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from snnlib.app.training.errors import ConfigError

_LARGEST_COUNT = 2**31 - 1
_Class = TypeVar("_Class", bound=type)

Check = Callable[[Any], str | None]
"""Takes a value, and returns what was expected instead, or None where the value is right."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A declared setting.

    Args:
        name: of the field.
        type: of its values, None left out.
        optional: whether None is a value too.
        default: of the field.
        help: sentence of the option's help; empty where the command has no such option.
        panel: group of options that it stands in.
        checks: in the order in which they are made.
        names: of the option, where it has others than its own.
        path: whether the option takes a path; the setting keeps its text.
    """

    name: str
    type: Any
    optional: bool
    default: Any
    help: str
    panel: str
    checks: tuple[Check, ...]
    names: tuple[str, ...]
    path: bool


def setting(
    default: Any, help: str, panel: str, *checks: Check, names: tuple[str, ...] = (), path: bool = False
) -> Any:
    """Returns the field of a dataclass that declares a setting; for the arguments see `Setting`."""
    declared = {"help": help, "panel": panel, "checks": checks, "names": names, "path": path}
    return dataclasses.field(default=default, metadata=declared)


@cache
def settings_of(config: type) -> tuple[Setting, ...]:
    """Returns the declared settings of a dataclass, in its order."""
    hints = get_type_hints(config)

    def declared() -> Iterator[Setting]:
        for field in dataclasses.fields(config):
            hint, said = hints[field.name], dict(field.metadata)
            optional = NoneType in get_args(hint)
            if optional:
                (hint,) = (part for part in get_args(hint) if part is not NoneType)
            said["checks"] = said["checks"] or (_check_of(hint),)
            yield Setting(field.name, hint, optional, field.default, **said)

    return tuple(declared())


def check_settings(config: object) -> None:
    """Checks each setting by itself.

    Raises:
        ConfigError: names the first that is wrong, what was expected and what came.
    """
    # mypy takes the hash of instances for that of their class.
    for declared in settings_of(type(config)):  # type: ignore[arg-type]
        value = getattr(config, declared.name)
        if value is None and declared.optional:
            continue
        for check in declared.checks:
            expected = check(value)
            if expected is not None:
                raise wrong(config, declared.name, expected)


def wrong(config: Any, name: str, expected: str) -> ConfigError:
    """Returns the error for the value that a setting has."""
    return ConfigError(name, f"expected {expected}, got {getattr(config, name)!r}")


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
    """What values of a type may be."""
    if get_origin(hint) is Literal:
        words = get_args(hint)
        return such_that(words.__contains__, f"one of {', '.join(words)}")
    if hint is bool:
        return such_that(lambda value: type(value) is bool, "true or false")
    if hint is str:
        return such_that(lambda value: isinstance(value, str), "text")
    raise TypeError(f"hint: expected a Literal, bool or str without a check of its own, got {hint}")
