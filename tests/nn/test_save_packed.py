"""Saved tensors packed by content: every bit comes back, and memory follows events."""

from contextlib import nullcontext

import pytest
import torch
from compare import assert_bits
from rates import set_rates_
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

import snnlib
from snnlib import neurons
from snnlib.nn.memory.save_packed import Packed, pack, save_packed
from snnlib.nn.memory.shared_blocks import SharedBlocks

SHAPE = (10, 5, 3, 32, 32)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.int16)


def _tensors() -> dict[str, tuple[Tensor, float]]:
    """Tensors, and the share of their memory that is left at most; 1 for those that are not packed."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(SHAPE, generator=generator)
    means = nn.functional.avg_pool2d((torch.rand(50, 3, 64, 64, generator=generator) < 0.3).float(), 2)
    levels = (noise * 29).floor()
    return {
        "nothing": (torch.zeros(SHAPE), 0.001),
        "few spikes": ((noise < 0.001).float(), 0.002),
        "spikes": ((noise < 0.3).float(), 0.04),
        "means of windows": (means.reshape(SHAPE), 0.13),
        "channels-last": (means.to(memory_format=torch.channels_last).unflatten(0, (10, 5)), 0.13),
        "29 levels": (levels, 0.27),
        "few different numbers": (noise * (noise < 0.02), 0.05),
        "numbers": (noise, 1.0),
        "negative zeros": (-torch.zeros(SHAPE), 0.04),
        "half": ((noise < 0.1).bfloat16(), 0.13),
        "float64": ((noise < 0.1).double(), 0.06),
        "bits of a record": ((noise < 0.01).to(torch.int16) * -32768, 0.03),
        "gaps": ((noise < 0.1).float()[..., ::2], 1.0),
    }


@pytest.mark.parametrize("name", _tensors())
def test_every_bit_comes_back(name: str) -> None:
    tensor, most = _tensors()[name]
    packed = pack(tensor)
    if most == 1.0:
        assert packed is None
        return
    assert packed is not None
    assert packed.nbytes <= most * tensor.nbytes
    again = packed.unpack()
    assert again.stride() == tensor.stride()
    assert torch.equal(_bits(again), _bits(tensor))
    with snnlib.use_path("reference"):
        plain = pack(tensor)
        # Tables of more than 16 values are for the kernels.
        assert (plain is None) == (name == "29 levels")
    if plain is not None:
        few = ("nothing", "few different numbers", "bits of a record", "float64", "few spikes")
        assert plain.nbytes <= (2 * most if name in few else most) * tensor.nbytes
        assert torch.equal(_bits(plain.unpack()), _bits(tensor))


def test_a_rare_value_is_not_lost() -> None:
    """Torch takes the table of values from a sample; a value outside the table is packed by its place."""
    spikes = (torch.rand(SHAPE, generator=torch.Generator().manual_seed(2)) < 0.01).float()
    spikes.view(-1)[12345] = 0.5
    with snnlib.use_path("reference"):
        packed = pack(spikes)
        assert packed is not None
        assert packed.parts[0].dtype == torch.int32
        assert_bits(packed.unpack(), spikes)


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 12, 5, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(12, 16, 3),
        nn.Flatten(2),
        snnlib.SRMLinear(16 * 6 * 6, 10),
    )
    set_rates_(net, _input(), 0.1)
    return net


def _input() -> Tensor:
    return (torch.rand(20, 4, 2, 18, 18, generator=torch.Generator().manual_seed(1)) < 0.05).float()


@pytest.mark.parametrize("fused", [False, True])
def test_gradients_keep_every_bit(fused: bool) -> None:
    gradients = []
    for packing in (False, True):
        net, x = _net(), _input().requires_grad_()
        if fused:
            snnlib.fuse_(net)
        if packing:
            with snnlib.save_packed() as saved:
                out = net(x)
            assert saved.kept < (0.5 if fused else 0.25) * saved.given
        else:
            out = net(x)
        assert out.sum() > 0
        out.sum(0).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in net.parameters())])
    for plain, packed in zip(*gradients, strict=True):
        assert plain.abs().max() > 0
        assert torch.equal(plain, packed)


def test_a_tensor_that_two_save_is_packed_once() -> None:
    x = (torch.rand(100, 400) < 0.1).float()
    a, b = (torch.rand(400, 3, requires_grad=True) for _ in range(2))
    with snnlib.save_packed() as saved:
        loss = (x @ a).sum() + (x @ b).sum()
    assert saved.given == x.nbytes
    loss.backward()
    with snnlib.save_packed(besides=[x]) as saved:
        (x[20:] @ a).sum()
    assert saved.given == 0
    # Nor is a view of a parameter something that is kept for the backward pass alone.
    with snnlib.save_packed() as saved:
        (x.clone().requires_grad_() @ nn.Parameter(torch.rand(3, 400)).t()).sum()
    assert saved.given == x.nbytes
    # Written over between two calls: what the first saved stays as it was.
    own = x.clone()
    with snnlib.save_packed():
        first = (own @ a).sum()
        own.zero_()
        second = (own @ b).sum()
    a.grad = None
    (first + second).backward()
    assert torch.equal(a.grad, x.sum(0)[:, None].expand(400, 3))
    assert isinstance(pack(x), Packed)


def test_what_is_kept_lies_together() -> None:
    memory = SharedBlocks()
    first, second = memory.take(100, torch.uint8), memory.take(50, torch.int64)
    assert first.shape == (100,)
    assert second.dtype == torch.int64
    assert second.data_ptr() - first.data_ptr() == 128
    large = memory.take(1 << 22, torch.float32)
    assert large.untyped_storage().nbytes() == large.nbytes
    values = torch.rand(3, 5)
    copied = memory.copy(values)
    assert torch.equal(copied, values)
    assert copied.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
    # Parts of larger tensors stay where they are.
    assert memory.copy(values[:2]) is not None
    assert memory.copy(values[:2]).data_ptr() == values.data_ptr()


@pytest.mark.parametrize("size", [12, 300])
@pytest.mark.parametrize("backward", [False, True])
def test_what_was_saved_is_freed_with_the_graph(size: int, backward: bool) -> None:
    """Recurrent layers save their own spikes, small ones as they are."""
    rnn = snnlib.SpikingRNN(20, size)
    with snnlib.save_packed():
        out = rnn((torch.rand(50, 8, 20) < 0.2).float())
    memory = StorageWeakRef(out.untyped_storage())
    if backward:
        out.sum().backward()
    assert not memory.expired()
    del out
    assert memory.expired()


def test_a_step_elsewhere_reads_nothing_back() -> None:
    """On the device "meta", as on a GPU, tensors are kept as they are: a value that is read is an error."""
    net = nn.Sequential(snnlib.SRMLinear(300, 200), snnlib.SRMLinear(200, 4)).to("meta")
    with save_packed() as saved:
        out = net(torch.empty(20, 16, 300, device="meta"))
    out.sum().backward()
    assert saved.kept == saved.given == 0
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_neuron_without_a_number_is_still_none() -> None:
    """A current of NaN gives spikes of NaN, which the weights' gradient shows with packing as without."""
    layers = [neurons.LIF(3.0), nn.Linear(300, 2)]
    gradients = []
    for packs in (False, True):
        torch.manual_seed(0)
        current = torch.rand(100, 4, 300)
        current[50, 2, 7] = torch.nan
        layers[1].zero_grad()
        with save_packed() if packs else nullcontext():
            out = layers[1](layers[0](current))
        out.nan_to_num().sum().backward()
        gradients.append(layers[1].weight.grad)
    assert gradients[0].isnan().any() and not gradients[0].isnan().all()
    assert_bits(*gradients)
