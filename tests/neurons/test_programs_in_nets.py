"""Neurons that run as programs in everything that a net goes through: each gives what the same net gives by `step`."""

import copy
import io
import multiprocessing
import pickle
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from random_steps import RandomStep
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import snnlib
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.neurons import CLIF, KLIF, LIF, QIF, Neuron
from snnlib.neurons.base import Params, State
from snnlib.surrogate import ATan, Triangle, spike

COMPACT = Triangle(width=0.5, height=0.4)


class Plateau(Neuron):
    """Soma and dendrite of somebody's own, with a plateau of the dendrite."""

    state_names = ("v", "d")

    def __init__(self, **options: Any) -> None:
        super().__init__({"decay": 0.9, "threshold": 1.0}, **options)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        v, d = state
        d = 0.8 * d + current + 0.5 * torch.sigmoid(4 * (d - 1))
        v = params["decay"] * v + 0.5 * d
        s = self.fire(v, params)
        return s, (torch.where(s > 0, 0.0, v), d)

    def fire(self, v: Tensor, params: Params) -> Tensor:
        return spike(v - params["threshold"], params["threshold"], ATan())


NEURONS: dict[str, Callable[[], Neuron]] = {
    "QIF": lambda: QIF(learnable=("tau",), surrogate=COMPACT),
    "CLIF": lambda: CLIF(refractory=1, surrogate=COMPACT),
    "KLIF": lambda: KLIF(scale_reset=True, learnable=("k",), surrogate=COMPACT),
    "levels": lambda: LIF(levels=4, reset="zero", reset_value=0.2, surrogate=COMPACT),
    "own": lambda: Plateau(learnable=("decay",)),
}
every_neuron = pytest.mark.parametrize("name", NEURONS)
STEPS, SAMPLES = 9, 4


def conv_net(name: str) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        snnlib.PerStep(nn.Conv2d(2, 4, 3, bias=False)),
        snnlib.PerStep(nn.BatchNorm2d(4)),
        NEURONS[name](),
        snnlib.SpikingConv2d(4, 5, 3, neuron=NEURONS[name]()),
        snnlib.AvgPool2d(2),
        snnlib.SpikingLinear(5, 3, neuron=NEURONS[name]()),
    )


def recurrent_net(name: str) -> nn.Sequential:
    torch.manual_seed(0)
    delays = snnlib.Delays(2)
    return nn.Sequential(
        snnlib.SpikingRNN(5, 6, neuron=NEURONS[name](), recurrent_delays=delays),
        snnlib.SpikingLinear(6, 3, neuron=NEURONS[name]()),
    )


NETS: dict[str, tuple[Callable[[str], nn.Sequential], tuple[int, ...]]] = {
    "convolutions": (conv_net, (2, 6, 6)),
    "recurrent": (recurrent_net, (5,)),
}
every_net = pytest.mark.parametrize("kind", NETS)


def made(kind: str, name: str) -> tuple[nn.Sequential, Tensor]:
    """A net whose neurons all run as programs, and its input."""
    make, shape = NETS[kind]
    generator = torch.Generator().manual_seed(1)
    x = 2 * (torch.rand(STEPS, SAMPLES, *shape, generator=generator) < 0.5).float()
    net = make(name).eval()
    with torch.no_grad():
        for weight in net.parameters():
            # With torch's initial weights some nets are silent; learned constants stay.
            weight.mul_(2 if weight.dim() > 1 else 1)
    neurons = [module for module in net.modules() if isinstance(module, Neuron)]
    assert len(neurons) > 1
    assert all(isinstance(neuron.kernel(x), ProgramKernel) for neuron in neurons)
    return net, x


def by_step(net: nn.Sequential) -> nn.Sequential:
    """A copy whose neurons run by `step`."""
    other = copy.deepcopy(net)
    for module in other.modules():
        if isinstance(module, Neuron):
            module.kernel = lambda like: None  # type: ignore[method-assign]
    return other


def trained(net: Callable[[Tensor], Tensor], parameters: Any, x: Tensor) -> list[Tensor]:
    """Output, and gradients of input and parameters."""
    leaf = x.clone().requires_grad_()
    value = net(leaf)
    loss = (value * torch.linspace(-1, 1, value.numel()).view_as(value)).sum()
    return [value.detach(), *torch.autograd.grad(loss, [leaf, *parameters])]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert torch.equal(ours[0], theirs[0])
    assert float(ours[0].abs().sum()) > 0
    for found, expected in zip(ours[1:], theirs[1:], strict=True):
        assert float((found - expected).abs().max()) <= 2e-5 * float(expected.abs().max())


@every_net
@every_neuron
def test_layers_batch_norm_and_pools(kind: str, name: str) -> None:
    net, x = made(kind, name)
    for train in (False, True):
        stepped = by_step(net.train(train))
        assert_same(trained(net, net.parameters(), x), trained(stepped, stepped.parameters(), x))
    if kind == "convolutions":
        fused = snnlib.fuse_(copy.deepcopy(net.eval()))
        assert_same(trained(fused, fused.parameters(), x)[:2], trained(net, net.parameters(), x)[:2])


@every_net
@every_neuron
def test_streams_and_checkpoints(kind: str, name: str) -> None:
    net, x = made(kind, name)
    whole = trained(net, net.parameters(), x)
    stream = snnlib.Stream(net)
    with torch.no_grad():
        assert torch.equal(torch.cat([stream(part) for part in x.split([4, 1, 4])]), whole[0])
    for steps in (4, None):
        in_chunks = trained(lambda x: snnlib.checkpoint_time(net, x, steps=steps), net.parameters(), x)  # noqa: B023
        assert_same(in_chunks, whole)


@every_net
@every_neuron
def test_initialisation(kind: str, name: str) -> None:
    net, x = made(kind, name)
    stepped = by_step(net)
    ours, theirs = str(snnlib.prepare_(net, x)), str(snnlib.prepare_(stepped, x))
    assert ours == theirs
    for key, value in net.state_dict().items():
        torch.testing.assert_close(value, stepped.state_dict()[key], rtol=1e-5, atol=1e-6)


@every_net
@every_neuron
def test_counts_of_operations_and_reports(kind: str, name: str) -> None:
    net, x = made(kind, name)
    stepped = by_step(net)
    assert str(snnlib.profile(net, x)) == str(snnlib.profile(stepped, x))
    reports = []
    for one in (net, stepped):
        with snnlib.SpikeDoctor(one) as doctor:
            one(x).sum().backward()
        reports.append(str(doctor))
    assert reports[0] == reports[1]
    assert snnlib.memory_report(net, x).total.spikes == snnlib.memory_report(stepped, x).total.spikes > 0


@every_neuron
def test_potentials_are_what_the_step_compares(name: str) -> None:
    neuron = NEURONS[name]()
    x = 0.5 + torch.randn(12, 2, 3, generator=torch.Generator().manual_seed(2))
    before = neuron.potential(x)
    value = neuron(x)
    assert isinstance(neuron.kernel(x), ProgramKernel)
    assert torch.equal(neuron.potential(x), before)
    above = before >= neuron.threshold
    if name not in ("CLIF", "levels"):
        # Refractory neurons rest above the threshold, and levels round to the nearest.
        assert torch.equal(value > 0, above)
    # A look at potentials leaves the program as it was.
    assert torch.equal(neuron(x), value)


@every_net
@every_neuron
def test_copies_and_files(kind: str, name: str) -> None:
    net, x = made(kind, name)
    expected = trained(net, net.parameters(), x)
    stored, whole = io.BytesIO(), io.BytesIO()
    torch.save(net.state_dict(), stored)
    stored.seek(0)
    other = NETS[kind][0](name).eval()
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(0.5)
    other(x)
    other.load_state_dict(torch.load(stored))
    copies = [other, copy.deepcopy(net), copy.copy(net)]
    copies.append(pickle.loads(pickle.dumps(net)))
    torch.save(net, whole)
    whole.seek(0)
    copies.append(torch.load(whole, weights_only=False))
    for one in copies:
        assert_same(trained(one, one.parameters(), x), expected)
    # A copy that changes leaves the net as it was.
    with torch.no_grad():
        for weight in copies[1].parameters():
            weight.mul_(0.5)
    copies[1](x)
    assert torch.equal(net(x), expected[0])


# Torch's compiler makes an instance of autograd functions while it traces them.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@every_net
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "QIF" else pytest.mark.slow) for name in NEURONS]
)
def test_compilers_see_the_step(kind: str, name: str) -> None:
    torch._dynamo.reset()
    net, x = made(kind, name)
    expected, calls = trained(net, net.parameters(), x[:3]), list[str]()

    def noting(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        calls.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = torch.compile(copy.deepcopy(net), backend=noting, fullgraph=True)
    assert_same(trained(compiled, compiled.parameters(), x[:3]), expected)
    neurons = [module for module in net.modules() if isinstance(module, Neuron)]
    # A program is a single autograd function for all steps; `step` has one at each, of the surrogate gradient.
    assert calls.count("autograd_function_apply") >= len(x[:3]) * len(neurons)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _train_rank(rank: int, port: int, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    found = {}
    for kind in NETS:
        for name in NEURONS:
            net, x = made(kind, name)
            parallel = DistributedDataParallel(net)
            value = parallel(x.chunk(2, 1)[rank])
            (2 * value.sum()).backward()
            grads = [weight.grad.numpy() for weight in net.parameters() if weight.grad is not None]
            found[kind, name] = [value.detach().numpy(), *grads]
    results.put((rank, found))
    dist.destroy_process_group()


def test_processes_share_gradients() -> None:
    context = multiprocessing.get_context("fork")
    results, port = context.Queue(), _free_port()
    workers = [context.Process(target=_train_rank, args=(rank, port, results)) for rank in range(2)]
    for worker in workers:
        worker.start()
    found = dict(results.get(timeout=100) for _ in workers)
    for worker in workers:
        worker.join(100)
        assert worker.exitcode == 0
    for kind in NETS:
        for name in NEURONS:
            net, x = made(kind, name)
            value = net(x)
            value.sum().backward()
            parts = [found[rank][kind, name] for rank in range(2)]
            assert torch.equal(torch.cat([torch.from_numpy(part[0]) for part in parts], 1), value)
            for rank in range(2):
                for grad, weight in zip(parts[rank][1:], net.parameters(), strict=True):
                    torch.testing.assert_close(torch.from_numpy(grad), weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:RandomStep. every neuron fires")
@pytest.mark.parametrize("part", range(20))
@torch.no_grad()
def test_random_neurons_spike_as_their_step(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 neuron-steps of 400 neurons each, but for potentials within 1e-6 of a threshold."""
    for seed in range(20 * part, 20 * (part + 1)):
        neuron, generator = RandomStep(seed), torch.Generator().manual_seed(seed)
        x = 2 * (0.4 + 0.6 * torch.randn(20, 5, 3, 334, generator=generator))
        assert isinstance(neuron.kernel(x), ProgramKernel)
        value, _ = neuron.run(x)
        distances = list[Tensor]()

        def noting(u: Tensor, *rest: Any, _to: list[Tensor] = distances, **options: Any) -> Tensor:
            _to.append(u.detach())
            return spike(u, *rest, **options)

        with monkeypatch.context() as patch:
            patch.setattr(snnlib.surrogate, "spike", noting)
            expected, _ = neuron.reference(x)
        off = value != expected
        # A neuron that differs at a step goes its own way from there on.
        first = off & (off.cumsum(0) == 1)
        assert not bool((torch.stack(distances).abs() > 1e-6)[first].any()), seed
        assert int(first.sum()) <= 5, seed
