"""Nets in the manner of other libraries, converted: spikes, outputs, gradients and training are the original's."""

from typing import Any

import pytest
import torch
from loop_nets import Loop, random_spikes
from peer_standins import Conv2d, Leaky, LIFNode, Rare, RLeaky, spike
from torch import Tensor, nn

import snnlib
from snnlib import surrogate
from snnlib.exchange.compare import SpikeCounts
from snnlib.exchange.conversion import Comparison
from snnlib.neurons.surrogate_match import match


def _converted(net: nn.Module, x: Tensor, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    made = snnlib.convert(net, x, quiet=True, **options)
    found = snnlib.verify_conversion(net, made, x, **{k: v for k, v in options.items() if k == "loop"})
    assert found.ok, str(found)
    assert sum(counts[0] for counts in found.spikes.values()) > 0 and found.output_error < 1e-5
    assert set(found.gradient_errors) == {name for name, _ in net.named_parameters()}
    return made


@pytest.mark.parametrize("static", [False, True])
def test_loop_within_forward(static: bool) -> None:
    net = Loop(static)
    x = random_spikes(3, 12) if static else random_spikes(9, 3, 12)
    made = _converted(net, x)
    # Another length and another batch, where the loop takes its length from the input.
    other = random_spikes(5, 12) if static else random_spikes(14, 5, 12)
    with torch.no_grad():
        for ours, theirs in zip(made(other), net(other), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert not any(module._forward_hooks or "forward" in module.__dict__ for module in net.modules())


def test_a_chain_that_calls_a_module_twice() -> None:
    linear = nn.Linear(12, 12)
    net = nn.Sequential(linear, Leaky(0.9, hidden=True), linear, Leaky(0.9, hidden=True))
    with torch.no_grad():
        linear.weight.abs_()
    assert len(_converted(net, random_spikes(9, 3, 12))) == 4


@pytest.mark.parametrize("beta", [1.0, 1.2, 0.0])
def test_a_learned_membrane_that_does_not_leak_learns_as_the_original(beta: float) -> None:
    """At beta = 1 tau would be infinite, and the gradient of beta no number."""
    net, x = Loop(second=Leaky(beta, learn=True)), random_spikes(9, 3, 12)
    for neuron in (net.lif1, net.lif2):
        # snnTorch's own spikes are float32.
        neuron.spike_grad = lambda u: spike(u).to(u)
    made = _converted(net, x)
    grads = []
    for which in (net, made):
        net.zero_grad()
        which(x)[1].square().sum().backward()
        grads.append(net.lif2.beta.grad.clone())
    torch.testing.assert_close(*grads, rtol=1e-5, atol=0)
    # Nothing leaks in float64 either.
    torch.testing.assert_close(made.double()(x.double())[1], net.double()(x.double())[1], rtol=1e-15, atol=0)


def test_the_last_line_of_a_comparison_names_gradients_that_differ() -> None:
    """All spikes may be the same."""
    errors = {"fc.weight": 1e-7, "lif.beta": torch.nan, "lif.threshold": 0.5}
    found = Comparison({"lif": SpikeCounts(9)}, 0.0, errors)
    assert not found.ok
    assert str(found).splitlines()[-1] == (
        "100.0000% of the spikes are identical; outputs differ by 0.0e+00; "
        "gradients are not the same: lif.beta (nan), lif.threshold (5.0e-01)"
    )
    assert "not the same" not in str(Comparison({"lif": SpikeCounts(9)}, 0.0, {"fc.weight": 1e-7}))


class Frames(nn.Module):
    """The net of snnTorch's tutorials: `view` of the spikes of a convolution and a pool."""

    def __init__(self, sizes: Any) -> None:
        super().__init__()
        self.conv, self.pool, self.lif1 = nn.Conv2d(2, 8, 3), nn.MaxPool2d(2), Leaky(0.75)
        self.fc, self.lif2, self.sizes = nn.Linear(72, 5), Leaky(0.5), sizes

    def forward(self, x: Tensor) -> Tensor:
        mem1, mem2, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for frame in x:
            hidden, mem1 = self.lif1(self.pool(self.conv(3 * frame)), mem1)
            spikes, mem2 = self.lif2(self.fc(hidden.view(*self.sizes(frame))), mem2)
            out.append(spikes)
        return torch.stack(out)


@pytest.mark.parametrize(
    "sizes", [lambda x: (x.size(0), -1), lambda x: ((x.size(0), 72),), lambda x: (torch.Size((len(x), 72)),)]
)
def test_view_of_a_fused_convolutions_frames(sizes: Any) -> None:
    """Their channels may be last in memory, where `view` would find no such view."""
    torch.manual_seed(0)
    net, x = Frames(sizes), random_spikes(6, 3, 2, 8, 8)
    made = _converted(net, x)
    other = random_spikes(7, 4, 2, 8, 8)
    for run in (x, other):
        with torch.no_grad():
            expected = net(run)
            assert expected.any() and torch.equal(made(run), expected)
    fused = snnlib.fuse_(made)
    for run in (x, other):
        fused(run).sum().backward()
        with torch.no_grad():
            assert torch.equal(fused(run), net(run))


def test_view_as_another_dtype_stays_one() -> None:
    class Bits(Loop):
        def forward(self, x: Tensor) -> Tensor:
            mem, out = self.lif1.reset_mem(), []
            for now in x:
                spikes, mem = self.lif1(self.fc1(now), mem)
                out.append(spikes.view(torch.int32))
            return torch.stack(out)

    net, x = Bits(), random_spikes(9, 3, 12)
    with torch.no_grad():
        assert torch.equal(snnlib.convert(net, x, quiet=True)(x), net(x))


def test_training_goes_the_same_way_with_shared_weights() -> None:
    torch.manual_seed(0)
    net, twin, x, labels = Loop(), Loop(), random_spikes(9, 8, 12), torch.randint(5, (8,))
    twin.load_state_dict(net.state_dict())
    made = snnlib.convert(twin, x, quiet=True)
    assert {id(p) for p in made.parameters()} == {id(p) for p in twin.parameters()}
    losses = []
    for run in (net, made):
        optimizer = torch.optim.Adam(run.parameters(), 1e-2)
        losses.append([])
        for _ in range(20):
            loss = nn.functional.cross_entropy(run(x)[1].mean(1), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < 0.8 * losses[0][0]
    torch.testing.assert_close(*(torch.tensor(row) for row in losses), rtol=1e-4, atol=0)


class Mean(Loop):
    """Computes with the number of steps, which is a plain number in the trace."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[2] / x.size(0)


def test_number_of_steps_that_a_net_computes_with_is_kept() -> None:
    made = _converted(Mean(), random_spikes(9, 3, 12))
    assert made(random_spikes(9, 2, 12)).shape == (2, 5)
    with pytest.raises(
        ValueError,
        match=r"x: expected size 9 in dimension 0, as in the input .*, got 8: the net computes with",
    ):
        made(random_spikes(8, 3, 12))


class Batched(Loop):
    """Time in dimension 1, a running sum by +, a function between layers, recurrence, the last spikes only."""

    def forward(self, x: Tensor) -> Tensor:
        mem1, mem2, spk, total = self.lif1.reset_mem(), self.lif2.reset_mem(), torch.zeros(0), 0
        for t in range(x.shape[1]):
            now = torch.relu(self.fc1(x[:, t]))
            hidden, mem1 = self.lif1(now * self.scale, mem1)
            spk, mem2 = self.lif2(self.fc2(hidden), spk, mem2)
            total = total + spk
        return nn.functional.log_softmax(total, dim=1) + 0 * spk


def test_recurrence_running_sums_and_functions() -> None:
    torch.manual_seed(1)
    net = Batched(second=RLeaky(0.5, 5))
    nn.init.uniform_(net.fc2.weight, 0, 1)
    made = _converted(net, random_spikes(4, 11, 12))
    assert type(made.get_submodule("lif2")).__name__ == "RecurrentNeurons"
    assert made(random_spikes(2, 7, 12)).shape == (2, 5)


def test_chain_whose_loop_is_outside(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), Leaky(0.5, hidden=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3),
        Leaky(0.5, "zero", hidden=True),
    )  # fmt: skip
    for parameter in net.parameters():
        nn.init.uniform_(parameter, 0, 0.6)
    x = random_spikes(8, 2, 1, 6, 6)
    made = _converted(net, x)
    names = " ".join(type(layer).__name__ for layer in made)
    assert names == "PerStep LIF MaxPool2d PerStep PerStep LIF"
    snnlib.convert(net, x)
    out = capsys.readouterr().out
    assert "1      Leaky -> LIF\n" in out and "0      Conv2d -> PerStep(Conv2d)\n" in out


class Residual(nn.Module):
    """A net for one step, whose loop is the caller's, with a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.node = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), LIFNode()

    def forward(self, x: Tensor) -> Tensor:
        return self.node(self.bn(self.conv(x)) * 4) + x


def test_step_of_a_net_with_batch_norm_keeps_the_statistics_of_each_step() -> None:
    torch.manual_seed(0)
    net, x = Residual(), random_spikes(6, 3, 2, 5, 5)
    made = _converted(net, x)
    twin = Residual()
    twin.load_state_dict(net.state_dict())
    made.train(), twin.train()
    expected = torch.stack([twin(step) for step in x])
    assert torch.equal(made(x), expected)
    torch.testing.assert_close(made.get_submodule("bn")[0].running_var, twin.bn.running_var)


def test_nets_over_sequences_keep_their_forward() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.node = Conv2d(2, 2, 3, padding=1), LIFNode(4.0, "m")

        def forward(self, x: Tensor) -> Tensor:
            return self.node(3 * self.conv(x)) + x

    made = _converted(Net(), random_spikes(6, 3, 2, 5, 5))
    assert type(made).__name__ == "Net" and type(made.conv[0]) is nn.Conv2d
    assert list(made.state_dict()) == [
        "conv.0.weight",
        "conv.0.bias",
        *(k for k in made.state_dict() if "node" in k),
    ]


def test_module_without_counterpart_is_left_or_refused() -> None:
    net = nn.Sequential(nn.Linear(4, 6), Rare(0.5, hidden=True), nn.Linear(6, 3), Leaky(0.5, hidden=True))
    nn.init.uniform_(net[0].weight, 0, 1)
    nn.init.uniform_(net[2].weight, 0, 1)
    x = random_spikes(7, 2, 4)
    message = "expected modules with a counterpart, got 1: snnTorch's Rare has no counterpart"
    with pytest.raises(ValueError, match=message):
        snnlib.convert(net, x, unsupported="raise", quiet=True)
    made = snnlib.convert(net, x, quiet=True)
    for _ in range(2):
        expected = []
        for module in net.modules():
            if isinstance(module, Leaky):
                module.reset_mem()
        for step in x:
            expected.append(net(step))
        assert torch.equal(made(x), torch.stack(expected))
    assert bool(torch.stack(expected).any())


def test_potentials_of_a_neuron_that_is_left_as_it_is_are_given() -> None:
    torch.manual_seed(0)
    net, x = Loop(second=Rare(0.5)), random_spikes(9, 3, 12)
    nn.init.uniform_(net.fc2.weight, 0, 1)
    made = _converted(net, x)
    spikes, potentials, _, last = made(x)
    assert bool(spikes.any()) and torch.equal(potentials[:, -1], last)


@pytest.mark.parametrize("inside", [True, False])
def test_states_that_a_net_keeps_itself_stay_what_they_were(inside: bool) -> None:
    class Keeps(Loop):
        def forward(self, x: Tensor) -> Tensor:
            out = []
            for step in x if inside else [x]:
                spikes, self.mem = self.lif1(3 * self.fc1(step), self.mem)
                out.append(spikes)
            return torch.stack(out) if inside else out[0]

    torch.manual_seed(0)
    net, x = Keeps(), random_spikes(9, 3, 12)
    start = net.mem = net.lif1.reset_mem()
    made = snnlib.convert(net, x, quiet=True)
    found = snnlib.verify_conversion(net, made, x)
    assert net.mem is start and found.ok and found.spikes["lif1"][0] > 0


def test_constants_that_are_whole_numbers_are_taken() -> None:
    net = nn.Sequential(nn.Linear(4, 6), Leaky(0.5, hidden=True))
    nn.init.uniform_(net[0].weight, 0, 1)
    net[1].threshold = torch.tensor(1)
    _converted(net, random_spikes(7, 2, 4))


def test_spikes_without_a_gradient_pass_none() -> None:
    torch.manual_seed(0)
    net, x = Loop(), random_spikes(9, 3, 12)
    net.lif1.spike_grad = lambda u: (u > 0).to(u)
    nn.init.uniform_(net.fc2.weight, 0, 1)
    made = snnlib.convert(net, x, quiet=True, unsupported="raise")
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok and all(spikes[0] > 0 for spikes in found.spikes.values())
    made(x)[1].sum().backward()
    assert net.fc2.weight.grad is not None and net.fc2.weight.grad.any()
    assert net.fc1.weight.grad is None or not net.fc1.weight.grad.any()


@pytest.mark.parametrize(
    "ours",
    [
        surrogate.ATan(3.0),
        surrogate.FastSigmoid(25.0),
        surrogate.Sigmoid(4.0),
        surrogate.PiecewiseQuadratic(2.0),
        surrogate.Rect(1.5),
        surrogate.SuperSpike(2.0),
        surrogate.SoftSign(2.0),
        surrogate.Erf(2.0),
        surrogate.Gaussian(0.4),
        surrogate.Exponential(0.5),
        surrogate.Triangle(width=0.5, height=0.3),
        surrogate.Rectangle(width=0.5, height=0.3),
    ],
    ids=repr,
)
def test_surrogates_are_recognised_by_their_derivative(ours: surrogate.Surrogate) -> None:
    threshold = torch.tensor(0.8, dtype=torch.float64)
    found = match(lambda u: surrogate.spike(u, threshold, ours), 0.8)
    assert found is not None
    u = torch.linspace(-2, 2, 1001, dtype=torch.float64)
    # Borders of compact ones are between two points.
    difference = (found.derivative(u, threshold) - ours.derivative(u, threshold)).abs()
    assert float(difference.max()) <= 1e-5 * float(ours.derivative(u, threshold).max())


def test_surrogates_that_nobody_has_are_not_taken_for_another() -> None:
    assert match(torch.sin, 1.0) is None
    assert match(lambda u: (u > 0).to(u), 1.0) == surrogate.Triangle(height=0.0)
    assert match(spike, 1.0) == surrogate.ATan(2.0)
