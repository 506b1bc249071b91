"""A loss on the synaptic operations of a net, which trains nets with few operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.functional.operators import FullyConnected, LinearOperator
from snnlib.inspect.products import nonzero_counts
from snnlib.neurons.dynamics import at_least
from snnlib.nn.fusion.hooks import of_this_thread
from snnlib.nn.layers.readout import SRMReadout
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.recurrent.recurrent_layer import Recurrent

_Convolutions = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class SynapticOperationsLoss:
    """Effective synaptic operations of a net as a differentiable loss.

    ::

        operations = sum over layers, inputs i:  [x_i != 0] fan_out_i / samples
        loss = operations / dense operations                  without a target
        loss = max(0, operations / target - 1)                with one

    `fan_out_i` is the number of nonzero weights of input i, with borders and strides: the operations equal those of
    `snnlib.profile`. The gradient of `[x != 0]` is taken as the sign of x, and as 1 at 0: one more spike costs its
    fan-out. Surrogate or spike-time gradients carry it to the weights. The operations of layers on the net's input
    count, but have no gradient.

    Args:
        net: any module; counted are spiking layers, also recurrent ones, `SRMReadout`, `torch.nn.Linear` and
            `torch.nn.Conv1d/2d/3d`.
        target: number of operations per sample below which the loss is 0. Default None: no target.
        batch_first: whether dimension 0 of the net's input holds the samples, as in `[N, T, ...]`.

    Raises:
        ValueError: a target that is not positive, a net without such layers, or no forward pass within the block.

    Source: Sorbaro et al., "Optimizing the energy consumption of spiking neural networks for neuromorphic
    applications", Frontiers in Neuroscience 2020; the counts are exact here.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(20, 16), snnlib.SRMLinear(16, 4))
    >>> x, labels = (torch.rand(10, 8, 20) < 0.3).float(), torch.randint(4, (8,))
    >>> report = snnlib.prepare_(net, x)
    >>> operations = snnlib.losses.SynapticOperationsLoss(net)
    >>> with operations:
    ...     spikes = net(x)
    >>> loss = snnlib.losses.count_cross_entropy(spikes.sum(0), labels, scale=report.logit_scale)
    >>> loss = loss + 0.1 * operations()
    >>> loss.backward()
    """

    def __init__(self, net: nn.Module, target: float | None = None, batch_first: bool = False) -> None:
        if target is not None and not target > 0:
            raise ValueError(f"target: expected a number > 0, got {target}")
        self._layers = [module for module in net.modules() if _is_connection(module)]
        if not self._layers:
            raise ValueError(
                f"net: expected a module with weighted layers, got {type(net).__name__} without any"
            )
        self.net, self.target, self.batch_first = net, target, batch_first
        self._handles: list[Any] = []
        # Fan-outs by all weights follow from shapes alone.
        self._dense_fan_outs: dict[tuple[Any, ...], Tensor] = {}
        self._start()

    def _start(self) -> None:
        self._operations: list[Tensor] = []
        self._dense = 0
        self._samples = 0

    def __enter__(self) -> SynapticOperationsLoss:
        self._start()
        self._handles = [
            layer.register_forward_pre_hook(of_this_thread(self._count), with_kwargs=True)
            for layer in self._layers
        ]
        recurrent = [layer for layer in self._layers if isinstance(layer, Recurrent)]
        self._handles += [
            layer.register_forward_hook(of_this_thread(self._count_recurrent)) for layer in recurrent
        ]
        samples = of_this_thread(self._count_samples)
        self._handles.append(self.net.register_forward_pre_hook(samples, with_kwargs=True))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __call__(self) -> Tensor:
        """Returns the loss of the forward passes within the last block."""
        per_sample = self.operations()
        if self.target is not None:
            return at_least(per_sample / self.target - 1, 0.0)
        return per_sample * (self._samples / self._dense)

    def operations(self) -> Tensor:
        """Returns effective operations per sample within the last block, with their gradient."""
        if not (self._operations and self._samples):
            raise ValueError("net: expected a forward pass within the with block, got none")
        return torch.stack(self._operations).sum() / self._samples

    def _count_samples(self, _: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._samples += _first(inputs, options).shape[0 if self.batch_first else 1]

    def _count(self, layer: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        x = _first(inputs, options)
        sequence = isinstance(layer, SpikingLayer | SRMReadout)
        frames = x.flatten(0, 1) if sequence else x
        if isinstance(layer, nn.Linear):
            frames = x.reshape(-1, x.shape[-1])
        with torch.no_grad():
            weight: Any = layer.weight
            fan_out, dense = self._fan_outs(layer, weight, frames, partial(_fan_out, layer, weight, frames))
        self._add(frames, fan_out, dense)

    def _count_recurrent(self, layer: Recurrent, _inputs: tuple[Any, ...], spikes: Tensor) -> None:
        """Counts recurrent operations: spikes of every step but the last reach neurons of the layer."""
        frames = (spikes[:, :-1] if layer.batch_first else spikes[:-1]).flatten(0, 1)
        operator = FullyConnected() if layer.recurrent_operator is None else layer.recurrent_operator
        with torch.no_grad():
            weight = layer.recurrent_weight
            count = partial(_adjoint_of_ones, operator, weight, frames)
            fan_out, dense = self._fan_outs((layer, "recurrent"), weight, frames, count)
        self._add(frames, fan_out, dense)
        # The first step has none before it, but a dense product all the same.
        self._dense += spikes.shape[0 if layer.batch_first else 1] * int(dense.sum())

    def _fan_outs(
        self, owner: object, weight: Tensor, frames: Tensor, count: Callable[[bool], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Returns the number of nonzero weights, and of all weights, of each input of a frame."""
        key = (owner, weight.shape, frames.shape[1:], frames.device)
        if key not in self._dense_fan_outs:
            self._dense_fan_outs[key] = count(False)
        dense = self._dense_fan_outs[key]
        return (dense if bool(weight.all()) else count(True)), dense

    def _add(self, frames: Tensor, fan_out: Tensor, dense: Tensor) -> None:
        self._operations.append(_Effective.apply(frames, fan_out))  # type: ignore[no-untyped-call]
        self._dense += len(frames) * int(dense.sum())


class _Effective(torch.autograd.Function):
    """Sum of the fan-outs of nonzero inputs; its gradient is the fan-out."""

    @staticmethod
    def forward(ctx: Any, frames: Tensor, fan_out: Tensor) -> Tensor:
        ctx.save_for_backward(frames, fan_out)
        return (nonzero_counts(frames.detach()).per_cell * fan_out).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        frames, fan_out = ctx.saved_tensors
        cost = (gradient * fan_out).to(frames.dtype)
        return torch.where(frames < 0, -cost, cost), None


def _is_connection(module: nn.Module) -> bool:
    return isinstance(module, (SpikingLayer, SRMReadout, nn.Linear, *_Convolutions))


def _first(inputs: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    return next(value for value in (*inputs, *options.values()) if isinstance(value, Tensor))


def _fan_out(layer: Any, weight: Tensor, frames: Tensor, nonzero: bool) -> Tensor:
    """Returns the number of nonzero weights, or of all weights, of each input of a frame, in float64."""
    if isinstance(layer, SpikingLayer | SRMReadout):
        operator = layer.operator if isinstance(layer, SpikingLayer) else FullyConnected()
        return _adjoint_of_ones(operator, weight, frames, nonzero)
    weight, frame = _counted(weight, nonzero), _frame(frames)
    if isinstance(layer, nn.Linear):
        return weight.sum(0)
    # The adjoint of the convolution, with its own padding of any mode.
    with torch.enable_grad():
        frame.requires_grad_()
        out = layer._conv_forward(frame, weight, None).sum()
        return torch.autograd.grad(out, frame)[0][0]


def _adjoint_of_ones(operator: LinearOperator, weight: Tensor, frames: Tensor, nonzero: bool) -> Tensor:
    """Returns the number of weights of each input of an operator: the adjoint of ones at all outputs."""
    counted, frame = _counted(weight, nonzero), _frame(frames)
    return operator.input_backward(torch.ones_like(operator.forward(frame, counted)), frame, counted)[0]


def _counted(weight: Tensor, nonzero: bool) -> Tensor:
    weight = weight.detach()
    return weight.ne(0).double() if nonzero else torch.ones_like(weight, dtype=torch.float64)


def _frame(frames: Tensor) -> Tensor:
    return torch.zeros(1, *frames.shape[1:], dtype=torch.float64, device=frames.device)
