"""Modules in chunks and on padding: known modules and declared ones run, others are refused by name."""

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from compare import assert_bits
from torch import Tensor, nn

import snnlib
from snnlib import neurons


class Own(nn.Module):
    """A class of one's own, which says nothing."""

    def __init__(self, function: Callable[[Tensor], Tensor] = lambda x: x) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class EachStep(Own):
    mixes_time: ClassVar[bool] = False


class OverTime(Own):
    mixes_time: ClassVar[bool] = True


class Net(nn.Module):
    """A user's net, which speaks for itself and not for its parts."""

    mixes_time: ClassVar[bool] = False

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.hidden, self.readout = snnlib.SRMLinear(20, 10), snnlib.SRMReadout(10, 3)
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.inner(self.hidden(x)))


class Sum(nn.Module):
    """Carries a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Own()

    def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> neurons.Output:
        value = self.scale(x).cumsum(0) + (0 if state is None else state[0])
        return neurons.Output(value, (value[-1:],))

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x).value


def _x(steps: int = 16) -> Tensor:
    return (torch.rand(steps, 2, 20, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def _norm(**options: bool) -> nn.Module:
    return snnlib.PerStep(nn.BatchNorm1d(10, **options))


def _both(neuron: neurons.Neuron | None) -> nn.Module:
    layer = snnlib.SpikingLinear(10, 5, neuron=neuron) if neuron else snnlib.SpikingRNN(10, 5)
    return snnlib.Bidirectional(layer)


LENGTHS = torch.tensor([16, 9])
UNDECLARED = "does not say whether it mixes time steps. "
MIXING = "mixes time steps, so its sequence cannot be cut into chunks: "
REACHED = "expected modules that padding cannot reach, got "

SAYS, READS = "it says mixes_time", "it may read along"
STARTS, NORMALISES = "within a net it starts", "it normalises"

# Module within a net, its path and class, why it is refused in chunks, and whether with padding too.
REFUSED: dict[str, tuple[Callable[[], nn.Module], str, str, bool]] = {
    "undeclared": (Own, "inner (Own)", UNDECLARED, True),
    "within a declared one": (lambda: Net(Own()), "inner.inner (Own)", UNDECLARED, True),
    "scripted": (lambda: torch.jit.script(nn.ReLU()), "inner (RecursiveScriptModule)", UNDECLARED, True),
    "declared": (OverTime, "inner (OverTime)", SAYS, True),
    "in a container": (lambda: nn.ModuleList([Own()]), "inner.0 (Own)", UNDECLARED, True),
    "softmax": (lambda: nn.Softmax(0), "inner (Softmax)", READS, True),
    "attention": (
        lambda: nn.TransformerEncoderLayer(10, 2),
        "inner.self_attn (MultiheadAttention)",
        READS,
        True,
    ),
    "recurrent": (lambda: nn.GRU(10, 10), "inner (GRU)", STARTS, False),
    "both ends": (lambda: nn.GRU(10, 5, bidirectional=True), "inner (GRU)", STARTS, True),
    "bidirectional": (lambda: _both(None), "inner (Bidirectional)", SAYS, False),
    "all steps": (lambda: neurons.PSN(16), "inner (PSN)", SAYS, True),
    "all steps in a layer": (lambda: _both(neurons.PSN(16)), "inner", SAYS, True),
    "statistics": (_norm, "inner.0 (BatchNorm1d)", NORMALISES, True),
    "statistics in eval": (
        lambda: _norm(track_running_stats=False).eval(),
        "inner.0 (BatchNorm1d)",
        NORMALISES,
        True,
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_steps_or_does_not_say_is_refused_by_name(name: str) -> None:
    make, path, reason, padding = REFUSED[name]
    chunks = reason if reason is UNDECLARED else MIXING + reason
    net = Net(make())
    stream = snnlib.Stream(net)
    with pytest.raises(ValueError) as in_stream:
        stream(_x())
    with pytest.raises(ValueError) as in_chunks:
        snnlib.checkpoint_time(net, _x(), steps=8)
    for argument, error in (("module", in_stream), ("net", in_chunks)):
        assert str(error.value).startswith(f"{argument}: module {path}") and chunks in str(error.value)
    assert stream.states == {}
    if not padding:
        check = snnlib.nn.time.time_mixing.check_time_steps
        check("net", net, padded=True)
        return
    with pytest.raises(ValueError) as padded:
        snnlib.run_ragged(net, _x(), LENGTHS)
    expected = path if reason is UNDECLARED else REACHED + f"module {path}"
    assert expected in str(padded.value) and reason in str(padded.value)


def test_the_line_to_add_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"write `mixes_time = False` into class Own, else `mixes_time = True`; one .*run\("
    ):
        snnlib.Stream(Own())(_x())


def _told(module: nn.Module) -> nn.Module:
    module.mixes_time = False
    return module


def _parametrized() -> nn.Module:
    linear = nn.Linear(10, 10)
    nn.utils.parametrize.register_parametrization(linear, "weight", Own())
    return linear


RUNS: dict[str, Callable[[], nn.Module]] = {
    "declared": EachStep,
    "declared of an object": lambda: _told(Own()),
    "layer norm": lambda: nn.LayerNorm(10),
    "containers": lambda: nn.Sequential(nn.Sequential(nn.Linear(10, 10)), EachStep(torch.relu)),
    "anything per step": lambda: snnlib.PerStep(Own(lambda x: x.softmax(1)), nn.Softmax(1)),
    "batch norm": lambda: _norm().eval(),
    "a state": Sum,
    "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(10, 10)),
    "parametrized by one's own": _parametrized,
    "spiking": lambda: snnlib.SpikingRNN(10, 10),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("steps", [1, 5])
def test_other_modules_run_in_chunks_and_on_padding(name: str, steps: int) -> None:
    torch.manual_seed(0)
    net = Net(RUNS[name]())
    whole = net(_x())
    stream = snnlib.Stream(net)
    torch.testing.assert_close(torch.cat([stream(chunk) for chunk in _x().split(steps)]), whole)
    torch.testing.assert_close(snnlib.checkpoint_time(net, _x(), steps=steps), whole)
    torch.testing.assert_close(snnlib.run_ragged(net, _x(), LENGTHS)[:9, 1:], whole[:9, 1:])


def test_a_module_runs_once_per_chunk() -> None:
    seen: list[int] = []

    def note(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x

    snnlib.Stream(Net(EachStep(note)))(_x(8))
    assert seen == [8]


def test_full_lengths_need_no_word() -> None:
    torch.testing.assert_close(snnlib.run_ragged(Own(), _x(), torch.tensor([16, 16])), _x())


def test_steps_that_are_more_or_fewer_than_came_in() -> None:
    net = nn.Sequential(snnlib.SRMLinear(20, 10), nn.Flatten(0, 1))
    with pytest.raises(ValueError, match=r"^module: module net \(Sequential\) .* 16 time steps came in"):
        snnlib.Stream(net)(_x())
    with pytest.raises(ValueError, match=r"8 time steps came in, an output of shape \(2, 20\) came out"):
        snnlib.checkpoint_time(EachStep(lambda x: x.sum(0)), _x(), steps=8)


def test_layers_that_begin_each_call_at_rest_run_on_padding_alone() -> None:
    net = snnlib.compat.srmLinear(20, 3)
    with pytest.raises(ValueError, match=r"module net \(srmLinear\) mixes time steps"):
        snnlib.Stream(net)(_x())
    assert snnlib.run_ragged(net, _x().transpose(0, 1), LENGTHS, batch_first=True).shape == (2, 16, 3)


def test_a_layer_of_ones_own_with_run_goes_on_from_its_state() -> None:
    stream = snnlib.Stream(nn.Sequential(Sum()))
    assert_bits(torch.cat([stream(chunk) for chunk in _x().split(3)]), _x().cumsum(0))
