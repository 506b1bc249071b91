"""The `snnlib` command: `train`, `eval`, `profile`, `predict` and `doctor`."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from snnlib import __version__
from snnlib.app.data_cli import app as data_app
from snnlib.app.export_cli import app as export_app
from snnlib.app.nir_cli import app as nir_app
from snnlib.app.recipes import BY_DATA
from snnlib.app.recipes import recipe as find_recipe
from snnlib.app.training.config import (
    MACHINE_FIELDS,
    DataName,
    Device,
    FrameMode,
    LateEvents,
    LossName,
    NeuronName,
    Precision,
    SurrogateName,
    TrainConfig,
)
from snnlib.app.training.errors import CheckpointError, ConfigError
from snnlib.app.training.run_folder import RunFolder
from snnlib.data import EventFileError
from snnlib.data.atomic import write_bytes_atomically

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

app.add_typer(data_app, name="data")
app.add_typer(nir_app, name="nir")
app.add_typer(export_app, name="export")

_D = TrainConfig
_EXTRAS = ("lightning", "tensorboard", "matplotlib", "jinja2")


def _option(help_text: str, panel: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


def _version(asked: bool) -> None:
    if asked:
        print(f"snnlib {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            is_eager=True,
            callback=_version,
        ),
    ] = False,
) -> None:
    """Spiking neural networks for event data: train, test, predict."""


@app.command()
def train(
    context: typer.Context,
    recipe: Annotated[
        str,
        _option(
            "Take the settings of this recipe; options given beside it override them. Default: digits, ecg for "
            "electrocardiograms and speech for speech.",
            "Recipe",
        ),
    ] = "digits",
    data: Annotated[
        DataName,
        _option(
            "Train on the embedded digits, which need no download, on a copy of N-MNIST (nmnist), or on a folder of "
            "event files (folder); or on sequences without frames: electrocardiograms with a label at every step "
            "(ecg), recorded voices (spoken-digits), Spiking Heidelberg Digits (shd), Spiking Speech Commands (ssc).",
            "Data",
        ),
    ] = _D.data,
    root: Annotated[
        Path | None,
        _option(
            "Read the data from this folder, which holds Train/ and Test/ or zips of them (nmnist), or one folder per "
            "class with event files of any formats (folder), or the files of the data set.",
            "Data",
        ),
    ] = None,
    time_steps: Annotated[int, _option("Bin each sample into this many time steps.", "Data")] = _D.time_steps,
    step_ms: Annotated[
        float, _option("Make each time step this many milliseconds long.", "Data")
    ] = _D.step_ms,
    channels: Annotated[
        int, _option("Hear spoken digits with a cochlea of this many frequency channels.", "Data")
    ] = _D.channels,
    crop: Annotated[
        str | None, _option("Use this part of the sensor, WIDTHxHEIGHT+LEFT+TOP in pixels.", "Data")
    ] = _D.crop,
    pool: Annotated[int, _option("Join squares of this many pixels by side to one.", "Data")] = _D.pool,
    frames: Annotated[
        FrameMode,
        _option("Set a cell with events to 1 (binary) or to the number of its events (count).", "Data"),
    ] = _D.frames,
    late: Annotated[
        LateEvents,
        _option("Put events after the last step into it (clamp) or leave them out (drop).", "Data"),
    ] = _D.late,
    net: Annotated[
        str,
        _option(
            "Build these layers: 12C5p1 is a convolution, P2 a pooling, 10 a linear layer, 128R a recurrent one, 64RB "
            "one that reads in both directions.",
            "Net",
        ),
    ] = _D.net,
    neuron: Annotated[
        NeuronName,
        _option("Build layers of these neurons; all but srm learn with a surrogate gradient.", "Net"),
    ] = _D.neuron,
    tau: Annotated[
        float, _option("Set the membrane time constant of all neurons but srm, in time steps.", "Net")
    ] = _D.tau,
    surrogate: Annotated[
        SurrogateName, _option("Take a surrogate gradient of this shape.", "Net")
    ] = _D.surrogate,
    surrogate_width: Annotated[
        float, _option("Set the half width of a triangle or rectangle, in thresholds.", "Net")
    ] = _D.surrogate_width,
    batch_norm: Annotated[
        bool,
        _option(
            "Normalise currents over each batch before the neurons, not for srm.",
            "Net",
            "--batch-norm/--no-batch-norm",
        ),
    ] = _D.batch_norm,
    tau_m: Annotated[
        float, _option("Set the membrane time constant of srm neurons and read-outs, in time steps.", "Net")
    ] = _D.tau_m,
    tau_s: Annotated[
        float, _option("Set the synaptic time constant of srm neurons and read-outs, in time steps.", "Net")
    ] = _D.tau_s,
    tau_grad: Annotated[
        float | None, _option("Set the time constant of the gradient kernel, in time steps.", "Net")
    ] = _D.tau_grad,
    target_rate: Annotated[
        float, _option("Calibrate hidden layers to this many spikes per neuron and time step.", "Net")
    ] = _D.target_rate,
    output_rate: Annotated[
        float, _option("Calibrate the output layer to this many spikes per neuron and time step.", "Net")
    ] = _D.output_rate,
    val_split: Annotated[
        float,
        _option("Hold out this share of the training samples and choose the best epoch by them.", "Learning"),
    ] = _D.val_split,
    epochs: Annotated[int, _option("Pass this many times over the training set.", "Learning")] = _D.epochs,
    batch_size: Annotated[
        int, _option("Take this many samples per batch; each device has one batch per step.", "Learning")
    ] = _D.batch_size,
    accumulate: Annotated[
        int, _option("Add the gradients of this many batches before each step.", "Learning")
    ] = _D.accumulate,
    copies: Annotated[
        int, _option("Put each sample into its batch this many times, augmented anew each time.", "Learning")
    ] = _D.copies,
    lr: Annotated[
        float, _option("Set the peak learning rate of AdamW, which decays along a cosine.", "Learning")
    ] = _D.lr,
    warmup_epochs: Annotated[
        float, _option("Let the learning rate rise linearly for this many epochs.", "Learning")
    ] = _D.warmup_epochs,
    weight_decay: Annotated[float, _option("Set the weight decay of AdamW.", "Learning")] = _D.weight_decay,
    clip_norm: Annotated[
        float | None,
        _option(
            "Scale gradients down to this norm; leave out steps whose gradient is not finite.",
            "Learning",
        ),
    ] = _D.clip_norm,
    shift: Annotated[int, _option("Move training samples by up to this many pixels.", "Learning")] = _D.shift,
    rotate: Annotated[
        float, _option("Rotate training samples by up to this many degrees.", "Learning")
    ] = _D.rotate,
    warp: Annotated[float, _option("Warp training samples by about this many pixels.", "Learning")] = _D.warp,
    loss: Annotated[
        LossName,
        _option(
            "Minimise this loss of output potentials (tet), spike counts, spike times or spike trains.",
            "Learning",
        ),
    ] = _D.loss,
    logit_scale: Annotated[
        float, _option("Multiply spike counts by this to get the logits of cross-entropy losses.", "Learning")
    ] = _D.logit_scale,
    desired: Annotated[
        float, _option("Ask the neuron of the true class for this many spikes (count losses).", "Learning")
    ] = _D.desired,
    undesired: Annotated[
        float, _option("Ask the other output neurons for this many spikes (count losses).", "Learning")
    ] = _D.undesired,
    seed: Annotated[
        int,
        _option("Draw weights, the order of samples and all else that is random from this seed.", "Learning"),
    ] = _D.seed,
    out: Annotated[
        Path | None, _option("Write the run to this folder, new or empty; default runs/<data>-<time>.", "Run")
    ] = None,
    resume: Annotated[Path | None, _option("Go on with the run in this folder.", "Run")] = None,
    device: Annotated[
        Device,
        _option(
            "Compute on this device; auto takes a GPU where there is one.", "Run", "--device", "--accelerator"
        ),
    ] = _D.device,
    devices: Annotated[
        int, _option("Train on this many GPUs (or in as many CPU processes) together.", "Run")
    ] = _D.devices,
    nodes: Annotated[
        int, _option("Train on this many machines together; start the command on each by torchrun.", "Run")
    ] = _D.nodes,
    precision: Annotated[
        Precision,
        _option("Store weights and spikes in this precision; bf16-mixed keeps weights in float32.", "Run"),
    ] = _D.precision,
    threads: Annotated[
        int | None, _option("Use this many CPU threads; the default is torch's choice.", "Run")
    ] = _D.threads,
    workers: Annotated[
        int, _option("Read data in this many further processes; 0 reads in the main process.", "Run")
    ] = _D.workers,
) -> None:
    """Train a spiking net and write a report that shows what it learned.

    With no options it trains on the embedded digits. The run folder gets config.json, metrics.csv, checkpoints,
    TensorBoard logs, pictures and report.html.

    Try it: snnlib train

    Your data: snnlib train --recipe nmnist --root ~/N-MNIST --epochs 20 --out runs/first

    Any event files, one folder per class: snnlib train --data folder --root recordings

    A label at every step: snnlib train --data ecg --root qtdb

    Go on after a stop: snnlib train --resume runs/first
    """
    # Lightning takes seconds to import; its own further processes, which have a rank, keep quiet.
    if "LOCAL_RANK" not in os.environ:
        print(f"snnlib {__version__}: loading the training packages", flush=True)
    _need_extras()
    from snnlib.app.training.folder_settings import choose_settings  # noqa: PLC0415
    from snnlib.app.training.report import write_report  # noqa: PLC0415
    from snnlib.app.training.run import is_first_process, train_run  # noqa: PLC0415
    from snnlib.app.training.summary import print_summary, run_facts  # noqa: PLC0415

    console = _console()
    given = {name: value for name, value in context.params.items() if _was_given(context, name)}
    if root is not None:
        given["root"] = str(root)
    # torchrun starts the same command again where a process has failed: the run then goes on.
    again = resume is None and out is not None and _may_restart() and RunFolder(out).config.is_file()
    going_on = out if again else resume
    if going_on is not None:
        left_out = {"out", "recipe"} if again else {"resume"}
        changes = {name: value for name, value in given.items() if name not in left_out}
        run, config = _open_for_resume(going_on, changes, "out" if again else "resume")
    else:
        named, own = (recipe, {}) if "recipe" in given else BY_DATA.get(given.get("data", ""), (recipe, {}))
        chosen = find_recipe(named)
        changes = {name: given[name] for name in given if name in _D.__dataclass_fields__}
        chosen_here = None
        if changes.get("data") == "folder":
            chosen_here = choose_settings(changes.get("root"), changes)
        config = chosen.config(**{**own, **(chosen_here.settings if chosen_here else {}), **changes})
        # Only the first of several processes makes the folder; the others would find it full.
        run = RunFolder.create(out, config) if is_first_process() else RunFolder(out or Path("runs"))
        if is_first_process():
            changed = [
                name for name in changes if changes[name] != chosen.settings.get(name, getattr(_D, name))
            ]
            console.print(f"{chosen}\n  changed here: {', '.join(changed) or 'nothing'}", soft_wrap=True)
            if chosen_here:
                console.print(
                    "\n  ".join(["chosen for these recordings:", *chosen_here.reasons]), soft_wrap=True
                )
    if is_first_process():
        console.print(f"run folder: {run.path}", soft_wrap=True)
    try:
        result = train_run(config, run, resume=going_on is not None, progress=sys.stderr.isatty())
    except KeyboardInterrupt:
        console.print(f"stopped; to go on: snnlib train --resume {run.path}", soft_wrap=True)
        raise typer.Exit(130) from None
    if is_first_process():
        write_report(result, run)
        console.print()
        print_summary(run_facts(result), result.test, console)
        console.print(f"\nreport: {run.report}", soft_wrap=True)
    if result.diverged:
        raise typer.Exit(1)


@app.command("eval")
def evaluate(
    run_folder: Annotated[Path, typer.Argument(help="Folder of a run, as `snnlib train` printed it.")],
    checkpoint: Annotated[
        Literal["last", "best"],
        typer.Option(help="Take the net after the last epoch, or after the best one on the validation set."),
    ] = "last",
    data: Annotated[DataName | None, typer.Option(help="Test on other data than the run's.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Read the data from another folder than the run's.")
    ] = None,
    device: Annotated[
        Device, typer.Option(help="Compute on this device; auto takes a GPU where there is one.")
    ] = "auto",
) -> None:
    """Test a trained net: accuracy, confusion and spike rates on the test set.

    Example: snnlib eval runs/first
    """
    _need_extras()
    from snnlib.app.training.run import test_run  # noqa: PLC0415
    from snnlib.app.training.summary import print_confusion, print_summary, test_facts  # noqa: PLC0415

    run, config = RunFolder.open(run_folder, "RUN_FOLDER")
    # One device is enough for a test, and the machine need not be the run's.
    changes: dict[str, Any] = {"device": device, "devices": 1, "nodes": 1}
    if root is not None:
        changes["root"] = str(root)
    if data is not None and data != config.data:
        # Where the run's data lie says nothing about other data.
        changes = {"root": None, **changes, "data": data}
    result = test_run(
        dataclasses.replace(config, **changes), run, checkpoint=checkpoint, progress=sys.stderr.isatty()
    )
    console = _console()
    print_summary(test_facts(result), result, console)
    console.print()
    print_confusion(result, console)


@app.command("profile")
def profile_run(
    run_folder: Annotated[Path, typer.Argument(help="Folder of a run, as `snnlib train` printed it.")],
    checkpoint: Annotated[
        Literal["last", "best"],
        typer.Option(help="Take the net after the last epoch, or after the best one on the validation set."),
    ] = "last",
    samples: Annotated[
        int | None, typer.Option(help="Look at the first samples of the test set only, this many.", min=1)
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Read the data from another folder than the run's.")
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Also write the numbers to this file, under the names of NeuroBench."),
    ] = None,
) -> None:
    """Count what a trained net does with its test set: operations, sparsity, memory and energy of each layer.

    Example: snnlib profile runs/first
    """
    _need_extras()
    from snnlib.app.training.profiling import run_profile  # noqa: PLC0415

    run, config = RunFolder.open(run_folder, "RUN_FOLDER")
    if root is not None:
        config = dataclasses.replace(config, root=str(root))
    found = run_profile(config, run, checkpoint, samples, progress=sys.stderr.isatty())
    print(found)
    if json_file is not None:
        write_bytes_atomically(json_file, json.dumps(found.neurobench(), indent=4).encode())
        print(f"numbers: {json_file}")


@app.command()
def predict(
    run_folder: Annotated[Path, typer.Argument(help="Folder of a run, as `snnlib train` printed it.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Event files of any format that snnlib.data.read knows, WAV files for spoken digits."
        ),
    ],
    checkpoint: Annotated[
        Literal["last", "best"],
        typer.Option(help="Take the net after the last epoch, or after the best one on the validation set."),
    ] = "last",
) -> None:
    """Classify event files with a trained net: one line per file, fields separated by tabs.

    The fields are the file, its class and the score of that class, then the class with the second highest score and its
    score. A file that cannot be read is reported, the others are classified all the same, and the exit code is 2.

    Example: snnlib predict runs/first sample.bin
    """
    _need_extras()
    from snnlib.app.training.load import Predictor  # noqa: PLC0415

    run, config = RunFolder.open(run_folder, "RUN_FOLDER")
    predictor = Predictor(config, run, checkpoint)
    print("file\tclass\tscore\tsecond class\tscore")
    failed = False
    for file in files:
        try:
            scores = predictor.scores(file)
        except (EventFileError, OSError, ImportError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed = True
            continue
        (first, second), order = predictor.names_of(scores), scores.sort(descending=True).values
        print(f"{file}\t{first}\t{order[0]:.4g}\t{second}\t{order[1]:.4g}")
    if failed:
        raise typer.Exit(2)


@app.command()
def doctor() -> None:
    """Print versions, the machine, and which path every op takes and why."""
    from snnlib.inspect.environment import print_report  # noqa: PLC0415

    print_report()


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `snnlib` command; wrong input ends with one line and exit code 2.

    A run that diverged ends with exit code 1. With the environment variable SNNLIB_DEBUG set, errors keep their
    traceback.
    """
    standard = warnings.formatwarning
    # One line, without the place in the code that raised it.
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        app(args=arguments, prog_name="snnlib")
    except (ConfigError, CheckpointError, EventFileError, OSError, ImportError) as error:
        if os.environ.get("SNNLIB_DEBUG"):
            raise
        text = str(error)
        options = {*_D.__dataclass_fields__, "out", "resume", "recipe", "checkpoint"}
        if isinstance(error, ConfigError) and error.field in options:
            text = f"--{error.field.replace('_', '-')}: {error.text}"
        print(f"error: {text}", file=sys.stderr)
        sys.exit(2)
    finally:
        warnings.formatwarning = standard


def _may_restart() -> bool:
    """Whether torchrun was given `--max-restarts`."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


def _open_for_resume(folder: Path, given: dict[str, Any], option: str) -> tuple[RunFolder, TrainConfig]:
    for name in ("recipe", "out"):
        if name in given:
            raise ConfigError(name, f"expected none beside --resume, got {str(given[name])!r}")
    run, config = RunFolder.open(folder, option, writable=True)
    for name, value in given.items():
        before = getattr(config, name, None)
        if name not in MACHINE_FIELDS and value != before:
            raise ConfigError(
                name,
                f"expected no other value than the resumed run's, {before!r} in {run.config}, got {value!r}",
            )
    return run, dataclasses.replace(config, **{name: given[name] for name in given if name in MACHINE_FIELDS})


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _need_extras() -> None:
    for package in _EXTRAS:
        try:
            __import__(package)
        except ImportError as error:
            raise ImportError(
                f"training needs the package {package}, which is not installed: pip install 'snnlib[train]'"
            ) from error


def _console() -> Console:
    # A pipe gets lines as wide as they need to be: no box or fold of a terminal that is not there.
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


if __name__ == "__main__":
    main()
