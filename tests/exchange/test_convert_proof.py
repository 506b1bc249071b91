"""Comparison at the end of `convert`: a difference is kept or refused by name, and the original stays as it was."""

from collections.abc import Callable
from typing import Any

import peer_outcomes
import pytest
import torch
from loop_nets import random_spikes
from peer_standins import Leaky, LIFNode, spike, spike_at
from standin_libraries import SPIKINGJELLY
from torch import Tensor, nn
from torch.nn import functional

import snnlib
from snnlib.structure.peers import clear_states

Step = Callable[[Any, Tensor, int, Tensor], tuple[Tensor, Tensor]]


class Steps(nn.Module):
    """A loop over time within forward, whose step is given."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.f, self.n, self.step = nn.Linear(12, 10), Leaky(0.75), step
        self.gain = nn.Parameter(torch.ones(10))
        with torch.no_grad():
            self.f.weight.copy_(3 * torch.rand(10, 12, generator=torch.Generator().manual_seed(0)) - 1)

    def forward(self, x: Tensor) -> Tensor:
        state, out = self.n.reset_mem(), []
        for t in range(len(x)):
            spikes, state = self.step(self, x, t, state)
            out.append(spikes)
        return torch.stack(out)


def _x() -> Tensor:
    return random_spikes(12, 5, 12)


def _assert_equal(net: nn.Module, made: nn.Module, *inputs: Tensor, tolerance: float = 1e-4) -> None:
    names = [name for name, parameter in net.named_parameters() if parameter.requires_grad]
    for x in inputs:
        answers = []
        for run in (net, made):
            net.zero_grad()
            given = x.clone().requires_grad_()
            out = run(given)
            out.sum().backward()
            grads = {name: net.get_parameter(name).grad for name in names}
            answers.append((out.detach(), given.grad, grads))
        (a, a_x, a_grads), (b, b_x, b_grads) = answers
        assert a.any() and torch.equal(a, b)
        for one, other in ((a_x, b_x), *((a_grads[name], b_grads[name]) for name in names)):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def _frozen(net: Any, x: Tensor, t: int, state: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        current = net.f(x[t])
    return net.n(current * net.gain, state)  # type: ignore[no-any-return]


def _cast(net: Any, x: Tensor, t: int, state: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        current = net.f(x[t])
    return net.n(current.float(), state)  # type: ignore[no-any-return]


def _halved(net: Any, x: Tensor, t: int, state: Tensor) -> tuple[Tensor, Tensor]:
    spikes, state = net.n(net.f(x[t]), state)
    spikes = spikes.clone()
    spikes[spikes > 0] = 0.5
    return spikes, state


KEPT: dict[str, Step] = {
    "no_grad": _frozen,
    "autocast": _cast,
    "assignment by a mask": _halved,
    "view of the batch": lambda s, x, t, m: s.n(s.f(x[t]).view(x.shape[1], -1), m),
}


@pytest.mark.parametrize("name", KEPT)
def test_modes_of_torch_and_assignments_within_a_step(name: str) -> None:
    net = Steps(KEPT[name])
    made = snnlib.convert(net, _x(), quiet=True, unsupported="raise")
    # Products of bfloat16 are rounded to 8 bits.
    tolerance = 0.1 if name == "autocast" else 1e-4
    _assert_equal(net, made, _x(), random_spikes(7, 3, 12), tolerance=tolerance)


def test_a_loop_without_gradients_takes_other_lengths() -> None:
    net = Steps(lambda s, x, t, m: s.n(s.f(x[t]), m))
    net.forward = torch.no_grad()(net.forward)  # type: ignore[method-assign]
    made = snnlib.convert(net, _x(), quiet=True)
    out = made(random_spikes(7, 3, 12))
    assert not out.requires_grad and torch.equal(out, net(random_spikes(7, 3, 12)))


def test_a_loop_takes_a_single_sample() -> None:
    net = Steps(lambda s, x, t, m: s.n(s.f(x[t]), m))
    made = snnlib.convert(net, random_spikes(12, 1, 12), quiet=True, unsupported="raise")
    _assert_equal(net, made, random_spikes(12, 1, 12), _x())


SIZES: dict[str, Step] = {
    "number": lambda s, x, t, m: s.n(s.f(x[t]) / x.shape[1], m),
    "branch": lambda s, x, t, m: s.n(s.f(x[t]) * (1.0 if x.shape[1] < 3 else 2.0), m),
    "zeros": lambda s, x, t, m: s.n(s.f(x[t]) + torch.zeros(x.shape[1], 10), m),
    "expand": lambda s, x, t, m: s.n(s.f(x[t]) + torch.ones(1).expand(x.shape[1], 10), m),
}


@pytest.mark.parametrize("samples", [2, 5, 8])
@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_a_step_computes_with_are_the_only_ones_taken(name: str, samples: int) -> None:
    net, x = Steps(SIZES[name]), random_spikes(12, samples, 12)
    made = snnlib.convert(net, x, quiet=True)
    _assert_equal(net, made, x, random_spikes(7, samples, 12))
    for other in {1, 2, 4, 7} - {samples}:
        try:
            found = made(random_spikes(9, other, 12))
        except ValueError as reason:
            assert f"x: expected size {samples} in dimension 1, as in the input that the net was" in str(
                reason
            )
        else:
            assert torch.equal(found, net(random_spikes(9, other, 12)))


def _sets_threshold(net: Any, x: Tensor, t: int, state: Tensor) -> tuple[Tensor, Tensor]:
    net.n.threshold = torch.tensor(0.5 + 0.1 * t)
    return net.n(net.f(x[t]), state)  # type: ignore[no-any-return]


REFUSED: dict[str, tuple[Step, str]] = {
    "factor in training": (
        lambda s, x, t, m: s.n(s.f(x[t]) * (1.0 if s.training else 0.5), m),
        r"the net computes with 1\.0 in training and 0\.5 in evaluation, at its call of mul",
    ),
    "dropout in training": (
        lambda s, x, t, m: s.n(functional.dropout(s.f(x[t]), 0.5 if s.training else 0.0), m),
        r"the net computes with 0\.5 in training and 0\.0 in evaluation, at its call of dropout",
    ),
    "detached state": (
        lambda s, x, t, m: s.n(s.f(x[t]), m.detach()),
        "the state of n is changed between steps by its call of detach; .*gradient_through_time=False",
    ),
    "one step of x": (
        lambda s, x, t, m: s.n(s.f(x[0]), m),
        r"others: its call of f reads step 0 of a sequence in step 1$",
    ),
    "value of x": (
        lambda s, x, t, m: s.n(s.f(x[t]) / float(x.detach().max()), m),
        r"n \(Leaky\) has another input: \d+ of \d+ values differ, by up to .*verify=False",
    ),
    "threshold of each step": (
        _sets_threshold,
        r"n \(Leaky\) has another output: \d+ of \d+ values differ",
    ),
    "noise": (
        lambda s, x, t, m: s.n(s.f(x[t]) + torch.randn(x.shape[1], 10), m),
        "got others: |the net computes with a tensor|has another input",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_give_the_true_reason_and_leave_the_original(name: str) -> None:
    step, message = REFUSED[name]
    net = Steps(step)
    before, random = peer_outcomes.contents(net), torch.get_rng_state()
    with pytest.raises(ValueError, match=message):
        snnlib.convert(net, _x(), quiet=True)
    peer_outcomes.assert_unchanged(before, net)
    assert torch.equal(torch.get_rng_state(), random) and not net.n._forward_hooks


def test_an_output_of_evaluation_is_refused() -> None:
    class Either(Steps):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            return out if self.training else 2 * out

    with pytest.raises(ValueError, match="the net calls more functions in training mode or fewer"):
        snnlib.convert(Either(lambda s, x, t, m: s.n(s.f(x[t]), m)), _x(), quiet=True)


def test_the_mode_of_the_net_is_that_of_the_result() -> None:
    net = Steps(lambda s, x, t, m: s.n(functional.dropout(s.f(x[t]), 0.5, s.training), m)).eval()
    made = snnlib.convert(net, _x(), quiet=True)
    assert not any(module.training for module in made.modules())
    _assert_equal(net, made, _x())


class Frozen(nn.Module):
    """Batch norm and dropout, torch's or SpikingJelly's, in evaluation mode within a net in training."""

    def __init__(self, whole: bool, layers: Any) -> None:
        super().__init__()
        self.norm, self.drop = layers.BatchNorm1d(12), layers.Dropout(0.5)
        self.node = LIFNode(2.0, "m" if whole else "s")

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        return self.node(3 * self.drop(self.norm(x.flatten(0, -2))).view(shape))


@pytest.mark.parametrize("layers", [nn, SPIKINGJELLY], ids=["torch", "spikingjelly"])
@pytest.mark.parametrize("whole", [False, True])
def test_frozen_layers_stay_frozen(whole: bool, layers: Any) -> None:
    net, x = Frozen(whole, layers), _x()
    torch.manual_seed(0)
    # Statistics of the batch would give another output than these.
    net.norm.running_mean.uniform_(-0.5, 0)
    net.norm.eval(), net.drop.eval()
    made = snnlib.convert(net, x, quiet=True)
    before = net.norm.running_mean.clone()
    clear_states(net)
    wanted = net(x) if whole else torch.stack([*map(net, x)])
    clear_states(net)
    found = made(x)
    torch.testing.assert_close(found, wanted)
    assert found.any() and torch.equal(net.norm.running_mean, before)
    assert [module.training for module in net.modules()] == [True, False, False, True]
    net.norm.train(), net.drop.train()
    thawed = snnlib.convert(net, x, quiet=True)
    thawed(x)
    assert not torch.equal(net.norm.running_mean, before)


def test_an_input_without_a_batch_dimension_is_refused_and_the_advice_holds() -> None:
    net, x = nn.Sequential(nn.Linear(12, 10), Leaky(0.75, hidden=True)), random_spikes(9, 12)
    with pytest.raises(
        ValueError, match=r"does not run on x of shape \(4, 12\): .*batch dimension, x.unsqueeze\(1\)"
    ):
        snnlib.convert(net, x, quiet=True)
    assert snnlib.convert(net, x.unsqueeze(1), quiet=True)(x.unsqueeze(1)).shape == (9, 1, 10)


def test_an_input_that_the_net_does_not_take_is_named() -> None:
    net = nn.Sequential(nn.Linear(12, 10), Leaky(0.75, hidden=True))
    with pytest.raises(ValueError, match="the net itself does not run on x: RuntimeError: mat1"):
        snnlib.convert(net, random_spikes(9, 3, 11), quiet=True)


class Odd(Leaky):
    """A neuron whose attribute is not what it does."""

    def forward(self, x: Tensor, mem: Tensor | None = None) -> Any:
        self.reset_mechanism = "subtract"
        try:
            return super().forward(x, mem)
        finally:
            self.reset_mechanism = "zero"


Odd.__name__, Odd.__module__ = "Leaky", Leaky.__module__


@pytest.mark.parametrize("verify", [True, False])
def test_a_neuron_that_differs_is_kept_with_the_numbers(
    verify: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(12, 10), Odd(0.75, "zero", hidden=True)), _x()
    nn.init.uniform_(net[0].weight, 0, 1)
    made = snnlib.convert(net, x, verify=verify)
    said = capsys.readouterr().out
    expected = torch.stack([net(step) for step in x])
    assert torch.equal(made(x), expected) == verify
    if verify:
        assert "1      left as it is: 1 (Leaky) has another output: " in said and " values differ" in said
        with pytest.raises(ValueError, match=r"got 1: 1 \(Leaky\) has another output"):
            snnlib.convert(net, x, quiet=True, unsupported="raise")
    else:
        assert "(net)  verify=False: not compared with the original" in said


def test_a_gradient_that_differs_is_refused() -> None:
    class Other(Leaky):
        def __init__(self) -> None:
            super().__init__(0.75, hidden=True)
            # Its derivative depends on more than the distance from the threshold.
            self.register_full_backward_hook(lambda module, grads, _: (2 * grads[0],))

    Other.__name__, Other.__module__ = "Leaky", Leaky.__module__
    net = nn.Sequential(nn.Linear(12, 10), Other())
    nn.init.uniform_(net[0].weight, 0, 1)
    with pytest.raises(ValueError, match=r"got another: gradient of \S+: \d+ of \d+ values differ"):
        snnlib.convert(net, _x(), quiet=True)


def _twice(module: nn.Module, grads: Any, _: Any) -> tuple[Tensor, ...]:
    return (2 * grads[0],)


@pytest.mark.parametrize("place", [0, 1], ids=["layer", "neuron"])
def test_a_hook_before_a_forward_is_kept(place: int) -> None:
    net = nn.Sequential(nn.Linear(12, 10), Leaky(0.75, hidden=True))
    nn.init.uniform_(net[0].weight, 0, 1)
    net[place].register_forward_pre_hook(lambda module, inputs: (0.5 * inputs[0],))
    made = snnlib.convert(net, _x(), quiet=True)
    expected = torch.stack([net(step) for step in _x()])
    assert expected.any() and torch.equal(made(_x()), expected)


@pytest.mark.parametrize("inside", [False, True])
def test_a_backward_hook_is_refused_by_name(inside: bool) -> None:
    net: Any = Steps(lambda s, x, t, m: s.n(s.f(x[t]), m))
    if not inside:
        net = nn.Sequential(net.f, Leaky(0.75, hidden=True))
    [*net.modules()][-1].register_full_backward_hook(_twice)
    reason = (
        "a backward hook of a module, a torch.autograd.Function that the net calls"
        if inside
        else r"gradient of 0\.weight: \d+ of"
    )
    with pytest.raises(ValueError, match=reason):
        snnlib.convert(net, _x(), quiet=True)


SAME: dict[str, Step] = {
    "type of a constant": lambda s, x, t, m: s.n(s.f(x[t]) + s.offset.to(x), m),
    "type of the input": lambda s, x, t, m: s.n(s.f(x.float()[t]), m),
    "memory of the input": lambda s, x, t, m: s.n(s.f(x.contiguous()[t]), m),
}


@pytest.mark.parametrize("name", SAME)
def test_functions_that_give_their_argument(name: str) -> None:
    net = Steps(SAME[name])
    net.offset = torch.full((10,), 0.25)
    made = snnlib.convert(net, _x(), quiet=True, unsupported="raise")
    _assert_equal(net, made, _x(), random_spikes(7, 3, 12))


CONTEXTS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_context_around_each_step_of_a_chain(name: str) -> None:
    net = nn.Sequential(nn.Linear(12, 10), Leaky(0.75, hidden=True))
    nn.init.uniform_(net[0].weight, 0, 1)
    net.forward = CONTEXTS[name]()(net.forward)  # type: ignore[method-assign]
    made = snnlib.convert(net, _x(), quiet=True)
    expected, found = torch.stack([net(step) for step in _x()]), made(_x())
    assert expected.any() and torch.equal(found, expected)
    assert (found.dtype, found.requires_grad) == (expected.dtype, expected.requires_grad)


@pytest.mark.parametrize("library", ["snntorch", "spikingjelly"])
def test_a_spike_function_that_decides_otherwise_at_the_threshold(library: str) -> None:
    neuron = Leaky(0.75, hidden=True) if library == "snntorch" else LIFNode(2.0)
    other = spike_at if library == "snntorch" else spike
    setattr(neuron, "spike_grad" if library == "snntorch" else "surrogate_function", other)
    with pytest.raises(ValueError, match=r"fires? at the threshold itself has no counterpart"):
        snnlib.convert(nn.Sequential(nn.Linear(12, 10), neuron), _x(), quiet=True, unsupported="raise")


def test_reset_values_of_neurons_are_kept() -> None:
    neuron = LIFNode(2.0)
    neuron.v_reset = torch.linspace(-0.5, 0, 10)  # type: ignore[assignment]
    neuron._memories_rv = {"v": neuron.v_reset}  # type: ignore[assignment]
    with pytest.raises(ValueError, match="1: a v_reset that differs between neurons has no counterpart"):
        net = nn.Sequential(nn.Identity(), neuron)
        snnlib.convert(net, 3 * random_spikes(9, 5, 10), quiet=True, unsupported="raise")


def test_rounding_is_no_difference() -> None:
    """A spike that float32 alone moves is not held against a conversion."""
    net = nn.Sequential(nn.Linear(12, 10), Leaky(0.75, hidden=True))
    nn.init.uniform_(net[0].weight, 0, 1)
    assert spike(torch.tensor(1e-9)) == 1
    made = snnlib.convert(net, _x(), quiet=True, unsupported="raise")
    assert type(made[1]).__name__ == "LIF"


def test_attention_with_dropout_is_what_it_was() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(12, 2, dropout=0.5, batch_first=True)
            self.node = LIFNode(2.0, "m")

        def forward(self, x: Tensor) -> Tensor:
            return self.node(5 * torch.stack([self.attention(step, step, step)[0] for step in x]))

    torch.manual_seed(0)
    net, x = Attending(), torch.rand(6, 3, 4, 12)
    nn.init.uniform_(net.attention.in_proj_weight, 0, 0.3), nn.init.uniform_(net.attention.out_proj.weight)
    made = snnlib.convert(net, x, quiet=True)
    for training in (True, False):
        net.train(training), made.train(training)
        answers = []
        for run in (net, made):
            clear_states(net)
            torch.manual_seed(1)
            answers.append(run(x))
        clear_states(net)
        torch.testing.assert_close(*answers)
        assert answers[0].any()
