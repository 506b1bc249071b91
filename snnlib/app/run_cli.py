"""Commands that take the folder of a run: `eval`, `profile` and `predict`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from snnlib.app.cli_tools import CheckpointOption, RootOption, RunArgument, need_extras
from snnlib.app.kinds import KINDS
from snnlib.app.training.run_folder import RunFolder
from snnlib.data import EventFileError
from snnlib.files.atomic import write_bytes_atomically


def evaluate(
    run_folder: RunArgument,
    checkpoint: CheckpointOption = "last",
    data: Annotated[
        str | None, typer.Option(help=f"Test on other data than the run's: {', '.join(KINDS)}.")
    ] = None,
    root: RootOption = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option(help="Compute on this device; auto takes a GPU if there is one."),
    ] = "auto",
) -> None:
    """Test a trained net: accuracy, confusion and spike rates on the test set.

    Example: snnlib eval runs/first
    """
    need_extras()
    from snnlib.app.training.run import test_run  # noqa: PLC0415
    from snnlib.app.training.summary import print_confusion, print_summary, test_facts  # noqa: PLC0415

    run, config = RunFolder.open(run_folder, "RUN_FOLDER")
    # A single device is enough for a test, and the machine need not be the run's.
    changes: dict[str, Any] = {"device": device, "devices": 1, "nodes": 1}
    if root is not None:
        changes["root"] = str(root)
    if data is not None and data != config.data.data:
        # Where the run's data lie says nothing about other data.
        changes = {"root": None, **changes, "data": data}
    result = test_run(config.changed(**changes), run, checkpoint=checkpoint, progress=sys.stderr.isatty())
    print_summary(test_facts(result), result)
    print()
    print_confusion(result)


def profile_run(
    run_folder: RunArgument,
    checkpoint: CheckpointOption = "last",
    samples: Annotated[
        int | None, typer.Option(help="Look at the first samples of the test set only, this many.", min=1)
    ] = None,
    root: RootOption = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Also write the numbers to this file, under the names of NeuroBench."),
    ] = None,
) -> None:
    """Count what a trained net does with its test set: operations, sparsity, memory and energy per layer.

    Example: snnlib profile runs/first
    """
    need_extras()
    from torch.utils.data import DataLoader, Subset  # noqa: PLC0415

    from snnlib.app.training.data_module import EventData  # noqa: PLC0415
    from snnlib.app.training.load import load_module  # noqa: PLC0415
    from snnlib.inspect.operations import profile  # noqa: PLC0415

    run, config = RunFolder.open(run_folder, "RUN_FOLDER")
    if root is not None:
        config = config.changed(root=str(root))
    net = load_module(config, run, checkpoint).net
    data = EventData(config, progress=sys.stderr.isatty())
    data.setup("test")
    chosen: Any = data.test_set
    if samples is not None:
        chosen = Subset(chosen, range(min(samples, len(chosen))))
    # A sequence at a time, without padding.
    size = 1 if config.data.kind.ragged else config.learning.batch_size
    found = profile(net, DataLoader(chosen, batch_size=size, collate_fn=config.data.kind.collate(config)))
    print(found)
    if json_file is not None:
        write_bytes_atomically(json_file, json.dumps(found.neurobench(), indent=4).encode())
        print(f"numbers: {json_file}")


def predict(
    net: Annotated[
        str,
        typer.Argument(
            metavar="RUN_FOLDER|NAME",
            help="Folder of a run, as `snnlib train` printed it, or the name of a net that comes with the package: "
            "digits, mnist, nmnist, keywords, spoken-digits, beats. A folder of that name comes first.",
        ),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Event files of any format that snnlib.data.read knows, WAV files for spoken words, PNG or JPEG "
            "files for images, and for heart beats records, whose .hea, .dat and .atr lie side by side."
        ),
    ],
    checkpoint: CheckpointOption = "last",
    steps: Annotated[
        bool,
        typer.Option("--steps", help="Answer after every step of sound of any length, by its last second."),
    ] = False,
) -> None:
    """Classify files with a trained net: one line per file, heart beat or step, fields separated by tabs.

    The fields are the file, the time in seconds where a file has several answers, its class and the score of that
    class, then the class with the second highest score and its score; behind them, in brackets, what was done to an
    image. A file that cannot be read is reported, the others are classified all the same, and the exit code is 2.

    Example: snnlib predict runs/first sample.bin

    A net that comes with the package: snnlib predict mnist seven.png
    """
    need_extras()
    from snnlib.app.training.predict import Predictor  # noqa: PLC0415
    from snnlib.models import trained  # noqa: PLC0415

    if net in trained.names() and not Path(net).exists():
        predictor = Predictor.of_trained(net)
    else:
        run, config = RunFolder.open(Path(net), "RUN_FOLDER")
        predictor = Predictor.of_run(config, run, checkpoint)
    timed = steps or predictor.config.data.kind.times is not None
    print("file\t" + "time\t" * timed + "class\tscore\tsecond class\tscore")
    failed = False
    for file in files:
        # A name with a tab or a line end would be two fields or two lines.
        name = str(file) if str(file).isprintable() else repr(str(file))
        try:
            answers = list(predictor.answers_by_step(file) if steps else predictor.answers(file))
        except (EventFileError, OSError, ImportError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed = True
            continue
        for scores, seconds, done in answers:
            (first, second), order = predictor.names_of(scores), scores.sort(descending=True).values
            time = "" if seconds is None else f"{seconds:.3f}\t"
            after = f"\t({done})" if done else ""
            print(f"{name}\t{time}{first}\t{order[0]:.4g}\t{second}\t{order[1]:.4g}{after}")
    if failed:
        raise typer.Exit(2)
