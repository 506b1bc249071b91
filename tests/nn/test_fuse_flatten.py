"""A flattening and the fully connected layer behind it run as one, without a copy of the frames."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_gradient
from runs import results
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import snnlib
from snnlib.nn.fusion import fuse
from snnlib.nn.fusion.gain import Gain

STEPS, BATCH, FEATURES = 12, 3, 6 * 4 * 4


@pytest.fixture(autouse=True)
def blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets blocks form that gain nothing on nets as small as these."""
    monkeypatch.setattr(fuse, "gain_of", lambda *_: Gain(1.0, 2.0))


def _lif(surrogate: snnlib.surrogate.Surrogate | None = None, **options: Any) -> snnlib.neurons.LIF:
    return snnlib.neurons.LIF(2.0, surrogate=surrogate or snnlib.surrogate.Triangle(0.5), **options)


def _spiking(**options: Any) -> snnlib.SpikingLinear:
    return snnlib.SpikingLinear(FEATURES, 5, **{"neuron": _lif(), **options})


EXACT: Any = {"gradient": "event", "input_gradient": "time"}
# Modules behind the flattening, and how many of them are in the block.
HEADS: dict[str, tuple[Callable[[], list[nn.Module]], int]] = {
    "SRM": (lambda: [snnlib.SRMLinear(FEATURES, 5)], 1),
    "triangle": (lambda: [_spiking()], 1),
    "ATan": (lambda: [_spiking(neuron=_lif(snnlib.surrogate.ATan()))], 1),
    "exact times": (
        lambda: [_spiking(neuron=snnlib.neurons.CubaLIF(4.0, 2.0, gradient="event", input_gradient="time"))],
        1,
    ),
    "sparse": (lambda: [_spiking(connections=snnlib.Sparse(density=0.5))], 1),
    "delays": (lambda: [_spiking(delays=snnlib.Delays(3))], 1),
    "norm": (lambda: [snnlib.PerStep(nn.Linear(FEATURES, 5, bias=False), nn.BatchNorm1d(5)), _lif()], 2),
    "neurons": (lambda: [snnlib.PerStep(nn.Linear(FEATURES, 5, bias=False)), _lif()], 2),
    "norm apart": (
        lambda: [snnlib.PerStep(nn.Linear(FEATURES, 5, bias=False)), snnlib.BatchNorm1d(5), _lif()],
        3,
    ),
    "read-out": (lambda: [snnlib.PerStep(nn.Linear(FEATURES, 5))], 1),
    "read-out and more": (lambda: [snnlib.PerStep(nn.Linear(FEATURES, 5), nn.ReLU())], 1),
}
# Modules before it.
BODIES: dict[str, Callable[[], list[nn.Module]]] = {
    "SRM, pool": lambda: [snnlib.SRMConv2d(2, 6, 3, padding=1), snnlib.SpikeAvgPool2d(2)],
    "LIF, pool": lambda: [snnlib.SpikingConv2d(2, 6, 3, padding=1, neuron=_lif()), snnlib.AvgPool2d(2)],
    "largest": lambda: [snnlib.SpikingConv2d(2, 6, 3, padding=1, neuron=_lif()), snnlib.MaxPool2d(2)],
    "convolution": lambda: [snnlib.SpikingConv2d(2, 6, 2, stride=2, neuron=_lif())],
    "norm": lambda: [snnlib.PerStep(nn.Conv2d(2, 6, 2, stride=2, bias=False), nn.BatchNorm2d(6)), _lif()],
}
FLATTENINGS: dict[str, Callable[[], nn.Module]] = {
    "module": lambda: nn.Flatten(2),
    "per step": lambda: snnlib.PerStep(nn.Flatten()),
}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "method": lambda x: x.flatten(2),
    "method, named": lambda x: x.flatten(start_dim=2),
    "function": lambda x: torch.flatten(x, 2, -1),
}


class OwnClass(nn.Module):
    """Calls its modules, and a function between them or a third module."""

    mixes_time = False

    def __init__(self, body: nn.Module, flatten: str | nn.Module, head: list[nn.Module]) -> None:
        super().__init__()
        self.body, self.head = body, nn.ModuleList(head)
        self.flat = nn.Identity() if isinstance(flatten, str) else flatten
        self.function = flatten if isinstance(flatten, str) else ""
        self.more = False

    def forward(self, x: Tensor) -> Tensor:
        frames = self.body(x)
        out = FUNCTIONS[self.function](frames) if self.function else self.flat(frames)
        for module in self.head:
            out = module(out)
        return out + 0 * frames.sum() if self.more else out


def _events() -> Tensor:
    return (torch.rand(STEPS, BATCH, 2, 8, 8, generator=torch.Generator().manual_seed(4)) < 0.4).float()


def _net(body: str, flatten: str, head: str) -> nn.Module:
    torch.manual_seed(2)
    modules, behind = BODIES[body](), HEADS[head][0]()
    if flatten in FLATTENINGS:
        net: nn.Module = nn.Sequential(*modules, FLATTENINGS[flatten](), *behind)
    elif flatten.startswith("own "):
        net = OwnClass(nn.Sequential(*modules), FLATTENINGS[flatten[4:]](), behind)
    else:
        net = OwnClass(nn.Sequential(*modules), flatten, behind)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.constant_(module.bias, 0.8)
        elif isinstance(getattr(module, "weight", None), nn.Parameter):
            # Sums of these are exact in any order.
            module.weight.data = torch.randint(-2, 6, module.weight.shape) / 8
    return net


def _flattened(net: nn.Module) -> list[Any]:
    """Returns the blocks that read frames without their flattening."""
    blocks = [block for module in net.modules() for block in getattr(module, "fused_blocks", {}).values()]
    return [block for block in blocks if fuse.flattens(block.parts[0])]


def _fused(net: nn.Module) -> nn.Module:
    return snnlib.fuse_(net, _events()) if isinstance(net, OwnClass) else snnlib.fuse_(net)


CASES = [
    *((body, flatten, "triangle") for body in BODIES for flatten in ("module", "method", "own module")),
    *(("LIF, pool", flatten, head) for flatten in ("module", "per step", "method") for head in HEADS),
    *(("LIF, pool", flatten, "norm") for flatten in ("own module", "own per step", *FUNCTIONS)),
    ("SRM, pool", "module", "SRM"),
    ("SRM, pool", "function", "SRM"),
]


@pytest.mark.parametrize(("body", "flatten", "head"), sorted({*CASES}))
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_same_results(body: str, flatten: str, head: str, training: bool) -> None:
    net, x = _net(body, flatten, head).train(training), _events()
    plain = copy.deepcopy(net)
    names = list(net.state_dict())
    _fused(net)
    (block,) = _flattened(net)
    assert len(block.parts) == 1 + HEADS[head][1] and list(net.state_dict()) == names
    for one in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net)), snnlib.unfuse_(copy.deepcopy(net))):
        expected = results(copy.deepcopy(plain), x)
        found = results(one, x)
        assert expected[0].any()
        # Sums in another order, behind a batch norm.
        torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
        for gradient, answer in zip(found[1:], expected[1:], strict=True):
            assert_gradient(gradient, answer, 1e-4)
    assert not _flattened(snnlib.unfuse_(net)) and repr(net) == repr(plain)
    assert not any("forward" in vars(module) for module in net.modules())


class _Copies(TorchDispatchMode):
    """Counts copies of as many numbers as the frames have."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.count += name in ("clone", "copy_", "_to_copy") and out.numel() == STEPS * BATCH * FEATURES
        return out


@pytest.mark.parametrize("flatten", [*FLATTENINGS, *FUNCTIONS, "own module", "own per step"])
@pytest.mark.parametrize("head", ["SRM", "triangle", "norm", "read-out"])
def test_frames_are_not_copied(flatten: str, head: str) -> None:
    body = "SRM, pool" if head == "SRM" else "LIF, pool"
    copies = []
    for fused in (True, False):
        net = _net(body, flatten, head)
        if fused:
            _fused(net)
        with _Copies() as mode:
            net(_events()).sum().backward()
        copies.append(mode.count)
    assert copies[0] == 0 < copies[1]


@pytest.mark.parametrize("head", ["SRM", "triangle", "exact times", "delays", "norm"])
@pytest.mark.parametrize("flatten", ["module", "method"])
def test_streams_and_chunks_as_before(flatten: str, head: str) -> None:
    body = "SRM, pool" if head in ("SRM", "exact times") else "LIF, pool"
    net, x = _net(body, flatten, head).eval(), _events()
    plain = copy.deepcopy(net)
    _fused(net)
    before = snnlib.nn.Stream(plain)
    stream = snnlib.nn.Stream(net)
    for chunk in x.split([5, 1, 6]):
        assert_bits(stream(chunk), before(chunk))
    # States of a stream before `fuse_` fit the net, and back.
    shapes = [
        {key: [part.shape for part in state] for key, state in one.states.items()} for one in (stream, before)
    ]
    assert shapes[0] == shapes[1]
    gradients = []
    for one in (net, plain):
        out = snnlib.checkpoint_time(one, x, steps=4, reduce=lambda part, first: part.sum(0))
        gradients.append(torch.autograd.grad(out.square().sum(), [*one.parameters()]))
    for gradient, answer in zip(*gradients, strict=True):
        assert_gradient(gradient, answer, 1e-4)


@pytest.mark.parametrize("flatten", ["module", "method", "own module"])
def test_hooks_exchanges_and_other_readers(flatten: str) -> None:
    net, x = _net("LIF, pool", flatten, "triangle"), _events()
    expected = net(x)
    _fused(net)
    for module in [module for module in net.modules() if not [*module.children()]]:
        if isinstance(module, nn.Identity):
            continue
        seen: list[Any] = []
        handle = module.register_forward_hook(lambda _m, given, out, seen=seen: seen.extend([*given, out]))
        assert_bits(net(x), expected)
        assert all(type(each) is Tensor for each in seen)
        handle.remove()
    silent = _spiking()
    nn.init.zeros_(silent.weight)
    if isinstance(net, OwnClass):
        # A second reader of the frames gets the tensor.
        net.more = True
        assert_bits(net(x), expected)
        net.head[0] = silent
    else:
        net[-1] = silent
    assert not net(x).any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    for head in ("triangle", "neurons"):
        net, x = _net("LIF, pool", "module", head).to(dtype), _events().to(dtype)
        expected = net(x)
        assert_bits(_fused(net)(x), expected)


def test_batch_first() -> None:
    torch.manual_seed(0)
    options = {"batch_first": True}
    conv = snnlib.SpikingConv2d(2, 6, 3, padding=1, neuron=_lif(**options))
    net = nn.Sequential(conv, snnlib.AvgPool2d(2), nn.Flatten(2), _spiking(neuron=_lif(**options)))
    x = _events().transpose(0, 1)
    expected = net(x)
    assert expected.any() and len(_flattened(_fused(net))) == 1
    assert_bits(net(x), expected)


def test_frames_that_are_none() -> None:
    """Other flattenings and layers stay as they are."""
    for flatten in (nn.Flatten(1), nn.Flatten(2, 3), nn.Flatten(), snnlib.PerStep(nn.Flatten(2))):
        assert not _flattened(snnlib.fuse_(nn.Sequential(flatten, _spiking())))
    rnn = snnlib.SpikingRNN(FEATURES, 5)
    assert not _flattened(snnlib.fuse_(nn.Sequential(nn.Flatten(2), rnn)))
    net = nn.Sequential(nn.Flatten(2), _spiking())
    with pytest.raises(ValueError, match="96 inputs"):
        snnlib.fuse_(net)(torch.ones(2, 2, 3, 3, 3))
    # Features that are already flat.
    assert_bits(net(torch.ones(2, 2, FEATURES)), snnlib.unfuse_(net)(torch.ones(2, 2, FEATURES)))


def test_tools_name_the_layer() -> None:
    net, x = _fused(_net("LIF, pool", "module", "triangle")), _events()
    assert [layer.name for layer in snnlib.memory_report(net, x).layers if layer.neuron_steps] == ["0", "3"]
    with snnlib.SpikeDoctor(net) as doctor:
        net(x)
    assert [layer.name for layer in doctor.layers()] == ["0", "3"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("head", ["triangle", "neurons", "read-out"])
def test_compiled_in_one_graph(head: str) -> None:
    net, x = _net("LIF, pool", "module", head).eval(), _events()
    expected = net(x)
    compiled = torch.compile(_fused(net), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)
