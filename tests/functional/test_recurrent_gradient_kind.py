"""`input_gradient` governs the gradient of the spikes that come back, as it does that of the input."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from snnlib.functional import spiking_recurrent
from snnlib.functional.operators import Convolution
from snnlib.neurons import SRM, CubaLIF, Neuron
from snnlib.neurons.base import advance
from snnlib.neurons.constants import broadcast
from snnlib.nn.weights.sparse import Sparse, connect

NEURONS: dict[str, Callable[[str | None], Neuron]] = {
    "CubaLIF": lambda kind: CubaLIF(gradient="event", input_gradient=kind, threshold=0.4),
    "CubaLIF, refractory": lambda kind: CubaLIF(
        gradient="event", input_gradient=kind, threshold=0.4, refractory=2
    ),
    "SRM": lambda kind: SRM(threshold=0.4, reset_states="membrane", input_gradient=kind),
}
H, STEPS = 6, 12
DELAYS = torch.tensor([0, 1, 2, 0, 1, 3])


def _draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _ways() -> dict[str, tuple[Tensor, dict[str, Any], Callable[[list[Tensor], Tensor], Tensor]]]:
    """Weight, arguments, and the currents of all past spikes, the newest last, in plain torch."""
    matrix, taps = _draw(H, H, seed=2), _draw(3, 3, 3, 3, seed=3)
    mask = _draw(H, H, seed=4) > 0
    operator = connect(H, H, Sparse(mask=mask), None)[0]
    sources, targets = mask.t().nonzero(as_tuple=True)
    connection = (DELAYS[:, None] + DELAYS) % 4

    def sparse(past: list[Tensor], weight: Tensor) -> Tensor:
        return past[-1] @ weight.new_zeros(H, H).index_put((targets, sources), weight).t()

    def late(past: list[Tensor], weight: Tensor, delay: Tensor) -> Tensor:
        zero = torch.zeros_like(past[0])
        columns = [
            [past[-1 - int(d)] if int(d) < len(past) else zero for d in row] for row in delay.expand(H, H)
        ]
        arriving = torch.stack([torch.stack([p[:, j] for j, p in enumerate(row)], -1) for row in columns], 1)
        return (arriving * weight).sum(-1)

    def by(delay: Tensor) -> dict[str, Any]:
        return {"delay": delay.double(), "max_delay": 3, "rounded": True}

    def late_sparse(past: list[Tensor], weight: Tensor) -> Tensor:
        return late(past, weight.new_zeros(H, H).index_put((targets, sources), weight), connection)

    return {
        "matrix": (matrix, {}, lambda past, weight: past[-1] @ weight.t()),
        "sparse": (_draw(len(targets), seed=5), {"operator": operator}, sparse),
        "convolution": (
            taps,
            {"operator": Convolution(2, padding="same")},
            lambda past, weight: torch.nn.functional.conv2d(past[-1], weight, padding=1),
        ),
        "delays of neurons": (matrix, by(DELAYS), lambda past, weight: late(past, weight, DELAYS)),
        "delays of connections": (
            matrix,
            by(connection),
            lambda past, weight: late(past, weight, connection),
        ),
        "delays of sparse connections": (
            _draw(len(targets), seed=5),
            {"operator": operator, **by(connection[targets, sources])},
            late_sparse,
        ),
    }


WAYS = _ways()


def _in_plain_torch(
    current: Tensor, weight: Tensor, neuron: Neuron, back: Callable[[list[Tensor], Tensor], Tensor]
) -> Tensor:
    params = broadcast(neuron.constants(), current.dim() - 1, current.dtype)
    state = tuple(torch.zeros_like(current[0]) for _ in neuron.state_names)
    values = [torch.zeros_like(current[0])]
    for now in current:
        value, state = advance(neuron, state, now + back(values, weight), params)
        values.append(value)
    return torch.stack(values[1:])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NEURONS)
def test_dense_is_the_gradient_of_plain_torch(name: str, way: str) -> None:
    """The gradient by time is another one, also with None, since recurrent spikes are events."""
    weight, given, back = WAYS[way]
    shape = (STEPS, 2, 3, 4, 4) if way == "convolution" else (STEPS, 2, H)
    # On a grid, so that sums in another order have the same spikes.
    leaves = [(t * 8).round().div(8).requires_grad_() for t in (_draw(*shape, seed=1) + 0.5, weight)]
    q = _draw(*shape, seed=6)

    def gradients(spikes: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad((q * spikes).sum(), leaves))

    expected = _in_plain_torch(leaves[0], leaves[1], NEURONS[name]("dense"), back)
    found = {}
    for kind in ("dense", "time", None):
        spikes = spiking_recurrent(leaves[0], leaves[1], NEURONS[name](kind), **given).value
        assert torch.equal(spikes, expected) and 0.02 < float(spikes.detach().mean()) < 0.98
        found[kind] = gradients(spikes)
    for dense, plain, timed, default in zip(
        found["dense"], gradients(expected), found["time"], found[None], strict=True
    ):
        torch.testing.assert_close(dense, plain, rtol=1e-9, atol=1e-9 * float(plain.abs().max()))
        torch.testing.assert_close(default, timed, rtol=0, atol=0)
        assert float((timed - plain).norm() / plain.norm()) > 0.01


def test_states_have_the_same_parts() -> None:
    """Chunks of a sequence have the gradient of the whole with either kind."""
    weight, _, _ = WAYS["matrix"]
    for kind in ("dense", "time"):
        neuron = NEURONS["CubaLIF"](kind)
        leaf, back = (_draw(STEPS, 2, H, seed=1) + 0.5).requires_grad_(), weight.clone().requires_grad_()
        q, found = _draw(STEPS, 2, H, seed=6), []
        for pieces in (STEPS, 7):
            state, values = None, []
            for chunk in leaf.split(pieces):
                value, state = spiking_recurrent(chunk, back, neuron, state=state)
                values.append(value)
            found.append(torch.autograd.grad((q * torch.cat(values)).sum(), (leaf, back)))
        assert math.prod(state[1].shape) == 2 * 2 * H  # type: ignore[index]
        for whole, chunked in zip(*found, strict=True):
            torch.testing.assert_close(chunked, whole, rtol=1e-9, atol=1e-12)
