"""Modules of one's own that mix time steps are refused by name; all others run in chunks, and nothing is disturbed."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from compare import assert_bits
from torch import Tensor, nn

import snnlib
from snnlib import neurons


class Own(nn.Module):
    """A module of one's own around a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.calls = function, 0

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Parallel(nn.Module):
    """A parallel spiking neuron: one product over all steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(steps, steps).tril())

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tensordot(self.weight[:, : len(x)], x, 1) > 0.5).float()


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(10, 2, dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


class Convolution(nn.Module):
    """A causal convolution over time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(10, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(nn.functional.pad(x.permute(1, 2, 0), (2, 0))).permute(2, 0, 1)


class Net(nn.Module):
    """A user's net; `glue` stands between its layers."""

    def __init__(
        self, glue: Callable[[Tensor], Tensor] = lambda x: x, inner: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.hidden, self.readout = snnlib.SRMLinear(20, 10), snnlib.SRMReadout(10, 3)
        self.inner, self.glue = inner or nn.Identity(), glue

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.glue(self.inner(self.hidden(x))))


class Steps(nn.Module):
    """Calls its layer once per step, so that each call would begin at its own state."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = snnlib.SRMLinear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.hidden(x[t : t + 1]) for t in range(len(x))])


class Restarts(Steps):
    """Keeps the state of its layer from no one."""

    def forward(self, x: Tensor) -> Tensor:
        return self.hidden.run(x).value


class Remembers(nn.Module):
    """Carries a state of its own from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("trace", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        out = []
        for frame in x:
            self.trace = 0.5 * self.trace + frame
            out.append(self.trace)
        return torch.stack(out)


def _x(steps: int = 16) -> Tensor:
    return (torch.rand(steps, 2, 20, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def _between(module: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(snnlib.SRMLinear(20, 10), module, snnlib.SRMReadout(10, 3))


def _position(x: Tensor) -> Tensor:
    return x + torch.arange(len(x)).reshape(-1, 1, 1)


def _noisy_mean(x: Tensor) -> Tensor:
    return (x - x.mean(0)) * (torch.rand_like(x) < 0.9)


MIXING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "mean over T": (lambda: _between(Own(lambda x: x - x.mean(0))), r"1 \(Own\)"),
    "parallel neuron": (lambda: _between(Parallel(16)), r"1 \(Parallel\)"),
    "norm over T": (lambda: _between(Own(lambda x: (x - x.mean(0)) / (x.std(0) + 1))), r"1 \(Own\)"),
    "attention": (lambda: _between(Attention()), r"1\.attention \(MultiheadAttention\)"),
    "attention with dropout": (lambda: _between(Attention(0.1)), r"1\.attention \(MultiheadAttention\)"),
    "convolution": (lambda: _between(Convolution()), r"1 \(Convolution\)"),
    "number of the step": (lambda: _between(Own(_position)), r"1 \(Own\)"),
    "random": (lambda: _between(Own(_noisy_mean)), r"1 \(Own\)"),
    "softmax": (lambda: _between(nn.Softmax(0)), r"1 \(Softmax\)"),
    "fewer steps": (lambda: _between(Own(lambda x: x[::2])), r"1 \(Own\)"),
    "folded": (lambda: nn.Sequential(snnlib.PerStep(Own(lambda x: x - x.mean(0)))), r"0\.0 \(Own\)"),
    "within a net": (lambda: Net(inner=Parallel(16)), r"inner \(Parallel\)"),
    "deep within": (
        lambda: nn.Sequential(nn.Sequential(Net(inner=Convolution()))),
        r"0\.0\.inner \(Convolution\)",
    ),
    "between layers": (lambda: Net(lambda x: x / (1 + x.sum(0))), r"net \(Net\)"),
    "behind a module that says nothing": (
        lambda: Net(lambda x: x / (1 + x.sum(0)), Own(torch.ones_like)),
        r"net \(Net\)",
    ),
    "summed up": (lambda: nn.Sequential(Own(lambda x: x.sum(0))), r"0 \(Own\)"),
    "step by step": (Steps, r"net \(Steps\)"),
    "restarts": (Restarts, r"net \(Restarts\)"),
    "recurrent": (lambda: nn.Sequential(nn.GRU(20, 4)), r"0 \(GRU\)"),
    "statistics": (lambda: nn.Sequential(snnlib.PerStep(nn.BatchNorm1d(20))), r"0\.0 \(BatchNorm1d\)"),
    "statistics in eval": (
        lambda: nn.Sequential(snnlib.PerStep(nn.BatchNorm1d(20, track_running_stats=False))).eval(),
        r"0\.0 \(BatchNorm1d\)",
    ),
}


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_steps_is_refused_by_name(name: str) -> None:
    torch.manual_seed(0)
    make, what = MIXING[name]
    refusal = rf": module {what} mixes time steps, so its sequence cannot be cut into chunks: "
    with pytest.raises(ValueError, match="^module" + refusal):
        snnlib.Stream(make())(_x())
    with pytest.raises(ValueError, match="^net" + refusal):
        snnlib.checkpoint_time(make(), _x(), steps=16)


SINGLE_STEPS = ("mean over T", "attention", "convolution", "between layers", "restarts", "within a net")


@pytest.mark.parametrize("name", SINGLE_STEPS)
@pytest.mark.parametrize("silent", [False, True])
def test_a_single_step_is_enough(name: str, silent: bool) -> None:
    """A camera's first chunk is one step, and often nothing happens in it."""
    torch.manual_seed(0)
    make, what = MIXING[name]
    with pytest.raises(ValueError, match=what):
        snnlib.Stream(make())(_x(1) * (not silent))


def test_steps_that_are_more_than_came_in() -> None:
    class Fixed(Parallel):
        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("ij,jnc->inc", self.weight, x.expand(len(self.weight), -1, -1))

    with pytest.raises(
        ValueError, match=r"1 \(Fixed\) .* 1 time steps came in, .* shape \(9, 2, 10\) came out"
    ):
        snnlib.Stream(_between(Fixed(9)))(_x(1))
    net = nn.Sequential(snnlib.SRMLinear(20, 10), nn.Flatten(0, 1))
    with pytest.raises(ValueError, match=r"net \(Sequential\) .* 16 time steps came in"):
        snnlib.Stream(net)(_x())


PADDING_REACHES = ("mean over T", "parallel neuron", "attention", "random", "between layers", "folded")


@pytest.mark.parametrize("name", PADDING_REACHES)
def test_padding_that_reaches_other_steps(name: str) -> None:
    make, what = MIXING[name]
    net = make()
    if name == "parallel neuron":
        net[1].weight.data.fill_(1.0)
    with pytest.raises(
        ValueError, match=rf"^net: expected modules that padding cannot reach, got module {what}: "
    ):
        snnlib.run_ragged(net, _x(), torch.tensor([16, 9]))


@pytest.mark.parametrize("name", ["convolution", "number of the step", "restarts"])
def test_causal_modules_run_on_padded_batches(name: str) -> None:
    net, lengths = MIXING[name][0](), torch.tensor([16, 9])
    out = snnlib.run_ragged(net, _x(), lengths)
    assert_bits(out[:9, 1:], net(_x())[:9, 1:])


class Counts(nn.Module):
    """Running statistics, a plain attribute, a lazily made one, and random numbers of all three sources."""

    def __init__(self, draws: bool) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.draws, self.calls, self.log = draws, 0, []

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.detach().sum()
        self.calls += 1
        self.log.append(len(x))
        self.last = x
        if self.draws and random.random() < 2 and np.random.rand() < 2:
            return x * (torch.rand_like(x) < 0.5)
        return x


@pytest.mark.parametrize("draws", [False, True])
def test_the_check_leaves_no_trace(draws: bool) -> None:
    """Hooks, buffers, attributes and random states are those of one run of the net."""
    results = []
    for stream in (False, True):
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        own, heard = Counts(draws), []
        net = Net(inner=nn.Sequential(nn.Linear(10, 10), own))
        for module in net.modules():
            module.register_forward_hook(lambda module, *_, heard=heard: heard.append(type(module).__name__))
            module.register_forward_pre_hook(
                lambda module, *_, heard=heard: heard.append(type(module).__name__)
            )
        x = _x().requires_grad_()
        out = (snnlib.Stream(net) if stream else net)(x)
        out.sum().backward()
        drawn = torch.rand(1), random.random(), np.random.rand()
        results.append((out, x.grad, own.seen, own.calls, own.log, *drawn, heard))
        assert "forward" not in net.__dict__ and "forward" not in own.__dict__
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b
    assert own.calls == 1


def test_a_module_is_checked_once() -> None:
    calls = []

    def note(x: Tensor) -> Tensor:
        calls.append(len(x))
        return 2 * x

    net = _between(Own(note))
    stream = snnlib.Stream(net)
    stream(_x(8))
    assert calls == [8, 8, 4, 4]
    stream(_x(8))
    snnlib.Stream(net)(_x(6))
    with torch.no_grad():
        snnlib.checkpoint_time(net, _x(6), steps=6)
    assert calls[4:] == [8, 6, 6]
    # In another mode it may be another function.
    snnlib.Stream(net.eval())(_x(2))
    assert calls[7:] == [2, 2, 1, 1]


def test_a_refused_chunk_leaves_the_stream_where_it_was() -> None:
    net = MIXING["mean over T"][0]()
    stream = snnlib.Stream(net)
    for _ in range(2):
        with pytest.raises(ValueError, match="mixes time steps"):
            stream(_x())
    assert stream.states == {}


GOOD: dict[str, Callable[[], nn.Module]] = {
    "net": Net,
    "layer norm": lambda: Net(inner=nn.LayerNorm(10)),
    "state of its own": lambda: nn.Sequential(Remembers()),
    "attention within a frame": lambda: Net(lambda x: x.softmax(2)),
    "batch norm": lambda: Net(inner=snnlib.PerStep(nn.BatchNorm1d(10))).eval(),
    "binarised sums": lambda: _between(
        nn.Sequential(nn.Linear(10, 300), Own(lambda x: (x > 0).float()), nn.Linear(300, 10))
    ),
    "half precision": lambda: Net(lambda x: x.half().mul(0.3).float()),
    "spectral norm": lambda: Net(inner=nn.utils.spectral_norm(nn.Linear(10, 10))).eval(),
    "parametrized": lambda: Net(inner=nn.utils.parametrizations.weight_norm(nn.Linear(10, 10))),
    "fused": lambda: nn.Sequential(
        Own(lambda x: x.unflatten(2, (5, 2, 2))),
        snnlib.fuse_(nn.Sequential(snnlib.SRMConv2d(5, 4, 1), snnlib.SpikeAvgPool2d(2), nn.Flatten(2))),
    ),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("steps", [1, 5])
def test_other_modules_stream(name: str, steps: int) -> None:
    torch.manual_seed(0)
    net = GOOD[name]()
    whole = net(_x())
    if name == "state of its own":
        net[0].trace = torch.zeros(())
    stream = snnlib.Stream(net)
    torch.testing.assert_close(torch.cat([stream(chunk) for chunk in _x().split(steps)]), whole)
    # Through the check as a net within a net, too: fused blocks play their part.
    within = nn.Sequential(Own(net)) if name != "state of its own" else net
    snnlib.checkpoint_time(within, _x(), steps=8)
    for module in net.modules():
        # Torch's spectral norm keeps a weight with its graph, whose chunks run the module again: such a ring is not
        # freed, nor is the memory that the graph keeps.
        module.__dict__.pop("weight", None)


def test_batch_first() -> None:
    def net(function: Callable[[Tensor], Tensor]) -> nn.Module:
        return nn.Sequential(snnlib.SRMLinear(20, 10, batch_first=True), Own(function))

    x = _x().transpose(0, 1)
    with pytest.raises(ValueError, match=r"1 \(Own\)"):
        snnlib.Stream(net(lambda x: x - x.mean(1, keepdim=True)))(x)
    with pytest.raises(ValueError, match=r"1 \(Own\)"):
        snnlib.run_ragged(
            net(lambda x: x - x.mean(1, keepdim=True)), x, torch.tensor([16, 9]), batch_first=True
        )
    # What mixes samples is not what chunks are about.
    assert snnlib.Stream(net(lambda x: x - x.mean(0)))(x).shape == (2, 16, 10)


@pytest.mark.parametrize("context", ["autocast", "no_grad", "inference_mode"])
def test_contexts(context: str) -> None:
    within = {
        "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
    }[context]
    with within():
        snnlib.Stream(Net(inner=nn.Linear(10, 10)))(_x())
        with pytest.raises(ValueError, match=r"inner\.attention \(MultiheadAttention\)"):
            snnlib.Stream(Net(inner=Attention()))(_x())


def test_what_cannot_be_copied_is_said() -> None:
    class Locked(Own):
        def __deepcopy__(self, memo: object) -> None:
            raise TypeError("cannot pickle a lock")

    stream = snnlib.Stream(_between(Locked(lambda x: x)))
    with pytest.warns(
        UserWarning, match=r"module 1 \(Locked\) cannot be run on a copy, .*cannot pickle a lock"
    ):
        stream(_x())


def test_whole_numbers_wait_for_a_second_step() -> None:
    numbers = torch.tensor([[[3]], [[1]], [[4]], [[2]]])
    stream = snnlib.Stream(nn.Sequential(Own(lambda x: x - x.amin(0))))
    stream(numbers[:1])
    with pytest.raises(ValueError, match=r"0 \(Own\)"):
        stream(numbers)


def test_a_layer_of_ones_own_with_run_takes_part() -> None:
    class Sum(nn.Module):
        def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> neurons.Output:
            value = x.cumsum(0) + (0 if state is None else state[0])
            return neurons.Output(value, (value[-1:],))

        def forward(self, x: Tensor) -> Tensor:
            return self.run(x).value

    stream = snnlib.Stream(nn.Sequential(Sum()))
    assert_bits(torch.cat([stream(chunk) for chunk in _x().split(3)]), _x().cumsum(0))
