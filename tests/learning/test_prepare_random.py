"""`prepare_` keeps its promises on random nets and inputs: 60 in every run, 600 with the slow tests."""

import copy
import random
import warnings

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, prepare_
from snnlib.nn import PerStep
from snnlib.nn.weights.gain import WeightWithGain
from snnlib.nn.weights.stored_weight import learned_weight

# Warnings of the nets here say nothing of the promises.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("x. expected spikes", ".*looks like", ".*grad_clamp bounds", "net. expected spiking")
]
NEURONS = (
    neurons.LIF,
    lambda: neurons.LIF(tau=4.0, reset="subtract", learnable=("tau",)),
    neurons.PLIF,
    lambda: neurons.CubaLIF(surrogate=snnlib.surrogate.Triangle()),
    lambda: neurons.CubaLIF(gradient="event"),
    neurons.SRM,
    neurons.ALIF,
    neurons.BRF,
    neurons.IF,
)
STEPS, SAMPLES, SIDE = 8, 4, 6


def _input(chosen: random.Random, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(chosen.randrange(1 << 30))
    events = (torch.rand(shape, generator=generator) < chosen.choice((0.02, 0.2, 0.6))).float()
    grey = torch.rand(shape, generator=generator)
    return {
        "events": events,
        "counts": events * torch.randint(1, 9, shape, generator=generator),
        "sparse grey": events * grey,
        "grey": grey,
        "signed": 3 * grey - 1,
        "faint": 1e-3 * grey,
    }[chosen.choice(("events", "events", "counts", "sparse grey", "grey", "signed", "faint"))]


def _net(chosen: random.Random, channels: int) -> nn.Sequential:
    """A convolution or none, then maps, plain, recurrent or torch's own, and a readout or spiking outputs."""
    parts: list[nn.Module] = []
    size = channels
    if chosen.random() < 0.5:
        out = chosen.choice((1, 3, 6))
        kernel = chosen.choice((1, 3))
        parts.append(
            snnlib.SRMConv2d(channels, out, kernel)
            if chosen.random() < 0.3
            else snnlib.SpikingConv2d(channels, out, kernel, neuron=chosen.choice(NEURONS)())
        )
        side = SIDE - kernel + 1
        if chosen.random() < 0.5:
            parts.append(snnlib.AvgPool2d(2))
            side //= 2
        size = out * side * side
    else:
        size = channels * SIDE * SIDE
    parts.append(nn.Flatten(2))
    for _ in range(chosen.choice((1, 2) if len(parts) == 1 else (0, 1, 2))):
        out = chosen.choice((1, 5, 20))
        kind = chosen.random()
        if kind < 0.2:
            parts.append(snnlib.SpikingRNN(size, out))
        elif kind < 0.4:
            parts += [PerStep(nn.Linear(size, out, bias=chosen.random() < 0.5)), chosen.choice(NEURONS)()]
        elif kind < 0.6:
            parts.append(snnlib.SRMLinear(size, out))
        else:
            parts.append(snnlib.SpikingLinear(size, out, neuron=chosen.choice(NEURONS)()))
        size = out
    last = chosen.choice((snnlib.SRMReadout, snnlib.SRMLinear, snnlib.SpikingLinear))
    return nn.Sequential(*parts, last(size, chosen.choice((1, 3))))


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other)


def _differ(weight: Tensor) -> Tensor:
    """Returns whether neighbouring channels differ, per pair."""
    rows = weight.detach().flatten(1)
    return (rows[1:] - rows[:-1]).abs().amax(1) > 1e-6 * rows.abs().max()


def _check(seed: int) -> bool:
    """Returns whether the net was prepared, and not refused."""
    chosen = random.Random(seed)
    torch.manual_seed(seed)
    channels = chosen.choice((1, 1, 2, 3))
    net, x = _net(chosen, channels), _input(chosen, (STEPS, SAMPLES, channels, SIDE, SIDE))
    for parameter in net.parameters():
        parameter.requires_grad_(chosen.random() < 0.9)
    before = copy.deepcopy(net.state_dict())
    frozen = {name: p.detach().clone() for name, p in net.named_parameters() if not p.requires_grad}
    drawn = {
        name: _differ(m.effective_weight) for name, m in net.named_modules() if isinstance(m, WeightWithGain)
    }
    random_state = torch.get_rng_state()
    options = {"gain": chosen.random() < 0.9, "target_rate": chosen.choice((None, None, 0.05))}
    try:
        report = prepare_(net, x, **options)
    except ValueError as error:
        # Nothing before a layer fires, or potentials stay at 0.
        assert "expected input with spikes" in str(error) or "can make neurons fire" in str(error), seed
        after = net.state_dict()
        assert after.keys() == before.keys() and all(map(_equal, after.values(), before.values())), seed
        return False
    assert all(bool(value.isfinite().all()) for value in net.state_dict().values()), seed
    now = dict(net.named_parameters())
    for name, value in frozen.items():
        stored = name.replace(".weight", ".parametrizations.weight.original")
        assert torch.equal(now.get(name, now.get(stored)), value), (seed, name)
    for name, module in net.named_modules():
        if isinstance(module, WeightWithGain):
            assert bool((_differ(module.effective_weight) | ~drawn[name]).all()), (seed, name)
    findings = report.findings()
    for layer in report.layers:
        named = any(f"{layer.name} has a gain of" in finding for finding in findings)
        assert 2.0**-6 <= layer.gain <= 2.0**12 or named, (seed, layer)
    once = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match="prepared before") if _learning(net) else warnings.catch_warnings():
        prepare_(net, x, **options)
    assert all(map(_equal, net.state_dict().values(), once.values())), seed
    parameters = list(net.parameters())
    prepare_(net, x, again=True, **options)
    assert all(map(_equal, net.state_dict().values(), once.values())), seed
    assert all(now is then for now, then in zip(net.parameters(), parameters, strict=True)), seed
    assert torch.equal(torch.get_rng_state(), random_state), seed
    return True


def _learning(net: nn.Module) -> bool:
    weights = (learned_weight(m) for m in net.modules() if isinstance(m, WeightWithGain))
    return any(isinstance(part, neurons.Neuron) for part in net) or any(w.requires_grad for w in weights)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_promises(first: int) -> None:
    assert sum(_check(seed) for seed in range(first, first + 10)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(60, 600, 60))
def test_promises_on_more_nets(first: int) -> None:
    assert sum(_check(seed) for seed in range(first, first + 60)) >= 30
