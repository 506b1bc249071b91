"""`convert(neurons=...)`: neurons of classes of the user's own, in every form that published nets give them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from loop_nets import random_spikes
from peer_standins import Leaky, LIFNode
from torch import Tensor, nn

import snnlib
from snnlib.neurons import LIF, PLIF
from snnlib.surrogate import Rect


class Spike(torch.autograd.Function):
    """Step at 0 with a rectangle of width 1 for its derivative."""

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        return (u > 0).float()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return grad * (u.abs() < 0.5).float()


class Sequence(nn.Module):
    """Takes sequences, time at dimension 0 or 1; the membrane is zeroed where it fires."""

    dim = 0

    def __init__(self, threshold: float = 1.0, decay: float = 0.5) -> None:
        super().__init__()
        self.threshold, self.decay = threshold, decay

    def forward(self, x: Tensor) -> Tensor:
        mem: Any = 0
        spikes = []
        for current in x.unbind(self.dim):
            mem = mem * self.decay + current
            spikes.append(Spike.apply(mem - self.threshold))
            mem = (1 - spikes[-1]) * mem
        return torch.stack(spikes, self.dim)


class SamplesFirst(Sequence):
    dim = 1


class Held(nn.Module):
    """Takes a step, and holds the membrane in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.mem: Tensor | None = None

    def reset(self) -> None:
        self.mem = None

    def forward(self, x: Tensor) -> Tensor:
        self.mem = x if self.mem is None else 0.5 * self.mem + x
        spikes = Spike.apply(self.mem - 1.0)
        self.mem = (1 - spikes) * self.mem
        return spikes


class Passed(nn.Module):
    """Takes a step and the membrane, and gives the membrane after the reset."""

    def forward(self, x: Tensor, mem: Tensor) -> tuple[Tensor, Tensor]:
        mem = 0.5 * mem + x
        spikes = Spike.apply(mem - 1.0)
        return spikes, (1 - spikes) * mem


class Before(nn.Module):
    """Takes membrane, spikes and a step, and resets before it integrates; the membrane comes first."""

    def forward(self, mem: Tensor, spikes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        mem = 0.5 * mem * (1 - spikes) + x
        return mem, Spike.apply(mem - 1.0)


class HeldLoop(nn.Module):
    def __init__(self, kind: type[nn.Module], read: bool = False) -> None:
        super().__init__()
        self.fc, self.lif, self.out, self.last = nn.Linear(12, 10), kind(), nn.Linear(10, 6), kind()
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        self.lif.reset(), self.last.reset()  # type: ignore[operator]
        return torch.stack([self.last(self.out(self.lif(self.fc(now)))) for now in x])


class PassedLoop(HeldLoop):
    def forward(self, x: Tensor) -> Tensor:
        a, b, out = torch.zeros(x.shape[1], 10), torch.zeros(x.shape[1], 6), []
        for t in range(len(x)):
            spikes, a = self.lif(self.fc(x[t]), a)
            spikes, b = self.last(self.out(spikes), b)
            out.append(b if self.read else spikes)
        return torch.stack(out)


class BeforeLoop(HeldLoop):
    def forward(self, x: Tensor) -> Tensor:
        a = s = torch.zeros(x.shape[1], 10)
        b = z = torch.zeros(x.shape[1], 6)
        out = []
        for t in range(len(x)):
            a, s = self.lif(a, s, self.fc(x[t]))
            b, z = self.last(b, z, self.out(s))
            out.append(b if self.read else z)
        return torch.stack(out)


class Shared(nn.Module):
    """A sequence class in two places, as it keeps nothing between calls."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.fc, self.lif, self.out = nn.Linear(12, 10), kind(), nn.Linear(10, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.lif(self.out(self.lif(self.fc(x))))  # type: ignore[no-any-return]


class OneStep(nn.Module):
    """A net of one step."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.fc, self.lif = nn.Linear(12, 10), kind()

    def forward(self, x: Tensor) -> Tensor:
        return self.lif(self.fc(x) + 0.25)  # type: ignore[no-any-return]


def _chain(kind: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 10), kind(), nn.Linear(10, 6), kind())


def _beside(kind: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 10), Leaky(0.75, hidden=True), nn.Linear(10, 6), kind())


NETS: dict[str, tuple[Callable[[], nn.Module], type[nn.Module], bool]] = {
    "chain of sequences": (lambda: _chain(Sequence), Sequence, False),
    "chain of sequences, samples first": (lambda: _chain(SamplesFirst), SamplesFirst, False),
    "class over sequences": (lambda: Shared(Sequence), Sequence, False),
    "class over sequences, samples first": (lambda: Shared(SamplesFirst), SamplesFirst, False),
    "beside a library's over sequences": (
        lambda: nn.Sequential(nn.Linear(12, 10), LIFNode(2.0, "m"), nn.Linear(10, 6), Sequence()),
        Sequence,
        False,
    ),
    "chain of steps": (lambda: _chain(Held), Held, True),
    "beside a library's in steps": (lambda: _beside(Held), Held, True),
    "class of one step": (lambda: OneStep(Held), Held, True),
    "loop, state held": (lambda: HeldLoop(Held), Held, False),
    "loop, state passed": (lambda: PassedLoop(Passed), Passed, False),
    "loop, state passed and read": (lambda: PassedLoop(Passed, read=True), Passed, False),
    "loop, reset before": (lambda: BeforeLoop(Before), Before, False),
    "loop, reset before, read": (lambda: BeforeLoop(Before, read=True), Before, False),
    "alone in steps": (Held, Held, True),
    "alone over sequences": (Sequence, Sequence, False),
}


def _lif(tau: float = 2.0, **options: Any) -> LIF:
    own = {"decay_input": False, "compare": ">", "surrogate": Rect(1.0), "detach_reset": False}
    return LIF(tau, **{**own, **options})


def _net(name: str) -> tuple[nn.Module, type[nn.Module], bool]:
    torch.manual_seed(0)
    build, kind, stepwise = NETS[name]
    net = build()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-16, 48, parameter.shape) / 64)
    return net, kind, stepwise


def _x(steps: int = 12, samples: int = 5) -> Tensor:
    return random_spikes(steps, samples, 12)


def _answers(net: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = run(x)
    weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), [x, *net.parameters()])]


def _reset(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, Held | LIFNode):
            module.reset()
        elif isinstance(module, Leaky):
            module.mem = torch.zeros(0)


def _from_rest(net: nn.Module, x: Tensor, stepwise: bool) -> Tensor:
    _reset(net)
    return torch.stack([net(now) for now in x]) if stepwise else net(x)


@pytest.mark.parametrize("function", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_spikes_and_gradients_are_those_of_the_own_class(name: str, function: bool) -> None:
    net, kind, stepwise = _net(name)
    x = _x() * (1.25 if "alone" in name else 1.0)
    made = snnlib.convert(net, x, neurons={kind: (lambda _: _lif()) if function else _lif()}, quiet=True)
    assert not any(isinstance(module, kind) for module in made.modules())
    for given in (x, _x(7, 3)):
        expected = _answers(net, partial(_from_rest, net, stepwise=stepwise), given)
        found = _answers(net, made, given)
        assert expected[0].any() and torch.equal(expected[0], found[0])
        for one, other in zip(expected[1:], found[1:], strict=True):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
    _reset(net)
    compared = snnlib.verify_conversion(net, made, x)
    assert compared.ok or name.endswith("read"), str(compared)
    assert all(pair[0] for pair in compared.spikes.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 3.0}, r"lif \(Passed\) has another output: \d+ of \d+ values differ"),
        ({"reset": "subtract"}, r"lif \(Passed\) has another output: \d+ of \d+ values differ"),
        ({"detach_reset": True}, "gradient of [a-z.]*: .* values differ"),
        ({"surrogate": Rect(2.0)}, "gradient of [a-z.]*: .* values differ"),
    ],
)
def test_a_neuron_that_computes_something_else_is_refused(options: dict[str, Any], message: str) -> None:
    net, _, _ = _net("loop, state passed")
    before, random = vars(net.lif).copy(), torch.get_rng_state()
    with pytest.raises(ValueError, match=message):
        snnlib.convert(net, _x(), neurons={Passed: _lif(**options)}, quiet=True)
    assert vars(net.lif) == before and torch.equal(torch.get_rng_state(), random)


class Learned(Sequence):
    """Learns its decay, as sigmoid of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.0))

    @property
    def decay(self) -> Any:
        return 1 - self.w.sigmoid()

    @decay.setter
    def decay(self, _: float) -> None:
        pass


def _plif(module: Learned) -> PLIF:
    options: Any = {"decay_input": False, "compare": ">", "surrogate": Rect(1.0), "detach_reset": False}
    made = PLIF(**options)
    made.w = module.w
    return made


def test_a_function_shares_parameters_and_a_lost_one_is_named() -> None:
    net = nn.Sequential(nn.Linear(12, 10), Learned())
    made = snnlib.convert(net, _x(), neurons={Learned: _plif}, quiet=True)
    assert made[1].w is net[1].w
    with pytest.raises(ValueError, match=r"net: 1 \(Learned\): its parameter w has no counterpart"):
        snnlib.convert(net, _x(), neurons={Learned: _lif()}, quiet=True)


@pytest.mark.parametrize("name", NETS)
def test_the_refusal_names_the_argument_with_a_line_to_copy(name: str) -> None:
    net, kind, _ = _net(name)
    if "beside" in name:
        return
    with pytest.raises(ValueError, match=r"got .* without; of neurons of your own say") as raised:
        snnlib.convert(net, _x(), quiet=True)
    line = str(raised.value).partition("neurons=")[2].partition(" (docs")[0]
    assert "alone" in name or {*eval(line, {"snnlib": snnlib, kind.__name__: kind})} == {kind}


def test_a_subclass_of_a_library_is_kept_with_the_argument(capsys: pytest.CaptureFixture[str]) -> None:
    class Mine(LIFNode):
        pass

    net = nn.Sequential(nn.Linear(12, 10), Mine(2.0, "m"))
    snnlib.convert(net, _x())
    said = capsys.readouterr().out
    assert "1      left as it is: Mine is a class of its own; of neurons of your own say which" in said
    assert "neurons={Mine: snnlib.neurons.LIF(tau=2.0)}" in said
    made = snnlib.convert(
        net, _x(), neurons={Mine: LIF(2.0, dialect="spikingjelly", surrogate=snnlib.surrogate.ATan())}
    )
    assert isinstance(made[1], LIF)


def test_wrong_arguments_are_named() -> None:
    net, _, _ = _net("chain of steps")
    with pytest.raises(ValueError, match=r"neurons: expected classes of modules of the net, got .*Sequence"):
        snnlib.convert(net, _x(), neurons={Sequence: _lif()})
    with pytest.raises(TypeError, match="neurons: expected a neuron of snnlib for 1, got None"):
        snnlib.convert(net, _x(), neurons={Held: lambda module: None})  # type: ignore[dict-item,return-value]
