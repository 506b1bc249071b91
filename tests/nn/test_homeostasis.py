"""`WeightStandardization(homeostasis=True)`: silent channels wake and busy ones calm down while a layer trains."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import snnlib
from snnlib.nn.weights.stored_weight import standardization_of

BATCHES = 120


def _x(seed: int = 0) -> Tensor:
    return (torch.rand(10, 8, 40, generator=torch.Generator().manual_seed(seed)) < 0.2).float()


def _layer(homeostasis: bool = True) -> snnlib.SRMLinear:
    torch.manual_seed(1)
    layer = snnlib.SRMLinear(40, 6)
    snnlib.nn.standardize_weights_(layer, homeostasis=homeostasis)
    with torch.no_grad():
        step = standardization_of(layer)
        step.scale.fill_(2.0)
        # Silent, firing at every step, and between.
        step.bias.copy_(torch.tensor([-2.0, 4.0, 0.0, 0.0, 0.0, 0.0]))
    return layer


def _rates(layer: nn.Module) -> Tensor:
    with torch.no_grad():
        return torch.stack([layer(_x(seed)).mean((0, 1)) for seed in range(20)]).mean(0)


def _train(layer: nn.Module, batches: int = BATCHES, forward=None) -> None:
    for seed in range(batches):
        out = layer(_x(seed)) if forward is None else forward(layer, _x(seed))
        out.sum().backward()


def test_channels_come_within_bounds_and_the_others_stay() -> None:
    layer = _layer()
    bias = standardization_of(layer).bias.detach().clone()
    before = _rates(layer)
    assert before[0] == 0 and before[1] > 0.9 and ((before[2:] > 0.03) & (before[2:] < 0.7)).all(), before
    _train(layer, 400)
    after = _rates(layer)
    assert after[0] > 0.01 and after[1] < 0.85, after
    assert torch.equal(standardization_of(layer).bias[2:], bias[2:])


@pytest.mark.parametrize("homeostasis", [True, False])
def test_channels_that_it_wakes_are_not_named_at_once(homeostasis: bool) -> None:
    layer = _layer(homeostasis)
    x = _x().repeat(1, 5, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in range(31):
            if batch == 3:
                with torch.no_grad():
                    standardization_of(layer).bias.fill_(-2.0)
            layer(x).sum().backward()
    assert any("fired at the beginning did not fire" in str(one.message) for one in caught) != homeostasis


@pytest.mark.parametrize("how", ["off", "eval", "no gradient", "frozen"])
def test_nothing_moves(how: str) -> None:
    layer = _layer(homeostasis=how != "off")
    before = copy.deepcopy(layer.state_dict())
    if how == "eval":
        layer.eval()
    if how == "frozen":
        layer.requires_grad_(False)
    with torch.set_grad_enabled(how in ("off", "eval")):
        for seed in range(BATCHES):
            out = layer(_x(seed))
            if out.requires_grad:
                out.sum().backward()
    after = layer.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in after)


def test_spikes_and_gradients_of_a_pass_are_those_without_it() -> None:
    with_it, without = _layer(), _layer(homeostasis=False)
    outs = [layer(_x()) for layer in (with_it, without)]
    assert torch.equal(*outs)
    for out in outs:
        out.square().sum().backward()
    pairs = zip(with_it.parameters(), without.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)


@pytest.mark.parametrize("part", ["checkpoint", "fused"])
def test_recomputed_and_fused_layers_move_alike(part: str) -> None:
    layer, twin = _layer(), _layer()
    _train(layer)
    if part == "checkpoint":
        _train(twin, forward=lambda net, x: checkpoint(net, x, use_reentrant=False))
        # A pass that is computed twice is noted twice.
        assert (standardization_of(twin).bias[0] - standardization_of(layer).bias[0]).abs() < 0.3
    else:
        block = snnlib.fuse_(nn.Sequential(twin))
        _train(block)
        assert torch.equal(standardization_of(twin).bias, standardization_of(layer).bias)
    assert standardization_of(twin).bias[0] > -2.0


def test_files_go_on_exactly_and_load_with_and_without() -> None:
    layer, other, plain = _layer(), _layer(), _layer(homeostasis=False)
    _train(layer, 60)
    stored = copy.deepcopy(layer.state_dict())
    other.load_state_dict(stored)
    for each in (layer, other):
        _train(each, 60)
    assert all(torch.equal(layer.state_dict()[name], other.state_dict()[name]) for name in stored)
    plain.load_state_dict(stored)
    assert torch.equal(plain.weight, stored["weight"])
    fresh = _layer()
    fresh.load_state_dict(_layer(homeostasis=False).state_dict())
    assert (standardization_of(fresh).rate > 0.02).all()


def test_it_needs_a_bias() -> None:
    with pytest.raises(ValueError, match="homeostasis: expected a bias to move, got bias=False"):
        snnlib.WeightStandardization(4, homeostasis=True)


def test_prepare_asks_for_it_where_images_come_as_currents() -> None:
    image = torch.rand(30, 40, generator=torch.Generator().manual_seed(2)) * 3 - 1
    nets = [nn.Sequential(snnlib.SRMLinear(40, 60), snnlib.SRMLinear(60, 10)) for _ in range(2)]
    snnlib.prepare_(nets[0], image.expand(6, 30, 40))
    snnlib.prepare_(nets[1], _x())
    assert all(standardization_of(layer).rate is not None for layer in nets[0])
    assert all(standardization_of(layer) is None for layer in nets[1])
