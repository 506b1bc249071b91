"""Nets of snnTorch, SpikingJelly and Norse, converted, where installed: spikes, gradients, 20 training losses.

The nets are those of benchmarks/exchange/convert.py, in the manner of the libraries' tutorials.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import peer_tables
import pytest
import torch
from torch import nn

import snnlib

# It imports what the benchmarks share.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "exchange"))
benchmark: Any = importlib.import_module("convert")

pytestmark = pytest.mark.filterwarnings("ignore")


def _small_case(name: str, samples: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's case on few steps and samples; skips where its library is not installed."""
    case = benchmark.CASES[name]
    pytest.importorskip(case.library, reason=f"compares with {_library(case)}, which is not installed")
    monkeypatch.setattr(benchmark, "STEPS", 8)
    monkeypatch.setattr(benchmark, "BATCH", samples)
    return case


def _library(case: Any) -> str:
    name: str = case.library.partition(".")[0]
    return name


@pytest.mark.parametrize("name", benchmark.CASES)
def test_converted_net_is_the_original(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _small_case(name, 4, monkeypatch)
    net, other = (benchmark.twin(case) for _ in range(2))
    x, labels = 3 * case.x(), torch.randint(10, (4,))
    loop = "outside" if case.outside else "inside"
    converted = snnlib.convert(other, x, loop=loop, unsupported="raise", quiet=True)
    found = snnlib.verify_conversion(other, converted, x, loop=loop)
    assert found.ok, str(found)
    assert sum(counts[0] for counts in found.spikes.values()) > 0
    # `found.ok` says that all of them are equal.
    peer_tables.record_pair(_library(case), "snnlib", "`convert`", name.partition(" ")[2], 1.0)

    trainers = benchmark.original(case, net), benchmark.Trainer(converted.train(), converted)
    assert benchmark.largest_difference(trainers, x, labels) < 1e-4


@pytest.mark.parametrize("name", benchmark.CASES)
def test_fused_converted_net_is_the_original_up_to_rounding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = _small_case(name, 4, monkeypatch)
    net, x = benchmark.twin(case), 3 * case.x()
    loop = "outside" if case.outside else "inside"
    fused = snnlib.fuse_(snnlib.convert(net, x, loop=loop, quiet=True))
    found = snnlib.verify_conversion(net, fused, x, loop=loop)
    # Currents are added in another order: a potential at the threshold may fall on its other side.
    assert found.identical >= 1 - 1e-4, str(found)


@pytest.mark.parametrize("name", [name for name in benchmark.CASES if not name.startswith("snntorch")])
def test_losses_are_the_originals_but_for_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Float64 keeps potentials away from the threshold by more than rounding; snnTorch has float32 only."""
    case = _small_case(name, 2, monkeypatch)
    nets = [benchmark.twin(case).double() for _ in range(2)]
    x, labels = 3 * case.x().double(), torch.randint(10, (2,))
    trainers = benchmark.original(case, nets[0]), benchmark.converted(case, nets[1], x)
    assert benchmark.largest_difference(trainers, x, labels) < 1e-7


def test_membrane_of_a_neuron_with_a_surrogate_of_ones_own_is_given() -> None:
    snn = pytest.importorskip("snntorch", reason="compares with snntorch, which is not installed")

    class Cubic(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(u)
            return (u > 0).to(u)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (u,) = ctx.saved_tensors
            return grad / (1 + u.abs() ** 3)

    class Recorded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.l = torch.nn.Linear(20, 30), snn.Leaky(beta=0.9, spike_grad=Cubic.apply, threshold=1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mem, spikes, potentials = self.l.init_leaky(), [], []
            for step in x:
                out, mem = self.l(self.f(step), mem)
                spikes.append(out)
                potentials.append(mem)
            return torch.stack(spikes), torch.stack(potentials)

    torch.manual_seed(0)
    net, x = Recorded(), torch.rand(12, 4, 20)
    made = snnlib.convert(net, x, quiet=True)
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok and found.spikes["l"][0] > 0 and found.output_error < 1e-6
    assert set(found.gradient_errors) == {"f.weight", "f.bias"}


@pytest.mark.parametrize("reset", ["zero", "subtract"])
def test_alpha_neurons_are_the_originals(reset: str, capsys: pytest.CaptureFixture[str]) -> None:
    snn = pytest.importorskip("snntorch", reason="compares with snntorch, which is not installed")
    torch.manual_seed(0)
    alpha = snn.Alpha(alpha=0.9, beta=0.8, threshold=0.25, reset_mechanism=reset, init_hidden=True)
    net, x = torch.nn.Sequential(torch.nn.Linear(20, 30), alpha), torch.rand(12, 4, 20)
    made = snnlib.convert(net, x)
    found = snnlib.verify_conversion(net, made, x)
    assert "1      Alpha -> Alpha" in capsys.readouterr().out
    assert found.ok and found.spikes["1"][0] > 0, str(found)


@pytest.mark.parametrize(
    ("cell", "kind"), [("LIFCell", "lif"), ("LIFBoxCell", "lif_box"), ("LICell", "leaky_integrator")]
)
def test_resting_potentials_of_norse(cell: str, kind: str) -> None:
    norse = pytest.importorskip("norse.torch", reason="compares with norse, which is not installed")
    functional = importlib.import_module(f"norse.torch.functional.{kind}")
    names = {"lif": "LIFParameters", "lif_box": "LIFBoxParameters", "leaky_integrator": "LIParameters"}
    reset = {} if cell == "LICell" else {"v_reset": torch.tensor(-0.5)}
    p = getattr(functional, names[kind])(v_leak=torch.tensor(0.25), **reset)
    torch.manual_seed(0)
    net = norse.SequentialState(torch.nn.Linear(20, 30), getattr(norse, cell)(p=p))
    x = 4 * torch.rand(25, 4, 20)
    made = snnlib.convert(net, x, unsupported="raise", quiet=True)
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok and found.output_error < 1e-5, str(found)
    if cell == "LICell":
        assert float(made(0 * x)[0].abs().max()) > 0
    else:
        assert found.spikes["1"][0] > 0


def test_neurons_of_spikingjelly_without_steps_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    base = "spikingjelly.activation_based"
    neuron = pytest.importorskip(
        f"{base}.neuron", reason="compares with spikingjelly, which is not installed"
    )
    layer = importlib.import_module(f"{base}.layer")
    net = torch.nn.Sequential(
        layer.Linear(20, 10, step_mode="m"), neuron.DSRIFNode(T=12), neuron.IFNode(step_mode="m")
    )
    x = torch.rand(12, 4, 20)
    made = snnlib.convert(net, x)
    assert "1      left as it is: SpikingJelly's DSRIFNode has no counterpart" in capsys.readouterr().out
    assert torch.equal(made(x), net(x))


@pytest.mark.parametrize("mode", ["s", "m"])
def test_a_reset_of_spikingjelly_changes_nothing(mode: str) -> None:
    """The option `reset` of a neuron is a word, and modules that are kept have a state of their own."""
    base = "spikingjelly.activation_based"
    neuron = pytest.importorskip(
        f"{base}.neuron", reason="compares with spikingjelly, which is not installed"
    )
    functional, layer = (importlib.import_module(f"{base}.{name}") for name in ("functional", "layer"))
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        layer.Linear(20, 10, step_mode=mode), neuron.LIFNode(step_mode=mode), neuron.QIFNode(step_mode=mode)
    )
    functional.reset_net(net)
    x = 4 * torch.rand(12, 3, 20)
    made = snnlib.convert(net, x, quiet=True)
    expected = made(x)
    functional.reset_net(made)
    assert torch.equal(made(x), expected)


@pytest.mark.parametrize("name", ["spikformer.Spikformer", "qkformer.QKFormer"])
def test_transformers_of_spikingjelly(name: str) -> None:
    """Whole nets, as they are and fused: equal spikes in every layer for weights that are binary fractions."""
    base = "spikingjelly.activation_based"
    file, kind = name.split(".")
    model = pytest.importorskip(
        f"{base}.model.{file}", reason="compares with spikingjelly, which is not installed"
    )
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "Spikformer": {"img_size_h": 16, "img_size_w": 16, "patch_size": 4, "num_heads": 4, "depths": 1},
        "QKFormer": {"num_heads": (1, 2, 4), "depths": (1, 1, 1)},
    }[kind]
    net = getattr(model, kind)(T=4, in_channels=2, num_classes=10, embed_dims=32, **options).eval()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
                module.weight.copy_(torch.randint(-4, 7, module.weight.shape) / 8)
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.eps = 0.0
                module.running_mean.fill_(0.5)
    x = (
        torch.rand(4, 2, 2, 32 if kind == "QKFormer" else 16, 32 if kind == "QKFormer" else 16) < 0.3
    ).float()
    made = snnlib.convert(net, x, quiet=True, unsupported="raise")
    seen: dict[nn.Module, list[torch.Tensor]] = {}
    for each in (net, made):
        for layer in each.modules():
            if type(layer).__name__ in ("LIFNode", "LIF"):
                layer.register_forward_hook(
                    lambda m, _, out, each=each: seen.setdefault(each, []).append(out.detach())
                )
    expected = net(x)
    assert torch.equal(made(x), expected)
    assert len(seen[net]) == len(seen[made]) > 8
    for theirs, ours in zip(seen[net], seen[made], strict=True):
        assert torch.equal(theirs, ours)
    assert sum(bool(spikes.any()) for spikes in seen[net]) > 0.9 * len(seen[net])
    plain = snnlib.convert(net, x, quiet=True)
    assert torch.equal(snnlib.fuse_(plain)(x), expected)


@pytest.mark.parametrize("kind", ["PSN", "MaskedPSN", "SlidingPSN"])
def test_parallel_neurons_of_spikingjelly_keep_their_parameters(kind: str) -> None:
    theirs = pytest.importorskip(
        "spikingjelly.activation_based.neuron", reason="compares with SpikingJelly, which is not installed"
    )
    layer = pytest.importorskip("spikingjelly.activation_based.layer")
    arguments = {
        "PSN": {"T": 12},
        "MaskedPSN": {"k": 3, "T": 12, "lambda_init": 1.0, "step_mode": "m"},
        "SlidingPSN": {"k": 5, "step_mode": "m"},
    }[kind]
    net = nn.Sequential(layer.Linear(4, 6, step_mode="m"), getattr(theirs, kind)(**arguments))
    x = torch.randint(-64, 65, (12, 3, 4), generator=torch.Generator().manual_seed(0)) / 16.0
    made = snnlib.convert(net, x, quiet=True, unsupported="raise")
    assert type(made[1]).__name__ == kind and made[1].weight is net[1].weight  # type: ignore[index]
    assert torch.equal(made(x), net(x))


@pytest.mark.parametrize("window", [None, (0.5, 4.5)], ids=["from 0 to 4", "from 1/2 to 9/2"])
@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("mode", ["s", "m"])
def test_whole_numbers_of_spikes_of_spikingjelly(
    window: tuple[float, float] | None, detached: bool, mode: str
) -> None:
    theirs, layer, surrogate = (
        pytest.importorskip(
            f"spikingjelly.activation_based.{name}",
            reason="compares with SpikingJelly, which is not installed",
        )
        for name in ("neuron", "layer", "surrogate")
    )
    torch.manual_seed(0)
    count = surrogate.MultiLevelSpikeCount(4, grad_window=window)
    node = theirs.ILIFNode(v_threshold=0.75, surrogate_function=count, detach_reset=detached, step_mode=mode)
    net = nn.Sequential(layer.Linear(6, 50, step_mode=mode), node)
    x = 8 * torch.rand(9, 3, 6)
    made = snnlib.convert(net, x, quiet=True, unsupported="raise")
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok, str(found)
    assert made(x).unique().tolist() == [0, 1, 2, 3, 4]
    # The ends 0 and 4 belong to the first window; those of the second, where StraightThrough is 0, are left out.
    edges = torch.linspace(-0.75, 4.5, 85).view(1, 1, -1)
    edges = edges[(edges != 0.375) & (edges != 3.375)].view(1, 1, -1)
    slopes = []
    for neuron in (made[1], node):  # type: ignore[index]
        node.reset()
        h = edges.clone().requires_grad_()
        out = neuron(h if mode == "m" or neuron is not node else h[0])
        slopes.append(torch.autograd.grad(out.sum(), h)[0])
    assert torch.equal(*slopes)
    with pytest.raises(ValueError, match=r"1: its gradient window \(-1.0, 5.0\) has no counterpart"):
        node.surrogate_function = surrogate.MultiLevelSpikeCount(4, grad_window=(-1.0, 5.0))
        snnlib.convert(net, x, quiet=True, unsupported="raise")
    with pytest.raises(ValueError, match=r"1: max_spike_count=1 fires at half the threshold"):
        node.surrogate_function = surrogate.MultiLevelSpikeCount(1)
        snnlib.convert(net, x, quiet=True, unsupported="raise")


def test_spikingjelly_runs_graded_spikes_in_virtual_steps() -> None:
    theirs = pytest.importorskip(
        "spikingjelly.activation_based.neuron", reason="compares with SpikingJelly, which is not installed"
    )

    def neuron(threshold: float, start: float) -> nn.Module:
        node: Any = theirs.IFNode(v_threshold=threshold, v_reset=None, step_mode="m")
        node.set_reset_value("v", start)
        node.reset()
        return node  # type: ignore[no-any-return]

    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, neuron=snnlib.neurons.IF(levels=4, threshold=0.5)),
        snnlib.AvgPool2d(2),
        nn.Flatten(2),
        snnlib.SpikingLinear(36, 5, neuron=snnlib.neurons.IF(levels=7)),
    ).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_((parameter * 16 + 1).round() / 16)
    x = torch.poisson(torch.full((9, 3, 2, 8, 8), 0.3))
    spikes = snnlib.exchange.unroll_spikes(net, x).chain(neuron)(x)
    assert spikes.unique().tolist() == [0, 1] and spikes.shape[:3] == (9 * 7, 3, 5)
    assert torch.equal(spikes.view(9, 7, 3, 5).sum(1), net(x))
