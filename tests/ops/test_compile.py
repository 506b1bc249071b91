"""torch.compile(fullgraph=True) gives the eager bits, forward and backward."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from rates import set_rates_
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.backends import native

# torch's compiler calls functions that torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        nn.Flatten(2),
        snnlib.SRMLinear(64, 5),
    )


def _events(steps: int = 7, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return (torch.rand(steps, batch, 2, 8, 8, generator=generator) < 0.3).float()


def _results(net: nn.Module, function: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = function(x)
    q = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(x.dtype)
    gradients = torch.autograd.grad(out, [x, *net.parameters()], q)
    return [out.detach(), *gradients]


@pytest.fixture(scope="module", autouse=True)
def compiler_knows_torch() -> None:
    """The compiler lists torch's functions at its first run, which must not see one that fills memory with NaN."""
    torch.compile(torch.neg, backend="eager")(torch.ones(1))


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_whole_graph_equals_eager(dtype: torch.dtype, path: str) -> None:
    net = _net()
    x = _events()
    set_rates_(net, x, 0.1)
    net, x = net.to(dtype), x.to(dtype)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    expected = _results(net, net, x)
    assert expected[0].sum() > 0
    results = _results(net, compiled, x)
    for out, other in zip(results, expected, strict=True):
        torch.testing.assert_close(out, other, rtol=1e-6, atol=1e-6)
    assert torch.equal(results[0], expected[0])


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's default compiler backend needs g++")
@pytest.mark.skipif(
    os.environ.get("ATEN_CPU_CAPABILITY") == "default",
    reason="torch 2.13 writes vector code that its own headers do not declare at this capability",
)
def test_default_backend() -> None:
    net = _net()
    x = _events()
    set_rates_(net, x, 0.1)
    results = _results(net, torch.compile(net, fullgraph=True), x)
    for out, expected in zip(results, _results(net, net, x), strict=True):
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_dynamic_steps_and_batch_do_not_recompile() -> None:
    net = _net()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager", dynamic=True)
    compiled(_events())
    with torch.compiler.set_stance("fail_on_recompile"):
        for steps, batch in ((9, 4), (5, 6)):
            x = _events(steps, batch)
            assert torch.equal(compiled(x), net(x))


def _recurrent(per: str) -> nn.Module:
    return snnlib.SpikingRNN(128, 6, recurrent_delays=snnlib.Delays(2, per))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "recurrent delays per channel": lambda: _recurrent("channel"),
    "recurrent delays per connection": lambda: _recurrent("connection"),
    "both directions, recurrent": lambda: snnlib.Bidirectional(snnlib.SpikingRNN(128, 6)),
    "both directions, linear": lambda: snnlib.Bidirectional(snnlib.SpikingLinear(128, 6)),
}


# Training adds the watch of the first batches to the graph; without it fewer layers show the same.
@pytest.mark.parametrize(
    ("name", "training"),
    [
        *((name, True) for name in LAYERS),
        *(pytest.param(name, False, marks=() if "channel" in name else pytest.mark.slow) for name in LAYERS),
    ],
)
def test_layer_equals_eager(name: str, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nor can it trace such a function.
    monkeypatch.undo()
    torch.manual_seed(3)
    layer, x = LAYERS[name]().train(training), _events().flatten(2)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    expected = _results(layer, layer, x)
    assert expected[0].sum() > 0
    for got, want in zip(_results(layer, compiled, x), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [lambda: snnlib.SpikingLinear(128, 6), lambda: snnlib.SpikingConv2d(2, 4, 3)],
    ids=["linear", "conv"],
)
def test_run_of_a_layer_equals_eager(make: Callable[[], snnlib.SpikingLinear]) -> None:
    torch.manual_seed(3)
    layer, x = make(), _events()

    def run(x: Tensor) -> list[Tensor]:
        out = layer.run(x)
        return [out.value, *out.state]

    for got, want in zip(torch.compile(run, fullgraph=True, backend="aot_eager")(x), run(x), strict=True):
        assert torch.equal(got, want)


def test_compiled_layer_reads_lengths() -> None:
    """Code compiled for full sequences does not run for shorter samples."""
    torch.manual_seed(3)
    layer, x = snnlib.Bidirectional(snnlib.SpikingRNN(128, 6)), _events().flatten(2)
    # The tracer sees lengths; what becomes of its graphs is tested above.
    compiled = torch.compile(layer, backend="eager")
    assert torch.equal(compiled(x), layer(x))
    lengths = torch.tensor([7, 2, 4])
    expected = snnlib.run_ragged(layer, x, lengths)
    assert not torch.equal(expected, layer(x))
    assert torch.equal(snnlib.run_ragged(compiled, x, lengths), expected)
    assert torch.equal(compiled(x), layer(x))


EXACT: dict[str, Callable[[], neurons.Neuron]] = {
    "CubaLIF": lambda: neurons.CubaLIF(gradient="event", threshold=0.2),
    "SRM": lambda: neurons.SRM(reset_states="membrane", threshold=0.2),
}
# Modules of eight channels.
BEFORE: dict[str, Callable[[], list[nn.Module]]] = {
    "input": lambda: [],
    "CubaLIF": lambda: [snnlib.SpikingLinear(8, 8, neuron=EXACT["CubaLIF"]())],
    "SRM": lambda: [snnlib.SpikingLinear(8, 8, neuron=EXACT["SRM"]())],
    "surrogate": lambda: [snnlib.SpikingLinear(8, 8)],
    "pool": lambda: [
        nn.Unflatten(2, (2, 2, 2)),
        snnlib.SpikingConv2d(2, 8, 1, neuron=EXACT["CubaLIF"]()),
        snnlib.SpikeAvgPool2d(2),
        nn.Flatten(2),
    ],
    "Linear": lambda: [nn.Linear(8, 8)],
    "PerStep": lambda: [snnlib.PerStep(nn.Linear(8, 8))],
    "attention": lambda: [
        nn.Unflatten(2, (1, 8)),
        snnlib.nn.Residual(snnlib.nn.SpikingSelfAttention(8, heads=2)),
        nn.Flatten(2),
    ],
    "StateSpaceBlock": lambda: [snnlib.nn.StateSpaceBlock(8)],
}
# Their like stands before a layer in another case: neurons of the same gradient, a module of torch.
ALIKE = ("SRM", "PerStep")
BEHIND: dict[str, Callable[[neurons.Neuron], nn.Module]] = {
    "layer": lambda neuron: snnlib.SpikingLinear(8, 5, neuron=neuron),
    "recurrent": lambda neuron: snnlib.SpikingRNN(8, 5, neuron=neuron),
    "alone": lambda neuron: neuron,
}


def _equals_eager(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Results of the net, which are those of the compiled net: to the bit going forward, backward but for rounding."""
    expected = _results(net, net, x)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    results = _results(net, compiled, x)
    for got, want in zip(results, expected, strict=True):
        scale = float(want.abs().max())
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6 * scale)
    # Without gradients the net would be compiled once more, which takes as long.
    assert torch.equal(results[0], expected[0])
    return expected


@pytest.mark.filterwarnings("ignore:input_gradient. None takes:UserWarning")
@pytest.mark.parametrize(
    ("before", "behind", "model"),
    [
        *((before, "layer", "SRM") for before in BEFORE if before not in ALIKE),
        ("SRM", "layer", "CubaLIF"),
        *(("input", "alone", "SRM"), ("Linear", "alone", "CubaLIF"), ("CubaLIF", "recurrent", "CubaLIF")),
        # A loop of torch operations is traced for each step, and the other pairs differ in the kernel alone.
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *((before, "layer", "SRM") for before in ALIKE),
                *((before, "layer", "CubaLIF") for before in sorted(BEFORE.keys() - {"SRM"})),
                *itertools.product(sorted(BEFORE.keys() - {"input", "Linear"}), ("alone",), EXACT),
                *(("input", "alone", "CubaLIF"), ("Linear", "alone", "SRM"), ("CubaLIF", "recurrent", "SRM")),
                *itertools.product(("surrogate",), ("recurrent",), EXACT),
            )
        ),
    ],
)
def test_gradients_of_exact_times_equal_eager(
    before: str, behind: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind of gradient follows the place of the neurons, in a layer or alone."""
    monkeypatch.undo()
    torch.manual_seed(3)
    net = nn.Sequential(*BEFORE[before](), BEHIND[behind](EXACT[model]()))
    x = (torch.rand(3, 3, 8) < 0.5).float()
    spikes, by_input, *_ = _equals_eager(net, x)
    assert spikes.any() and by_input.any()


@pytest.mark.parametrize("model", sorted(neurons.MODELS))
def test_neuron_equals_eager(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    torch.manual_seed(3)
    # Two steps have a state between them, and each is traced.
    _equals_eager(neurons.MODELS[model](), 3 * torch.rand(2, 2, 3))


class TestOnAGpu:
    """Tracing a layer asks for the kernels of a GPU, by functions of the module that no compiler traces."""

    @pytest.fixture(autouse=True)
    def gpu_branch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """CPU tensors ask as CUDA tensors do, and then have the CPU's kernels."""

        def unsupported(name: str, tensor: Tensor) -> str:
            return native._cuda_problem(None) or native._missing("cpu", name)

        cuda = SimpleNamespace(use_device=lambda index: native._module.isa(), problem=lambda: "")
        monkeypatch.setitem(native._kernels, "cuda", cuda)
        monkeypatch.setattr(native, "_usable_gpus", set())
        monkeypatch.setattr(native, "_unsupported", unsupported)
        # For this module alone: the compiler has questions of its own to torch.cuda.
        gpu = {"is_available": lambda: True, "current_device": lambda: 0, "device": contextlib.nullcontext}
        monkeypatch.setattr(
            native, "torch", SimpleNamespace(**vars(torch) | {"cuda": SimpleNamespace(**gpu)})
        )

    @pytest.mark.parametrize("kind", ["recurrent", "SRM and pool", "LIF and pool"])
    def test_whole_graph(self, kind: str) -> None:
        torch.manual_seed(2)
        lif = snnlib.neurons.LIF(surrogate=snnlib.surrogate.Triangle(width=0.5, height=0.4))
        nets: dict[str, Callable[[], nn.Sequential]] = {
            "recurrent": lambda: nn.Sequential(nn.Flatten(2), snnlib.SpikingRNN(128, 20, neuron=lif)),
            "SRM and pool": lambda: nn.Sequential(snnlib.SRMConv2d(2, 4, 3), snnlib.SpikeAvgPool2d(2)),
            "LIF and pool": lambda: nn.Sequential(
                snnlib.SpikingConv2d(2, 4, 3, neuron=lif), snnlib.AvgPool2d(2)
            ),
        }
        net, x = nets[kind](), _events()
        snnlib.prepare_(net, x)
        snnlib.fuse_(net)
        # Nothing was asked before the compiler asks.
        native._usable_gpus.clear()
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
        results, expected = _results(net, compiled, x), _results(net, net, x)
        assert expected[0].any()
        for out, other in zip(results, expected, strict=True):
            torch.testing.assert_close(out, other, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("name", ["event_currents", "scan_pool_forward", "recurrent_forward"])
    def test_question(self, name: str) -> None:
        """The question itself, also for the kernels that a CPU does not have."""

        def asks(x: Tensor) -> Tensor:
            return x + 1 if native.has_kernel(name, x) else x - 1

        x = torch.zeros(2)
        assert torch.equal(torch.compile(asks, fullgraph=True, backend="eager")(x), asks(x))
