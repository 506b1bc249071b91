"""Neurons of one's own in compiled blocks of steps: the values and gradients of the loop, and when it stays a loop."""

from __future__ import annotations

import copy
import pickle
import time
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib import neurons, surrogate


class Leaky(neurons.Neuron):
    """That of docs/neurons.md."""

    state_names = ("v",)

    def __init__(self, beta: float = 0.9, **options: Any) -> None:
        super().__init__({"beta": beta, "threshold": 1.0}, **options)

    def step(
        self, state: neurons.State, current: Tensor, params: neurons.Params
    ) -> tuple[Tensor, neurons.State]:
        v = params["beta"] * state[0] + current
        s = surrogate.spike(v - params["threshold"], params["threshold"], surrogate.ATan())
        return s, (v * (1 - s.detach()),)


class Rotation(neurons.Neuron):
    """A complex state that turns and decays, and is read out by its real part: a linear recurrent unit."""

    state_names = ("re", "im")
    gives_spikes = False

    def __init__(self, **options: Any) -> None:
        super().__init__({"decay": 0.95, "angle": 0.3}, **options)

    def step(
        self, state: neurons.State, current: Tensor, params: neurons.Params
    ) -> tuple[Tensor, neurons.State]:
        re, im = state
        c, s = params["decay"] * params["angle"].cos(), params["decay"] * params["angle"].sin()
        re, im = c * re - s * im + current, s * re + c * im
        return re, (re, im)


class Reading(Leaky):
    """Reads a value back, which no compiled function does."""

    def step(
        self, state: neurons.State, current: Tensor, params: neurons.Params
    ) -> tuple[Tensor, neurons.State]:
        return super().step(state, current * (2 if float(current.detach().sum()) > 1e9 else 1), params)


def results(neuron: neurons.Neuron, x: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    value, (final,) = neuron.run(leaf)
    weights = torch.linspace(-1, 1, value.numel()).view_as(value)
    parameters = list(neuron.parameters())
    grads = torch.autograd.grad((value * weights).sum() + final.sum(), [leaf, *parameters])
    return [value.detach(), final.detach(), *grads]


@pytest.mark.parametrize("make", [Leaky, pytest.param(Rotation, marks=pytest.mark.slow)])
def test_blocks_give_the_loop(make: type[neurons.Neuron], capfd: pytest.CaptureFixture[str]) -> None:
    """Steps that are left over too, learned constants, batch first, a shorter sequence and inference."""
    name = "beta" if make is Leaky else "angle"
    loop = make(learnable=(name,), batch_first=True)  # type: ignore[call-arg]
    fast = snnlib.compile_steps_(copy.deepcopy(loop), steps=3)
    x = torch.rand(2, 7, 5)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for got, expected in zip(results(fast, x), results(loop, x), strict=True):
            torch.testing.assert_close(got, expected)
    assert not [warning for warning in warned if "compiled" in str(warning.message)]
    assert capfd.readouterr().err == f"compile_steps_: compiling 3 steps of {make.__name__}, once\n"
    short = torch.rand(2, 2, 5)
    assert torch.equal(fast(short), loop(short))
    assert fast.state_dict().keys() == loop.state_dict().keys()
    assert neurons.config(fast) == neurons.config(loop)


def test_a_step_that_cannot_be_compiled_stays_a_loop() -> None:
    fast, x = snnlib.compile_steps_(Reading(), steps=2), torch.rand(4, 2, 3)
    with pytest.warns(UserWarning, match=r"Reading\.step runs in a loop, as it cannot be compiled: ."):
        value = fast(x)
    assert torch.equal(value, Reading()(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(fast(x), value)


def test_a_mistake_in_a_step_is_reported_as_in_the_loop() -> None:
    class Wrong(Leaky):
        def step(
            self, state: neurons.State, current: Tensor, params: neurons.Params
        ) -> tuple[Tensor, neurons.State]:
            return current, ()

    with pytest.raises(ValueError, match=r"Wrong\.step: expected a tuple of states \(v\), got 0 of them"):
        snnlib.compile_steps_(Wrong(), steps=2)(torch.rand(4, 2, 3))


def test_what_has_kernels_stays_as_it_is() -> None:
    net = torch.nn.Sequential(
        snnlib.SpikingLinear(3, 4, neuron=neurons.LIF()), snnlib.SpikingLinear(4, 2, neuron=Leaky())
    )
    assert snnlib.compile_steps_(net) is net
    assert "compiled_steps" not in vars(net[0].neuron)
    x = torch.rand(4, 2, 3)
    assert net(x).shape == (4, 2, 2)
    again = pickle.loads(pickle.dumps(net[0].neuron))
    assert torch.equal(again(torch.ones(2, 1, 4)), neurons.LIF()(torch.ones(2, 1, 4)))
    with pytest.raises(ValueError, match="steps: expected"):
        snnlib.compile_steps_(net, steps=0)


# What torch's compiler warns of by itself would end it where warnings are errors.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_times() -> None:
    """T = 200, batch 32, 256 neurons, on one thread: forward and backward, processor time, in turns."""
    torch.set_num_threads(1)
    loop, x = Leaky(), torch.rand(200, 32, 256)
    begin = time.process_time()
    fast = snnlib.compile_steps_(Leaky())
    results(fast, x)
    assert time.process_time() - begin < 40
    times: dict[neurons.Neuron, list[float]] = {loop: [], fast: []}
    for _ in range(9):
        for neuron, taken in times.items():
            begin = time.process_time()
            results(neuron, x)
            taken.append(time.process_time() - begin)
    assert min(times[fast]) < min(times[loop]) / 3
