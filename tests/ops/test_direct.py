"""Ops are called directly where nobody listens to torch's dispatcher, and through it for each listener."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import snnlib
from snnlib import neurons, ops
from snnlib.backends import native
from snnlib.ops import direct

FAMILIES = {
    "scan": (ops.scan.scan_forward, ops.scan.scan_backward),
    "layer": (ops.layer_forward.layer_forward, ops.layer_backward.layer_backward),
    "currents": (ops.currents.currents_forward, ops.currents.currents_backward),
    "recurrent": (ops.recurrent.recurrent_forward, ops.recurrent.recurrent_backward),
    "delay": (ops.delay.delay_forward, ops.delay.delay_backward),
    "pool": (ops.pool.pool_forward, ops.pool.pool_backward),
}
# Module of each family that runs it in both passes, and the shape of a step.
MODULES = {
    "scan": (neurons.LIF, (2, 4, 4)),
    "layer": (lambda: snnlib.SpikingConv2d(2, 3, 3, neuron=neurons.SRM()), (2, 4, 4)),
    "currents": (lambda: snnlib.SpikingConv2d(2, 3, 3, neuron=neurons.CubaLIF(5.0, 3.0)), (2, 4, 4)),
    "recurrent": (lambda: snnlib.SpikingRNN(5, 3), (5,)),
    "delay": (lambda: snnlib.DelayLine(2, 3), (2, 4, 4)),
    "pool": (lambda: snnlib.SpikeAvgPool2d(2), (2, 4, 4)),
}


@pytest.fixture
def through_dispatch(monkeypatch):
    """Names of the ops that are called through the dispatcher."""
    called = []

    def noting(op):
        def overload(*values):
            called.append(op.definition._opoverload.name())
            return op.definition(*values)

        return overload

    for family in FAMILIES.values():
        for op in family:
            monkeypatch.setattr(op, "overload", noting(op))
    return called


def train(family):
    torch.manual_seed(0)
    make, shape = MODULES[family]
    x = (torch.rand(3, 2, *shape) < 0.5).float().requires_grad_()
    module = make()
    value = module(x)
    value.sum().backward()
    return value, x.grad, *(each.grad for each in module.parameters() if each.requires_grad)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_call_ops_directly_with_equal_results(family, through_dispatch, monkeypatch):
    results = train(family)
    assert through_dispatch == []
    monkeypatch.setattr(direct, "_LISTENERS", (lambda: True,))
    others = train(family)
    assert {op.definition._opoverload.name() for op in FAMILIES[family]} <= set(through_dispatch)
    assert all(map(torch.equal, results, others))


@pytest.mark.parametrize("name", ["_len_torch_dispatch_stack", "_autograd"])
def test_a_torch_without_one_of_the_private_names_takes_the_dispatcher(name, monkeypatch):
    monkeypatch.delattr(torch._C, name)
    (listener,) = direct._listeners()
    assert listener()


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class _Function(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class _Subclass(torch.Tensor):
    pass


def shifted(x):
    return ops.delay.delay_forward(x, torch.ones(2, device=x.device), True)


def in_context(context):
    def call(x):
        with context():
            shifted(x)

    return call


LISTENERS = {
    "dispatch mode": in_context(_Dispatch),
    "function mode": in_context(_Function),
    "device": in_context(lambda: torch.device("cpu")),
    "profiler": in_context(torch.profiler.profile),
    "transform": lambda x: torch.func.vmap(lambda scale: scale * shifted(x))(torch.ones(2)),
    "trace": lambda x: torch.jit.trace(shifted, x, check_trace=False),
    "subclass": lambda x: shifted(x.as_subclass(_Subclass)),
    "no memory": lambda x: shifted(x.to("meta")),
    "another sign": lambda x: shifted(torch.complex(x, x).conj().imag),
    "zeros without memory": lambda x: shifted(torch._efficientzerotensor(x.shape)),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("listener", LISTENERS)
def test_a_listener_gets_the_op(listener, through_dispatch):
    LISTENERS[listener](torch.ones(4, 1, 2))
    assert set(through_dispatch) == {"snnlib::delay_forward"}


# Tensors that no body of an op can read.
UNREADABLE = {
    "subclass": lambda tensor: tensor.as_subclass(_Subclass),
    "no memory": lambda tensor: tensor.to("meta"),
    "another sign": torch._neg_view,
    "zeros without memory": lambda tensor: torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype),
}


def calls_of(family, monkeypatch):
    """Arguments of each op of a family in a training step."""
    calls, call = {}, direct.Op.__call__

    def noting(op, *values):
        calls[op] = values
        return call(op, *values)

    with monkeypatch.context() as patch:
        # Layers whose ops are one function call none of them directly.
        patch.setattr(direct, "_LISTENERS", (lambda: True,))
        patch.setattr(direct.Op, "__call__", noting)
        train(family)
    assert set(FAMILIES[family]) <= set(calls)
    return calls


def way_of(op, values, monkeypatch):
    """The way that a call of an op takes, which is not run."""
    with monkeypatch.context() as patch:
        for name in ("overload", "learning", "function"):
            patch.setattr(op, name, lambda *_, name=name: name)
        patch.setattr(op, "named", lambda *values: values)
        return op(*values)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_of_an_op_is_looked_at(family, monkeypatch):
    """Each tensor alone sends the call to the dispatcher, or to the gradient."""
    looked_at = set()
    for op, values in calls_of(family, monkeypatch).items():
        plain = [value.detach() if isinstance(value, torch.Tensor) else value for value in values]
        assert way_of(op, plain, monkeypatch) == "function"
        for place in op.tensors:
            # Optional ones, such as a first state, are there as well.
            tensor = torch.ones(2) if plain[place] is None else plain[place]
            looked_at.add((op, place))
            for name, change in UNREADABLE.items():
                changed = [*plain[:place], change(tensor), *plain[place + 1 :]]
                assert way_of(op, changed, monkeypatch) == "overload", (op.overload, place, name)
            if tensor.is_floating_point():
                learned = [*plain[:place], tensor.clone().requires_grad_(), *plain[place + 1 :]]
                assert way_of(op, learned, monkeypatch) == "learning", (op.overload, place)
    assert len(looked_at) >= 2 * len(FAMILIES[family])


@pytest.mark.parametrize("name", ["x", "weight", "state", "signal"])
def test_every_tensor_of_a_layer_is_looked_at(name, through_dispatch):
    """A layer whose passes are one function asks for its own tensors."""
    layer, x = (
        snnlib.SpikingConv2d(2, 3, 3, neuron=neurons.SRM()),
        torch.ones(4, 1, 2, 5, 5),
    )
    value, (state,) = layer.run(x)
    tensors = {"x": x, "state": state.detach(), "signal": torch.ones_like(value)}
    if name == "weight":
        layer.weight = torch.nn.Parameter(layer.weight.detach().as_subclass(_Subclass))
    else:
        tensors[name] = tensors[name].as_subclass(_Subclass)
    value, _ = layer.run(tensors["x"], (tensors["state"],))
    forward = {"snnlib::layer_forward"} if name != "signal" else set()
    assert set(through_dispatch) == forward
    value.backward(tensors["signal"])
    assert set(through_dispatch) == {*forward, "snnlib::layer_backward"}


def test_a_compiler_gets_the_op():
    graphs = []

    def keep(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    x = torch.ones(4, 1, 2)
    assert torch.equal(torch.compile(shifted, backend=keep, fullgraph=True)(x), shifted(x))
    assert torch.ops.snnlib.delay_forward.default in [node.target for node in graphs[0].graph.nodes]


def test_signs_of_views_are_resolved():
    x = torch.complex(torch.zeros(4, 1, 2), torch.arange(8.0).view(4, 1, 2)).conj().imag
    assert x.is_neg() and torch.equal(shifted(x), shifted(x.clone()))


def test_gradients_have_no_second_derivative():
    x = torch.rand(4, 1, 2, requires_grad=True)
    (grad,) = torch.autograd.grad(snnlib.neurons.LIF()(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="expected one backward pass"):
        grad.sum().backward()


def test_a_prepared_kernel_takes_as_many_tensors_as_it_has_slots():
    x, counts = torch.ones(2, 3), torch.zeros(1, 3, dtype=torch.int64)
    sizes = {"dtype": 0, "frames": 2, "cells": 3, "frame_stride": 3, "parts": 1}
    run = native.prepare("count_nonzero", elements=native.slot(1), counts=native.slot(2), **sizes)
    assert run(x, counts) is True
    assert counts.tolist() == [[2, 2, 2]]
    with pytest.raises(TypeError, match="expected 3 arguments of the prepared kernel, got 2"):
        run(x)
    with pytest.raises(TypeError, match="counts: expected as an argument of the kernel, got none"):
        native.prepare("count_nonzero", elements=native.slot(1), **sizes)
