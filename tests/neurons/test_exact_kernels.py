"""Kernels of neurons with exact spike times: layers in one pass, chunks, the record, what is said and refused."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opdb import OPS
from torch import Tensor

import snnlib
from snnlib.functional import Convolution, FullyConnected, spiking_layer
from snnlib.functional.paths import Path
from snnlib.functional.plan import plan_layer
from snnlib.neurons import CubaLIF

# Operator, shapes of the weight and of a step of events, windows of pooling.
LAYERS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], tuple[int, int]]] = {
    "linear": (FullyConnected(), (21, 30), (30,), (1, 1)),
    "stride": (Convolution(2, stride=2, padding=1), (20, 4, 3, 3), (4, 9, 8), (1, 1)),
    "pool": (Convolution(2), (5, 4, 3, 3), (4, 8, 9), (2, 3)),
}
OPTIONS = [{}, {"reset_states": "all"}, {"refractory": math.inf}, {"refractory": 2, "reset_value": -0.2}]
CUTS = (1, 4, 0, 7)


def _run(
    name: str, neuron: CubaLIF, state: Any = None, steps: slice = slice(None), return_state: bool = False
) -> tuple[snnlib.neurons.Output, tuple[Tensor, Tensor]]:
    """The layer's output, and its events and weight, in 64ths so that currents do not round."""
    operator, shape, step, pool = LAYERS[name]
    generator = torch.Generator().manual_seed(5)
    x = torch.rand(sum(CUTS), 3, *step, generator=generator).lt(0.3).float()[steps].requires_grad_()
    weight = torch.randn(shape, generator=generator).mul(24).round().div(64).requires_grad_()
    options = {"state": state, "return_state": return_state, "pool": pool}
    return spiking_layer(x, weight, operator, neuron, **options), (x, weight)


@pytest.mark.parametrize("input_gradient", ["time", "dense"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_one_kernel_gives_what_currents_give(name: str, options: dict[str, Any], input_gradient: str) -> None:
    neuron = CubaLIF(gradient="event", threshold=0.5, input_gradient=input_gradient, **options)
    operator, _, _, pool = LAYERS[name]
    found, paths = [], []
    for apart in (False, True):
        (value, _), leaves = _run(name, neuron, return_state=apart)
        paths.append(plan_layer(*leaves, operator, neuron, return_state=apart, pool=pool).path)
        q = torch.randn(value.shape, generator=torch.Generator().manual_seed(6))
        found.append((value.detach(), *torch.autograd.grad(value, leaves, q)))
    # A rest that ends is not on the record.
    scan = Path.CURRENTS_SCAN
    assert paths == [scan if options.get("refractory") == 2 else Path.LAYER, scan]
    assert 0.03 < found[0][0].mean() < 0.5
    assert torch.equal(found[0][0], found[1][0])
    for gradient, answer in zip(found[0][1:], found[1][1:], strict=True):
        assert (gradient - answer).abs().max() <= 1e-5 * answer.abs().max()


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_chunks_of_a_layer_give_its_bits(name: str, options: dict[str, Any], learns: bool) -> None:
    neuron, state, parts, at = CubaLIF(gradient="event", **options), None, [], 0
    with torch.set_grad_enabled(learns):
        for steps in CUTS:
            (value, state), _ = _run(name, neuron, state, slice(at, at + steps), return_state=True)
            parts.append(value)
            at += steps
        assert torch.equal(torch.cat(parts), _run(name, neuron)[0].value)


@pytest.mark.parametrize("input_gradient", ["time", "dense"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_go_through_the_states_of_chunks(options: dict[str, Any], input_gradient: str) -> None:
    neuron = CubaLIF(gradient="event", input_gradient=input_gradient, **options)
    generator = torch.Generator().manual_seed(7)
    x, q = (torch.randn(sum(CUTS), 3, 40, dtype=torch.float64, generator=generator) for _ in range(2))
    x, parts, state = x.add(1).requires_grad_(), [], None
    for chunk in x.split(CUTS):
        value, state = neuron.run(chunk, state)
        parts.append(value)
    whole = neuron(x)
    assert torch.equal(torch.cat(parts), whole)
    found, answer = (torch.autograd.grad(value, x, q)[0] for value in (torch.cat(parts), whole))
    assert answer.abs().max() > 0.1
    torch.testing.assert_close(found, answer, rtol=1e-12, atol=1e-13)


def _said(run: Callable[[CubaLIF], Any]) -> str:
    neuron = CubaLIF(20.0, 10.0, decay_input=False, threshold=2.0, gradient="event", grad_clamp=0.05)
    with pytest.warns(UserWarning, match="grad_clamp bounds their gradient") as caught:
        for _ in range(3):
            run(neuron)
    return str(caught[0].message)


def test_every_way_counts_the_same_clamped_spikes() -> None:
    """Fused layers run from their record, others from currents or step by step."""
    with torch.no_grad():
        _, (x, weight) = _run("linear", CubaLIF())
        currents = x @ weight.T
    by_step = _said(lambda neuron: neuron.reference(currents))
    clamped, spikes = (int(word) for word in by_step.split() if word.isdigit() and int(word) > 3)
    assert 20 < clamped < spikes
    assert _said(lambda neuron: neuron(currents)) == by_step
    for apart in (False, True):
        assert _said(lambda neuron, apart=apart: _run("linear", neuron, return_state=apart)) == by_step


def test_a_neuron_and_step_takes_a_byte_at_most() -> None:
    """At a rate of 10 %: a bit, and two numbers of every spike."""
    saved: list[Tensor] = []
    neuron = CubaLIF(gradient="event", threshold=0.62)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        (value, _), leaves = _run("stride", neuron)
    assert 0.09 < value.mean() <= 0.1
    of_record = [x for x in saved if x.data_ptr() not in [leaf.data_ptr() for leaf in leaves]]
    assert value.numel() / 8 < sum(x.nbytes for x in of_record) <= value.numel()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("exact_forward", {"flags": [0, 2, 0, 0]}, r"flags: expected three of 0 or 1 .*\[0, 2, 0, 0\]"),
        ("exact_layer_forward", {"flags": [0, 0, 1, -2]}, r"flags: expected .* a number >= -1"),
        ("exact_forward", {"constants": torch.ones(8, 1)}, r"coefficients: expected shape \(9, 1\)"),
        ("exact_forward", {"window": [2, 2]}, r"window: expected \[1, 1\] of neurons with exact"),
        ("exact_backward", {"learn": True}, r"learn: expected False of neurons with exact"),
        (
            "exact_layer_backward",
            {"need_state": True, "flags": [0, 0, 1, -1]},
            r"grad_state: expected no gradients of states of neurons that fire once",
        ),
        ("exact_layer_backward", {"flags": [0, 0, 1, 3]}, r"flags: expected a refractory time of 0 or -1"),
    ],
)
def test_ops_name_what_is_wrong(name: str, changes: dict[str, Any], message: str, path: str) -> None:
    call = OPS[name].resolve(*OPS[name].samples[0].arguments(torch.float32))
    with pytest.raises(ValueError, match=f"^{message}"):
        call.changed(**changes)()


@pytest.mark.parametrize("reset_states", ["membrane", "all"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_float32_rounded(dtype: torch.dtype, reset_states: str) -> None:
    neuron = CubaLIF(gradient="event", threshold=0.5, reset_states=reset_states, input_gradient="dense")
    generator = torch.Generator().manual_seed(0)
    currents, q = (torch.randn(20, 2, 33, generator=generator).to(dtype) for _ in range(2))
    found = []
    for wide in (False, True):
        x = (currents.float() if wide else currents).requires_grad_()
        spikes = neuron(x)
        (grad,) = torch.autograd.grad(spikes, x, q.to(spikes.dtype))
        assert {spikes.dtype, grad.dtype} == {x.dtype}
        found.append((spikes.to(dtype), grad.to(dtype)))
    assert found[0][0].mean() > 0.02
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
