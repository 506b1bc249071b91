"""`snnlib.profile`: synaptic operations, sparsity, memory and energy of a net on data."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from html import escape
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.checks import check_choice
from snnlib.inspect.energy import ENERGY_MODELS, EnergyModel
from snnlib.inspect.operation_counter import OperationCounter
from snnlib.inspect.products import nonzero
from snnlib.inspect.shown import ByLayer, in_columns
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.structure.layers import evaluating

# float32 states, read and written at every update.
_STATE_TRAFFIC = 8
# Weights of these kinds count for the sparsity of connections, as in NeuroBench; and all of snnlib's layers.
_CONNECTIONS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNCellBase, nn.RNNBase)
_HEADINGS = (
    *("layer", "type", "ACs", "MACs", "dense", "updates", "input zeros", "output zeros", "zero weights"),
    *("parameter bytes", "state bytes", "traffic bytes"),
)


@dataclass(frozen=True)
class LayerOperations:
    """Counts of one module, sums over the data.

    Args:
        name: the module's name in the net; `"total"` for the sum.
        kind: class of the module.
        acs: effective accumulations: products of a nonzero weight and a nonzero input, in calls whose inputs all are
            -1, 0 or 1.
        macs: effective multiplications with accumulation: those products in calls with other inputs.
        graded: multiplications of `macs` in calls whose inputs are whole numbers, as graded spikes are.
        additions: accumulations in their place where an input of n is n unit spikes.
        dense: all products, as in a dense kernel.
        inputs: input elements of the products.
        nonzero_inputs: how many of them were nonzero.
        outputs: outputs of neurons, ReLU or sigmoid.
        nonzero_outputs: how many of them were nonzero.
        membrane_updates: neurons times time steps times samples.
        states: number of states of each neuron.
        weights: elements of the weight.
        zero_weights: how many of them are zero.
        parameters: trained numbers.
        parameter_bytes: bytes of parameters and buffers.
        state_bytes: bytes of the states of one sample.
        state_updates: membrane updates times states.
        traffic_bytes: a weight per effective product, and each state read and written once per update.
    """

    name: str
    kind: str
    acs: int = 0
    macs: int = 0
    graded: int = 0
    additions: int = 0
    dense: int = 0
    inputs: int = 0
    nonzero_inputs: int = 0
    outputs: int = 0
    nonzero_outputs: int = 0
    membrane_updates: int = 0
    states: int = 0
    weights: int = 0
    zero_weights: int = 0
    parameters: int = 0
    parameter_bytes: int = 0
    state_bytes: int = 0
    state_updates: int = 0
    traffic_bytes: int = 0

    @property
    def input_sparsity(self) -> float:
        """Share of the inputs that are zero; NaN without products."""
        return _share(self.inputs - self.nonzero_inputs, self.inputs)

    @property
    def activation_sparsity(self) -> float:
        """Share of the outputs that are zero; NaN without neurons or activation."""
        return _share(self.outputs - self.nonzero_outputs, self.outputs)

    @property
    def connection_sparsity(self) -> float:
        """Share of the weights that are zero; NaN without a weight."""
        return _share(self.zero_weights, self.weights)


@dataclass(frozen=True)
class Profile(ByLayer[LayerOperations]):
    """Counts of `snnlib.profile`; `str()` returns a table, per sample, with energies.

    Args:
        layers: every module with operations or parameters, in the order of the net.
        samples: number of samples in the data.
        uncounted: multiplying operations that are not counted, by torch's names; usually none.
    """

    layers: tuple[LayerOperations, ...]
    samples: int
    uncounted: tuple[str, ...] = ()

    @property
    def total(self) -> LayerOperations:
        """The sum over all layers."""
        sums = {
            field.name: sum(getattr(layer, field.name) for layer in self.layers)
            for field in fields(LayerOperations)[2:]
        }
        return LayerOperations("total", "", **sums)

    def energy(self, model: str = "45nm", layer: str = "total", *, unit_spikes: bool = False) -> float:
        """Returns joules per sample under one of the models in `snnlib.inspect.energy.ENERGY_MODELS`.

        With `unit_spikes` a graded spike of n costs n additions of the weight, in the place of one multiplication.

        Raises:
            ValueError: an unknown model.
            KeyError: an unknown layer.
        """
        known = ENERGY_MODELS[check_choice("model", model, *ENERGY_MODELS)]
        return self._energy(known, self.total if layer == "total" else self[layer], unit_spikes)

    def _energy(self, model: EnergyModel, layer: LayerOperations, unit_spikes: bool = False) -> float:
        acs, macs = layer.acs, layer.macs
        if unit_spikes:
            acs, macs = acs + layer.additions, macs - layer.graded
        return model.joules(acs, macs, layer.state_updates, layer.traffic_bytes) / max(self.samples, 1)

    def neurobench(self) -> dict[str, Any]:
        """Returns the numbers under NeuroBench's names and definitions, for its JSON files.

        Operations, activations and updates are means over samples or shares, as in NeuroBench. `MembraneUpdates`
        counts every update of a membrane; NeuroBench leaves out updates without a change.
        """
        total, samples = self.total, max(self.samples, 1)
        by_layer = {layer.name: layer.activation_sparsity for layer in self.layers if layer.outputs}
        return {
            "Footprint": total.parameter_bytes,
            "ParameterCount": total.parameters,
            "ConnectionSparsity": round(_share(total.zero_weights, total.weights), 4),
            "ActivationSparsity": total.activation_sparsity if total.outputs else 0.0,
            "ActivationSparsityByLayer": by_layer,
            "MembraneUpdates": total.membrane_updates / samples,
            "SynapticOperations": {
                "Effective_MACs": total.macs / samples,
                "Effective_ACs": total.acs / samples,
                "Dense": total.dense / samples,
            },
        }

    def table(self) -> list[tuple[str, ...]]:
        """Returns headings, a row of texts for each layer, and the total: means per sample."""
        return [_HEADINGS, *(self._row(layer) for layer in (*self.layers, self.total))]

    def energy_rows(self) -> list[tuple[str, ...]]:
        """Returns per energy model: name, microjoules per sample, the same for a dense net, assumptions, source.

        A net with graded spikes has two rows per model: they are multiplied, or added as unit spikes.
        """
        rows: list[tuple[str, ...]] = []
        readings = {"": False, ", unit spikes": True} if self.total.graded else {"": False}
        for model in ENERGY_MODELS.values():
            dense = model.joules(0, self.total.dense, 0, 0) / max(self.samples, 1) * 1e6
            for reading, unit_spikes in readings.items():
                energy = self._energy(model, self.total, unit_spikes) * 1e6
                row = (
                    f"{model.name}{reading}",
                    f"{energy:.4g}",
                    f"{dense:.4g}",
                    model.assumptions,
                    model.source,
                )
                rows.append(row)
        return rows

    def __str__(self) -> str:
        lines = in_columns(self.table(), left=2)
        lines.append(f"Means of {self.samples} samples.")
        lines += [
            f"Energy, {name}: {energy} uJ per sample; {dense} uJ if every product were multiplied. "
            f"Assumes {assumptions} ({source})."
            for name, energy, dense, assumptions, source in self.energy_rows()
        ]
        if self.total.graded:
            macs, acs = (count / max(self.samples, 1) for count in (self.total.graded, self.total.additions))
            lines.append(
                f"Graded spikes: {macs:,.0f} of the MACs multiply whole numbers; they are {acs:,.0f} ACs where a spike "
                "of n is n unit spikes."
            )
        if self.uncounted:
            lines.append(f"Not counted: {', '.join(self.uncounted)}.")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The table and the energies for a notebook."""
        rows = "".join(_html_row(row, "td" if number else "th") for number, row in enumerate(self.table()))
        notes = "".join(f"<br>{escape(line)}" for line in str(self).splitlines()[len(self.layers) + 2 :])
        return f"<table>{rows}</table>{notes.removeprefix('<br>')}"

    def _row(self, layer: LayerOperations) -> tuple[str, ...]:
        counts = (layer.acs, layer.macs, layer.dense, layer.membrane_updates)
        shares = (layer.input_sparsity, layer.activation_sparsity, layer.connection_sparsity)
        return (
            layer.name or "(net)",
            layer.kind,
            *(f"{count / max(self.samples, 1):,.0f}" if count else "" for count in counts),
            *("" if math.isnan(share) else f"{share:.2%}" for share in shares),
            *(f"{size:,}" if size else "" for size in (layer.parameter_bytes, layer.state_bytes)),
            f"{layer.traffic_bytes / max(self.samples, 1):,.0f}" if layer.traffic_bytes else "",
        )


def profile(net: nn.Module, data: Tensor | Iterable[Any], *, batch_first: bool = False) -> Profile:
    """Counts operations, sparsity, state and traffic of a net on data, per layer and in total.

    A product is effective if weight and input are both nonzero; the counts include borders, strides, dilation, groups
    and zero weights exactly. It is an accumulation (AC) if all inputs of the call are -1, 0 or 1, else a
    multiplication with accumulation (MAC), as in NeuroBench. Graded spikes, whole numbers, are MACs; `additions` counts
    them as unit spikes, n for a spike of n, and energies have both readings. Convolutions and matrix products of any
    module count, also in functional calls and attention, and every snnlib layer, fused or not. Biases and elementwise
    products do not count. Traffic is a weight per effective product, and each state read and written once per time
    step, without reuse.

    The net runs once over the data, in evaluation mode and without gradients, since kernels count in such passes only:
    a training step cannot be profiled. No input is stored.

    Args:
        net: any module.
        data: input of the net, `[T, N, ...]`; or an iterable of such tensors or of tuples that begin with one, such as
            a `DataLoader`.
        batch_first: whether dimension 0 holds the samples, as in `[N, T, ...]` and in nets without time `[N, ...]`.

    Raises:
        TypeError: a batch without a tensor.
        ValueError: no batch.

    Returns:
        Sums over the data by layer; `print` shows means per sample and energies under cited models, `neurobench()` the
        numbers by NeuroBench's names.

    Source: Yik et al., "NeuroBench", Nature Communications 2025 (definitions).

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(100, 50), snnlib.SRMLinear(50, 10))
    >>> x = torch.zeros(20, 4, 100)                                  # [T, N, inputs]
    >>> x[3, 0, :7] = 1.0
    >>> counted = snnlib.profile(net, x)
    >>> counted["0"].acs, counted["0"].dense                         # 7 events x 50 neurons; 80 frames x 100 x 50
    (350, 400000)
    """
    counter, samples = OperationCounter(net), 0
    with evaluating(net), torch.no_grad(), counter.counting():
        for number, batch in enumerate([data] if isinstance(data, Tensor) else data):
            x = batch[0] if isinstance(batch, tuple | list) and batch else batch
            if not isinstance(x, Tensor) or x.dim() < 2:
                raise TypeError(
                    f"data: expected a tensor [T, N, ...] in batch {number}, got {type(x).__name__}"
                )
            samples += x.shape[0 if batch_first else 1]
            net(as_input(net, x))
    if not samples:
        raise ValueError("data: expected at least one batch, got none")
    return profile_of(counter, samples)


@torch.no_grad()
def profile_of(counter: OperationCounter, samples: int) -> Profile:
    """The profile of what a counter has seen."""
    sizes, layers = _sizes(counter.modules), []
    for name, module in counter.modules.items():
        counts = counter.by_module[name]
        if not (any(counts.values()) or any(sizes[name].values())):
            continue
        weights = _weights(module)
        total = sum(weight.numel() for weight in weights)
        state_updates = counts["membrane_updates"] * counts["states"]
        weight_bytes = weights[0].element_size() if weights else 4
        layers.append(
            LayerOperations(
                name,
                type_before_parametrizations(module).__name__,
                **counts,
                **sizes[name],
                weights=total,
                zero_weights=total - sum(map(nonzero, weights)),
                state_updates=state_updates,
                traffic_bytes=(counts["acs"] + counts["macs"]) * weight_bytes
                + state_updates * _STATE_TRAFFIC,
            )
        )
    return Profile(tuple(layers), samples, tuple(sorted(counter.uncounted)))


def as_input(net: nn.Module, x: Tensor) -> Tensor:
    """`x` on the net's device and in its dtype."""
    weight = next((value for value in net.parameters() if value.is_floating_point()), None)
    if weight is None:
        return x if x.is_floating_point() else x.float()
    return x.to(weight)


def _sizes(modules: Mapping[str, nn.Module]) -> defaultdict[str, Counter[str]]:
    """`parameters` and `parameter_bytes` of each module; a tensor counts once."""
    layers = [name for name, module in modules.items() if isinstance(module, SpikingLayer)]
    sizes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seen: set[Tensor] = set()
    for path, module in modules.items():
        # A parametrized weight is its layer's, and a layer's neuron is part of it.
        name = f".{path}".partition(".parametrizations.")[0].lstrip(".")
        name = next((layer for layer in layers if f"{name}.".startswith(f"{layer}." if layer else "")), name)
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None and tensor not in seen:
                seen.add(tensor)
                trained = tensor.numel() if isinstance(tensor, nn.Parameter) else 0
                sizes[name].update(parameters=trained, parameter_bytes=tensor.nbytes)
    return sizes


def _weights(module: nn.Module) -> list[Tensor]:
    """The weights that connect neurons."""
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return list(module.parameters(recurse=False))
    if not (isinstance(module, _CONNECTIONS) or type(module).__module__.startswith("snnlib.")):
        return []
    named = (getattr(module, name, None) for name in ("weight", "recurrent_weight"))
    return [weight for weight in named if isinstance(weight, Tensor)]


def _html_row(cells: tuple[str, ...], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
