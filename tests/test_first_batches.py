"""Layers that cannot learn say so once, by name, with a remedy; all others say nothing."""

import copy
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

import snnlib


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(snnlib.SRMConv2d(2, 4, 3), snnlib.SpikeAvgPool2d(2))
        self.classifier = snnlib.SRMLinear(4 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


def _batch() -> Tensor:
    return (torch.rand(12, 3, 2, 10, 10, generator=torch.Generator().manual_seed(1)) < 0.2).float()


def _net(silence: str = "") -> _Net:
    net = _Net()
    snnlib.prepare_(net, _batch())
    if silence:
        nn.init.zeros_(net.get_submodule(silence).weight)
    return net


def _train(net: nn.Module, batches: int = 5, x: Tensor | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(batches):
            net.zero_grad()
            net(_batch() if x is None else x).sum().backward()
    assert all(warning.filename == __file__ for warning in caught), "at the user's line"
    return [str(warning.message) for warning in caught]


def test_a_silent_layer_warns_once_with_its_path_and_the_remedy() -> None:
    net = _net(silence="features.0")
    said = _train(net)
    assert len(said) == 1, said
    assert said[0].startswith("features.0: no neuron fired in the first 3 training batches")
    assert "call snnlib.prepare_(net, x)" in said[0]
    assert _train(net) == []


def test_the_third_batch_decides() -> None:
    net = _net(silence="classifier")
    assert _train(net, 2) == []
    assert _train(net, 1)
    net = _net(silence="features.0")
    assert _train(net, 2) == []
    net.load_state_dict(_net().state_dict())
    assert _train(net) == []


def test_layers_without_a_gradient_warn() -> None:
    said = _train(_net(silence="classifier"))
    assert [text.partition(" ")[0] for text in said] == ["classifier:", "features.0:"]
    assert "the gradient of the weight was exactly 0 in the first 3 training batches" in said[1]


def test_a_layer_alone_is_named_by_its_repr() -> None:
    layer = snnlib.SRMLinear(200, 3)
    nn.init.zeros_(layer.weight)
    assert _train(layer, x=_batch())[0].startswith("SRMLinear(200, 3, ")


def test_data_without_events_are_the_data_s_fault() -> None:
    said = _train(_net(), x=torch.zeros_like(_batch()))
    assert len(said) == 1, said
    assert said[0].startswith(
        "features.0: the input had no spikes in the first 3 training batches; check the data"
    )


def _frozen(net: nn.Module) -> None:
    net.requires_grad_(False)
    for _ in range(4):
        net(_batch())


def _without_gradients(net: nn.Module) -> None:
    with torch.no_grad():
        for _ in range(4):
            net(_batch())


def _evaluated(net: nn.Module) -> None:
    net.eval()
    for _ in range(4):
        net(_batch()).sum().backward()


def _streamed(net: nn.Module) -> None:
    stream = snnlib.Stream(net)
    for chunk in _batch().split(2):
        stream(chunk)


def _reports(net: nn.Module) -> None:
    snnlib.memory_report(net, _batch())
    snnlib.init.calibrate_firing_rate_(net, _batch(), 0.1)
    for _ in range(4):
        snnlib.prepare_(net, _batch())


@pytest.mark.parametrize("use", [_frozen, _without_gradients, _evaluated, _streamed])
def test_passes_that_do_not_train_are_not_counted(use: Callable[[nn.Module], None]) -> None:
    """pytest turns warnings into errors."""
    use(_net(silence="features.0"))


def test_healthy_nets_and_tools_say_nothing() -> None:
    net = _net()
    _reports(net)
    assert _train(net) == []
    assert _train(copy.deepcopy(net)) == []


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # torch's compiler calls functions that torch deprecates
def test_compiled_nets_are_left_alone(fresh_compiler: None) -> None:
    net = _net(silence="features.0")
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for _ in range(4):
        compiled(_batch()).sum().backward()


def test_no_hook_stays_behind() -> None:
    net = _net()
    net.features[0].gain.fill_(1.0)
    _train(net)
    assert all(not parameter._backward_hooks for parameter in net.parameters())
