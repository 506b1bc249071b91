"""`snnlib.to_nir`: exports a net to the Neuromorphic Intermediate Representation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.exchange.compare import SpikeCounts, largest_difference
from snnlib.exchange.conversion.loop_net import FoldedNet
from snnlib.exchange.nir.load import from_nir
from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.reading import check_discretisation, check_dt, fires
from snnlib.exchange.nir.write import Value, Writer, first_shape
from snnlib.exchange.structure.hooks import check_no_acting_hooks
from snnlib.exchange.structure.walk import graph_of

__all__ = ["to_nir"]

# Spike probability of the random input on which an approximation is measured.
_RATE = 0.05
_STEPS, _BATCH = 100, 4


def to_nir(
    net: nn.Module,
    dt: float = 1e-4,
    *,
    x: Tensor | None = None,
    discretisation: str = "euler",
    approximate: bool = False,
    readout: bool = True,
) -> Any:
    """Returns a net as a graph of the Neuromorphic Intermediate Representation (NIR).

    A graph holds differential equations. Time constants, resistances and thresholds are chosen so that the equations,
    discretised with a step of `dt` seconds, are the net's own: `decay = 1 - dt/tau` (Euler) or `exp(-dt/tau)`
    (exponential). NIR's neurons fire above the threshold, so neurons that fire at the threshold get the next smaller
    float32 number. Batch normalisation with running statistics is folded into the weights before it, and dropout is
    left out.

    Args:
        net: an `nn.Sequential` or a module whose forward can be traced symbolically, of this library's layers and
            neurons, `PerStep` and torch's stateless layers, or what `snnlib.convert` made, a loop over time of which
            one output is a sequence of spikes; in evaluation mode where it has batch normalisation.
        dt: length of a time step in seconds. Default 1e-4, which importers without an argument for it assume.
        x: an input `[T, N, ...]`: its shape is the graph's input. Needed where the net begins with a convolution.
        discretisation: discretisation of the reader, `"euler"` or `"exponential"`. Default `"euler"`.
        approximate: whether neurons without an exact counterpart (SRM with its full reset, a reset by subtraction)
            become the nearest ones of NIR; prints the change of the outputs, measured on `x` or random spikes. Default
            False.
        readout: whether the graph includes the readout, the layers behind the last neurons that fire, such as
            `SRMReadout` or an `Integrator` and its weights. Default True, the whole net. False ends the graph with the
            input spikes of the readout, for importers without neurons that only integrate: all that
            `snnlib nir verify` knows but sinabs.

    Returns:
        A `nir.NIRGraph`; `nir.write(path, graph)` stores it.

    Raises:
        ImportError: the package `nir` is missing: `pip install 'snnlib[nir]'`.
        ValueError: a module without counterpart, named by its path; a net without a known input shape; without its
            readout a net of which no single layer is the last that fires.

    Source: Pedersen et al., "Neuromorphic intermediate representation", Nature Communications 2024.

    >>> import snnlib, torch
    >>> neuron = snnlib.neurons.LIF(tau=4.0)
    >>> graph = snnlib.to_nir(torch.nn.Sequential(snnlib.SpikingLinear(20, 10, neuron=neuron)))
    >>> sorted(graph.nodes)
    ['0.neuron', '0.weight', 'input', 'output']
    >>> float(graph.nodes["0.neuron"].tau[0])
    0.0004
    """
    rule = check_discretisation(discretisation)
    dt = check_dt(dt)
    training = [name for name, module in net.named_modules() if module.training and _has_statistics(module)]
    if training:
        raise ValueError(
            f"net: expected evaluation mode, net.eval(), got {training[0] or 'itself'} in training mode"
        )
    operations = graph_of(net)
    shape = tuple(x.shape[2:]) if x is not None else first_shape(operations)
    if shape is None or (x is not None and x.dim() < 3):
        got = "None" if x is None else f"shape {tuple(x.shape)}"
        raise ValueError(f"x: expected an input [T, N, ...] whose shape is the graph's input, got {got}")
    check_no_acting_hooks(net, x)
    writer = Writer(dt, rule, approximate)
    with torch.no_grad():
        end = writer.write(operations, shape)
    if writer.faults:
        _print_change(net, _graph(writer, end), writer, x)
    return _graph(writer, end if readout else writer.without_readout(end))


def _graph(writer: Writer, end: Value) -> Any:
    """The graph whose output is a value. The writer has checked shapes, which the package cannot: see `from_nir`."""
    output = nir_package().Output({"output": np.array(end.shape)})
    edges = [*writer.edges, *((source, "output") for source in end.sources)]
    return nir_package().NIRGraph({**writer.nodes, "output": output}, edges, type_check=False)


def _has_statistics(module: nn.Module) -> bool:
    return getattr(module, "running_mean", None) is not None


def _print_change(net: nn.Module, graph: Any, writer: Writer, x: Tensor | None) -> None:
    """Prints what the approximation changes at the output, on a sequence."""
    shape = tuple(int(size) for size in graph.nodes["input"].input_type["input"])
    time_dim = int(any(getattr(module, "batch_first", False) for module in net.modules()))
    if x is None:
        generator = torch.Generator().manual_seed(0)
        x = (torch.rand(_STEPS, _BATCH, *shape, generator=generator) < _RATE).float().transpose(0, time_dim)
    with torch.no_grad():
        ours = net(x)
        theirs = from_nir(graph, writer.dt, discretisation=writer.discretisation)(x.transpose(0, time_dim))
    ours = net.spikes_in(ours) if isinstance(net, FoldedNet) else ours.transpose(0, time_dim)
    for name, fault in writer.faults.items():
        print(f"{name}: written without {fault}")
    if all(fires(graph.nodes[source]) for source, end in graph.edges if end == "output"):
        print(f"output spikes: {SpikeCounts.of(ours, theirs)}")
    else:
        print(f"output potentials: differ by up to {largest_difference(ours, theirs):.1%} of the largest")
