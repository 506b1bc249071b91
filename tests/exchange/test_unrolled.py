"""Graded spikes against binary spikes in virtual steps, integers and C: what is equal, and what is refused by name."""

import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from graded_nets import graded_net
from torch import Tensor, nn

import snnlib
from snnlib.exchange import compare_integers, export_c, export_onnx, to_lava, unroll_spikes, verify_unrolled
from snnlib.neurons import IF, LIF, PLIF, CubaLIF, Integrator, Neuron
from snnlib.surrogate import EveryThreshold, Triangle


def _compiled(folder: Path) -> str:
    command = ("make", "check", "CFLAGS=-O1 -march=native -Werror")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _same_everywhere(seed: int, folder: Path | None = None) -> bool:
    """Checks torch, virtual steps, integers and C of a random net; returns whether its outputs fire."""
    net, x = graded_net(seed)
    y, unrolled = net(x), unroll_spikes(net, x)
    report = verify_unrolled(net, unrolled, x)
    assert report.exact and report.equal, f"{seed}: {report}"
    for run in unrolled.layers(x):
        assert run.spikes is None or ((run.spikes == 0) | (run.spikes == 1)).all()
    assert torch.equal(unrolled(x), y)
    small = snnlib.to_integers(net, x, scale="power-of-two", state_bits=32)
    narrow = snnlib.to_integers(unrolled, x, scale="power-of-two")
    assert torch.equal(small(x), y), seed
    with snnlib.use_path("reference"):
        for integers in (small, narrow):
            expected = integers.integers(x)
            with snnlib.use_path("auto"):
                assert torch.equal(integers.integers(x), expected), seed
    if folder is not None:
        export_c(small, folder, x, binary=False)
        assert "outputs that differ: 0 by events, 0 by frames" in _compiled(folder), seed
    return bool(y.any())


@pytest.mark.parametrize("kind", ["neuron", "layer"])
def test_modules_in_several_places_run_in_each(kind: str) -> None:
    torch.manual_seed(0)
    neuron = IF(threshold=0.25, levels=4)
    maps = [snnlib.PerStep(nn.Linear(6, 6, bias=False)) for _ in range(2)]
    layer = snnlib.SpikingLinear(6, 6, neuron=neuron)
    net = nn.Sequential(maps[0], neuron, maps[1], neuron) if kind == "neuron" else nn.Sequential(layer, layer)
    for weight in net.parameters():
        weight.data.mul_(64).round_().abs_().div_(64)
    x = torch.randint(0, 3, (7, 3, 6)).float()
    assert len(unroll_spikes(net, x).stages) == 2
    assert torch.equal(unroll_spikes(net, x)(x), net(x)) and net(x).any()


@pytest.mark.parametrize("seed", range(8))
def test_random_nets_are_the_same_in_virtual_steps_and_integers(seed: int) -> None:
    assert _same_everywhere(seed)


@pytest.mark.skipif(shutil.which("cc") is None, reason="compiles C programs; there is no cc")
def test_a_random_net_is_the_same_in_c(tmp_path: Path) -> None:
    assert _same_everywhere(8, tmp_path)


def test_no_layer_loses_a_graded_spike_in_integers() -> None:
    net, x = graded_net(5)
    small = snnlib.to_integers(net, x, scale="power-of-two", state_bits=32)
    report = compare_integers(net, small, x, net(x).sum(0).argmax(1))
    assert report.accuracy == 1.0
    for layer in report.layers[:-1]:
        assert layer.spikes is not None and layer.spikes.total > 100 and layer.spikes.identical == 1.0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="compiles C programs; there is no cc")
def test_random_nets_are_the_same_in_c(tmp_path: Path) -> None:
    # `benchmarks/exchange/unrolled.py` does the same with two hundred.
    assert sum(_same_everywhere(seed, tmp_path / f"{seed}") for seed in range(10, 20)) > 5


def _layers(neuron: Neuron, last: Neuron | None = None) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingLinear(12, 8, neuron=neuron),
        snnlib.SpikingLinear(8, 4, neuron=last or IF(levels=3)),
    ).eval()
    return net, torch.rand(30, 3, 12)


def test_virtual_steps_add_up_to_the_graded_spikes() -> None:
    net, x = _layers(IF(levels=4))
    first, _ = unroll_spikes(net, x).layers(x)
    assert first.spikes is not None and first.spikes.shape == (30, 4, 3, 8, 1, 1)
    assert torch.equal(first.spikes.sum(1).flatten(2), net[0](x))
    # A neuron that did not fire in a virtual step has nothing to fire with in those behind it.
    assert (first.spikes[:, 1:] <= first.spikes[:, :-1]).all()


@pytest.mark.parametrize(
    "neuron",
    [
        LIF(tau=4 / 3, levels=4),
        LIF(tau=4.0, levels=4, threshold=0.3, level_rounding="floor"),
        CubaLIF(levels=4, decay_input=False),
        PLIF(levels=4, threshold=0.7),
    ],
    ids=["a leak of 3/4", "a quarter", "a synapse", "a learned leak"],
)
def test_what_is_rounded_is_reported(neuron: Neuron) -> None:
    net, x = _layers(neuron, Integrator(3.0))
    report = verify_unrolled(net, unroll_spikes(net, x), x)
    assert not report.exact and report.layers[0].spikes is not None and report.layers[0].spikes.total > 50
    # No one of some thousand neuron-steps lies within rounding of a threshold; the second layer's potentials follow.
    assert [layer.flips for layer in report.layers] == [0, 0]
    # Potentials of some tens in float32 have 4e-6 from one to the next.
    assert 0 < max(layer.potential for layer in report.layers) < 1e-4
    assert "rounded" in str(report) and "equal bit for bit" not in str(report)


def test_flips_are_counted() -> None:
    net, x = _layers(IF(levels=4))
    unrolled = unroll_spikes(net, x)
    with torch.no_grad():
        net[0].weight[0] += 0.25
    report = verify_unrolled(net, unrolled, x)
    assert report.layers[0].flips > 0 and report.layers[0].potential > 0 and not report.equal


def _integrates(threshold: float, start: float) -> Neuron:
    """SpikingJelly's `IFNode` with a reset by subtraction, whose membrane starts here."""
    return LIF(math.inf, decay_input=False, threshold=threshold, start_value=start, reset="subtract")


def _chain() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.PerStep(nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)),
        IF(levels=4, threshold=0.5),
        snnlib.AvgPool2d(2),
        nn.Flatten(2),
        snnlib.SpikingLinear(16, 6, neuron=IF(levels=7, level_rounding="floor")),
        snnlib.SpikingLinear(6, 5, neuron=IF(reset="subtract")),
    ).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_((parameter * 16 + 1).round() / 16)
    return net, torch.poisson(torch.full((9, 3, 2, 8, 8), 0.3))


def test_a_chain_of_integrate_and_fire_neurons_gives_the_virtual_steps() -> None:
    net, x = _chain()
    unrolled = unroll_spikes(net, x)
    chain, runs = unrolled.chain(_integrates), unrolled.layers(x)
    value, run = x, next(runs)
    for module in chain:
        value = module(value)
        if isinstance(module, Neuron):
            assert run.spikes is not None and run.spikes.any()
            assert torch.equal(value, run.spikes.flatten(0, 1))
            run = next(runs, run)
    assert torch.equal(value.flatten(2), net(x))


def test_a_chain_has_the_dtype_of_the_net() -> None:
    net, x = _chain()
    net, x = net.double(), x.double()
    net[0][0].weight.data += 2**-30  # type: ignore[index]
    chain = unroll_spikes(net, x).chain(_integrates)
    assert torch.equal(chain[1][0].weight[:2, :1], net[0][0].weight[:2])  # type: ignore[index]
    assert chain(x).unflatten(0, (len(x), -1)).sum(1).flatten(2).equal(net(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_unrolled_net_stays_when_the_net_learns_on(dtype: torch.dtype) -> None:
    neuron = IF(levels=4, surrogate=EveryThreshold(Triangle(0.5, 0.4)))
    net = nn.Sequential(snnlib.SpikingRNN(6, 4, neuron=neuron)).to(dtype)
    x = 4 * torch.rand(5, 2, 6, dtype=dtype)
    unrolled = unroll_spikes(net, x)
    expected = unrolled(x)
    with torch.no_grad():
        for weight in net.parameters():
            weight.fill_(1)
    assert unrolled(x).equal(expected) and not net(x).equal(expected)


@pytest.mark.parametrize(
    ("neuron", "message"),
    [
        (LIF(levels=4), "^0: a leak, a synapse, delays and recurrence have no counterpart"),
        (CubaLIF(levels=4), "^0: a leak, a synapse, delays and recurrence have no counterpart"),
        (IF(levels=4, compare=">"), "^0: expected compare='>=', reset='subtract' and one threshold"),
        (IF(), "^0: expected compare='>=', reset='subtract' and one threshold"),
    ],
)
def test_other_neurons_are_no_chain(neuron: Neuron, message: str) -> None:
    net, x = _layers(neuron)
    with pytest.raises(ValueError, match=message):
        unroll_spikes(net, x).chain(_integrates)


@pytest.mark.parametrize(
    ("neuron", "message"),
    [
        (IF(levels=math.inf), r"^0 \(SpikingLinear\): levels=inf has no counterpart"),
        (
            IF(levels=4, reset="zero"),
            r"^0 \(SpikingLinear\): levels=4 beside reset='zero' has no counterpart",
        ),
        (LIF(levels=4, reset="none"), r"^0 \(SpikingLinear\): reset='none' has no counterpart"),
        *(
            (made, r"^0 \(SpikingLinear\): a membrane that does not start where its reset puts it has no")
            for made in (
                LIF(levels=4, start_value=2.0),
                LIF(reset="subtract", start_value=2.0),
                LIF(dialect="norse", reset="subtract", rest=0.5),
            )
        ),
    ],
)
def test_refused_by_name(neuron: Neuron, message: str, tmp_path: Path) -> None:
    net, x = _layers(neuron)
    for write in (unroll_spikes, snnlib.to_integers):
        with pytest.raises(ValueError, match=message):
            write(net, x)  # type: ignore[operator]


@pytest.mark.parametrize("place", [0, 1])
def test_sequences_with_samples_first_are_refused(place: int) -> None:
    net, x = _layers(IF(levels=4))
    net[place].batch_first = True
    for write in (unroll_spikes, snnlib.to_integers):
        with pytest.raises(
            ValueError, match=r"^\d \(SpikingLinear\): expected batch_first=False, got True; set"
        ):
            write(net, x)  # type: ignore[operator]


@pytest.mark.parametrize(("reset", "levels"), [("zero", 1), ("subtract", 1), ("subtract", 4)])
def test_states_beside_the_membrane_are_reset_as_in_the_net(reset: Any, levels: int) -> None:
    neuron = CubaLIF(2.0, 2.0, decay_input=False, levels=levels, reset=reset, reset_states="all")
    net, x = _layers(neuron)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_((parameter * 16).round() / 16)
    net, x = net[:1], x.round()
    report = verify_unrolled(net, unroll_spikes(net, x), x)
    assert report.equal and net(x).any(), str(report)
    assert torch.equal(snnlib.to_integers(net, x, scale="power-of-two", state_bits=32)(x), net(x))


@pytest.mark.parametrize(
    ("neuron", "last"),
    [
        (CubaLIF(2.0, torch.tensor([2.0, 4.0] * 4), decay_current=True, levels=4), Integrator(2.0)),
        (LIF(torch.tensor([1.0, 2.0] * 4), levels=4), Integrator(torch.tensor([2.0, 4.0, 8.0, 2.0]))),
        (IF(levels=4), Integrator(2.0, tau_s=torch.tensor([2.0, 4.0, 8.0, 2.0]))),
    ],
    ids=["gains", "membranes", "synapses of potentials"],
)
def test_each_channel_has_its_own_time_constants_but_in_integers(neuron: Neuron, last: Neuron) -> None:
    net, x = _layers(neuron, last)
    x = x.round()
    report = verify_unrolled(net, unroll_spikes(net, x), x)
    assert all(layer.flips == 0 and layer.potential < 1e-5 for layer in report.layers), str(report)
    assert report.layers[0].spikes is not None and report.layers[0].spikes.total > 20
    with pytest.raises(
        ValueError, match=r"^\d: expected one time constant for all neurons of a layer, got de"
    ):
        snnlib.to_integers(net, x)


def test_potentials_of_srm_neurons_are_the_nets() -> None:
    net, x = _layers(IF(levels=4))
    net[1] = snnlib.SRMLinear(8, 4, tau_m=2.0, tau_s=2.0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_((parameter.abs() * 16 + 1).round() / 16)
    report = verify_unrolled(net, unroll_spikes(net, x.round()), x.round())
    assert report.exact and report.equal and net(x).any(), str(report)


def test_writers_without_graded_spikes_say_so(tmp_path: Path) -> None:
    net, _ = _layers(IF(levels=4))
    with pytest.raises(ValueError, match=r"0 \(SpikingLinear\): expected neurons in Loihi's arithmetic"):
        to_lava(net, tmp_path / "net.net")


def test_fixed_point_has_no_virtual_steps() -> None:
    net, x = _layers(snnlib.neurons.LoihiLIF())
    with pytest.raises(ValueError, match=r"^0: fixed-point arithmetic has no counterpart in virtual steps$"):
        unroll_spikes(net, x)


def test_nir_has_no_graded_spikes() -> None:
    pytest.importorskip("nir", reason="NIR graphs need the package nir, which is not installed")
    net, x = _layers(IF(levels=4))
    with pytest.raises(
        ValueError, match=r"^0 \(SpikingLinear\): reset='subtract' and levels=4 has no counterpart in NIR"
    ):
        snnlib.to_nir(net)
    with pytest.raises(ValueError, match=r"^net \(UnrolledNet\): virtual steps, in which a layer waits"):
        snnlib.to_nir(unroll_spikes(net, x))


def test_counts_of_integers_are_bytes() -> None:
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 3, 3, neuron=IF(levels=100)),
        snnlib.AvgPool2d(2),
        snnlib.SpikingLinear(12, 2, neuron=IF(levels=4)),
    ).eval()
    message = (
        r"^0: expected levels and windows with counts up to 255, got 400: levels=100 and windows \(2, 2\)"
    )
    with pytest.raises(ValueError, match=message):
        snnlib.to_integers(net, torch.ones(3, 1, 2, 6, 6))


def test_onnx_has_no_graded_spikes(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    net, x = _layers(IF(levels=4))
    with pytest.raises(ValueError, match=r"^0: levels=4 have no counterpart in this graph$"):
        export_onnx(net, tmp_path / "net.onnx", x)


@pytest.mark.parametrize("shape", [(5, 2, 11), (0, 2, 12), (5, 12)])
def test_inputs_of_another_size_are_refused(shape: tuple[int, ...]) -> None:
    net, x = _layers(IF(levels=4))
    unrolled = unroll_spikes(net, x)
    with pytest.raises(
        ValueError, match=r"^x: expected \[T, N, 12, 1, 1\] with a time step at least, got shape"
    ):
        unrolled(torch.zeros(shape))


def test_inputs_without_a_number_or_a_sample_are_refused() -> None:
    net, x = _layers(IF(levels=4))
    unrolled = unroll_spikes(net, x)
    with pytest.raises(ValueError, match=r"^x: expected a sample at least, got shape \(30, 0, 12\)$"):
        verify_unrolled(net, unrolled, x[:, :0])
    for value in (math.nan, math.inf):
        x[3, 1, 2] = value
        for call in (unrolled, lambda x: verify_unrolled(net, unrolled, x)):
            with pytest.raises(ValueError, match=r"^x: expected finite numbers, got NaN or infinity$"):
                call(x)


def test_each_channel_has_its_own_threshold() -> None:
    net, x = _layers(IF(levels=4, threshold=torch.tensor([0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0])))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_((parameter.abs() * 32 + 1).round() / 16)
    x = (x * 16).round() / 16
    report = verify_unrolled(net, unroll_spikes(net, x), x)
    assert report.exact and report.equal, str(report)
    assert net[0](x).detach().sum((0, 1)).ne(0).all()


def test_an_unrolled_net_shows_its_layers_under_the_names_of_profile() -> None:
    x = (torch.rand(6, 2, 1, 8, 8) < 0.3).float()
    conv = snnlib.SpikingConv2d(1, 4, 3, neuron=IF(levels=4))
    deep = nn.Sequential(
        conv, nn.Sequential(nn.Flatten(2), snnlib.SpikingLinear(144, 3, neuron=IF(levels=2)))
    )
    readout = nn.Sequential(conv, nn.Flatten(2), snnlib.SpikingLinear(144, 3, neuron=Integrator(4.0)))
    calm = IF(levels=3, surrogate=EveryThreshold(Triangle(width=0.5, height=0.4)))
    for net in (
        conv,
        deep,
        readout,
        nn.Sequential(conv, nn.Flatten(2), snnlib.SpikingRNN(144, 3, 2, calm)),
    ):
        unrolled = unroll_spikes(net, x)
        rows = str(verify_unrolled(net, unrolled, x)).splitlines()[1:]
        named = [line.split()[0] for line in str(snnlib.profile(net, x)).splitlines()[1:]]
        shown = [line.strip().split(": ")[0] for line in str(unrolled).splitlines()[1:-1]] or ["(net)"]
        assert shown == [row.split()[0] for row in rows[: len(shown)]] == named[: len(shown)]
    assert str(unroll_spikes(conv, x)) == "UnrolledNet((net): (4, 6, 6), 4 virtual steps)"
    assert "  1.1: (3, 1, 1), 2 virtual steps" in str(unroll_spikes(deep, x)).splitlines()
    assert "  2: (3, 1, 1), potentials" in str(unroll_spikes(readout, x)).splitlines()


def test_rounding_makes_a_trained_net_exact() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingLinear(12, 20, neuron=IF(levels=4)),
        snnlib.SpikingLinear(20, 5, neuron=LIF(tau=1.0, levels=4, reset="subtract")),
    )
    x = (torch.rand(30, 4, 12) < 0.3).float()
    snnlib.prepare_(net, x)
    assert not verify_unrolled(net, unroll_spikes(net, x), x).exact
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(64).round_().div_(64)
    report = verify_unrolled(net, unroll_spikes(net, x), x)
    assert report.exact and report.equal, str(report)
