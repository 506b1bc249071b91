"""The pool of large blocks (snnlib/backends/cpu_memory.py): what is reused, what goes back, what tensors are."""

import gc
import io
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib import neurons, surrogate
from snnlib.backends import cpu_memory, native

pytestmark = pytest.mark.skipif(
    not getattr(native.cpu_memory(), "has_pool", False), reason="the pool needs the module and Linux"
)

_MEGABYTE = 1 << 20


@pytest.fixture
def keeper() -> Iterator[cpu_memory.BlockKeeper]:
    gc.collect()
    assert cpu_memory.pooled_bytes() == 0, "an earlier test still keeps blocks"
    yield cpu_memory.BlockKeeper()


def _tensor(megabytes: float) -> Tensor:
    return cpu_memory.empty_strided([int(megabytes * _MEGABYTE)], [1], torch.uint8)


def test_without_a_keeper_there_is_no_block() -> None:
    x = _tensor(2)
    assert cpu_memory.pooled_bytes() == 0
    assert len(x) == 2 * _MEGABYTE


def test_the_next_tensor_takes_the_block_of_a_freed_one(keeper: cpu_memory.BlockKeeper) -> None:
    x = _tensor(8)
    address = x.data_ptr()
    del x
    # About as large: up to an eighth smaller.
    y = _tensor(7.5)
    assert y.data_ptr() == address
    # Blocks in use, and one of another size.
    assert len({address, _tensor(8).data_ptr(), _tensor(4).data_ptr()}) == 3
    assert y.fill_(3).sum(dtype=torch.int64) == 3 * y.numel()


def test_small_tensors_take_no_block(keeper: cpu_memory.BlockKeeper) -> None:
    x = _tensor(0.9)
    assert cpu_memory.pooled_bytes() == 0
    assert len(x)


def test_blocks_that_wait_are_bounded(keeper: cpu_memory.BlockKeeper) -> None:
    for megabytes in range(10, 60):
        x = _tensor(megabytes)
        # A block is up to an eighth larger than asked for.
        assert len(x) <= cpu_memory.pooled_bytes() <= 1.5 * 1.125 * len(x)
        del x


def test_waiting_blocks_go_back_with_the_last_keeper() -> None:
    first, second = cpu_memory.BlockKeeper(), cpu_memory.BlockKeeper()
    alive = _tensor(6).fill_(5)
    _tensor(2)
    del first
    assert cpu_memory.pooled_bytes() >= 8 * _MEGABYTE
    del second
    # The tensor outlives the last one, and its block goes back with it.
    assert 6 * _MEGABYTE <= cpu_memory.pooled_bytes() < 8 * _MEGABYTE
    assert alive.eq(5).all()
    del alive
    assert cpu_memory.pooled_bytes() == 0


def test_tensors_in_blocks_are_ordinary(keeper: cpu_memory.BlockKeeper) -> None:
    x = cpu_memory.empty_permuted((3, 4, 64, 25, 26), (0, 1, 3, 4, 2), torch.empty(0))
    assert cpu_memory.pooled_bytes() >= x.nbytes == x.untyped_storage().nbytes()
    expected = torch.empty_permuted((3, 4, 64, 25, 26), (0, 1, 3, 4, 2))
    assert x.stride() == expected.stride() and x._base is None
    x.copy_(torch.rand(x.shape))
    assert cpu_memory.empty_like(x).stride() == x.stride()
    assert cpu_memory.empty_like(x.transpose(0, 1)).stride() == x.transpose(0, 1).stride()
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch.equal(torch.load(file), x)
    before = x.clone()
    assert torch.equal(x.share_memory_(), before) and x.is_shared()


def test_deterministic_algorithms_get_filled_memory(keeper: cpu_memory.BlockKeeper) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        x = cpu_memory.empty_strided([_MEGABYTE], [1], torch.float32)
    finally:
        torch.use_deterministic_algorithms(False)
    assert x.isnan().all() and cpu_memory.pooled_bytes() == 0


def test_threads_share_the_pool(keeper: cpu_memory.BlockKeeper) -> None:
    wrong: list[int] = []

    def use(number: int) -> None:
        for turn in range(50):
            x = _tensor(1 + turn % 3).fill_(number)
            if not x.eq(number).all():
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", ["srm", "lif"])
def test_chunks_in_blocks_give_the_bits_of_chunks_without(
    kind: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of earlier chunks hold their numbers still; memory apart from the pool is NaN in this suite."""
    torch.manual_seed(0)
    neuron = None if kind == "srm" else neurons.LIF(surrogate=surrogate.Triangle(0.5))
    net = snnlib.models.from_notation("12C3p1-P2-16C3-P2-10", (2, 16, 16), neuron=neuron)
    if fused:
        snnlib.fuse_(net)
    x = (torch.rand(40, 3, 2, 16, 16) < 0.2).float()
    found = []
    for least in (1 << 40, 1 << 8):
        monkeypatch.setattr(cpu_memory, "_LEAST_BYTES", least)
        net.zero_grad()
        given = x.clone().requires_grad_()
        out = snnlib.checkpoint_time(net, given, steps=7)
        assert (cpu_memory.pooled_bytes() > 0) == (least == 1 << 8)
        out.square().sum().backward()
        found.append([out.detach().clone(), given.grad, *(weight.grad for weight in net.parameters())])
        del out
    assert all(map(torch.equal, *found))
    assert found[0][0].any() and found[0][1].any()
