"""The gain between the stored and the effective weight: the same layer as one with the product as its weight."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: snnlib.SRMConv2d(2, 4, 3, padding=1),
    "linear": lambda: snnlib.SRMLinear(2 * 6 * 6, 4),
    "readout": lambda: snnlib.SRMReadout(2 * 6 * 6, 4),
}


# Every layer with a gain, and its input.
EVERY_LAYER: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "SRMConv1d": (lambda: snnlib.SRMConv1d(2, 4, 3), (12, 3, 2, 8)),
    "SRMConv2d": (lambda: snnlib.SRMConv2d(2, 4, 3), (12, 3, 2, 6, 6)),
    "SRMConv3d": (lambda: snnlib.SRMConv3d(2, 4, 2), (12, 3, 2, 4, 4, 4)),
    "SRMLinear": (lambda: snnlib.SRMLinear(20, 4), (12, 3, 20)),
    "SRMReadout": (lambda: snnlib.SRMReadout(20, 4), (12, 3, 20)),
    "SpikingConv1d": (lambda: snnlib.SpikingConv1d(2, 4, 3), (12, 3, 2, 8)),
    "SpikingConv2d": (lambda: snnlib.SpikingConv2d(2, 4, 3), (12, 3, 2, 6, 6)),
    "SpikingConv3d": (lambda: snnlib.SpikingConv3d(2, 4, 2), (12, 3, 2, 4, 4, 4)),
    "SpikingLinear": (lambda: snnlib.SpikingLinear(20, 4), (12, 3, 20)),
    "SpikingRNN": (lambda: snnlib.SpikingRNN(20, 4, num_layers=2), (12, 3, 20)),
    "SpikingConvRNN2d": (lambda: snnlib.SpikingConvRNN2d(2, 4, 3, padding=1), (12, 3, 2, 6, 6)),
    "Bidirectional": (lambda: snnlib.Bidirectional(snnlib.SpikingLinear(20, 4)), (12, 3, 20)),
}
COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "average": lambda net: torch.optim.swa_utils.AveragedModel(net).module,
}


def _events(generator: torch.Generator) -> Tensor:
    return (torch.rand(20, 3, 2, 6, 6, generator=generator) < 0.2).float()


def _pair(name: str, gain: float = 8.0) -> tuple[nn.Module, nn.Module]:
    """A layer with a gain, and one with gain 1 and the same effective weight."""
    torch.manual_seed(0)
    layer = LAYERS[name]()
    plain = copy.deepcopy(layer)
    with torch.no_grad():
        layer.gain.fill_(gain)
        plain.weight.mul_(gain)
    return layer, plain


@pytest.mark.parametrize("name", LAYERS)
def test_forward_and_backward_are_those_of_the_effective_weight(name: str, rng: torch.Generator) -> None:
    layer, plain = _pair(name)
    x = _events(rng)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [module(each) for module, each in zip((layer, plain), inputs, strict=True)]
    assert outputs[1].abs().sum() > 0
    assert torch.equal(*outputs)
    for output in outputs:
        (output * torch.rand(output.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
    assert torch.equal(inputs[0].grad, inputs[1].grad)
    assert torch.equal(layer.weight.grad, 8 * plain.weight.grad)


# torch's compiler calls functions that torch deprecates
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_streams_and_compiled_layers_use_it(name: str, rng: torch.Generator) -> None:
    layer, plain = _pair(name)
    x = _events(rng)
    expected = plain(x)
    stream = snnlib.Stream(layer)
    torch.testing.assert_close(torch.cat([stream(chunk) for chunk in x.split(7)]), expected)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), expected)
    # Else the compiler takes the constants of the next layer that it meets for variables.
    torch._dynamo.reset()


def test_a_layer_without_its_weight_is_still_refused() -> None:
    with pytest.raises(RuntimeError, match=r'Missing key.*"weight".*"gain"'):
        snnlib.SRMLinear(3, 2).load_state_dict({"threshold": torch.tensor(1.0)})


def test_gain_travels_in_state_dicts_and_copies() -> None:
    layer, _ = _pair("linear")
    other = LAYERS["linear"]()
    other(torch.zeros(2, 1, 72))
    other.load_state_dict(layer.state_dict())
    for each in (other, copy.deepcopy(layer), layer.half()):
        assert torch.equal(each.effective_weight.float(), each.weight.float() * 8)


@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize("name", EVERY_LAYER)
def test_a_copy_computes_with_the_gain_that_it_loads(
    name: str, kind: str, writes: int, rng: torch.Generator
) -> None:
    make, shape = EVERY_LAYER[name]
    torch.manual_seed(0)
    run = torch.no_grad()(lambda module: module(x))
    net, x = make(), (torch.rand(shape, generator=rng) < 0.3).float()
    for _ in range(writes):
        net.load_state_dict(make().state_dict())
        run(net)
    copied = COPIES[kind](net)
    for key, buffer in net.named_buffers():
        if key.endswith("gain"):
            buffer.fill_(64.0)
    copied.load_state_dict(net.state_dict())
    assert torch.equal(run(copied), run(net))
    # The gain says something: without it the outputs are others.
    plain = make()
    plain.load_state_dict({k: v / 64 if k.endswith("gain") else v for k, v in net.state_dict().items()})
    assert not torch.equal(run(plain), run(net))


def test_unit_gain_keeps_the_parameter_and_follows_every_change() -> None:
    """No product, so no copy of the weight, until the buffer changes, however it does."""
    layer = LAYERS["linear"]()
    assert layer.effective_weight is layer.weight
    layer.gain.fill_(2.0)
    assert torch.equal(layer.effective_weight, 2 * layer.weight)
    layer.gain = torch.tensor(1.0)
    assert layer.effective_weight is layer.weight
    layer.gain.copy_(torch.tensor(4.0))
    assert torch.equal(layer.effective_weight, 4 * layer.weight)
    layer.reset_parameters()
    assert layer.effective_weight is layer.weight
