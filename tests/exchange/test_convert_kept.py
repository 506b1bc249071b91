"""Kept modules, parametrised weights and states of other modules: as the original, or refused by name."""

from collections.abc import Callable
from typing import Any

import peer_classes
import peer_outcomes
import pytest
import torch
from loop_nets import random_spikes
from peer_standins import (
    BaseNode,
    GatedLIFNode,
    Leaky,
    LeakyParallel,
    LIFNode,
    Linear,
    NonSpikingLIFNode,
    QIFNode,
    SynapseFilter,
    spike_at,
)
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import snnlib
from snnlib.exchange.compare import SpikeCounts
from snnlib.exchange.conversion import Comparison

WIDTH = peer_classes.WIDTH
RECIPE = peer_classes.Recipe(lambda kind, mode: kind())


def _sequence() -> Tensor:
    torch.manual_seed(3)
    return torch.randint(-16, 64, (peer_classes.STEPS, 3, WIDTH)) / 64


def _check(
    build: Callable[[], nn.Module], by_step: bool, learns_by_itself: bool = False
) -> tuple[nn.Module, nn.Module]:
    """A net and its conversion, which answers as a twin of the net and leaves the net as it is.

    Args:
        build: the net, which the seed decides.
        by_step: whether the net takes single steps.
        learns_by_itself: whether a forward pass in training changes the net, as that of a spectral norm.
    """
    nets = []
    for _ in range(2):
        torch.manual_seed(0)
        nets.append(build())
    net, twin = nets
    before = peer_outcomes.contents(net)
    made = snnlib.convert(net, _sequence(), quiet=True)
    peer_outcomes.assert_unchanged(before, net)

    def run_twin(x: Tensor) -> Any:
        for module in twin.modules():
            if isinstance(module, Leaky):
                module.mem = torch.zeros(0)
            elif hasattr(module, "reset"):
                module.reset()
        return torch.stack([twin(step) for step in x]) if by_step else twin(x)

    peer_outcomes.assert_same_answers(net, twin, made, run_twin, RECIPE)
    if not learns_by_itself:
        peer_outcomes.assert_unchanged(before, net)
    return net, made


def _front(mode: str = "s") -> nn.Module:
    layer = Linear(WIDTH, WIDTH) if mode == "m" else nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        layer.weight.copy_(torch.randint(0, 80, layer.weight.shape) / 64)
        layer.bias.fill_(0.25)
    return layer


class Net(nn.Module):
    """Modules within a `forward` of its own."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, x: Tensor) -> Any:
        for part in self.parts:
            x = part(x)
        return x if isinstance(x, list) else 2 * x


class Inside(Net):
    """A loop over time within `forward`."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([super(Inside, self).forward(step) for step in x])


@pytest.mark.parametrize(
    ("form", "mode"), [(nn.Sequential, "s"), (nn.Sequential, "m"), (Net, "s"), (Net, "m"), (Inside, "s")]
)
@pytest.mark.parametrize("node", [QIFNode, lambda mode: SynapseFilter(4.0, mode)], ids=["neuron", "filter"])
def test_kept_states_start_anew_in_every_call(node: Any, mode: str, form: Any) -> None:
    """A kept neuron in step mode "m" sees the sequence, and takes no samples for steps."""
    _check(
        lambda: form(_front(mode), node(mode), LIFNode(2.0, mode)), by_step=mode == "s" and form is not Inside
    )


class Unknown(LIFNode):
    """A neuron with a surrogate gradient that no other has."""

    def __init__(self, mode: str) -> None:
        super().__init__(2.0, mode)
        self.surrogate_function = lambda u: spike_at(u) + 0.1 * (u.sin() - u.sin().detach())


Unknown.__name__, Unknown.__module__ = "LIFNode", LIFNode.__module__


@pytest.mark.parametrize("mode", ["s", "m"])
def test_a_surrogate_without_counterpart_is_kept(mode: str) -> None:
    _check(lambda: nn.Sequential(_front(mode), Unknown(mode)), by_step=mode == "s")


def test_recorded_potentials_need_no_counterpart() -> None:
    net = nn.Sequential(_front("m"), LIFNode(2.0, "m"))
    net[1].store_v_seq = True
    made = snnlib.convert(net, _sequence(), quiet=True, unsupported="raise")
    assert type(made[1]).__name__ == "LIF"


def test_potentials_of_all_steps_are_one_tensor_at_the_end_of_a_chain() -> None:
    net = nn.Sequential(_front("m"), LIFNode(2.0, "m"), NonSpikingLIFNode())
    made = snnlib.convert(net, _sequence(), quiet=True)
    expected = net(_sequence())
    assert torch.equal(made(_sequence()), torch.stack(expected))
    # A forward of one's own is given the list.
    inside = Net(_front("m"), LIFNode(2.0, "m"), NonSpikingLIFNode())
    assert isinstance(snnlib.convert(inside, _sequence(), quiet=True)(_sequence()), list)


WEIGHTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "hook": torch.nn.utils.spectral_norm,
}


@pytest.mark.parametrize("form", [nn.Sequential, Net, Inside])
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.filterwarnings("ignore:.*torch.nn.utils")
def test_parametrised_weights_learn(name: str, form: Any) -> None:
    def build() -> nn.Module:
        return form(WEIGHTS[name](nn.Linear(WIDTH, WIDTH)), Leaky(0.75, hidden=True))

    net, made = _check(build, by_step=form is not Inside, learns_by_itself=True)
    before = made(_sequence()).detach()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.rand_like(parameter))
    assert not torch.equal(made(_sequence()), before)


def test_parametrised_layers_over_sequences_learn() -> None:
    _check(lambda: nn.Sequential(parametrizations.weight_norm(_front("m")), LIFNode(2.0, "m")), by_step=False)


class Expression(nn.Module):
    """A function of a parameter in every step; `call` says what is done with the current."""

    def __init__(self, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.fc, self.lif, self.call = _front(), Leaky(0.75, hidden=True), call
        self.gain = nn.Parameter(torch.arange(1, WIDTH + 1) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.lif(self.call(self, self.fc(x)))


class Loops(Expression):
    """A net with the loop inside."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([super(Loops, self).forward(step) for step in x])


CALLS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "exp": lambda net, x: x * net.gain.exp(),
    "matrix": lambda net, x: nn.functional.linear(x, torch.diag(net.gain.abs()).T),
    "dropout": lambda net, x: nn.functional.dropout(x * net.gain, 0.5, training=net.training),
}


@pytest.mark.parametrize("kind", [Expression, Loops])
@pytest.mark.parametrize("name", CALLS)
def test_functions_of_parameters_and_modes_are_computed_anew(name: str, kind: Any) -> None:
    if name != "dropout":
        _check(lambda: kind(CALLS[name]), by_step=kind is Expression)
        return
    made = snnlib.convert(kind(CALLS[name]), _sequence(), quiet=True)
    first = made.eval()(_sequence())
    assert torch.equal(made(_sequence()), first)
    assert not all(torch.equal(made.train()(_sequence()), first) for _ in range(4))


class Bilinear(nn.Module):
    """A layer with two arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.both, self.lif = _front(), nn.Bilinear(WIDTH, WIDTH, WIDTH), Leaky(0.75, hidden=True)

    def forward(self, x: Tensor) -> Tensor:
        current = self.fc(x)
        return self.lif(self.both(current, current.relu()))


def test_a_layer_with_two_arguments_gets_both() -> None:
    _check(Bilinear, by_step=True)


class MeanFirst(nn.Module):
    """A linear layer behind a mean over time, in step mode "m"."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.node, self.out = _front("m"), LIFNode(2.0, "m"), _front("m")

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.node(self.fc(x)).mean(0))


def test_a_linear_layer_without_time_stays_one() -> None:
    _check(MeanFirst, by_step=False)


class Twice(nn.Module):
    """Net with the same neuron at two places."""

    def __init__(self, node: nn.Module) -> None:
        super().__init__()
        self.a, self.b, self.lif = _front("m"), _front("m"), node

    def forward(self, x: Tensor) -> Tensor:
        return self.lif(self.b(self.lif(self.a(x))))


class OwnState(nn.Module):
    """A filter of one's own, from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.lif, self.low = _front(), Leaky(0.75, hidden=True), torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        self.low = 0.5 * self.low + self.fc(x)
        return self.lif(self.low)


class OwnStateOverSequences(OwnState):
    """A net in step mode "m"."""

    def __init__(self) -> None:
        super().__init__()
        self.lif = LIFNode(2.0, "m")

    def forward(self, x: Tensor) -> Tensor:
        current = self.fc(x) + self.low
        self.low = current[-1].mean(0)
        return self.lif(current)


class Rounded(torch.autograd.Function):
    """Rounding with a straight-through gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class Branches(Expression):
    """Another function in training mode."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.relu() if self.training else x)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "twice": (
        lambda: Twice(Leaky(0.75, hidden=True)),
        "lif is called at 2 places of a step; give each place",
    ),
    "twice in a chain": (
        lambda: nn.Sequential(nn.Linear(6, 6), *[Leaky(0.75, hidden=True)] * 2),
        r"1 \(Leaky\) is called more than once in a forward",
    ),
    "twice over sequences": (
        lambda: Twice(QIFNode("m")),
        r"lif \(QIFNode\) is called more than once in a forward",
    ),
    "own state": (OwnState, "its call of mul; of neurons of your own say"),
    "own state over sequences": (OwnStateOverSequences, r"the net \(low\) keeps a state of its own"),
    "function": (
        lambda: Expression(lambda _, x: Rounded.apply(x)),
        "Rounded, a torch.autograd.Function that",
    ),
    "mode": (
        lambda: Branches(CALLS["exp"]),
        "does something else in training, from its call of relu on|fc on",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_place_and_the_reason(name: str) -> None:
    build, message = REFUSED[name]
    net = build()
    before = peer_outcomes.contents(net)
    with pytest.raises(ValueError, match=message):
        snnlib.convert(net, _sequence(), quiet=True)
    peer_outcomes.assert_unchanged(before, net)


@pytest.mark.parametrize(
    ("node", "name"),
    [(LeakyParallel, "snnTorch's LeakyParallel"), (GatedLIFNode, "SpikingJelly's GatedLIFNode")],
)
def test_neurons_without_the_base_class_are_named(node: Any, name: str) -> None:
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), node())
    with pytest.raises(ValueError, match=f"1: {name} has no counterpart"):
        snnlib.convert(net, _sequence(), quiet=True, unsupported="raise")
    _check(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), node()), by_step=False)


def test_a_frozen_batch_norm_stays_frozen() -> None:
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), Leaky(0.75, hidden=True))
    net[1].eval()
    made = snnlib.convert(net, _sequence(), quiet=True)
    assert [module.training for module in net.modules()] == [True, True, False, True]
    before = net[1].running_mean.clone()
    made(_sequence())
    assert torch.equal(net[1].running_mean, before)


def test_states_and_hooks_of_the_original_stay() -> None:
    net = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), QIFNode(), SynapseFilter(4.0), Leaky(0.5, "none", hidden=True)
    )
    for step in 4 * _sequence():
        net(step)
    seen: list[str] = []
    net[1].register_forward_hook(lambda *_: seen.append("called"))
    before = peer_outcomes.contents(net)
    assert isinstance(before["1.v"], Tensor) and before["3.mem"].any()
    made = snnlib.convert(net, _sequence(), quiet=True)
    snnlib.verify_conversion(net, made, _sequence())
    made(_sequence())
    peer_outcomes.assert_unchanged(before, net)


def test_a_class_of_ones_own_is_not_taken_for_the_librarys() -> None:
    class Doubled(LIFNode):
        def step(self, x: Tensor) -> Tensor:
            return 2 * super().step(x)

    Doubled.__name__ = "LIFNode"
    assert issubclass(Doubled, BaseNode)
    _check(lambda: nn.Sequential(_front("m"), Doubled(2.0, "m")), by_step=False)


class Joined(Inside):
    """All steps put together by `cat`."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([Net.forward(self, step)[None] for step in x])


def test_single_steps_that_are_read_fix_the_number_of_steps() -> None:
    net = Joined(_front(), Leaky(0.75, hidden=True))
    made = snnlib.convert(net, _sequence(), quiet=True)
    assert made(_sequence()).shape == (6, 3, WIDTH)
    with pytest.raises(ValueError, match="x: expected size 6 in dimension 0"):
        made(random_spikes(8, 3, WIDTH))


def test_the_order_of_additions_is_named_where_it_may_be_the_reason() -> None:
    few = str(Comparison({"lif": SpikeCounts(9999, 1, 0)}, 0.01, {}))
    many = str(Comparison({"lif": SpikeCounts(90, 10, 0)}, 0.5, {}))
    none = str(Comparison({"lif": SpikeCounts(90)}, 1e-7, {}))
    assert "so few spikes differ that the order of additions may be the reason" in few
    assert "the order of additions does not explain these differences" in many
    assert "order of additions" not in none


def test_every_parametrisation_of_torch_is_tried() -> None:
    assert {*parametrizations.__all__} <= {*WEIGHTS}


class Heads(nn.Module):
    """A net in step mode "m" whose `forward` asks a module for its mode, as SpikingJelly's residual nets do."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.node, self.pool = _front("m"), LIFNode(step_mode="m"), LIFNode(step_mode="m")

    def forward(self, x: Tensor) -> Tensor:
        spikes: Tensor = self.pool(self.node(self.front(x)))
        modes: Any = self.node.supported_step_mode() if hasattr(self.node, "supported_step_mode") else ("m",)
        assert "m" in modes and self.front.step_mode == "m"
        return spikes.flatten(2 if self.pool.step_mode == "m" else 1)


def test_replaced_modules_answer_for_their_step_mode() -> None:
    _, made = _check(Heads, by_step=False)
    assert made.node.step_mode == "m" and made.node.supported_step_mode() == ("m",)
    assert isinstance(made.node, snnlib.neurons.LIF)
