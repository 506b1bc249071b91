"""`snnlib train`: options to settings, settings to a run."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from snnlib import __version__
from snnlib.app.cli_tools import console, need_extras
from snnlib.app.read_options import HELP
from snnlib.app.recipes import BY_DATA
from snnlib.app.recipes import recipe as find_recipe
from snnlib.app.training.config import (
    MACHINE_FIELDS,
    SEQUENCES,
    DataName,
    Device,
    FrameMode,
    ImageEncoding,
    LateEvents,
    LossName,
    NeuronName,
    Precision,
    Start,
    SurrogateName,
    TrainConfig,
)
from snnlib.app.training.errors import ConfigError
from snnlib.app.training.run_folder import RunFolder

_D = TrainConfig


def _option(help_text: str, panel: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


def train(
    context: typer.Context,
    recipe: Annotated[
        str,
        _option(
            "Take the settings of this recipe; options given beside it override them. Default: digits, ecg for "
            "electrocardiograms, speech for speech, mnist, fashion-mnist and mnist-events for their data.",
            "Recipe",
        ),
    ] = "digits",
    data: Annotated[
        DataName,
        _option(
            "Train on the embedded digits, which need no download, on a copy of N-MNIST (nmnist), on MNIST's images as "
            "a simulated event camera sees them (mnist-events), or on a folder of event files (folder); on images: "
            "MNIST (mnist), Fashion-MNIST (fashion-mnist) or a folder of PNG or JPEG files (images); or on sequences "
            "without frames: electrocardiograms with a label at every step (ecg), recorded voices (spoken-digits), "
            "Spiking Heidelberg Digits (shd), Spiking Speech Commands (ssc).",
            "Data",
        ),
    ] = _D.data,
    root: Annotated[
        Path | None,
        _option(
            "Read the data from this folder, which holds Train/ and Test/ or zips of them (nmnist), or one folder per "
            "class with event files of any formats (folder) or with images (images), or the files of the data set.",
            "Data",
        ),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", help=f"{HELP} For --data folder.", rich_help_panel="Data"),
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
    encoding: Annotated[
        ImageEncoding,
        _option(
            "Show an image as currents at every step, as spikes by rate or latency, or row by row or pixel by pixel.",
            "Data",
        ),
    ] = _D.encoding,
    mean: Annotated[
        float, _option("Subtract this from the pixels of images, which are from 0 to 1.", "Data")
    ] = _D.mean,
    std: Annotated[float, _option("Divide what is left by this.", "Data")] = _D.std,
    size: Annotated[
        str | None, _option("Resize the images of a folder to WIDTHxHEIGHT pixels.", "Data")
    ] = _D.size,
    colour: Annotated[
        bool, _option("Read the images of a folder in colour.", "Data", "--colour/--no-colour")
    ] = _D.colour,
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
    input_grad_scale: Annotated[
        float, _option("Multiply the gradient that srm layers hand to the layer before by this.", "Learning")
    ] = _D.input_grad_scale,
    init: Annotated[
        Path | None,
        _option(
            "Begin with the last weights of the run in this folder, which has the same net, instead of new ones.",
            "Net",
        ),
    ] = None,
    start: Annotated[
        Start,
        _option(
            "Begin with srm weights whose channels fire at one rate, or with weights of mean 0, for images.",
            "Net",
        ),
    ] = _D.start,
    target_rate: Annotated[
        float, _option("Calibrate hidden layers to this many spikes per neuron and time step.", "Net")
    ] = _D.target_rate,
    output_rate: Annotated[
        float, _option("Calibrate the output layer to this many spikes per neuron and time step.", "Net")
    ] = _D.output_rate,
    val_split: Annotated[
        float,
        _option(
            "Hold out this share of the training samples and keep the checkpoint of the best epoch, the first with the "
            "highest accuracy on them.",
            "Learning",
        ),
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
    operations_weight: Annotated[
        float,
        _option(
            "Add the share of synaptic operations that spikes cause, times this factor, to the loss, so that the net "
            "learns to do with fewer.",
            "Learning",
        ),
    ] = _D.operations_weight,
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
    graph: Annotated[
        bool,
        _option(
            "Capture a training step as one CUDA graph, by which small nets are faster on a GPU.",
            "Run",
            "--graph/--no-graph",
        ),
    ] = _D.graph,
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

    Images: snnlib train --data mnist --root ~/mnist

    Simulated events first: snnlib train --data mnist-events --root ~/mnist --out runs/pre; then recordings: snnlib
    train --recipe nmnist --root ~/N-MNIST --init runs/pre --lr 5e-3

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

    given = {name: value for name, value in context.params.items() if _was_given(context, name)}
    for name, path in (("root", root), ("init", init)):
        if path is not None:
            given[name] = str(path)
    # torchrun starts the same command again where a process has failed: the run then goes on.
    again = resume is None and out is not None and _may_restart() and RunFolder(out).config.is_file()
    going_on = out if again else resume
    if going_on is None:
        run, config = _start(recipe, given, out)
    else:
        left_out = {"out", "recipe"} if again else {"resume"}
        changes = {name: value for name, value in given.items() if name not in left_out}
        run, config = _go_on(going_on, changes, "out" if again else "resume")
    screen = console()
    if is_first_process():
        screen.print(
            f"run folder: {run.path}, for checkpoints and metrics.csv after every epoch and report.html at the end\n"
            f"to stop: Ctrl-C; to go on after the last whole epoch: {_resume_command(run)}",
            soft_wrap=True,
        )
    try:
        result = train_run(config, run, resume=going_on is not None, progress=sys.stderr.isatty())
    except KeyboardInterrupt:
        screen.print(f"stopped; to go on: {_resume_command(run)}", soft_wrap=True)
        raise typer.Exit(130) from None
    if is_first_process():
        write_report(result, run)
        screen.print()
        print_summary(run_facts(result), result.test, screen)
        screen.print(f"\nreport: {run.report}", soft_wrap=True)
    if result.diverged:
        raise typer.Exit(1)


def _start(recipe: str, given: dict[str, Any], out: Path | None) -> tuple[RunFolder, TrainConfig]:
    """A new run: the recipe's settings, what fits the recordings, and over both what was given."""
    from snnlib.app.training.folder_settings import choose_settings  # noqa: PLC0415
    from snnlib.app.training.image_settings import choose_image_settings  # noqa: PLC0415
    from snnlib.app.training.run import is_first_process  # noqa: PLC0415

    named, own = (recipe, {}) if "recipe" in given else BY_DATA.get(given.get("data", ""), (recipe, {}))
    chosen = find_recipe(named)
    changes = {name: given[name] for name in given if name in _D.__dataclass_fields__}
    fitting = choose_settings(changes.get("root"), changes) if changes.get("data") == "folder" else None
    if changes.get("data") == "images":
        fitting = choose_image_settings(changes.get("root"), changes)
    config = chosen.config(**{**own, **(fitting.settings if fitting else {}), **changes})
    if "root" in changes and "data" not in changes and config.data == _D.data:
        raise ConfigError(
            "root",
            "expected --data beside it, as the embedded digits need no folder: --data folder for recordings in one "
            f"folder per class, got --root {changes['root']} alone",
        )
    for field in ("time_steps", "late"):
        # Not refused by the settings themselves: runs of earlier versions may hold any value.
        if field in changes and config.data in SEQUENCES:
            raise ConfigError(
                field,
                f"expected none for {config.data}, whose sequences keep their own lengths, got {given[field]}",
            )
    # Only the first of several processes makes the folder; the others would find it full.
    if not is_first_process():
        return RunFolder(out or Path("runs")), config
    run = RunFolder.create(out, config)
    usual = {name: chosen.settings.get(name, getattr(_D, name)) for name in changes}
    changed = [
        f"{name} {changes[name]}" + ("" if usual[name] is None else f" (recipe: {usual[name]})")
        for name in changes
        if changes[name] != usual[name]
    ]
    screen = console()
    screen.print(f"{chosen}\n  changed here: {', '.join(changed) or 'nothing'}", soft_wrap=True)
    if fitting:
        screen.print("\n  ".join(["chosen for these data:", *fitting.reasons]), soft_wrap=True)
    return run, config


def _resume_command(run: RunFolder) -> str:
    return f"snnlib train --resume {shlex.quote(str(run.path))}"


def _may_restart() -> bool:
    """Whether torchrun was given `--max-restarts`."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


def _go_on(folder: Path, given: dict[str, Any], option: str) -> tuple[RunFolder, TrainConfig]:
    """The run in a folder, with what may differ from machine to machine as it was given."""
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
