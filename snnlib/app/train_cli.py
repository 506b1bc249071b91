"""`snnlib train`: options to settings, settings to a run."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from snnlib import __version__, data
from snnlib.app.cli_tools import need_extras
from snnlib.app.errors import ConfigError
from snnlib.app.kinds import KINDS
from snnlib.app.kinds.base import Kind
from snnlib.app.recipes import recipe as find_recipe
from snnlib.app.setting import Setting, settings_of
from snnlib.app.training.config import DEFAULTS, MACHINE_FIELDS, TrainConfig
from snnlib.app.training.run_folder import RunFolder
from snnlib.app.training.settings import RunSettings

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
    option = typer.Option(help=setting.help, rich_help_panel=setting.group)
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


@with_options(TrainConfig)
def train(
    context: typer.Context,
    recipe: Annotated[
        str,
        typer.Option(
            help="Take the settings of this recipe; options given beside it override them. Default: that of --data.",
            rich_help_panel="Recipe",
        ),
    ] = "digits",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the run to this folder, new or empty; default runs/<data>-<time>.",
            rich_help_panel=RunSettings.group,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the run in this folder.", rich_help_panel=RunSettings.group),
    ] = None,
    download: Annotated[
        bool,
        typer.Option(
            help="First download the data set's files that are missing, into --root or the library's cache folder.",
            rich_help_panel="Data",
        ),
    ] = False,
    **settings: Any,
) -> None:
    """Train a spiking net and write a report that shows what it learned.

    With no options it trains on the embedded digits. The run folder gets config.json, metrics.csv, checkpoints,
    TensorBoard logs, pictures and report.html.

    Try it: snnlib train

    Your data: snnlib train --recipe nmnist --root ~/N-MNIST --epochs 20 --out runs/first

    Data that come when asked: snnlib train --recipe mnist --download

    Any event files, one folder per class: snnlib train --data folder --root recordings

    Images: snnlib train --data mnist --root ~/mnist

    Simulated events first: snnlib train --data mnist-events --root ~/mnist --out runs/pre; then recordings: snnlib
    train --recipe nmnist --root ~/N-MNIST --init-from runs/pre --lr 5e-3

    A label at every step: snnlib train --data ecg --root qtdb

    Go on after a stop: snnlib train --resume runs/first
    """
    # Lightning takes seconds to import; its own further processes, which have a rank, keep quiet.
    if "LOCAL_RANK" not in os.environ:
        print(f"snnlib {__version__}: loading the training packages", flush=True)
    need_extras()
    from snnlib.app.training.report import write_report  # noqa: PLC0415
    from snnlib.app.training.run import is_first_process, train_run  # noqa: PLC0415
    from snnlib.app.training.summary import print_summary, run_facts  # noqa: PLC0415

    # `settings` are all options of TrainConfig; a recipe's settings give way only to those that were given.
    given = given_options(context, TrainConfig)
    # torchrun starts the same command again where a process has failed: the run then goes on.
    again = resume is None and out is not None and _may_restart() and RunFolder(out).config.is_file()
    going_on = out if again else resume
    if going_on is None:
        run, config = _start(recipe, given, out, download)
    else:
        left_out = {"out", "recipe", "download"} if again else {"resume"}
        changes = {name: value for name, value in given.items() if name not in left_out}
        run, config = _go_on(going_on, changes, "out" if again else "resume")
    if is_first_process():
        print(
            f"run folder: {run.path}, for checkpoints and metrics.csv after every epoch and report.html at the end\n"
            f"to stop: Ctrl-C; to go on after the last whole epoch: {_resume_command(run)}",
            flush=True,
        )
    try:
        result = train_run(config, run, resume=going_on is not None, progress=sys.stderr.isatty())
    except KeyboardInterrupt:
        print(f"stopped; to go on: {_resume_command(run)}")
        raise typer.Exit(130) from None
    if is_first_process():
        write_report(result, run)
        print()
        print_summary(run_facts(result), result.test)
        print(f"\nreport: {run.report}")
    if result.diverged:
        raise typer.Exit(1)


def _start(
    recipe: str, given: dict[str, Any], out: Path | None, download: bool
) -> tuple[RunFolder, TrainConfig]:
    """A new run: the recipe's settings, what fits the recordings, and over both what was given."""
    from snnlib.app.training.run import is_first_process  # noqa: PLC0415

    kind = KINDS[given.get("data", DEFAULTS["data"])]
    chosen = find_recipe(recipe if "recipe" in given else kind.recipe)
    own = {} if "recipe" in given else kind.changes
    changes = {name: given[name] for name in given if name in DEFAULTS}
    if download:
        asked = changes.get("data", chosen.settings.get("data", DEFAULTS["data"]))
        changes["root"] = str(_downloaded(KINDS[asked], changes.get("root")))
    fitting = kind.choose(changes)
    config = chosen.config(**{**own, **(fitting.settings if fitting else {}), **changes})
    if "root" in changes and "data" not in changes and config.data.kind.folder is None:
        raise ConfigError(
            "root",
            "expected --data beside --root, as the embedded digits need no folder: --data folder for recordings in one "
            f"folder per class, got --root {changes['root']} alone",
        )
    for field in ("time_steps", "overflow"):
        # Not refused by the settings themselves: runs of earlier versions may hold any value.
        if field in changes and config.data.kind.ragged:
            raise ConfigError(
                field,
                f"expected no value for {config.data.data}, whose sequences keep their own lengths, got {given[field]}",
            )
    # Only the first of several processes makes the folder; the others would find it full.
    if not is_first_process():
        return RunFolder(out or Path("runs")), config
    run = RunFolder.create(out, config)
    usual = {name: chosen.settings.get(name, DEFAULTS[name]) for name in changes}
    changed = [
        f"{name} {changes[name]}" + ("" if usual[name] is None else f" (recipe: {usual[name]})")
        for name in changes
        if changes[name] != usual[name]
    ]
    print(f"{chosen}\n  changed here: {', '.join(changed) or 'nothing'}")
    if beside := chosen.beside(changes):
        texts = (f"{name} {config.settings()[name]}" for name in beside if name not in changes)
        why = (
            "standardised weights"
            if config.net.dialect is None
            else f"the arithmetic of {config.net.dialect}"
        )
        print(f"  with {why}: {', '.join(texts)}")
    if fitting:
        print("\n  ".join(["chosen for these data:", *fitting.reasons]))
    return run, config


def _downloaded(kind: Kind, root: str | None) -> Path:
    """Downloads the data of a kind; returns their folder."""
    if kind.public is None:
        public = ", ".join(name for name, own in KINDS.items() if own.public)
        raise ConfigError(
            "download", f"expected a data set with a public download ({public}), got --data {kind.name}"
        )
    return data.download(kind.public, root)


def _resume_command(run: RunFolder) -> str:
    return f"snnlib train --resume {shlex.quote(str(run.path))}"


def _may_restart() -> bool:
    """Returns whether torchrun was given `--max-restarts`."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


def _go_on(folder: Path, given: dict[str, Any], option: str) -> tuple[RunFolder, TrainConfig]:
    """The run in a folder, with what may differ from machine to machine as it was given."""
    for name in ("recipe", "out", "download"):
        if name in given:
            raise ConfigError(name, f"expected no value beside --resume, got {str(given[name])!r}")
    run, config = RunFolder.open(folder, option, writable=True)
    for name, value in given.items():
        before = config.settings().get(name)
        if name not in MACHINE_FIELDS and value != before:
            raise ConfigError(
                name,
                f"expected no other value than the resumed run's, {before!r} in {run.config}, got {value!r}; to "
                "train on with it, start a new run on the same data from these weights: "
                f"--init-from {shlex.quote(str(run.path))} in place of --resume",
            )
    return run, config.changed(**{name: given[name] for name in given if name in MACHINE_FIELDS})
