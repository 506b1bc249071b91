"""The gradient of input spikes by their time: its definition, chunks, recurrence, and who gives it and says so."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.neurons import SRM, CubaLIF, Neuron
from snnlib.nn.fusion.gradient_kinds import gradient_findings

# Warning of layers that nobody told what stands before them; the tests of it catch it.
pytestmark = pytest.mark.filterwarnings("ignore:input_gradient. None takes:UserWarning")

MODELS: dict[str, Callable[..., Neuron]] = {
    "CubaLIF": lambda **options: CubaLIF(gradient="event", **options),
    "SRM": lambda **options: SRM(reset_states="membrane", **options),
}


def _events(*shape: int, share: float = 0.3) -> Tensor:
    return (torch.rand(*shape) < share).double()


def _layers(
    kind: str, neuron: Callable[..., Neuron], batch_first: bool = False
) -> tuple[nn.Module, nn.Module]:
    """A layer that fires, and the layer of this kind behind it."""
    options = {"batch_first": batch_first, "dtype": torch.float64}
    if kind in ("conv", "conv rnn"):
        below = snnlib.SpikingConv2d(2, 3, 3, padding=1, neuron=neuron(), **options)
        make = snnlib.SpikingConv2d if kind == "conv" else snnlib.SpikingConvRNN2d
        return below, make(3, 2, 3, neuron=neuron(), **options)
    below = snnlib.SpikingLinear(6, 8, neuron=neuron(), **options)
    if kind == "neurons alone":
        return below, neuron(input_gradient="time", threshold=0.2, batch_first=batch_first)
    delays = {f"{per} delays": snnlib.Delays(3, per) for per in ("channel", "connection")}
    if kind.startswith("rnn"):
        back = snnlib.Delays(2, "connection") if kind == "rnn late" else None
        late = snnlib.Delays(2) if kind == "rnn channel delays" else None
        return below, snnlib.SpikingRNN(8, 5, neuron=neuron(), delays=late, recurrent_delays=back, **options)
    return below, snnlib.SpikingLinear(8, 5, neuron=neuron(), delays=delays.get(kind), **options)


KINDS = [
    "linear",
    "channel delays",
    "connection delays",
    "conv",
    "rnn",
    "rnn channel delays",
    "rnn late",
    "conv rnn",
    "neurons alone",
]


def _input(kind: str, steps: int = 12) -> Tensor:
    return _events(steps, 2, *((2, 6, 6) if kind in ("conv", "conv rnn") else (6,)))


def _strengthened(net: nn.Module) -> nn.Module:
    """Weights with which all layers fire."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("weight"):
                parameter.mul_(3)
    return net


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_definition(model: str, batch_first: bool) -> None:
    """`q[t] = -x[t] (g[t+1] - g[t])` with the dense gradient g of the same layer."""
    torch.manual_seed(0)
    layer = snnlib.SpikingLinear(6, 5, neuron=MODELS[model](), batch_first=batch_first, dtype=torch.float64)
    # Means of spikes have amplitudes between 0 and 1.
    x = _events(12, 2, 6) * torch.randint(1, 5, (12, 2, 6)) / 4
    x = x.transpose(0, 1) if batch_first else x
    weight = torch.randn(x.shape[0], x.shape[1], 5, dtype=torch.float64)
    found = {}
    for kind in ("dense", "time"):
        layer.neuron.input_gradient = kind
        leaf = x.clone().requires_grad_()
        spikes = layer(leaf)
        found[kind] = torch.autograd.grad((spikes * weight).sum(), leaf)[0]
    assert spikes.sum() > 10
    g = found["dense"].transpose(0, 1) if batch_first else found["dense"]
    events = x.transpose(0, 1) if batch_first else x
    expected = -events * (torch.cat((g[1:], torch.zeros_like(g[:1]))) - g)
    expected = expected.transpose(0, 1) if batch_first else expected
    torch.testing.assert_close(found["time"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_have_the_gradient_of_the_whole(kind: str, model: str) -> None:
    torch.manual_seed(1)
    net = _strengthened(nn.Sequential(*_layers(kind, MODELS[model])))
    x = _input(kind)
    parameters = list(net.parameters())
    weight = torch.randn_like(net(x))

    def gradients(run: Callable[[Tensor], Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad((run(x) * weight).sum(), parameters))

    assert net(x).sum() > 10
    whole = gradients(net)
    assert all(part.abs().max() > 0 for part in whole)
    for steps in (1, 5):
        chunked = gradients(lambda x, steps=steps: snnlib.checkpoint_time(net, x, steps=steps))
        for part, expected in zip(chunked, whole, strict=True):
            # Delays and their gradients are float32.
            precision = 1e-10 if part.dtype == torch.float64 else 1e-6
            scale = float(expected.abs().max())
            torch.testing.assert_close(part, expected, rtol=precision, atol=precision * scale)


def test_recurrence_by_hand() -> None:
    """Backwards step by step: a spike that comes back gets `-(g[t+1] - g[t])` of its own currents."""
    torch.manual_seed(3)
    tau_m, tau_s, steps, n = 6.0, 4.0, 14, 4
    layer = snnlib.SpikingRNN(
        3, n, neuron=CubaLIF(tau_m, tau_s, gradient="event", grad_clamp=1e9), dtype=torch.float64
    )
    layer = _strengthened(layer)
    w, back = layer.layers[0].weight, layer.layers[0].recurrent_weight
    x, q = _events(steps, 1, 3), torch.randn(steps, n, dtype=torch.float64)
    (layer(x)[:, 0] * q).sum().backward()

    r, a_s = 1 / tau_m, 1 - 1 / tau_s
    v = i = s = torch.zeros(n, dtype=torch.float64)
    kept = []
    for t in range(steps):
        i = a_s * i + (w @ x[t, 0] + back @ s).detach()
        h = (1 - r) * v + r * i
        s = (h >= 1).double()
        kept.append((s, h - v, r * i))
        v = torch.where(s > 0, torch.zeros_like(h), h)
    assert sum(part[0].sum() for part in kept) > 5
    g_v = g_i = torch.zeros(n, dtype=torch.float64)
    g = torch.zeros(steps + 2, n, dtype=torch.float64)
    for t in reversed(range(steps)):
        fired, slope, after = kept[t]
        # Recurrent spikes of step t arrive at step t + 1.
        came_back = back.detach().t() @ (g[t + 1] - g[t + 2])
        at_spike = torch.where(slope > 0, (q[t] + came_back + after * g_v) / slope, torch.zeros_like(slope))
        m = torch.where(fired > 0, at_spike, g_v)
        g[t] = a_s * g_i + r * m if t + 1 < steps else r * m
        g_i, g_v = g[t], (1 - r) * m
    spikes = torch.stack([part[0] for part in kept])
    torch.testing.assert_close(w.grad, torch.einsum("ti,tj->ij", g[:steps], x[:, 0]), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        back.grad, torch.einsum("ti,tj->ij", g[1:steps], spikes[:-1]), rtol=1e-10, atol=1e-12
    )


def _q(net: nn.Module, x: Tensor) -> Tensor:
    """dL/dx of the last module of a net, at what the modules before it give."""
    between = net[:-1](x)
    between.retain_grad()
    net[-1](between).sum().backward()
    assert between.grad is not None
    return between.grad


def event() -> CubaLIF:
    return CubaLIF(gradient="event")


BEFORE: dict[str, Callable[[], list[nn.Module]]] = {
    "CubaLIF": lambda: [snnlib.SpikingLinear(6, 8, neuron=event())],
    "SRMLinear": lambda: [snnlib.SRMLinear(6, 8)],
    "delays": lambda: [snnlib.SpikingLinear(6, 8, neuron=SRM(), delays=snnlib.Delays(2))],
    "dropout": lambda: [snnlib.SpikingLinear(6, 8, neuron=event()), snnlib.SpikeDropout(0.2)],
    "rnn": lambda: [snnlib.SpikingRNN(6, 8, neuron=event())],
    "pool": lambda: [
        nn.Unflatten(2, (6, 1, 1)),
        snnlib.SpikingConv2d(6, 8, 1, neuron=event()),
        snnlib.SpikeAvgPool2d(1),
        nn.Flatten(2),
    ],
}
AMPLITUDES: dict[str, Callable[[], list[nn.Module]]] = {
    "surrogate": lambda: [snnlib.SpikingLinear(6, 8)],
    "surrogate, pool": lambda: [
        nn.Unflatten(2, (6, 1, 1)),
        snnlib.SpikingConv2d(6, 8, 1),
        snnlib.AvgPool2d(1),
        nn.Flatten(2),
    ],
    "Linear": lambda: [nn.Linear(6, 8)],
    "PerStep": lambda: [snnlib.PerStep(nn.Linear(6, 8))],
    "StateSpaceBlock": lambda: [snnlib.nn.StateSpaceBlock(6), nn.Identity(), nn.ReLU()],
    "attention": lambda: [
        nn.Unflatten(2, (1, 6)),
        snnlib.nn.Residual(snnlib.nn.SpikingSelfAttention(6, heads=1)),
        nn.Flatten(2),
    ],
}
# Layers that take either.
BEHIND: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda inputs: snnlib.SpikingLinear(inputs, 5, neuron=event()),
    "SRM": lambda inputs: snnlib.SpikingLinear(inputs, 5, neuron=SRM(reset_states="membrane")),
    "delays": lambda inputs: snnlib.SpikingLinear(inputs, 5, neuron=event(), delays=snnlib.Delays(2)),
    "rnn": lambda inputs: snnlib.SpikingRNN(inputs, 5, neuron=event()),
}


def _net(before: list[nn.Module], behind: Callable[[int], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    inputs = nn.Sequential(*before)(_events(4, 1, 6).float()).shape[2]
    net = nn.Sequential(*before, behind(inputs))
    _strengthened(net)
    return net


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("name", [*BEFORE, *AMPLITUDES])
def test_layers_are_by_time_whatever_is_before_them(name: str, behind: str) -> None:
    net = _net((BEFORE | AMPLITUDES)[name](), BEHIND[behind])
    x = _events(12, 2, 6).float()
    found = {}
    for kind in (None, "time", "dense"):
        for neuron in (module for module in net[-1].modules() if isinstance(module, CubaLIF | SRM)):
            neuron.input_gradient = kind
        torch.manual_seed(1)
        found[kind] = _q(net, x)
    assert torch.equal(found[None], found["time"])
    assert found["time"].any() and not torch.equal(found["time"], found["dense"])


@pytest.mark.parametrize("model", MODELS)
def test_neurons_alone_are_dense(model: str) -> None:
    found = {}
    x = 2 * torch.rand(12, 2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for kind in (None, "dense", "time"):
        leaf = x.clone().requires_grad_()
        MODELS[model](input_gradient=kind)(leaf).sum().backward()
        found[kind] = leaf.grad
    assert torch.equal(found[None], found["dense"])
    assert not torch.equal(found["time"], found["dense"])


def _warnings(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", ["linear", "rnn"])
def test_a_layer_whose_input_nobody_knows_says_once_that_it_is_by_time(name: str) -> None:
    net = _net(BEFORE["CubaLIF"](), BEHIND[name])
    for layer in net.modules():
        if isinstance(layer, snnlib.nn.SpikingLayer):
            layer.training_watch.warns = False
    x = _events(12, 2, 6).float()
    assert not _warnings(lambda: net.eval()(x)) and not _warnings(lambda: net[0].train()(x))
    (text,) = _warnings(lambda: net.train()(x))
    assert text.startswith("input_gradient: None takes the input of a layer for events")
    assert not _warnings(lambda: net(x))


TOLD: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "prepare_": lambda net, x: snnlib.prepare_(net, x, 0.1, standardize=False),
    "fuse_": lambda net, x: snnlib.fuse_(net),
    "SpikeDoctor": lambda net, x: snnlib.SpikeDoctor(net),
    "argument": lambda net, x: setattr(net[-1].neuron, "input_gradient", "time"),
}


@pytest.mark.parametrize("who", TOLD)
def test_a_layer_that_was_told_says_nothing(who: str) -> None:
    net, x = _net(BEFORE["pool"](), BEHIND["linear"]), _events(12, 2, 6).float()
    assert not _warnings(lambda: TOLD[who](net, x))
    for layer in (net[1], net[-1]):
        layer.training_watch.stop()
    assert not _warnings(lambda: net(x))


@pytest.mark.parametrize("behind", ["linear", "rnn"])
@pytest.mark.parametrize("name", AMPLITUDES)
def test_borders_of_the_two_gradients_are_named(name: str, behind: str) -> None:
    net, x = _net(AMPLITUDES[name](), BEHIND[behind]), _events(12, 2, 6).float()
    last = f"{len(net) - 1}{'.layers.0' if behind == 'rnn' else ''}"
    what = "neurons with a surrogate gradient" if name.startswith("surrogate") else "a module with weights"
    (found,) = gradient_findings(net)
    assert found.startswith(f"{last} gives ") and what in found
    assert found in _warnings(lambda: snnlib.fuse_(net))
    snnlib.unfuse_(net)
    with snnlib.SpikeDoctor(net) as doctor:
        net(x).sum().backward()
    assert found in doctor.findings()
    assert found in snnlib.prepare_(net, x, 0.1, standardize=False).findings()
    for neuron in (module for module in net[-1].modules() if isinstance(module, CubaLIF)):
        neuron.input_gradient = "dense"
    assert not gradient_findings(net)


def test_spikes_that_weights_read_are_named() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(6, 8, neuron=event()), nn.Dropout(), nn.Linear(8, 5), event())
    (found,) = gradient_findings(net)
    assert found.startswith(
        "0 learns from a gradient by the time of its spikes, and 2, a module with weights,"
    )


@pytest.mark.parametrize("gradient", ["time", "dense"])
def test_option(gradient: str) -> None:
    for make in MODELS.values():
        neuron = make(input_gradient=gradient)
        assert f"input_gradient={gradient!r}" in repr(neuron)
        assert neurons.from_config(neurons.config(neuron)).input_gradient == gradient
    with pytest.raises(ValueError, match=r"^gradient: expected 'event' beside input_gradient="):
        CubaLIF(input_gradient=gradient)
    with pytest.raises(ValueError, match=r"^reset_states: expected 'membrane' beside input_gradient="):
        SRM(input_gradient=gradient)
    with pytest.raises(ValueError, match=r"^input_gradient: expected one of time, dense, got 'events'"):
        CubaLIF(gradient="event", input_gradient="events")


@pytest.mark.parametrize("model", MODELS)
def test_clamp_follows_tau_s_and_threshold(model: str) -> None:
    """The bound is `grad_clamp tau_s` steps per threshold; the default is 4 steps for tau_s = 3."""
    neuron = MODELS[model](tau_s=3.0)
    assert neuron.grad_clamp * 3 == 4
    for tau_s, threshold in ((3.0, 1.0), (30.0, 1.0), (3.0, 2.0)):
        neuron = MODELS[model](tau_m=tau_s + 1, tau_s=tau_s, threshold=threshold)
        # Just reaches the threshold, so slowly that the clamp holds.
        current = torch.zeros(400, 1, 1, dtype=torch.float64)
        current[0] = 1
        peak = neuron.free_potential(current).max()
        current = (current / peak * 1.000001).requires_grad_()
        spikes = neuron(current)
        assert spikes.sum() == 1
        spikes.sum().backward()
        step = int(spikes.argmax())
        # dL/dh of the spike, by the response of the potential to the current of its own step.
        free = neuron.free_potential(torch.eye(1, dtype=torch.float64).reshape(1, 1, 1)) * threshold
        bound = 4 / 3 * tau_s / threshold
        assert float(current.grad[step]) == pytest.approx(bound * float(free), rel=1e-6)


def test_many_clamped_spikes_are_said() -> None:
    torch.manual_seed(0)
    layer = snnlib.SpikingLinear(6, 5, neuron=CubaLIF(100.0, 50.0, gradient="event", grad_clamp=0.01))
    snnlib.prepare_(layer, _events(40, 2, 6).float(), 0.1)
    x = _events(40, 2, 6).float()
    with pytest.warns(
        UserWarning, match=r"^CubaLIF: \d+ of \d+ spikes of the first 3 training batches rise so slowly"
    ):
        for _ in range(3):
            layer(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x)
        free = snnlib.SpikingLinear(6, 5, neuron=CubaLIF(100.0, 50.0, gradient="event", grad_clamp=torch.inf))
        for _ in range(4):
            free(x)
