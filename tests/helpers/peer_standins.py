"""Neurons with the names and attributes of other libraries', for tests of what is made of them where none is installed.

Written from the libraries' equations (docs/neurons.md). test_convert_peers.py runs the libraries themselves.
"""

from typing import Any

import torch
from torch import Tensor, nn


class _Spike(torch.autograd.Function):
    """Heaviside step, `u > 0` or `u >= 0`, with the derivative of snnTorch's ATan(2)."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, strict: bool) -> Tensor:
        ctx.save_for_backward(u)
        # snnTorch's spikes are float32 for potentials of any type.
        return (u > 0).float() if strict else (u >= 0).to(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors
        return grad / (1 + (torch.pi * u) ** 2), None


def spike(u: Tensor) -> Tensor:
    return _Spike.apply(u, True)


def spike_at(u: Tensor) -> Tensor:
    return _Spike.apply(u, False)


class SpikingNeuron(nn.Module):
    """Base class of snnTorch's neurons."""


class Leaky(SpikingNeuron):
    """mem = beta mem + x - reset threshold, with the reset of the last step's spike."""

    def __init__(
        self, beta: float, reset: str = "subtract", hidden: bool = False, learn: bool = False
    ) -> None:
        super().__init__()
        self.reset_mechanism, self.init_hidden, self.output = reset, hidden, False
        self.spike_grad, self.inhibition, self.state_quant, self.reset_delay = spike, False, False, True
        self.graded_spikes_factor = torch.tensor(1.0)
        self.beta = nn.Parameter(torch.tensor(beta)) if learn else torch.tensor(beta)
        self.register_buffer("threshold", torch.tensor(1.0))
        self.register_buffer("mem", torch.zeros(0), persistent=False)

    def reset_mem(self) -> Tensor:
        self.mem = torch.zeros_like(self.mem)
        return self.mem

    def feedback(self) -> Tensor | float:
        return 0.0

    def forward(self, x: Tensor, mem: Tensor | None = None) -> Any:
        if mem is not None:
            self.mem = mem
        if self.mem.shape != x.shape:
            self.mem = torch.zeros_like(x)
        reset = self.spike_grad(self.mem - self.threshold).detach()
        if self.reset_mechanism == "zero":
            self.mem = (1 - reset) * self.mem
        self.mem = self.beta.clamp(0, 1) * self.mem + x + self.feedback()
        if self.reset_mechanism == "subtract":
            self.mem = self.mem - reset * self.threshold
        spikes = self.spike_grad(self.mem - self.threshold)
        return spikes if self.init_hidden else (spikes, self.mem)


class RLeaky(Leaky):
    """Leaky with `recurrent(spk)` added."""

    def __init__(self, beta: float, features: int) -> None:
        super().__init__(beta)
        self.recurrent = nn.Linear(features, features)
        self.spk = torch.zeros(0)

    def feedback(self) -> Tensor | float:
        return self.recurrent(self.spk)

    def forward(self, x: Tensor, spk: Tensor | None = None, mem: Tensor | None = None) -> Any:
        self.spk = torch.zeros_like(x) if spk is None or spk.shape != x.shape else spk
        return super().forward(x, mem)


class Rare(Leaky):
    """A neuron that nobody knows."""


for kind in (SpikingNeuron, Leaky, RLeaky, Rare):
    kind.__module__ = "snntorch._neurons.neurons"


class BaseNode(nn.Module):
    """Base class of SpikingJelly's neurons."""


class LIFNode(BaseNode):
    """h = v + (x - (v - v_reset)) / tau, reset to v_reset, gradient through the reset."""

    def __init__(self, tau: float = 2.0, step_mode: str = "s") -> None:
        super().__init__()
        self.tau, self.decay_input, self.v_threshold, self.v_reset = tau, True, 1.0, 0.0
        self.detach_reset, self.surrogate_function, self.step_mode, self.v = False, spike_at, step_mode, 0.0

    def reset(self) -> None:
        self.v = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.step(now) for now in x]) if self.step_mode == "m" else self.step(x)

    def step(self, x: Tensor) -> Tensor:
        h = self.v + (x - (self.v - self.v_reset)) / self.tau
        spikes = self.surrogate_function(h - self.v_threshold)
        self.v = (1 - spikes) * h + spikes * self.v_reset
        return spikes


class Conv2d(nn.Conv2d):
    """A convolution over sequences, in step mode "m"."""

    step_mode = "m"

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class MemoryModule(nn.Module):
    """SpikingJelly's base class of modules with states, by name, and their values after a reset."""

    def __init__(self, step_mode: str = "s", **memories: Any) -> None:
        super().__init__()
        self._memories, self._memories_rv, self.step_mode = dict(memories), dict(memories), step_mode

    def reset(self) -> None:
        self._memories.update(self._memories_rv)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.step(now) for now in x]) if self.step_mode == "m" else self.step(x)


class SynapseFilter(MemoryModule):
    """i = i - (1 - x) i / tau + x."""

    def __init__(self, tau: float, step_mode: str = "s") -> None:
        super().__init__(step_mode, out_i=0.0)
        self.w = nn.Parameter(-torch.tensor(tau - 1.0).log())

    def step(self, x: Tensor) -> Tensor:
        i = self._memories["out_i"]
        self._memories["out_i"] = i = i - (1 - x) * i * self.w.sigmoid() + x
        return i


class QIFNode(MemoryModule, BaseNode):
    """h = v + (x + a0 (v - v_rest) (v - v_c)) / tau, a spike where h reaches 1, a reset to -0.1."""

    def __init__(self, step_mode: str = "s") -> None:
        super().__init__(step_mode, v=-0.1)
        self.surrogate_function = spike_at

    def step(self, x: Tensor) -> Tensor:
        v = self._memories["v"]
        h = v + (x + v * (v - 0.8)) / 2.0
        spikes = self.surrogate_function(h - 1.0)
        self._memories["v"] = (1 - spikes) * h - 0.1 * spikes
        return spikes


class GatedLIFNode(MemoryModule):
    """A neuron that is no `BaseNode`; here with one state and one parameter."""

    def __init__(self) -> None:
        super().__init__("m", v=0.0)
        self.tau = nn.Parameter(torch.tensor(0.5))

    def step(self, x: Tensor) -> Tensor:
        self._memories["v"] = v = self.tau * self._memories["v"] + x
        return spike_at(v - 1.0)


class NonSpikingLIFNode(nn.Module):
    """v = v + (x - v) / tau from 0 on, as a list of all steps; it knows whole sequences alone."""

    def supported_step_mode(self) -> tuple[str, ...]:
        return ("m",)

    def forward(self, x: Tensor) -> list[Tensor]:
        v, out = torch.zeros_like(x[0]), []
        for now in x:
            v = v + (now - v) / 2.0
            out.append(v)
        return out


class Linear(nn.Linear):
    """A linear layer, which is the same in both step modes."""

    step_mode = "m"


class LeakyParallel(nn.Module):
    """snnTorch's neuron over whole sequences, here with a running sum for its membrane."""

    def forward(self, x: Tensor) -> Tensor:
        return spike(x.cumsum(0) - 1.0)


LeakyParallel.__module__ = "snntorch._neurons.leakyparallel"
for node in (BaseNode, LIFNode, QIFNode, GatedLIFNode, NonSpikingLIFNode):
    node.__module__ = "spikingjelly.activation_based.neuron.lif"
for layer in (Conv2d, Linear, SynapseFilter):
    layer.__module__ = "spikingjelly.activation_based.layer.stateless_wrapper"
