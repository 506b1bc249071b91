"""A linear operator with sparse connections, stored by input."""

from __future__ import annotations

import copy
import weakref
import zlib
from typing import Any

import torch
from torch import Tensor, nn

from snnlib import ops
from snnlib.checks import check_count, check_integers, check_rank, check_sequence_rank, check_shape
from snnlib.functional.operators import LinearOperator, check_dtypes, check_pair
from snnlib.ops.sparse_linear import check_ends, check_indices

__all__ = ["SparselyConnected"]


class SparselyConnected(nn.Module):
    """`I = x W^T` for a sparse W `[outputs, inputs]`; the connections of input j begin at index `starts[j]`.

    ::

        I[n, targets[c]] += x[n, j] weight[c]            for c from starts[j] to starts[j + 1] - 1

    An operator for `snnlib.functional.spiking_layer` and `spiking_recurrent` with a weight `[connections]`. On a CPU
    an event adds the weights of its input's connections, and the gradient of the weights reads the signal at the
    targets of each event. Sums have the order, and so the bits, of a full matrix with zeros in event-driven kernels.
    Other devices use `index_add`. Frames may have axes, in the order of `torch.nn.Flatten`.

    Args:
        starts: integers `[inputs + 1]`, from 0 to the number of connections in rising order.
        targets: the output of each connection `[connections]`, integers in rising order within an input.
        outputs: number of outputs.

    Raises:
        ValueError: starts or targets out of order or range.

    >>> import torch, snnlib
    >>> operator = snnlib.functional.SparselyConnected(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), 3)
    >>> weight = torch.tensor([1.0, 2.0, 4.0])
    >>> operator(torch.tensor([[1.0, 1.0]]), weight).tolist()
    [[1.0, 4.0, 2.0]]
    >>> operator.dense(weight).tolist()
    [[1.0, 0.0], [0.0, 4.0], [2.0, 0.0]]
    """

    starts: Tensor
    targets: Tensor
    # Origin of a deep copy: the operator, the checksum of the connections, and when they were checked.
    _copied: tuple[weakref.ref[SparselyConnected], int, tuple[int, int]] | None = None

    def __init__(self, starts: Tensor, targets: Tensor, outputs: int) -> None:
        super().__init__()
        check_count("outputs", outputs)
        for name, part in (("starts", starts), ("targets", targets)):
            check_integers(name, part)
            check_rank(name, part, "[inputs + 1]" if name == "starts" else "[connections]", exactly=1)
        self.outputs = outputs
        self.register_buffer("starts", starts.long())
        self.register_buffer("targets", targets.int())
        self._check_rows()

    def _check_rows(self) -> None:
        starts, targets, count = self.starts, self.targets, len(self.targets)
        if starts.is_meta:
            return
        check_ends(starts, count)
        check_indices(starts, targets, self.outputs)
        rises = targets.diff() > 0
        # The first target of an input follows on the last of another.
        first = starts[1:-1]
        rises[first[(first > 0) & (first < count)] - 1] = True
        if not bool(rises.all()):
            raise ValueError("targets: expected outputs in rising order within each input, got others")

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs), the shape of the full matrix."""
        return self.outputs, len(self.starts) - 1

    @property
    def fan_in(self) -> float:
        """Mean number of connections per output."""
        return len(self.targets) / self.outputs

    def sources(self) -> Tensor:
        """Returns the input of each connection, int32 `[connections]`."""
        inputs = torch.arange(self.shape[1], dtype=torch.int32, device=self.starts.device)
        return inputs.repeat_interleave(self.starts.diff(), output_size=len(self.targets))

    def dense(self, weight: Tensor | None = None) -> Tensor:
        """Returns the full matrix `[outputs, inputs]`, 0 without a connection; None takes `values`."""
        self._check_copied()
        weight = self.values if weight is None else weight
        out = weight.new_zeros(self.shape[::-1])
        return out.index_put((self.sources().long(), self.targets.long()), weight).t()

    def bind(self, layer: nn.Module, name: str) -> None:
        """Makes a layer's parameter of this name the `values` of the connections."""
        # Not as a submodule, whose parameters would be listed a second time.
        self.__dict__["_owner"] = (layer, name)

    @property
    def values(self) -> nn.Parameter:
        """The layer's parameter with the weights `[connections]` of this operator."""
        if "_owner" not in self.__dict__:
            raise ValueError(
                "weight: expected an operator that a layer has, got one without weights of its own"
            )
        layer, name = self.__dict__["_owner"]
        return getattr(layer, name)  # type: ignore[no-any-return]

    @torch.no_grad()
    def rewire_(self, fallen: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Moves connections to uniformly drawn free positions, with weights of 0.

        Time and memory are proportional to the number of connections, not to the size of the full matrix.

        Args:
            fallen: indices of the connections that move, int64 in rising order, at most as many as there are free
                positions.
            generator: random generator on the CPU. Default None, torch's own.

        Returns:
            (order, new): the old index of each connection, int64 `[connections]`, and the new indices of the moved
            connections in rising order, at which `order` has no meaning. Reorder values per connection by
            `old[order]`.

        Raises:
            ValueError: more connections than free positions.
        """
        device = self.starts.device
        outputs, inputs = self.shape
        starts, targets, moved = self.starts, self.targets, torch.arange(len(fallen), device=device)
        # Free places before each input's.
        free = torch.arange(inputs + 1, device=device) * outputs - starts
        if len(fallen) > int(free[-1]):
            raise ValueError(f"fallen: expected up to {int(free[-1])} connections to move, got {len(fallen)}")
        drawn = _distinct(len(fallen), int(free[-1]), generator).to(device)
        source = torch.searchsorted(free, drawn, right=True) - 1
        first = starts[source]
        place, end, within = first, starts[source + 1], drawn - free[source]
        # Finds by bisection how many connections of an input come before its free place number `within`.
        while bool((place < end).any()):
            middle = (place + end) // 2
            before = targets[middle.clamp(max=len(targets) - 1)] - (middle - first) <= within
            open_ = place < end
            place, end = (
                torch.where(open_ & before, middle + 1, place),
                torch.where(open_ & ~before, middle, end),
            )
        target = within + place - first
        new = place - torch.searchsorted(fallen, place) + moved
        order = _merged(len(targets), fallen, new)
        counts = starts.diff() + torch.bincount(source, minlength=inputs)
        counts -= torch.bincount(torch.searchsorted(starts, fallen, right=True) - 1, minlength=inputs)
        torch.cumsum(counts, 0, out=starts[1:])
        targets.copy_(targets[order]).index_copy_(0, new, target.int())
        self._copied = None
        self.values.copy_(self.values[order]).index_fill_(0, new, 0)
        return order, new

    def check(self, x: Tensor, weight: Tensor) -> None:
        """Raise an error that names the argument."""
        self._check_copied()
        check_pair(x, weight, "[connections]")
        check_dtypes(x, weight)
        check_shape("weight", weight, self.targets.shape, f"{len(self.targets)} connections")
        check_sequence_rank(x, "[T, N, inputs] or [T, N, C, ...]")
        if x.shape[2:].numel() != self.shape[1]:
            raise ValueError(f"x: expected {self.shape[1]} inputs in a frame, got shape {tuple(x.shape)}")

    def _options(self) -> tuple[Any, ...]:
        return None, self.starts, self.targets, self.outputs, (), (), (), 1, True

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Currents `[B, outputs]`."""
        current: Tensor = ops.currents.currents_forward(x.flatten(1)[None], weight, *self._options())
        return current[0]

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """`b W`."""
        return self._backward(signal, x, weight, (True, False))[0].view(x.shape)

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """`a^T x` at the connections."""
        return self._backward(signal, x, weight, (False, True))[1]

    def _backward(
        self, signal: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor]:
        frames = x.flatten(1)[None]
        found = ops.currents.currents_backward(signal[None], frames, weight, *self._options(), *needs, False)
        return found[0], found[1]

    def __deepcopy__(self, memo: dict[int, Any]) -> SparselyConnected:
        """Returns a copy that remembers its connections, since `AveragedModel` averages the copy's buffers."""
        self._check_copied()
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        vars(new).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
        if not new.starts.is_meta:
            new._copied = (weakref.ref(self), new._checksum(), new._written())
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for pickles, without the original."""
        self._check_copied()
        return {name: value for name, value in vars(self).items() if name != "_copied"}

    def _checksum(self) -> int:
        parts = (part.cpu().numpy().data for part in (self.starts, self.targets))
        return zlib.crc32(next(parts), zlib.crc32(next(parts)))

    def _written(self) -> tuple[int, int]:
        """Returns identity and version of the tensor of targets."""
        return id(self.targets), 0 if self.targets.is_inference() else self.targets._version

    def _check_copied(self) -> None:
        """Undoes averages of indices in the buffers of a copy.

        Raises:
            ValueError: the buffers hold other connections, so averages would mix weights of different connections.
        """
        if self._copied is None or torch.compiler.is_compiling():
            return
        original, checksum, written = self._copied
        # Other tensors are the caller's, as those of torch.func.functional_call.
        if written == self._written() or written[0] != id(self.targets):
            return
        source = original()
        if self._checksum() != checksum:
            if source is None or source._checksum() != checksum:
                raise ValueError(
                    "connections: expected the connections of the original layer, got others in the copy's buffers, as "
                    "in torch.optim.swa_utils.AveragedModel after Rewiring moved connections: averages would mix the "
                    "weights of different connections. Make the AveragedModel after the last move"
                )
            with torch.no_grad():
                self.starts.copy_(source.starts), self.targets.copy_(source.targets)
        self._copied = original, checksum, self._written()

    def _apply(self, *args: Any, **options: Any) -> SparselyConnected:
        self._check_copied()
        super()._apply(*args, **options)  # type: ignore[no-untyped-call]
        if self._copied is not None:
            self._copied = *self._copied[:2], self._written()
        return self

    def _save_to_state_dict(self, *args: Any) -> None:
        self._check_copied()
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        # From now on the connections are the file's.
        self._copied = None
        try:
            self._check_rows()
        except ValueError as error:
            # Kernels would read beyond their tensors.
            errors: list[str] = rest[-1]
            errors.append(f"{prefix}{error}")

    def extra_repr(self) -> str:
        """Sizes."""
        outputs, inputs = self.shape
        return f"{inputs}, {outputs}, connections={len(self.targets)}"


def fan_in(operator: LinearOperator | None, weight: Tensor) -> float:
    """Returns the fan-in of a neuron, the mean if connections are sparse; None stands for a full matrix."""
    return operator.fan_in if isinstance(operator, SparselyConnected) else weight.shape[1:].numel()


def rows_by_input(
    sources: Tensor,
    targets: Tensor,
    values: Tensor | None,
    outputs: int,
    inputs: int,
    summed: bool = False,
    delays: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Sorts connections by input: returns starts `[inputs + 1]`, targets, values and delays.

    With `summed` the connections of the same input and output become one that has the sum of their values.

    Raises:
        ValueError: a source or target out of range, or two connections of the same input and output, with `summed`
            only if their delays differ.
    """
    for name, part, count in (("sources", sources, inputs), ("targets", targets, outputs)):
        check_integers(name, part)
        least, most = (int(bound) for bound in part.aminmax()) if len(part) else (0, 0)
        if least < 0 or most >= count:
            raise ValueError(f"{name}: expected numbers from 0 to {count - 1}, got {least} to {most}")
    key, order = (sources.long() * outputs + targets).sort(stable=True)
    values = None if values is None else values[order]
    if delays is not None:
        delays, first = delays[order], torch.ones_like(key, dtype=torch.bool)
        first[1:] = key.diff() > 0
        differs = (~first[1:] & (delays.diff() != 0)).nonzero()
        if len(differs):
            place = int(differs[0])
            source, target = divmod(int(key[place]), outputs)
            raise ValueError(
                f"delays: expected one delay for all synapses from input {source} to output {target}, got "
                f"{float(delays[place]):g} and {float(delays[place + 1]):g}: a layer has one connection, and so one "
                "delay, for each input and output; give them the same delay, or leave one out"
            )
        delays = delays[first] if summed else delays
    if summed and values is not None:
        key, place = torch.unique_consecutive(key, return_inverse=True)
        values = values.new_zeros(len(key)).index_add(0, place, values)
    elif bool((key.diff() == 0).any()):
        raise ValueError(
            "targets: expected one connection of an input and an output, got two of the same; "
            'Sparse.from_coo(sources, targets, values, duplicates="sum") adds their weights'
        )
    starts = torch.zeros(inputs + 1, dtype=torch.int64, device=key.device)
    torch.cumsum(torch.bincount(key // outputs, minlength=inputs), 0, out=starts[1:])
    return starts, (key % outputs).int(), values, delays


def _distinct(count: int, among: int, generator: torch.Generator | None) -> Tensor:
    """Draws distinct numbers below `among` uniformly, in rising order."""
    if 2 * count >= among:
        return torch.randperm(among, generator=generator)[:count].sort().values
    drawn = torch.empty(0, dtype=torch.int64)
    while len(drawn) < count:
        more = torch.randint(among, (count - len(drawn),), generator=generator)
        drawn = torch.unique(torch.cat((drawn, more)))
    return drawn


def _merged(count: int, fallen: Tensor, new: Tensor) -> Tensor:
    """Returns the old index of each of `count` connections after those at `fallen` moved to `new`."""
    every = torch.arange(len(fallen), device=fallen.device)
    # The one after each that left, by its number among those that stay, and where it is now.
    stays = fallen - every
    after = stays + torch.searchsorted(new - every, stays, right=True)
    order = torch.ones(count + 1, dtype=torch.int64, device=fallen.device)
    order[new] = 0
    order.index_add_(0, after, torch.ones_like(after))
    return order.cumsum_(0)[:count].sub_(1).clamp_(min=0, max=max(count - 1, 0))
