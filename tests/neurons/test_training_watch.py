"""Layers that cannot learn, or no longer can, say so once, by name, with a remedy; all others say nothing."""

import copy
import pickle
import warnings
from collections.abc import Callable

import pytest
import torch
from rates import set_rates_
from torch import Tensor, nn

import snnlib
from snnlib.neurons import constants, training_watch
from snnlib.neurons.training_watch import TrainingWatch
from snnlib.neurons.training_words import SCALED
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.sequences.spike_count import channel_rates


class _Net(nn.Module):
    mixes_time = False

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


def _train(
    net: nn.Module,
    batches: int = 5,
    x: Tensor | None = None,
    loss: Callable[[nn.Module], Tensor] | None = None,
) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(batches):
            net.zero_grad()
            (net(_batch() if x is None else x).sum() if loss is None else loss(net)).backward()
    assert all(warning.filename == __file__ for warning in caught), "at the user's line"
    return [str(warning.message) for warning in caught]


def test_a_silent_layer_warns_once_with_its_path_and_the_remedy() -> None:
    # A prepared net is not to be prepared.
    for prepared, remedy in ((0, "; lower the learning rate"), (None, "; call snnlib.prepare_(net, x)")):
        net = _net(silence="features.0")
        net.get_submodule("features.0").prepared = prepared  # type: ignore[assignment]
        said = _train(net)
        assert len(said) == 1, said
        assert said[0].startswith("features.0: no neuron fired in the first 3 training batches")
        assert remedy in said[0]
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


@pytest.mark.parametrize("use", [_frozen, _without_gradients, _evaluated, _streamed])
def test_passes_that_do_not_train_are_not_counted(use: Callable[[nn.Module], None]) -> None:
    """pytest turns warnings into errors."""
    use(_net(silence="features.0"))


def test_healthy_nets_and_tools_say_nothing() -> None:
    net = _net()
    snnlib.memory_report(net, _batch())
    set_rates_(net, _batch(), 0.1)
    for _ in range(4):
        snnlib.prepare_(net, _batch(), again=True)
    for each in (net, copy.deepcopy(net)):
        assert _train(each) == []
    net.features[0].gain.fill_(1.0)
    _train(net)
    assert all(not parameter._backward_hooks for parameter in net.parameters()), "no hook stays behind"


# torch's compiler calls functions that torch deprecates
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_nets_are_left_alone() -> None:
    torch._dynamo.reset()
    net = _net(silence="features.0")
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    for _ in range(4):
        compiled(_batch()).sum().backward()


# Later batches

EXACT = "start anew, or from a checkpoint, with a lower learning rate, clipped gradients"


def _cuba(gradient: str) -> nn.Sequential:
    torch.manual_seed(0)
    neurons = [snnlib.neurons.CubaLIF(gradient=gradient) for _ in range(2)]
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, neuron=neurons[0]), snnlib.SpikingLinear(4 * 64, 3, neuron=neurons[1])
    )
    snnlib.prepare_(net, _batch())
    return net


NETS: dict[str, Callable[[], nn.Module]] = {
    "layers": _net,
    "fused": lambda: snnlib.fuse_(_net()),
    "event": lambda: _cuba("event"),
    "surrogate": lambda: _cuba("surrogate"),
}


def _first_layer(net: nn.Module) -> tuple[str, nn.Module]:
    return next((name, layer) for name, layer in net.named_modules() if isinstance(layer, SpikingLayer))


@pytest.mark.parametrize("kind", NETS)
def test_a_layer_silenced_in_training_is_named_within_200_batches(kind: str) -> None:
    net = NETS[kind]()
    assert _train(net, 120) == []
    name, layer = _first_layer(net)
    nn.init.constant_(layer.weight, -1.0)
    said = _train(net, 180)
    assert f"{name}: no neuron fired in training batches 201 to 300 (every 10th was looked at)" in said[0]
    assert (EXACT in said[0]) == (kind != "surrogate")
    assert "lower" in said[0]
    assert [window.silent for window in layer.training_watch.course[-2:]] == [0, 1]
    assert _train(net, 100) == []


def test_lost_channels_are_counted_against_those_of_the_beginning() -> None:
    net = _net()
    nn.init.constant_(net.features[0].weight[:2].detach(), -1.0)
    assert _train(net, 120) == []
    nn.init.constant_(net.features[0].weight[2:3].detach(), -1.0)
    said = _train(net, 180)
    assert not any("channels" in text for text in said), "half of those that fired"


def test_a_layer_that_loses_most_channels_is_named() -> None:
    for kind in ("fused", "surrogate"):
        net = NETS[kind]()
        name, layer = _first_layer(net)
        assert _train(net, 120) == []
        nn.init.constant_(layer.weight[:3].detach(), -1.0)
        said = [text for text in _train(net, 180) if "of the samples" not in text]
        assert len(said) == 1, said
        assert said[0].startswith(
            f"{name}: 75% of the channels that fired at the beginning did not fire in training batches 201 to 300"
        )
        assert (EXACT in said[0]) == (kind != "surrogate")


@pytest.mark.parametrize("kind", ["fused", "event"])
def test_a_layer_that_comes_to_fire_always_is_named(kind: str) -> None:
    net = NETS[kind]()
    name, layer = _first_layer(net)
    assert _train(net, 120) == []
    nn.init.constant_(layer.weight, 100.0)
    said = [text for text in _train(net, 180) if text.startswith(f"{name}: ")]
    assert said in (
        [f"{name}: fires in {share}% of all steps in training batch 200; {SCALED}"] for share in (99, 100)
    )
    assert layer.training_watch.course[-1].saturated == 1


def _graded(levels: float = 8) -> snnlib.SpikingLinear:
    layer = snnlib.SpikingLinear(1, 4, neuron=snnlib.neurons.IF(levels=levels))
    nn.init.ones_(layer.weight)
    return layer


def test_graded_neurons_are_busy_by_their_levels() -> None:
    layer, x = _graded(), torch.zeros(10, 3, 1)
    x[:2] = 8
    assert _train(layer, 120, x) == []
    window = layer.training_watch.course[-1]
    assert (window.rate, window.saturated) == (pytest.approx(1.6), 0)
    assert _train(layer, 180, torch.full((10, 3, 1), 2.0)) == []
    (said,) = _train(layer, 200, torch.full((10, 3, 1), 6.0))
    assert "100% of the channels came to fire at more than half of their 8 levels in all steps" in said
    layer.prepared = 0
    layer.training_watch = TrainingWatch()
    (said,) = _train(layer, 17, torch.full((10, 3, 1), 7.0))
    assert (
        "fires 8 spikes in 88% of all steps in training batch 17; graded neurons learn behind batch norm"
        in said
    )


@pytest.mark.parametrize("levels", [1, 8])
def test_spikes_are_counted_once(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Tensor] = []
    monkeypatch.setattr(training_watch, "channel_rates", lambda s: calls.append(s) or channel_rates(s))
    _train(_graded(levels), 2, torch.ones(10, 3, 1))
    assert len(calls) == 2


@pytest.mark.parametrize("weight", [100.0, -100.0])
def test_graded_neurons_beyond_their_levels_have_no_gradient(weight: float) -> None:
    """Their output reaches the loss."""
    layer, other = _graded(), _graded()
    nn.init.constant_(layer.weight[1:].detach(), weight)
    nn.init.constant_(layer.weight[:1].detach(), 100.0)
    (said,) = _train(layer, 3, torch.ones(10, 3, 1))
    assert (
        "the gradient of the weight was exactly 0 in the first 3 training batches, as all potentials" in said
    )
    (said,) = _train(other, 3, loss=lambda net: (net(torch.ones(10, 3, 1)) * 0).sum())
    assert "as its output does not affect the loss" in said


def test_outputs_at_half_of_all_steps_are_healthy() -> None:
    layer = snnlib.SRMLinear(200, 8)
    set_rates_(layer, _batch().flatten(2), 0.5)
    assert _train(layer, 310, _batch().flatten(2)) == []


def _losses(net: nn.Module, kind: str) -> Tensor:
    out = net(_batch())
    return {"silent neurons": out * (out.detach() == 0), "none": out * 0}[kind].sum()


def test_a_gradient_that_becomes_zero_is_named() -> None:
    """Exact gradients are those of neurons that fire: a loss on all others teaches nothing."""
    for kind in ("fused", "event"):
        net = NETS[kind]()
        assert _train(net, 120) == []
        said = _train(net, 180, loss=lambda net: _losses(net, "silent neurons"))
        assert len(said) == 1, said
        name = [name for name, layer in net.named_modules() if isinstance(layer, SpikingLayer)][-1]
        assert said[0].startswith(
            f"{name}: the gradient of the weight was exactly 0 in training batches 201 to 300 (every 10th was looked "
            "at), as the loss does not depend on neurons that fire; lower the learning rate"
        )


def test_no_gradient_because_of_what_comes_behind_is_not_the_layer_s_fault() -> None:
    """The loss may be met, or the gradient cut on purpose; a silent layer behind speaks for itself."""
    net = _net()
    assert _train(net, 120) == []
    assert _train(net, 180, loss=lambda net: _losses(net, "none")) == []
    assert net.classifier.training_watch.course[-1].without_gradient
    nn.init.constant_(net.classifier.weight, -1.0)
    assert [text.partition(" ")[0] for text in _train(net, 100)] == ["classifier:"]


def test_data_that_end_are_the_data_s_fault() -> None:
    net = _net()
    assert _train(net, 120) == []
    said = _train(net, 180, torch.zeros_like(_batch()))
    assert len(said) == 1, said
    assert said[0].startswith("features.0: the input had no spikes in training batch 300; check the data")


def test_batches_that_repeat_in_tens_are_all_seen() -> None:
    layer, x = snnlib.SRMLinear(4, 2), torch.ones(3, 1, 4)
    x[1:] = 0
    nn.init.ones_(layer.weight)
    for kept in range(10):
        watch = layer.training_watch = TrainingWatch()
        for batch in range(1, 201):
            layer(x if batch <= 3 or batch % 10 == kept else torch.zeros_like(x)).sum().backward()
        assert [window.silent < 1 for window in watch.course] == [True] * 3


def test_what_is_lost_in_the_first_updates_is_said_before_the_hundredth() -> None:
    net = _net()
    assert _train(net, 3) == []
    with torch.no_grad():
        net.classifier.weight[:2] = -1.0
    x = _batch().repeat(1, 10, 1, 1, 1)
    said = _train(net, 28, x)
    assert len(said) == 1 and "did not fire in training batches 4 to 31" in said[0]


def test_few_samples_need_not_make_every_output_fire() -> None:
    net = _net()
    x = _batch()[:, :2]
    assert _train(net, 120, x) == []
    nn.init.constant_(net.features[0].weight[:3].detach(), -1.0)
    assert _train(net, 180, x) == []


def test_values_are_read_once_in_a_hundred_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading makes a GPU's host wait; gains and constants of neurons are read on a CPU alone."""
    monkeypatch.setattr(constants, "_READ", ())
    net, reads = _net(), []
    _train(net, 100)
    gains = [module.gain for module in net.modules() if isinstance(module, SpikingLayer)]

    def read(self: Tensor, name: str, original: Callable[[Tensor], object]) -> object:
        if not any(self is gain for gain in gains):
            reads.append(name)
        return original(self)

    for name in ("tolist", "item", "__bool__", "__float__"):
        original = getattr(Tensor, name)
        monkeypatch.setattr(Tensor, name, lambda self, o=original, name=name: read(self, name, o))
    _train(net, 99)
    assert reads == []
    _train(net, 1)
    assert reads


def test_copies_and_files_of_a_net_go_on_and_its_state_stays_what_it_was() -> None:
    net = _net()
    keys = list(net.state_dict())
    _train(net, 150)
    assert list(net.state_dict()) == keys
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        nn.init.constant_(other.classifier.weight, -1.0)
        assert _train(other, 150)[0].startswith("classifier: no neuron fired in training batches 201 to 300")
    assert [window.last for window in net.classifier.training_watch.course] == [3, 100]


def test_channels_that_are_taken_out_begin_anew() -> None:
    net = _net()
    _train(net, 150)
    net.classifier.weight = nn.Parameter(net.classifier.weight[:2].detach().clone())
    assert _train(net, 160) == []
    assert net.classifier.training_watch.course[-1].last == 100


# Neurons that stand alone


def _behind_norm(surrogate: snnlib.surrogate.Surrogate, fused: bool) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.PerStep(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4)),
        snnlib.neurons.LIF(tau=2.0, surrogate=surrogate),
        snnlib.SpikingLinear(4 * 64, 3),
    )
    # It tells them their names.
    snnlib.SpikeDoctor(net)
    return snnlib.fuse_(net) if fused else net


@pytest.mark.parametrize("fused", [False, True])
def test_neurons_behind_batch_norm_are_watched(fused: bool) -> None:
    net = _behind_norm(snnlib.surrogate.ATan(), fused)
    assert _train(net, 120) == []
    assert [window.last for window in net[1].training_watch.course] == [3, 100]
    nn.init.constant_(net[0][1].bias, -100.0)
    said = _train(net, 180)
    assert said[0].startswith(
        "1: no neuron fired in training batches 201 to 300 (every 10th was looked at), as some did"
    )
    assert "lower the learning rate or clip gradients" in said[0]


@pytest.mark.parametrize("fused", [False, True])
def test_a_compact_surrogate_that_starts_dead_is_named(fused: bool) -> None:
    net = _behind_norm(snnlib.surrogate.Triangle(0.5), fused)
    nn.init.constant_(net[0][1].bias, -100.0)
    said = [text for text in _train(net, 3) if text.startswith("1: ")]
    what = "weight" if fused else "currents"
    assert said == [
        f"1: the gradient of the {what} was exactly 0 in the first 3 training batches, as no neuron fired or came near "
        "its threshold; call snnlib.prepare_(net, x) on a batch of training data before training"
    ]


def test_passes_of_prepare_are_no_training() -> None:
    torch.manual_seed(0)
    neuron = snnlib.neurons.LIF(surrogate=snnlib.surrogate.Triangle(0.5))
    net = nn.Sequential(snnlib.PerStep(nn.Linear(200, 20)), neuron)
    snnlib.prepare_(net, _batch().flatten(2))
    nn.init.constant_(net[0][0].bias, -100.0)
    assert _train(net, 2, _batch().flatten(2)) == []
    assert len(_train(net, 1, _batch().flatten(2))) == 1


def test_read_outs_of_potentials_are_not_watched() -> None:
    net = nn.Sequential(snnlib.PerStep(nn.Linear(200, 3)), snnlib.neurons.Integrator(tau=100.0))
    assert _train(net, 120, _batch().flatten(2)) == []
    nn.init.zeros_(net[0][0].weight)
    nn.init.zeros_(net[0][0].bias)
    assert _train(net, 180, _batch().flatten(2)) == []
    assert net[1].training_watch.course == []
