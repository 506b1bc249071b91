"""Training in several processes: sums of gradients that do not depend on their number."""

# No postponed annotations: torch looks at those of a hook.
import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["ordered_sum"]


def ordered_sum(
    state: object,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """Averages the processes' gradients in the order of ranks: a hook for `DistributedDataParallel`.

    The mean is `sum_r g_r / R`, from rank 0 upwards; the sums of gloo and NCCL have an order that depends on the
    number of processes and on the position in the tensor. If R is a power of two, the division is exact, and R
    processes give the bits of one process that adds the gradients of R batches before its step (`loss / R` each), for
    nets without batch statistics over samples.

    Args:
        state: the process group, None for all processes.
        bucket: gradients that torch exchanges together.

    Returns:
        The mean. Every process receives all gradients: R times the memory and R / 2 times the traffic of a plain sum,
        which starts when all gradients have arrived.

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
