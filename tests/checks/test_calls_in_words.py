"""Calls that are natural elsewhere and fail here: the error names the argument, and its advice works."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor, fx, nn

import snnlib
from snnlib import encoding, functional, losses, models, neurons, readout, surrogate
from snnlib.neurons import MODELS, Neuron
from snnlib.neurons.base import Params, State

X = (torch.rand(6, 3, 4, generator=torch.Generator().manual_seed(0)) < 0.5).float()


def stateful() -> Iterator[nn.Module]:
    """Layers, neurons and other modules whose `run` takes a state."""
    yield from (neurons.LIF(), neurons.ALIF(), neurons.Integrator(), neurons.PSN(6), neurons.SRM())
    yield from (snnlib.SpikingLinear(4, 5), snnlib.SRMLinear(4, 5), snnlib.SRMReadout(4, 5))
    yield from (snnlib.SpikingRNN(4, 5), snnlib.nn.RecurrentLayer(4, 5), snnlib.SpikeDropout())
    yield from (snnlib.Bidirectional(snnlib.SpikingRNN(4, 5)), snnlib.nn.StateSpaceBlock(4, 6))
    yield snnlib.nn.DelayLine(4, 3)


@pytest.mark.parametrize("module", list(stateful()), ids=lambda module: type(module).__name__)
def test_a_state_beside_the_sequence_is_answered_by_run(module: nn.Module) -> None:
    kind = type(module).__name__
    for state in (torch.zeros(3, 5), None, (torch.zeros(3, 5), torch.zeros(3, 5))):
        with pytest.raises(
            TypeError, match=rf"^state: expected none, got one; {kind}\.run\(x, state\) takes"
        ):
            module(X, state)
    out, state = module.run(X, None)  # type: ignore[operator]
    assert out.shape[:2] == X.shape[:2] and isinstance(state, tuple)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("learnable", [True, False, 3])
def test_constants_are_learned_by_name(name: str, learnable: object) -> None:
    kind = getattr(neurons, name)
    if "learnable" not in inspect.signature(kind).parameters:
        pytest.skip("has no constants to learn")
    with pytest.raises(TypeError, match=rf"^learnable: expected names of constants \(.+\), got {learnable}$"):
        kind(learnable=learnable)


def _of_one_step(found: Callable[[Tensor], object]) -> type[Neuron]:
    class Own(Neuron):
        state_names = ("v",)

        def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
            return found((current > 1).float())  # type: ignore[return-value]

    return Own


@pytest.mark.parametrize(
    "found", [lambda s: s, lambda s: [s], lambda s: None], ids=["tensor", "list", "None"]
)
def test_a_step_without_a_next_state_is_named(found: Callable[[Tensor], object]) -> None:
    for steps in (X, X[:, :2], X[:, :, None]):
        with pytest.raises(TypeError, match=r"^Own\.step: expected \(spikes, \(v,\)\), got \w+ alone$"):
            _of_one_step(found)()(steps)


def test_a_refractory_neuron_without_a_next_state_is_named() -> None:
    class Own(neurons.LIF):
        def dynamics(self, params: Params) -> None:
            return None

        def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
            return current

    with pytest.raises(
        TypeError, match=r"^Own\.step: expected \(spikes, \(v, refractory,\)\), got Tensor alone"
    ):
        Own(refractory=2)(X)


@pytest.mark.parametrize("base", [Neuron, snnlib.SpikingLinear, snnlib.SpikingRNN])
def test_a_class_that_does_not_begin_with_its_base_is_named(base: type[nn.Module]) -> None:
    class Own(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            pass

    for use in (lambda own: own(X), repr, lambda own: own.to(torch.float64)):
        with pytest.raises(
            AttributeError, match=r"^Own: expected super\(\)\.__init__\(\) at the beginning of"
        ):
            use(Own())


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        (surrogate, "fast_sigmoid", "FastSigmoid"),
        (surrogate, "atan", "ATan"),
        (surrogate, "straight_through_estimator", "StraightThrough"),
        (losses, "tet", "tet_loss"),
        (readout, "spike_counts", "spike_count"),
        (encoding, "rates", "rate"),
        (models, "mnist", "mnist_net"),
        (functional, "srm_layers", "srm_layer"),
    ],
)
def test_names_of_other_libraries_have_their_counterpart(module: ModuleType, name: str, meant: str) -> None:
    home = module.__name__
    with pytest.raises(AttributeError) as error:
        getattr(module, name)
    assert str(error.value) == f"module '{home}' has no attribute '{name}'; did you mean {home}.{meant}?"
    assert hasattr(module, meant)


@pytest.mark.parametrize("name", ["AdEx", "EIF", "HodgkinHuxley"])
def test_neurons_that_are_written_by_hand_are_answered_by_their_page(name: str) -> None:
    for home in (snnlib, neurons):
        with pytest.raises(
            AttributeError, match=r"; docs/lab\.md writes such a neuron as a model of your own$"
        ):
            getattr(home, name)


def layers() -> Iterator[nn.Module]:
    yield from stateful()
    yield from (snnlib.PerStep(nn.Linear(4, 5)), snnlib.AvgPool1d(2), snnlib.SpikeAvgPool1d(2))
    yield from (snnlib.BatchNorm1d(4), snnlib.nn.ChannelAffine(4), snnlib.nn.RandomFeedback(nn.Linear(4, 5)))


class Leaves(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m).__module__.startswith("snnlib") or super().is_leaf_module(m, module_qualified_name)


@pytest.mark.parametrize("layer", list(layers()), ids=lambda module: type(module).__name__)
def test_a_symbolic_trace_asks_for_layers_as_leaves(layer: nn.Module) -> None:
    net = nn.Sequential(layer, nn.Identity())
    if not isinstance(layer, snnlib.PerStep | snnlib.nn.RandomFeedback):
        with pytest.raises(
            TypeError, match=r"got Proxy; torch\.fx\.Tracer\.is_leaf_module has to return True"
        ):
            fx.symbolic_trace(net)
    x = X if not isinstance(layer, snnlib.AvgPool1d | snnlib.SpikeAvgPool1d) else X[:, :, None]
    traced = fx.GraphModule(net, Leaves().trace(net))
    torch.manual_seed(1)
    found = traced(x)
    torch.manual_seed(1)
    torch.testing.assert_close(found, net(x), rtol=0, atol=0)
