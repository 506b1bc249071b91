"""`snnlib data`: look at event files, change their format, make pictures of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from snnlib.app.data_check import check_data, check_durations, collected_warnings, duration_of
from snnlib.app.errors import ConfigError
from snnlib.app.read_options import HELP, open_folder, read_options, size_option
from snnlib.checks import import_extra
from snnlib.data import EventFileError, EventFolder, Recording, describe_events, download, read, write
from snnlib.data.datasets.published import PUBLIC
from snnlib.data.datasets.splits import Split
from snnlib.data.formats.registry import FORMATS, format_to_write

app = typer.Typer(
    help="Look at event files, change their format, make pictures of them.", no_args_is_help=True
)

ReadOptions = Annotated[list[str] | None, typer.Option("--reader-options", "--read", help=HELP)]
_HOT_SHOWN = 5


@app.command()
def info(
    path: Annotated[
        Path, typer.Argument(help="An event file, or a folder with one folder of files per class.")
    ],
    picture: Annotated[
        Path | None,
        typer.Option(help="Write a picture of the recording (or of the folder's first) to this PNG file."),
    ] = None,
    read_option: ReadOptions = None,
) -> None:
    """Describe a file or a folder: counts, duration, rate over time, polarities, hot pixels, faults.

    Ends with code 1 where no file of a folder could be read.

    Example: snnlib data info recording.raw --picture recording.png
    """
    options = read_options(read_option)
    if path.is_dir():
        _folder_info(path, options, picture)
        return
    recording, faults = _read_with_faults(path, options)
    _print_recording(recording, faults)
    if picture is not None:
        _save_picture(path, recording, picture)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="The event file to read.")],
    target: Annotated[Path, typer.Argument(help="The event file to write; its suffix says the format.")],
    format: Annotated[
        str | None,
        typer.Option(
            help="Write this format where the suffix leaves a choice, as .raw does: "
            f"{', '.join(name for name, item in FORMATS.items() if item.encode)}."
        ),
    ] = None,
    sensor_size: Annotated[
        str | None,
        typer.Option(help="Take this sensor size, HEIGHTxWIDTH, where the source does not say it."),
    ] = None,
    drop_outside: Annotated[bool, typer.Option(help="Leave out events outside the sensor.")] = False,
    force: Annotated[bool, typer.Option(help="Replace the target where it exists.")] = False,
    read_option: ReadOptions = None,
) -> None:
    """Write the events of a file in another format; times start at the recording's start.

    Example: snnlib data convert recording.aedat4 recording.raw --format evt3
    """
    try:
        # Before a long recording is read.
        chosen = format_to_write(target.suffix, format)
    except ValueError as error:
        raise EventFileError(str(error)) from error
    if target.exists() and not force:
        raise FileExistsError(f"{target} exists; --force replaces it")
    outside = "drop" if drop_outside else "error"
    size = {} if sensor_size is None else {"sensor_size": size_option(sensor_size, "--sensor-size")}
    recording = _read(source, {**read_options(read_option), "outside": outside, **size})
    events, header = recording
    try:
        write(target, events, format=chosen.name, sensor_size=header.sensor_size)
    except ValueError as error:
        raise EventFileError(f"{source}: {error}") from error
    print(f"{target}: {len(events)} events in format {chosen.title}, {target.stat().st_size} bytes")
    if header.start_us:
        print(f"t = 0 is {header.start_us} us on the clock of {source}")
    for kind, count in header.skipped.items():
        print(f"not written: {count} {kind}")


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="The event file.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the picture (.png) or animation (.gif) here; default: NAME.gif of the file."
        ),
    ] = None,
    parts: Annotated[
        int | None, typer.Option(min=1, max=500, help="Show this many equal parts of the duration.")
    ] = None,
    read_option: ReadOptions = None,
) -> None:
    """Make a picture (PNG) or an animation (GIF) of a recording.

    Example: snnlib data show recording.raw --out recording.gif
    """
    target = out if out is not None else Path(file.name).with_suffix(".gif")
    if target.suffix.lower() not in (".png", ".gif"):
        raise EventFileError(f"--out: expected a file ending in .png or .gif, got {str(target)!r}")
    recording = _read(file, read_options(read_option))
    if target.suffix.lower() == ".png":
        _save_picture(file, recording, target, parts or 3)
    else:
        visual = _visual()
        pictures = visual.recording_animation(
            recording.events, _size(recording), title=file.name, parts=parts or 30
        )
        visual.save_gif(pictures, target)
    print(target)


@app.command()
def check(
    path: Annotated[
        Path, typer.Argument(help="An event file, a folder with one folder of files per class, or N-MNIST's.")
    ],
    read_option: ReadOptions = None,
) -> None:
    """Read every recording, name what is wrong, and compare caches of its events with the files, byte for byte.

    A cache that differs is removed; the next use makes it again. Ends with code 1 where something is wrong.

    Example: snnlib data check recordings
    """
    faults = check_data(path, read_options(read_option))
    _print_faults(faults)
    if faults:
        raise typer.Exit(1)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="|".join(PUBLIC), help=f"One of {', '.join(PUBLIC)}.")],
    root: Annotated[
        Path | None, typer.Option(help="Put the files into this folder; default: the library's cache folder.")
    ] = None,
) -> None:
    """Download a public data set: the files that are missing, each compared with its published checksum.

    Prints the folder, which `--root` of `snnlib train` takes.

    Example: snnlib data get mnist
    """
    if name not in PUBLIC:
        raise ConfigError("name", f"expected one of {', '.join(PUBLIC)}, got {name!r}")
    print(download(name, root))


def _folder_info(path: Path, options: dict[str, Any], picture: Path | None) -> None:
    splits: dict[str, EventFolder] = {}
    parts: tuple[Split, ...] = ("train", "val", "test")
    with collected_warnings() as said:
        samples = open_folder(path, options)
        for part in parts:
            with suppress(EventFileError):
                splits[part] = EventFolder(path, part)
    faults = list(dict.fromkeys(said))
    names, counts, lengths, formats, sizes = [], [], [], Counter[str](), Counter[str]()
    first: tuple[Path, Recording] | None = None
    for name in samples.files:
        try:
            recording, new_faults = _read_with_faults(
                path / name, {**samples.options_of(name), "origin": "first"}
            )
        except (EventFileError, ImportError) as error:
            faults.append(str(error))
            continue
        faults += new_faults
        first = first or (path / name, recording)
        counts.append(len(recording.events))
        lengths.append(duration_of(recording.events))
        names.append(name)
        formats[FORMATS[recording.header.format].title] += 1
        sizes[_size_text(recording)] += 1
    print(f"{path}: {len(samples)} recordings, {len(samples.classes)} classes")
    for label, name in enumerate(samples.classes):
        per_split = ", ".join(f"{int((own.targets == label).sum())} {split}" for split, own in splits.items())
        print(f"  {name}: {int((samples.targets == label).sum())} ({per_split})")
    if not counts:
        print("none of them could be read")
    else:
        print("formats: " + ", ".join(f"{name} {count}" for name, count in formats.most_common()))
        print("sensor: " + ", ".join(f"{name} ({count})" for name, count in sizes.most_common(5)))
        print(f"events per recording: {_spread(counts)}")
        print(f"duration in ms: {_spread(lengths)}")
        faults += check_durations(zip(names, counts, lengths, strict=True))
        empty = counts.count(0)
        if empty:
            faults.append(f"{empty} recordings without events")
    _print_faults(_by_kind(faults))
    if first is None:
        raise typer.Exit(1)
    if picture is not None:
        _save_picture(*first, picture)


def _spread(values: list[Any]) -> str:
    low, middle, high = np.quantile(values, (0, 0.5, 1))
    return f"{low:.6g} to {high:.6g}, median {middle:.6g}"


def _print_recording(recording: Recording, faults: list[str]) -> None:
    events, header = recording
    found = describe_events(events, parts=10)
    print(f"format: {FORMATS[header.format].title} {header.version}".rstrip())
    print(f"camera: {header.camera or 'not named'}")
    print(f"sensor: {_size_text(recording)}")
    print(f"events: {found.events}, of which ON {found.on_share:.1%}")
    print(f"duration: {found.duration_us / 1000:.6g} ms; t = 0 is {header.start_us} us on the file's clock")
    print("rate in 10 equal parts (1000 events/s): " + " ".join(f"{rate / 1000:.4g}" for rate in found.rate))
    top, left, height, width = found.box
    print(f"events lie in rows {top}..{top + height - 1} and columns {left}..{left + width - 1}")
    hot = ", ".join(f"({x}, {y}) {count}" for x, y, count in found.hot_pixels[:_HOT_SHOWN])
    more = f" and {len(found.hot_pixels) - _HOT_SHOWN} more" if len(found.hot_pixels) > _HOT_SHOWN else ""
    print(f"active pixels: {found.active_pixels}; hot pixels (column, row) events: {hot or 'none'}{more}")
    for kind, count in header.skipped.items():
        print(f"no events: {count} {kind}")
    _print_faults(faults)


def _by_kind(faults: list[str]) -> list[str]:
    """The first fault of each kind, and how many differ from it in the file and in numbers alone."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for fault in faults:
        kinds[re.sub(r"^.*?: |\d+|, found .*", "", fault)].append(fault)
    more = " (and {} more files with such a fault; `snnlib data check` names them)"
    return [first + more.format(len(rest)) * bool(rest) for first, *rest in kinds.values()]


def _print_faults(faults: list[str]) -> None:
    print("faults: " + ("none" if not faults else ""))
    for fault in faults:
        print(f"  {fault}")


def _read_with_faults(path: Path, options: dict[str, Any]) -> tuple[Recording, list[str]]:
    with collected_warnings() as said:
        recording = _read(path, {**options, "outside": "drop"})
    outside = recording.header.skipped.get("events outside the sensor")
    return recording, said + ([f"{path}: {outside} events outside the sensor"] if outside else [])


def _read(path: Path, options: dict[str, Any]) -> Recording:
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected an event file, found nothing there")
    try:
        return read(path, **options)
    except EventFileError:
        raise
    except (TypeError, ValueError) as error:
        raise EventFileError(f"--reader-options: {error}") from error


def _size(recording: Recording) -> tuple[int, int]:
    events = recording.events
    seen = int(events["y"].max(initial=0)) + 1, int(events["x"].max(initial=0)) + 1
    return recording.header.sensor_size or seen


def _size_text(recording: Recording) -> str:
    size = recording.header.sensor_size
    return f"{size[0]} x {size[1]}" if size else "not named"


def _visual() -> Any:
    return import_extra("snnlib.app.visual", "train", "pictures")


def _save_picture(path: Path, recording: Recording, target: Path, parts: int = 3) -> None:
    if target.suffix.lower() != ".png":
        raise EventFileError(f"--picture: expected a file ending in .png, got {str(target)!r}")
    visual = _visual()
    title = f"{path.name}: {len(recording.events)} events"
    figure = visual.recording_overview(recording.events, _size(recording), title=title, parts=parts)
    visual.save_png(figure, target)
