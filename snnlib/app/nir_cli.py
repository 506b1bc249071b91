"""`snnlib nir`: look at NIR graphs, and at what importers of other libraries make of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from snnlib.app.errors import ConfigError, naming
from snnlib.files.atomic import write_bytes_atomically
from snnlib.files.pointers import check_fetched

app = typer.Typer(
    help="Look at NIR graphs, and at what importers of other libraries make of them.", no_args_is_help=True
)

GraphFile = Annotated[Path, typer.Argument(help="A file with a NIR graph, as nir.write makes it.")]


@app.command()
def show(file: GraphFile) -> None:
    """Print the nodes of a graph: what they read, what they give, and their constants.

    Example: snnlib nir show net.nir
    """
    from snnlib.exchange.nir.package import read_graph  # noqa: PLC0415
    from snnlib.exchange.nir.show import shown  # noqa: PLC0415

    with naming("FILE", (ValueError,)):
        print(shown(read_graph(file)))


@app.command()
def verify(
    file: GraphFile,
    target: Annotated[
        Literal["snntorch", "spikingjelly", "norse", "sinabs", "rockpool"],
        typer.Option(help="The library whose importer is asked."),
    ],
    dt: Annotated[
        float, typer.Option(help="Length of a time step in seconds that the graph was written for.")
    ] = 1e-4,
    discretisation: Annotated[
        Literal["euler", "exponential"], typer.Option(help="How the graph was meant to be discretised.")
    ] = "euler",
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="Run on the array [T, N, ...] in this .npy file, not on random spikes."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the variant to this file; default the file's name with the target's before its end."
        ),
    ] = None,
) -> None:
    """Compare a graph in an installed library with its meaning, and write a variant that the library reads correctly.

    Exit code 0: the library reads the graph or a written variant correctly; 1: no variant was found.

    Example: snnlib nir verify net.nir --target norse
    """
    from snnlib.exchange.nir.package import read_graph  # noqa: PLC0415
    from snnlib.exchange.nir.verify import verify_nir  # noqa: PLC0415

    try:
        if input_file is not None:
            check_fetched(input_file)
        x = None if input_file is None else np.load(input_file, allow_pickle=False)
        found = verify_nir(read_graph(file), target, dt, x=x, discretisation=discretisation)
    except ValueError as error:
        name, _, text = str(error).partition(": ")
        raise ConfigError(*(("--dt", text) if name == "dt" else ("FILE", str(error)))) from error
    print(found)
    if found.exact:
        return
    if found.variant is None:
        raise typer.Exit(1)
    written = out or file.with_name(f"{file.stem}.{target}{file.suffix}")
    write_graph(written, found.variant)
    print(f"variant: {written}")


def write_graph(path: Path, graph: object) -> None:
    """Write a graph; a file that stands is whole."""
    from snnlib.exchange.nir.package import nir_package  # noqa: PLC0415

    buffer = io.BytesIO()
    nir_package().write(buffer, graph)
    write_bytes_atomically(path, buffer.getvalue())
