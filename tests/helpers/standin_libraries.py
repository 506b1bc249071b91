"""Neurons and layers with the arguments, attributes and equations of three libraries', written anew.

`peer_kits` makes nets of them where the libraries are not installed; test_convert_generated.py compares both.
"""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from peer_standins import SpikingNeuron, spike
from torch import Tensor, nn


class _Neuron(SpikingNeuron):
    """States as buffers, constants as buffers or parameters, and the reset that the constructor binds."""

    states: tuple[str, ...] = ("mem",)

    def __init__(
        self,
        threshold: Any = 1.0,
        init_hidden: bool = False,
        reset_mechanism: str = "subtract",
        reset_delay: bool = True,
        **constants: Any,
    ) -> None:
        super().__init__()
        self.spike_grad: Any = spike
        self.init_hidden, self.reset_mechanism, self.reset_delay = init_hidden, reset_mechanism, reset_delay
        self.inhibition = self.state_quant = self.output = False
        for name, value in {**constants, "threshold": threshold, "graded_spikes_factor": 1.0}.items():
            self.register_buffer(name, torch.as_tensor(value))
        number = ("subtract", "zero", "none").index(reset_mechanism)
        self.register_buffer("reset_mechanism_val", torch.as_tensor(number))
        for name in self.states:
            self.register_buffer(name, torch.zeros(0), persistent=False)
        self.state_function = {"subtract": self._base_sub, "zero": self._base_zero, "none": self._base_int}[
            reset_mechanism
        ]

    def reset_mem(self) -> Any:
        for name in self.states:
            setattr(self, name, torch.zeros_like(getattr(self, name)))
        found = tuple(getattr(self, name) for name in self.states)
        return found if len(found) > 1 else found[0]

    def fire(self, mem: Tensor) -> Tensor:
        return self.spike_grad(mem - self.threshold) * self.graded_spikes_factor  # type: ignore[no-any-return]

    def mem_reset(self, mem: Tensor) -> Tensor:
        return self.spike_grad(mem - self.threshold).clone().detach()  # type: ignore[no-any-return]

    def forward(self, input_: Tensor, *given: Tensor | None) -> Any:
        for name, value in zip(self.states, given, strict=False):
            if value is not None:
                setattr(self, name, value)
        for name in self.states:
            if getattr(self, name).shape != input_.shape:
                setattr(self, name, torch.zeros_like(input_))
        self.reset = self.mem_reset(self.mem)
        self._update(self.state_function(input_))
        if self.state_quant:
            self.mem = self.state_quant(self.mem)
        spikes = self.fire(self.mem)
        if self.inhibition:
            first = (self.mem - self.threshold).argmax(1)
            spikes = spikes * nn.functional.one_hot(first, spikes.shape[1])
        if not self.reset_delay:
            self.mem = self.mem - (spikes / self.graded_spikes_factor - self.reset) * self.threshold
        found = (spikes, *(getattr(self, name) for name in self.states if name != "spk"))
        return spikes if self.init_hidden and not self.output else found

    def _update(self, found: Any) -> None:
        self.mem = found

    def _base_sub(self, input_: Tensor) -> Any:
        return self._base_int(input_) - self.reset * self.threshold

    def _base_zero(self, input_: Tensor) -> Any:
        self.mem = (1 - self.reset) * self.mem
        return self._base_int(input_)

    def _base_int(self, input_: Tensor) -> Any:
        return self.beta.clamp(0, 1) * self.mem + input_


class Leaky(_Neuron):
    """mem = beta mem + x - reset threshold."""

    def __init__(self, beta: Any, **options: Any) -> None:
        super().__init__(beta=beta, **options)


class Synaptic(_Neuron):
    """syn = alpha syn + x, mem = beta mem + syn - reset threshold."""

    states = ("syn", "mem")

    def __init__(self, alpha: Any, beta: Any, **options: Any) -> None:
        super().__init__(alpha=alpha, beta=beta, **options)

    def _update(self, found: Any) -> None:
        self.syn, self.mem = found

    def _base_int(self, input_: Tensor) -> Any:
        syn = self.alpha.clamp(0, 1) * self.syn + input_
        return syn, self.beta.clamp(0, 1) * self.mem + syn

    def _base_sub(self, input_: Tensor) -> Any:
        syn, mem = self._base_int(input_)
        return syn, mem - self.reset * self.threshold

    def _base_zero(self, input_: Tensor) -> Any:
        syn, mem = self._base_int(input_)
        return syn, mem - mem * self.reset


for _kind in (_Neuron, Leaky, Synaptic):
    _kind.__module__ = "snntorch._neurons.neurons"
SNNTORCH = SimpleNamespace(Leaky=Leaky, Synaptic=Synaptic)


class Heaviside(torch.autograd.Function):
    """Heaviside step, `u >= 0`, which keeps u for the derivative that a subclass gives it."""

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        return (u >= 0).to(u)


class _Sigmoid(Heaviside):
    """The derivative of a sigmoid of slope 4."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        s = (4 * u).sigmoid()
        return grad * 4 * s * (1 - s)


class Sigmoid(nn.Module):
    """SpikingJelly's default surrogate function."""

    def forward(self, u: Tensor) -> Tensor:
        return _Sigmoid.apply(u)  # type: ignore[no-any-return]


class MemoryModule(nn.Module):
    """States by name as attributes, and the values that a reset gives them."""

    def __init__(self, step_mode: str, **memories: Any) -> None:
        super().__init__()
        self._memories, self._memories_rv, self.step_mode = dict(memories), dict(memories), step_mode

    def supported_step_mode(self) -> tuple[str, ...]:
        return ("s", "m")

    def __getattr__(self, name: str) -> Any:
        memories = self.__dict__.get("_memories", {})
        return memories[name] if name in memories else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        memories = self.__dict__.get("_memories", {})
        if name in memories:
            memories[name] = value
        else:
            super().__setattr__(name, value)

    def reset(self) -> None:
        self._memories.update(self._memories_rv)

    def forward(self, x: Tensor) -> Tensor:
        if self.step_mode == "m":
            return torch.stack([self.single_step_forward(step) for step in x])
        return self.single_step_forward(x)

    def single_step_forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class BaseNode(MemoryModule):
    """Charge, spike, and a reset to a value or by subtraction."""

    def __init__(
        self,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        detach_reset: bool = False,
        step_mode: str = "s",
    ) -> None:
        super().__init__(step_mode, v=0.0 if v_reset is None else v_reset)
        self.v_threshold, self.v_reset, self.detach_reset = v_threshold, v_reset, detach_reset
        self.surrogate_function, self.store_v_seq = Sigmoid(), False

    def charged(self, x: Tensor, v: Any) -> Tensor:
        return v + x  # type: ignore[no-any-return]

    def single_step_forward(self, x: Tensor) -> Tensor:
        v = self.v
        if not isinstance(v, Tensor) or v.shape != x.shape:
            v = torch.full_like(x, float(v) if not isinstance(v, Tensor) else self.v_reset or 0.0)
        h = self.charged(x, v)
        spikes: Tensor = self.surrogate_function(h - self.v_threshold)
        back = spikes.detach() if self.detach_reset else spikes
        self.v = (
            h - back * self.v_threshold if self.v_reset is None else (1.0 - back) * h + back * self.v_reset
        )
        return spikes


class IFNode(BaseNode):
    """h = v + x."""


class LIFNode(BaseNode):
    """h = v + (x - (v - v_reset)) / tau, or with the input not divided."""

    def __init__(self, tau: float = 2.0, decay_input: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.tau, self.decay_input = tau, decay_input

    def charged(self, x: Tensor, v: Any) -> Tensor:
        return self._leaked(x, v, 1.0 / self.tau)

    def _leaked(self, x: Tensor, v: Any, share: Any) -> Tensor:
        rest = 0.0 if self.v_reset is None else self.v_reset
        return v + (x - (v - rest)) * share if self.decay_input else v - (v - rest) * share + x


class ParametricLIFNode(LIFNode):
    """LIFNode with the learned 1 / tau = sigmoid(w)."""

    def __init__(self, init_tau: float = 2.0, **options: Any) -> None:
        super().__init__(**options)
        self.w = nn.Parameter(torch.tensor(-math.log(init_tau - 1.0)))

    def charged(self, x: Tensor, v: Any) -> Tensor:
        return self._leaked(x, v, self.w.sigmoid())


class Dropout(MemoryModule):
    """Dropout whose mask holds until the reset."""

    def __init__(self, p: float = 0.5, step_mode: str = "s") -> None:
        super().__init__(step_mode, mask=None)
        self.p = p

    def single_step_forward(self, x: Tensor) -> Tensor:
        if self.training and self.mask is None:
            self.mask = nn.functional.dropout(torch.ones_like(x), self.p, training=True)
        return x * self.mask if self.training else x


def _layer(base: type[nn.Module], framed: bool) -> type[nn.Module]:
    """A layer of torch in both step modes; `framed` folds steps and samples in mode "m"."""

    def init(self: Any, *args: Any, step_mode: str = "s", **options: Any) -> None:
        base.__init__(self, *args, **options)
        self.step_mode = step_mode

    def forward(self: Any, x: Tensor) -> Tensor:
        if self.step_mode == "s" or not framed:
            return base.forward(self, x)  # type: ignore[attr-defined,no-any-return]
        return base.forward(self, x.flatten(0, 1)).unflatten(0, x.shape[:2])  # type: ignore[attr-defined,no-any-return]

    return type(base.__name__, (base,), {"__init__": init, "forward": forward, "__module__": _LAYERS})


_LAYERS = "spikingjelly.activation_based.layer.stateless_wrapper"
SPIKINGJELLY = SimpleNamespace(
    IFNode=IFNode,
    LIFNode=LIFNode,
    ParametricLIFNode=ParametricLIFNode,
    Dropout=Dropout,
    Linear=_layer(nn.Linear, framed=False),
    Conv2d=_layer(nn.Conv2d, framed=True),
    Flatten=_layer(nn.Flatten, framed=True),
    BatchNorm1d=_layer(nn.BatchNorm1d, framed=True),
)
for _kind in (BaseNode, IFNode, LIFNode, ParametricLIFNode):
    _kind.__module__ = "spikingjelly.activation_based.neuron.lif"
for _kind in (MemoryModule, Dropout):
    _kind.__module__ = "spikingjelly.activation_based.layer.dropout"


class _SuperSpike(torch.autograd.Function):
    """Heaviside step, `u > 0`, with the derivative 1 / (1 + |u|)^2."""

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        return (u > 0).to(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return grad / (u.abs() + 1).square()


class LIFParameters(NamedTuple):
    """Rates per second, potentials, and the surrogate."""

    tau_syn_inv: Tensor = torch.tensor(200.0)
    tau_mem_inv: Tensor = torch.tensor(100.0)
    v_leak: Tensor = torch.tensor(0.0)
    v_th: Tensor = torch.tensor(1.0)
    v_reset: Tensor = torch.tensor(0.0)
    method: str = "super"
    alpha: Tensor = torch.tensor(100.0)


class LIParameters(NamedTuple):
    """Rates per second and the resting potential."""

    tau_syn_inv: Tensor = torch.tensor(200.0)
    tau_mem_inv: Tensor = torch.tensor(100.0)
    v_leak: Tensor = torch.tensor(0.0)


class State(NamedTuple):
    """Potential and current."""

    v: Tensor
    i: Tensor


def lif_step(x: Tensor, state: State, p: Any, dt: float) -> tuple[Tensor, State]:
    i = state.i + x
    v = state.v + dt * p.tau_mem_inv * ((p.v_leak - state.v) + i)
    spikes: Tensor = _SuperSpike.apply(v - p.v_th)
    return spikes, State((1 - spikes) * v + spikes * p.v_reset, i - dt * p.tau_syn_inv * i)


def li_step(x: Tensor, state: State, p: Any, dt: float) -> tuple[Tensor, State]:
    i = state.i + x
    v = state.v + dt * p.tau_mem_inv * (p.v_leak - state.v + i)
    return v, State(v, i - dt * p.tau_syn_inv * i)


class _Cell(nn.Module):
    """A neuron of one step, which gives its state."""

    def __init__(self, activation: Any, p: Any) -> None:
        super().__init__()
        self.activation, self.p, self.dt, self.state_fallback = activation, p, 0.001, self.initial_state

    def initial_state(self, x: Tensor) -> State:
        v = self.p.v_leak.detach().clone().requires_grad_()
        return State(v, torch.zeros(x.shape, dtype=torch.float32))

    def forward(self, input_tensor: Tensor, state: Any = None) -> Any:
        state = self.state_fallback(input_tensor) if state is None else state
        return self.activation(input_tensor, state, self.p, self.dt)


class _Sequence(_Cell):
    """A neuron of a whole sequence."""

    def forward(self, input_tensor: Tensor, state: Any = None) -> Any:
        state = self.state_fallback(input_tensor[0]) if state is None else state
        outputs = []
        for step in input_tensor:
            out, state = self.activation(step, state, self.p, self.dt)
            outputs.append(out)
        return torch.stack(outputs), state


def _norse(name: str, base: type, activation: Any, constants: type) -> type:
    def init(self: Any, p: Any = None) -> None:
        base.__init__(self, activation, constants() if p is None else p)  # type: ignore[misc]

    # The package recognises cells by the class that they come from.
    return type(name, (base,), {"__init__": init, "__module__": "norse.torch.module.lif"})


def _stateful(module: nn.Module) -> bool:
    return "state" in inspect.signature(module.forward).parameters


class Lift(nn.Module):
    """A module over the steps of a sequence."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.lifted_module = module

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.lifted_module(step) for step in x])


class SequentialState(nn.Sequential):
    """Modules one after the other, which hands on states."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*modules)
        self.stateful_layers, self.return_hidden = [*map(_stateful, modules)], False

    def forward(self, input_tensor: Tensor, state: Any = None) -> Any:
        state = [None] * len(self) if state is None else state
        for number, module in enumerate(self):
            if self.stateful_layers[number]:
                input_tensor, state[number] = module(input_tensor, state[number])
            else:
                input_tensor = module(input_tensor)
        return input_tensor, state


_Cell.__name__, _Sequence.__name__ = "SNNCell", "SNN"
for _kind, _place in ((_Cell, "snn"), (_Sequence, "snn"), (Lift, "lift"), (SequentialState, "sequential")):
    _kind.__module__ = f"norse.torch.module.{_place}"
NORSE = SimpleNamespace(
    LIFCell=_norse("LIFCell", _Cell, lif_step, LIFParameters),
    LICell=_norse("LICell", _Cell, li_step, LIParameters),
    LIF=_norse("LIF", _Sequence, lif_step, LIFParameters),
    LI=_norse("LI", _Sequence, li_step, LIParameters),
    Lift=Lift,
    SequentialState=SequentialState,
)
STANDINS = {"snntorch": SNNTORCH, "spikingjelly": SPIKINGJELLY, "norse": NORSE}
