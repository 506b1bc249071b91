"""Trains in chunks give the spikes of the whole sequence; the state lives in the stream and nowhere else."""

import copy
import sys
from typing import Any, TypeVar

import pytest
import torch
from compare import assert_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import snnlib
from snnlib import functional as F
from snnlib.nn import Stream

Net = TypeVar("Net", bound=nn.Module)
STEPS = 20
splits = st.lists(st.integers(0, STEPS), max_size=6).map(sorted)


def _chunks(train: Tensor, cuts: list[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Chunks between the cuts; equal cuts give chunks of no steps."""
    return torch.tensor_split(train, cuts, dim)


def _dyadic(net: Net, seed: int = 0) -> Net:
    """Weights in quarters and threshold 1: every sum of spikes is exact in any order, so currents are equal."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randint(-2, 5, weight.shape, generator=generator) / 4)
    return net


def _conv_net() -> nn.Sequential:
    return _dyadic(
        nn.Sequential(
            snnlib.SRMConv2d(2, 4, 3, padding=1),
            snnlib.SpikeAvgPool2d(2),
            snnlib.SRMConv2d(4, 4, 3, padding="same"),
            snnlib.SpikeMaxPool2d(2),
            nn.Flatten(2),
            snnlib.SRMLinear(16, 6),
        )
    )


def _events(*shape: int, rate: float = 0.3) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(2)) < rate).float()


@settings(max_examples=12)
@given(cuts=splits)
def test_net_on_any_split(cuts: list[int], path: str) -> None:
    net, train = _conv_net(), _events(STEPS, 2, 2, 8, 8)
    stream = Stream(net)
    out = torch.cat([stream(chunk) for chunk in _chunks(train, cuts)])
    expected = net(train)
    assert expected.sum() > 0
    assert_bits(out, expected, f"spikes, cuts {cuts}")


class _Twice(nn.Module):
    """Net with the same layer in two places."""

    mixes_time = False

    def __init__(self) -> None:
        super().__init__()
        self.first = snnlib.SRMLinear(6, 6)
        self.shared = snnlib.SRMLinear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.shared(self.shared(self.first(x)))


@settings(max_examples=12)
@given(cuts=splits)
def test_shared_layer_has_a_state_for_each_place(cuts: list[int], path: str) -> None:
    net, train = _dyadic(_Twice(), seed=3), _events(STEPS, 2, 6, rate=0.6)
    stream = Stream(net)
    out = torch.cat([stream(chunk) for chunk in _chunks(train, cuts)])
    assert out.sum() > 0
    assert_bits(out, net(train))
    assert set(stream.states) == {"first", "shared", "shared:1"}


def test_states_are_the_membranes() -> None:
    layer = _dyadic(snnlib.SRMLinear(9, 5))
    stream = Stream(layer)
    assert stream.states == {}
    train = _events(STEPS, 3, 9)
    stream(train[:7])
    ((state,),) = stream.states.values()
    assert_bits(state, layer.run(train[:7]).state[0])
    assert state.shape == (3, 3, 5)
    assert not state.requires_grad


def test_reset_starts_a_new_train() -> None:
    net, train = _conv_net(), _events(STEPS, 2, 2, 8, 8)
    stream = Stream(net)
    first = stream(train)
    assert not torch.equal(stream(train), first)
    stream.reset()
    assert stream.states == {}
    assert_bits(stream(train), first)


def test_two_streams_over_one_net_do_not_meet() -> None:
    net = _conv_net()
    trains = _events(2, STEPS, 2, 2, 8, 8)
    streams = [Stream(net), Stream(net)]
    parts: list[list[Tensor]] = [[], []]
    for start in range(0, STEPS, 5):
        for out, stream, train in zip(parts, streams, trains, strict=True):
            out.append(stream(train[start : start + 5]))
    for out, train in zip(parts, trains, strict=True):
        assert_bits(torch.cat(out), net(train))


class _Fails(nn.Module):
    """Raises when told to."""

    mixes_time = False

    armed = False

    def forward(self, x: Tensor) -> Tensor:
        if self.armed:
            raise KeyError("on purpose")
        return x


def test_error_in_a_chunk_leaves_the_stream_where_it_was() -> None:
    fails = _Fails()
    net, train = _conv_net().insert(3, fails), _events(STEPS, 2, 2, 8, 8)
    stream = Stream(net)
    head = stream(train[:8])
    before = {name: state.clone() for name, (state,) in stream.states.items()}
    # The layers before the failing one have already run on the chunk.
    fails.armed = True
    with pytest.raises(KeyError, match="on purpose"):
        stream(train[8:12])
    fails.armed = False
    assert set(stream.states) == set(before)
    for name, (state,) in stream.states.items():
        assert_bits(state, before[name], name)
    assert_bits(torch.cat((head, stream(train[8:]))), net(train))
    assert net[0]._forward_hooks == {}
    assert net[0]._forward_pre_hooks == {}


@pytest.mark.parametrize("batch", [1, 3])
def test_another_batch_size_is_an_error(batch: int, path: str) -> None:
    """A state of one sample must not spread over three."""
    layer = snnlib.SRMLinear(9, 5)
    stream = Stream(layer)
    stream(_events(4, batch, 9))
    with pytest.raises(ValueError, match=r"state: expected shape \(3, 2, 5\) for u, s and g"):
        stream(_events(4, 2, 9))


def test_gradients_stop_at_the_chunk_border(path: str) -> None:
    layer, train = _dyadic(snnlib.SRMLinear(9, 5)), _events(STEPS, 3, 9, rate=0.2).requires_grad_()
    stream = Stream(layer)
    stream(train[:10])
    second = stream(train[10:])
    assert second.sum() > 0
    second.sum().backward()
    assert not train.grad[:10].any()
    assert train.grad[10:].any()


def test_gradients_inside_a_chunk_start_from_its_state(path: str) -> None:
    """A spike right after the border has the slope of the whole sequence, not of a neuron at rest."""
    current = torch.tensor([2.5, 1.5], dtype=torch.float64).reshape(2, 1, 1)
    neuron = snnlib.neurons.SRM()
    state = neuron.run(current[:1]).state
    tail = current[1:].clone().requires_grad_()
    neuron.run(tail, state).value.sum().backward()
    whole, _ = F.srm_backward(torch.ones_like(current), current)
    assert F.srm_neuron(current).flatten().tolist() == [0, 1]
    assert tail.grad.item() == whole[1].item()


def test_repr_names_what_has_state() -> None:
    net = nn.Sequential(snnlib.SRMLinear(6, 5), nn.Identity(), snnlib.SRMLinear(5, 3))
    stream = Stream(net)
    assert repr(stream) == "Stream(Sequential, state of: none yet)"
    stream(_events(4, 2, 6))
    assert repr(stream) == "Stream(Sequential, state of: 0, 2)"
    layer = Stream(snnlib.SRMLinear(6, 5))
    layer(_events(4, 2, 6))
    assert repr(layer) == "Stream(SRMLinear, state of: module)"


def test_later_chunks_look_at_no_signature_and_no_names() -> None:
    stream, train = Stream(snnlib.fuse_(_conv_net())), _events(STEPS, 2, 2, 8, 8)
    stream(train[:1])
    called = set()

    def note(frame: Any, event: str, _argument: Any) -> None:
        if event == "call":
            called.add(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        stream(train[1:2])
    finally:
        sys.setprofile(None)
    assert "run_fused" not in called
    assert "run" in called
    assert not called & {"signature", "named_modules", "check_time_steps"}


def test_changed_nets_are_prepared_anew() -> None:
    """Fused after the first chunk, fused once more, with another layer, and with one that mixes time."""
    net, train = _conv_net(), _events(STEPS, 2, 2, 8, 8)
    expected = net(train)
    stream = Stream(net)
    out = [stream(train[:3])]
    snnlib.fuse_(net)
    out.append(stream(train[3:6]))
    snnlib.fuse_(net)
    out.append(stream(train[6:9]))
    net[2] = copy.deepcopy(net[2])
    out.append(stream(train[9:]))
    assert_bits(torch.cat(out), expected)
    net.append(nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match=r"module: module 6 \(BatchNorm1d\) mixes time steps"):
        stream(train)


def test_a_copy_runs_the_layers_of_its_own_net() -> None:
    stream, train = Stream(_conv_net()), _events(STEPS, 2, 2, 8, 8)
    stream(train[:8])
    copied = copy.deepcopy(stream)
    expected = stream(train[8:])
    with torch.no_grad():
        for weight in stream.module.parameters():
            weight.zero_()
    assert_bits(copied(train[8:]), expected)
