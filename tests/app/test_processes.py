"""A run has one result, however many processes train, workers read or threads compute: weights equal bit for bit."""

from __future__ import annotations

import hashlib
import multiprocessing
import socket
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import snnlib
from snnlib.app.training.order import SeededCopies, TrainingBatches, stack_copies
from snnlib.data import AugmentFrames

# Two batches for each step are 80: a net cannot learn these labels, of which the loss would tell after 100.
SAMPLES, BATCH, STEPS = 24, 4, 40


class Recordings(Dataset[tuple[Tensor, int]]):
    """Random frames `[T, C, H, W]` of two classes."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self.frames = (torch.rand(SAMPLES, 6, 2, 8, 8, generator=generator) < 0.15).float()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.frames[index], index % 2


def training_loader(group: int, rank: int, processes: int, workers: int) -> DataLoader[Any]:
    samples = SeededCopies(Recordings(), AugmentFrames(shift=1, rotate=10.0, warp=0.5), copies=1, seed=3)
    batches = TrainingBatches(SAMPLES, BATCH, 3, group, rank, processes)
    return DataLoader(
        samples,
        batch_sampler=batches,
        collate_fn=stack_copies,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def trained(
    accumulate: int = 1, rank: int = 0, processes: int = 1, workers: int = 0, threads: int = 1
) -> str:
    """SHA-256 of the weights after 40 steps of `accumulate * processes` batches each."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    net: nn.Module = nn.Sequential(
        snnlib.SRMConv2d(2, 6, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SpikingLinear(6 * 16, 16, neuron=snnlib.neurons.LIF(surrogate=snnlib.surrogate.Triangle(0.5))),
        snnlib.SRMReadout(16, 2),
    )
    snnlib.prepare_(net, Recordings().frames[:8].movedim(0, 1))
    if processes > 1:
        net = DistributedDataParallel(net)
        net.register_comm_hook(None, snnlib.distributed.ordered_sum)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loader = training_loader(accumulate * processes, rank, processes, workers)
    steps = 0
    for epoch in range(STEPS):
        loader.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]
        for number, (frames, labels) in enumerate(loader, 1):
            loss = snnlib.losses.tet_loss(net(frames), labels)
            (loss / accumulate).backward()
            if number % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
                if steps == STEPS:
                    return hash_of(net)
    raise AssertionError("fewer steps than expected")


def hash_of(net: nn.Module) -> str:
    state = {key.removeprefix("module."): value for key, value in net.state_dict().items()}
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(state[key].numpy().tobytes())
    return digest.hexdigest()


def in_process(rank: int, processes: int, port: int, results: Any) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes)
    results.put(trained(rank=rank, processes=processes))
    dist.destroy_process_group()


def trained_together(processes: int) -> set[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [
        context.Process(target=in_process, args=(rank, processes, port, results)) for rank in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(100)
        assert worker.exitcode == 0
    return {results.get() for _ in workers}


def test_two_processes_are_one_that_adds_two_batches() -> None:
    expected = trained(accumulate=2)
    assert trained_together(2) == {expected}


def test_workers_and_threads_change_nothing() -> None:
    expected = trained()
    assert trained(workers=2) == expected
    assert trained(threads=2) == expected
    assert trained(accumulate=2) != expected, "the comparison cannot fail"


@pytest.mark.parametrize(("samples", "group", "processes"), [(24, 1, 1), (23, 2, 2), (5, 4, 2), (9, 6, 3)])
def test_batches_are_dealt_out(samples: int, group: int, processes: int) -> None:
    """All processes together have the batches of one process, in its order."""
    whole = list(TrainingBatches(samples, BATCH, 0, group))
    parts = [list(TrainingBatches(samples, BATCH, 0, group, rank, processes)) for rank in range(processes)]
    assert [batch for step in zip(*parts, strict=True) for batch in step] == whole
    assert len(whole) % group == 0
    assert {index for batch in whole for _, index in batch} == set(range(samples))
    assert all(len(TrainingBatches(samples, BATCH, 0, group, 0, processes)) == len(part) for part in parts)


def test_epochs_have_orders_and_numbers_of_their_own() -> None:
    batches = TrainingBatches(SAMPLES, BATCH, 0)
    first = list(batches)
    batches.set_epoch(1)
    assert [draw[1] for batch in batches for draw in batch] != [draw[1] for batch in first for draw in batch]
    samples = SeededCopies(Recordings(), AugmentFrames(shift=2), copies=2, seed=0)
    before = torch.get_rng_state()
    one, two = samples[0, 5]
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(one[0], two[0])
    assert torch.equal(samples[0, 5][0][0], one[0])
    assert not torch.equal(samples[1, 5][0][0], one[0])
