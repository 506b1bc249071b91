"""Nodes of NIR as modules over sequences `[T, N, ...]`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.exchange.nir.graph_modules import Elementwise, GraphNeuron
from snnlib.exchange.nir.structure import Shape, padding_of
from snnlib.exchange.sequences import Affine
from snnlib.exchange.structure.cells import Array, Cell, array, pair
from snnlib.neurons import IF, LIF, CubaLIF, Integrator, Neuron
from snnlib.nn import AvgPool2d, PerStep
from snnlib.surrogate import SurrogateLike


def neuron_module(
    cell: Cell, shape: Shape, surrogate: SurrogateLike | None, dialect: str | None = None
) -> nn.Module:
    """Neurons or integrators over sequences, as this library's own models where these have the constants.

    Neurons that take the threshold off have the gradients of a dialect.
    """
    rest = None
    if not cell.spikes and np.any(cell.start):
        # A potential that is never reset may be measured from where it rests, which is where it starts.
        rest, zero = cell.start, np.zeros_like(cell.start)
        cell = replace(cell, start=zero, offset=zero)
    cell, factor = _unit_gains(cell)
    per_element = len(shape) > 1 and not all(
        _is_by_channel(value, shape) for value in vars(cell).values() if isinstance(value, np.ndarray)
    )
    reduced = _reduced(cell, (int(np.prod(shape)),) if per_element else shape)
    neuron = _model(reduced, surrogate, dialect)
    made: nn.Module = Elementwise(neuron) if per_element else neuron
    before = [] if factor is None else [Affine(factor)]
    after = [] if rest is None else [Affine(offset=rest)]
    return nn.Sequential(*before, made, *after) if before or after else made


def _unit_gains(cell: Cell) -> tuple[Cell, Array | None]:
    """The cell with a factor on its input, where its gain is neither 1 nor its leak; for spikes a threshold scaled.

    A membrane that nothing but its own threshold reads may be measured in any unit.
    """
    if cell.floor is not None and np.unique(cell.floor).size > 1:
        # Neurons have one floor: measured in thresholds it is the same for all.
        assert cell.threshold is not None
        return replace(cell.scaled(1 / cell.threshold), gain=cell.gain), 1 / cell.threshold
    gain = cell.input_gain
    usual = bool(np.all(gain == 1)) or bool(np.allclose(gain, 1 - cell.decay, rtol=1e-12, atol=0))
    if usual:
        return cell, None
    if cell.spikes and bool(np.all(gain > 0)):
        return cell.with_unit_gain(), None
    return cell.with_gain(np.ones_like(gain)), gain


def _is_by_channel(value: Array, shape: Shape) -> bool:
    if value.size == 1:
        return True
    own = value.reshape(shape[0], -1) if value.shape == shape else value
    return own.ndim == 1 or bool(np.all(own == own[:, :1]))


def _reduced(cell: Cell, shape: Shape) -> Cell:
    """Constants as one number where all are equal, else one per channel of the shape."""

    def one(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.size <= 1 or bool(np.all(value == value.flat[0])):
            return value.reshape(-1)[0].reshape(()) if value.size else value
        return value.reshape(shape[0], -1)[:, 0]

    return replace(cell, **{key: one(value) for key, value in vars(cell).items()})


def _model(cell: Cell, surrogate: SurrogateLike | None, dialect: str | None) -> Neuron:
    scaled = bool(np.allclose(cell.input_gain, 1 - cell.decay, rtol=1e-12))
    decay_input = scaled and not bool(
        np.all(cell.gain == 1) and (cell.gain_s is None or np.all(cell.gain_s == 1))
    )
    if not cell.spikes:
        return _integrator(cell, decay_input)
    assert cell.threshold is not None
    options: dict[str, Any] = {
        "threshold": _tensor(cell.threshold),
        "compare": ">" if cell.strict else ">=",
        "surrogate": surrogate,
    }
    endless = bool(np.all(cell.decay == 1))
    if cell.reset_value is None:
        # Without a synapse and a rest, as sinabs has neurons whose spikes take the threshold off.
        assert cell.decay_s is None and not np.any(cell.offset)
        floor = None if cell.floor is None else float(cell.floor)
        options |= {
            "reset": "subtract",
            "levels": cell.levels,
            "level_rounding": "floor",
            "floor": floor,
            "dialect": dialect,
        }
        if endless:
            return IF(**options)
        options |= {"decay_input": False, "discretisation": "exponential"}
        return LIF(_tensor(-1 / np.log(cell.decay)), **options)
    leaks = bool(np.all(cell.decay < 1))
    rest = cell.offset / (1 - cell.decay) if leaks else cell.offset
    plain = (
        all(value.ndim == 0 or np.unique(value).size == 1 for value in (cell.reset_value, cell.start, rest))
        and (leaks or not np.any(cell.offset))
        and (bool(np.any(cell.decay < 1)) or bool(np.all(cell.start == cell.reset_value)))
        and bool(np.all(cell.threshold > 0))
    )
    if not plain:
        return GraphNeuron(cell, surrogate)
    options["reset_value"] = _one(cell.reset_value)
    at_rest: dict[str, Any] = {"rest": _one(rest), "start_value": _one(cell.start)}
    if cell.decay_s is not None:
        tau_m, tau_s = _tau(cell.decay), _tau(cell.decay_s)
        return CubaLIF(tau_m, tau_s, decay_input=decay_input, decay_current=False, **at_rest, **options)
    return IF(**options) if endless else LIF(_tau(cell.decay), decay_input=decay_input, **at_rest, **options)


def _one(value: Array) -> float:
    """The number that all entries are."""
    return float(value.flat[0])


def _integrator(cell: Cell, decay_input: bool) -> Neuron:
    tau_s = None if cell.decay_s is None else _tau(cell.decay_s)
    return Integrator(_tau(cell.decay), tau_s=tau_s, decay_input=decay_input)


def _tau(decay: Array) -> float | Tensor:
    with np.errstate(divide="ignore"):
        return _tensor(1 / (1 - decay))


def _tensor(value: Array) -> float | Tensor:
    return float(value) if value.ndim == 0 else torch.from_numpy(np.array(value))


def linear_module(node: Any) -> nn.Module:
    """`PerStep(nn.Linear)`."""
    weight, bias = array(node.weight), getattr(node, "bias", None)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    _set(layer, node.weight, bias)
    return PerStep(layer)


def conv_module(node: Any) -> nn.Module:
    """`PerStep(nn.Conv1d)` or `PerStep(nn.Conv2d)`."""
    weight = array(node.weight)
    axes, groups = weight.ndim - 2, int(node.groups)
    kind: Any = nn.Conv1d if axes == 1 else nn.Conv2d
    layer = kind(
        weight.shape[1] * groups,
        weight.shape[0],
        weight.shape[2:],
        stride=pair(node.stride, axes),
        padding=padding_of(node, axes),
        dilation=pair(node.dilation, axes),
        groups=groups,
        bias=bool(np.any(array(node.bias))),
    )
    _set(layer, node.weight, node.bias if layer.bias is not None else None)
    return PerStep(layer)


def _set(layer: nn.Linear | nn.Conv1d | nn.Conv2d, weight: Any, bias: Any) -> None:
    given = {"weight": weight} | ({} if bias is None else {"bias": bias})
    layer.load_state_dict({name: torch.from_numpy(array(value)) for name, value in given.items()})


def pool_module(node: Any, average: bool) -> nn.Module:
    """Average or sum pooling over sequences."""
    kernel, stride, padding = (pair(getattr(node, key), 2) for key in ("kernel_size", "stride", "padding"))
    return AvgPool2d(kernel, stride, padding, divisor_override=None if average else 1)  # type: ignore[arg-type]


def flatten_module(node: Any, shape: Shape) -> nn.Module:
    """`nn.Flatten` behind time and batch."""
    return nn.Flatten(int(node.start_dim) % len(shape) + 2, int(node.end_dim) % len(shape) + 2)
