"""Torch's averaging, differentiation, tracing and compiling of nets: right, or refused before anything has changed."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, prune
from torch.optim import swa_utils
from torch.utils.flop_counter import FlopCounterMode

import snnlib
from snnlib import neurons
from snnlib.learning import Rewiring

Sparse = snnlib.Sparse
SEQUENCE, FRAMES = (6, 2, 8), (6, 2, 2, 8, 8)


def events(shape: tuple[int, ...]) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5).float()


def event_neuron() -> neurons.Neuron:
    return neurons.CubaLIF(gradient="event", input_gradient="time")


def membrane_neuron() -> neurons.Neuron:
    return neurons.SRM(reset_states="membrane")


NEURONS: dict[str, Callable[[], nn.Module]] = {
    **{name: model for name, model in neurons.MODELS.items() if name not in ("PSN", "MaskedPSN")},
    "PSN, 6": lambda: neurons.PSN(6),
    "CubaLIF, event": event_neuron,
    "SRM, membrane": membrane_neuron,
    "refractory": lambda: neurons.LIF(refractory=2),
    "own surrogate": lambda: neurons.LIF(surrogate=torch.ones_like),
}
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "SpikingLinear": (lambda: snnlib.SpikingLinear(8, 4), SEQUENCE),
    "sparse": (lambda: snnlib.SpikingLinear(8, 4, connections=Sparse(density=0.5)), SEQUENCE),
    "delays": (lambda: snnlib.SpikingLinear(8, 4, delays=snnlib.Delays(3)), SEQUENCE),
    "event": (lambda: snnlib.SpikingLinear(8, 4, neuron=event_neuron()), SEQUENCE),
    "SRMConv2d": (lambda: snnlib.SRMConv2d(2, 3, 3), FRAMES),
    "SpikingRNN": (lambda: snnlib.SpikingRNN(8, 4), SEQUENCE),
    "SpikingConvRNN2d": (lambda: snnlib.SpikingConvRNN2d(2, 3, 3), FRAMES),
    "SRMReadout": (lambda: snnlib.SRMReadout(8, 4), SEQUENCE),
    "DelayLine": (lambda: snnlib.nn.DelayLine(8, 3), SEQUENCE),
    "SpikeAvgPool2d": (lambda: snnlib.SpikeAvgPool2d(2), FRAMES),
}
# Modules with the tangents of torch's own.
LINEAR: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "AvgPool2d": (snnlib.AvgPool2d(2), FRAMES),
    "MaxPool2d": (snnlib.MaxPool2d(2), FRAMES),
    "SpikeMaxPool2d": (snnlib.SpikeMaxPool2d(2), FRAMES),
    "EventDrivenMap": (snnlib.fuse_(snnlib.PerStep(nn.Linear(8, 4))), SEQUENCE),
}
ALL = {**{name: (make, SEQUENCE) for name, make in NEURONS.items()}, **LAYERS}


# torch.func brings the old compiler of torch.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is", "ignore:There is a performance drop")
@pytest.mark.parametrize("graph", [True, False], ids=["graph", "no_grad"])
@pytest.mark.parametrize("name", ALL)
def test_forward_mode_is_refused(name: str, graph: bool) -> None:
    make, shape = ALL[name]
    module, x = make(), events(shape)
    with (
        torch.set_grad_enabled(graph),
        forward_ad.dual_level(),
        pytest.raises(RuntimeError, match=r"expected a call outside torch.*loss\.backward\(\) gives"),
    ):
        module(forward_ad.make_dual(x, torch.ones_like(x)))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
@pytest.mark.parametrize("name", LINEAR)
def test_forward_mode_of_linear_modules(name: str) -> None:
    module, shape = LINEAR[name]
    x, direction = 2 * torch.rand(shape, dtype=torch.float32), torch.randn(shape)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(module(forward_ad.make_dual(x, direction))).tangent
    leaf = x.clone().requires_grad_()
    out = module(leaf)
    weights = torch.randn(out.shape)
    (gradient,) = torch.autograd.grad(out, leaf, weights)
    torch.testing.assert_close((tangent * weights).sum(), (gradient * direction).sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_second_derivatives_are_refused(name: str) -> None:
    make, shape = ALL[name]
    module, x = make(), (3 * events(shape)).requires_grad_()
    (first,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    with pytest.raises((RuntimeError, NotImplementedError), match=r"expected one (backward pass|derivative)"):
        first.square().sum().backward()


def fused_block() -> nn.Module:
    conv = snnlib.PerStep(nn.Conv2d(2, 3, 3, padding=1))
    pooled = neurons.LIF(), snnlib.AvgPool2d(2), snnlib.SpikingConv2d(3, 4, 3)
    return snnlib.fuse_(nn.Sequential(conv, snnlib.nn.BatchNorm2d(3), *pooled))


BATCHED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **ALL,
    **{name: (lambda module=module: module, shape) for name, (module, shape) in LINEAR.items()},
    "SpikingConv1d": (lambda: snnlib.SpikingConv1d(2, 3, 3), (6, 2, 2, 8)),
    "SpikingConv2d": (lambda: snnlib.SpikingConv2d(2, 3, 3, neuron=neurons.LIF()), FRAMES),
    "SpikingConv3d": (lambda: snnlib.SpikingConv3d(2, 3, 3), (6, 2, 2, 5, 5, 5)),
    "delays per connection": (
        lambda: snnlib.SpikingLinear(8, 4, delays=snnlib.Delays(3, per="connection")),
        SEQUENCE,
    ),
    "recurrent delays": (lambda: snnlib.SpikingRNN(8, 4, recurrent_delays=snnlib.Delays(3)), SEQUENCE),
    "sparse recurrent": (lambda: snnlib.SpikingRNN(8, 4, connections=Sparse(density=0.5)), SEQUENCE),
    "e-prop": (lambda: snnlib.SpikingRNN(8, 4, recurrent_gradient="eprop"), SEQUENCE),
    "random feedback": (lambda: snnlib.nn.RandomFeedback(nn.Linear(8, 4)), SEQUENCE),
    "graded": (lambda: neurons.LIF(levels=4), SEQUENCE),
    "fused block": (fused_block, FRAMES),
    "residual": (lambda: snnlib.Residual(snnlib.SpikingConv2d(2, 2, 3, padding=1)), FRAMES),
    "bidirectional": (lambda: snnlib.nn.Bidirectional(snnlib.SpikingRNN(8, 4)), SEQUENCE),
    "attention": (lambda: snnlib.nn.SpikingSelfAttention(8, heads=2), (6, 2, 4, 8)),
    "SpikeAvgPool1d": (lambda: snnlib.nn.SpikeAvgPool1d(2), (6, 2, 2, 8)),
    "MaxPool3d": (lambda: snnlib.nn.MaxPool3d(2), (6, 2, 2, 4, 4, 4)),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", BATCHED)
def test_batched_gradients_are_those_of_each(name: str) -> None:
    """Asks by `is_grads_batched` and by `vmap` of `torch.autograd.grad`."""
    make, shape = BATCHED[name]
    torch.manual_seed(3)
    module, x = make(), (3 * events(shape)).requires_grad_()
    out = module(x)
    inputs = [x, *(parameter for parameter in module.parameters() if parameter.requires_grad)]
    grads = torch.randn(3, *out.shape)

    def gradients(grad: Tensor, batched: bool = False) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(
            out, inputs, grad, retain_graph=True, allow_unused=True, is_grads_batched=batched
        )

    expected = [gradients(grad) for grad in grads]
    assert expected[0][0] is not None and expected[0][0].any()
    for number, found in enumerate(gradients(grads, batched=True)):
        each = [one[number] for one in expected]
        assert (found is None) == (each[0] is None)
        if found is not None:
            torch.testing.assert_close(found, torch.stack(each))
    (found,) = torch.vmap(lambda grad: gradients(grad)[:1])(grads)
    torch.testing.assert_close(found, torch.stack([one[0] for one in expected]))


def test_jacobian_in_one_pass() -> None:
    """Second derivatives are refused as without a batch."""
    neuron, x = neurons.LIF(tau=2.0), torch.rand(4, 1, 3)
    jacobian = torch.autograd.functional.jacobian
    torch.testing.assert_close(jacobian(neuron, x, vectorize=True), jacobian(neuron, x))
    with pytest.raises(RuntimeError, match="expected one backward pass"):
        torch.autograd.functional.hessian(lambda part: neuron(part).sum(), x, vectorize=True)


def test_second_derivatives_by_name_are_refused_where_steps_have_other_paths() -> None:
    for model in (neurons.CLIF, neurons.QIF):
        x = (3 * events(SEQUENCE)).requires_grad_()
        (first,) = torch.autograd.grad(model()(x).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="expected one backward pass"):
            torch.autograd.grad(first.square().sum(), x)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", [name for name in LAYERS if name != "SpikingConvRNN2d"])
def test_traces(name: str) -> None:
    make, shape = LAYERS[name]
    module, x = make().eval(), events(shape)
    with torch.no_grad():
        traced = torch.jit.trace(module, x)
        assert torch.equal(traced(1 - x), module(1 - x))
    if isinstance(module, snnlib.nn.SpikingLayer):
        with pytest.raises(RuntimeError, match=r"expected torch\.jit\.trace within torch\.no_grad\(\)"):
            torch.jit.trace(module, x)


# torch's own code makes an object of a class of functions.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [neurons.LIF, event_neuron], ids=["LIF", "CubaLIF, event"])
def test_two_layers_compile_with_dynamic_shapes(make: Callable[[], neurons.Neuron]) -> None:
    net = nn.Sequential(snnlib.SpikingLinear(8, 8, neuron=make()), snnlib.SpikingLinear(8, 4, neuron=make()))
    torch._dynamo.reset()
    compiled, x = torch.compile(net, fullgraph=True, dynamic=True, backend="eager"), events(SEQUENCE)
    assert torch.equal(compiled(x), net(x))


def sparse_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        snnlib.SpikingLinear(20, 16, connections=Sparse(density=0.3)),
        snnlib.SpikingRNN(16, 8, recurrent_connections=Sparse(density=0.4)),
    )


AVERAGES: dict[str, dict[str, Any]] = {
    "mean": {},
    "EMA": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
    "own": {"avg_fn": lambda average, new, _: 0.9 * average + 0.1 * new},
}


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("rule", AVERAGES)
@pytest.mark.parametrize("moves", ["never", "before", "between"])
def test_averages_of_sparse_nets(rule: str, use_buffers: bool, moves: str) -> None:
    net, x = sparse_net(), events((6, 3, 20))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def train(steps: int, *, move: bool) -> None:
        rewiring = Rewiring(net, every=1, rule="set") if move else None
        for _ in range(steps):
            net(x).sum().backward()
            optimizer.step()
            if rewiring is not None:
                rewiring.step(optimizer)
            average.update_parameters(net)

    average = swa_utils.AveragedModel(net, use_buffers=use_buffers, **AVERAGES[rule])
    if moves == "before":
        train(2, move=True)
        average = swa_utils.AveragedModel(net, use_buffers=use_buffers, **AVERAGES[rule])
    train(4, move=moves == "between")
    if moves == "between":
        for use in (lambda: average(x), average.state_dict, lambda: copy.deepcopy(average)):
            with pytest.raises(
                ValueError, match=r"connections: expected the connections of the original .* AveragedModel"
            ):
                use()
        return
    assert torch.equal(average.module[0].operator.dense() != 0, net[0].operator.dense() != 0)
    stored = average.state_dict()
    assert torch.equal(stored["module.0.operator.targets"], net[0].operator.targets)
    assert average(x).shape == net(x).shape


def test_copies_of_sparse_nets_are_their_own() -> None:
    net, x = sparse_net(), events((6, 3, 20))
    other = copy.deepcopy(net)
    expected = other(x)
    optimizer = torch.optim.Adam(net.parameters())
    rewiring = Rewiring(net, every=1, rule="set")
    net(x).sum().backward()
    rewiring.step(optimizer)
    assert torch.equal(other(x), expected)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x), net(x)) and torch.equal(pickle.loads(pickle.dumps(other))(x), net(x))


@pytest.mark.parametrize("rule", ["set", "deep_r"])
def test_rewiring_asks_for_the_weight(rule: Any) -> None:
    net, other = sparse_net(), sparse_net()
    rewiring = Rewiring(net, every=1, rule=rule)
    before = copy.deepcopy(net.state_dict())
    # The first weight alone is there.
    for optimizer in (torch.optim.Adam(other.parameters()), torch.optim.Adam(net[0].parameters())):
        with pytest.raises(ValueError, match="optimizer: expected an optimiser that holds the weight"):
            rewiring.step(optimizer)
    assert rewiring.steps == 0
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


PARAMETRISATIONS: dict[str, Callable[[nn.Module, str], object]] = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "mask": lambda layer, name: prune.random_unstructured(layer, name, 0.5),
}


@pytest.mark.parametrize("kind", PARAMETRISATIONS)
@pytest.mark.parametrize("place", ["weight", "recurrent_weight"])
@pytest.mark.parametrize("rule", ["set", "deep_r"])
def test_rewiring_refuses_parametrised_weights(kind: str, place: str, rule: Any) -> None:
    net = sparse_net()
    layer = net[0] if place == "weight" else net[1].layers[0]
    rewiring = Rewiring(net, every=1, rule=rule)
    PARAMETRISATIONS[kind](layer, place)
    optimizer = torch.optim.Adam(net.parameters())
    for use in (lambda: rewiring.step(optimizer), lambda: Rewiring(net, every=1, rule=rule)):
        with pytest.raises(ValueError, match=r"net: expected plain sparse weights, .* (0|1\.layers\.0)"):
            use()


@pytest.mark.parametrize(
    "neuron",
    [
        lambda: neurons.LIF(surrogate=snnlib.surrogate.Triangle(0.5, 0.4)),
        event_neuron,
        lambda: neurons.QIF(surrogate=snnlib.surrogate.Triangle(0.5, 0.4)),
    ],
    ids=["LIF", "event", "QIF"],
)
@pytest.mark.parametrize("recurrent", [False, True])
def test_a_sparse_layer_without_connections_trains(
    neuron: Callable[[], neurons.Neuron], recurrent: bool
) -> None:
    torch.manual_seed(0)
    none = Sparse.from_coo([], [])  # type: ignore[arg-type]
    first: nn.Module = snnlib.SpikingLinear(8, 5, neuron=neuron(), connections=none)
    if recurrent:
        first = snnlib.SpikingRNN(8, 5, neuron=neuron(), recurrent_connections=none)
    net, x = nn.Sequential(first, snnlib.SpikingLinear(5, 4)), events(SEQUENCE)
    optimizer = torch.optim.Adam(net.parameters())
    with warnings.catch_warnings():
        # A layer that gets nothing says so.
        warnings.simplefilter("ignore")
        for _ in range(4):
            net(x).sum().backward()
            optimizer.step()
    if not recurrent:
        with pytest.raises(ValueError, match="0: expected a layer with connections, got one without any"):
            snnlib.prepare_(net, x)


def changed(net: nn.Module) -> list[str]:
    return [f"{name} {type(module).__name__}" for name, module in net.named_modules()]


def dense_and_sparse() -> nn.Sequential:
    return nn.Sequential(
        snnlib.SpikingLinear(8, 8), snnlib.SpikingLinear(8, 4, connections=Sparse(density=0.5))
    )


def twice_parametrised() -> nn.Sequential:
    net = nn.Sequential(snnlib.SpikingLinear(8, 8), snnlib.SpikingLinear(8, 4))
    snnlib.nn.standardize_weights_(net)
    nn.utils.parametrize.register_parametrization(net[1], "weight", nn.Identity())
    return net


def masked() -> nn.Sequential:
    net = nn.Sequential(snnlib.SpikingLinear(8, 8), snnlib.SpikingLinear(8, 4))
    prune.random_unstructured(net[1], "weight", 0.5)
    return net


REFUSALS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], object]]] = {
    "standardize_weights_, sparse": (dense_and_sparse, snnlib.nn.standardize_weights_),
    "standardize_weights_, fan-in": (
        lambda: nn.Sequential(snnlib.SpikingLinear(8, 1), snnlib.SpikingLinear(1, 4)),
        snnlib.nn.standardize_weights_,
    ),
    "fold_standardization_": (twice_parametrised, snnlib.nn.fold_standardization_),
    "prune_": (masked, lambda net: snnlib.nn.prune_(net, 0.5)),
    "bound_": (
        lambda: neurons.CubaLIF(learnable=("tau_m", "tau_s")),
        lambda net: neurons.bound_(net, tau_m=(2.0, 50.0), tau_s=(3.0, 2.0)),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_functions_in_place_refuse_before_the_first_change(name: str) -> None:
    make, function = REFUSALS[name]
    net = make()
    before, values = changed(net), copy.deepcopy(list(net.parameters()))
    with pytest.raises(ValueError, match=r"expected|no counterpart"):
        function(net)
    assert changed(net) == before
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), values, strict=True))


def test_prepare_within_inference_mode() -> None:
    torch.manual_seed(0)
    nets = [nn.Sequential(snnlib.SpikingLinear(8, 8), snnlib.SpikingLinear(8, 4)) for _ in range(3)]
    for net in nets[1:]:
        net.load_state_dict(nets[0].state_dict())
    x, reports = events(SEQUENCE), [str(snnlib.prepare_(nets[0], events(SEQUENCE)))]
    with torch.inference_mode():
        reports.append(str(snnlib.prepare_(nets[1], x)))
        made = x.clone()
    reports.append(str(snnlib.prepare_(nets[2], made)))
    assert len(set(reports)) == 1 and "gets no gradient" not in reports[0]
    assert all(torch.equal(net[0].weight, nets[0][0].weight) for net in nets)
    with torch.inference_mode():
        net = nn.Sequential(snnlib.SpikingLinear(8, 4))
    with pytest.raises(ValueError, match=r"net: expected a net made outside torch\.inference_mode"):
        snnlib.prepare_(net, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_read_outs_keep_the_dtype(dtype: torch.dtype) -> None:
    x = events(SEQUENCE).to(dtype)
    for made in (snnlib.SRMReadout(8, 4), snnlib.SpikingLinear(8, 4, neuron=neurons.Integrator())):
        readout = made.to(dtype)
        assert readout(x).dtype == readout.run(x).value.dtype == dtype


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "DelayLine"])
def test_copies_files_and_functional_calls(name: str) -> None:
    make, shape = LAYERS[name]
    module, x = make(), events(shape)
    torch.save(module, file := io.BytesIO())
    file.seek(0)
    others = [copy.deepcopy(module), torch.load(file, weights_only=False)]
    assert all(torch.equal(other(x), module(x)) for other in others)
    given = dict(module.named_parameters()) | dict(module.named_buffers())
    assert torch.equal(torch.func.functional_call(make(), given, (x,)), module(x))


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (snnlib.SpikingLinear(8, 4), events(SEQUENCE)),
        (snnlib.SRMLinear(8, 4), events(SEQUENCE)),
        (snnlib.SpikingConv2d(2, 3, 3), events(FRAMES)),
        (snnlib.SpikingRNN(8, 4), events(SEQUENCE)),
        (snnlib.SpikingLinear(8, 4, connections=Sparse(density=0.5)), events(SEQUENCE)),
        (snnlib.SpikingLinear(8, 4, delays=snnlib.Delays(2)), events(SEQUENCE)),
    ],
    ids=["LIF", "SRM", "convolution", "recurrent", "sparse", "delays"],
)
def test_a_counter_of_dense_products_is_answered_by_profile(layer: nn.Module, x: Tensor) -> None:
    counter = FlopCounterMode(display=False)
    with counter, pytest.warns(UserWarning, match=r"^FlopCounterMode: .* take snnlib\.profile\(net, x\)$"):
        layer(x).sum().backward()
    assert counter.get_total_flops() == 0
    (counted,) = snnlib.profile(layer, x).layers
    assert counted.acs > 0


def test_a_loop_that_initialises_torchs_layers_passes_over_these() -> None:
    net = nn.Sequential(snnlib.SpikingConv2d(2, 3, 3), nn.Flatten(2), snnlib.SpikingLinear(108, 4))
    before = copy.deepcopy(net.state_dict())
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.zeros_(module.weight)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
