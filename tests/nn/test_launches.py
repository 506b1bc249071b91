"""Launches of a layer on a GPU, as operations on the device "meta"; fixed constants are read once."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import snnlib
from snnlib import neurons
from snnlib.backends.arguments import LinearKernel
from snnlib.neurons import constants

# Operations that start no kernel: views, questions, and memory that is not written to.
NO_KERNEL = (
    "view",
    "t",
    "permute",
    "unsqueeze",
    "detach",
    "expand",
    "promote_types",
    "empty",
    "empty_like",
    "reshape",
)
MODELS: dict[str, Callable[[], neurons.Neuron]] = {
    "LIF": neurons.LIF, "CubaLIF": neurons.CubaLIF, "AdLIF": lambda: neurons.AdLIF(learnable=()),
    "BRF": lambda: neurons.BRF(learnable=()), "SRM": neurons.SRM,
}  # fmt: skip


class Launches(TorchDispatchMode):
    """Names of the operations in the context that start a kernel on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = function.name().partition("::")[2].partition(".")[0]
        if name not in NO_KERNEL:
            self.names.append(name)
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def poison() -> None:
    """Not here: filling fresh memory is an operation."""


def _layer(kind: str) -> nn.Module:
    neuron = MODELS[kind]()
    return (snnlib.SRMLinear(20, 30) if kind == "SRM" else snnlib.SpikingLinear(20, 30, neuron=neuron)).to(
        "meta"
    )


@pytest.mark.parametrize("kind", MODELS)
def test_a_layer_launches_three_kernels_in_a_pass(kind: str) -> None:
    """Weights times the gain, product, neurons; their adjoints."""
    layer = _layer(kind)
    x = torch.empty(10, 4, 20, device="meta")
    layer(x)
    with Launches() as forward:
        out = layer(x)
    signal = torch.empty_like(out)
    with Launches() as backward:
        out.backward(signal)
    assert len(forward.names) <= 3, forward.names
    assert len(backward.names) <= 3, backward.names


def test_a_table_fills_one_column_for_each_number() -> None:
    """Where it is made in every pass, as in a captured graph."""
    neuron = neurons.BRF(learnable=()).to("meta")
    dynamics = neuron.dynamics(neuron.constants())
    with Launches() as launches:
        dynamics.pack(torch.float32, torch.device("meta"))
    numbers = {0.0, 1.0, -torch.inf, neuron.dt, -neuron.dt, neuron.gamma, -1 / neuron.gamma}
    assert launches.names.count("full") <= len(numbers)


LIKE = torch.empty(0)


@pytest.fixture(params=["by value", "by version"])
def on_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamics are kept as on a CPU and as on a GPU, with values to compare."""
    if request.param == "by version":
        monkeypatch.setattr(constants, "_READ", ())


def _spikes(neuron: neurons.Neuron) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return neuron(torch.randn(40, 2, 5, generator=generator) + 0.5)


@pytest.mark.usefixtures("on_cpu")
class TestKept:
    @pytest.mark.parametrize("name", neurons.MODELS)
    def test_every_model_keeps_them_while_it_learns_nothing(self, name: str) -> None:
        neuron = neurons.MODELS[name]().requires_grad_(False)
        first, second = neuron.kernel(LIKE), neuron.kernel(LIKE)
        assert first is second
        if first is not None:
            assert neuron.kernel(LIKE.double()).constants.dtype == torch.float64
        if isinstance(first, LinearKernel):
            made = neuron.dynamics(neuron.constants())
            assert torch.equal(first.constants, made.pack(torch.float32, LIKE.device))

    @pytest.mark.parametrize(
        "change",
        [
            lambda neuron: neuron.threshold.fill_(0.3),
            lambda neuron: neuron.load_state_dict({**neuron.state_dict(), "tau": torch.tensor(9.0)}),
            lambda neuron: neuron.load_state_dict({**neuron.state_dict(), "tau": torch.linspace(2, 9, 5)}),
            lambda neuron: setattr(neuron, "threshold", torch.tensor(0.3, dtype=torch.float64)),
            lambda neuron: setattr(neuron, "detach_reset", not neuron.detach_reset),
            lambda neuron: setattr(neuron, "surrogate", snnlib.surrogate.Triangle(0.25)),
        ],
        ids=["written to", "loaded", "another shape", "replaced", "option", "surrogate"],
    )
    @pytest.mark.filterwarnings("ignore:load_state_dict")
    def test_a_change_is_seen(self, change: Callable[[neurons.Neuron], object]) -> None:
        neuron = neurons.LIF(tau=3.0)
        before = neuron.kernel(LIKE)
        change(neuron)
        after = neuron.kernel(LIKE)
        assert after is not before
        assert torch.equal(_spikes(neuron), _spikes(copy.deepcopy(neuron)))
        made = neuron.dynamics(neuron.constants())
        assert torch.equal(after.constants, made.pack(torch.float32, LIKE.device))

    def test_constants_that_learn_are_read_anew(self) -> None:
        neuron = neurons.LIF(learnable=("tau",))
        assert neuron.kernel(LIKE) is not neuron.kernel(LIKE)
        _spikes(neuron).sum().backward()
        assert neuron.tau.grad is not None
        neuron.requires_grad_(False)
        kept = neuron.kernel(LIKE)
        assert neuron.kernel(LIKE) is kept
        neuron.requires_grad_(True)
        assert neuron.kernel(LIKE) is not kept

    def test_what_was_made_in_inference_mode_trains(self) -> None:
        neuron = neurons.LIF()
        with torch.inference_mode():
            _spikes(neuron)
        x = torch.full((5, 1, 2), 0.7, requires_grad=True)
        neuron(x).sum().backward()
        assert x.grad is not None and x.grad.any()

    def test_each_stream_makes_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A stream does not wait for the queue of another."""
        neuron = neurons.LIF()
        kept = neuron.kernel(LIKE)
        monkeypatch.setattr(constants, "_queue", lambda tensor: 7)
        assert neuron.kernel(LIKE) is not kept
        assert neuron.kernel(LIKE) is neuron.kernel(LIKE)

    def test_a_capture_follows_its_constants(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A captured graph computes its table from the constants, which may be written to between replays."""
        neuron = neurons.LIF()
        kept = neuron.kernel(LIKE)
        monkeypatch.setattr(constants, "_queue", lambda tensor: None)
        assert neuron.kernel(LIKE) is not kept

    def test_copies_and_pickles_keep_nothing(self) -> None:
        neuron = neurons.LIF()
        kept = neuron.kernel(LIKE)
        for other in (copy.deepcopy(neuron), pickle.loads(pickle.dumps(neuron))):
            assert other.kernel(LIKE) is not kept
        assert neuron.kernel(LIKE) is kept

    def test_moved_constants_are_read_anew(self) -> None:
        neuron = neurons.LIF(learnable=("tau",)).requires_grad_(False)
        kept = neuron.kernel(LIKE)
        assert neuron.to(torch.float32).kernel(LIKE) is not kept


def test_a_write_through_data_is_seen_on_a_cpu() -> None:
    neuron = neurons.LIF(tau=3.0)
    before = neuron.kernel(LIKE)
    neuron.threshold.data.fill_(0.3)
    after = neuron.kernel(LIKE)
    assert isinstance(after, LinearKernel)
    assert after is not before
    assert torch.equal(after.constants, neuron.dynamics(neuron.constants()).pack(torch.float32, LIKE.device))
