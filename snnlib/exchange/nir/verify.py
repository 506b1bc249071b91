"""Compares an installed library's import of a graph with NIR's meaning, and finds a graph that it imports correctly."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from snnlib.checks import check_choice
from snnlib.exchange.compare import SpikeCounts, largest_difference
from snnlib.exchange.nir.importers import IMPORTERS, Importer, Refused
from snnlib.exchange.nir.load import from_nir
from snnlib.exchange.nir.reading import NEURONS, cell_of, check_discretisation, check_dt, fires, kind_of
from snnlib.exchange.nir.structure import structure_of
from snnlib.exchange.nir.variant import variant_for
from snnlib.exchange.structure.cells import Array
from snnlib.inspect.activity import SpikeCounter

__all__ = ["Verification", "verify_nir"]

# Outputs that are potentials count as equal up to the rounding of float32.
_CLOSE = 1e-5


@dataclass(frozen=True)
class Verification:
    """Result of `verify_nir`; `str()` returns the report.

    Args:
        target: the importer, with its version.
        refused: the importer's error; None if it imports the graph.
        spikes: for an output of spikes, their numbers in both nets, in `from_nir` alone, and in the importer's net
            alone.
        first: step, sample and neuron of the first spike in one net alone; None if all spikes are equal.
        output_error: for another output, the largest difference as a share of the largest value.
        variant: another graph that the importer reads with the meaning of the given graph; None if none is needed or
            found.
        no_variant: the reason for a missing variant; None if there is a variant, or none is needed.
    """

    target: str
    refused: str | None = None
    spikes: SpikeCounts | None = None
    first: tuple[int, ...] | None = None
    output_error: float = 0.0
    variant: Any = None
    no_variant: str | None = None

    @property
    def exact(self) -> bool:
        """Returns whether the importer gives the graph its meaning in NIR."""
        same = self.spikes is None or self.spikes.identical == 1.0
        return self.refused is None and same and self.output_error <= _CLOSE

    @property
    def found(self) -> str:
        """Returns the result in words."""
        if self.refused is not None:
            return f"refused: {self.refused}"
        if self.spikes is None:
            return f"output differs by {self.output_error:.1e}"
        if self.first is None:
            return f"output: {self.spikes}"
        step, sample, *neuron = self.first
        return f"output: {self.spikes}; first at step {step}, sample {sample}, neuron {tuple(neuron)}"

    def __str__(self) -> str:
        end = f"no variant is exact there: {self.no_variant}"
        if self.exact:
            end = "exact as it stands"
        elif self.variant is not None:
            end = "a variant of the graph is exact there"
        return f"{self.target}:\n  {self.found}\n  {end}"


def verify_nir(
    graph: Any,
    target: str,
    dt: float,
    *,
    x: Array | None = None,
    discretisation: str = "euler",
    steps: int = 100,
    samples: int = 8,
    rate: float = 0.2,
) -> Verification:
    """Compares another library's import of a graph with NIR's meaning.

    The library has to be installed: the imported net and the net of `snnlib.from_nir` run on the same input in
    float64. Where outputs differ, the graph is rewritten for the importer (time constants for its step, potentials in
    its units, axes counted its way) and run again: a variant is given only if its spikes are those of NIR.

    Args:
        graph: a `nir.NIRGraph` with one output.
        target: `"snntorch"`, `"spikingjelly"`, `"norse"`, `"sinabs"` or `"rockpool"`.
        dt: length of a step in seconds: what the graph was written for.
        x: input `[T, N, ...]`. Default: random spikes.
        discretisation: what NIR is read with, `"euler"` or `"exponential"`. Default `"euler"`.
        steps, samples, rate: of the random spikes. Default 100, 8 and 0.2.

    Raises:
        ImportError: the library is not installed; the message says what installs it.
        ValueError: an unknown target, an invalid graph (the message names the node), or a graph in which no neuron
            fires, for example with a wrong `dt`.

    >>> import snnlib, torch
    >>> from snnlib.exchange import verify_nir
    >>> graph = snnlib.to_nir(torch.nn.Sequential(snnlib.SpikingLinear(20, 10)))
    >>> verify_nir(graph, "spikingjelly", dt=1e-4).exact         # doctest: +SKIP
    True
    """
    importer = IMPORTERS[check_choice("target", target, *IMPORTERS)]
    rule, dt = check_discretisation(discretisation), check_dt(dt)
    structure = structure_of(graph)
    if len(structure.outputs) != 1:
        raise ValueError(f"graph: expected one Output, got {len(structure.outputs)}")
    shape = structure.shapes[structure.input]
    if x is None:
        given = torch.rand(steps, samples, *shape, generator=torch.Generator().manual_seed(0)) < rate
    else:
        given = torch.as_tensor(x)
    if tuple(given.shape[2:]) != shape:
        raise ValueError(f"x: expected [T, N, {', '.join(map(str, shape))}], got shape {tuple(given.shape)}")
    expected = _meaning(graph, given.double(), dt, rule)
    spiking = all(fires(structure.nodes[source]) for source in structure.sources[structure.outputs[0]])
    found = _imported(importer, graph, given.float(), dt, expected, spiking)
    if found.exact:
        return found
    cells = {
        name: cell_of(name, node, dt, rule)
        for name, node in structure.nodes.items()
        if kind_of(node) in NEURONS
    }
    try:
        variant = variant_for(importer, structure, cells, dt)
    except Refused as reason:
        return replace(found, no_variant=str(reason))
    again = _imported(importer, variant, given.float(), importer.dt or dt, expected, spiking)
    return replace(found, variant=variant) if again.exact else replace(found, no_variant=again.found)


def _meaning(graph: Any, x: Tensor, dt: float, discretisation: str) -> Tensor:
    """Output of a graph as NIR means it; an error where its neurons never fire, so that nothing could be compared."""
    net = from_nir(graph, dt, discretisation=discretisation).double().eval()
    counter = SpikeCounter(net)
    with torch.no_grad(), counter.counting():
        output: Tensor = net(x)
    rates = [layer.rate for layer in counter.layers()]
    if not output.any() or (rates and not any(rates)):
        raise ValueError(
            f"dt: expected a step at which the graph's neurons fire, got {dt:g} s, at which none does; give the step "
            "that the graph was written for (1 for sinabs, which counts steps) or an input that makes it fire"
        )
    return output


def _imported(
    importer: Importer, graph: Any, x: Tensor, dt: float, expected: Tensor, spiking: bool
) -> Verification:
    """Compares the output of the importer's net with the expected output."""
    try:
        with torch.no_grad():
            # Importers write into the graph that they get.
            output = importer.run(copy.deepcopy(graph), x, dt).to(expected)
        if output.shape != expected.shape:
            raise ValueError(f"an output {tuple(output.shape)}, not {tuple(expected.shape)}")
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ImportError(
            f"what {importer.name} makes of a graph needs the package {package}, which is not installed: "
            f"pip install {package}"
        ) from error
    except Exception as error:
        # Whatever another library raises is its answer.
        return Verification(str(importer), f"{type(error).__name__}: {error}")
    if not spiking:
        return Verification(str(importer), output_error=largest_difference(expected, output))
    differ = (expected != output).nonzero()
    first = tuple(differ[0].tolist()) if len(differ) else None
    return Verification(str(importer), None, SpikeCounts.of(expected, output), first)
