"""Several processes that train one net: gradients whose sum does not depend on how many there are."""

# No postponed annotations: torch looks at those of a hook.
import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["ordered_sum"]


def ordered_sum(
    state: object,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """Mean of the processes' gradients, added in the order of their ranks: a hook of `DistributedDataParallel`.

    `sum_r g_r / R`, from rank 0 upwards, where the sums of gloo and NCCL have an order that depends on the number of
    processes and the place in the tensor. With R a power of two the division is exact, and R processes give the bits of
    one process that adds the gradients of R batches before its step (`loss / R` each), for nets that look at each
    sample by itself: no batch normalisation with batch statistics.

    Args:
        state: the process group, None for all processes.
        bucket: gradients that torch exchanges together.

    Returns:
        The mean. Every process gets every other's gradient, R times the bytes of a plain sum in memory and R / 2 times
        those on the wire; the sum starts when all have come.

    Source: hooks of torch's DistributedDataParallel, `register_comm_hook`.

    >>> import snnlib
    >>> from torch.nn.parallel import DistributedDataParallel
    >>> def parallel(net):                          # in each process, after torch.distributed.init_process_group
    ...     net = DistributedDataParallel(net)
    ...     net.register_comm_hook(None, snnlib.distributed.ordered_sum)
    ...     return net
    """
    group = state if isinstance(state, dist.ProcessGroup) else dist.group.WORLD
    assert group is not None
    gradient: Tensor = bucket.buffer().div_(group.size())
    found = [torch.empty_like(gradient) for _ in range(group.size())]

    def add(_done: object) -> Tensor:
        gradient.copy_(found[0])
        for other in found[1:]:
            gradient.add_(other)
        return gradient

    work = dist.all_gather(found, gradient, group=group, async_op=True)
    return work.get_future().then(add)  # type: ignore[no-any-return]


def __dir__() -> list[str]:
    return sorted(__all__)
