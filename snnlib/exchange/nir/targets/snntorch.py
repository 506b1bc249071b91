"""The importer of snnTorch, as read in `snntorch/import_nir.py`, over `nirtorch` 2.6."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from snnlib.exchange.nir.modules import linear_node
from snnlib.exchange.nir.reading import kind_of
from snnlib.exchange.nir.structure import Shape, Structure
from snnlib.exchange.nir.targets.base import Refused, Target, no_offset, uniform
from snnlib.exchange.nir.write_cell import node_of_cell
from snnlib.structure.cells import Cell, array


class SnnTorch(Target):
    """Steps of 1e-4 s, decay 1 - dt/tau, `>`, reset to 0 within the step; input gains go into the threshold."""

    name, version, dt = "snntorch", "1.0.0", 1e-4
    neurons = ("IF", "LIF", "CubaLIF")
    maps = ("Affine", "Linear", "Conv1d", "Conv2d", "AvgPool2d", "SumPool2d", "Flatten")
    shifts_flatten = False

    def cell(self, name: str, node: Any, dt: float) -> Cell:
        """`Leaky` or `Synaptic`, whose constants are arrays in float64 where the node's have axes and differ."""
        if kind_of(node) == "IF":
            raise Refused(f"{name}: it makes a Leaky with beta = 0.9 of IF, which hands on a pair")
        if not np.allclose(array(node.v_leak), 0):
            raise Refused(f"{name}: it takes v_leak = 0 alone")
        if kind_of(node) == "LIF":
            tau, gain = array(node.tau), array(node.r) * dt / array(node.tau)
            threshold = array(node.v_threshold)
            uniform(name, "threshold", threshold)
            # Gains near 1 count as 1, others scale the threshold; of several the least does.
            threshold = threshold if np.allclose(gain, 1.0) else threshold / np.unique(gain)[0]
            wide = np.float64 if tau.ndim else np.float32
            return _leaky(np.clip(1 - dt / tau, 0, 1), uniform(name, "threshold", threshold), wide)
        tau_m, tau_s = array(node.tau_mem), array(node.tau_syn)
        if not np.allclose(array(node.r), tau_m / dt):
            raise Refused(f"{name}: it takes r = tau_mem / dt alone")
        gain = array(node.w_in) * dt / tau_s
        threshold = array(node.v_threshold)
        threshold = threshold if np.allclose(gain, 1.0) else threshold / gain
        wide = np.float32 if np.unique(tau_m).size == np.unique(tau_s).size == 1 else np.float64
        made = _leaky(np.clip(1 - dt / tau_m, 0, 1), uniform(name, "threshold", threshold), wide)
        return replace(made, decay_s=np.clip(1 - dt / tau_s, 0, 1), gain_s=np.ones_like(tau_s))

    def check(self, graph: Any) -> None:
        """Recurrent neurons that nirtorch 2.6 would build twice, or name like another node."""
        nodes, edges, recurrent = _with_subgraphs(graph)
        built: set[str] = set()
        done: set[str] = set()
        queue = [name for name in nodes if name in recurrent or kind_of(graph.nodes[name]) != "Output"]
        waiting = 0
        while queue and waiting <= len(queue):
            name, *queue = queue
            if not done and (name in recurrent or kind_of(graph.nodes[name]) != "Input"):
                queue.append(name)
                continue
            if name in built:
                raise Refused(
                    f"{recurrent[name]}: nirtorch 2.6 fails on recurrent neurons that are listed before what they read"
                )
            if name in recurrent:
                built.add(name)
            sources = [a for a, b in edges if b == name]
            ready = all(a in done or (len(sources) > 1 and _leads(name, a, edges)) for a in sources)
            waiting = 0 if ready else waiting + 1
            done.update({name} if ready else ())
            queue += [] if ready else [name]

    def structure(self, structure: Structure) -> Structure:
        """A cycle of neurons and one matrix: there the input goes through the recurrent matrix as well."""
        sources, back = {name: list(own) for name, own in structure.sources.items()}, set(structure.back)
        nodes, loops = dict(structure.nodes), list(structure.loops)
        for recurrent, neurons in structure.back:
            if (
                kind_of(nodes[neurons]) not in ("LIF", "CubaLIF")
                or structure.sources[recurrent] != (neurons,)
                or kind_of(nodes[recurrent]) not in ("Affine", "Linear")
            ):
                continue
            rest = [source for source in sources[neurons] if source != recurrent]
            sources[recurrent], sources[neurons] = [*rest, neurons], [recurrent]
            back = (back - {(recurrent, neurons)}) | {(neurons, recurrent)}
            loops = [(recurrent, neurons) if set(loop) == {recurrent, neurons} else loop for loop in loops]
        order = [name for loop in loops for name in loop]
        return replace(
            structure,
            nodes={name: nodes[name] for name in order},
            sources={name: tuple(sources[name]) for name in order},
            back=frozenset(back),
            loops=tuple(loops),
        )

    def write(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """`LIF` with r = tau/dt, also for neurons that do not leak; `CubaLIF`."""
        no_offset(name, cell)
        if np.any(cell.reset_value):
            raise Refused(f"{name}: it takes v_reset = 0 alone")
        gain = cell.gain if cell.gain_s is None else cell.gain * cell.gain_s
        cell = cell.scaled(1 / gain)
        cell = replace(
            cell, gain=np.ones_like(gain), gain_s=None if cell.gain_s is None else np.ones_like(gain)
        )
        assert cell.threshold is not None
        uniform(name, "threshold (after scaling by r)", cell.threshold)
        # The largest decay below 1 means the same to it as 1, and is no IF.
        decay = np.where(cell.decay == 1, np.nextafter(1.0, 0.0), cell.decay)
        made = node_of_cell(replace(cell, decay=decay), shape, dt)
        if np.any(cell.decay == 1):
            endless = cell.decay == 1
            tau = "tau" if cell.decay_s is None else "tau_mem"
            setattr(made, tau, np.where(endless, 1e30 * dt, getattr(made, tau)))
            made.r = np.where(endless, 1e30, made.r)
        return made

    def connect(self, nodes: dict[str, Any], edges: list[tuple[str, str]], structure: Structure) -> None:
        """A matrix of ones on the diagonal behind the recurrent one: longer cycles are connected as they stand."""
        for recurrent, neurons in structure.back:
            if structure.sources[recurrent] == (neurons,):
                size = len(nodes[recurrent].weight)
                passed = f"{recurrent}_passed"
                nodes[passed] = linear_node(np.eye(size), None)
                edges.remove((recurrent, neurons))
                edges += [(recurrent, passed), (passed, neurons)]


def _with_subgraphs(graph: Any) -> tuple[list[str], list[tuple[str, str]], dict[str, str]]:
    """Names and edges as it rewrites them, with the recurrent neurons that each new name stands for."""
    nodes, edges = list(graph.nodes), list(graph.edges)
    recurrent: dict[str, str] = {}
    for neurons, weights in graph.edges:
        kinds = [kind_of(graph.nodes[name]) for name in (neurons, weights)]
        alone = {edge for edge in edges if weights in edge} == {(neurons, weights), (weights, neurons)}
        if not alone or kinds[0] not in ("LIF", "CubaLIF") or kinds[1] not in ("Affine", "Linear"):
            continue
        name = neurons.split(".")[0]
        nodes = [node for node in nodes if node not in (neurons, weights)]
        if name in nodes:
            raise Refused(f"{neurons}: it names recurrent neurons {name!r}, as another node is named already")
        nodes.append(name)
        recurrent[name] = neurons
        edges = [edge for edge in edges if weights not in edge]
        edges = [(name if a == neurons else a, name if b == neurons else b) for a, b in edges]
    return nodes, edges, recurrent


def _leads(start: str, end: str, edges: list[tuple[str, str]]) -> bool:
    """Returns whether a path of edges leads from one node to another."""
    reached, rest = set(), [start]
    while rest:
        name = rest.pop()
        reached.add(name)
        rest += [b for a, b in edges if a == name and b not in reached]
    return end in reached


def _leaky(decay: Any, threshold: float, dtype: type) -> Cell:
    zero = np.zeros(())
    return Cell(
        decay=decay,
        gain=np.ones(()),
        offset=zero,
        threshold=np.asarray(threshold),
        reset_value=zero,
        start=zero,
        dtype=dtype,
    )
