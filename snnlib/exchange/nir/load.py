"""`snnlib.from_nir`: imports a graph of the Neuromorphic Intermediate Representation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import nn

from snnlib.checks import check_choice
from snnlib.exchange.nir.graph_modules import GraphNeuron
from snnlib.exchange.nir.graph_net import GraphNet
from snnlib.exchange.nir.modules_of import (
    conv_module,
    flatten_module,
    linear_module,
    neuron_module,
    pool_module,
)
from snnlib.exchange.nir.package import read_graph
from snnlib.exchange.nir.reading import (
    NEURONS,
    cell_of,
    check_discretisation,
    check_dt,
    check_numbers,
    delay_steps,
    kind_of,
    sinabs_cell,
)
from snnlib.exchange.nir.structure import Structure, structure_of
from snnlib.exchange.sequences import Affine, Later
from snnlib.exchange.structure.cells import Cell
from snnlib.neurons import IF, LIF, CubaLIF, Neuron
from snnlib.nn import PerStep, SpikingConv1d, SpikingConv2d, SpikingLinear
from snnlib.surrogate import SurrogateLike

__all__ = ["from_nir"]


def from_nir(
    graph: Any,
    dt: float | None = None,
    *,
    discretisation: str | None = None,
    reading: str = "nir",
    surrogate: SurrogateLike | None = None,
) -> nn.Module:
    """Imports a graph of the Neuromorphic Intermediate Representation (NIR) as a net over sequences `[T, N, ...]`.

    A graph holds differential equations without a time step, so pass the step of the program that wrote the graph
    (1e-4 s for snnTorch and SpikingJelly, 1e-3 s for Norse, 1 for sinabs, whose time constants are in steps). A state
    loses the share `leak = dt/tau` (Euler) or `1 - exp(-dt/tau)` (exponential) per step. A neuron fires if its
    membrane exceeds the threshold, and is set to `v_reset` in the same step. The edge that closes a cycle carries the
    value of the step before.

    sinabs reads and writes graphs with another meaning. With `reading="sinabs"` time constants are in steps, decay =
    exp(-1/tau), a neuron fires at the threshold, several times per step at multiples of it, each spike subtracts the
    threshold, and the membrane of an `IF` is at least minus its threshold. `r` and `v_reset` are ignored. Gradients
    are those of sinabs. Such neurons run by `step`.

    Convolutions and linear maps without bias before neurons become event-driven layers. Neurons with constants per
    element run over `[T, N, elements]`, which is slower than with constants per channel.

    Args:
        graph: a `nir.NIRGraph`, or the path of a file with one.
        dt: length of a time step in seconds; with `reading="sinabs"` omitted, or 1.
        discretisation: `"euler"` or `"exponential"` (Rockpool). Default `"euler"`, in sinabs' reading `"exponential"`.
        reading: `"nir"`, the standard meaning, or `"sinabs"`, for graphs that sinabs wrote. Default `"nir"`.
        surrogate: surrogate gradient of all neurons. Default: that of each model, or of sinabs.

    Returns:
        An `nn.Sequential` if the graph is a chain, else a `GraphNet`; weights are parameters.

    Raises:
        ImportError: the package `nir` is missing: `pip install 'snnlib[nir]'`.
        ValueError: an invalid graph, a time constant shorter than a step, a delay that is not a whole number of steps,
            a number that is not finite in float32, or a node that sinabs does not support; the message names the node.

    >>> import nir, numpy as np, snnlib, torch
    >>> ones = np.ones(3)
    >>> node = nir.LIF(tau=4e-4 * ones, r=ones, v_leak=0 * ones, v_threshold=0.2 * ones)
    >>> net = snnlib.from_nir(nir.NIRGraph.from_list(nir.Linear(np.eye(3)), node), dt=1e-4)
    >>> net
    Sequential(
      (linear): SpikingLinear(
        3, 3
        (neuron): LIF(tau=4, threshold=0.2, compare='>', surrogate=ATan(alpha=2.0))
      )
    )
    >>> net(torch.ones(4, 1, 3))[:, 0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if isinstance(graph, str | Path):
        graph = read_graph(graph)
    structure = structure_of(graph)
    read, step = _reader(reading, dt, discretisation, structure)
    dialect = "sinabs" if reading == "sinabs" else None
    modules = {
        name: _module(name, node, structure, step, read, surrogate, dialect)
        for name, node in structure.nodes.items()
        if kind_of(node) not in ("Input", "Output")
    }
    sources = {name: list(structure.sources[name]) for name in structure.nodes}
    _join_layers(modules, sources, structure)
    if not structure.back and _is_chain(modules, sources, structure):
        return nn.Sequential(
            OrderedDict((name.replace(".", "_"), module) for name, module in modules.items())
        )
    return GraphNet(modules, sources, structure)


# The neurons that a node with a state stands for, by its name and the node.
Reader = Callable[[str, Any], Cell]


def _reader(
    reading: str, dt: float | None, discretisation: str | None, structure: Structure
) -> tuple[Reader, float]:
    """Returns what reads nodes with a state, and the length of a step.

    Raises:
        ValueError: an unknown reading, an option that it does not have, or cycles that sinabs does not take.
    """
    if reading == "nir":
        rule, step = check_discretisation(discretisation or "euler"), check_dt(dt)
        return lambda name, node: cell_of(name, node, step, rule), step
    check_choice("reading", reading, "nir", "sinabs")
    if dt not in (None, 1):
        raise ValueError(f'dt: expected none, or 1, with reading="sinabs", which counts steps, got {dt!r}')
    if discretisation not in (None, "exponential"):
        raise ValueError(
            f'discretisation: expected "exponential" with reading="sinabs", got {discretisation!r}'
        )
    if structure.back:
        raise ValueError(
            f"{sorted(structure.back)[0][1]}: sinabs runs whole sequences layer by layer and takes no cycles"
        )
    return sinabs_cell, 1.0


def _module(  # noqa: PLR0911 - one for each kind of node
    name: str,
    node: Any,
    structure: Structure,
    dt: float,
    read: Reader,
    surrogate: SurrogateLike | None,
    dialect: str | None,
) -> nn.Module:
    kind = kind_of(node)
    shape = structure.shapes[structure.sources[name][0]]
    check_numbers(name, node)
    if kind in NEURONS:
        cell = read(name, node)
        try:
            return neuron_module(cell, shape, surrogate, dialect)
        except ValueError as error:
            raise ValueError(f"{name}: {error}, of a neuron in steps of dt = {dt:g} s") from error
    match kind:
        case "Flatten":
            return flatten_module(node, shape)
        case "Delay":
            return Later(delay_steps(name, node, dt))
        case "Affine" | "Linear":
            return linear_module(node)
        case "Conv1d" | "Conv2d":
            return conv_module(node)
        case "SumPool2d" | "AvgPool2d":
            return pool_module(node, average=kind == "AvgPool2d")
    return Affine(node.scale)


def _join_layers(modules: dict[str, nn.Module], sources: dict[str, list[str]], structure: Structure) -> None:
    """Weights without bias and the neurons that alone read them become one event-driven layer."""
    cyclic = {name for loop in structure.loops for name in loop if len(loop) > 1}
    weights = {name: module for name, module in modules.items() if isinstance(module, PerStep)}
    for name, layer in weights.items():
        readers = [target for target, own in sources.items() if name in own]
        reader = readers[0] if len(readers) == 1 else None
        if reader not in modules or {name, reader} & cyclic or len(sources[reader]) > 1:
            continue
        neuron = modules[reader]
        if type(neuron) not in (LIF, IF, CubaLIF, GraphNeuron):
            continue
        made = _layer(layer[0], neuron)
        if made is None:
            continue
        # Takes the place of its weights, under their name; what read the neurons reads it.
        modules[name] = made
        del modules[reader], sources[reader]
        for own in sources.values():
            own[:] = [name if source == reader else source for source in own]


def _layer(weights: nn.Module, neuron: nn.Module) -> nn.Module | None:
    assert isinstance(neuron, Neuron)
    made: SpikingLinear | SpikingConv1d | SpikingConv2d
    if isinstance(weights, nn.Linear) and weights.bias is None:
        made = SpikingLinear(weights.in_features, weights.out_features, neuron=neuron)
    elif isinstance(weights, nn.Conv1d | nn.Conv2d) and weights.bias is None:
        kind: Any = SpikingConv1d if isinstance(weights, nn.Conv1d) else SpikingConv2d
        options = {key: getattr(weights, key) for key in ("stride", "padding", "dilation", "groups")}
        made = kind(weights.in_channels, weights.out_channels, weights.kernel_size, neuron=neuron, **options)
    else:
        return None
    made.weight = weights.weight
    return made


def _is_chain(modules: dict[str, nn.Module], sources: dict[str, list[str]], structure: Structure) -> bool:
    order = pairwise((structure.input, *modules, structure.outputs[0]))
    return len(structure.outputs) == 1 and all(sources[name] == [before] for before, name in order)
