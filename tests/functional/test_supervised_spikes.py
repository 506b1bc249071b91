"""The supervised spike: a silent labelled neuron fires once, has its gradient, and nothing else changes."""

import pytest
import torch
from compare import assert_bits
from torch import Tensor, nn
from torch.nn.utils import parametrize

import snnlib
from snnlib.functional import srm_linear, srm_neuron, srm_trace, supervised_current
from snnlib.learning.decoding import spike_count
from snnlib.nn import supervised_spikes

LABELS = torch.tensor([0, 2, 1, 2])
TAUS = {"tau_m": 8.0, "tau_s": 4.0}


def _events(rng: torch.Generator, batch_first: bool = False) -> Tensor:
    x = (torch.rand(20, 4, 12, generator=rng) < 0.3).float()
    return x.transpose(0, 1) if batch_first else x


def test_smallest_push_at_the_highest_potential(rng: torch.Generator) -> None:
    current = torch.rand(20, 4, 3, generator=rng, dtype=torch.float64) * 0.1
    threshold = torch.tensor([0.8, 1.0, 1.5])
    neuron = snnlib.neurons.SRM(**TAUS)
    teacher = supervised_current(current, LABELS, neuron, threshold)
    potential = srm_trace(current, **TAUS, threshold=threshold.double()).potential
    for sample, label in enumerate(LABELS.tolist()):
        train = potential[:, sample, label]
        best = int(train.argmax())
        expected = torch.zeros_like(current[:, sample])
        expected[best, label] = 4 * (1.01 * threshold[label].double() - train[best])
        torch.testing.assert_close(teacher[:, sample], expected)
        taught = srm_neuron(current + teacher, **TAUS, threshold=threshold.double())[:, sample, label]
        assert taught.nonzero().flatten().tolist() == [best]


def test_an_inhibited_neuron_fires_at_the_last_step() -> None:
    """So that its inputs come before the spike and get a gradient."""
    current = torch.zeros(10, 1, 1)
    current[3] = -2
    teacher = supervised_current(current, torch.tensor([0]), snnlib.neurons.SRM())
    assert teacher.nonzero()[:, 0].tolist() == [9]
    assert srm_neuron(current + teacher).flatten().nonzero().flatten().tolist() == [9]


@pytest.mark.parametrize("batch_first", [False, True])
def test_all_other_spikes_stay_bit_for_bit(batch_first: bool, rng: torch.Generator) -> None:
    layer = snnlib.SRMLinear(12, 3, batch_first=batch_first, threshold=torch.tensor([0.5, 0.6, 0.7]))
    with torch.no_grad():
        layer.weight.copy_(torch.rand(3, 12, generator=rng) * 0.5)
        layer.weight[2] = -0.1
    x = _events(rng, batch_first)
    plain = layer(x)
    with supervised_spikes(layer, LABELS) as teacher:
        taught = layer(x)
    counts, before = spike_count(taught, batch_first), spike_count(plain, batch_first)
    assert teacher.taught.tolist() == [False, True, False, True]
    assert before[:, 2].eq(0).all()
    assert counts[:, 2].tolist() == [0, 1, 0, 1]
    assert_bits(counts[:, :2], before[:, :2], "counts")
    assert_bits(taught[..., :2], plain[..., :2], "spikes of other neurons")
    assert_bits(layer(x), plain, "spikes after the block")
    assert not layer._forward_hooks


def test_the_hook_goes_after_an_error() -> None:
    layer = snnlib.SRMLinear(2, 3)
    wrong = pytest.raises(
        ValueError, match=r"target: expected shape \(4,\), one label per sample, got \(2,\)"
    )
    with wrong, supervised_spikes(layer, LABELS[:2]):
        layer(torch.ones(5, 4, 2))
    assert not layer._forward_hooks


def test_gradient_of_the_pushed_spike(rng: torch.Generator) -> None:
    """The teacher acts as another input of the layer; inputs get at most the incoming gradient."""
    weight = torch.full((3, 12), 0.01, dtype=torch.float64)
    x = _events(rng).double()
    layer = snnlib.SRMLinear(12, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
    leaf = x.clone().requires_grad_()
    with supervised_spikes(layer, LABELS):
        (-layer(leaf).sum()).backward()
    neuron = snnlib.neurons.SRM()
    teacher = supervised_current(x @ weight.t(), LABELS, neuron)
    wide = torch.cat((weight, torch.eye(3, dtype=torch.float64)), 1).requires_grad_()
    both = torch.cat((x, teacher), 2).requires_grad_()
    (-srm_linear(both, wide).sum()).backward()
    torch.testing.assert_close(layer.weight.grad, wide.grad[:, :12])
    torch.testing.assert_close(leaf.grad, both.grad[..., :12])
    assert (layer.weight.grad <= 0).all()
    assert layer.weight.grad.sum() < 0
    assert -4 < leaf.grad.sum() < 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype, rng: torch.Generator) -> None:
    layer = snnlib.SRMLinear(12, 3, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.rand(3, 12, generator=rng) * 0.1 - 0.2)
    with supervised_spikes(layer, LABELS) as teacher:
        spikes = layer(_events(rng).to(dtype))
    assert spikes.dtype == dtype
    assert teacher.taught.all()
    assert spike_count(spikes)[torch.arange(4), LABELS].eq(1).all()


@pytest.mark.parametrize("autocast", [False, True], ids=["bfloat16", "autocast"])
def test_half_precision_pushes_far_enough(autocast: bool, rng: torch.Generator, path: str) -> None:
    """An inhibited neuron needs a current of many thresholds, which bfloat16 rounds by more than the margin."""
    layer = snnlib.SRMLinear(200, 10, dtype=torch.float32 if autocast else torch.bfloat16)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(10, 200, generator=rng))
    x = (torch.rand(20, 64, 200, generator=rng) < 0.05).to(layer.weight.dtype)
    labels, samples = torch.randint(10, (64,), generator=rng), torch.arange(64)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        plain = layer(x)
        with supervised_spikes(layer, labels) as teacher:
            taught = layer(x)
    assert taught.dtype == plain.dtype == torch.bfloat16
    before, after = (spike_count(train)[samples, labels] for train in (plain, taught))
    assert teacher.taught.sum() > 10
    assert before[teacher.taught].eq(0).all()
    assert after[teacher.taught].ge(1).all()
    assert torch.equal(after[~teacher.taught], before[~teacher.taught])


def test_standardised_weights(rng: torch.Generator) -> None:
    net = snnlib.nn.standardize_weights_(nn.Sequential(snnlib.SRMLinear(12, 3, threshold=50.0)))
    assert parametrize.is_parametrized(net[0])
    with supervised_spikes(net[0], LABELS):
        spike_count(net(_events(rng))).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in net.parameters())


def test_errors() -> None:
    current, neuron = torch.zeros(5, 4, 3), snnlib.neurons.SRM()
    with pytest.raises(ValueError, match=r"current: expected \[T, N, classes\], got shape \(5, 4\)"):
        supervised_current(current[..., 0], LABELS, neuron)
    with pytest.raises(ValueError, match=r"current: expected at least one time step, got shape \(0, 4, 3\)"):
        supervised_current(current[:0], LABELS, neuron)
    with pytest.raises(ValueError, match=r"target: expected labels from 0 to 2, got 0 to 3"):
        supervised_current(current, LABELS + torch.tensor([0, 1, 0, 0]), neuron)
    with pytest.raises(TypeError, match=r"target: expected integer labels, got torch.float32"):
        supervised_current(current, LABELS.float(), neuron)


def test_only_a_linear_layer_can_be_taught() -> None:
    with (
        pytest.raises(TypeError, match=r"^layer: expected an SRMLinear, got SRMConv2d$"),
        supervised_spikes(snnlib.SRMConv2d(1, 2, 3), LABELS),
    ):
        pass


def test_a_chunk_is_refused(rng: torch.Generator) -> None:
    """The teacher looks for the best step of the whole sequence."""
    layer = snnlib.SRMLinear(12, 3)
    with (
        supervised_spikes(layer, LABELS),
        pytest.raises(ValueError, match=r"^layer: expected calls with a whole sequence, got a chunk"),
    ):
        snnlib.Stream(layer)(_events(rng))
    assert not layer._forward_hooks


def test_the_input_by_name(rng: torch.Generator) -> None:
    layer = snnlib.SRMLinear(12, 3)
    nn.init.zeros_(layer.weight)
    with supervised_spikes(layer, LABELS) as teacher:
        layer(x=_events(rng))
    assert teacher.taught.all()
