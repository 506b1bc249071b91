"""Currents by a plan of their kind of call against the op in torch's dispatcher, with gradients."""

import copy
import pickle

import pytest
import torch
from compare import assert_same_bits
from torch import Tensor

import snnlib
from snnlib.backends import native
from snnlib.functional import Convolution, FullyConnected, direct_currents
from snnlib.functional.plan import layer_currents

pytestmark = pytest.mark.skipif(native._module is None, reason="needs the compiled module")

# name: (operator, frame of the input, shape of the weight).
MAPS = {
    "3x3": (Convolution(2, padding=1), (8, 6, 5), (32, 8, 3, 3)),
    "stride": (Convolution(2, stride=2, padding=1), (8, 6, 5), (32, 8, 3, 3)),
    "dilation": (Convolution(2, padding=2, dilation=2), (8, 6, 5), (32, 8, 3, 3)),
    "groups": (Convolution(2, padding=1, groups=4), (8, 6, 5), (32, 2, 3, 3)),
    "same": (Convolution(2, padding="same"), (8, 6, 5), (32, 8, 4, 2)),
    "one pixel": (Convolution(2, padding=1), (8, 1, 1), (32, 8, 3, 3)),
    "a row": (Convolution(2, padding=1), (8, 1, 5), (32, 8, 3, 3)),
    "one axis": (Convolution(1, padding=1), (8, 9), (16, 8, 3)),
    "three axes": (Convolution(3, padding=1), (4, 3, 4, 5), (8, 4, 3, 3, 3)),
    "matrix": (FullyConnected(), (40,), (24, 40)),
    "matrix of images": (FullyConnected(), (4, 3, 3), (24, 36)),
    "matrix of rows": (FullyConnected(), (4, 9), (24, 36)),
    "large": (Convolution(2, padding=1), (256, 2, 2), (256, 256, 3, 3)),
}
each_map = pytest.mark.parametrize("name", MAPS)


def _case(name: str, dtype: torch.dtype, channels_last: bool) -> tuple[Tensor, Tensor]:
    _, frame, shape = MAPS[name]
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(4, 2, *frame, generator=generator).lt(0.2).to(dtype)
    weight = torch.randn(shape, generator=generator).to(dtype)
    if channels_last:
        x = x.movedim(2, -1).contiguous().movedim(-1, 2)
        weight = weight.movedim(1, -1).contiguous().movedim(-1, 1)
    return x.requires_grad_(), weight.requires_grad_()


def _results(name: str, x: Tensor, weight: Tensor) -> list[Tensor]:
    currents = layer_currents(x, weight, MAPS[name][0])
    signal = torch.randn(currents.shape, generator=torch.Generator().manual_seed(2))
    return [currents.detach(), *torch.autograd.grad(currents, (x, weight), signal.to(currents.dtype))]


@pytest.mark.parametrize("choice", ["auto", "events", "dense"])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("samples_first", [False, True])
@each_map
def test_results_are_those_of_the_op(
    name: str, samples_first: bool, channels_last: bool, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with snnlib.use_convolution(choice):  # type: ignore[arg-type]
        x, weight = _case(name, torch.float32, channels_last)
        given = x.detach().transpose(0, 1).requires_grad_() if samples_first else x, weight
        for _ in range(2):
            found = _results(name, *given)
        kind = direct_currents.kind_of(*given, MAPS[name][0])
        assert (direct_currents.plan_of(kind) is None) == (name == "same")
        monkeypatch.setattr(direct_currents, "kind_of", lambda *_: None)
        expected = _results(name, *given)
    assert_same_bits(found, expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
    if given[1].dim() == 4:
        # Autograd would else copy it into this layout.
        assert found[2].stride() == given[1].stride()


@each_map
def test_half_precision_gets_currents_in_float32(name: str) -> None:
    given = _case(name, torch.bfloat16, False)
    for _ in range(2):
        found = _results(name, *given)
    assert [one.dtype for one in found] == [torch.float32, torch.bfloat16, torch.bfloat16]


def test_second_derivatives_are_refused() -> None:
    given = _case("3x3", torch.float32, False)
    for _ in range(2):
        currents = layer_currents(*given, MAPS["3x3"][0])
    (gradient,) = torch.autograd.grad(currents.square().sum(), given[0], create_graph=True)
    with pytest.raises(RuntimeError, match="expected one backward pass"):
        gradient.sum().backward()


def test_wrong_inputs_are_named_whatever_ran_before() -> None:
    x, weight = _case("3x3", torch.float32, False)
    layer_currents(x, weight, MAPS["3x3"][0])
    with pytest.raises(ValueError, match="channels"):
        layer_currents(x[:, :, :7], weight, MAPS["3x3"][0])
    with pytest.raises(TypeError, match="expected one dtype"):
        layer_currents(x.double(), weight, MAPS["3x3"][0])


def test_nets_with_plans_are_copied_and_stored() -> None:
    net = torch.nn.Sequential(snnlib.PerStep(torch.nn.Conv2d(2, 16, 3)), snnlib.neurons.LIF())
    x = torch.rand(4, 2, 2, 8, 8)
    snnlib.fuse_(net, x)
    expected = net(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(x), expected)
