"""Residual nets: SpikingJelly's checkpoints and spikes, inputs, fused blocks, and errors."""

import copy
import inspect
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from jelly import jelly
from torch import Tensor, nn

import snnlib
from snnlib.models import SpikingResNet, ms_resnet18, sew_resnet18, sew_resnet34, spiking_resnet18
from snnlib.neurons import LIF, PLIF
from snnlib.nn.fusion import fuse
from snnlib.nn.fusion.gain import Gain

CLASSES = 5
# Nets by name: file and builder of SpikingJelly, with its options; the builder here, with its options.
NETS: dict[str, tuple[str, dict[str, Any], Callable[..., SpikingResNet], dict[str, Any]]] = {
    "sew_resnet18": ("sew_resnet", {"cnf": "ADD"}, sew_resnet18, {}),
    "sew_resnet18 and": ("sew_resnet", {"cnf": "AND"}, sew_resnet18, {"join": "and"}),
    "sew_resnet18 iand": ("sew_resnet", {"cnf": "IAND"}, sew_resnet18, {"join": "iand"}),
    "sew_resnet34": ("sew_resnet", {"cnf": "ADD"}, sew_resnet34, {}),
    "spiking_resnet18": ("spiking_resnet", {}, spiking_resnet18, {}),
    "ms_resnet18": ("ms_resnet", {}, ms_resnet18, {}),
}
KINDS = ("sew", "spiking", "ms")


def _draw(net: nn.Module) -> None:
    """Draws batch norms and running statistics with which neurons fire at all depths."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, 0.2, 1.0)
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)


def _original(name: str, learned: bool, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    file, options, _, _ = NETS[name]
    node = jelly("neuron", monkeypatch)
    kind = node.ParametricLIFNode if learned else node.LIFNode
    atan = jelly("surrogate", monkeypatch).ATan()
    make = getattr(jelly(f"model.{file}", monkeypatch), name.split(maxsplit=1)[0])
    net: nn.Module = make(num_classes=CLASSES, spiking_neuron=kind, surrogate_function=atan, **options)
    jelly("functional", monkeypatch).set_step_mode(net, "m")
    _draw(net)
    # Sums in another order do not move a potential of float64 over its threshold.
    return net.double()


def _record(net: nn.Module, kinds: Any) -> dict[str, Tensor]:
    """Returns a dictionary to which calls of neurons add their spikes, by the names of SpikingJelly's nets."""
    spikes: dict[str, Tensor] = {}
    stored = getattr(net, "stored_names", {})
    for path, module in net.named_modules():
        if isinstance(module, kinds):
            parent, _, name = path.rpartition(".")
            names = getattr(net.get_submodule(parent), "stored_names", stored)
            key = f"{parent}.{names.get(name, name)}"
            module.register_forward_hook(lambda *call, key=key: spikes.update({key: call[-1].detach()}))
    return spikes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("learned", "layout"),
    [(False, torch.contiguous_format), (True, torch.channels_last)],
    ids=["LIF, planes", "PLIF, channels last"],
)
@pytest.mark.parametrize("name", NETS)
def test_checkpoints_of_spikingjelly_load_and_give_its_spikes(
    name: str, learned: bool, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    original, (*_, make, options) = _original(name, learned, monkeypatch), NETS[name]
    neuron = (PLIF if learned else LIF)(dialect="spikingjelly", surrogate=snnlib.surrogate.ATan())
    net = make(CLASSES, neuron=neuron, **options)
    file = io.BytesIO()
    torch.save(original.state_dict(), file)
    file.seek(0)
    net.double().load_state_dict(torch.load(file, weights_only=True))
    net.to(memory_format=layout)
    # Tensors of SpikingJelly's net have the same keys; constants of neurons come in addition.
    assert original.state_dict().keys() <= net.state_dict().keys()
    original.load_state_dict(net.state_dict(), strict=False)
    reset = jelly("functional", monkeypatch).reset_net
    found = _record(net, snnlib.neurons.Neuron)
    expected = _record(original, jelly("neuron", monkeypatch).BaseNode)
    images, labels = torch.rand(2, 3, 40, 40, dtype=torch.float64), torch.tensor([1, 3])
    x = images.contiguous(memory_format=layout).expand(4, *images.shape)
    for training in (False, True):
        reset(original)
        losses = []
        for one in (net, original):
            one.train(training).zero_grad()
            out = one(x)
            loss = nn.functional.cross_entropy(out.mean(0) if out.dim() == 3 else out, labels)
            loss.backward()
            losses.append(loss)
        assert found.keys() == expected.keys()
        assert len(found) > 16
        for key, spikes in expected.items():
            assert torch.equal(found[key], spikes), key
            assert 0 < spikes.mean() < 1, key
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=0.0)
        own = net.state_dict(keep_vars=True)
        for key, parameter in original.named_parameters():
            # A product with silent spikes passes no gradient on, over many blocks none at all.
            assert parameter.grad.any() or NETS[name][1].get("cnf") == "AND", key
            torch.testing.assert_close(own[key].grad, parameter.grad, rtol=1e-6, atol=1e-12)
    # The running statistics of the training step as well.
    for key, value in original.state_dict().items():
        torch.testing.assert_close(net.state_dict()[key], value)


def _small(kind: Any, **options: Any) -> SpikingResNet:
    torch.manual_seed(0)
    net = SpikingResNet(kind, (1, 1), CLASSES, width=8, stem="small", **options)
    _draw(net)
    return net


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stem", ["small", "large"])
def test_images_are_shown_at_every_step(kind: Any, stem: Any) -> None:
    net = SpikingResNet(kind, (1, 2, 1), CLASSES, channels=1, width=4, stem=stem, time_steps=3)
    _draw(net)
    images = torch.rand(2, 1, 33, 40)
    statistics = copy.deepcopy(net.state_dict())
    outs = []
    for x in (images, images.expand(3, 2, 1, 33, 40)):
        net.load_state_dict(statistics)
        outs.append((net.train()(x), net.eval()(x)))
    for out, expected in zip(*outs, strict=True):
        assert out.shape == (3, 2, CLASSES)
        torch.testing.assert_close(out, expected)
    # Sizes of large stems are a quarter, of small stems the image's.
    sizes: list[int] = []
    net.layer1.register_forward_hook(lambda *call: sizes.append(call[-1].shape[-1]))
    net(images)
    assert sizes == [10 if stem == "large" else 40]


@pytest.mark.parametrize("kind", KINDS)
def test_nets_stream_copy_and_keep_their_keys(kind: Any) -> None:
    net = _small(kind).eval()
    x = torch.rand(6, 2, 3, 16, 16)
    expected = net(x)
    assert expected.std() > 0
    stream = snnlib.Stream(net)
    assert torch.equal(torch.cat([stream(chunk) for chunk in x.split(2)]), expected)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(copied(x), expected)
    # Keys are the same within other modules, and files of a net with other constants bring these.
    outer, other = nn.Sequential(net), _small(kind, neuron=LIF(threshold=2.0)).eval()
    assert {key.removeprefix("0.") for key in outer.state_dict()} == set(net.state_dict())
    assert not any(".0.weight" in key and "conv" in key for key in net.state_dict())
    other.load_state_dict(net.state_dict())
    neuron = "layer1.0.spike2" if kind == "ms" else "layer1.0.sn2"
    assert other.state_dict()[f"{neuron}.threshold"] == 1
    nn.Sequential(other).load_state_dict(outer.state_dict())
    # A file with one constant of two is damaged, not of another library.
    damaged = {key: value for key, value in net.state_dict().items() if key != f"{neuron}.tau"}
    with pytest.raises(RuntimeError, match=f"Missing key.*{neuron}.tau" if kind != "ms" else "Missing key"):
        other.load_state_dict(damaged)


@pytest.mark.parametrize(("kind", "blocks"), [("sew", 6), ("spiking", 3), ("ms", 2)])
def test_blocks_form(kind: Any, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stem, convolutions before neurons, and shortcuts of SEW nets with their neurons."""
    monkeypatch.setattr(fuse, "gain_of", lambda *_: Gain(1.0, 2.0))
    net, x = _small(kind), (torch.rand(4, 2, 3, 16, 16) < 0.3).float()
    fused = snnlib.fuse_(copy.deepcopy(net), x)
    assert sum(len(getattr(module, "fused_blocks", {})) for module in fused.modules()) == blocks
    assert fused.state_dict().keys() == net.state_dict().keys()
    for training in (True, False):
        outs = [one.train(training)(x) for one in (fused, net)]
        torch.testing.assert_close(*outs, rtol=1e-4, atol=1e-4)
        gradients = [
            torch.autograd.grad(out.square().sum(), one.conv1[0].weight)[0]
            for out, one in zip(outs, (fused, net), strict=True)
        ]
        assert gradients[1].any()
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4 * float(gradients[1].abs().max()))
    # Images run as well, though their currents repeat between two parts of the first block.
    torch.testing.assert_close(fused(x[0]), net(x[0]), rtol=1e-4, atol=1e-4)


def test_neurons_are_copies_or_made_for_their_channels() -> None:
    one = LIF(tau=3.0)
    net = _small("sew", neuron=one)
    own = [module for module in net.modules() if isinstance(module, LIF)]
    assert len({*map(id, own)}) == len(own) == 6 and one not in own
    assert all(float(neuron.tau) == 3 for neuron in own)
    sizes: list[int] = []

    def make(channels: int) -> LIF:
        sizes.append(channels)
        return LIF(threshold=torch.full((channels,), 0.5))

    for kind, expected in (
        ("sew", [8, 8, 16, 16, 16, 8]),
        ("spiking", [8, 8, 16, 16, 8]),
        ("ms", [8, 8, 8, 16, 16]),
    ):
        sizes.clear()
        assert _small(kind, neuron=make)(torch.rand(1, 3, 8, 8)).shape == (4, 1, CLASSES)
        assert sizes == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "vgg"}, ValueError, "^kind: expected one of sew, spiking, ms, got 'vgg'$"),
        ({"join": "ADD"}, ValueError, "^join: expected one of add, and, iand, got 'ADD'$"),
        ({"stem": "cifar"}, ValueError, "^stem: expected one of large, small, got 'cifar'$"),
        ({"depths": ()}, ValueError, "^depths: expected the number of blocks of each stage, got none$"),
        ({"depths": (2, 0)}, ValueError, "^depths: expected an integer >= 1, got 0$"),
        ({"width": 0}, ValueError, "^width: expected an integer >= 1, got 0$"),
        ({"time_steps": 1.5}, ValueError, "^time_steps: expected an integer >= 1, got 1.5$"),
        ({"neuron": LIF}, TypeError, "^neuron: expected an instance of snnlib.neurons.Neuron, got <class"),
        (
            {"neuron": lambda _: 3},
            TypeError,
            "^neuron: expected an instance of snnlib.neurons.Neuron, got 3$",
        ),
        ({"neuron": LIF(batch_first=True)}, ValueError, "^neuron: expected batch_first=False"),
    ],
)
def test_errors_name_the_argument(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SpikingResNet(**{"kind": "sew", "depths": (1,), "width": 4, **options})


@pytest.mark.parametrize(
    ("given", "hint"),
    [("num_classes", "classes"), ("cnf", "join"), ("spiking_neuron", "neuron"), ("T", "time_steps")],
)
def test_arguments_of_spikingjelly_are_named(given: str, hint: str) -> None:
    for make in (sew_resnet18, sew_resnet34, spiking_resnet18, ms_resnet18):
        with pytest.raises(TypeError, match=f"{given}.*it is called {hint}"):
            make(**{given: 10})
    with pytest.raises(TypeError, match="pretrained"):
        sew_resnet18(pretrained=True)
    # The check does not hide the arguments from `help`.
    assert list(inspect.signature(SpikingResNet).parameters)[:3] == ["kind", "depths", "classes"]


def test_inputs_of_other_shapes_are_refused() -> None:
    net = _small("ms")
    for shape in ((3, 16, 16), (2, 1, 16, 16), (4, 2, 1, 16, 16), (2, 16, 16, 3)):
        with pytest.raises(ValueError, match=r"^x: expected images .* with C = 3, got shape"):
            net(torch.zeros(shape))
