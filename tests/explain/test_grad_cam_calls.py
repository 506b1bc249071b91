"""Calls of Grad-CAM leave no hook, gradient, flag or tensor behind."""

import gc
import weakref

import pytest
import torch
from cam_nets import DOUBLE, conv_net, events, spiking_net
from compare import assert_bits
from torch import Tensor, nn

from snnlib.explain import GradCAM


def hooks(net: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._backward_hooks) for module in net.modules())


def test_hooks_are_there_within_the_block_only() -> None:
    net = conv_net()
    cam = GradCAM(net, net[3])
    with pytest.raises(KeyError), cam:
        assert hooks(net) == 1
        raise KeyError
    assert hooks(net) == 0
    with cam, cam:
        assert hooks(net) == 1
    assert hooks(net) == 0
    x = torch.rand(2, 2, 8, 8, generator=torch.Generator().manual_seed(0), **DOUBLE)
    with cam:
        expected = cam(x)
    # A call alone puts its hook on and takes it off.
    assert_bits(cam(x), expected)
    assert hooks(net) == 0


def test_no_grad_is_touched_and_flags_come_back(rng: torch.Generator) -> None:
    net = conv_net().train()
    net[2].eval()
    x = torch.rand(2, 2, 8, 8, generator=rng, **DOUBLE, requires_grad=True)
    first = net[0].weight
    first.grad = torch.ones_like(first)
    with GradCAM(net, net[3]) as cam:
        maps = cam(x)
        with pytest.raises(ValueError, match="target: expected classes"):
            cam(x, 4)
    assert not maps.requires_grad
    assert x.grad is None
    assert_bits(first.grad, torch.ones_like(first))
    assert all(parameter.grad is None for parameter in net.parameters() if parameter is not first)
    assert [module.training for module in net] == [True, True, False, True, True, True]


def test_runs_in_evaluation_mode(rng: torch.Generator) -> None:
    """Dropout is off and batch statistics stay."""
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 3)
    )
    x = torch.rand(2, 1, 6, 6, generator=rng)
    with GradCAM(net, net[0]) as cam:
        assert_bits(cam(x, 0), cam(x, 0))
    assert int(net[1].num_batches_tracked) == 0
    assert net.training


def test_works_without_grad_mode_and_with_frozen_weights(rng: torch.Generator) -> None:
    net, x = spiking_net(), events(rng)
    with GradCAM(net, net[0]) as cam:
        expected = cam(x)
        with torch.no_grad():
            assert_bits(cam(x), expected)
        with torch.inference_mode():
            assert_bits(cam(x.clone()), expected)
        net.requires_grad_(False)
        assert_bits(cam(x), expected)


def test_in_place_operations_after_the_layer_do_not_count(rng: torch.Generator) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(75, 2)]
    net, other = nn.Sequential(*layers), nn.Sequential(layers[0], nn.ReLU(inplace=True), *layers[2:])
    x = torch.randn(2, 1, 5, 5, generator=rng)
    with GradCAM(net, net[0]) as cam, GradCAM(other, other[0]) as in_place:
        assert_bits(in_place(x), cam(x))


def test_the_models_own_calls_are_left_alone(rng: torch.Generator) -> None:
    """A training step within the block is one as any other."""
    net, x = conv_net(), torch.rand(2, 2, 8, 8, generator=rng, **DOUBLE)
    with GradCAM(net, net[3]):
        net(x).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_keeps_no_tensor(rng: torch.Generator) -> None:
    net, x = conv_net(), torch.rand(2, 2, 8, 8, generator=rng, **DOUBLE)
    seen: list[weakref.ref[Tensor]] = []
    for module in net:
        module.register_forward_hook(lambda _module, _inputs, output: seen.append(weakref.ref(output)))
    with GradCAM(net, net[3]) as cam:
        seen.append(weakref.ref(cam(x)))
        gc.collect()
        # Tensors of each layer and of the map are dead.
        assert [reference() for reference in seen] == [None] * 7
