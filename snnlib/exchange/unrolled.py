"""`unroll_spikes`: runs a net of graded spikes with binary spikes, in virtual steps, and compares the two."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snnlib.checks import check_floating
from snnlib.exchange.compare import SpikeCounts
from snnlib.exchange.structure.cells import Array
from snnlib.exchange.structure.graph import Step
from snnlib.exchange.structure.hooks import check_no_acting_hooks
from snnlib.exchange.structure.stages import Stage, modules_of, stages_of
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.exchange.structure.walk import Walk
from snnlib.exchange.unrolled_chain import NeuronMaker, chain_of
from snnlib.inspect.shown import ShownAsText, in_columns
from snnlib.structure.layers import neuron_of

__all__ = ["UnrolledNet", "UnrolledReport", "unroll_spikes", "verify_unrolled"]


class LayerRun(NamedTuple):
    """A run of a layer in virtual steps.

    Args:
        spikes: binary `[T, levels, N, O, H, W]`; None of a layer that gives potentials.
        charged: membranes after leak and input, before the first virtual step `[T, N, O, H, W]`.
        membranes: membranes after the last virtual step, in the same shape, in the net's unit.
        kept: what leaks leave of the membrane, and of the synaptic current, in every step; float64.
    """

    spikes: Tensor | None
    charged: Tensor
    membranes: Tensor
    kept: Tensor


class UnrolledNet(nn.Module):
    """Binary net that runs each time step of a net of graded spikes in virtual steps; made by `unroll_spikes`.

    In the first virtual step a neuron leaks and takes its input, the sums over all virtual steps of the layer before;
    in each of `levels` virtual steps it fires at most once, and a spike takes the threshold off. A layer therefore
    waits for all virtual steps of the layer before.

    Args:
        stages: layers from first to last.
        dtype: of the net's weights.
    """

    def __init__(self, stages: list[Stage], dtype: torch.dtype) -> None:
        super().__init__()
        self.stages, self.dtype = stages, dtype

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Returns what the net of graded spikes returns: spikes per time step, or potentials `[T, N, ...]`."""
        *_, (stage, last) = zip(self.stages, self.layers(x), strict=True)
        out = last.membranes if last.spikes is None else _pooled(stage, last.spikes).sum(1)
        return out.flatten(2) if not stage.axes else out.flatten(2, -stage.axes - 1)

    def chain(self, neuron: NeuronMaker) -> nn.Sequential:
        """Returns the net as a chain of torch's layers and neurons of any library, over virtual steps.

        The chain maps inputs `[T, N, ...]` in the net's dtype to binary spikes `[T levels, N, O, H, W]`. Each of its
        neurons runs alike in all virtual steps, so it has to be integrate-and-fire without a leak: such as
        SpikingJelly's `IFNode` with `v_reset=None`.

        Args:
            neuron: makes neurons over sequences from threshold and start of the membrane; they fire at the threshold
                and take it off.

        Raises:
            ValueError: a layer with other neurons than `IF`, delays or recurrence, or a forward hook that acts; the
                message names it.

        >>> import math, snnlib, torch
        >>> from snnlib.exchange import unroll_spikes
        >>> net = torch.nn.Sequential(snnlib.SpikingLinear(20, 8, neuron=snnlib.neurons.IF(levels=4)))
        >>> x = (torch.rand(10, 3, 20) < 0.3).float()
        >>> def neuron(threshold, start):
        ...     options = {"threshold": threshold, "start_value": start, "reset": "subtract"}
        ...     return snnlib.neurons.LIF(math.inf, decay_input=False, **options)
        >>> unroll_spikes(net, x).chain(neuron)(x).shape
        torch.Size([40, 3, 8, 1, 1])
        """
        check_no_acting_hooks(self, torch.zeros(1, 1, *self.stages[0].input))
        return chain_of(self.stages, neuron, self.dtype)

    def extra_repr(self) -> str:
        """Layers with the size of their output and their virtual steps."""
        return "\n".join(
            f"{stage.name or '(net)'}: {stage.neurons}, "
            + (f"{stage.cell.levels:g} virtual steps" if stage.cell and stage.cell.spikes else "potentials")
            for stage in self.stages
        )

    def add_to(self, walk: Walk, path: str, value: Step, lead: int) -> Step:
        """Raises Unsupported: writers of graphs have no layers that wait for each other."""
        raise Unsupported("virtual steps, in which a layer waits for the layer before, have no counterpart")

    def frames(self, x: Tensor) -> Tensor:
        """Returns inputs `[T, N, ...]` as the frames `[T, 1, N, C, H, W]` of one virtual step."""
        shape = self.stages[0].input
        check_floating("x", x)
        if x.dtype != self.dtype:
            raise TypeError(
                f"x: expected {self.dtype}, as the net has it, got {x.dtype}; convert it with .to(...)"
            )
        if x.dim() < 3 or x.shape[2:].numel() != math.prod(shape) or not len(x):
            sizes = ", ".join(map(str, shape))
            raise ValueError(
                f"x: expected [T, N, {sizes}] with a time step at least, got shape {tuple(x.shape)}"
            )
        if not x.isfinite().all():
            raise ValueError("x: expected finite numbers, got NaN or infinity")
        return x.reshape(len(x), 1, x.shape[1], *shape)

    @torch.no_grad()
    def layers(self, x: Tensor) -> Iterator[LayerRun]:
        """Yields a run of each layer for inputs `[T, N, ...]` of the net, first to last.

        Raises:
            TypeError: inputs of another dtype than the net's.
            ValueError: inputs of another size, without a time step, or that are not finite.
        """
        frames = self.frames(x)
        for stage in self.stages:
            run = _run(stage, frames)
            yield run
            if run.spikes is not None:
                frames = _pooled(stage, run.spikes)


def unroll_spikes(net: nn.Module, x: Tensor) -> UnrolledNet:
    """Returns the binary net that runs each step of a net of graded spikes in `levels` virtual steps.

    With the sum x[t] of weights times spikes over all virtual steps of the layer before, and threshold theta::

        h[t, 0] = decay v[t-1] + x[t]                           leak and input come in the first virtual step alone
        s[t, k] = [h[t, k] >= theta / 2]                        k = 0 ... levels - 1; theta with level_rounding="floor"
        h[t, k+1] = h[t, k] - theta s[t, k],     v[t] = h[t, levels]

    The spikes of a step add up to the graded spike: `sum over k of s[t, k] = clamp(floor(h / theta + 1/2), 0, levels)`.
    `verify_unrolled` compares the two nets.

    Args:
        net: a chain of layers as `snnlib.to_integers` takes it, time constants shared or per channel; in evaluation
            mode.
        x: an input `[T, N, ...]`, for the sizes of frames. Inputs are taken as they are, in the first virtual step.

    Raises:
        ValueError: a module without counterpart, fixed-point arithmetic, `levels=inf`, or several levels with a reset
            other than `"subtract"`; the message names the module by its path.

    Source: Luo et al., "Integer-valued training and spike-driven inference spiking neural network for
    high-performance and energy-efficient object detection", ECCV 2024, for neurons that keep their leak to the first
    virtual step.

    >>> import snnlib, torch
    >>> from snnlib.exchange import unroll_spikes
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(20, 8, neuron=snnlib.neurons.IF(levels=4)))
    >>> x = (torch.rand(10, 3, 20) < 0.3).float()
    >>> unrolled = unroll_spikes(net, x)
    >>> [tuple(layer.spikes.shape) for layer in unrolled.layers(x)]  # [T, levels, N, neurons, 1, 1]
    [(10, 4, 3, 8, 1, 1)]
    """
    stages = stages_of(net, x)
    for stage in stages:
        if stage.refractory is not None:
            raise Unsupported(
                f"{stage.name}: fixed-point arithmetic has no counterpart in virtual steps", True
            )
    return UnrolledNet(stages, next(net.parameters()).dtype)


def _pooled(stage: Stage, spikes: Tensor) -> Tensor:
    if stage.pool == (1, 1):
        return spikes
    return F.avg_pool2d(spikes.flatten(0, 2), stage.pool).view(*spikes.shape[:3], *stage.output)


def _run(stage: Stage, frames: Tensor) -> LayerRun:
    """A layer for the frames `[T, virtual steps, N, C, H, W]` of the layer before, or of the input."""
    cell = stage.cell
    assert cell is not None
    sums = stage.products(frames.flatten(1, 2)).view(*frames.shape[:3], *stage.neurons).sum(1)
    if stage.bias is not None:
        sums = sums + stage.bias.to(sums).view(-1, 1, 1)

    def by_channel(value: Array | None) -> Tensor:
        full = np.broadcast_to(np.zeros(()) if value is None else value, stage.neurons[:1])
        return torch.from_numpy(full.copy()).to(sums).view(-1, 1, 1)

    decay, decay_s, first = (by_channel(value) for value in (cell.decay, cell.decay_s, cell.fires_at))
    keeps = cell.reset_value is None
    offset = -by_channel(cell.threshold) if keeps else by_channel(cell.reset_value)
    v = sums.new_zeros(sums.shape[1:]) + (0 if keeps else offset)
    i, fired = torch.zeros_like(v), list[Tensor]()
    steps: list[tuple[Tensor, Tensor, Tensor]] = []
    for total in sums:
        now = total
        if fired and stage.recurrent is not None:
            # The virtual steps of the last time step come back together.
            parts = [spikes.flatten(0, 1) for spikes in fired]
            now = total + stage.returned(parts).view(-1, *total.shape).sum(0).to(total)
        kept = torch.stack((decay.double() * v, decay_s.double() * i))
        # The order of the kernels' sums, so that leaks round alike.
        h = v = decay * v + decay_s * i + now
        i, spikes = decay_s * i + now, list[Tensor]()
        for _ in range(int(cell.levels) if cell.spikes else 0):
            fires = v > first if cell.strict else v >= first
            v = torch.where(fires, v + offset if keeps else offset, v)
            spikes.append(fires.to(v.dtype))
        if spikes:
            fired.insert(0, torch.stack(spikes))
            i = torch.where(fired[0].sum(0) > 0, 0, i) if stage.resets_all else i
        steps.append((h, v, kept))
    charged, membranes, leaks = (torch.stack(parts) for parts in zip(*steps, strict=True))
    membranes = by_channel(stage.unit) * membranes
    return LayerRun(torch.stack(fired[::-1]) if fired else None, charged, membranes, leaks)


class LayerProof(NamedTuple):
    """Comparison of a layer of graded spikes with its virtual steps.

    Args:
        name: path of the layer.
        levels: number of virtual steps in a time step.
        exact: whether all its sums, on these inputs, are whole multiples of a power of two that the dtype holds without
            rounding, in any order.
        spikes: spikes of both; None of a layer that gives potentials.
        potential: largest difference of membrane potentials after a time step, in the net's unit.
    """

    name: str
    levels: int
    exact: bool
    spikes: SpikeCounts | None
    potential: float

    @property
    def flips(self) -> int:
        """Returns the number of spikes that only one of the two nets fired."""
        return 0 if self.spikes is None else self.spikes.missing + self.spikes.extra


@dataclass(frozen=True)
class UnrolledReport(ShownAsText):
    """Report of `verify_unrolled`; `str()` returns a table.

    Args:
        layers: first to last.
    """

    layers: list[LayerProof]

    @property
    def exact(self) -> bool:
        """Returns whether no sum of any layer was rounded, so that both nets have to be equal bit for bit."""
        return all(layer.exact for layer in self.layers)

    @property
    def equal(self) -> bool:
        """Returns whether no spike and no potential differs."""
        return all(layer.flips == 0 and layer.potential == 0 for layer in self.layers)

    def __str__(self) -> str:
        rows = [("layer", "levels", "sums", "spikes", "flips", "potentials differ by")]
        for layer in self.layers:
            spikes = "" if layer.spikes is None else f"{layer.spikes.matched + layer.spikes.missing:,}"
            sums = "exact" if layer.exact else "rounded"
            rows.append(
                (
                    layer.name or "(net)",
                    f"{layer.levels}",
                    sums,
                    spikes,
                    f"{layer.flips:,}",
                    f"{layer.potential:.3g}",
                )
            )
        lines = in_columns(rows, left=1)
        if not self.exact:
            lines.append(
                "sums are rounded, in another order in each net: near a threshold that may flip a spike"
            )
        elif self.equal:
            lines.append("no sum is rounded: both nets are equal bit for bit")
        else:
            lines.append(
                "no sum is rounded, and yet the nets differ: the weights of one of them have changed"
            )
        return "\n".join(lines)


@torch.no_grad()
def verify_unrolled(net: nn.Module, unrolled: UnrolledNet, x: Tensor) -> UnrolledReport:
    """Runs a net of graded spikes and its unrolled net, and compares spikes and potentials of all layers.

    The two are equal bit for bit where inputs, weights, biases, decays and half the thresholds of a layer are whole
    multiples of a power of two, and its sums and potentials below 2^23 such units in float32 (2^52 in float64): then
    no operation rounds (`exact`). Elsewhere sums are rounded in another order, a potential within rounding of a
    threshold flips a spike, and the report says how many.

    Args:
        net: the net, in evaluation mode.
        unrolled: the result of `unroll_spikes`.
        x: inputs `[T, N, ...]`.

    >>> import snnlib, torch
    >>> from snnlib.exchange import unroll_spikes, verify_unrolled
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(20, 8, neuron=snnlib.neurons.IF(levels=4)))
    >>> _ = net[0].weight.data.mul_(64).round_().div_(64)
    >>> x = (torch.rand(10, 3, 20) < 0.3).float()
    >>> report = verify_unrolled(net, unroll_spikes(net, x), x)
    >>> report.exact, report.equal
    (True, True)
    """
    modules = [module for _, module in modules_of(net)]
    value, begin, frames = x, 0, unrolled.frames(x)
    if not frames.numel():
        raise ValueError(f"x: expected a sample at least, got shape {tuple(x.shape)}")
    layers = []
    for stage, run in zip(unrolled.stages, unrolled.layers(x), strict=True):
        assert stage.cell is not None
        counts, membranes = value, None
        for module in modules[begin : stage.end]:
            if membranes is None and neuron_of(module) is not None:
                value, membranes = _stepwise(module, value)
                counts = value
            else:
                value = module(value)
        begin = stage.end
        spikes = None
        if run.spikes is not None:
            ours = run.spikes.sum(1)
            spikes = SpikeCounts.of(counts.view_as(ours), ours)
        theirs = value if membranes is None else membranes
        potential = (theirs.reshape(run.membranes.shape) - run.membranes).abs().max()
        exact = _is_exact(stage, frames, run)
        layers.append(LayerProof(stage.name, int(stage.cell.levels), exact, spikes, float(potential)))
        if run.spikes is not None:
            frames = _pooled(stage, run.spikes)
    return UnrolledReport(layers)


def _stepwise(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Output of a module with neurons, and its membranes after every step."""
    state, values, membranes = None, list[Tensor](), list[Tensor]()
    for now in x[:, None]:
        value, state = module.run(now, state)  # type: ignore[operator]
        values.append(value)
        membranes.append(state[0][0])
    return torch.cat(values), torch.stack(membranes)


def _is_exact(stage: Stage, frames: Tensor, run: LayerRun) -> bool:
    """Returns whether no sum and no potential of a layer is rounded, on these frames of its inputs."""
    cell = stage.cell
    assert cell is not None
    digits = 1 - round(math.log2(torch.finfo(frames.dtype).eps))
    unit = _unit(stage.weight) * _unit(frames)
    largest = stage.weight.abs().flatten(1).sum(1) * float(frames.sum(1).abs().max())
    for part, times in ((stage.bias, 1.0), (stage.recurrent, cell.levels)):
        if part is not None:
            unit = min(unit, _unit(part))
            largest = largest + part.abs().view(len(part), -1).sum(1) * times
    first = torch.zeros(1) if cell.fires_at is None else torch.from_numpy(np.asarray(cell.fires_at))
    potentials = (run.charged, run.kept, first)
    small = max(float(part.abs().max()) for part in potentials)
    exact = float(largest.max()) < 2.0**digits * unit
    return (
        exact
        and small < 2.0 ** (digits - 1) * min(map(_unit, potentials))
        and bool(np.all(np.frexp(stage.unit)[0] == 0.5))
    )


def _unit(values: Tensor) -> float:
    """The largest power of two of which all values are whole multiples; infinite for zeros."""
    given = values[values != 0].double()
    if not len(given):
        return torch.inf
    fraction, exponent = torch.frexp(given)
    whole = (fraction * 2.0**53).long()
    lowest = torch.ldexp((whole & -whole).double(), exponent - 53)
    return float(lowest.min())
