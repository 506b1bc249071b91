"""A net as a chain of stages: weights, the neurons behind them, and the pooling of their spikes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.exchange.structure.cells import Array, Cell
from snnlib.exchange.structure.connections import Connections, Shape
from snnlib.exchange.structure.hooks import check_no_acting_hooks
from snnlib.exchange.structure.neurons import Neurons, RecurrentMap
from snnlib.exchange.structure.operations import (
    Delay,
    Flatten,
    Normalise,
    Operation,
    Pool,
    Weights,
    without_groups,
)
from snnlib.exchange.structure.unsupported import Unsupported, naming
from snnlib.exchange.structure.walk import Described, called_children, graph_of, name_of
from snnlib.nn import Delays, PerStep, SpikingRNN

# A byte each.
LONGEST_DELAY = 255


@dataclass(kw_only=True)
class Stage(Connections):
    """Connections in float64, and the neurons that they lead to.

    Args:
        cell: the neurons in discrete time, with gains of 1.
        unit: what a unit of the cell's membrane is in the net's own, `[]` or one per channel.
        end: how many of the net's modules this stage and the stages before it are.
        refractory: refractory steps of neurons in fixed point, whose bias current stays in the cell; None of others.
    """

    cell: Cell | None = None
    unit: Array = field(default_factory=lambda: np.ones(()))
    end: int = 0
    refractory: float | None = None


def modules_of(net: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yields the modules over sequences that a net calls one after the other."""
    if isinstance(net, nn.Sequential) and not isinstance(net, PerStep | Described):
        for key, child in called_children(net):
            yield from modules_of(child, f"{path}.{key}".lstrip("."))
    elif isinstance(net, SpikingRNN):
        for number, layer in enumerate(net.layers):
            yield f"{path}.layers.{number}".lstrip("."), layer
    else:
        yield path, net


def stages_of(net: nn.Module, x: Tensor) -> list[Stage]:
    """Returns the stages of a net for inputs `[T, N, ...]` with the sizes of `x`.

    Raises:
        ValueError: an input without axes beside time and batch, or a net without weights.
        Unsupported: a net that is no chain of such stages; the message names the module by its path.
    """
    if x.dim() < 3:
        raise ValueError(f"x: expected [T, N, ...], got shape {tuple(x.shape)}")
    check_no_acting_hooks(net, x)
    # A row of features, and a row of frames, has axes of one element before its own.
    channels, *space = x.shape[2:]
    chain = _Chain((channels, *[1] * (2 - len(space)), *space))  # type: ignore[arg-type]
    for number, (path, module) in enumerate(modules_of(net), 1):
        if any(getattr(part, "batch_first", False) for part in module.modules()):
            raise Unsupported(
                f"{name_of(path, module)}: expected batch_first=False, got True; set it to False and give x as "
                "[T, N, ...]",
                named=True,
            )
        graph, before = graph_of(module, path), len(chain.stages)
        value = graph.input
        for step in graph.steps:
            if step.sources != (value,):
                raise _no_chain(name_of(path, module))
            with naming(step.where):
                chain.take(step.path, step.part, step.operation)
            value = step
        if len(chain.stages) > before + 1 or graph.output not in (None, value):
            raise _no_chain(name_of(path, module))
        if chain.stages:
            chain.stages[-1].end = number
    if chain.stages and chain.stages[-1].cell is None:
        # Currents without neurons: potentials that keep nothing.
        zero = np.zeros(())
        chain.neurons(Neurons(Cell(decay=zero, gain=zero + 1, offset=zero)))
    if not chain.stages:
        raise ValueError("net: expected at least one layer with weights, got none")
    return chain.stages


def _no_chain(where: str) -> Unsupported:
    return Unsupported(f"{where}: a module that is no layer, neuron or pool of a chain", named=True)


class _Chain:
    def __init__(self, shape: Shape) -> None:
        self.shape, self.stages = shape, list[Stage]()
        # Delays of the weights that follow.
        self.delays: Delays | None = None

    def take(self, path: str, part: str, operation: Operation | None) -> None:
        match operation:
            case Weights():
                self.weights(path, operation)
            case Delay(delays):
                self.delays = delays
            case Neurons():
                self.neurons(operation)
            case Normalise():
                self.normalise(operation)
            case Pool():
                self.pool(operation.window())
            case Flatten():
                # A layer's own leaves the frames before it as they are, and so does one before all layers.
                if not part and self.stages:
                    self.stages[-1].axes = 0

    def weights(self, path: str, given: Weights) -> None:
        if self.stages:
            if self.stages[-1].cell is None:
                raise Unsupported("weights after weights without neurons between them")
            if not self.stages[-1].cell.spikes:
                raise Unsupported("a layer after one that gives potentials")
            self.shape = self.stages[-1].output
        values = _copy(given.weight)
        channels, height, width = self.shape
        sizes: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
        if values.dim() == 2:
            if values.shape[1] != channels * height * width:
                raise Unsupported(f"expected {values.shape[1]} inputs, got frames {self.shape}")
            values = values.view(-1, channels, height, width)
        else:
            values, sizes = _as_two_axes(values, given.sizes())
            inputs = values.shape[1]
            if channels % inputs or len(values) % (channels // inputs):
                raise Unsupported(f"expected {inputs} channels per group, got frames of {channels}")
            values = without_groups(values, channels // inputs)
        own = None if given.bias is None else _copy(given.bias)
        axes = given.weight.dim() - 2
        self.stages.append(Stage(name=path, weight=values, bias=own, input=self.shape, axes=axes, **sizes))
        if self.delays is not None:
            self.delay(self.delays, given)
            self.delays = None

    def delay(self, delays: Delays, given: Weights) -> None:
        stage, shape = self.stages[-1], self.stages[-1].input
        if delays.per == "channel":
            steps = _whole_steps(delays)
            # Each cell of a linear layer is a channel.
            stage.delay = steps.view(shape if len(steps) == math.prod(shape) else (-1, 1, 1)).expand(shape)
            return
        if stage.weight.shape[1] != given.weight.shape[1] and given.weight.dim() > 2:
            raise Unsupported(
                'delays per="connection" of a convolution with groups, which the layer itself refuses'
            )
        stage.weight_delay = _whole_steps(delays).view_as(stage.weight)

    def normalise(self, operation: Normalise) -> None:
        if not self.stages or self.stages[-1].cell is not None:
            raise Unsupported("batch normalisation that does not stand behind weights")
        if operation.module.training:
            raise Unsupported("expected evaluation mode, net.eval()")
        scale, shift = (torch.from_numpy(values) for values in operation.factors())
        last = self.stages[-1]
        last.weight = last.weight * scale.view(-1, 1, 1, 1)
        last.bias = shift if last.bias is None else last.bias * scale + shift

    def pool(self, window: tuple[int, int]) -> None:
        if not self.stages or self.stages[-1].cell is None or self.stages[-1].pool != (1, 1):
            raise Unsupported("pooling that does not stand behind neurons")
        if math.prod(window) > 255:
            raise Unsupported("windows of more than 255 cells have no counterpart")
        self.stages[-1].pool = window

    def neurons(self, given: Neurons) -> None:
        if not self.stages or self.stages[-1].cell is not None:
            raise Unsupported("neurons that do not stand behind weights")
        in_fixed_point = given.refractory is not None
        known = {"reset_states"} | ({"reset"} if given.subtracts else set())
        known |= {"fixed_point", "refractory"} if in_fixed_point else set()
        known |= {"levels"} if given.subtracts and given.cell.levels < math.inf else set()
        unknown = [text for option, text in given.faults.items() if option not in known]
        if unknown:
            raise Unsupported(f"{unknown[0]} has no counterpart")
        last, cell = self.stages[-1], given.cell
        if given.recurrence is not None:
            self.recur(given.recurrence)
        if given.subtracts:
            cell = replace(cell, reset_value=None)
        last.unit = gain = cell.input_gain
        if not bool(np.all(gain > 0)):
            raise Unsupported("neurons whose membrane takes no input (a gain of 0) have no counterpart")
        cell = cell.scaled(1 / gain)
        ones = np.ones_like(gain)
        if np.any(cell.offset) and not in_fixed_point:
            if cell.decay_s is not None:
                raise Unsupported("a resting potential beside a synapse has no counterpart")
            rest = torch.from_numpy(np.broadcast_to(cell.offset, (len(last.weight),)).copy())
            last.bias = rest if last.bias is None else last.bias + rest
        usual = cell.reset_value if cell.reset_value is not None else np.zeros(())
        if not bool(np.all(cell.start == usual)):
            raise Unsupported("a membrane that does not start where its reset puts it has no counterpart")
        offset = cell.offset if in_fixed_point else 0 * ones
        last.cell = replace(cell, gain=ones, offset=offset, gain_s=None if cell.decay_s is None else ones)
        last.resets_all, last.refractory = given.resets_all, given.refractory

    def recur(self, back: RecurrentMap) -> None:
        if back.bias is not None or back.weight.dim() != 2:
            raise Unsupported("recurrence with a bias, or of each neuron to itself, has no counterpart")
        weight = self.stages[-1].recurrent = _copy(back.weight)
        if back.delays is not None:
            # A channel's delay is that of all its connections.
            self.stages[-1].recurrent_delay = _whole_steps(back.delays).expand_as(weight)


def _copy(values: Tensor) -> Tensor:
    """Returns values that stay as they are when the net learns on."""
    return values.detach().to("cpu", torch.float64, copy=True)


def _whole_steps(delays: Delays) -> Tensor:
    if delays.max_delay > LONGEST_DELAY:
        raise Unsupported(f"delays above {LONGEST_DELAY} steps have no counterpart")
    return torch.floor(delays().detach().cpu() + 0.5).long()


def _as_two_axes(values: Tensor, sizes: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """A weight and sizes of a convolution over one or two axes as those over two."""
    if sizes["padding"] == "valid":
        sizes["padding"] = (0,) * (values.dim() - 2)
    if sizes["padding"] == "same":
        totals = [d * (k - 1) for d, k in zip(sizes["dilation"], values.shape[2:], strict=True)]
        if any(total % 2 for total in totals):
            raise Unsupported("padding 'same' of an even extent has no counterpart")
        sizes["padding"] = tuple(total // 2 for total in totals)
    if values.dim() == 4:
        return values, sizes
    # A single axis is a row.
    neutral = {"stride": 1, "padding": 0, "dilation": 1}
    return values.unsqueeze(2), {name: (neutral[name], *own) for name, own in sizes.items()}


def decay_numbers(cell: Cell) -> tuple[float, float]:
    """Leaks of membrane and synapse; 1 without a synapse."""
    return 1 - float(cell.decay.flat[0]), 1.0 if cell.decay_s is None else 1 - float(cell.decay_s.flat[0])
