"""A whole training step as one CUDA graph: the host launches it once instead of every kernel of it.

Source: NVIDIA, CUDA Programming Guide, CUDA Graphs; PyTorch, CUDA semantics, whole-network capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Steps before the capture, in which libraries choose their kernels and the optimiser makes its state.
_WARM_UPS = 3


class GraphStep:
    """A captured training step: `step(x, y)` trains and gives the loss; made by `graph_step`.

    `output` is what the net gave in the last call; the next call overwrites it.
    """

    output: Tensor

    def __init__(
        self,
        net: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        optimizer: torch.optim.Optimizer,
        example: tuple[Tensor, Tensor],
    ) -> None:
        _check(net, optimizer, example)
        self._net, self._loss, self._optimizer = net, loss, optimizer
        self._x, self._y = (tensor.detach().clone() for tensor in example)
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._capture()

    def _capture(self) -> None:
        stream = torch.cuda.Stream(self._x.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._x.device))
        with torch.cuda.stream(stream), undone(self._net, self._optimizer):
            for _ in range(_WARM_UPS):
                self._optimizer.zero_grad(set_to_none=True)
                self._step()
        torch.cuda.current_stream(self._x.device).wait_stream(stream)
        # Gradients that do not exist yet are written in the graph, not added to.
        self._optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self._graph):
                self._value, self.output = self._step()
        except RuntimeError as error:
            raise RuntimeError(
                "graph_step: the step cannot be captured as a CUDA graph; nothing in it may read a value back to the "
                f"host (item(), bool() of a tensor) or copy one from it, and shapes may not depend on data: {error}"
            ) from error

    def _step(self) -> tuple[Tensor, Tensor]:
        output = self._net(self._x)
        value = self._loss(output, self._y)
        value.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return value.detach(), output.detach()

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Train on one batch; the loss before the step, as a tensor of its own.

        Raises:
            ValueError: a batch of another shape or dtype than the example, or a learning rate that has changed and
                that the graph cannot see (make it a tensor on the device: `Adam(..., lr=torch.tensor(1e-3),
                capturable=True)`).
        """
        for name, given, own in (("x", x, self._x), ("y", y, self._y)):
            if given.shape != own.shape or given.dtype != own.dtype:
                raise ValueError(
                    f"{name}: expected shape {tuple(own.shape)} and {own.dtype} as in the example that was captured, "
                    f"got {tuple(given.shape)} and {given.dtype}"
                )
        for rate, group in zip(self._rates, self._optimizer.param_groups, strict=True):
            # A tensor is read by the graph itself.
            if group["lr"] is not rate and group["lr"] != rate:
                raise ValueError(
                    f"optimizer: expected the learning rate {rate} that was captured, got {group['lr']}; for a rate "
                    "that changes give a tensor on the device and capturable=True"
                )
        self._x.copy_(x, non_blocking=True)
        self._y.copy_(y, non_blocking=True)
        self._graph.replay()
        return self._value.clone()


def graph_step(
    net: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    example: tuple[Tensor, Tensor],
) -> GraphStep:
    """Capture forward, loss, backward and optimiser step as one CUDA graph.

    Small nets and batches wait for Python and for launches, not for kernels; a graph is launched once. Every later
    batch has the example's shapes. The steps before the capture leave weights, buffers and the optimiser as they were.

    Args:
        net: module on a CUDA device, in the mode (`train()`, `eval()`) that is wanted.
        loss: of `(net(x), y)`, a scalar. snnlib's losses read nothing back; neither may one's own.
        optimizer: of the net's parameters; one that has the option `capturable` needs it. Gradients are clipped by
            `optimizer.register_step_pre_hook`. One that has made no step yet must begin with a state of zeros, as
            SGD without dampening and all of Adam's kind do.
        example: `(x, y)`, a batch on the device, of the shapes and dtypes of all later ones.

    Returns:
        `step(x, y) -> loss`, with `step.output` for the accuracy.

    Raises:
        ValueError: net or batch not on one CUDA device, or an optimiser without `capturable=True`.
        RuntimeError: a step that cannot be captured; names what the driver refused.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(20, 3))
    >>> adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    >>> snnlib.graph_step(net, torch.nn.functional.mse_loss, adam, (torch.zeros(5, 2, 20), torch.zeros(5, 2, 3)))
    Traceback (most recent call last):
    ValueError: net: expected parameters on a CUDA device, got cpu
    """
    return GraphStep(net, loss, optimizer, example)


def _check(net: nn.Module, optimizer: torch.optim.Optimizer, example: tuple[Tensor, Tensor]) -> None:
    devices = {tensor.device for tensor in (*net.parameters(), *net.buffers())}
    on_gpu = len(devices) == 1 and next(iter(devices)).type == "cuda"
    if not on_gpu:
        got = ", ".join(sorted(map(str, devices))) or "none"
        raise ValueError(f"net: expected parameters on a CUDA device, got {got}")
    for name, tensor in zip("xy", example, strict=True):
        if {tensor.device} != devices:
            raise ValueError(
                f"example: expected {name} on {next(iter(devices))} as the net, got {tensor.device}"
            )
    if any(not group.get("capturable", True) for group in optimizer.param_groups):
        raise ValueError(
            f"optimizer: expected {type(optimizer).__name__}(..., capturable=True), got capturable=False"
        )


@contextmanager
def undone(net: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Training steps in this context leave weights, buffers, random numbers and the optimiser's state as before.

    All are restored in place; state that the optimiser makes in the context stays, set to zero.
    """
    kept = [(tensor, tensor.detach().clone()) for tensor in (*net.parameters(), *net.buffers())]
    before = {
        parameter: {name: value.clone() for name, value in state.items() if isinstance(value, Tensor)}
        for parameter, state in optimizer.state.items()
    }
    on_gpu = any(tensor.is_cuda for tensor, _ in kept)
    with torch.random.fork_rng(enabled=True, devices=None if on_gpu else []):
        yield
    with torch.no_grad():
        for tensor, value in kept:
            tensor.copy_(value)
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    old = before.get(parameter, {}).get(name)
                    value.zero_() if old is None else value.copy_(old)
