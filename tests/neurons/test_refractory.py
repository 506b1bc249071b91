"""Refractory times of every model: what runs where, kernels against `step`, layers, recurrence, chunks and streams."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib import neurons
from snnlib.backends.program_kernel import ProgramKernel

TIMES = (2, math.inf)
# Arguments that a model wants, and the factor that makes some of its neurons fire on currents of about 1.
GIVEN: dict[str, tuple[dict[str, Any], float]] = {
    "LRU": ({"nu": 3.0, "theta": 0.5, "threshold": 0.25}, 2.0),
    "AdLIF": ({}, 8.0),
    "ALIF": ({}, 8.0),
    "BRF": ({}, 300.0),
    "Alpha": ({}, 4.0),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"reset": "subtract"},
    {"detach_reset": False},
    {"reset_time": "next"},
    {"gradient_through_time": False},
    {"floor": -0.25},
    {"reset_states": "all"},
)
ALL = [*neurons.MODELS, *neurons.FIXED_LENGTH_MODELS]


def _table() -> dict[str, str]:
    """How each model runs, from docs/neurons.md."""
    text = (Path(__file__).parents[2] / "docs" / "neurons.md").read_text(encoding="utf-8")
    section = text[text.index("## Refractory time") : text.index("## Dialects")]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE)
    return {name: runs for names, runs in rows for name in re.findall(r"`(\w+)`", names) if name in ALL}


TABLE = _table()
HAVE = [name for name in ALL if not TABLE[name].startswith("no option")]


def _neuron(name: str, **options: Any) -> neurons.Neuron:
    return neurons.MODELS[name](**GIVEN.get(name, ({}, 1.0))[0], **options)


def _currents(name: str, *shape: int) -> Tensor:
    """On a grid, so that no sum of a plain leak rounds."""
    drawn = torch.randint(-8, 17, shape, generator=torch.Generator().manual_seed(3)) / 8
    return drawn * GIVEN.get(name, ({}, 2.0))[1]


@pytest.fixture
def by_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Calls a function while no model has dynamics for kernels."""

    def call(function: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            for cls in neurons.MODELS.values():
                patch.setattr(cls, "kernel", lambda *_: None)
            return function()

    return call


def test_the_table_names_every_model() -> None:
    assert sorted(TABLE) == sorted(ALL)


@pytest.mark.parametrize("refractory", TIMES)
@pytest.mark.parametrize("name", ALL)
def test_the_table_is_true(name: str, refractory: float) -> None:
    runs = TABLE[name]
    if runs.startswith("no option"):
        with pytest.raises(TypeError, match=f"^refractory: expected an option of {name}, got an unknown one"):
            neurons.config({**neurons.MODELS, **neurons.FIXED_LENGTH_MODELS}[name](refractory=refractory))
        return
    neuron = _neuron(name, refractory=refractory)
    kernel = neuron.kernel(torch.empty(0))
    assert isinstance(kernel, ProgramKernel) == runs.startswith("as a [program]"), runs
    assert isinstance(kernel, ProgramKernel) or kernel.options.refractory == (
        -1 if refractory == math.inf else refractory
    )


@pytest.mark.parametrize("refractory", TIMES)
@pytest.mark.parametrize("name", HAVE)
def test_spikes_and_state_by_hand(name: str, refractory: float) -> None:
    """Runs the neuron without the time; puts its state back and drops its spikes while it rests."""
    x = _currents(name, 16, 2, 6)
    plain, neuron = _neuron(name), _neuron(name, refractory=refractory)
    (state,), left, spikes = plain.run(x[:0]).state, torch.zeros(x.shape[1:]), []
    for now in x:
        value, (after,) = plain.run(now[None], (state,))
        rests = left > 0
        held = torch.where(rests, state, after)
        # On Loihi the current decays on.
        state = torch.cat((held[:1], after[1:])) if neuron.fixed_point else held
        value = torch.where(rests, 0.0, value[0])
        last = 1.0 if refractory == math.inf else refractory
        left = torch.where(rests, left if refractory == math.inf else left - 1, last * value)
        spikes.append(value)
    assert plain(x).sum() >= torch.stack(spikes).sum() > 2
    value, (final,) = neuron.run(x)
    assert torch.equal(value, torch.stack(spikes))
    assert torch.equal(final, torch.cat((state, left[None])))
    first, between = neuron.run(x[:5])
    assert torch.equal(torch.cat((first, neuron.run(x[5:], between).value)), value)


def _gradients(neuron: neurons.Neuron, x: Tensor, state: Tensor, run: Callable[..., Any]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_(), state.clone().requires_grad_()]
    out = run(leaves[0], (leaves[1],))
    generator = torch.Generator().manual_seed(4)
    loss = sum(
        (part * torch.randn(part.shape, generator=generator)).sum() for part in (out.value, *out.state)
    )
    wanted = [*leaves, *neuron.parameters()]
    grads = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    return [out.value.detach(), *grads]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", [name for name in HAVE if TABLE[name].startswith("natively")])
def test_kernels_have_the_gradients_of_step(name: str, options: dict[str, Any]) -> None:
    """Gradients of inputs, of a state in which some neurons rest, and of all constants."""
    for refractory in (1, *TIMES):
        try:
            neuron = _neuron(name, refractory=refractory, **options)
            learned = _neuron(name, refractory=refractory, learnable=tuple(neuron.constant_names), **options)
        except TypeError as error:
            assert str(error).startswith(next(iter(options)))
            return
        x = _currents(name, 14, 2, 5)
        state = learned.run(x[:6]).state[0].detach()
        most = 1 if refractory == math.inf else int(refractory)
        state[-1] = torch.randint(0, most + 1, state[-1].shape, generator=torch.Generator().manual_seed(6))
        found = _gradients(learned, x[6:], state, learned.run)
        wanted = _gradients(learned, x[6:], state, learned.reference)
        assert torch.equal(found[0], wanted[0])
        for one, other in zip(found[1:], wanted[1:], strict=True):
            # Sums of some dozen terms in another order.
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * (1 + float(other.abs().max())))


def _lif(**options: Any) -> neurons.Neuron:
    return neurons.LIF(surrogate=snnlib.surrogate.Triangle(0.5, 0.4), decay_input=False, **options)


def _cuba(**options: Any) -> neurons.Neuron:
    fixed = {"surrogate": snnlib.surrogate.ATan(0.5), "decay_input": False, "decay_current": False}
    return neurons.CubaLIF(2.0, 2.0, **fixed, **options)


LAYERS: dict[str, tuple[Callable[[neurons.Neuron], torch.nn.Module], tuple[int, ...]]] = {
    "linear": (lambda n: snnlib.SpikingLinear(6, 20, neuron=n), (9, 3, 6)),
    "conv": (lambda n: snnlib.SpikingConv2d(2, 5, 3, padding=1, neuron=n), (7, 2, 2, 6, 6)),
    "pooled": (
        lambda n: snnlib.fuse_(
            torch.nn.Sequential(
                snnlib.SpikingConv2d(2, 16, 3, padding=1, neuron=n), snnlib.PerStep(torch.nn.AvgPool2d(2))
            )
        ),
        (7, 2, 2, 6, 6),
    ),
    "late": (lambda n: snnlib.SpikingLinear(6, 20, delays=snnlib.Delays(2), neuron=n), (9, 3, 6)),
    "sparse": (
        lambda n: snnlib.SpikingLinear(6, 20, connections=snnlib.Sparse(density=0.5), neuron=n),
        (9, 3, 6),
    ),
    "recurrent": (lambda n: snnlib.SpikingRNN(6, 20, neuron=n), (9, 3, 6)),
    "sparse recurrent": (
        lambda n: snnlib.SpikingRNN(6, 20, neuron=n, recurrent_connections=snnlib.Sparse(density=0.3)),
        (9, 3, 6),
    ),
    "late recurrent": (
        lambda n: snnlib.SpikingRNN(6, 20, neuron=n, recurrent_delays=snnlib.Delays(3)),
        (9, 3, 6),
    ),
    "in space": (lambda n: snnlib.SpikingConvRNN2d(2, 4, 3, padding=1, neuron=n), (7, 2, 2, 5, 5)),
}


@pytest.mark.parametrize("refractory", TIMES)
@pytest.mark.parametrize("make", [_lif, _cuba])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_are_those_by_step(
    kind: str, make: Callable[..., neurons.Neuron], refractory: float, by_step: Callable[..., Any]
) -> None:
    """Spikes, without gradients too, in chunks as well, and the gradients of weights and input."""
    torch.manual_seed(0)
    of, shape = LAYERS[kind]
    layer, plain = of(make(refractory=refractory)), of(make())
    with torch.no_grad():
        for one, other in zip(layer.parameters(), plain.parameters(), strict=True):
            # No sum of theirs rounds, so that all ways have the same spikes.
            one.copy_(
                (one * 8).round() if one.is_floating_point() and one.dim() == 0 else (one * 96).round() / 32
            )
            other.copy_(one)
    x = (torch.rand(shape) < 0.4).float()

    def run() -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        spikes = layer(leaf)
        weights = torch.randint(-4, 5, spikes.shape, generator=torch.Generator().manual_seed(5)) / 4
        wanted = [leaf, *layer.parameters()]
        loss = (spikes * weights).sum()
        grads = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        return [spikes.detach(), *grads]

    found, wanted = run(), by_step(run)
    assert torch.equal(found[0], wanted[0])
    assert wanted[0].sum() > 5
    assert not torch.equal(wanted[0], plain(x))
    for one, other in zip(found[1:], wanted[1:], strict=True):
        # Sums of some hundred products in another order.
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * (1 + float(other.abs().max())))
    with torch.no_grad():
        assert torch.equal(layer(x), wanted[0])
        stream = snnlib.Stream(layer)
        assert torch.equal(torch.cat([stream(chunk) for chunk in x.split(4)]), wanted[0])


@pytest.mark.parametrize("kind", ["alone", "recurrent"])
def test_lengths_of_samples(kind: str) -> None:
    torch.manual_seed(0)
    neuron = _lif(refractory=3)
    run = neuron.run if kind == "alone" else snnlib.SpikingRNN(6, 6, neuron=neuron).run
    x, lengths = _currents("LIF", 9, 3, 6), torch.tensor([9, 4, 0])
    value, state = run(x, lengths=lengths)
    for n, steps in enumerate(lengths.tolist()):
        alone = run(x[:steps, n : n + 1])
        assert torch.equal(value[:steps, n : n + 1], alone.value)
        assert all(torch.equal(a[:, n : n + 1], b) for a, b in zip(state, alone.state, strict=True))


def test_on_loihi_the_current_runs_on() -> None:
    x = (_currents("LIF", 20, 2, 5) * 16).round() / 4
    neuron = neurons.LoihiCubaLIF(50.0, 20.0, threshold=6.0, refractory=3)
    assert neuron.kernel(x) is not None
    found, wanted = neuron.run(x), neuron.reference(x)
    assert torch.equal(found.value, wanted.value) and found.value.sum() > 5
    assert torch.equal(found.state[0], wanted.state[0])
    nothing = torch.zeros(1, 2, 5)
    still, (after,) = neuron.run(nothing, found.state)
    rests = found.state[0][2] > 0
    assert rests.any() and not still[0][rests].any()
    assert torch.equal(after[0][rests], found.state[0][0][rests])
    assert not torch.equal(after[1][rests], found.state[0][1][rests])


def test_potentials_are_those_of_the_steps(by_step: Callable[..., Any]) -> None:
    """Potentials of resting steps are computed, too, and dropped; `free_potential` never rests."""
    x = _currents("LIF", 12, 2, 5)
    for refractory in TIMES:
        neuron = _lif(refractory=refractory)
        assert torch.equal(neuron.potential(x), by_step(lambda n=neuron: n.potential(x)))
        assert torch.equal(neuron.free_potential(x), _lif().free_potential(x))


def test_nan_is_no_silence() -> None:
    """A NaN membrane gives NaN spikes to the end of the sequence; an input that is lost does nothing."""
    x = torch.zeros(6, 1, 2)
    x[1, 0, 0] = math.nan
    x[0, 0, 1], x[1, 0, 1] = 4.0, math.nan
    for refractory in TIMES:
        for run in (_lif(refractory=refractory), _lif(refractory=refractory).reference):
            value = run(x) if isinstance(run, neurons.Neuron) else run(x).value
            assert value[1:, 0, 0].isnan().all()
            assert value[:, 0, 1].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_records_of_layers_are_refused() -> None:
    flags = _lif(refractory=2).kernel(torch.empty(0)).flags
    table = _lif().kernel(torch.empty(0)).constants
    conv = torch.ones(3, 1, 1, 1, 1), torch.ones(1, 1, 1, 1), table, None, (1, 1), (0, 0), (1, 1), 1, (1, 1)
    with pytest.raises(
        ValueError, match=r"^flags: expected no refractory time beside a record, got 2 steps$"
    ):
        torch.ops.snnlib.layer_forward(*conv, flags, (), False, True, True)


def test_state_dict_and_settings_keep_it() -> None:
    for name in HAVE:
        neuron = _neuron(name, refractory=3)
        again = neurons.from_config(neurons.config(neuron))
        assert again.refractory == 3 and again.state_names == neuron.state_names
        assert neuron.state_names[-1] == "refractory"
        again.load_state_dict(neuron.state_dict())
