"""Layers of neurons with two linear states: one kernel beside currents and scan, for every model and option."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_bits
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.backends import native
from snnlib.backends.algorithm import BackwardAlgorithms, use_convolution
from snnlib.functional import Convolution, FullyConnected
from snnlib.functional.currents import Delayed
from snnlib.functional.paths import Path, entries_only
from snnlib.functional.plan import layer_currents, plan_layer
from snnlib.functional.spiking import spiking_layer
from snnlib.neurons import Neuron

pytestmark = pytest.mark.skipif(native._module is None, reason="needs the compiled module")

STEPS, BATCH, INPUTS, OUTPUTS, SIZE = 14, 3, 3, 7, 6
TRIANGLE = snnlib.surrogate.Triangle()
NARROW = snnlib.surrogate.Rectangle(0.4)
LEVELS = torch.linspace(0.6, 1.2, OUTPUTS)
# Each model of two linear states, and options that kernels see as coefficients or flags.
MODELS: dict[str, Callable[[], Neuron]] = {
    "CubaLIF": lambda: neurons.CubaLIF(surrogate=TRIANGLE),
    "narrow": lambda: neurons.CubaLIF(tau_m=8.0, tau_s=2.0, decay_input=False, surrogate=NARROW),
    "thresholds": lambda: neurons.CubaLIF(threshold=LEVELS, surrogate=TRIANGLE),
    "attached": lambda: neurons.CubaLIF(detach_reset=False, surrogate=TRIANGLE),
    "subtracts": lambda: neurons.CubaLIF(reset="subtract", detach_reset=False, surrogate=TRIANGLE),
    "all states": lambda: neurons.CubaLIF(reset_states="all", surrogate=TRIANGLE),
    "a rest": lambda: neurons.CubaLIF(rest=0.2, reset_value=-0.3, compare=">", surrogate=TRIANGLE),
    "no time": lambda: neurons.CubaLIF(gradient_through_time=False, surrogate=TRIANGLE),
    "levels": lambda: neurons.CubaLIF(reset="subtract", levels=3, threshold=0.5, surrogate=TRIANGLE),
    "snnTorch": lambda: neurons.CubaLIF(dialect="snntorch", reset_time="same", surrogate=TRIANGLE),
    "SpikingJelly": lambda: neurons.CubaLIF(dialect="spikingjelly"),
    "ALIF": lambda: neurons.ALIF(tau_m=4.0, tau_a=20.0, decay_input=False, surrogate=TRIANGLE),
    "ALIF, zero": lambda: neurons.ALIF(tau_m=4.0, reset="zero", decay_input=False, surrogate=TRIANGLE),
    "AdLIF": lambda: neurons.AdLIF(tau_m=4.0, tau_a=20.0, rho=1.0, surrogate=TRIANGLE),
    "adaptation": lambda: neurons.AdLIF(
        tau_m=4.0, threshold=0.4, integration="adaptation_first", reset="none", surrogate=TRIANGLE
    ),
    "resonator": lambda: neurons.Resonate(surrogate=TRIANGLE),
}
# Gradients of these resets need the second state, which no record has; entries at every step take longer than currents.
UNTOLD: dict[str, Callable[[], Neuron]] = {
    "all states, attached": lambda: neurons.CubaLIF(
        reset_states="all", detach_reset=False, surrogate=TRIANGLE
    ),
    "wide": lambda: neurons.CubaLIF(surrogate=snnlib.surrogate.ATan()),
    "ALIF, attached": lambda: neurons.ALIF(detach_reset=False, surrogate=TRIANGLE),
}
OPERATORS = {"convolution": Convolution(2, padding=1), "matrix": FullyConnected()}


def _sample(operator: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    conv = operator == "convolution"
    x = torch.rand(STEPS, BATCH, INPUTS if conv else 40, *[SIZE] * (2 * conv), generator=generator) < 0.3
    weight = torch.randn(OUTPUTS, x.shape[2], *[3] * (2 * conv), generator=generator)
    return x.float(), weight * (0.5 if conv else 0.6)


def _currents(x: Tensor, weight: Tensor, operator: str, neuron: Neuron) -> Tensor:
    return layer_currents(x, weight, OPERATORS[operator])


def _in_layer(x: Tensor, weight: Tensor, operator: Any, neuron: Neuron, **call: Any) -> Any:
    plan = plan_layer(x, weight, operator, neuron, **{"return_state": False, **call})
    assert plan.path is Path.LAYER, str(plan)
    return plan.run(x, weight, call.get("state"))


def _gradients(spikes: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    signal = torch.randn(spikes.shape, generator=torch.Generator().manual_seed(1)).to(spikes.dtype)
    return torch.autograd.grad(spikes, inputs, signal, retain_graph=True)


def _assert_near(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float = 1e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        assert other.abs().max() > 0
        assert (one - other).abs().max() <= tolerance * other.abs().max()


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("model", MODELS)
def test_layer_equals_currents_and_scan(model: str, operator: str) -> None:
    neuron, (x, weight) = MODELS[model](), _sample(operator)
    x.requires_grad_(), weight.requires_grad_()
    spikes = _in_layer(x, weight, OPERATORS[operator], neuron).value
    expected = neuron(_currents(x, weight, operator, neuron))
    assert 0.01 < expected.mean() < 0.9
    assert_bits(spikes.detach(), expected.detach())
    _assert_near(_gradients(spikes, weight, x), _gradients(expected, weight, x))


@pytest.mark.parametrize(
    "chosen", [("spikes", "spikes"), ("inputs", "dense"), ("dense", "dense"), ("taps", "spikes")]
)
@pytest.mark.parametrize("model", ["CubaLIF", "thresholds", "all states", "ALIF", "AdLIF", "resonator"])
def test_every_algorithm_gives_the_same_gradients(
    model: str, chosen: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = "matrix" if chosen[0] == "taps" else "convolution"
    neuron, (x, weight) = MODELS[model](), _sample(operator)
    x.requires_grad_(), weight.requires_grad_()
    expected = _gradients(neuron(_currents(x, weight, operator, neuron)), weight, x)
    monkeypatch.setattr(
        "snnlib.backends.algorithm.decide_for_entries", lambda *_: BackwardAlgorithms(*chosen)
    )
    monkeypatch.setattr("snnlib.backends.algorithm.decide_for_signal", lambda *_: chosen[0])
    spikes = _in_layer(x, weight, OPERATORS[operator], neuron).value
    _assert_near(_gradients(spikes, weight, x), expected)
    # Frozen weights, and an input without a gradient.
    _assert_near(
        _gradients(_in_layer(x, weight.detach(), OPERATORS[operator], neuron).value, x), expected[1:]
    )
    spikes = _in_layer(x.detach(), weight, OPERATORS[operator], neuron).value
    _assert_near(_gradients(spikes, weight), expected[:1])


@pytest.mark.parametrize("algorithm", ["events", "dense"])
@pytest.mark.parametrize("model", [name for name in MODELS if name != "no time"])
def test_chunks_with_gradients_through_the_state(model: str, algorithm: Any) -> None:
    neuron, (x, weight) = MODELS[model](), _sample("convolution")
    start = torch.rand(2, BATCH, OUTPUTS, SIZE, SIZE, generator=torch.Generator().manual_seed(2)) * 0.4
    leaves = [part.requires_grad_() for part in (x, weight, start)]

    def in_chunks(sizes: list[int]) -> tuple[Tensor, Tensor]:
        state: Any = (start,)
        parts = []
        for chunk in x.split(sizes):
            value, state = _in_layer(
                chunk, weight, OPERATORS["convolution"], neuron, state=state, return_state=True
            )
            parts.append(value)
        return torch.cat(parts), state[0]

    current = _currents(x, weight, "convolution", neuron)
    expected, last = neuron.run(current, (start,))
    with entries_only(), use_convolution(algorithm):
        spikes, final = in_chunks([5, 1, 8])
        if algorithm == "events":
            assert_bits(spikes.detach(), expected.detach())
            assert_bits(final.detach(), last[0].detach())
        found = torch.autograd.grad((spikes * 0.5).sum() + (final * start.detach()).sum(), leaves)
    answers = torch.autograd.grad((expected * 0.5).sum() + (last[0] * start.detach()).sum(), leaves)
    _assert_near(found, answers, 1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_streams_without_gradients_run_in_the_layer(model: str) -> None:
    neuron, (x, weight) = MODELS[model](), _sample("convolution")
    whole = neuron(_currents(x, weight, "convolution", neuron))
    state, parts = None, []
    for chunk in x.split(5):
        call = {"return_state": True, "state": state}
        value, state = _in_layer(chunk, weight, OPERATORS["convolution"], neuron, **call)
        parts.append(value)
    assert_bits(torch.cat(parts), whole)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("model", ["CubaLIF", "thresholds", "ALIF", "AdLIF"])
def test_half_types(model: str, dtype: torch.dtype) -> None:
    neuron, (x, weight) = MODELS[model](), _sample("convolution")
    weight = weight.to(dtype)
    wide = _in_layer(x, weight.float(), OPERATORS["convolution"], neuron).value
    narrow = _in_layer(x.to(dtype), weight, OPERATORS["convolution"], neuron).value
    assert_bits(narrow, wide.to(dtype))
    leaf = weight.clone().requires_grad_()
    found = _gradients(_in_layer(x.to(dtype), leaf, OPERATORS["convolution"], neuron).value, leaf)
    leaf = weight.float().requires_grad_()
    _assert_near(found, _gradients(_in_layer(x, leaf, OPERATORS["convolution"], neuron).value, leaf), 0.02)


@pytest.mark.parametrize("model", ["CubaLIF", "thresholds", "ALIF"])
def test_pools_batch_first_and_delays(model: str) -> None:
    neuron, (x, weight) = MODELS[model](), _sample("convolution")
    x.requires_grad_(), weight.requires_grad_()
    spikes = _in_layer(x, weight, OPERATORS["convolution"], neuron, pool=(2, 3)).value
    expected = neuron(_currents(x, weight, "convolution", neuron))
    means = nn.functional.avg_pool2d(expected.flatten(0, 1), (2, 3)).unflatten(0, expected.shape[:2])
    torch.testing.assert_close(spikes, means)
    _assert_near(_gradients(spikes, weight, x), _gradients(means, weight, x))
    neuron.batch_first = True
    samples = x.transpose(0, 1).contiguous()
    turned = spiking_layer(samples, weight, OPERATORS["convolution"], neuron).value.transpose(0, 1)
    neuron.batch_first = False
    assert_bits(turned.detach(), expected.detach())
    _assert_near(_gradients(turned, weight, x), _gradients(expected, weight, x))
    delayed = Delayed(OPERATORS["convolution"], torch.tensor([0.0, 2.0, 1.0]))
    spikes = _in_layer(x, weight, delayed, neuron).value
    apart = neuron(layer_currents(x, weight, delayed))
    assert_bits(spikes.detach(), apart.detach())
    _assert_near(_gradients(spikes, weight, x), _gradients(apart, weight, x))


@pytest.mark.parametrize("model", UNTOLD)
def test_gradients_that_no_record_tells_run_by_currents(model: str) -> None:
    neuron, (x, weight) = UNTOLD[model](), _sample("convolution")
    plan = plan_layer(x, weight.requires_grad_(), OPERATORS["convolution"], neuron, return_state=False)
    assert plan.path is Path.CURRENTS_SCAN
    assert "compact surrogate, and a reset that is detached or of the compared membrane alone" in str(plan)
    plan = plan_layer(x, weight.detach(), OPERATORS["convolution"], neuron, return_state=False)
    assert plan.path is Path.LAYER


def test_layer_saves_less_than_half_the_bytes() -> None:
    """Behind a narrow surrogate: a bit per neuron and step, and four bytes near the threshold."""
    neuron, (x, weight) = MODELS["narrow"](), _sample("convolution")
    weight.requires_grad_()

    def saved(run: Callable[[], Tensor]) -> int:
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in (x.data_ptr(), weight.data_ptr()):
                sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            run()
        return sum(sizes.values())

    layer = saved(lambda: _in_layer(x, weight, OPERATORS["convolution"], neuron).value)
    apart = saved(lambda: neuron(_currents(x, weight, "convolution", neuron)))
    assert layer < apart / 2
