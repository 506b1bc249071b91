"""Delays in a list of synapses: each goes with its synapse, whatever the order of the list."""

import copy
from collections.abc import Callable

import pytest
import torch

import snnlib
from snnlib import Sparse, neurons, surrogate
from snnlib.nn.recurrent.recurrent_layer import RecurrentLayer

TRIANGLE = surrogate.Triangle(width=0.5, height=0.4)


def _listed(delay: float, recurrent_delays: snnlib.Delays) -> RecurrentLayer:
    listed = Sparse.from_coo([0], [1], delays=[delay])  # type: ignore[arg-type]
    return RecurrentLayer(2, 2, recurrent_connections=listed, recurrent_delays=recurrent_delays)


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("given", [None, snnlib.Delays(9, per="connection")])
def test_delays_go_with_their_synapses(given: snnlib.Delays | None, summed: bool) -> None:
    """Against a full matrix of delays; in the list, each synapse twice if `summed`."""
    generator = torch.Generator().manual_seed(0)
    exists = torch.rand(7, 7, generator=generator) < 0.5
    full = torch.randint(0, 9, (7, 7), generator=generator).float()
    weights = torch.randint(1, 5, (7, 7), generator=generator) / 4
    targets, sources = exists.nonzero(as_tuple=True)
    order = torch.randperm(len(targets), generator=generator).repeat(1 + summed)
    listed = sources[order], targets[order], weights[exists][order], full[exists][order]
    connections = Sparse.from_coo(*listed[:3], delays=listed[3], duplicates="sum" if summed else "error")
    neuron = neurons.LIF(surrogate=TRIANGLE)
    rnn = snnlib.SpikingRNN(
        3, 7, 2, neuron, recurrent_connections=connections, recurrent_delays=copy.deepcopy(given)
    )
    dense = snnlib.SpikingRNN(3, 7, 2, neuron, recurrent_delays=snnlib.Delays(9, per="connection"))
    x = (torch.rand(40, 2, 3, generator=generator) < 0.5).float()
    with torch.no_grad():
        for one, other in zip(rnn.layers, dense.layers, strict=True):
            assert isinstance(one, RecurrentLayer) and isinstance(other, RecurrentLayer)
            assert one.recurrent_delays is not None and other.recurrent_delays is not None
            other.weight.copy_(one.weight)
            other.recurrent_weight.copy_(weights * exists * (1 + summed))
            other.recurrent_delays.steps.copy_(full)
            assert one.recurrent_delays.max_delay == (int(full[exists].max()) if given is None else 9)
    spikes = rnn(x)
    assert spikes.sum() > 0
    assert torch.equal(spikes, dense(x))


def test_a_spike_arrives_after_the_delay_of_its_synapse() -> None:
    connections = Sparse.from_coo([2, 0, 1], [0, 1, 2], [2.0, 3.0, 4.0], delays=[9.0, 1.0, 5.0])
    rnn = snnlib.SpikingRNN(3, 3, neuron=neurons.IF(surrogate=TRIANGLE), recurrent_connections=connections)
    with torch.no_grad():
        rnn.layers[0].weight.copy_(torch.eye(3) * 2)
    x = torch.zeros(14, 1, 3)
    x[0, 0, 2] = 1
    assert rnn(x)[:, 0].nonzero().tolist() == [[0, 2], [10, 0], [12, 1]]


def test_delays_that_differ_between_synapses_of_a_pair() -> None:
    """As the error advises, the same delay for both is accepted."""
    pairs = torch.tensor([3, 0, 3]), torch.tensor([1, 2, 1]), torch.ones(3)

    def layer(last: float) -> RecurrentLayer:
        late = torch.tensor([2.0, 4.0, last])
        listed = Sparse.from_coo(*pairs, delays=late, duplicates="sum")
        return RecurrentLayer(2, 4, recurrent_connections=listed)

    for duplicates in ("error", "sum"):
        listed = Sparse.from_coo(*pairs, delays=torch.tensor([2.0, 4.0, 5.0]), duplicates=duplicates)
        with pytest.raises(ValueError, match=r"from input 3 to output 1, got 2 and 5: .* same delay"):
            RecurrentLayer(2, 4, recurrent_connections=listed)
    made = layer(2.0)
    assert made.recurrent_delays is not None
    assert made.recurrent_delays.steps.tolist() == [4, 2] and made.recurrent_weight.tolist() == [1, 2]


def test_delays_in_another_order_than_the_weights() -> None:
    own = snnlib.Delays(10, per="connection", initial=torch.tensor([9.0, 1.0, 5.0]))
    unsorted = Sparse.from_coo([2, 0, 1], [0, 1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"initial: .* give the delays to Sparse.from_coo"):
        snnlib.SpikingRNN(3, 3, recurrent_connections=unsorted, recurrent_delays=own)
    in_order = Sparse.from_coo([0, 1, 2], [1, 2, 0])  # type: ignore[arg-type]
    rnn = snnlib.SpikingRNN(3, 3, recurrent_connections=in_order, recurrent_delays=own)
    assert rnn.layers[0].recurrent_delays.steps.tolist() == [9, 1, 5]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Sparse.from_coo([0], [1], delays=[-1.0]), "delays: expected numbers of time steps"),
        (lambda: Sparse.from_coo([0], [1], delays=[1.0, 2.0]), "delays: expected"),
        (
            lambda: snnlib.SpikingLinear(2, 2, connections=Sparse.from_coo([0], [1], delays=[1.0])),
            "connections: expected a list without delays",
        ),
        (
            lambda: snnlib.SpikingRNN(2, 2, connections=Sparse.from_coo([0], [1], delays=[1.0])),
            "connections: expected a list without delays",
        ),
        (lambda: _listed(2.0, snnlib.Delays(3)), "recurrent_delays: expected None or Delays"),
        (
            lambda: _listed(2.0, snnlib.Delays(3, per="connection", initial=1)),
            "recurrent_delays: expected None or Delays",
        ),
        (
            lambda: _listed(4.0, snnlib.Delays(3, per="connection")),
            "recurrent_delays: expected a max_delay >= 4",
        ),
    ],
)
def test_errors_name_the_argument(make: Callable[[], object], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make()
