"""Hooks of a net that another form of it would lose: refused where they act, of no matter where they record."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.exchange import export_c, export_onnx, to_integers, to_lava, unroll_spikes
from snnlib.neurons import IF, LIF, LoihiCubaLIF

_X = (torch.rand(8, 2, 12, generator=torch.Generator().manual_seed(0)) < 0.5).float()


def _net(neuron: snnlib.neurons.Neuron, **options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingLinear(12, 16, neuron=neuron), snnlib.SpikingLinear(16, 5, neuron=neuron, **options)
    )
    for layer in net:
        layer.weight.data.mul_(3)
    return net.eval()


def _nir(net: nn.Module, folder: Path) -> None:
    pytest.importorskip("nir")
    snnlib.to_nir(net, x=_X)


def _nir_without_x(net: nn.Module, folder: Path) -> None:
    pytest.importorskip("nir")
    snnlib.to_nir(net)


def _onnx(net: nn.Module, folder: Path) -> None:
    pytest.importorskip("onnx")
    export_onnx(net, folder / "net.onnx", _X)


# Writers of another form, with the neurons that they take.
FORMS: dict[str, tuple[Callable[[nn.Module, Path], Any], Callable[[], snnlib.neurons.Neuron]]] = {
    "integers": (lambda net, _: to_integers(net, _X), LIF),
    "unrolled": (lambda net, _: unroll_spikes(net, _X), lambda: LIF(levels=4)),
    "nir": (_nir, LIF),
    "onnx": (_onnx, LIF),
    "lava": (lambda net, folder: to_lava(net, folder / "network.net", x=_X), LoihiCubaLIF),
}
PLACES: dict[str, Callable[[nn.Sequential], nn.Module]] = {
    "net": lambda net: net,
    "first": lambda net: net[0],
    "last": lambda net: net[-1],
}


def halved(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output * 0.5


def _written(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    inputs[0].mul_(0.5)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
def test_a_hook_that_acts_is_refused_by_name(form: str, place: str, tmp_path: Path) -> None:
    write, neuron = FORMS[form]
    net = _net(neuron())
    hook = PLACES[place](net).register_forward_hook(halved)
    name = {"net": "net", "first": "0", "last": "1"}[place]
    with pytest.raises(
        ValueError, match=rf"{name}: expected no hook that acts, got: its hook halved .*remove it first"
    ):
        write(net, tmp_path)
    # The advice.
    hook.remove()
    write(net, tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_a_hook_that_writes_into_its_input_is_refused(form: str, tmp_path: Path) -> None:
    write, neuron = FORMS[form]
    net = _net(neuron())
    net[1].register_forward_pre_hook(_written)
    with pytest.raises(ValueError, match=r"1: expected no hook that acts, got: its hook _written"):
        write(net, tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_a_hook_that_records_is_of_no_matter(form: str, tmp_path: Path) -> None:
    write, neuron = FORMS[form]
    net, seen = _net(neuron()), []
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    write(net, tmp_path)
    assert len(net[0]._forward_hooks) == 1


def test_without_an_input_no_hook_can_be_told(tmp_path: Path) -> None:
    net = _net(LIF())
    net[0].register_forward_hook(lambda module, inputs, output: None)
    with pytest.raises(ValueError, match=r"0: expected no hook that acts, got: it has forward hooks; give x"):
        _nir_without_x(net, tmp_path)
    _nir(net, tmp_path)


def _chain(net: Any, _: Path) -> nn.Module:
    options: dict[str, Any] = {"decay_input": False, "reset": "subtract"}
    return net.chain(
        lambda threshold, start: LIF(math.inf, threshold=threshold, start_value=start, **options)
    )  # type: ignore[no-any-return]


# Forms that are made of another form.
SECOND: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Path], Any]]] = {
    "C": (lambda: to_integers(_net(LIF()), _X), lambda net, folder: export_c(net, folder, _X)),
    "chain": (lambda: unroll_spikes(_net(IF(levels=4)), _X), _chain),
}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("form", SECOND)
def test_a_hook_on_a_form_is_refused_in_the_next(form: str, before: bool, tmp_path: Path) -> None:
    make, write = SECOND[form]
    net = make()
    if before:
        handle = net.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0,))
    else:
        handle = net.register_forward_hook(halved)
    with pytest.raises(ValueError, match=r"net: expected no hook that acts, got: its hook .*remove it first"):
        write(net, tmp_path)
    handle.remove()
    seen: list[Any] = []
    net.register_forward_hook(lambda module, inputs, output: seen.append(output))
    write(net, tmp_path)


@pytest.mark.parametrize("form", ["fused", "stream"])
def test_a_fused_net_and_a_stream_keep_hooks(form: str) -> None:
    net = _net(LIF())
    net[1].register_forward_hook(halved)
    expected = net(_X)
    assert expected.max() == 0.5
    if form == "fused":
        assert torch.equal(snnlib.fuse_(net)(_X), expected)
    else:
        stream = snnlib.Stream(net)
        assert torch.equal(torch.cat([stream(_X[:3]), stream(_X[3:])]), expected)
