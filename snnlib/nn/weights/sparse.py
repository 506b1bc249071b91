"""Sparse connections: `connections=Sparse(...)` of `SpikingLinear` and `SpikingRNN`."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from snnlib.checks import as_tensor, check_choice, check_count, check_floating, check_rank, check_shape
from snnlib.functional.operators import FullyConnected, LinearOperator
from snnlib.functional.sparse import SparselyConnected, rows_by_input

__all__ = ["Sparse"]

# Connections that are drawn at once.
_DRAWN = 1 << 22


class Sparse:
    """Sparse connections, for `connections=` of `SpikingLinear` and `SpikingRNN`.

    Only existing connections take memory and time: 20 bytes each for weight, gradient, Adam's two moments and target.
    Connections are drawn, the same number for each input and uniform over outputs without repetition, or come from a
    mask or a list. The indices are buffers, which torch's `DistributedDataParallel` sends in every step unless it has
    `broadcast_buffers=False`.

    The forward pass and the gradient of the weights read the connections of events only. The gradient of a layer's
    input reads all connections; the gradient of recurrent spikes reads the connections of neurons within their
    surrogate's width, with `ATan` of all neurons.

    Args:
        mask: `[outputs, inputs]`, nonzero for each connection. Default None: connections are drawn.
        fan_out: number of connections of each input.
        density: share of connections that exist, above 0 and up to 1; each input has the nearest whole number, at
            least 1.
        generator: random generator. Default None, torch's own.

    Raises:
        ValueError: not exactly one of mask, fan_out and density, or a value out of its range.

    >>> import torch, snnlib
    >>> layer = snnlib.SpikingLinear(1000, 500, connections=snnlib.Sparse(fan_out=20))
    >>> layer.weight.shape
    torch.Size([20000])
    >>> layer((torch.rand(20, 3, 1000) < 0.1).float()).shape
    torch.Size([20, 3, 500])
    >>> layer.operator.dense().shape
    torch.Size([500, 1000])
    """

    def __init__(
        self,
        mask: Tensor | None = None,
        *,
        fan_out: int | None = None,
        density: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        given = [
            name
            for name, value in zip(("mask", "fan_out", "density"), (mask, fan_out, density), strict=True)
            if value is not None
        ]
        if len(given) != 1:
            raise ValueError(f"connections: expected one of mask, fan_out and density, got {given or 'none'}")
        if mask is not None:
            mask = as_tensor("mask", mask)
            check_rank("mask", mask, "[outputs, inputs]", exactly=2)
        if fan_out is not None:
            check_count("fan_out", fan_out)
        if density is not None and not 0 < density <= 1:
            raise ValueError(f"density: expected a share above 0 and up to 1, got {density}")
        self.mask, self.fan_out, self.density, self.generator = mask, fan_out, density, generator

    # True if the weights have the order of the given connections; the delays given with these.
    keeps_order: bool = True
    delays: Tensor | None = None

    @staticmethod
    def from_coo(
        sources: Tensor,
        targets: Tensor,
        values: Tensor | None = None,
        *,
        delays: Tensor | None = None,
        duplicates: str = "error",
    ) -> Sparse:
        """Returns connections from lists or tensors, in any order.

        Args:
            sources: input of each connection `[connections]`.
            targets: output of each connection.
            values: weight of each connection. Default None, drawn as in other layers.
            delays: delay of each connection in time steps, for `recurrent_connections=`: the initial values of
                `recurrent_delays`, which is `Delays(max_delay, per="connection")`, or None for a `max_delay` that holds
                the longest of them. Default None.
            duplicates: `"sum"` adds the values of connections with the same input and output, as of several synapses
                between two neurons; `"error"` refuses them, since they are a mistake in most lists. Default `"error"`.

        Raises:
            ValueError: tensors of different shapes, or `duplicates="sum"` without values; in the layer, two synapses
                of the same neurons with different delays.

        >>> import snnlib
        >>> given = snnlib.Sparse.from_coo([0, 1], [1, 0], [2.0, 3.0])
        >>> snnlib.SpikingLinear(2, 2, connections=given).operator.dense().tolist()
        [[0.0, 3.0], [2.0, 0.0]]
        """
        sources, targets = as_tensor("sources", sources), as_tensor("targets", targets)
        if not sources.numel() and not targets.numel():
            # torch takes an empty list for float32.
            sources, targets = sources.long(), targets.long()
        check_rank("sources", sources, "[connections]", exactly=1)
        check_shape("targets", targets, sources.shape, "the sources' shape")
        if values is not None:
            values = as_tensor("values", values)
            check_floating("values", values)
            check_shape("values", values, sources.shape, "the sources' shape")
        if delays is not None:
            delays = as_tensor("delays", delays, dtype=torch.float64)
            check_shape("delays", delays, sources.shape, "the sources' shape")
            if not bool(((delays >= 0) & delays.isfinite()).all()):
                raise ValueError("delays: expected numbers of time steps >= 0, got others")
        summed = check_choice("duplicates", duplicates, "error", "sum") == "sum"
        if summed and values is None:
            raise ValueError('values: expected the weights that duplicates="sum" adds, got None')
        return _Listed(sources, targets, values, delays, summed)

    def build(
        self, inputs: int, outputs: int, device: torch.device | str | None = None
    ) -> tuple[SparselyConnected, Tensor | None, Tensor | None]:
        """Returns the operator of a layer with these numbers of inputs and outputs, weights and delays if given.

        Raises:
            ValueError: more connections than outputs, or a mask or a list of another size.
        """
        if self.mask is not None:
            check_shape("mask", self.mask, (outputs, inputs), f"shape {(outputs, inputs)}")
            sources, targets = self.mask.t().nonzero(as_tuple=True)
            return Sparse.from_coo(sources, targets).build(inputs, outputs, device)
        count = max(round((self.density or 0) * outputs), 1) if self.fan_out is None else self.fan_out
        if count > outputs:
            raise ValueError(f"fan_out: expected up to {outputs} connections of an input, got {count}")
        targets = _drawn(inputs, outputs, count, self.generator)
        return SparselyConnected(torch.arange(inputs + 1) * count, targets, outputs).to(device), None, None

    def __repr__(self) -> str:
        if self.fan_out is not None:
            return f"Sparse(fan_out={self.fan_out})"
        return (
            f"Sparse(density={self.density})"
            if self.mask is None
            else f"Sparse(mask {tuple(self.mask.shape)})"
        )

    def __deepcopy__(self, memo: dict[int, object]) -> Sparse:
        """Returns a copy that draws from the same generator, which torch cannot copy."""
        return copy.copy(self)


class _Listed(Sparse):
    """Connections from a list, in any order."""

    def __init__(
        self, sources: Tensor, targets: Tensor, values: Tensor | None, delays: Tensor | None, summed: bool
    ) -> None:
        self.sources, self.targets, self.values, self.summed = sources, targets, values, summed
        self.delays = delays

    @property
    def keeps_order(self) -> bool:  # type: ignore[override]
        """Returns whether the list is sorted by input, then by output, as the weights are."""
        by_input = self.sources.diff()
        return bool(((by_input > 0) | (by_input == 0) & (self.targets.diff() > 0)).all())

    def build(
        self, inputs: int, outputs: int, device: torch.device | str | None = None
    ) -> tuple[SparselyConnected, Tensor | None, Tensor | None]:
        listed = self.sources, self.targets, self.values
        starts, targets, values, delays = rows_by_input(*listed, outputs, inputs, self.summed, self.delays)
        return SparselyConnected(starts, targets, outputs).to(device), values, delays

    def __repr__(self) -> str:
        return f"Sparse.from_coo({len(self.targets)} connections)"


def connect(
    inputs: int, outputs: int, connections: Sparse | None, device: torch.device | str | None
) -> tuple[LinearOperator, tuple[int, ...], Tensor | None, Tensor | None]:
    """Returns the operator of a layer, the shape of its weight, and the weight's values and delays if given."""
    if connections is None:
        return FullyConnected(), (outputs, inputs), None, None
    if not isinstance(connections, Sparse):
        raise TypeError(f"connections: expected an instance of snnlib.Sparse, got {connections!r}")
    operator, values, delays = connections.build(inputs, outputs, device)
    return operator, tuple(operator.targets.shape), values, delays


def check_without_delays(delays: Tensor | None) -> None:
    """Raises ValueError for delays in a list of input connections, which only recurrent connections can have."""
    if delays is not None:
        raise ValueError(
            "connections: expected a list without delays, got delays per connection, which sparse inputs lack: give "
            "the list as recurrent_connections of SpikingRNN, or one delay per input by delays=snnlib.Delays(...)"
        )


@torch.no_grad()
def set_values(weight: Tensor, values: Tensor | None) -> None:
    """Sets a weight to the values given with its connections."""
    if values is not None and not weight.is_meta:
        weight.copy_(values)


def _drawn(inputs: int, outputs: int, count: int, generator: torch.Generator | None) -> Tensor:
    """Draws targets of `count` connections per input, uniform without repetition, in rising order: int32."""
    if 2 * count > outputs:
        # Fewer are left out than drawn, and a set that is left out is as likely as any other.
        exists = np.ones((inputs, outputs), bool)
        left_out = _drawn(inputs, outputs, outputs - count, generator).reshape(inputs, -1)
        np.put_along_axis(exists, left_out.long().numpy(), False, axis=1)
        return torch.from_numpy(exists.nonzero()[1].astype(np.int32))
    out = np.empty((inputs, count), np.int32)
    device = "cpu" if generator is None else generator.device

    def draw(amount: int) -> np.ndarray:
        drawn = torch.randint(outputs, (amount,), dtype=torch.int32, generator=generator, device=device)
        return drawn.cpu().numpy()

    step = max(_DRAWN // max(count, 1), 1)
    for first in range(0, inputs, step):
        some = out[first : first + step]
        some[:] = draw(some.size).reshape(some.shape)
        unfinished, rows = np.arange(len(some)), some
        while len(unfinished):
            # A target that comes a second time is drawn anew, which leaves every set of targets as likely as any other.
            rows.sort(axis=1)
            again = np.zeros(rows.shape, bool)
            again[:, 1:] = rows[:, 1:] == rows[:, :-1]
            some[unfinished] = rows
            left = again.any(axis=1)
            unfinished, rows, again = unfinished[left], rows[left], again[left]
            rows[again] = draw(int(again.sum()))
    return torch.from_numpy(out.reshape(-1))
