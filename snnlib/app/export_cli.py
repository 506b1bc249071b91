"""`snnlib export`: the net of a run as a C program, a NIR graph, an ONNX graph or a file for Loihi."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from snnlib.app.cli_tools import CheckpointOption, RootOption, RunArgument
from snnlib.app.errors import naming

app = typer.Typer(
    help="Write the net of a run as a C program, a NIR graph, an ONNX graph or a file for Loihi.",
    no_args_is_help=True,
)


@app.command()
def c(
    run_folder: RunArgument,
    out: Annotated[Path, typer.Argument(help="Folder for net.c, net.h, a test of them and a Makefile.")],
    checkpoint: CheckpointOption = "last",
    weight_bits: Annotated[int, typer.Option(help="Store weights in this many bits, 8 or 4.")] = 8,
    state_bits: Annotated[
        int | None,
        typer.Option(help="Keep states in 16 bits, or 32 as frames of whole numbers want, the default."),
    ] = None,
    scale: Annotated[
        Literal["channel", "power-of-two", "layer"],
        typer.Option(
            help="Scale weights by any number per channel, a power of two per channel, or one number."
        ),
    ] = "channel",
    decay: Annotated[
        Literal["multiplier", "shift"],
        typer.Option(help="Let states decay by products of 15 bits, or by the nearest power of two."),
    ] = "multiplier",
    calibrate: Annotated[
        int, typer.Option(help="Measure ranges on this many training samples.", min=1)
    ] = 100,
    vectors: Annotated[
        int, typer.Option(help="Write this many test samples to the test vectors.", min=1)
    ] = 8,
    root: RootOption = None,
) -> None:
    """Write a C99 program without dependencies that does what the run's net does, in integers.

    Prints the accuracy on the test set with one layer after the other in integers, and the program's RAM and flash.
    `make check` in the folder compiles it and compares it with the library's own simulation.

    Example: snnlib export c runs/first build/net
    """
    from snnlib.app.training.exporting import batch_of, how_to_feed, opened, vectors_of  # noqa: PLC0415
    from snnlib.exchange.integers import compare_integers, export_c, to_integers  # noqa: PLC0415

    with naming("RUN_FOLDER", (ValueError,)):
        module, data = opened(run_folder, checkpoint, root)
        x, _ = batch_of(data, data.train_set, calibrate)
        bits = state_bits or (32 if "counts" in data.kind.has else 16)
        integers = to_integers(
            module.net, x, weight_bits=weight_bits, state_bits=bits, scale=scale, decay=decay
        )
        frames, labels = batch_of(data, data.test_set)
        report = compare_integers(module.net, integers, frames, labels, scores=module.objective.scores)
        notes, names = how_to_feed(data.config, data.facts.classes), data.facts.classes
        tested, options = vectors_of(data, vectors)
        sizes = export_c(integers, out, tested, notes=notes, names=names, **options)
    print(report)
    print(f"RAM {sizes['ram']} bytes, flash {sizes['flash']} bytes of constants, without code")
    print(f"program: {out / 'net.c'}; to check it: make -C {out} check")


@app.command()
def nir(
    run_folder: RunArgument,
    out: Annotated[Path, typer.Argument(help="File for the graph.")],
    checkpoint: CheckpointOption = "last",
    dt: Annotated[
        float, typer.Option(help="Length of a time step in seconds that the graph is written for.")
    ] = 1e-4,
    discretisation: Annotated[
        Literal["euler", "exponential"], typer.Option(help="How the graph will be discretised.")
    ] = "euler",
    approximate: Annotated[
        bool,
        typer.Option(help="Write neurons that NIR has only nearly as the nearest, and print the change."),
    ] = False,
    readout: Annotated[
        bool,
        typer.Option(
            help="Write the readout, or end the graph with the spikes that it gets, for tools that have none."
        ),
    ] = True,
    root: RootOption = None,
) -> None:
    """Write the run's net as a graph of the Neuromorphic Intermediate Representation.

    Example: snnlib export nir runs/first net.nir
    """
    from snnlib.app.nir_cli import write_graph  # noqa: PLC0415
    from snnlib.app.training.exporting import batch_of, opened  # noqa: PLC0415
    from snnlib.exchange.nir import to_nir  # noqa: PLC0415

    with naming("RUN_FOLDER", (ValueError,)):
        module, data = opened(run_folder, checkpoint, root)
        x, _ = batch_of(data, data.test_set, 4)
        options = {"approximate": approximate, "readout": readout}
        graph = to_nir(module.net, dt, x=x, discretisation=discretisation, **options)
    write_graph(out, graph)
    print(f"graph: {out}")


@app.command()
def onnx(
    run_folder: RunArgument,
    out: Annotated[Path, typer.Argument(help="File for the graph, .onnx.")],
    checkpoint: CheckpointOption = "last",
    root: RootOption = None,
) -> None:
    """Write the run's net as a dense ONNX graph of float32 for any number of steps and samples.

    Example: snnlib export onnx runs/first net.onnx
    """
    from snnlib.app.training.exporting import batch_of, opened  # noqa: PLC0415
    from snnlib.exchange.onnx_graph import export_onnx  # noqa: PLC0415

    with naming("RUN_FOLDER", (ImportError, ValueError)):
        module, data = opened(run_folder, checkpoint, root)
        export_onnx(module.net, out, batch_of(data, data.test_set, 1)[0])
    print(f"graph: {out}")


@app.command()
def lava(
    run_folder: RunArgument,
    out: Annotated[Path, typer.Argument(help="File for the net, .net.")],
    checkpoint: CheckpointOption = "last",
    root: RootOption = None,
) -> None:
    """Write a net that was trained with `--dialect loihi` as lava-dl does, HDF5, and say how far it fits the chip.

    Prints neurons, inputs of a neuron, bits of weights and estimated cores by layer, and what is beyond the chip.

    Example: snnlib export lava runs/first network.net
    """
    from snnlib.app.training.exporting import batch_of, opened  # noqa: PLC0415
    from snnlib.exchange.lava import to_lava  # noqa: PLC0415

    with naming("RUN_FOLDER", (ImportError, ValueError)):
        module, data = opened(run_folder, checkpoint, root)
        report = to_lava(module.net, out, x=batch_of(data, data.test_set, 1)[0])
    print(report)
    print(f"net: {out}")
