"""Training steps of a run as CUDA graphs (`--graph`): the host starts one launch a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from snnlib.learning.graph_step import CapturedStep


class GraphTraining:
    """Makes training steps, by a graph of the first batch's shapes; a batch of other shapes, the last one, without it.

    Args:
        module: holds all parameters and buffers.
        compute: as in `CapturedStep`.
        optimizer: makes the step. Its learning rates become tensors, which a schedule fills and the graph reads.
    """

    def __init__(
        self,
        module: nn.Module,
        compute: Callable[..., tuple[Tensor, ...]],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._module, self._compute, self._optimizer = module, compute, optimizer
        self._step: CapturedStep | None = None

    def __call__(self, batch: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Train on a batch; what `compute` gave before the step."""
        if self._step is None:
            for group in self._optimizer.param_groups:
                group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=batch[0].device)
            self._step = CapturedStep(self._module, self._compute, self._optimizer, batch)
        if self._step.fits(batch):
            return self._step(*batch)
        self._optimizer.zero_grad(set_to_none=True)
        outputs = self._compute(*batch)
        outputs[0].backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return tuple(output.detach() for output in outputs)
