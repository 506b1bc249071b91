"""A read-out whose input gets its gradient by random weights."""

import pytest
import torch
from compare import assert_bits
from torch import nn

import snnlib
from snnlib.nn import RandomFeedback


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients(dtype: torch.dtype) -> None:
    """The input gets its gradient by `feedback`, the read-out's parameters get theirs."""
    torch.manual_seed(0)
    plain = nn.Linear(5, 3).to(dtype)
    layer = RandomFeedback(plain)
    assert layer.feedback.dtype == dtype and not torch.equal(layer.feedback, plain.weight)
    x = torch.randn(4, 2, 5).to(dtype).requires_grad_()
    signal = torch.randn(4, 2, 3).to(dtype)
    grad, *own = torch.autograd.grad((layer(x) * signal).sum(), [x, *plain.parameters()])
    expected = torch.autograd.grad((plain(x) * signal).sum(), [*plain.parameters()])
    assert_bits(layer(x), plain(x))
    assert_bits(grad, signal @ layer.feedback)
    for one, other in zip(own, expected, strict=True):
        assert_bits(one, other)


def test_feedback_is_stored_and_does_not_learn() -> None:
    layer, other = (RandomFeedback(nn.Linear(5, 3)) for _ in range(2))
    assert list(layer.state_dict()) == ["feedback", "readout.weight", "readout.bias"]
    assert [name for name, _ in layer.named_parameters()] == ["readout.weight", "readout.bias"]
    assert float(layer.feedback.abs().max()) <= 5**-0.5 < 2 * float(layer.feedback.abs().max())
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.feedback, layer.feedback)


def test_a_net_with_it_learns_and_runs_in_chunks() -> None:
    torch.manual_seed(0)
    labels = torch.arange(12) % 2
    x = (torch.rand(30, 12, 8) < 0.1 + 0.3 * (torch.arange(8) < 4).eq(labels[:, None])).float()
    net = nn.Sequential(
        snnlib.SpikingRNN(8, 24, recurrent_gradient="eprop"),
        RandomFeedback(nn.Linear(24, 2)),
        snnlib.neurons.Integrator(10.0),
    )
    snnlib.prepare_(net, x)
    weight = net[0].layers[0].weight
    before = weight.detach().clone()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(30):
        loss = nn.functional.cross_entropy(net(x).mean(0), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.3 and not torch.equal(weight, before)
    with torch.no_grad():
        stream = snnlib.Stream(net)
        chunks = torch.cat([stream(x[:11]), stream(x[11:])])
        torch.testing.assert_close(chunks, net(x))


def test_other_readouts_are_named() -> None:
    with pytest.raises(
        TypeError, match=r"^readout: expected a torch\.nn\.Linear, got SpikingLinear; put neurons"
    ):
        RandomFeedback(snnlib.SpikingLinear(5, 3))  # type: ignore[arg-type]
