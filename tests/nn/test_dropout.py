"""Spike dropout: one mask per sequence, torch.nn.Dropout's values, and masks that last a stream."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from snnlib.nn.layers.dropout import SpikeDropout
from snnlib.nn.time.stream import Stream

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_one_mask_for_all_steps_scaled_as_in_torch(dtype: torch.dtype, batch_first: bool) -> None:
    torch.manual_seed(0)
    x = torch.ones(3, 7, 40, 5, dtype=dtype)
    y = SpikeDropout(0.2, batch_first)(x)
    assert y.dtype == dtype
    time_dim = int(batch_first)
    first = y.narrow(time_dim, 0, 1)
    assert torch.equal(y, first.expand_as(y))
    kept = torch.ones(1, dtype=dtype) / 0.8
    assert {0.0, 1.25} == set(first.double().round(decimals=2).unique().tolist())
    torch.testing.assert_close(first.max(), kept[0])
    # Other samples and neurons have masks of their own.
    samples = first.squeeze(time_dim).flatten(1)
    assert not torch.equal(samples[0], samples[1])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_and_mean(p: float) -> None:
    torch.manual_seed(1)
    y = SpikeDropout(p)(torch.ones(2, 100, 100))
    # Five standard deviations of 10 000 draws.
    tolerance = 5 * (p * (1 - p) / 10_000) ** 0.5
    assert (y[0] == 0).double().mean().item() == pytest.approx(p, abs=tolerance)
    assert y.mean().item() == pytest.approx(1, abs=tolerance / (1 - p))


@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize("training", [True, False])
def test_limits_are_those_of_torch(p: float, training: bool, rng: torch.Generator) -> None:
    x = torch.randn(4, 2, 6, generator=rng)
    assert torch.equal(SpikeDropout(p).train(training)(x), nn.Dropout(p).train(training)(x))


def test_eval_is_the_identity(rng: torch.Generator) -> None:
    x = torch.randn(4, 2, 6, generator=rng)
    dropout = SpikeDropout(0.9).eval()
    assert torch.equal(dropout(x), x)
    # A mask from training does not matter either.
    assert torch.equal(dropout.run(x, (torch.zeros(2, 6, dtype=torch.bool),)).value, x)


def test_gradient_is_that_of_the_values(rng: torch.Generator) -> None:
    x = torch.randn(3, 2, 4, dtype=torch.float64, generator=rng, requires_grad=True)
    mask = torch.rand(2, 4, generator=rng) < 0.5
    dropout = SpikeDropout(0.25)
    assert torch.autograd.gradcheck(lambda x: dropout.run(x, (mask,)).value, (x,))
    dropout.run(x, (mask,)).value.sum().backward()
    torch.testing.assert_close(x.grad, (mask.double() / 0.75).expand(3, 2, 4))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.booleans())
def test_chunks_with_the_state_are_the_whole_train(lengths: list[int], batch_first: bool) -> None:
    time_dim = int(batch_first)
    x = torch.randn((2, sum(lengths), 6) if batch_first else (sum(lengths), 2, 6))
    dropout = SpikeDropout(0.5, batch_first)
    chunks, state = [], None
    for chunk in x.split(lengths, time_dim):
        value, after = dropout.run(chunk, state)
        assert state is None or torch.equal(after[0], state[0])
        chunks.append(value)
        state = after
    assert torch.equal(torch.cat(chunks, time_dim), dropout.run(x, state).value)


def test_mask_lasts_a_stream_within_a_net() -> None:
    torch.manual_seed(4)
    x = torch.ones(6, 1, 64)
    net = nn.Sequential(nn.Identity(), SpikeDropout(0.5))
    stream = Stream(net)
    chunks = [stream(chunk) for chunk in x.split(2)]
    assert torch.equal(chunks[0], chunks[1])
    assert torch.equal(chunks[0], chunks[2])
    own = Stream(SpikeDropout(0.5))
    assert torch.equal(own(x), own(x))
    stream.reset()
    assert not torch.equal(stream(x[:2]), chunks[0])


def test_eval_state_keeps_everything() -> None:
    (mask,) = SpikeDropout(0.9).eval().run(torch.ones(2, 3, 4)).state
    assert mask.shape == (3, 4)
    assert mask.all()


@pytest.mark.parametrize("shape", [(0, 2, 3), (4, 0, 3), (4, 2, 0), (4, 2)])
def test_empty_and_small_trains(shape: tuple[int, ...]) -> None:
    assert SpikeDropout(0.5)(torch.ones(shape)).shape == shape


@pytest.mark.parametrize("training", [True, False])
def test_compiles_in_one_graph(training: bool) -> None:
    dropout = SpikeDropout(0.5).train(training)
    compiled = torch.compile(dropout, backend="aot_eager", fullgraph=True)
    run = torch.compile(dropout.run, backend="aot_eager", fullgraph=True)
    x = torch.ones(3, 2, 50)
    state = (torch.arange(100).reshape(2, 50) % 3 == 0,)
    assert torch.equal(run(x, state).value, dropout.run(x, state).value)
    y = compiled(x)
    assert torch.equal(y[0], y[2])
    assert set(y.unique().tolist()) == ({0.0, 2.0} if training else {1.0})


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_p_out_of_range(p: float) -> None:
    with pytest.raises(ValueError, match=r"p: expected a probability from 0 to 1, got"):
        SpikeDropout(p)


def test_other_errors_name_the_argument() -> None:
    x = torch.ones(5, 2, 3)
    with pytest.raises(TypeError, match=r"x: expected a floating dtype, got torch.int64"):
        SpikeDropout()(x.long())
    with pytest.raises(ValueError, match=r"x: expected \[T, N, ...\], got shape \(5,\)"):
        SpikeDropout()(x[:, 0, 0])
    with pytest.raises(ValueError, match=r"state: expected a mask of shape \(2, 3\), got \(5, 3\)"):
        SpikeDropout().run(x, (torch.ones(5, 3, dtype=torch.bool),))
    with pytest.raises(TypeError, match=r"state: expected a mask of torch.bool, got torch.float32"):
        SpikeDropout().run(x, (torch.ones(2, 3),))
    with pytest.raises(ValueError, match=r"state: expected a tensor on cpu, got one on meta"):
        SpikeDropout().run(x, (torch.ones(2, 3, dtype=torch.bool, device="meta"),))


def test_repr_shows_the_options() -> None:
    assert repr(SpikeDropout(0.2)) == "SpikeDropout(p=0.2)"
    assert repr(SpikeDropout(0.2, batch_first=True)) == "SpikeDropout(p=0.2, batch_first=True)"
