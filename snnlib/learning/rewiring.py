"""Rewiring: moves sparse connections to other positions during training; their number stays the same."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from snnlib.checks import check_count
from snnlib.functional.sparse import SparselyConnected
from snnlib.nn.layers.delays import Delays
from snnlib.nn.recurrent.recurrent_layer import RecurrentLayer

__all__ = ["Rewiring"]

Rule = Literal["deep_r", "set"]
# Between the seeds of two steps, which are then far apart for seeds that are near.
_SEEDS_APART = 1000003


class Rewiring:
    """Moves connections of sparse weights to other positions during training; their number stays the same.

    Call `step(optimizer)` after each step of the optimiser. With the rule `"deep_r"` (DEEP R) a connection keeps its
    sign; with the learning rate eta of its weight and normal noise nu

    ::

        |w| <- |w| - eta l1 + sqrt(2 eta temperature) nu         each step, after that of the optimiser
        w   <- 0                                                 where its sign has changed: the connection is dormant

    and every `every` steps dormant connections are redrawn at random free positions with a random sign. With the rule
    `"set"` (SET), every `every` steps the `share` of the positive weights and of the negative weights nearest to 0 is
    removed, and as many connections grow at random positions.

    New connections start at 0, so moving dormant connections leaves the net's output unchanged. The optimiser's values
    of a connection (`exp_avg`, `exp_avg_sq`, `momentum_buffer`) move in memory with it, and are 0 for a new
    connection. All random choices follow from `seed` and the number of the step: a resumed run, and all processes of a
    distributed run, move the same connections.

    Args:
        net: a net with sparse layers, by `connections=Sparse(...)` or `prune_`.
        every: steps between two moves: 1 in the DEEP R paper, one epoch in the SET paper.
        rule: `"deep_r"` or `"set"`.
        l1: for `"deep_r"`: decay towards 0, in learning rates per step. Default 0.01: with Adam, whose steps are about
            one learning rate, an unused connection is dormant after some hundred steps.
        temperature: for `"deep_r"`: temperature in the equation. Default 0, no noise.
        share: for `"set"`: share of the weights that move. Default 0.3, as in the paper.
        seed: seed of positions and signs. Default 0.

    Raises:
        ValueError: a net without sparse weights, a parametrised one, delays per connection, an unknown rule, or a
            number out of its range.

    Source: Bellec et al., "Deep Rewiring: Training very sparse deep networks", ICLR 2018, algorithm 1; Mocanu et al.,
    "Scalable training of artificial neural networks with adaptive sparse connectivity inspired by network science",
    Nature Communications 9, 2018.

    >>> import torch, snnlib
    >>> from snnlib.learning import Rewiring
    >>> net = snnlib.SpikingLinear(100, 50, connections=snnlib.Sparse(density=0.1))
    >>> optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    >>> rewiring = Rewiring(net, every=1, rule="set")
    >>> x = (torch.rand(20, 3, 100) < 0.1).float()
    >>> net(x).sum().backward()
    >>> optimizer.step()
    >>> rewiring.step(optimizer) in (149, 150)              # 30 % of each sign of 500 connections, rounded down
    True
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        every: int,
        rule: Rule = "deep_r",
        l1: float = 0.01,
        temperature: float = 0.0,
        share: float = 0.3,
        seed: int = 0,
    ) -> None:
        check_count("every", every)
        if rule not in get_args(Rule):
            raise ValueError(f"rule: expected one of {', '.join(get_args(Rule))}, got {rule!r}")
        for name, value in (("l1", l1), ("temperature", temperature)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}: expected a number >= 0, got {value}")
        if not 0 < share < 1:
            raise ValueError(f"share: expected a share of the weights between 0 and 1, got {share}")
        names = {id(parameter): name for name, parameter in net.named_parameters()}
        operators = {name: part for name, part in net.named_modules() if isinstance(part, SparselyConnected)}
        for name, operator in operators.items():
            _check_plain(name.rpartition(".")[0], operator)
        for name, layer in net.named_modules():
            if isinstance(layer, RecurrentLayer) and isinstance(layer.recurrent_operator, SparselyConnected):
                _check_delays(name, layer.recurrent_delays)
        self._weights = {names[id(operator.values)]: operator for operator in operators.values()}
        if not self._weights:
            raise ValueError(
                f"net: expected layers with connections=Sparse(...), got {type(net).__name__} without sparse weights"
            )
        self.every, self.rule, self.l1, self.temperature = every, rule, l1, temperature
        self.share, self.seed = share, seed
        self.steps = 0
        # Signs of DEEP R: True for excitatory connections, by name of the weight.
        self._signs: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer) -> int:
        """Constrains signs after a step of the optimiser and, every `every` steps, moves connections.

        Returns:
            Number of moved connections.

        Raises:
            ValueError: an optimiser without one of the sparse weights, or a weight that is now parametrised; no
                connection has moved.
        """
        for name, weight in self._weights.items():
            _check_plain(name, weight)
        rates = {name: _rate(optimizer, weight.values, name) for name, weight in self._weights.items()}
        self.steps += 1
        generator = torch.Generator().manual_seed(self.seed + _SEEDS_APART * self.steps)
        moved = 0
        for name, weight in self._weights.items():
            if self.rule == "deep_r":
                self._constrain(name, weight.values, rates[name], generator)
            if self.steps % self.every == 0:
                moved += self._move(name, weight, optimizer, generator)
        return moved

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of steps and the signs of all connections, which a resumed run needs."""
        return {"steps": self.steps, "signs": dict(self._signs)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a `state_dict`, for a net with the connections of that time.

        Raises:
            ValueError: signs that do not fit the weights of the net.
        """
        counts = {name: len(weight.values) for name, weight in self._weights.items()}
        stored = {name: len(signs) for name, signs in state["signs"].items()}
        if stored and stored != counts:
            raise ValueError(f"state: expected signs of connections {counts}, got {stored}")
        self.steps = int(state["steps"])
        self._signs = {name: signs.clone() for name, signs in state["signs"].items()}

    def _constrain(self, name: str, values: Tensor, rate: float, generator: torch.Generator) -> None:
        """Completes a step of DEEP R: decay, noise, and 0 for weights that changed their sign."""
        if name not in self._signs:
            # After the first step, as what prepares a net may turn signs.
            drawn = _coins(len(values), generator).to(values.device)
            self._signs[name] = torch.where(values == 0, drawn, values.sign().to(torch.int8))
        signs = self._signs[name] = self._signs[name].to(values.device)
        values.mul_(signs).sub_(rate * self.l1)
        if self.temperature:
            noise = torch.randn(len(values), generator=generator).to(values)
            values.add_(noise, alpha=math.sqrt(2 * rate * self.temperature))
        values.clamp_(min=0).mul_(signs)

    def _move(
        self,
        name: str,
        weight: SparselyConnected,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
    ) -> int:
        values = weight.values
        fallen = (values == 0).nonzero()[:, 0] if self.rule == "deep_r" else _smallest(values, self.share)
        # Without a place there is no move.
        fallen = fallen[: math.prod(weight.shape) - len(values)]
        order, new = weight.rewire_(fallen, generator)
        carried = [
            part
            for part in (values.grad, *optimizer.state.get(values, {}).values())
            if isinstance(part, Tensor) and part.shape == values.shape
        ]
        for part in carried:
            part.copy_(part[order])
            part[new] = 0
        if name in self._signs:
            signs = self._signs[name]
            signs.copy_(signs[order])
            signs[new] = _coins(len(new), generator).to(signs.device)
        return len(fallen)


def _check_delays(name: str, delays: Delays | None) -> None:
    """Raises ValueError for delays of connections, which a move would leave to others."""
    if delays is not None and delays.per == "connection":
        raise ValueError(
            f"net: {name}.recurrent_delays: expected None or one per channel where connections move, got {delays!r}"
        )


def _check_plain(name: str, operator: SparselyConnected) -> None:
    """Raises ValueError unless the weights are a parameter, which a move can write to."""
    if not isinstance(operator.values, nn.Parameter):
        raise ValueError(
            f"net: expected plain sparse weights, got a parametrised or masked one in {name or 'net'}, whose values "
            "follow from other parameters; remove the parametrisation first"
        )


def _rate(optimizer: torch.optim.Optimizer, values: Tensor, name: str) -> float:
    """Returns the learning rate of a parameter."""
    for group in optimizer.param_groups:
        if any(parameter is values for parameter in group["params"]):
            return float(group["lr"])
    raise ValueError(
        f"optimizer: expected an optimiser that holds the weight {name} of the net, got one without it; make it from "
        "net.parameters()"
    )


def _coins(count: int, generator: torch.Generator) -> Tensor:
    """Draws 1 or -1 with equal probability."""
    return torch.randint(2, (count,), generator=generator, dtype=torch.int8) * 2 - 1


def _smallest(values: Tensor, share: float) -> Tensor:
    """Returns the indices of zeros and of the share of positive and negative values nearest to 0."""
    falls = values == 0
    for sign in (values > 0, values < 0):
        size = values[sign].abs()
        if count := int(share * len(size)):
            falls |= sign & (values.abs() <= size.kthvalue(count).values)
    return falls.nonzero()[:, 0]
