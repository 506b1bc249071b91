"""Sequences of different lengths through whole nets: padding counts for nothing, in outputs, gradients and reports."""

import pytest
import torch
from compare import assert_close
from torch import nn

import snnlib
from snnlib import neurons

LENGTHS = torch.tensor([12, 5, 1, 9])


def _net(bidirectional: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    rnn: nn.Module = snnlib.SpikingRNN(6, 8, neuron=neurons.ALIF())
    rnn = snnlib.Bidirectional(rnn) if bidirectional else rnn
    width = 16 if bidirectional else 8
    net = nn.Sequential(rnn, snnlib.SpikingLinear(width, 7, neuron=neurons.CubaLIF()), nn.Linear(7, 3))
    snnlib.prepare_(net, _x(padding=0.0), 0.3)
    return net


def _x(padding: float = float("nan")) -> torch.Tensor:
    x = (torch.rand(12, 4, 6, generator=torch.Generator().manual_seed(1)) < 0.4).float()
    return torch.where(snnlib.functional.valid_steps(LENGTHS, 12).unsqueeze(2), x, padding)


@pytest.mark.filterwarnings("ignore:neuron. its surrogate")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_each_sample_is_as_alone(bidirectional: bool) -> None:
    """Outputs bit for bit, gradients of weights to 1e-5, whatever the padding holds."""
    net = _net(bidirectional).eval()
    out = snnlib.run_ragged(net, _x(), LENGTHS)
    out.square().sum().backward()
    together = [parameter.grad.clone() for parameter in net.parameters()]
    net.zero_grad()
    for sample, steps in enumerate(LENGTHS.tolist()):
        alone = net(_x()[:steps, sample : sample + 1])
        # The dense product of the output layer sums in an order that depends on the number of rows.
        assert_close(out[:steps, sample : sample + 1], alone.detach().double(), 1e-6)
        assert not out[steps:, sample].any()
        alone.square().sum().backward()
    for a, b in zip(together, net.parameters(), strict=True):
        assert b.grad.abs().sum() > 0
        assert_close(a, b.grad.double(), 1e-5)


@pytest.mark.filterwarnings("ignore:neuron. its surrogate")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_doctor_counts_own_steps(bidirectional: bool) -> None:
    net = _net(bidirectional).eval()
    with snnlib.SpikeDoctor(net) as together:
        snnlib.run_ragged(net, _x(), LENGTHS)
    with snnlib.SpikeDoctor(net) as alone:
        for sample, steps in enumerate(LENGTHS.tolist()):
            net(_x()[:steps, sample : sample + 1])
    assert together.layers() == alone.layers()
    assert together.layers()[0].rate > 0.1
    with snnlib.SpikeDoctor(net) as padded:
        net(_x(padding=0.0))
    assert padded.layers() != alone.layers()


def test_batch_first() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(snnlib.SpikingRNN(6, 8, batch_first=True), nn.Linear(8, 3))
    x = _x().transpose(0, 1)
    with snnlib.SpikeDoctor(net) as doctor:
        out = snnlib.run_ragged(net, x, LENGTHS, batch_first=True)
    assert_close(out[1:2, :5], net(x[1:2, :5]).detach().double(), 1e-6)
    assert not out[1, 5:].any()
    (layer,) = doctor.layers()
    spikes = sum(
        float(net[0](x[n : n + 1, :steps]).detach().sum()) for n, steps in enumerate(LENGTHS.tolist())
    )
    assert layer.rate == pytest.approx(spikes / (8 * int(LENGTHS.sum())))


def test_what_padding_would_reach_is_refused() -> None:
    net = nn.Sequential(snnlib.PerStep(nn.Linear(6, 4), nn.BatchNorm1d(4)), neurons.LIF())
    with pytest.raises(
        ValueError, match=r"net: expected modules that padding cannot reach, got module 0\.1 \(BatchNorm1d\)"
    ):
        snnlib.run_ragged(net, _x(), LENGTHS)
    assert snnlib.run_ragged(net.eval(), _x(), LENGTHS).shape == (12, 4, 4)
    # Without padding there is nothing to refuse.
    assert snnlib.run_ragged(net.train(), _x(0.0), torch.full((4,), 12)).shape == (12, 4, 4)
    with pytest.raises(ValueError, match=r"lengths: expected shape \(4,\), one number of steps per sample"):
        snnlib.run_ragged(net, _x(), LENGTHS[:3])
    with pytest.raises(TypeError, match=r"lengths: expected a torch\.Tensor, got list"):
        snnlib.run_ragged(net, _x(), [1, 2, 3, 4])
    with pytest.raises(ValueError, match=r"lengths: expected numbers from 0 to 12 steps, got 1 to 13"):
        snnlib.run_ragged(net, _x(), torch.tensor([13, 5, 1, 9]))

    class Half(nn.Module):
        mixes_time = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[::2]

    with pytest.raises(ValueError, match=r"cannot reach, got module 0 \(Half\)"):
        snnlib.run_ragged(nn.Sequential(Half(), snnlib.SpikingLinear(6, 4)), _x(), LENGTHS)
    longer = nn.Sequential(nn.ConstantPad3d((0, 0, 0, 0, 0, 1), 0.0), snnlib.SpikingLinear(6, 4))
    with (
        snnlib.SpikeDoctor(longer),
        pytest.raises(
            ValueError, match=r"lengths: expected layers that keep the 12 steps of 4 samples, got one"
        ),
    ):
        snnlib.run_ragged(longer, _x(), LENGTHS)
    # The call that failed leaves nothing behind.
    assert longer(_x(0.0)).shape == (13, 4, 4)
