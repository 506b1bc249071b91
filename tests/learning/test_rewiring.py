"""Connections that move while a net learns: which fall, where others grow, and what goes with them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib.functional import SparselyConnected
from snnlib.learning import Rewiring

RATE = 1e-2
Connection = tuple[int, int]


def layer(density: float = 0.2, inputs: int = 30, outputs: int = 20) -> snnlib.SpikingLinear:
    torch.manual_seed(0)
    return snnlib.SpikingLinear(inputs, outputs, connections=snnlib.Sparse(density=density))


def adam(net: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=RATE)


def learn(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A step with gradients of both signs."""
    x = (torch.rand(10, 4, 30) < 0.2).float()
    out = net(x)
    optimizer.zero_grad()
    (out * torch.randn(out.shape)).sum().backward()
    optimizer.step()


def by_place(operator: SparselyConnected, sequence: Tensor) -> dict[Connection, float]:
    places = zip(operator.sources().tolist(), operator.targets.tolist(), strict=True)
    return dict(zip(places, sequence.tolist(), strict=True))


def check_rows(operator: SparselyConnected) -> None:
    """Sorted, within range and without a connection that is there twice."""
    SparselyConnected(operator.starts, operator.targets, operator.outputs)


@pytest.mark.parametrize("seed", range(40))
def test_what_stays_keeps_its_place_and_what_falls_goes_elsewhere(seed: int) -> None:
    torch.manual_seed(seed)
    outputs, inputs = (int(size) for size in torch.randint(1, 12, (2,)))
    mask = torch.rand(outputs, inputs) < torch.rand(())
    mask.view(-1)[0] = True
    operator = snnlib.SpikingLinear(inputs, outputs, connections=snnlib.Sparse(mask)).operator
    assert isinstance(operator, SparselyConnected)
    count, parameter = len(operator.targets), operator.values
    before, tags = by_place(operator, operator.values), torch.arange(count)
    falling = int(torch.randint(min(count, mask.numel() - count) + 1, ()))
    fallen = torch.randperm(count)[:falling].sort().values
    gone = {place for number, place in enumerate(before) if number in fallen.tolist()}
    order, new = operator.rewire_(fallen)
    check_rows(operator)
    assert operator.values is parameter and len(new) == falling
    after, number_of = by_place(operator, operator.values), {place: i for i, place in enumerate(before)}
    grown = {place for number, place in enumerate(after) if number in new.tolist()}
    assert not grown & set(before) and all(after[place] == 0 for place in grown)
    assert after.keys() - grown == before.keys() - gone
    for (place, value), old in zip(after.items(), tags[order].tolist(), strict=True):
        if place not in grown:
            assert value == before[place] and old == number_of[place]


def test_every_free_place_is_as_likely() -> None:
    mask = torch.tensor([[1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 0, 0]]).bool()
    found: Counter[Connection] = Counter()
    generator = torch.Generator().manual_seed(0)
    rounds = 500
    for _ in range(rounds):
        operator = snnlib.SpikingLinear(4, 3, connections=snnlib.Sparse(mask)).operator
        assert isinstance(operator, SparselyConnected)
        before = by_place(operator, operator.values)
        operator.rewire_(torch.tensor([1, 3]), generator)
        found.update(by_place(operator, operator.values).keys() - before.keys())
    free = {(i, j) for j, i in (mask == 0).nonzero().tolist()}
    assert found.keys() == free
    # 2 of 7 places: five standard deviations of a binomial are 51.
    assert all(abs(times - rounds * 2 / 7) < 51 for times in found.values())


def test_a_large_sparse_weight_is_rewired_without_its_full_matrix() -> None:
    size = 2_000_000
    torch.manual_seed(0)
    rows = snnlib.SpikingLinear(size, size, connections=snnlib.Sparse(fan_out=1)).operator
    assert isinstance(rows, SparselyConnected)
    rows.rewire_(torch.arange(0, size, 3))
    check_rows(rows)
    assert int((rows.values == 0).sum()) >= size // 3


def test_deep_r_pulls_to_0_and_stops_there() -> None:
    net = layer()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    rewiring = Rewiring(net, every=1000, l1=0.5)
    with torch.no_grad():
        net.weight[:3] = torch.tensor([1.0, -0.25 * RATE, -1.0])
    rewiring.step(optimizer)
    assert torch.allclose(net.weight[:3], torch.tensor([1 - 0.5 * RATE, 0.0, -1 + 0.5 * RATE]))
    with torch.no_grad():
        # A weight that has crossed 0 is at 0 until it moves.
        net.weight[0], net.weight[2] = -1.0, 1.0
    assert rewiring.step(optimizer) == 0
    assert net.weight[:3].tolist() == [0, 0, 0]


def test_deep_r_keeps_signs_and_moves_what_is_dormant() -> None:
    net = layer()
    operator, optimizer = net.operator, adam(net)
    assert isinstance(operator, SparselyConnected)
    rewiring = Rewiring(net, every=1, l1=0.5)
    moved, count = 0, len(net.weight)
    signs: dict[Connection, float] = {}
    for _ in range(60):
        learn(net, optimizer)
        before = by_place(operator, net.weight)
        now = rewiring.step(optimizer)
        moved += now
        after = by_place(operator, net.weight)
        check_rows(operator)
        assert len(after) == count and len(after.keys() - before.keys()) == now
        # New connections are at 0 and all others on the side on which they began.
        assert sum(value == 0 for value in after.values()) == now
        signs = {place: sign for place, sign in signs.items() if place in after}
        for place, value in after.items():
            if value:
                assert signs.setdefault(place, value) * value > 0
    assert moved > count / 4
    grown = rewiring.state_dict()["signs"]["weight"]
    assert 0.3 < float((grown > 0).float().mean()) < 0.7


def test_noise_has_the_variance_of_its_temperature() -> None:
    net = layer(0.5, 200, 200)
    with torch.no_grad():
        net.weight.fill_(1.0)
    rewiring = Rewiring(net, every=1000, l1=0.0, temperature=1e-3)
    rewiring.step(torch.optim.SGD(net.parameters(), lr=RATE))
    noise = net.weight.detach() - 1
    expected = (2 * RATE * 1e-3) ** 0.5
    assert abs(float(noise.mean())) < 4 * expected / len(noise) ** 0.5
    assert float(noise.std()) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_set_moves_the_share_nearest_to_0(share: float) -> None:
    net = layer()
    operator, optimizer = net.operator, adam(net)
    assert isinstance(operator, SparselyConnected)
    before = by_place(operator, net.weight)
    rewiring = Rewiring(net, every=2, rule="set", share=share)
    assert rewiring.step(optimizer) == 0
    assert by_place(operator, net.weight) == before
    moved = rewiring.step(optimizer)
    after = by_place(operator, net.weight)
    fallen = {place: value for place, value in before.items() if place not in after}
    for sign in (1, -1):
        sizes = {place: sign * value for place, value in before.items() if sign * value > 0}
        smallest = sorted(sizes, key=lambda place: sizes[place])[: int(share * len(sizes))]
        assert set(smallest) == {place for place, value in fallen.items() if sign * value > 0}
    assert moved == len(fallen) == sum(value == 0 for value in after.values())


@pytest.mark.parametrize(
    "make",
    [
        adam,
        lambda net: torch.optim.AdamW(net.parameters(), lr=RATE, amsgrad=True),
        lambda net: torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9),
        lambda net: torch.optim.RMSprop(net.parameters(), lr=RATE, momentum=0.9, centered=True),
    ],
    ids=["Adam", "AdamW", "SGD", "RMSprop"],
)
@pytest.mark.parametrize("rule", ["deep_r", "set"])
def test_what_the_optimiser_stores_goes_with_a_connection(
    make: Callable[[torch.nn.Module], torch.optim.Optimizer], rule: Any
) -> None:
    net = layer()
    operator, optimizer = net.operator, make(net)
    assert isinstance(operator, SparselyConnected)
    rewiring = Rewiring(net, every=1, rule=rule, l1=2.0)
    moved = 0
    for _ in range(8):
        learn(net, optimizer)
        state = optimizer.state[net.weight]
        stored = {key: value for key, value in state.items() if value.shape == net.weight.shape}
        assert stored and net.weight.grad is not None
        stored["grad"] = net.weight.grad
        before = {key: by_place(operator, value) for key, value in stored.items()}
        moved += rewiring.step(optimizer)
        for key, value in stored.items():
            for place, entry in by_place(operator, value).items():
                assert entry == before[key].get(place, 0.0)
    assert moved


@pytest.mark.parametrize("rule", ["deep_r", "set"])
def test_a_resumed_run_moves_the_same_connections(rule: Any) -> None:
    net = torch.nn.Sequential(layer(), snnlib.SpikingLinear(20, 5))
    optimizer = adam(net)
    rewiring = Rewiring(net, every=3, rule=rule, l1=1.0, temperature=1e-4, seed=7)

    def go_on(net: torch.nn.Module, optimizer: torch.optim.Optimizer, rewiring: Rewiring) -> int:
        moved = 0
        for step in range(8):
            torch.manual_seed(step)
            learn(net, optimizer)
            moved += rewiring.step(optimizer)
        return moved

    go_on(net, optimizer, rewiring)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict(), rewiring.state_dict()))
    moved = go_on(net, optimizer, rewiring)
    other = torch.nn.Sequential(layer(), snnlib.SpikingLinear(20, 5))
    again = adam(other)
    resumed = Rewiring(other, every=3, rule=rule, l1=1.0, temperature=1e-4, seed=7)
    for part, state in zip((other, again, resumed), saved, strict=True):
        part.load_state_dict(state)  # type: ignore[attr-defined]
    assert go_on(other, again, resumed) == moved > 0
    for key, value in net.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key


def test_recurrent_nets_are_rewired_in_both_weights() -> None:
    torch.manual_seed(0)
    sparse = snnlib.Sparse(density=0.2)
    net = snnlib.SpikingRNN(30, 20, num_layers=2, connections=sparse, recurrent_connections=sparse)
    optimizer = adam(net)
    rewiring = Rewiring(net, every=1, rule="set")
    learn(net, optimizer)
    names = [name for name, _ in net.named_parameters()]
    places = [module.targets.clone() for module in net.modules() if isinstance(module, SparselyConnected)]
    assert rewiring.step(optimizer)
    after = [module.targets for module in net.modules() if isinstance(module, SparselyConnected)]
    assert len(after) == 4 and not any(map(torch.equal, places, after))
    assert [name for name, _ in net.named_parameters()] == names
    learn(net, optimizer)


def test_a_full_matrix_has_nowhere_to_move() -> None:
    net = layer(1.0)
    assert Rewiring(net, every=1, rule="set").step(adam(net)) == 0


def test_what_does_not_fit_is_named() -> None:
    net = layer()
    for options, message in (
        ({"every": 0}, "every: expected an integer >= 1, got 0"),
        ({"every": 1, "rule": "rigl"}, "rule: expected one of deep_r, set, got 'rigl'"),
        ({"every": 1, "l1": -1.0}, "l1: expected a number >= 0, got -1"),
        ({"every": 1, "temperature": float("nan")}, "temperature: expected a number >= 0, got nan"),
        ({"every": 1, "share": 1.0}, "share: expected a share of the weights between 0 and 1, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Rewiring(net, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="net: expected layers with connections=Sparse"):
        Rewiring(snnlib.SpikingLinear(3, 2), every=1)
    late = snnlib.SpikingRNN(
        3, 9, recurrent_connections=snnlib.Sparse(fan_out=2), recurrent_delays=snnlib.Delays(2, "connection")
    )
    with pytest.raises(
        ValueError, match=r"net: layers\.0\.recurrent_delays: expected None or one per channel"
    ):
        Rewiring(late, every=1)
    with pytest.raises(
        ValueError, match="optimizer: expected an optimiser that holds the weight weight of the net"
    ):
        Rewiring(net, every=1).step(adam(layer()))
    rewiring = Rewiring(net, every=1)
    with pytest.raises(ValueError, match=r"state: expected signs of connections \{.weight.: 120\}"):
        rewiring.load_state_dict({"steps": 1, "signs": {"weight": torch.ones(3, dtype=torch.int8)}})
    operator = layer(0.9).operator
    assert isinstance(operator, SparselyConnected)
    with pytest.raises(ValueError, match="fallen: expected up to 60 connections to move, got 61"):
        operator.rewire_(torch.arange(61))
