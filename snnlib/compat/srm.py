"""SRM neurons and layers under the papers' names: tensors `[N, T, ...]`, gradients dL/dt, of inputs times 0.85."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from snnlib import functional
from snnlib.checks import differentiable_once

# The published code's damping of dL/dx, layer by layer.
_INPUT_GRAD_SCALE = 0.85
# Bounds of |dt/du| per time step in the published kernel: weight gradient, input gradient.
_MAX_WEIGHT_SLOPE = 4.0
_MAX_INPUT_SLOPE = 123456789.0


class LossReverse:
    """Identity with a reversed gradient, for use between a layer of this module and a loss on counts or rates.

    Such a loss has the gradient dL/ds, "more spikes here"; these layers expect dL/dt, "later spikes here". snnlib's
    other layers expect dL/ds and need no reversal.

    >>> import torch, snnlib
    >>> x = torch.ones(2, requires_grad=True)
    >>> snnlib.compat.LossReverse.apply(x).sum().backward()
    >>> x.grad.tolist()
    [-1.0, -1.0]
    """

    @staticmethod
    def apply(inputs: Tensor) -> Tensor:
        """`inputs`, with gradient `-g`."""
        return functional.grad_scale(inputs, -1.0)


class srmNeuronFunc:  # noqa: N801
    """SRM neurons and the two signals of their backward pass, for spike tensors `[N, T, ...]`.

    The library's own names: `functional.srm_trace`, `functional.srm_backward`.
    """

    @staticmethod
    def forward(
        inputs: Tensor, taum: float, taus: float, e_taug: float, v_th: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`(spikes, delta_ut, delta_u)` of input currents; `e_taug = 1 - 1/tau_grad`. Fires at `u >= v_th`."""
        trace = functional.srm_trace(
            inputs, tau_m=taum, tau_s=taus, tau_grad=1 / (1 - e_taug), threshold=v_th, batch_first=True
        )
        return trace.spikes, trace.delta_ut, trace.delta_u

    @staticmethod
    def backward(
        grad_out: Tensor, delta_ut: Tensor, delta_u: Tensor, spikes: Tensor, epsw: Tensor, epst: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`(grad_w, grad_t)` from the gradient dL/dt at spikes and kernel tables indexed by `dt = 0, 1, ...`.

        With the first spike at or after each step, `dt` steps later, and `g = dL/dt` there::

            grad_w = g clamp(-1/delta_u, -4, 0) epsw[dt]        grad_t = g clamp(-1/delta_ut, -123456789, 0) epst[dt]

        Both are 0 after a neuron's last spike, and grad_t where `delta_ut <= 0`.
        """
        steps = spikes.shape[1]
        fired = spikes != 0
        time = torch.arange(steps, device=spikes.device).reshape(1, -1, *[1] * (spikes.dim() - 2))
        first = torch.where(fired, time, steps).flip(1).cummin(1).values.flip(1)
        credited = first < steps
        first = torch.where(credited, first, time)

        def signal(delta: Tensor, bound: float, table: Tensor) -> Tensor:
            # Neither the bound nor the slope at a small difference is finite in float16.
            delta = delta.to(torch.promote_types(delta.dtype, torch.float32))
            slope = torch.where(delta > 0, (1 / delta).clamp(max=bound), 0)
            at_spikes = torch.where(fired, -slope * grad_out, 0)
            kernel = table.to(at_spikes)[first - time]
            return torch.where(credited, at_spikes.gather(1, first) * kernel, 0).to(grad_out.dtype)

        return signal(delta_u, _MAX_WEIGHT_SLOPE, epsw), signal(delta_ut, _MAX_INPUT_SLOPE, epst)


class srmConvFunc(torch.autograd.Function):  # noqa: N801
    """Convolution and SRM neurons with event-driven gradients by kernel tables: `srmConvFunc.apply(inputs, ...)`.

    `inputs` `[N, T, C, H, W]`, `epsw` and `epst` tables of at least T elements. It accepts any tables, and therefore
    saves three sequences for the backward pass; `srmConv2d` saves one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        taum: float,
        taus: float,
        e_taug: float,
        v_th: float,
        epsw: Tensor,
        epst: Tensor,
        stride: int | Sequence[int] = (1, 1),
        padding: int | str | Sequence[int] = (0, 0),
        dilation: int | Sequence[int] = (1, 1),
        groups: int = 1,
    ) -> Tensor:
        """Spikes `[N, T, C_out, H', W']`."""
        operator = functional.Convolution(2, stride, padding, dilation, groups)
        operator.check(inputs, weight)
        for name, table in (("epsw", epsw), ("epst", epst)):
            if table.dim() != 1 or len(table) < inputs.shape[1]:
                raise ValueError(
                    f"{name}: expected a table of at least {inputs.shape[1]} entries, got shape {tuple(table.shape)}"
                )
        current = operator.forward(inputs.flatten(0, 1), weight)
        current = current.reshape(*inputs.shape[:2], *current.shape[1:])
        spikes, delta_ut, delta_u = srmNeuronFunc.forward(current, taum, taus, e_taug, v_th)
        ctx.save_for_backward(inputs, weight, epsw, epst, delta_ut, delta_u, spikes)
        ctx.operator = operator
        return spikes

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        """`0.85 x conv_backward_input(grad_t)` and `conv_backward_weight(grad_w)`."""
        inputs, weight, epsw, epst, delta_ut, delta_u, spikes = ctx.saved_tensors
        grad_w, grad_t = srmNeuronFunc.backward(grad_out, delta_ut, delta_u, spikes, epsw, epst)
        events = inputs.flatten(0, 1)
        grad_weight = grad_inputs = None
        if ctx.needs_input_grad[0]:
            grad_inputs = ctx.operator.input_backward(grad_t.flatten(0, 1), events, weight)
            grad_inputs = grad_inputs.reshape(inputs.shape) * inputs * _INPUT_GRAD_SCALE
        if ctx.needs_input_grad[1]:
            grad_weight = ctx.operator.weight_backward(grad_w.flatten(0, 1), events, weight)
        return grad_inputs, grad_weight, *[None] * 10


def _in_time_gradients(
    inputs: Tensor, weight: Tensor, operator: functional.LinearOperator, layer: srmConv2d | srmLinear
) -> Tensor:
    """The library's layer with signs reversed at both ends, so that both speak dL/dt."""
    spikes = functional.srm_layer(
        inputs,
        weight,
        operator,
        tau_m=layer.taum,
        tau_s=layer.taus,
        tau_grad=layer.taug,
        threshold=layer.v_th,
        grad_clamp=_MAX_WEIGHT_SLOPE,
        # The reversal at the inputs.
        input_grad_scale=-_INPUT_GRAD_SCALE,
        batch_first=True,
    )
    return LossReverse.apply(spikes)


class srmConv2d(nn.Conv2d):  # noqa: N801
    """Event-driven spiking convolution `[N, T, C, H, W]` to `[N, T, C_out, H', W']`, without bias.

    The library's own: `SRMConv2d(..., batch_first=True)`, whose gradients are dL/ds.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups: as in `torch.nn.Conv2d`.
        v_th: threshold of the membrane potential.
        taum, taus, taug: time constants of membrane, synapse and gradient kernel, in time steps.

    >>> import torch, snnlib
    >>> snnlib.compat.srmConv(1, 15, 5)(torch.ones(2, 6, 1, 28, 28)).shape
    torch.Size([2, 6, 15, 24, 24])
    """

    # Each call begins at rest; padding at the end changes nothing before it.
    mixes_time: ClassVar[bool] = True
    takes_padding: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | str | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        v_th: float = 1.0,
        taum: float = 5.0,
        taus: float = 3.0,
        taug: float = 2.5,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias=False
        )
        nn.init.orthogonal_(self.weight)
        self.taum, self.taus, self.taug, self.v_th = taum, taus, taug, v_th

    def forward(self, inputs: Tensor) -> Tensor:
        """Spikes."""
        operator = functional.Convolution(2, self.stride, self.padding, self.dilation, self.groups)
        return _in_time_gradients(inputs, self.weight, operator, self)


srmConv = srmConv2d  # noqa: N816


class srmLinear(nn.Linear):  # noqa: N801
    """Event-driven spiking layer `[N, T, in_features]` to `[N, T, out_features]`, without bias.

    The library's own: `SRMLinear(..., batch_first=True)`, with `nn.standardize_weights_` for the normalisation, whose
    gradients are dL/ds.

    Args:
        in_features, out_features: as in `torch.nn.Linear`.
        v_th: threshold of the membrane potential.
        taum, taus, taug: time constants of membrane, synapse and gradient kernel, in time steps.
        weight_norm: whether the weight is standardised over its inputs, with a learned factor `bn_weight` and offset
            `bn_bias` per output.
        eps: beside the variance.

    Raises:
        ValueError: a single input with `weight_norm`; in the forward pass, a constant or sequence that does not fit.

    >>> import torch, snnlib
    >>> snnlib.compat.srmLinear(640, 300)(torch.ones(2, 6, 640)).shape
    torch.Size([2, 6, 300])
    """

    # Each call begins at rest; padding at the end changes nothing before it.
    mixes_time: ClassVar[bool] = True
    takes_padding: ClassVar[bool] = True

    eps: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        v_th: float = 1.0,
        taum: float = 5.0,
        taus: float = 3.0,
        taug: float = 2.5,
        weight_norm: bool = True,
        eps: float = 1e-5,
    ) -> None:
        if weight_norm and in_features < 2:
            raise ValueError(
                f"in_features: expected an integer >= 2 with weight_norm, got {in_features}, which has no variance"
            )
        super().__init__(in_features, out_features, bias=False)
        nn.init.orthogonal_(self.weight)
        self.taum, self.taus, self.taug, self.v_th = taum, taus, taug, v_th
        self.bn_weight = nn.Parameter(torch.ones(out_features)) if weight_norm else None
        self.bn_bias = nn.Parameter(torch.zeros(out_features)) if weight_norm else None
        self.register_buffer("eps", torch.tensor([eps]))

    def forward(self, inputs: Tensor) -> Tensor:
        """Spikes."""
        weight: Tensor = self.weight
        if self.bn_weight is not None and self.bn_bias is not None:
            variance, mean = torch.var_mean(weight, dim=1, keepdim=True)
            weight = (weight - mean) / (variance + self.eps).sqrt()
            weight = weight * self.bn_weight.unsqueeze(1) + self.bn_bias.unsqueeze(1)
        return _in_time_gradients(inputs, weight, functional.FullyConnected(), self)
