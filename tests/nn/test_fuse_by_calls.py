"""`fuse_(net, x)` finds blocks in classes with a `forward` of their own, and changes no result of any kind of net."""

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.nn.fusion import fuse
from snnlib.nn.fusion.gain import Gain, gain_of
from snnlib.nn.fusion.handover import PartForward, Pending
from snnlib.nn.fusion.normalized_block import NormalizedNeurons

FRAME = (3, 8, 8)


@pytest.fixture(autouse=True)
def blocks_of_any_size(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Lets blocks form that gain nothing on nets as small as these."""
    if "costs" not in request.node.name:
        monkeypatch.setattr(fuse, "gain_of", lambda *_: Gain(1.0, 2.0))


def _events(steps: int = 4, batch: int = 2) -> Tensor:
    return (torch.rand(steps, batch, *FRAME, generator=torch.Generator().manual_seed(3)) < 0.4).float()


def _lif() -> snnlib.neurons.LIF:
    return snnlib.neurons.LIF(2.0, surrogate=snnlib.surrogate.ATan())


def _conv(before: int, after: int, bias: bool = False, stride: int = 1) -> snnlib.PerStep:
    return snnlib.PerStep(nn.Conv2d(before, after, 3, padding=1, bias=bias, stride=stride))


def _norm(channels: int) -> snnlib.PerStep:
    return snnlib.PerStep(nn.BatchNorm2d(channels))


class Parts(nn.Module):
    """Modules of one block, and a head."""

    def __init__(self) -> None:
        super().__init__()
        # The name is that of a list in many nets.
        self.blocks, self.parts = _conv(3, 8), _norm(8)
        self.neuron, self.pool = _lif(), snnlib.AvgPool2d(2)
        self.extra = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.neuron(self.parts(self.blocks(x))))


class WithoutNorm(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.neuron(self.blocks(x)))


class Sew(nn.Module):
    """Block of SEW-ResNet: spikes are added to spikes, and a shortcut of its own stands in an `nn.Sequential`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(_conv(3, 8), _norm(8))
        self.fire = _lif()
        self.convs = nn.ModuleList([_conv(8, 8), _conv(8, 8, bias=True)])
        self.norms = nn.ModuleList([_norm(8), _norm(8)])
        self.neurons = nn.ModuleList([_lif(), _lif()])

    def forward(self, x: Tensor) -> Tensor:
        x = out = self.fire(self.first(x))
        for conv, norm, neuron in zip(self.convs, self.norms, self.neurons, strict=True):
            out = neuron(norm(conv(out)))
        out += x
        return out


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = snnlib.PerStep(nn.Linear(192, 12, bias=False), nn.BatchNorm1d(12))
        self.neuron = _lif()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"spikes": self.neuron(self.map(x.flatten(2)))}


class Residual(Parts):
    """Spiking ResNet: the shortcut is added to currents, behind batch norm."""

    def forward(self, x: Tensor) -> Tensor:
        current = self.parts(self.blocks(x))
        return self.pool(self.neuron(current + x.sum(2, keepdim=True)))


class Norms(Parts):
    """The output of batch norm is read twice."""

    def forward(self, x: Tensor) -> Tensor:
        current = self.parts(self.blocks(x))
        return self.pool(self.neuron(current)) + current.mean()


class Shapes(Parts):
    """The shape of currents is read."""

    def forward(self, x: Tensor) -> Tensor:
        current = self.blocks(x)
        return self.neuron(self.parts(current)).reshape(*current.shape[:2], -1)


class Twice(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return self.neuron(self.blocks(x)) + self.neuron(self.blocks(x.flip(0)))


class InTraining(Parts):
    def forward(self, x: Tensor) -> Tensor:
        current = self.parts(self.blocks(x))
        return self.neuron(current * 1.5 if self.training else current)


class Later(Parts):
    """An attribute, which no trace sees change, lets something else read currents."""

    def forward(self, x: Tensor) -> Tensor:
        current = self.blocks(x)
        if self.extra:
            current = (
                torch.cat([current, self.extra * current]).mean() + 0.5 * (-current)[:, :1] + current * 2
            )
        return self.neuron(self.parts(current))


class ByValue(Parts):
    def forward(self, x: Tensor) -> Tensor:
        current = self.blocks(x)
        return self.neuron(self.parts(current) if x.sum() > 0 else current)


# The net, and how many blocks it gets.
NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "convolution, norm, neurons, pool": (Parts, 1),
    "without norm": (WithoutNorm, 1),
    "SEW, lists, a sequence inside": (Sew, 3),
    "linear, a dictionary": (Linear, 1),
    "shortcut to currents": (Residual, 0),
    "norm read twice": (Norms, 0),
    "shape read": (Shapes, 0),
    "called twice": (Twice, 0),
    "other in training": (InTraining, 0),
    "changed later": (Later, 1),
    "nested": (lambda: nn.Sequential(nn.Identity(), Sew(), nn.Flatten(2)), 3),
}


def _made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    net = make()
    # Powers of two, so that sums are exact in any order but for batch norm.
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.weight.data = torch.randint(-2, 4, module.weight.shape) / 4
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, 0.5, 1.0)
    return net


def _blocks(net: nn.Module) -> int:
    return sum(len(getattr(module, "fused_blocks", {})) for module in net.modules())


def _tensor(out: Any) -> Tensor:
    return out["spikes"] if isinstance(out, dict) else out


def _run(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Output, and gradients of the input and of all parameters that have one."""
    x = x.clone().requires_grad_()
    out = _tensor(net(x))
    assert type(out) is Tensor
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    learned = [x, *net.parameters()]
    found = torch.autograd.grad(out, learned, weights, allow_unused=True)
    return out, [torch.zeros_like(p) if g is None else g for p, g in zip(learned, found, strict=True)]


def _assert_same(net: nn.Module, other: nn.Module, x: Tensor) -> float:
    """Compares outputs, gradients and buffers after a call of each; returns the mean of the output."""
    (out, gradients), (expected, answers) = _run(net, x), _run(other, x)
    # Rounding of batch norm may move a potential over its threshold.
    close = (out - expected).abs() <= 1e-4
    assert close.float().mean() >= 0.998
    if close.all():
        largest = max(float(answer.abs().max()) for answer in answers)
        for gradient, answer in zip(gradients, answers, strict=True):
            torch.testing.assert_close(gradient, answer, rtol=1e-3, atol=1e-4 * largest)
    for buffer, answer in zip(net.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(buffer, answer, rtol=1e-5, atol=1e-6)
    return float(expected.detach().mean())


@pytest.mark.parametrize("name", NETS)
def test_fused_nets_are_the_nets(name: str) -> None:
    make, count = NETS[name]
    net, expected, x = _made(make), _made(make), _events()
    buffers, state = [*map(Tensor.clone, net.buffers())], torch.get_rng_state()
    snnlib.fuse_(net, x)
    assert _blocks(net) == count
    # The trace leaves nothing behind.
    assert torch.equal(torch.get_rng_state(), state) and net.training
    assert all(map(torch.equal, net.buffers(), buffers))
    assert list(net.state_dict()) == list(expected.state_dict())
    rates = []
    for training, extra in ((True, 0.0), (True, 0.5), (False, 0.0)):
        for one in (net, expected):
            one.train(training)
            one.extra = extra
        rates.append(_assert_same(net, expected, x))
    assert all(rate > 0.005 for rate in rates), rates
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)) if name != "nested" else net):
        assert _blocks(copied) == count
        _assert_same(copied, expected, x)
    snnlib.unfuse_(net)
    assert [type(module) for module in net.modules()] == [type(module) for module in expected.modules()]
    assert not any("forward" in vars(module) for module in net.modules())
    _assert_same(net, expected, x)


def _count_runs(net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    runs: list[nn.Module] = []
    for module in net.modules():
        for block in getattr(module, "fused_blocks", {}).values():
            run = block.run_fused
            monkeypatch.setattr(
                block, "run_fused", lambda x, run=run, block=block: runs.append(block) or run(x)
            )
    return runs


def test_blocks_run_once_in_a_call_and_not_where_currents_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for make, extra, count in ((Sew, 0.0, 3), (Later, 0.0, 1), (Later, 0.5, 0)):
        net = snnlib.fuse_(_made(make), _events())
        runs = _count_runs(net, monkeypatch)
        net.extra = extra
        net(_events())
        assert len(runs) == len({*runs}) == count


def _output_of(path: str, net: nn.Module, x: Tensor) -> Tensor:
    """Returns the output of a module within the net, by a hook."""
    seen: list[Tensor] = []
    handle = net.get_submodule(path).register_forward_hook(lambda _m, _x, out: seen.append(out))
    net(x)
    handle.remove()
    return seen[0]


def test_hooks_see_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    net, expected, x = _made(Sew), _made(Sew), _events()
    snnlib.fuse_(net, x)
    runs = _count_runs(net, monkeypatch)
    for path in ("convs.0", "norms.1", "neurons.0", "fire", "first", "first.1"):
        runs.clear()
        seen = [_output_of(path, one, x) for one in (net, expected)]
        assert type(seen[0]) is Tensor
        torch.testing.assert_close(*seen, rtol=1e-4, atol=1e-4)
        # The other blocks stay fused.
        assert len(runs) == 2
    runs.clear()
    net(x)
    assert len(runs) == 3


def test_a_forward_that_reads_values_is_left_and_named() -> None:
    net, expected, x = _made(ByValue), _made(ByValue), _events()
    with pytest.warns(UserWarning, match="left as it is: net: its forward reads values of tensors"):
        snnlib.fuse_(net, x)
    assert _blocks(net) == 0
    for given in (x, torch.zeros_like(x)):
        assert torch.equal(net(given), expected(given))


def test_children_can_be_called_alone_and_exchanged() -> None:
    net, expected, x = _made(Parts), _made(Parts), _events()
    snnlib.fuse_(net, x)
    torch.testing.assert_close(net.blocks(x), expected.blocks(x), rtol=0, atol=1e-5)
    for one in (net, expected):
        one.parts = _norm(8)
        one.parts[0].weight.data.fill_(1.25)
    _assert_same(net, expected, x)


def test_other_inputs_threads_and_streams() -> None:
    net, expected = _made(Parts).eval(), _made(Parts).eval()
    snnlib.fuse_(net, _events())
    for x in (_events(7, 3), _events(1, 1)):
        _assert_same(net, expected, x)
    results: list[Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(net(_events()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(torch.equal(out, expected(_events())) for out in results)
    stream, x = snnlib.nn.Stream(net), _events(6)
    assert torch.equal(torch.cat([stream(x[:2]), stream(x[2:])]), expected(x))


def test_tools_see_layers() -> None:
    net, x = snnlib.fuse_(_made(Sew), _events()), _events()
    with snnlib.SpikeDoctor(net) as doctor:
        expected = net(x)
    assert {layer.name for layer in doctor.layers()} == {"fire", "neurons.0", "neurons.1"}
    assert _blocks(net) == 3 and torch.equal(net(x), expected)
    assert len(snnlib.memory_report(net, x).layers) >= 3


def test_dtypes_without_fused_kernels_run_the_layers() -> None:
    net, expected, x = _made(Parts).double().eval(), _made(Parts).double().eval(), _events().double()
    snnlib.fuse_(net, x)
    assert torch.equal(net(x), expected(x))
    net, expected = snnlib.fuse_(_made(Parts), _events()), _made(Parts)
    with torch.autocast("cpu"):
        assert torch.equal(net(_events()), expected(_events()))


def test_a_pending_tensor_is_one_wherever_it_is_read() -> None:
    net, x = _made(Parts), _events()
    snnlib.fuse_(net, x)
    block = net.fused_blocks["blocks"]
    current = net.blocks(x)

    def pending() -> Any:
        return Pending(block, 1, x)

    assert pending().shape == current.shape and len(pending()) == len(current)
    for read in (
        lambda p: p + 1, lambda p: 1 - p, lambda p: -p, lambda p: p[0], lambda p: p * p, lambda p: p.relu(),
        lambda p: torch.stack([p, p]), torch.nn.functional.relu, lambda p: p @ p.mT, lambda p: p > 0,
    ):  # fmt: skip
        assert torch.equal(read(pending()), read(current))
    with pytest.raises(RuntimeError, match="unfuse_"), torch.no_grad():
        made = pending()
        with torch.enable_grad():
            later = pending()
        made.relu()
        later.relu()
    assert isinstance(vars(net.neuron)["forward"], PartForward)


def test_costs_leave_small_layers_alone() -> None:
    net, x = _made(Sew), _events()
    expected = [type(module) for module in net.modules()]
    assert [type(module) for module in snnlib.fuse_(net, x).modules()] == expected
    # Without an input all sequences are fused.
    assert _blocks(snnlib.fuse_(nn.Sequential(_conv(3, 8), _norm(8), _lif()))) == 1


def test_costs_of_a_map_and_of_a_block() -> None:
    wide, narrow = (nn.Conv2d(n, n, 3, padding=1, bias=False) for n in (256, 16))
    sparse = (torch.rand(4, 8, 256, 8, 8) < 0.05).float()
    assert gain_of(wide, sparse).as_map > gain_of(wide, torch.ones_like(sparse)).as_map > 0
    assert gain_of(narrow, torch.ones(4, 1, 16, 4, 4)).as_map < 0
    # Few neurons save less than a block takes, many more.
    assert gain_of(wide, sparse[..., :2, :2]).as_block < gain_of(wide, sparse[..., :2, :2]).as_map
    many = sparse.repeat(1, 4, 1, 1, 1)
    assert gain_of(wide, many).as_block > gain_of(wide, many).as_map


def test_sequences_within_sequences_keep_their_blocks() -> None:
    net = nn.Sequential(nn.Sequential(_conv(3, 8), _norm(8), _lif()), snnlib.AvgPool2d(2))
    snnlib.fuse_(net, _events())
    assert net[0].extra_repr() == "blocks: 0+1+2" and type(net) is nn.Sequential


class Doubled(snnlib.neurons.LIF):
    """Neurons of a user's class that changes their spikes."""

    def forward(self, x: Tensor, *state: Any) -> Tensor:
        return 2 * super().forward(x, *state)


@pytest.mark.parametrize("x", [None, _events()], ids=["neighbours", "calls"])
def test_neurons_with_a_forward_of_their_own_are_in_no_block(x: Tensor | None) -> None:
    net = nn.Sequential(_conv(3, 8), _norm(8), Doubled(2.0, surrogate=snnlib.surrogate.ATan()))
    expected = copy.deepcopy(net)(_events())
    snnlib.fuse_(net, x)
    assert not getattr(net, "fused_blocks", {})
    assert expected.max() == 2 and (net(_events()) != expected).float().mean() < 1e-3


@pytest.mark.parametrize("only_training", [False, True])
def test_a_block_with_other_values_is_refused(only_training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = NormalizedNeurons.run_fused

    def wrong(block: NormalizedNeurons, x: Tensor) -> Tensor:
        shift = 0.0 if only_training and not block.parts[0].training else 1.0
        return run(block, x + shift)

    net = Sew()
    before = copy.deepcopy(net.state_dict())
    monkeypatch.setattr(NormalizedNeurons, "run_fused", wrong)
    with pytest.warns(UserWarning, match="left as they are: .*: other values in one block") as said:
        snnlib.fuse_(net, _events())
    assert "first.0, first.1, fire" in str(said[0].message)
    assert not any(getattr(module, "fused_blocks", None) for module in net.modules())
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(module.training for module in net.modules())
