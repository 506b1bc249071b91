"""Torch's own tools on nets of this library: each is right, or refuses in a sentence and leaves the net as it was."""

from __future__ import annotations

import copy
import multiprocessing
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import swa_utils

import snnlib
from snnlib import neurons

STEPS, SAMPLES = 5, 4


def grid(*shape: int, seed: int = 1) -> Tensor:
    """Multiples of 1/64, whose sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-64, 65, shape, generator=generator).float() / 64


def events(*shape: int, seed: int = 1) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.4).float()


# Batch norm, with the shape of its input.
NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: snnlib.BatchNorm1d(3), (3,)),
    "1d, length": (lambda: snnlib.BatchNorm1d(3, momentum=0.3), (3, 6)),
    "2d, threshold": (lambda: snnlib.BatchNorm2d(3, threshold=0.5, alpha=0.75), (3, 2, 4)),
    "3d, not affine": (lambda: snnlib.BatchNorm3d(3, affine=False, threshold=2.0), (3, 2, 2, 2)),
    "time steps": (lambda: snnlib.BatchNorm1d(3, time_steps=STEPS), (3,)),
    "fused": (
        lambda: snnlib.fuse_(
            nn.Sequential(snnlib.PerStep(nn.Linear(3, 3)), snnlib.BatchNorm1d(3), neurons.LIF())
        ),
        (3,),
    ),
}


def norm_of(net: nn.Module) -> Any:
    (found,) = (module for module in net.modules() if isinstance(module, _BatchNorm))
    return found


@pytest.fixture(params=NORMS)
def norm(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor]:
    make, shape = NORMS[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make(), 2 * grid(STEPS, SAMPLES, *shape) + 1


def test_update_bn_takes_the_mean_over_batches(norm: tuple[nn.Module, Tensor]) -> None:
    net, x = norm
    own, batches = norm_of(net), [x, 3 * x, x - 1]
    momentum = own.momentum
    net(x), net.eval()
    swa_utils.update_bn(batches, net)
    assert own.num_batches_tracked == 3 and own.momentum == momentum and not own.training
    found = own.running_mean.clone(), own.running_var.clone()
    single = []
    for batch in batches:
        swa_utils.update_bn([batch], net)
        single.append((own.running_mean.clone(), own.running_var.clone()))
    for mean, parts in zip(found, zip(*single, strict=True), strict=True):
        torch.testing.assert_close(mean, torch.stack(parts).mean(0))


@pytest.mark.parametrize("whole", [False, True], ids=["by class", "all of it"])
def test_frozen_batch_norm_keeps_its_statistics_and_parameters(
    norm: tuple[nn.Module, Tensor], whole: bool
) -> None:
    net, x = norm
    net(x), net(x)
    expected = copy.deepcopy(net).eval()(x)
    for module in net.modules():
        if isinstance(module, _BatchNorm) or whole:
            module.eval().requires_grad_(False)
    before = copy.deepcopy(norm_of(net).state_dict())
    assert torch.equal(net(x), expected)
    assert all(torch.equal(value, before[key]) for key, value in norm_of(net).state_dict().items())
    assert not any(p.requires_grad for p in norm_of(net).parameters())


def test_weight_decay_filters_find_batch_norm(norm: tuple[nn.Module, Tensor]) -> None:
    net, _ = norm
    found = {id(p) for m in net.modules() if isinstance(m, _BatchNorm) for p in m.parameters(recurse=False)}
    expected = {id(p) for key, p in net.named_parameters() if key.split(".")[-2:-1] == ["norm"]}
    assert found == expected and len(found) == 2 * norm_of(net).affine


def test_options_and_tensors_are_those_of_torchs_batch_norm() -> None:
    norm, x = snnlib.BatchNorm1d(3), grid(STEPS, SAMPLES, 3)
    norm.momentum, norm.norm.track_running_stats = 0.5, False
    assert norm.norm.momentum == 0.5 and norm.running_mean is norm.norm.running_mean
    norm(x)
    assert not norm.running_mean.any() and norm.num_batches_tracked == 0
    fused = snnlib.fuse_(nn.Sequential(snnlib.PerStep(nn.Linear(3, 3)), norm, neurons.LIF()))
    fused(x)
    assert not norm.running_mean.any() and norm.num_batches_tracked == 0
    with pytest.raises(AttributeError, match="momentums"):
        _ = norm.momentums


@pytest.mark.parametrize("prefix", ["", "norm."], ids=["torch's keys", "keys of the part"])
def test_keys_of_batch_norm_in_files_are_torchs(norm: tuple[nn.Module, Tensor], prefix: str) -> None:
    net, x = norm
    net(x)
    fresh, stored = NORMS["1d"][0](), norm_of(net).state_dict()
    if isinstance(net, snnlib.nn.norm.batch_norm.BatchNorm):
        assert list(net.state_dict()) == list(stored)
        fresh = type(net)(3, affine=net.affine, time_steps=net.time_steps)
    fresh.load_state_dict({prefix + key: value for key, value in stored.items()})
    assert all(torch.equal(value, stored[key]) for key, value in fresh.state_dict().items())


def test_copies_of_batch_norm(norm: tuple[nn.Module, Tensor]) -> None:
    net, x = norm
    net(x)
    other = copy.deepcopy(net)
    assert torch.equal(other(x), net(x))
    assert torch.equal(norm_of(other).running_var, norm_of(net).running_var)
    assert torch.equal(other.eval()(x), net.eval()(x))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def synced(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, gradient of the input, statistics and gradients of a training step."""
    out = net(x.requires_grad_())
    (out * torch.linspace(0, 1, out.shape[2]).view(-1, *[1] * (out.dim() - 3))).square().sum().backward()
    own = norm_of(net)
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    assert x.grad is not None
    return [out.detach(), x.grad, own.running_mean, own.running_var, own.num_batches_tracked, *gradients]


def _train_rank(rank: int, port: int, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    found: dict[str, Any] = {}
    for name, (make, shape) in NORMS.items():
        torch.manual_seed(0)
        net = nn.SyncBatchNorm.convert_sync_batchnorm(make())
        # Samples are shared out unevenly.
        part = (2 * grid(STEPS, SAMPLES, *shape) + 1).split([1, SAMPLES - 1], 1)[rank].clone()
        # Without DistributedDataParallel, which refuses SyncBatchNorm on CPUs.
        found[name] = [tensor.numpy() for tensor in synced(net, part)]
        assert type(norm_of(net)) is nn.SyncBatchNorm
    results.put((rank, found))
    dist.destroy_process_group()


def test_sync_batch_norm_has_the_statistics_of_the_joint_batch() -> None:
    context = multiprocessing.get_context("fork")
    results, port = context.Queue(), _free_port()
    workers = [context.Process(target=_train_rank, args=(rank, port, results)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(100)
        assert worker.exitcode == 0
    found = dict(results.get() for _ in workers)
    for name, (make, shape) in NORMS.items():
        torch.manual_seed(0)
        out, gradient, *expected = synced(make(), 2 * grid(STEPS, SAMPLES, *shape) + 1)
        parts = [[torch.from_numpy(value) for value in found[rank][name]] for rank in range(2)]
        joint = torch.cat([part[0] for part in parts], 1)
        assert (joint - out).abs().amax() < 1e-5 or (name == "fused" and (joint != out).float().mean() < 0.05)
        torch.testing.assert_close(torch.cat([p[1] for p in parts], 1), gradient, rtol=1e-4, atol=1e-5)
        for part in parts:
            torch.testing.assert_close(part[2:5], expected[:3])
        for first, second, answer in zip(parts[0][5:], parts[1][5:], expected[3:], strict=True):
            torch.testing.assert_close(first + second, answer, rtol=1e-4, atol=1e-5)


def test_sync_batch_norm_alone_is_batch_norm(norm: tuple[nn.Module, Tensor]) -> None:
    net, x = norm
    expected = copy.deepcopy(net)(x)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert type(norm_of(net)) is nn.SyncBatchNorm and "SyncBatchNorm" in repr(net)
    torch.testing.assert_close(net(x), expected)
