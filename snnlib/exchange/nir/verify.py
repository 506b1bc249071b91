"""The net that an importer makes of a graph, spike by spike beside what NIR means, and the graph read right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from snnlib.exchange.nir.interpret import Unit, reference_reader, run_units
from snnlib.exchange.nir.reading import Discretisation, check_discretisation, check_dt
from snnlib.exchange.nir.spikes import SpikeCounts
from snnlib.exchange.nir.structure import Structure, structure_of
from snnlib.exchange.nir.targets import TARGETS, Refused, Target
from snnlib.structure.cells import Array, Cell

# Outputs that are potentials count as equal up to the rounding of float32.
_CLOSE = 1e-5


@dataclass(frozen=True)
class Verification:
    """The result of `verify_nir`; `str()` makes the report.

    Args:
        target: the importer, with its version.
        refused: why it does not take the graph; None where it does.
        spikes: by node that fires: spikes that both have, that NIR alone has, and that the importer's net alone has.
        outputs: by output that is no spikes: largest difference, as a share of the largest value.
        variant: the graph that the importer reads as NIR means the given one, where that is another; else None.
        no_variant: why there is none; None where there is, or none is needed.
    """

    target: str
    refused: str | None
    spikes: dict[str, SpikeCounts]
    outputs: dict[str, float]
    variant: Any = None
    no_variant: str | None = None

    @property
    def exact(self) -> bool:
        """Returns whether the importer takes the graph and makes of it what NIR means."""
        same = all(count.identical == 1.0 for count in self.spikes.values())
        return self.refused is None and same and all(error <= _CLOSE for error in self.outputs.values())

    def __str__(self) -> str:
        lines = [f"{self.target}:"]
        if self.refused is not None:
            lines.append(f"  refused: {self.refused}")
        lines += [f"  {name}: {count}" for name, count in self.spikes.items()]
        lines += [f"  {name}: differs by {error:.1e}" for name, error in self.outputs.items()]
        if self.exact:
            lines.append("  exact as it stands")
        elif self.variant is not None:
            lines.append("  a variant of the graph is exact there")
        else:
            lines.append(f"  no variant is exact there: {self.no_variant}")
        return "\n".join(lines)


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
    """Returns what the importer of another library will do with a graph, beside what NIR means by it.

    Both are run by interpreters in plain numpy: the reference in float64, the importer's reading in the dtype that it
    computes in. Where they differ, the graph is rewritten for the importer (time constants for its step, potentials in
    its units, axes counted its way) and run again: a variant is given only if its spikes are those of the reference.

    Args:
        graph: a `nir.NIRGraph`.
        target: `"snntorch"`, `"spikingjelly"`, `"norse"`, `"sinabs"` or `"rockpool"`.
        dt: length of a step in seconds: what the graph was written for.
        x: input `[T, N, ...]`. Default: random spikes.
        discretisation: of the reference, `"euler"` or `"exponential"`. Default `"euler"`.
        steps, samples, rate: of the random spikes. Default 100, 8 and 0.2.

    Raises:
        ValueError: an unknown target, a graph that is no net (the message names the node), or one in which no neuron
            fires, as with a `dt` that it was not written for.

    >>> import snnlib, torch
    >>> from snnlib.exchange import verify_nir
    >>> graph = snnlib.to_nir(torch.nn.Sequential(snnlib.SpikingLinear(20, 10)))
    >>> verify_nir(graph, "spikingjelly", dt=1e-4).exact
    True
    """
    if target not in TARGETS:
        raise ValueError(f"target: expected one of {', '.join(TARGETS)}, got {target!r}")
    importer, rule = TARGETS[target], check_discretisation(discretisation)
    check_dt(dt)
    structure = structure_of(graph)
    if x is None:
        shape = (steps, samples, *structure.shapes[structure.input])
        x = (np.random.default_rng(0).random(shape) < rate).astype(np.float64)
    units = _reference(structure, dt, rule)
    expected = run_units(structure, units, x)
    _check_firing(expected, units, dt)
    found = _compared(importer, graph, units, expected, x, dt)
    if found.exact:
        return found
    cells = {name: unit for name, unit in units.items() if isinstance(unit, Cell)}
    try:
        variant = importer.variant(structure, cells, dt)
        again = _compared(importer, variant, units, expected, x, importer.step(dt))
    except Refused as reason:
        return _with(found, no_variant=str(reason))
    if not again.exact:
        return _with(found, no_variant=_why(again))
    return _with(found, variant=variant)


def _reference(structure: Structure, dt: float, rule: Discretisation) -> dict[str, Unit]:
    read = reference_reader(dt, rule)
    return {name: read(name, node) for name, node in structure.nodes.items()}


def _check_firing(outputs: dict[str, Array], units: dict[str, Unit], dt: float) -> None:
    """Raise where a graph has neurons that fire and none of them did: nothing could be compared."""
    firing = [name for name, unit in units.items() if isinstance(unit, Cell) and unit.spikes]
    if firing and not any(outputs[name].any() for name in firing):
        raise ValueError(
            f"dt: expected a step at which the graph's neurons fire, got {dt:g} s, at which none does; give the step "
            "that the graph was written for (1 for sinabs, which counts steps) or an input that makes it fire"
        )


def _compared(
    importer: Target, graph: Any, reference: dict[str, Unit], expected: dict[str, Array], x: Array, dt: float
) -> Verification:
    """The importer's net on the input, beside what is expected of the nodes that both have."""
    structure = structure_of(graph)
    try:
        importer.check(graph)
        wired = importer.structure(structure)
        units: dict[str, Unit] = {}
        for name, node in wired.nodes.items():
            shape = structure.shapes[structure.sources[name][0]] if structure.sources[name] else ()
            units[name] = importer.unit(name, node, shape, dt)
        given = run_units(wired, units, x)
    except ValueError as reason:
        return Verification(str(importer), str(reason), {}, {})
    firing = [
        name for name, unit in reference.items() if isinstance(unit, Cell) and unit.spikes and name in given
    ]
    spikes = {name: SpikeCounts.of(expected[name], given[name]) for name in firing}
    outputs = {}
    for name in structure.outputs:
        if not set(structure.sources[name]) <= set(firing):
            largest = max(float(np.abs(expected[name]).max(initial=0.0)), 1e-30)
            outputs[name] = float(np.abs(expected[name] - given[name]).max(initial=0.0)) / largest
    return Verification(str(importer), None, spikes, outputs)


def _why(found: Verification) -> str:
    if found.refused is not None:
        return found.refused
    return "; ".join(
        f"{name}: {count}" for name, count in found.spikes.items() if count.identical < 1
    ) or str(found.outputs)


def _with(found: Verification, variant: Any = None, no_variant: str | None = None) -> Verification:
    return Verification(found.target, found.refused, found.spikes, found.outputs, variant, no_variant)
