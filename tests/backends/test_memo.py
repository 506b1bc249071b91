"""Checks that passed for a kind of call are not repeated, and checks of values run in every call."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from op_calls import srm_rows

import snnlib
from snnlib import functional, neurons, ops
from snnlib.backends import memo
from snnlib.backends.memo import once

T, N = 4, 2


def test_kinds_are_shapes_strides_and_dtypes_and_options_by_type():
    calls = []
    seen = once(lambda *arguments: calls.append(arguments))
    x = torch.ones(2, 3)
    for argument in (x, x.t().t(), torch.zeros(2, 3), [1, 2], (1, 2), 1):
        seen(argument)
    assert len(calls) == 3
    for argument in (
        x.t(),
        x.double(),
        x.half(),
        x[None],
        (1.0, 2),
        (True, 2),
        1.0,
        True,
        None,
        x.to_sparse(),
    ):
        seen(argument)
    assert len(calls) == 13


@pytest.mark.parametrize("argument", [torch.ones(2), torch.ones(2).to_sparse(), {}])
def test_errors_are_not_kept(argument):
    def fail(_argument):
        raise ValueError("wrong")

    failing = once(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="wrong"):
            failing(argument)


class Result:
    def __init__(self, x):
        self.steps = len(x)


def test_sequences_of_many_lengths_do_not_fill_a_memo(monkeypatch):
    monkeypatch.setattr(memo, "MOST", 8)
    made, remembered = weakref.WeakSet(), once(Result)
    for steps in range(100):
        result = remembered(torch.ones(steps))
        assert result.steps == steps
        made.add(result)
    del result
    gc.collect()
    assert len(made) <= 8


def test_threads_share_a_memo(monkeypatch):
    monkeypatch.setattr(memo, "MOST", 3)
    remembered = once(Result)
    with ThreadPoolExecutor(4) as threads:
        steps = [count % 7 for count in range(4000)]
        found = threads.map(lambda count: remembered(torch.empty(count)).steps, steps)
        assert list(found) == steps


def events(*shape):
    return (torch.arange(T * N * torch.Size(shape).numel()) % 3 == 0).float().view(T, N, *shape)


FRAMES, ROWS = events(2, 4, 4), events(6)
STARTS, TARGETS = torch.tensor([0, 1, 2, 3, 3, 3, 3]), torch.tensor([0, 2, 1], dtype=torch.int32)
LIF_FLAGS = (0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0)


def conv(**options):
    return snnlib.SpikingConv2d(2, 3, 3, **options)


def delayed(delay):
    return ops.delay.delay_forward(ROWS, torch.full((6,), delay), True)


def delayed_rows(delay):
    layer = functional.delayed_layer
    return layer(ROWS, torch.ones(3, 6), functional.FullyConnected(), neurons.IF(), torch.full((3, 6), delay))


def recurrent(lengths=None, delay=None):
    given = None if delay is None else torch.full((6, 6), delay)
    lengths = None if lengths is None else torch.tensor(lengths)
    run = functional.spiking_recurrent
    return run(ROWS, torch.ones(6, 6), neurons.LIF(), lengths=lengths, delay=given, max_delay=2)


def sparse(targets):
    options = None, STARTS, torch.tensor(targets, dtype=torch.int32), 3, (), (), (), 1, True
    return ops.currents.currents_forward(ROWS, torch.ones(3), *options)


def backward(first):
    weight, options = (
        torch.full((3, 2, 3, 3), 0.3),
        ((1, 1), (0, 0), (1, 1), 1, (1, 1), (), (5.0, 3.0, 4.0, 1.0)),
    )
    neuron = srm_rows(torch.tensor(1.0), options[-1], torch.tensor(0.0))
    out, _, bits, record, starts = ops.layer_forward.layer_forward(
        FRAMES, weight, neuron, None, *options, False, True, True
    )
    starts[0] = first
    given = FRAMES, weight, neuron, None, bits, record, starts
    return ops.layer_backward.layer_backward(
        torch.ones_like(out), *given, *options, 1.0, True, True, None, False
    )


def scan(flags, taus=()):
    rows = torch.ones(10 if taus else 13, 1)
    return ops.scan.scan_forward(FRAMES, rows, None, flags, taus, (1, 1), False)


LOIHI = neurons.LoihiLIF()
# Calls of one shape: with arguments that are right, and with wrong ones and the error.
CALLS = {
    "fixed point": (lambda size: LOIHI(size * FRAMES), 1.0, -1e6, "state: expected 23 bits and a sign"),
    "delays of channels": (delayed, 1.0, -1.0, "delay: expected numbers of time steps >= 0, got -1.0"),
    "delays that are NaN": (delayed, 1.0, float("nan"), "delay: expected numbers of time steps >= 0, got nan"),
    "delays of connections": (delayed_rows, 1.0, -1.0, "delay: expected numbers of time steps >= 0"),
    "recurrent delays": (lambda delay: recurrent(delay=delay), 1.0, 3.0, "delay: expected time steps from 0 to"),
    "lengths": (recurrent, [4, 1], [5, 1], "lengths: expected numbers from 0 to 4 steps, got 1 to 5"),
    "indices": (sparse, [0, 2, 1], [3, 2, 1], "targets: expected outputs from 0 to 2 in rising order, got 3"),
    "record": (backward, 0, 1, "starts: expected numbers that rise from 0"),
    "dtype": (conv(), FRAMES, FRAMES.int(), "x: expected a floating dtype"),
    "dtype beside the weight": (conv(), FRAMES, FRAMES.double(), "x, weight: expected one dtype"),
    "layout": (conv(), FRAMES, FRAMES.to_sparse(), "x: expected a dense tensor"),
    "channels": (conv(), FRAMES, FRAMES[:, :, :1], "x: expected 2 channels in dimension 2"),
    "inputs": (snnlib.SpikingLinear(6, 3), ROWS, ROWS[:, :, :5], "x: expected 6 inputs in dimension 2"),
    "window": (lambda size: functional.spike_avg_pool2d(FRAMES, size), 2, 2.0, "kernel_size: expected"),
    "flag": (lambda ceil: functional.spike_avg_pool2d(FRAMES, 2, ceil_mode=ceil), True, 1, "ceil_mode: expected"),
    "options": (scan, LIF_FLAGS, (0, 2, *LIF_FLAGS[2:]), "flags: expected"),
    "time constants": (lambda tau: scan((), (tau, 3.0, 4.0, 1.0)), 5.0, 0.5, "tau_m: expected"),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_a_wrong_call_after_a_right_one_gets_its_sentence(case):
    call, right, wrong, sentence = CALLS[case]
    for _ in range(2):
        call(right)
        with pytest.raises((TypeError, ValueError, OverflowError), match=sentence):
            call(wrong)


@pytest.mark.parametrize("make", [conv, neurons.LIF, lambda: snnlib.SpikeAvgPool2d(2)])
def test_memos_hold_no_tensors(make):
    module, x = make(), FRAMES.clone().requires_grad_()
    module(x).sum().backward()
    held = [weakref.ref(tensor) for tensor in (x, *module.parameters(), *module.buffers())]
    del module, x
    gc.collect()
    assert [reference() for reference in held] == [None] * len(held)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_memos_hold_no_sizes_of_a_trace():
    """Sizes are tensors within torch.jit.trace; a compiler that met them in a memo ended in an error."""
    layer, x = snnlib.SRMReadout(3, 2), torch.ones(4, 2, 3)
    with torch.no_grad():
        torch.jit.trace(layer, x, check_trace=False)
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), layer(x))
