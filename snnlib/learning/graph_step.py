"""A whole training step as one CUDA graph: the host launches it once instead of every kernel of it.

Source: NVIDIA, CUDA Programming Guide, CUDA Graphs; PyTorch, CUDA semantics, whole-network capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Steps before the capture, in which libraries choose their kernels and the optimiser makes its state.
_WARM_UPS = 3


class CapturedStep:
    """A training step as one CUDA graph: forward, loss, backward and optimiser.

    Args:
        module: holds all parameters and buffers.
        compute: of a batch, gives tensors of which the first is the loss; reads nothing back.
        optimizer: makes the step.
        example: a batch on the device of the module.

    Raises:
        ValueError, RuntimeError: as `graph_step`.
    """

    def __init__(
        self,
        module: nn.Module,
        compute: Callable[..., tuple[Tensor, ...]],
        optimizer: torch.optim.Optimizer,
        example: Sequence[Tensor],
    ) -> None:
        _check(module, optimizer, example)
        self._module, self._compute, self._optimizer = module, compute, optimizer
        self._batch = [tensor.detach().clone() for tensor in example]
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._capture()

    def _capture(self) -> None:
        device = self._batch[0].device
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream), undone(self._module, self._optimizer), without_cast_cache():
            for _ in range(_WARM_UPS):
                self._optimizer.zero_grad(set_to_none=True)
                self._step()
        torch.cuda.current_stream(device).wait_stream(stream)
        # Gradients that do not exist yet are written in the graph, not added to.
        self._optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        try:
            # A data loader's thread may ask for pinned memory meanwhile: a capture forbids it to this thread alone.
            with (
                torch.cuda.graph(self._graph, capture_error_mode="thread_local"),
                without_cast_cache(),
            ):
                self.outputs = self._step()
        except RuntimeError as error:
            raise RuntimeError(
                "graph_step: the step cannot be captured as a CUDA graph; nothing in it may read a value back to the "
                f"host (item(), bool() of a tensor) or copy one from it, and shapes may not depend on data: {error}"
            ) from error

    def _step(self) -> tuple[Tensor, ...]:
        outputs = self._compute(*self._batch)
        outputs[0].backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return tuple(output.detach() for output in outputs)

    def fits(self, batch: Sequence[Tensor]) -> bool:
        """Returns whether a batch has the shapes and dtypes of the example."""
        return [(x.shape, x.dtype) for x in batch] == [(x.shape, x.dtype) for x in self._batch]

    def __call__(self, *batch: Tensor) -> tuple[Tensor, ...]:
        """Train on a batch of the example's shapes; what `compute` gave before the step, until the next call."""
        for rate, group in zip(self._rates, self._optimizer.param_groups, strict=True):
            # A tensor is read by the graph itself.
            if group["lr"] is not rate and group["lr"] != rate:
                raise ValueError(
                    f"optimizer: expected the learning rate {rate} that was captured, got {group['lr']}; for a rate "
                    "that changes give a tensor on the device and capturable=True"
                )
        for own, given in zip(self._batch, batch, strict=True):
            own.copy_(given, non_blocking=True)
        self._graph.replay()
        return self.outputs


class GraphStep:
    """A captured training step: `step(x, y)` trains and gives the loss; made by `graph_step`.

    `output` is what the net gave in the last call; the next call overwrites it.
    """

    def __init__(
        self,
        net: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        optimizer: torch.optim.Optimizer,
        example: tuple[Tensor, Tensor],
    ) -> None:
        def compute(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            output = net(x)
            return loss(output, y), output

        self._step = CapturedStep(net, compute, optimizer, example)
        self._example = [(tensor.shape, tensor.dtype) for tensor in example]

    @property
    def output(self) -> Tensor:
        """The net's output of the last call."""
        return self._step.outputs[1]

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Train on one batch; the loss before the step, as a tensor of its own.

        Raises:
            ValueError: a batch of another shape or dtype than the example, or a learning rate that has changed and
                that the graph cannot see (make it a tensor on the device: `Adam(..., lr=torch.tensor(1e-3),
                capturable=True)`).
        """
        for name, given, (shape, dtype) in zip("xy", (x, y), self._example, strict=True):
            if given.shape != shape or given.dtype != dtype:
                raise ValueError(
                    f"{name}: expected shape {tuple(shape)} and {dtype} as in the example that was captured, "
                    f"got {tuple(given.shape)} and {given.dtype}"
                )
        return self._step(x, y)[0].clone()


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


def _check(net: nn.Module, optimizer: torch.optim.Optimizer, example: Sequence[Tensor]) -> None:
    devices = {tensor.device for tensor in (*net.parameters(), *net.buffers())}
    on_gpu = len(devices) == 1 and next(iter(devices)).type == "cuda"
    if not on_gpu:
        got = ", ".join(sorted(map(str, devices))) or "none"
        raise ValueError(f"net: expected parameters on a CUDA device, got {got}")
    for number, tensor in enumerate(example):
        if {tensor.device} != devices:
            name = "xy"[number] if number < 2 else f"tensor {number}"
            raise ValueError(
                f"example: expected {name} on {next(iter(devices))} as the net, got {tensor.device}"
            )
    if any(not group.get("capturable", True) for group in optimizer.param_groups):
        raise ValueError(
            f"optimizer: expected {type(optimizer).__name__}(..., capturable=True), got capturable=False"
        )


@contextmanager
def without_cast_cache() -> Iterator[None]:
    """Autocast casts weights anew at every use: casts that it kept would be of the weights before a step."""
    kept = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(kept)


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
