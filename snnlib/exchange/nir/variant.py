"""A graph written anew for one importer: what NIR means by it, in nodes and units that this importer reads right."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from snnlib.exchange.nir.importers import Importer, Refused
from snnlib.exchange.nir.modules import conv_node, linear_node
from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.reading import NEURONS, POTENTIALS, kind_of
from snnlib.exchange.nir.structure import Shape, Structure
from snnlib.exchange.structure.cells import Array, Cell, array, pair
from snnlib.exchange.structure.operations import without_groups


def variant_for(importer: Importer, structure: Structure, cells: dict[str, Cell], dt: float) -> Any:
    """A graph from which an importer makes what NIR means by the given one.

    Args:
        importer: the importer.
        structure: the graph.
        cells: its nodes with a state in discrete time.
        dt: the step that the importer is called with, where it takes one.

    Raises:
        Refused: there is none; the message names the node.
    """
    nodes: dict[str, Any] = {}
    for name, node in structure.nodes.items():
        shape = structure.shapes[structure.sources[name][0]] if structure.sources[name] else ()
        if kind_of(node) in NEURONS:
            if kind_of(node) in POTENTIALS:
                _check_known(importer, name, node)
            nodes[name] = importer.node(name, cells[name], shape, importer.dt or dt)
        else:
            nodes[name] = _map(importer, name, node, shape)
        if kind_of(node) not in ("Input", "Output"):
            _check_known(importer, name, nodes[name])
    edges = [(source, name) for name, sources in structure.sources.items() for source in sources]
    importer.connect(nodes, edges, structure)
    return nir_package().NIRGraph(nodes, edges, type_check=False)


def _check_known(importer: Importer, name: str, node: Any) -> None:
    kind = kind_of(node)
    if kind not in (*importer.neurons, *importer.maps):
        left_out = (
            "; readout=False (--no-readout) leaves a readout out of the graph" if kind in POTENTIALS else ""
        )
        raise Refused(f"{name}: {importer} has no counterpart of {kind}{left_out}")


def _map(importer: Importer, name: str, node: Any, shape: Shape) -> Any:
    """A node without a state as the importer knows it."""
    match kind_of(node):
        case "Flatten":
            # Importers differ in whether the first axis is the batch: from the last axis on all count alike.
            start, end = (int(axis) % len(shape) - len(shape) for axis in (node.start_dim, node.end_dim))
            return nir_package().Flatten({"input": np.array(shape)}, start, end)
        case "Linear" if "Linear" not in importer.maps:
            return linear_node(node.weight, np.zeros(len(node.weight)))
        case "Scale" if "Scale" not in importer.maps:
            return _map(importer, name, _diagonal(name, np.broadcast_to(array(node.scale), shape)), shape)
        case "Conv1d" | "Conv2d" if int(node.groups) != 1:
            # Some importers take no groups.
            dense = without_groups(torch.from_numpy(np.array(node.weight)), int(node.groups))
            options = {key: getattr(node, key) for key in ("stride", "padding", "dilation")}
            return _convolution(dense, node.bias, shape, **options)
        case "AvgPool2d" | "SumPool2d" as kind if kind not in importer.maps or np.any(array(node.padding)):
            kernel = pair(node.kernel_size, 2)
            weight = np.zeros((shape[0], shape[0], *kernel))
            weight[np.arange(shape[0]), np.arange(shape[0])] = (
                1 / np.prod(kernel) if kind == "AvgPool2d" else 1.0
            )
            return _convolution(weight, None, shape, stride=node.stride, padding=node.padding)
    return node


def _diagonal(name: str, scale: Array) -> Any:
    """Factors of the elements as weights."""
    if scale.ndim == 1:
        return linear_node(np.diag(scale), None)
    by_channel = scale.reshape(len(scale), -1)
    if scale.ndim != 3 or np.any(by_channel != by_channel[:, :1]):
        raise Refused(f"{name}: no node that it knows scales single pixels")
    return _convolution(np.diag(by_channel[:, 0])[..., None, None], None, scale.shape)


def _convolution(weight: Any, bias: Any, shape: Shape, **options: Any) -> Any:
    made = conv_node(weight, bias, **options)
    made.input_shape = shape[1:] if len(shape) == 3 else shape[1]
    return made
