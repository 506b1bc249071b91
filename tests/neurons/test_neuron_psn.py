"""Parallel spiking neurons: steps in plain numbers, SpikingJelly's spikes and gradients, what they refuse."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_close
from torch import Tensor, nn

import snnlib
from snnlib.neurons import PSN, MaskedPSN, Neuron, SlidingPSN, config, from_config

STEPS = 12
MADE: dict[str, Callable[[], Neuron]] = {
    "PSN": lambda: PSN(STEPS),
    "MaskedPSN, open": lambda: MaskedPSN(3, STEPS),
    "MaskedPSN, half": lambda: MaskedPSN(3, STEPS, lambda_=0.5),
    "MaskedPSN, causal": lambda: MaskedPSN(3, STEPS, lambda_=1.0),
    "SlidingPSN": lambda: SlidingPSN(5),
}
every = pytest.mark.parametrize("name", MADE)


def dyadic(*shape: int, seed: int = 0) -> Tensor:
    """Sixteenths from -4 to 4, whose sums float32 holds."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-64, 65, shape, generator=generator) / 16.0


def exact(name: str) -> Any:
    """The neuron with weights that are binary fractions."""
    neuron: Any = MADE[name]()
    with torch.no_grad():
        neuron.weight.copy_(dyadic(*neuron.weight.shape, seed=1) / 8)
        neuron.bias.copy_(dyadic(*neuron.bias.shape, seed=2) / 4)
    return neuron


def matrix(name: str, neuron: Any, steps: int) -> list[list[float]]:
    """W of the equation, entry by entry."""
    made = [[0.0] * steps for _ in range(steps)]
    weight = neuron.weight.detach()
    for t in range(steps):
        for s in range(steps):
            seen = 0 <= t - s < getattr(neuron, "k", 0)
            if name == "SlidingPSN":
                made[t][s] = float(weight[neuron.k - 1 - (t - s)]) if seen else 0.0
            else:
                hidden = 0.0 if name == "PSN" or seen else float(neuron.lambda_)
                made[t][s] = (1 - hidden) * float(weight[t, s])
    return made


@every
def test_steps_in_plain_numbers(name: str) -> None:
    neuron, x = exact(name), dyadic(STEPS, 2, 3)
    rows = matrix(name, neuron, STEPS)
    bias = neuron.bias.detach().expand(STEPS, 1).flatten().tolist()
    for n in range(2):
        for c in range(3):
            column = x[:, n, c].tolist()
            h = [
                sum(w * v for w, v in zip(row, column, strict=True)) + b
                for row, b in zip(rows, bias, strict=True)
            ]
            assert neuron(x)[:, n, c].tolist() == [float(value >= 0) for value in h]


@every
def test_gradients_in_float64(name: str) -> None:
    """Gradients with a surrogate of 1 equal those of the potential's own sum."""
    neuron = MADE[name]().double()
    neuron.fire = lambda potential: potential  # type: ignore[attr-defined]
    x = torch.randn(STEPS, 2, 2, dtype=torch.float64, requires_grad=True)
    parameters = dict(neuron.named_parameters())

    def potentials(x: Tensor, *values: Tensor) -> Any:
        own = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(neuron, own, (x,))

    assert torch.autograd.gradcheck(potentials, (x, *parameters.values()))


@every
def test_spikingjelly(name: str) -> None:
    """Spikes to the bit for binary fractions, gradients to 1e-5 of the largest."""
    theirs = pytest.importorskip(
        "spikingjelly.activation_based.neuron", reason="compares with SpikingJelly, which is not installed"
    )
    neuron = exact(name)
    kind = type(neuron).__name__
    arguments = {
        "PSN": {"T": STEPS},
        "MaskedPSN": {"k": 3, "T": STEPS, "step_mode": "m"},
        "SlidingPSN": {"k": 5, "step_mode": "m"},
    }[kind]
    other = getattr(theirs, kind)(**arguments)
    if kind == "MaskedPSN":
        other.lambda_ = float(neuron.lambda_)
    with torch.no_grad():
        assert other.weight.shape == neuron.weight.shape and other.bias.shape == neuron.bias.shape
        other.weight.copy_(neuron.weight)
        other.bias.copy_(neuron.bias)
    results = []
    for each in (neuron, other):
        x = dyadic(STEPS, 16, 100).requires_grad_()
        spikes = each(x)
        (spikes * torch.linspace(-1, 1, 100)).sum().backward()
        results.append((spikes.detach(), x.grad, each.weight.grad, each.bias.grad))
    assert 0.2 < float(results[0][0].mean()) < 0.8
    assert_bits(results[0][0], results[1][0])
    for ours, expected in zip(results[0][1:], results[1][1:], strict=True):
        assert expected.abs().max() > 0
        assert_close(ours, expected, 1e-5)


@pytest.mark.parametrize("name", [name for name in MADE if name != "SlidingPSN"])
def test_reference_of_all_steps_at_once(name: str) -> None:
    neuron, x = exact(name), dyadic(STEPS, 2, 3)
    assert_bits(neuron.reference(x).value, neuron(x))


@pytest.mark.parametrize("steps", [1, 3, 32, 33, 100])
def test_a_sliding_neuron_takes_any_length(steps: int) -> None:
    neuron, x = exact("SlidingPSN"), dyadic(steps, 2, 3)
    assert_bits(neuron(x), neuron.reference(x).value)
    stream = snnlib.Stream(neuron)
    assert_bits(torch.cat([stream(chunk) for chunk in x.split(7)]), neuron(x))
    lengths = torch.tensor([steps, (steps + 1) // 2])
    spikes = neuron.run(x, lengths=lengths).value
    assert_bits(spikes[: lengths[1], 1], neuron(x)[: lengths[1], 1])
    assert not spikes[lengths[1] :, 1].any()


def test_how_far_a_current_of_nan_reaches() -> None:
    neuron, x = exact("SlidingPSN"), dyadic(300, 1, 2)
    expected = neuron(x)
    x[150, 0, 0] = torch.nan
    unknown = neuron.reference(x).value[:, 0, 0].isnan()
    assert unknown.nonzero().flatten().tolist() == list(range(150, 155))
    spikes = neuron(x)
    assert spikes[150:155, 0, 0].isnan().all()
    far = (torch.arange(300) - 150).abs() > 64
    assert_bits(spikes[far], expected[far])
    assert_bits(spikes[..., 1], expected[..., 1])


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes_and_layouts(name: str, dtype: torch.dtype) -> None:
    neuron, x = exact(name), dyadic(STEPS, 2, 3, 4)
    expected = neuron(x)
    assert_bits(neuron(x.to(dtype)), expected.to(dtype))
    first = copy.deepcopy(neuron)
    first.batch_first = True
    assert_bits(first(x.transpose(0, 1)).transpose(0, 1), expected)
    assert neuron(x[:, :0]).shape == (STEPS, 0, 3, 4)
    if name == "SlidingPSN":
        assert neuron(x.new_zeros(100, 2, 0)).shape == (100, 2, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@every
def test_in_a_net(name: str) -> None:
    """`prepare_` scales the layer before it; it learns, compiles and is saved."""
    torch.manual_seed(0)
    net = nn.Sequential(snnlib.SpikingLinear(20, 16, neuron=MADE[name]()), snnlib.SRMReadout(16, 3))
    x = (torch.rand(STEPS, 8, 20) < 0.2).float()
    snnlib.prepare_(net, x)
    assert 0.01 < float(net[0](x).detach().mean()) < 0.6
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for each in (net, compiled):
        net.zero_grad()
        each(x).square().mean().backward()
        grads = [parameter.grad for parameter in net.parameters()]
        assert all(grad is not None and grad.any() for grad in grads)
    made = from_config(config(net[0].neuron))  # type: ignore[arg-type]
    made.load_state_dict(net[0].neuron.state_dict())  # type: ignore[union-attr,operator]
    again = nn.Sequential(snnlib.SpikingLinear(20, 16, neuron=made), snnlib.SRMReadout(16, 3))
    again.load_state_dict(net.state_dict())
    assert_bits(again(x), net(x))
    assert "spikes" in str(snnlib.profile(net, x))


def test_whole_sequences_alone() -> None:
    x = torch.zeros(4, 1, 2)
    for neuron in (PSN(4), MaskedPSN(2, 4)):
        kind = type(neuron).__name__
        with pytest.raises(
            ValueError, match=rf"^x: expected 4 time steps, as {kind} was made for, got shape"
        ):
            neuron(x[:3])
        with pytest.raises(ValueError, match=r"^state: expected None, as every step"):
            neuron.run(x, (torch.zeros(0, 1, 2),))
        with pytest.raises(ValueError, match=r"^lengths: expected None, as every step"):
            neuron.run(x, lengths=torch.tensor([3]))
        net = nn.Sequential(neuron)
        calls: list[tuple[Callable[[], Any], str]] = [
            (
                lambda net=net: snnlib.Stream(net)(x),
                rf"^module: module 0 \({kind}\) mixes time steps, .*: it says mixes_time = True",
            ),
            (lambda net=net: snnlib.checkpoint_time(net, x, steps=2), rf"0 \({kind}\) mixes time steps"),
            (
                lambda net=net: snnlib.run_ragged(net, x.new_zeros(4, 2, 2), torch.tensor([4, 3])),
                rf"padding cannot reach, got module 0 \({kind}\): it says mixes_time = True$",
            ),
        ]
        for call, message in calls:
            with pytest.raises(ValueError, match=message):
                call()
        with pytest.raises(ValueError, match=rf"^neuron: expected one that runs step by step, got {kind}$"):
            snnlib.SpikingRNN(2, 3, neuron=neuron)(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PSN(0), "^time_steps: expected an integer >= 1, got 0$"),
        (lambda: SlidingPSN(1), "^k: expected an integer >= 2, got 1$"),
        (lambda: MaskedPSN(2, 4, lambda_=1.5), "^lambda_: expected a number from 0 to 1, got 1.5$"),
    ],
)
def test_refused(make: Callable[[], Neuron], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
