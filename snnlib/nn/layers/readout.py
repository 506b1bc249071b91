"""SRMReadout: output neurons that integrate and never fire."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from snnlib.checks import SRM_HINTS, check_count, check_no_state, first_state
from snnlib.functional.operators import FullyConnected
from snnlib.functional.potential import srm_potential_stream
from snnlib.neurons import Output
from snnlib.neurons.models.srm import check_steps, response_std
from snnlib.neurons.training_watch import cannot_watch, watch_single_steps
from snnlib.nn.layers.spiking_layer import EXPECTED_INPUT_RATE
from snnlib.nn.weights.gain import WeightWithGain
from snnlib.ops.sequence_layout import frames_of, sequence_of
from snnlib.sequences.lengths import run_with_lengths
from snnlib.sequences.time_first import runs_time_first

__all__ = ["SRMReadout"]


class SRMReadout(WeightWithGain):
    """Membrane potentials of fully connected SRM neurons without a threshold: `[T, N, in]` to `[T, N, out]`.

    With `e_x = 1 - 1/tau_x` and no reset::

        I = x W^T,   u <- e_m u + (s + I) / tau_s,   s <- e_s (s + I)        u[t] = sum_{k <= t} eps[t - k] I[k]

    Use it with losses on the output of every step (`losses.tet_loss`), or for outputs that cannot fall silent.
    Classify by the mean over time, or at each step if steps have labels.

    The potential is linear in x and W and has ordinary gradients, `dL/dx[k] = sum_{t >= k} eps[t - k] dL/du[t] W`. At
    the spikes of the layer below this gradient is `dL/ds`, "more spikes at this step": the exact effect of one more
    spike on the potentials. It credits the presence of spikes, not their time, so unlike spiking layers the readout
    does not preserve the sum of gradients.

    Args:
        in_features: inputs; frames with axes as in `SRMLinear`.
        out_features: output neurons.
        tau_m: membrane time constant in time steps, >= 1. Default 5.
        tau_s: synaptic time constant in time steps, >= 1. Default 3.
        batch_first: whether sequences are `[N, T, ...]`. Default False.
        device: device of the weight.
        dtype: dtype of the weight.

    Potentials have the dtype of x. `readout.run(x, state)` continues from a state, and `snnlib.Stream(readout)` from
    chunk to chunk.

    Raises:
        ValueError: an option out of its range, or a sequence that does not fit; the message names it.
        TypeError: a sequence that is not floating or not of the weight's dtype.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(100, 50), snnlib.SRMReadout(50, 10))
    >>> potential = net((torch.rand(20, 3, 100) < 0.1).float())
    >>> potential.shape, potential.mean(0).argmax(1).shape
    (torch.Size([20, 3, 10]), torch.Size([3]))
    """

    option_hints = SRM_HINTS
    stored_numbers: ClassVar[Mapping[str, str]] = {"neuron.tau_m": "tau_m", "neuron.tau_s": "tau_s"}

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        tau_m: float = 5.0,
        tau_s: float = 3.0,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("in_features", in_features)
        check_count("out_features", out_features)
        self.in_features, self.out_features = in_features, out_features
        self.tau_m, self.tau_s = check_steps("tau_m", tau_m), check_steps("tau_s", tau_s)
        self.batch_first = batch_first
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.register_gain()
        # Training calls in a row with one step.
        self._single_steps = 0
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight so that a sequence at 5 % input rate gives potentials of about 1, as in `SRMLayer`."""
        deviation = response_std(self.tau_m, self.tau_s)
        bound = math.sqrt(3) / (math.sqrt(self.in_features * EXPECTED_INPUT_RATE) * deviation)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.ones_(self.gain)

    @runs_time_first
    def forward(self, x: Tensor, *state: Any) -> Tensor:
        """Returns the potentials of a sequence from the initial state."""
        check_no_state(self, state)
        potentials = self._potentials(x, self.effective_weight, None)[0]
        if not cannot_watch(x):
            self._single_steps = watch_single_steps(self, x, self._single_steps)
        return potentials

    @runs_time_first
    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Runs a sequence from a state `([2, N, out],)` of u and s; returns potentials and the last state.

        With `lengths` `[N]`, the number of steps of each sample, as in `SpikingConv2d.run`.
        """
        if lengths is not None:
            return Output(*run_with_lengths(self._run, x, state, lengths))
        return self._run(x, state)

    def _run(self, x: Tensor, state: tuple[Tensor, ...] | None) -> Output:
        potentials, final = self._potentials(x, self.effective_weight, first_state(state))
        return Output(potentials, (final,))

    @runs_time_first
    def potentials_of(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns potentials with another weight in place of the layer's."""
        return self._potentials(x, weight, None)[0]

    def _potentials(self, x: Tensor, weight: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        FullyConnected().check(x, weight)
        current = sequence_of(FullyConnected().forward(frames_of(x, x), weight), x)
        out = srm_potential_stream(current, state, tau_m=self.tau_m, tau_s=self.tau_s)
        return out.value.to(x.dtype), out.state

    def load_numbers(self, numbers: Mapping[str, float]) -> None:
        """Sets the time constants that a file stores."""
        for key, value in numbers.items():
            name = self.stored_numbers[key]
            setattr(self, name, check_steps(name, value))

    def extra_repr(self) -> str:
        """Shape and constants."""
        text = f"{self.in_features}, {self.out_features}, tau_m={self.tau_m:g}, tau_s={self.tau_s:g}"
        return text + (", batch_first=True" if self.batch_first else "")
