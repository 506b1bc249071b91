"""Modules over sequences `[T, N, ...]` that nets read from NIR graphs need beside the library's own."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.exchange.structure.cells import Cell
from snnlib.neurons import Dynamics, Neuron, SpikingNeuron
from snnlib.neurons.base import Params, State
from snnlib.neurons.fields import Constant, constant
from snnlib.surrogate import SurrogateLike


class Elementwise(nn.Module):
    """A neuron with constants of every single element, run over `[T, N, elements]`.

    Args:
        neuron: its constants have one value per element.
    """

    def __init__(self, neuron: Neuron) -> None:
        super().__init__()
        self.neuron = neuron

    def forward(self, x: Tensor) -> Tensor:
        """Spikes or potentials of the input's shape."""
        return self.run(x)[0]

    def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """`forward` from a state."""
        out = self.neuron.run(x.flatten(2), state)
        return out.value.view(x.shape), out.state


class GraphNeuron(SpikingNeuron):
    """Neurons of NIR with any resistance, resting potential and reset value::

        i <- decay_s i + gain_s x;   h <- decay v + gain i + offset;   v <- reset where h > threshold, else h

    Args:
        cell: the constants.
        surrogate: surrogate gradient; None takes the library's default.
    """

    state_names = ("v", "i")
    decay: Constant = constant(default=0.0)
    gain: Constant = constant(default=1.0)
    offset: Constant = constant(default=0.0)
    decay_s: Constant = constant(default=0.0)
    gain_s: Constant = constant(default=1.0)
    reset_to: Constant = constant(default=0.0)
    rest: Constant = constant(default=0.0)

    def __init__(self, cell: Cell, surrogate: SurrogateLike | None) -> None:
        assert cell.threshold is not None and cell.reset_value is not None
        zero, one = np.zeros(()), np.ones(())
        values = {
            "decay": cell.decay,
            "gain": cell.gain,
            "offset": cell.offset,
            "decay_s": zero if cell.decay_s is None else cell.decay_s,
            "gain_s": one if cell.gain_s is None else cell.gain_s,
            "reset_to": cell.reset_value,
            "rest": cell.start,
        }
        constants = {name: torch.from_numpy(np.array(value)) for name, value in values.items()}
        self.build({**constants, "surrogate": surrogate, "compare": ">"})
        # NIR allows any threshold.
        self.threshold = torch.from_numpy(np.array(cell.threshold))

    def initial_state(self, current: Tensor, params: Params) -> State:
        """The membrane starts at rest."""
        return params["rest"].expand_as(current).clone(), torch.zeros_like(current)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        i = params["decay_s"] * state[1] + params["gain_s"] * current
        h = params["decay"] * state[0] + params["gain"] * i + params["offset"]
        spikes = self.fire(h, params)
        s = spikes.detach()
        return spikes, (s * params["reset_to"] + (1 - s) * h, i)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Two states; see `Dynamics`."""
        p = params
        return self.with_reset(
            params,
            a=[[p["decay"], p["gain"] * p["decay_s"]], [0.0, p["decay_s"]]],
            b=[p["gain"] * p["gain_s"], p["gain_s"]],
            d=[p["offset"]],
            offset=[p["reset_to"], 0.0],
        )
