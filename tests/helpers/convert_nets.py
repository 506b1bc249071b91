"""Nets of other libraries in every way in which `convert` is given them, with places for what may surround a module.

Weights are multiples of 1/64 and inputs are spikes, whose sums are exact in float32.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

STEPS, SAMPLES, WIDTH = 6, 5, 8
# Samples are frames of [1, 6, 6] in nets with a convolution, whose neurons see [4, 4, 4].
FRAME, CHANNELS = 6, 4
# Ways in, by library: its step mode, if it has one, and how a net is called.
FORMS: dict[str, tuple[str, ...]] = {
    "snntorch": ("chain", "inside", "inside hidden", "outside", "states"),
    "spikingjelly": ("chain s", "chain m", "sequence m", "inside s", "outside s"),
    "norse": ("chain", "chain m", "sequence m", "inside", "states"),
}
# Changes a current, as a function of the net, the current, and the numbers of samples, steps and the step.
Inline = Callable[[Any, Tensor, int, int, int], Tensor]


@dataclass
class Plan:
    """A net to be.

    Args:
        library: the library.
        form: the way in, as in `FORMS`.
        neurons: makes both neurons of a kit.
        conv: whether a convolution stands in front of the first.
        inline: functions between the first layer and the first neuron.
        as_module: whether these are a module of the net.
        contexts: contexts by place: "block", "neuron", "between", "step", and patched into the forward of a module.
        carry: changes the states of the first neuron before each step but the first.
        output: what a loop gives, of the net, its spikes and its potentials.
        changes: changes of the net that was made, with its parts by name.
        double: whether the net computes in float64.
        names: what surrounds the modules.
        x: makes the input of spikes.
        around: entered before the net is converted, and left when both nets have run.
    """

    library: str
    form: str
    neurons: Callable[[Any], tuple[nn.Module, nn.Module]] = lambda kit: (kit.neuron(), kit.neuron())
    conv: bool = False
    inline: list[Inline] = field(default_factory=list)
    as_module: bool = False
    contexts: dict[str, Callable[[], AbstractContextManager[Any]]] = field(default_factory=dict)
    carry: Callable[[Any, Any, int], Any] | None = None
    output: Callable[[Any, list[Tensor], list[Any]], Any] | None = None
    changes: list[Callable[[dict[str, Any], Any], Any]] = field(default_factory=list)
    double: bool = False
    names: list[str] = field(default_factory=list)
    x: Callable[[Tensor], Tensor] = lambda x: x
    around: Callable[[], AbstractContextManager[Any]] = ExitStack

    @property
    def kinds(self) -> set[str]:
        """Returns the kinds of surroundings."""
        return {name.partition(":")[0] for name in self.names}

    @property
    def whole(self) -> bool:
        """Returns whether the net's modules see whole sequences."""
        return self.form.endswith(" m")

    @property
    def chain(self) -> bool:
        """Returns whether the net is a chain."""
        return self.form.startswith("chain")

    @property
    def loops(self) -> bool:
        """Returns whether the net is called step by step."""
        return not self.whole and (self.chain or self.form.startswith(("outside", "states")))

    @property
    def explicit(self) -> bool:
        """Returns whether the code of the net hands states to neurons."""
        hidden = self.library == "spikingjelly" or (
            self.library == "snntorch" and self.form in ("chain", "inside hidden", "outside")
        )
        return not (self.chain or hidden)


def _register_statistics(module: nn.Module) -> None:
    """Add the buffers that some functions change."""
    module.register_buffer("mean", torch.zeros(WIDTH))
    module.register_buffer("variance", torch.ones(WIDTH))


class Between(nn.Module):
    """Functions of a current as a module."""

    def __init__(self, functions: list[Inline], whole: bool) -> None:
        super().__init__()
        self.functions, self.whole = functions, whole
        _register_statistics(self)

    def forward(self, current: Tensor) -> Tensor:
        for function in self.functions:
            steps, samples = (current.shape[0], current.shape[1]) if self.whole else (STEPS, current.shape[0])
            current = function(self, current, samples, steps, 0)
        return current


class Net(nn.Module):
    """Two layers with neurons, called as a plan says."""

    def __init__(self, plan: Plan, parts: dict[str, nn.Module], kit: Any) -> None:
        super().__init__()
        self.plan, self.kit = [plan], [kit]
        self.block = nn.Sequential(OrderedDict(fc1=parts["fc1"], mid=parts["mid"]))
        self.n1, self.flat = parts["n1"], parts["flat"]
        self.fc2, self.n2 = parts["fc2"], parts["n2"]
        self.gain, self.bump = nn.Parameter(torch.ones(())), torch.full((1,), 0.25)
        _register_statistics(self)

    def _within(self, place: str) -> AbstractContextManager[Any]:
        return self.plan[0].contexts.get(place, ExitStack)()

    def step(
        self, x: Tensor, states: list[Any], samples: int, steps: int, t: int
    ) -> tuple[Tensor, list[Any]]:
        """Spikes of a step or of a whole sequence, and states."""
        plan, kit = self.plan[0], self.kit[0]
        with self._within("step"):
            with self._within("block"):
                current = self.block(x)
            with self._within("between"):
                if not plan.as_module:
                    for function in plan.inline:
                        current = function(self, current, samples, steps, t)
                current = current * self.gain
            if plan.carry is not None and t:
                states[0] = plan.carry(self, states[0], t)
            with self._within("neuron"):
                spikes, states[0] = kit.call(self.n1, current, states[0])
            out, states[1] = kit.call(self.n2, self.fc2(self.flat(spikes)), states[1])
        return out, states

    def forward(self, x: Tensor, *given: Any) -> Any:
        plan, kit = self.plan[0], self.kit[0]
        if plan.form.startswith("inside"):
            states: list[Any] = kit.start(self.n1, self.n2, plan.explicit)
            spikes, potentials = [], []
            for t in range(x.shape[0]):
                out, states = self.step(x[t], states, x.shape[1], x.shape[0], t)
                spikes.append(out)
                if plan.output is not None:
                    potentials.append(kit.potential(self.n2, states[1]))
            return torch.stack(spikes) if plan.output is None else plan.output(self, spikes, potentials)
        states = kit.given(given)
        samples, steps = (x.shape[1], x.shape[0]) if plan.whole else (x.shape[0], STEPS)
        out, states = self.step(x, states, samples, steps, 0)
        return kit.answer(out, states) if plan.form == "states" else out


def build(plan: Plan, kit: Any) -> nn.Module:
    """The net of a plan; the same for the same plan."""
    torch.manual_seed(0)
    kit.plan = plan
    first, second = plan.neurons(kit)
    mid = (
        Between(plan.inline, plan.whole) if plan.as_module or (plan.chain and plan.inline) else nn.Identity()
    )
    flat = kit.flatten() if plan.conv else nn.Identity()
    parts = {
        "fc1": kit.conv(1, CHANNELS, 3) if plan.conv else kit.linear(WIDTH, WIDTH),
        "mid": mid,
        "n1": first,
        "flat": flat,
        "fc2": kit.linear(CHANNELS**3 if plan.conv else WIDTH, WIDTH),
        "n2": second,
    }
    with torch.no_grad():
        for name in ("fc1", "fc2"):
            scale = 256 if plan.conv else 64
            for parameter in parts[name].parameters():
                # Few input neurons of the second layer are silent, most of a convolution's fire.
                parameter.copy_(torch.randint(-16, 64, parameter.shape) / scale)
    if plan.chain:
        block = nn.Sequential(OrderedDict(fc1=parts["fc1"], mid=parts["mid"]))
        net = kit.chain(
            block=block, n1=parts["n1"], tail=kit.chain(flat=flat, fc2=parts["fc2"], n2=parts["n2"])
        )
        parts |= {"block": block, "tail": [*net.children()][-1]}
    else:
        net = Net(plan, parts, kit)
        parts["block"] = net.block
    kit.prepare(net)
    for change in plan.changes:
        change({**parts, "net": net}, kit)
    for place in ("fc1", "n1", "block", "net"):
        if f"patched {place}" in plan.contexts:
            module = net if place == "net" else parts[place]
            context: Any = plan.contexts[f"patched {place}"]
            module.forward = context()(module.forward)  # type: ignore[method-assign]
    return kit.double(net) if plan.double else net  # type: ignore[no-any-return]


def inputs(plan: Plan, steps: int = STEPS, samples: int = SAMPLES, seed: int = 1) -> Tensor:
    """Spikes for the net of a plan."""
    shape = (1, FRAME, FRAME) if plan.conv else (WIDTH,)
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(steps, samples, *shape, generator=generator) < 0.5).float()
    return plan.x(x.double() if plan.double else x)


def run(plan: Plan, kit: Any, net: nn.Module, x: Tensor) -> Any:
    """Answers of the original as its library documents: from rest, over the whole sequence."""
    kit.reset(net)
    if not plan.loops:
        out = net(x)
        return (
            out[0]
            if plan.library == "norse" and isinstance(out, tuple) and plan.whole and plan.chain
            else out
        )
    outputs, state = [], ()
    for step in x:
        out = net(step, *state)
        if plan.library == "norse":
            out, state = out[0], (out[1],)
        elif plan.form == "states":
            state = out[1:]
        outputs.append(out)
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), outputs[0], *outputs[1:])
