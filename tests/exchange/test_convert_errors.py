"""Nets that `convert` refuses, with the reason, and what `verify_conversion` says of those that it took."""

from collections.abc import Callable

import pytest
import torch
from loop_nets import Loop, random_spikes
from peer_standins import Leaky, LIFNode
from torch import Tensor, nn

import snnlib
from snnlib.neurons import LIF


class OneLayer(Loop):
    """Steps of one layer, of a current that subclasses say."""

    def start(self, x: Tensor) -> Tensor:
        return self.lif1.reset_mem()

    def current(self, x: Tensor, t: int, last: Tensor) -> Tensor:
        return self.fc1(x[t])

    def forward(self, x: Tensor) -> Tensor:
        mem1, spikes, out = self.start(x), torch.zeros(x.shape[1], 16), []
        for t in range(x.size(0)):
            spikes, mem1 = self.lif1(self.current(x, t, spikes), mem1)
            out.append(spikes)
        return torch.stack(out)


class Odd(OneLayer):
    """The third step is another one."""

    def current(self, x: Tensor, t: int, last: Tensor) -> Tensor:
        current = self.fc1(x[t])
        return current.relu() if t == 2 else current.tanh()


class Reads(OneLayer):
    """A step reads what another layer did in the step before."""

    def current(self, x: Tensor, t: int, last: Tensor) -> Tensor:
        return self.fc1(x[t]) + 0.5 * last


class Starts(OneLayer):
    """A membrane that does not start at zero."""

    def start(self, x: Tensor) -> Tensor:
        return torch.ones(x.shape[1], 16)


class Uneven(Loop):
    """Net in which a neuron is called less often."""

    def forward(self, x: Tensor) -> Tensor:
        mem1 = self.lif1.reset_mem()
        for t in range(x.size(0)):
            spikes, mem1 = self.lif1(self.fc1(x[t]), mem1)
        return self.lif2(self.fc2(spikes))[0]


class Filter(nn.Module):
    """A module of one's own with a state."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        return x + 0.5 * (torch.zeros_like(x) if state is None else state)


class Filters(Loop):
    """The state of a module of one's own goes from step to step."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = Filter()

    def forward(self, x: Tensor) -> Tensor:
        mem1, state, out = self.lif1.reset_mem(), None, []
        for t in range(x.size(0)):
            state = self.filter(self.fc1(x[t]), state)
            spikes, mem1 = self.lif1(state, mem1)
            out.append(spikes)
        return torch.stack(out)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Odd, "steps that are alike, got others: step 2 differs from the others at its call of relu"),
        (
            Reads,
            "steps that are alike, got others: step 5 lacks its call of mul; of neurons of your own",
        ),
        (
            Filters,
            r"got others: step 0 differs from the others at its call of zeros_like in filter; .*neurons={Filter: ",
        ),
        (
            Starts,
            r"lif1 \(Leaky\) has another output: .*, also as it is: its state starts elsewhere than at rest",
        ),
        (Uneven, "expected every neuron to be called once per step, got calls: lif1 6, lif2 1"),
    ],
)
def test_loops_that_cannot_be_folded_are_named(net: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snnlib.convert(net(), random_spikes(6, 3, 12), quiet=True, loop="inside")


class ReturnsState(nn.Module):
    """SpikingJelly's loop for Q-learning: the last membrane is read from the neuron."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(12, 10), LIFNode(), nn.Linear(10, 2), LIFNode())

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(8):
            self.fc(x)
        return self.fc[-1].v  # type: ignore[union-attr,return-value]


def test_a_loop_whose_results_are_not_used_is_named() -> None:
    message = (
        r"net: a loop over time was found, and its results are not used: the net returns fc\.3\.v; return"
    )
    with pytest.raises(ValueError, match=message):
        snnlib.convert(ReturnsState(), random_spikes(3, 12), quiet=True)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"net: expected a module with neurons of snnTorch, .* got Linear without"
    ):
        snnlib.convert(nn.Linear(2, 2), torch.ones(2, 2, 2))
    with pytest.raises(ValueError, match="loop: expected one of auto, inside, outside, got 'none'"):
        snnlib.convert(Loop(), torch.ones(2, 2, 2), loop="none")  # type: ignore[arg-type]


def test_verification_says_where_no_spikes_were_compared() -> None:
    net = nn.Sequential(nn.Linear(4, 6), Leaky(0.5, hidden=True), nn.Linear(6, 3), Leaky(0.5, hidden=True))
    nn.init.uniform_(net[0].weight, 0, 1)
    nn.init.constant_(net[2].weight, 0)
    nn.init.constant_(net[2].bias, 0)
    x = random_spikes(7, 2, 4)
    made = snnlib.convert(net, x, quiet=True)
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok and found.silent == ["3"] and "in 1 of 2 modules of neurons" in str(found)
    assert "3         fired in neither net: nothing was compared" in str(found)
    silent = snnlib.verify_conversion(net, made, 0 * x - 10)
    assert not silent.ok and "no neuron fired: no spikes were compared" in str(silent)


def test_verification_sees_a_difference() -> None:
    net = nn.Sequential(nn.Linear(4, 6), Leaky(0.5, hidden=True))
    nn.init.uniform_(net[0].weight, 0, 1)
    x = random_spikes(7, 2, 4)
    made = snnlib.convert(net, x, quiet=True)
    made[1] = LIF(tau=4.0, decay_input=False, compare=">")
    found = snnlib.verify_conversion(net, made, x)
    assert found.identical < 1 and not found.ok and " missing, " in str(found)
