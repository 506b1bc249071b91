"""Makes the options of a command from a dataclass of declared settings (`snnlib.app.setting`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from snnlib.app.setting import Setting, settings_of

_Command = TypeVar("_Command", bound=Callable[..., None])


def with_options(settings: type) -> Callable[[_Command], _Command]:
    """Gives a command an option per setting, in the groups and with the words that the settings declare.

    Args:
        settings: the dataclass. The command takes the values of its options as further keyword arguments.
    """

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        named = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for parameter in own
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        options = [_parameter(setting) for setting in settings_of(settings) if setting.help]
        groups = list(dict.fromkeys(map(_group, options)))
        # Typer shows groups and options in this order: the command's own first, among groups and within each.
        order = [group for group in map(_group, named) if group not in groups] + groups
        parameters = sorted([*named, *options], key=lambda parameter: order.index(_group(parameter)))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def given_options(context: typer.Context, settings: type) -> dict[str, Any]:
    """Returns the options that were given on the command line, paths of settings as their text."""
    paths = {setting.name for setting in settings_of(settings) if setting.path}
    return {
        name: str(value) if name in paths else value
        for name, value in context.params.items()
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    }


def _parameter(setting: Setting) -> inspect.Parameter:
    kind: Any = Path if setting.path else setting.type
    words = (setting.name, setting.also) if setting.also else ()
    names = [f"--{word.replace('_', '-')}" for word in words]
    option = typer.Option(*names, help=setting.help, rich_help_panel=setting.group)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=setting.default,
        annotation=Annotated[kind | None if setting.optional else kind, option],
    )


def _group(parameter: inspect.Parameter) -> str | None:
    """The group of options that a parameter stands in; None for what is no option."""
    said = (part for part in get_args(parameter.annotation) if hasattr(part, "rich_help_panel"))
    return next((option.rich_help_panel for option in said), None)
