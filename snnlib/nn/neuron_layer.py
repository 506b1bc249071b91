"""What layers with neurons behind a weight have in common, whatever the neuron: what tools for nets rely on."""

from __future__ import annotations

from torch import Tensor

from snnlib.functional.operators import LinearOperator
from snnlib.nn.first_batches import FirstBatches
from snnlib.nn.gain import WeightWithGain


class NeuronLayer(WeightWithGain):
    """A linear operator with neurons behind it: `spikes = fire(operator(x, effective_weight))`."""

    operator: LinearOperator
    batch_first: bool
    first_batches: FirstBatches
    # Window of the average pooling that `snnlib.fuse` made part of the layer.
    pool: tuple[int, int] = (1, 1)

    @property
    def learns_when_silent(self) -> bool:
        """Whether neurons get a gradient where they do not fire, as with a surrogate gradient."""
        return False

    def input_current(self, x: Tensor, weight: Tensor) -> Tensor:
        """Input current `[T, N, C, ...]` for a spike tensor, with a weight that is given."""
        folded = self.operator.forward(x.flatten(0, 1), weight)
        return folded.reshape(*x.shape[:2], *folded.shape[1:])

    def fire(self, current: Tensor) -> Tensor:
        """Spikes of the neurons alone for an input current `[T, N, C, ...]`."""
        raise NotImplementedError

    def free_potential(self, current: Tensor) -> Tensor:
        """Membrane potential at every step, in units of the threshold, of neurons that never fire."""
        raise NotImplementedError

    def sure_weight(self) -> float:
        """A weight with which a single event makes a neuron fire."""
        raise NotImplementedError
