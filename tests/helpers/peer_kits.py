"""Layers and neurons of snnTorch, SpikingJelly and Norse, from the libraries or from stand-ins for them."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn


class SnnTorch:
    """Layers are torch's; neurons get states as arguments or keep them."""

    library = "snntorch"

    def __init__(self, package: Any = None) -> None:
        self.package = package or importlib.import_module("snntorch")
        self.plan: Any = None

    def neuron(self, kind: str = "Leaky", **options: Any) -> Any:
        """A neuron; constants that are no argument are set afterwards."""
        defaults: dict[str, dict[str, Any]] = {
            "Leaky": {"beta": 0.75},
            "Synaptic": {"alpha": 0.5, "beta": 0.75},
            "Alpha": {"alpha": 0.75, "beta": 0.5, "threshold": 0.25},
            "Lapicque": {"beta": 0.75},
            "RLeaky": {"beta": 0.75, "all_to_all": True, "linear_features": 8},
        }
        hidden = not self.plan.explicit
        made = getattr(self.package, kind)(**{**defaults[kind], "init_hidden": hidden, **options})
        for parameter in getattr(made, "recurrent", nn.Identity()).parameters():
            parameter.data = torch.randint(-16, 16, parameter.shape) / 64
        return made

    def linear(self, *sizes: int) -> nn.Module:
        """A linear layer."""
        return nn.Linear(*sizes)

    def conv(self, *sizes: int) -> nn.Module:
        """A convolution."""
        return nn.Conv2d(*sizes)

    def flatten(self) -> nn.Module:
        """Frames as vectors."""
        return nn.Flatten()

    def norm(self, features: int) -> nn.Module:
        """Batch normalisation of vectors."""
        return nn.BatchNorm1d(features)

    def dropout(self, p: float) -> nn.Module:
        """Dropout."""
        return nn.Dropout(p)

    def chain(self, **modules: nn.Module) -> Any:
        """Modules one after the other."""
        return nn.Sequential(OrderedDict(modules))

    def prepare(self, net: nn.Module) -> None:
        """Nothing: modes are arguments."""

    def double(self, net: nn.Module) -> nn.Module:
        """The net in float64."""
        return net.double()

    def reset(self, net: nn.Module) -> None:
        """States at their start."""
        for module in net.modules():
            for name in ("mem", "syn", "syn_exc", "syn_inh", "spk"):
                if hasattr(module, "reset_mem") and isinstance(getattr(module, name, None), Tensor):
                    setattr(module, name, torch.zeros(0, dtype=getattr(module, name).dtype))

    def start(self, n1: Any, n2: Any, explicit: bool) -> list[Any]:
        """States before the first step of a loop."""
        starts = [n1.reset_mem(), n2.reset_mem()]
        return [s if isinstance(s, tuple) else (s,) for s in starts] if explicit else [(), ()]

    def call(self, neuron: Any, current: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Spikes and states of a step."""
        out = neuron(current, *state)
        # Recurrent neurons are given their spikes, too.
        return (out[0], out[not hasattr(neuron, "recurrent") :]) if isinstance(out, tuple) else (out, state)

    def potential(self, neuron: Any, state: Any) -> Tensor:
        """The membrane potential after a step."""
        return state[-1] if state else neuron.mem

    def given(self, states: Any) -> list[Any]:
        """States that a net of one step was given."""
        half = -(-len(states) // 2)
        return [states[:half], states[half:]]

    def answer(self, spikes: Tensor, states: list[Any]) -> Any:
        """Result of a net of one step with states."""
        return spikes, *states[0], *states[1]


class SpikingJelly(SnnTorch):
    """Modules have a step mode, and neurons keep their states."""

    library = "spikingjelly"

    def __init__(self, package: Any = None) -> None:
        base = "spikingjelly.activation_based"
        self.neurons = package or importlib.import_module(f"{base}.neuron")
        self.layers = package or importlib.import_module(f"{base}.layer")
        self.plan = None

    @property
    def _mode(self) -> str:
        return "m" if self.plan.whole else "s"

    def neuron(self, kind: str = "LIFNode", **options: Any) -> Any:
        return getattr(self.neurons, kind)(**{"step_mode": self._mode, **options})

    def linear(self, *sizes: int) -> nn.Module:
        return self.layers.Linear(*sizes, step_mode=self._mode)  # type: ignore[no-any-return]

    def conv(self, *sizes: int) -> nn.Module:
        return self.layers.Conv2d(*sizes, step_mode=self._mode)  # type: ignore[no-any-return]

    def flatten(self) -> nn.Module:
        return self.layers.Flatten(step_mode=self._mode)  # type: ignore[no-any-return]

    def norm(self, features: int) -> nn.Module:
        return self.layers.BatchNorm1d(features, step_mode=self._mode)  # type: ignore[no-any-return]

    def dropout(self, p: float) -> nn.Module:
        return self.layers.Dropout(p, step_mode=self._mode)  # type: ignore[no-any-return]

    def reset(self, net: nn.Module) -> None:
        for module in net.modules():
            if hasattr(module, "reset"):
                module.reset()  # type: ignore[operator]

    def start(self, n1: Any, n2: Any, explicit: bool) -> list[Any]:
        return [(), ()]

    def potential(self, neuron: Any, state: Any) -> Tensor:
        return neuron.v  # type: ignore[no-any-return]


class Norse(SnnTorch):
    """Neurons give and take states, chains too; classes without Cell take sequences."""

    library = "norse"

    def __init__(self, package: Any = None) -> None:
        self.package = package or importlib.import_module("norse.torch")
        self.plan = None

    def neuron(self, kind: str = "LIF", **constants: Any) -> Any:
        cell = getattr(self.package, kind if self.plan.whole else f"{kind}Cell")
        numbers = {"tau_mem_inv": 250.0, "tau_syn_inv": 500.0, "alpha": 100.0}
        p = cell().p
        numbers = {name: value for name, value in numbers.items() if name in p._fields} | constants
        tensors = {n: v if isinstance(v, Tensor | str) else torch.as_tensor(v) for n, v in numbers.items()}
        return cell(p=p._replace(**tensors))

    def linear(self, *sizes: int) -> nn.Module:
        return self._lifted(nn.Linear(*sizes))

    def conv(self, *sizes: int) -> nn.Module:
        return self._lifted(nn.Conv2d(*sizes))

    def flatten(self) -> nn.Module:
        return nn.Flatten(2 if self.plan.whole else 1)

    def norm(self, features: int) -> nn.Module:
        return self._lifted(nn.BatchNorm1d(features))

    def _lifted(self, layer: nn.Module) -> nn.Module:
        return self.package.Lift(layer) if self.plan.whole else layer  # type: ignore[no-any-return]

    def chain(self, **modules: nn.Module) -> Any:
        return self.package.SequentialState(*modules.values())

    def double(self, net: nn.Module) -> nn.Module:
        for module in net.modules():
            if hasattr(module, "p") and hasattr(module.p, "_replace"):
                p: Any = module.p
                tensors = {n: v.double() for n, v in p._asdict().items() if isinstance(v, Tensor)}
                module.p = p._replace(**tensors)
        return net.double()

    def reset(self, net: nn.Module) -> None:
        """Nothing: states are arguments."""

    def start(self, n1: Any, n2: Any, explicit: bool) -> list[Any]:
        return [None, None]

    def call(self, neuron: Any, current: Tensor, state: Any) -> tuple[Tensor, Any]:
        return neuron(current, state)  # type: ignore[no-any-return]

    def potential(self, neuron: Any, state: Any) -> Tensor:
        return state.v  # type: ignore[no-any-return]

    def given(self, states: Any) -> list[Any]:
        return [*states[0]] if states else [None, None]

    def answer(self, spikes: Tensor, states: list[Any]) -> Any:
        return spikes, states


KITS = {"snntorch": SnnTorch, "spikingjelly": SpikingJelly, "norse": Norse}
