"""Layers that read sequences in both directions, and sequences of different lengths in batches."""

import pytest
import torch
from compare import assert_bits, assert_close
from runs import assert_samples_as_alone
from torch import nn

import snnlib
from snnlib import neurons
from snnlib.nn.recurrent.bidirectional import reversed_in_time


def _spikes(steps: int = 12, batch: int = 3) -> torch.Tensor:
    return (torch.rand(steps, batch, 6, generator=torch.Generator().manual_seed(1)) < 0.4).float() * 2


def test_both_directions_are_the_two_layers() -> None:
    torch.manual_seed(0)
    layer, x = snnlib.Bidirectional(snnlib.SpikingRNN(6, 16)), _spikes()
    out = layer(x)
    assert_bits(out[..., :16], layer.forwards(x))
    assert_bits(out[..., 16:], layer.backwards(x.flip(0)).flip(0))
    assert out[..., :16].sum() > 0
    assert out[..., 16:].sum() > 0
    # Weights of their own, drawn anew.
    for a, b in zip(layer.forwards.parameters(), layer.backwards.parameters(), strict=True):
        assert a.shape == b.shape
        assert not torch.equal(a, b)


def test_reports_list_the_directions_in_their_order() -> None:
    net = nn.Sequential(snnlib.Bidirectional(snnlib.SpikingRNN(6, 16)))
    with snnlib.SpikeDoctor(net) as doctor:
        net(_spikes())
    wanted = ["0.forwards.layers.0", "0.backwards.layers.0"]
    assert [layer.name for layer in doctor.layers()] == wanted
    assert [layer.name for layer in snnlib.memory_report(net, _spikes()).layers if layer.rate >= 0] == wanted


@pytest.mark.parametrize("batch_first", [False, True])
def test_lengths(batch_first: bool) -> None:
    """Each sample of a batch is the sample alone, both ways, with its gradient."""
    torch.manual_seed(0)
    layer = snnlib.Bidirectional(snnlib.SpikingRNN(6, 16, batch_first=batch_first))
    assert layer.batch_first is batch_first
    x, lengths = _spikes(), torch.tensor([12, 5, 1])
    assert_samples_as_alone(layer, x, lengths)
    assert len(layer.run(x.transpose(0, 1) if batch_first else x).state) == 4


@pytest.mark.parametrize(
    "layer",
    [
        neurons.Integrator(5.0),
        neurons.SRM(),
        neurons.IF(surrogate=snnlib.surrogate.Triangle()),
        snnlib.SpikingLinear(6, 5, neuron=neurons.LIF(3.0)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_lengths_of_layers_without_recurrence(layer: nn.Module) -> None:
    x, lengths = _spikes(batch=4), torch.tensor([12, 0, 5, 5])
    x[5:, 2] = torch.nan
    assert_samples_as_alone(layer, x, lengths)


def test_any_layer_and_errors() -> None:
    x = torch.rand(5, 2, 4)
    both = snnlib.Bidirectional(nn.Sequential(nn.Linear(4, 3), neurons.Integrator()))
    assert both(x).shape == (5, 2, 6)
    with pytest.raises(TypeError, match=r"layer: expected one with run\(x, state, lengths\), got Sequential"):
        both.run(x)
    layer = snnlib.Bidirectional(snnlib.SpikingRNN(4, 3))
    with pytest.raises(ValueError, match="state: expected None"):
        layer.run(x, layer.run(x).state)
    with pytest.raises(ValueError, match=r"Bidirectional\) mixes time steps.* it says mixes_time"):
        snnlib.Stream(nn.Sequential(layer))(x)
    with pytest.raises(TypeError, match="layer: expected a module"):
        snnlib.Bidirectional(3)
    assert_bits(reversed_in_time(reversed_in_time(x)), x)


@pytest.mark.parametrize("batch_first", [False, True])
def test_losses_and_read_outs_leave_padding_out(batch_first: bool) -> None:
    """Each sample's loss, count and rate are those of the sample alone, whatever the padding holds."""
    generator = torch.Generator().manual_seed(2)
    potential = torch.randn(7, 3, 4, generator=generator)
    labels = torch.randint(0, 4, (7, 3), generator=generator)
    labels[2, 0] = labels[:, 1] = -1
    lengths = torch.tensor([7, 5, 3])
    for steps, sample in zip(lengths.tolist(), range(3), strict=True):
        potential[steps:, sample] = torch.nan
    turned = [t.transpose(0, 1) if batch_first else t for t in (potential, labels)]
    leaf = turned[0].clone().requires_grad_()
    loss = snnlib.losses.tet_loss(leaf, turned[1], batch_first=batch_first, lengths=lengths, reduction="none")
    loss.sum().backward()
    assert leaf.grad.isfinite().all()
    assert loss[1] == 0
    counts = snnlib.readout.spike_count(turned[0], batch_first, lengths)
    rates = snnlib.readout.firing_rate(turned[0], batch_first, lengths)
    for sample, steps in enumerate(lengths.tolist()):
        part, names = potential[:steps, sample : sample + 1], labels[:steps, sample]
        assert_close(counts[sample], part[:, 0].sum(0).double(), 1e-6)
        assert_close(rates[sample], part[:, 0].mean(0).double(), 1e-6)
        if sample != 1:
            kept = part[names >= 0]
            alone = snnlib.losses.tet_loss(kept, names[names >= 0][:, None])
            assert_close(loss[sample], alone.double(), 1e-6)
    with pytest.raises(ValueError, match="target: expected labels from 0 to 3, got -1"):
        snnlib.losses.tet_loss(leaf, turned[1], batch_first=batch_first, ignore_index=9)


# Gradients are large on purpose, so that time constants meet their bounds.
@pytest.mark.filterwarnings("ignore:(?s).*from one batch to the next the weights changed")
def test_bounded_time_constants() -> None:
    taus = neurons.log_uniform(2.0, 50.0, 1000, torch.Generator().manual_seed(0))
    assert 2 <= taus.min() <= 2.1
    assert 45 <= taus.max() <= 50
    assert abs(float(taus.log().mean()) - float(torch.tensor(10.0).log())) < 0.1
    neuron = neurons.LIF(taus[:4], learnable=("tau",), surrogate=snnlib.surrogate.ATan(0.8))
    neuron = neurons.bound_(neuron, tau=(3.0, 30.0))
    inside = taus[:4].clamp(3.01, 29.9)
    assert_close(neuron.tau.detach().double(), inside, 0.02)
    torch.manual_seed(0)
    layer = snnlib.SpikingLinear(6, 4, neuron=neuron).half().float()
    (raw,) = neuron.parameters()
    assert raw.dtype == torch.float32
    assert_close(neuron.tau.detach().double(), inside, 0.02)
    optimiser = torch.optim.SGD(snnlib.parameter_groups(layer, 1.0), lr=1.0)
    assert [group["lr"] for group in optimiser.param_groups] == [1.0, 3.0]
    for sign in (1, -1):
        for _ in range(5):
            optimiser.zero_grad()
            (sign * 100 * layer(_spikes()).sum()).backward()
            assert raw.grad.abs().sum() > 0
            optimiser.step()
            assert ((neuron.tau >= 3) & (neuron.tau <= 30)).all()
    with pytest.raises(ValueError, match=r"bounds: expected names of learnable constants \(tau\)"):
        neurons.bound_(neuron, threshold=(1.0, 2.0))
    with pytest.raises(ValueError, match="low, high: expected 1 <= low"):
        neurons.log_uniform(5.0, 2.0, 3)
    with pytest.raises(ValueError, match="constants_factor"):
        snnlib.parameter_groups(layer, 1.0, constants_factor=-1)
