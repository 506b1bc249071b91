"""Nets that several threads run at once: streams, plain calls, chunks with gradients, and tools that measure."""

import copy
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from compare import assert_bits
from thread_calls import Call, asked, wrong_calls
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.inspect.activity import SpikeCounter

STEPS = 20


class Gathers(nn.Module):
    """Module with a state of its own: a running sum."""

    def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> neurons.Output:
        value = x.cumsum(0) + (0 if state is None else state[0])
        return neurons.Output(value, (value[-1] if len(x) else value.new_zeros(x.shape[1:]),))

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x).value


def layers() -> nn.Module:
    return nn.Sequential(snnlib.SpikingLinear(6, 50), snnlib.SpikingRNN(50, 20), Gathers(), nn.Linear(20, 3))


def _conv(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3, padding=1), snnlib.SpikeAvgPool2d(2), *more, snnlib.SRMReadout(64, 3)
    )


def normalised() -> nn.Module:
    return nn.Sequential(
        snnlib.PerStep(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)),
        neurons.LIF(tau=3.0),
        snnlib.AvgPool2d(2),
        nn.Flatten(2),
        nn.Linear(64, 3),
    )


NETS: dict[str, Callable[[], nn.Module]] = {
    "layers": layers,
    "conv": _conv,
    "fused": lambda: snnlib.fuse_(_conv()),
    "normalised": lambda: snnlib.fuse_(normalised()),
}


class Uses:
    """Calls of one net, each with the answer that it gives alone.

    Args:
        net: the net, in evaluation mode.
        images: whether its frames have height and width.
    """

    def __init__(self, net: nn.Module, images: bool) -> None:
        self.net = net
        generator = torch.Generator().manual_seed(0)
        shape = (STEPS, 2, 2, 8, 8) if images else (STEPS, 2, 6)
        self.trains = [(torch.rand(shape, generator=generator) < 0.4).float() for _ in range(5)]
        self.calls: dict[str, Call] = {
            "whole": self._asked(net),
            "stream": self._asked(self._stream),
            "stream of steps": self._asked(lambda x: self._stream(x, 1)),
            "checkpoint_time": self._asked(self._gradients),
            "ragged": self._asked(lambda x: snnlib.run_ragged(net, x, torch.tensor([7, STEPS]))),
            "profile": self._asked(
                lambda x: torch.tensor([layer.acs for layer in snnlib.profile(net, x).layers])
            ),
            "counter": self._asked(self._counted),
            "doctor": self._asked(self._doctor),
            "operations": self._asked(self._operations),
        }

    def _asked(self, answer: Callable[[Tensor], Tensor]) -> Call:
        return asked(answer, self.trains)

    @torch.no_grad()
    def _stream(self, x: Tensor, steps: int = 5) -> Tensor:
        stream = snnlib.Stream(self.net)
        return torch.cat([stream(chunk) for chunk in x.split(steps)])

    def _gradients(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        out = snnlib.checkpoint_time(self.net, x, steps=6)
        # Gradient of the input alone: gradients of weights add up over threads, as torch adds them.
        (gradient,) = torch.autograd.grad(out.square().sum(), x)
        return torch.cat((out.flatten(), gradient.flatten()))

    @torch.no_grad()
    def _counted(self, x: Tensor) -> Tensor:
        counter = SpikeCounter(self.net)
        with counter.counting():
            self.net(x)
        return torch.cat([count.flatten() for count in counter.counts.values()])

    @torch.no_grad()
    def _doctor(self, x: Tensor) -> Tensor:
        with snnlib.SpikeDoctor(self.net) as doctor:
            self.net(x)
        return torch.tensor([layer.rate for layer in doctor.layers()])

    @torch.no_grad()
    def _operations(self, x: Tensor) -> Tensor:
        operations = snnlib.losses.SynapticOperationsLoss(self.net)
        with operations:
            self.net(x)
        return operations().reshape(1)


def _made(name: str) -> Uses:
    torch.manual_seed(0)
    net = NETS[name]().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.bias, 0.5)
    if name == "layers":
        with torch.no_grad():
            net[0].weight.abs_()  # type: ignore[index,union-attr,operator]
            net[1].layers[0].weight.abs_()  # type: ignore[index,union-attr,operator]
    return Uses(net, name != "layers")


@pytest.fixture(autouse=True)
def _switches_often() -> Any:
    """Switches between threads after each microsecond, as a thread of Python runs 5 ms at a stretch."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("name", "threads"), [("layers", 2), ("layers", 8), ("conv", 4), ("fused", 4), ("normalised", 4)]
)
def test_threads_get_the_answers_that_calls_have_alone(name: str, threads: int) -> None:
    assert not wrong_calls(_made(name).calls, threads, 44)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_thousand_calls_in_eight_threads(name: str) -> None:
    assert not wrong_calls(_made(name).calls, 8, 1000)


class Waits(nn.Module):
    """Gives x when told to, and says that it has begun."""

    mixes_time = False

    def __init__(self) -> None:
        super().__init__()
        self.began, self.goes_on = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.began.set()
        assert self.goes_on.wait(20)
        return x


@contextmanager
def _in_another_thread(waits: Waits, call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Runs the block while the call of another thread is within a module of the net."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call)
        try:
            assert waits.began.wait(20)
            yield answer
        finally:
            waits.goes_on.set()


def test_a_stream_is_called_by_one_thread_at_a_time() -> None:
    waits, x = Waits(), torch.rand(4, 2, 6)
    stream = snnlib.Stream(nn.Sequential(snnlib.SpikingLinear(6, 3), waits))
    with (
        _in_another_thread(waits, lambda: stream(x)) as answer,
        pytest.raises(RuntimeError, match=r"one call at a time, .* make a Stream\(net\) for each thread"),
    ):
        stream(x)
    # The chunk of the first thread counts, and the stream goes on.
    assert answer.result().shape == stream(x).shape


def test_a_pickled_stream_goes_on() -> None:
    stream, x = snnlib.Stream(snnlib.SpikingLinear(6, 3)), torch.rand(8, 2, 6)
    stream(x[:5])
    loaded = pickle.loads(pickle.dumps(stream))
    assert_bits(loaded(x[5:]), stream(x[5:]))


def test_copies_made_during_a_chunk_are_nets_of_their_own() -> None:
    """A method that stands in a layer while a chunk runs is copied with it."""
    waits, x = Waits(), (torch.rand(STEPS, 2, 6) < 0.5).float()
    layer = snnlib.SpikingLinear(6, 3)
    expected = layer(x)
    with _in_another_thread(waits, partial(snnlib.Stream(nn.Sequential(layer, waits)), x)):
        copied = copy.deepcopy(layer)
        loaded = pickle.loads(pickle.dumps(layer))
    assert "forward" not in vars(layer)
    with torch.no_grad():
        layer.weight.zero_()
    for made in (copied, loaded):
        stream = snnlib.Stream(made)
        assert_bits(torch.cat([stream(chunk) for chunk in x.split(3)]), expected)
        assert_bits(made(x), expected)


def test_a_forward_of_the_users_own_comes_back() -> None:
    layer, x = snnlib.SpikingLinear(6, 3), torch.rand(4, 2, 6)
    own = layer.forward = lambda x: x + 1  # type: ignore[method-assign,assignment]
    snnlib.Stream(layer)(x)
    assert layer.forward is own


def test_a_teacher_teaches_its_thread_alone() -> None:
    waits, x = Waits(), torch.rand(STEPS, 2, 6) * 0.01
    layer = snnlib.SRMLinear(6, 3)

    def taught() -> Tensor:
        with snnlib.nn.supervised_spikes(layer, torch.tensor([0, 2])):
            return layer(waits(x))

    with _in_another_thread(waits, taught) as answer:
        assert not layer(x).any()
        # Nor is its chunk refused, as that of the teacher's thread is.
        snnlib.Stream(layer)(x)
    assert answer.result().any()


def test_training_mode_comes_back_after_tools_of_several_threads() -> None:
    waits = Waits()
    net, x = nn.Sequential(snnlib.SpikingLinear(6, 3), waits), torch.rand(4, 2, 6)
    fast = torch.backends.mha.get_fastpath_enabled()
    with _in_another_thread(waits, lambda: snnlib.profile(net, x)), ThreadPoolExecutor(1) as pool:
        later = pool.submit(snnlib.profile, net, x)
        assert not later.done()
        waits.goes_on.set()
        later.result()
    assert all(module.training for module in net.modules())
    assert torch.backends.mha.get_fastpath_enabled() == fast


def test_threads_that_train_get_gradients_that_add_up() -> None:
    """Watches of layers in training see the calls of all threads, and raise nothing."""
    net = nn.Sequential(snnlib.SpikingLinear(6, 20), snnlib.SRMLinear(20, 3))
    x = (torch.rand(STEPS, 2, 6) < 0.5).float()

    def backward(_: int) -> None:
        net(x).sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backward(0)
        alone = [weight.grad.clone() for weight in net.parameters() if weight.grad is not None]
        net.zero_grad()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(backward, range(120)))
    grads = [weight.grad for weight in net.parameters() if weight.grad is not None]
    assert len(grads) == len(alone) >= 2
    for grad, once in zip(grads, alone, strict=True):
        torch.testing.assert_close(grad, 120 * once, rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_nets_beside_streams() -> None:
    """A net that is compiled before, during and after a stream, and a compiled stream, give what eager nets give."""
    net, x = layers().eval(), (torch.rand(12, 2, 6) < 0.5).float()
    with torch.no_grad():
        net[0].weight.abs_()  # type: ignore[index,union-attr,operator]
        expected = net(x)
        compiled = torch.compile(net, backend="eager")
        assert_bits(compiled(x), expected)
        for stream in (snnlib.Stream(net), snnlib.Stream(compiled)):
            call = torch.compile(stream.__call__, backend="eager") if stream.module is net else stream
            # Torch compiles dense sums of chunks as others.
            torch.testing.assert_close(torch.cat([call(chunk) for chunk in x.split(4)]), expected)
        waits = Waits()
        beside = snnlib.Stream(nn.Sequential(net, waits))
        with _in_another_thread(waits, partial(beside, x)):
            assert_bits(compiled(x), expected)
        assert_bits(compiled(x), expected)
