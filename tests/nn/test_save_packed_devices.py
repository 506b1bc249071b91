"""Saved tensors packed by what made them, as on a GPU: every number comes back, and nothing waits for a value.

Values are compared on the CPU, where the same code runs if content may not be looked at. That it reads nothing back and
copies nothing from the host show the device "meta", forward and backward, and fake CUDA tensors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from compare import assert_bits
from no_copies import NoCopies
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import snnlib
from snnlib import neurons, ops, surrogate
from snnlib.nn.memory.save_packed import PackedFractions, pack_known
from snnlib.ops import packable

STEPS, BATCH = 12, 6


@pytest.fixture
def without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the CPU are packed as those of a GPU."""
    monkeypatch.setattr(
        importlib.import_module("snnlib.nn.memory.save_packed"), "_by_content", lambda tensor: False
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_every_number_comes_back(count: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(count)
    for shape in ((40, 41, 43), (49, 1009), (64, 8, 11, 13)):
        values = torch.randint(0, count + 1, shape, generator=generator).to(dtype) / count
        values[-1] = torch.where(values[-1] == 1, torch.nan, values[-1])
        if len(shape) == 4:
            values = values.to(memory_format=torch.channels_last)
        with packable.noted():
            packable.note(values, count)
            packed = pack_known(values)
            part = pack_known(values[5:])
        assert isinstance(packed, PackedFractions) and isinstance(part, PackedFractions)
        bits = 2 if count <= 2 else 4
        assert packed.nbytes == -(-values.numel() * bits // 8)
        assert packed.unpack().stride() == values.stride()
        assert_bits(packed.unpack(), values)
        assert_bits(part.unpack(), values[5:])


def test_only_what_is_known_is_packed() -> None:
    spikes = torch.ones(200, 200)
    assert pack_known(spikes) is None
    packable.note(spikes, 1)
    assert packable.of(spikes) == 0
    with packable.noted():
        packable.note(spikes, 1)
        assert (
            packable.of(spikes) == packable.of(spikes[3:].view(-1, 100)) == packable.of(spikes.detach()) == 1
        )
        with packable.noted():
            assert packable.of(spikes) == 1
        # Another tensor, or the same numbers read as others.
        assert packable.of(spikes.clone()) == packable.of(spikes.view(torch.int32)) == 0
        assert packable.of(packable.carry(spikes.double(), spikes)) == 1
        assert packable.of(packable.carry(spikes[::2] + 0.0, spikes, 3)) == 0
        # Too little to be worth it, and elements that do not fill their memory.
        assert pack_known(spikes[:20]) is None
        assert pack_known(spikes[:, ::2]) is None
        # Something was written into it.
        spikes[0, 0] = 0.3
        assert packable.of(spikes) == 0
        # Beside a part of a larger tensor may lie anything.
        whole = torch.rand(300, 200)
        packable.note(whole[:200], 1)
        assert packable.of(whole) == packable.of(whole[:200]) == 0
        # Memory that was freed may be another tensor's by now.
        packable.note(torch.ones(200, 200), 1)
        assert all(packable.of(torch.rand(200, 200)) == 0 for _ in range(5))
        with torch.inference_mode():
            packable.note(torch.ones(3), 1)
    assert packable.of(spikes) == 0


@pytest.mark.parametrize("op", ["scan", "scan and pool", "SRM", "SRM and pool", "recurrent"])
def test_what_is_noted_is_true(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ops that nets take on a GPU, here by their kernels or references of a CPU."""
    generator = torch.Generator().manual_seed(4)
    current = torch.empty_permuted((9, 2, 16, 8, 8), (0, 1, 3, 4, 2)).normal_(std=2, generator=generator)
    dynamics = _lif().dynamics(_lif().constants())
    assert dynamics is not None
    with packable.noted():
        if op == "scan":
            values = ops.scan.run(current, dynamics, None, 0)[0]
            free = replace(dynamics, membrane=True)
            assert packable.of(ops.scan.run(current, free, None, 0)[0]) == 0
        elif op == "scan and pool":
            values = ops.scan.run(current, dynamics, None, 0, (2, 2))[0]
        elif op == "SRM":
            values = snnlib.functional.srm_neuron(current)
        elif op == "recurrent":
            weight = torch.randn(128, 128, generator=generator)
            values = ops.recurrent.run(current.reshape(9, 16, 128), weight, dynamics, None, None, 0)[0]
        else:
            monkeypatch.setattr(ops.scan_pool, "has_srm_kernels", lambda x: True)
            net = snnlib.fuse_(nn.Sequential(snnlib.SRMConv2d(2, 4, 3, padding=1), snnlib.SpikeAvgPool2d(2)))
            with snnlib.use_path("reference"):
                values = net(4 * current[:, :, :2].relu())
        count = packable.of(values)
    assert count == (4 if "pool" in op else 1)
    numbers = values.unique() * count
    assert len(numbers) >= 2 and numbers[1] == 1
    assert torch.equal(numbers, numbers.round()) and numbers[0] == 0 and numbers[-1] <= count


def test_means_of_srm_neurons_alone_have_the_levels_of_their_window() -> None:
    """Of a window of four spikes there are quarters, whether autograd asks or not."""
    current = torch.rand(9, 16, 8, 4, 4).requires_grad_()
    neurons_alone = (torch.ones(()), None, [], [5.0, 3.0, 3.0, 4.0], 0, [2, 2], False)
    with packable.noted():
        means, _ = torch.ops.snnlib.scan_forward(current, *neurons_alone)
        assert packable.of(means) == 4
    assert 0 < len(means.unique()) <= 5


class Graded(neurons.Neuron):
    """Gives what is no spike."""

    state_names = ("v",)

    def step(
        self, state: neurons.State, current: Tensor, params: neurons.Params
    ) -> tuple[Tensor, neurons.State]:
        v = 0.5 * state[0] + current
        return v.relu(), (v,)


def _lif() -> neurons.LIF:
    return neurons.LIF(3.0, surrogate=surrogate.Triangle())


def _srm() -> nn.Sequential:
    return nn.Sequential(
        snnlib.SRMConv2d(2, 16, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(16, 16, 3, padding=1),
        nn.Flatten(2),
        snnlib.SRMLinear(16 * 8 * 8, 4),
    )


def _pooled(pool: nn.Module, features: int = 16 * 8 * 8) -> nn.Sequential:
    return nn.Sequential(
        snnlib.SpikingConv2d(2, 16, 3, padding=1, neuron=_lif()),
        pool,
        snnlib.SpikingConv2d(16, 16, 3, padding=1, neuron=_lif()),
        nn.Flatten(2),
        snnlib.SpikingLinear(features, 4, neuron=_lif()),
    )


# name: (net, share of what autograd gave that is kept at most: currents and the indices of maxima are kept as they are)
NETS: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "SRM": (_srm, 0.5),
    "SRM, fused": (lambda: snnlib.fuse_(_srm()), 0.5),
    "LIF": (lambda: _pooled(snnlib.AvgPool2d(2)), 0.75),
    "LIF, fused": (lambda: snnlib.fuse_(_pooled(snnlib.AvgPool2d(2))), 0.75),
    "LIF, 4 x 2 windows": (lambda: _pooled(snnlib.AvgPool2d((4, 2)), 16 * 4 * 8), 0.84),
    "LIF, maxima": (lambda: _pooled(snnlib.MaxPool2d(2)), 0.58),
    "LIF, maxima of spikes": (lambda: _pooled(snnlib.SpikeMaxPool2d(2)), 0.58),
    "recurrent": (
        lambda: nn.Sequential(snnlib.SpikingRNN(2 * 16 * 16, 300), snnlib.SRMLinear(300, 4)),
        0.65,
    ),
    "values that are no spikes": (
        lambda: nn.Sequential(snnlib.SpikingConv2d(2, 8, 3, neuron=Graded()), nn.Flatten(2), nn.Linear(1568, 3)),
        1.0,
    ),
}  # fmt: skip


def _input() -> Tensor:
    return (torch.rand(STEPS, BATCH, 2, 16, 16, generator=torch.Generator().manual_seed(1)) < 0.3).float()


@pytest.mark.parametrize("path", ["reference", "auto"])
@pytest.mark.parametrize("name", NETS)
@pytest.mark.usefixtures("without_looking")
def test_gradients_keep_every_bit(name: str, path: str) -> None:
    """The reference path has no event-driven layers, as a GPU has none."""
    make, most = NETS[name]
    gradients = []
    with snnlib.use_path(path):  # type: ignore[arg-type]
        for packs in (False, True):
            torch.manual_seed(0)
            net, x = make(), _input()
            if name == "recurrent":
                x = x.flatten(2)
            with snnlib.save_packed(besides=[x]) if packs else nullcontext() as saved:
                out = net(x)
            # Of what layers give that are one op on a CPU, nothing is known.
            if saved is not None and most < 1 and (path == "reference" or name == "recurrent"):
                assert saved.kept < 0.95 * saved.given
            assert out.abs().sum() > 0
            out.sum(0).square().sum().backward()
            gradients.append([parameter.grad for parameter in net.parameters()])
    for plain, packed in zip(*gradients, strict=True):
        assert plain is not None and plain.abs().max() > 0
        assert_bits(packed, plain)


@pytest.mark.parametrize("name", NETS)
def test_a_step_reads_nothing_back(name: str) -> None:
    """On the device "meta" a value that is read, or a size that follows from one, is an error."""
    make, most = NETS[name]
    net, x = make().to("meta"), torch.empty(STEPS, BATCH, 2, 16, 16, device="meta")
    if name == "recurrent":
        x = x.flatten(2)
    with NoCopies():
        with snnlib.save_packed(besides=[x]) as saved:
            out = net(x)
        # Recurrent layers run on "meta" in a loop of torch, of whose spikes nothing is known.
        assert 0 < saved.kept <= (1 if name == "recurrent" else most) * saved.given
        out.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_fake_cuda_tensors_are_packed_where_they_are() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True), NoCopies(), packable.noted():
        spikes = torch.ones(STEPS, BATCH, 16, 33, 33, device="cuda:0")
        packable.note(spikes, 1)
        packed = pack_known(spikes)
        assert packed is not None
        again = packed.unpack()
    assert packed.codes.device == again.device == torch.device("cuda", 0)
    assert (again.shape, again.stride()) == (spikes.shape, spikes.stride())


@pytest.mark.usefixtures("without_looking")
def test_a_neuron_without_a_number_is_still_none() -> None:
    """A current of NaN gives spikes of NaN, which the weights' gradient shows with packing as without."""
    layers = [snnlib.neurons.LIF(3.0), nn.Linear(300, 2)]
    gradients = []
    for packs in (False, True):
        torch.manual_seed(0)
        current = torch.rand(100, 4, 300)
        current[50, 2, 7] = torch.nan
        layers[1].zero_grad()
        with snnlib.save_packed() if packs else nullcontext() as saved:
            out = layers[1](layers[0](current))
        assert saved is None or saved.kept < 0.1 * saved.given
        out.nan_to_num().sum().backward()
        gradients.append(layers[1].weight.grad)
    assert gradients[0].isnan().any() and not gradients[0].isnan().all()
    assert_bits(*gradients)
