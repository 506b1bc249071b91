"""Nets in integers: the native simulation against the definition in torch, the exported C program against both."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from integer_nets import LOW, NETS, built, counts
from torch import Tensor, nn

import snnlib
from snnlib.exchange import RoundedWeight, compare_integers, export_c, quantise_weights_
from snnlib.exchange.compare import SpikeCounts
from snnlib.exchange.integers.report import IntegerReport, LayerLoss
from snnlib.neurons import IF, LIF, Integrator

OPTIONS = {
    "the usual": {},
    "four bits": {"weight_bits": 4},
    "wide states": {"state_bits": 32},
    "powers of two and shifts": {"scale": "power-of-two", "decay": "shift"},
    "one scale": {"scale": "layer"},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", NETS)
def test_native_simulation_is_the_definition(name: str, options: str) -> None:
    net, x = built(name)
    small = snnlib.to_integers(net, x, **OPTIONS[options])  # type: ignore[arg-type]
    with snnlib.use_path("reference"):
        expected = small.integers(x)
    found = small.integers(x)
    assert found.dtype == torch.int32 and found.count_nonzero() > 0
    assert torch.equal(found, expected)
    assert small(x).shape == net(x).shape


@pytest.mark.parametrize(
    ("net", "frame", "output"),
    [
        (snnlib.SpikingConv2d(2, 3, 4, neuron=IF()), (2, 4, 4), (3, 1, 1)),
        (snnlib.SpikingConv1d(2, 3, 4, neuron=IF()), (2, 4), (3, 1)),
        (snnlib.SpikingConv1d(2, 3, 3, neuron=IF()), (2, 5), (3, 3)),
        (nn.Sequential(snnlib.SpikingConv2d(2, 3, 2, neuron=IF()), nn.Flatten(2)), (2, 3, 4), (18,)),
        (snnlib.SpikingLinear(6, 3, neuron=IF()), (6,), (3,)),
    ],
    ids=["one cell", "one cell of one axis", "one axis", "flat", "linear"],
)
@pytest.mark.parametrize("steps", [0, 5])
def test_output_has_the_axes_of_the_float_net(
    net: nn.Module, frame: tuple[int, ...], output: tuple[int, ...], steps: int
) -> None:
    x = counts(5, 2, *frame, rate=0.3)
    small = snnlib.to_integers(net.eval(), x)
    assert small(x[:steps]).shape == net(x[:steps]).shape == (steps, 2, *output)


@pytest.mark.parametrize("largest", [1, 5, 255])
@pytest.mark.parametrize(
    ("kernel", "padding"), [((5, 3), (0, 0)), ((2, 7), (3, 8)), ((17, 2), (9, 1)), ((3, 1), (1, 0))]
)
def test_short_runs_of_weights_sum_up_to_any_count(
    kernel: tuple[int, int], padding: tuple[int, int], largest: int
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 7, kernel, padding=padding, neuron=LIF(tau=2.0), delays=snnlib.Delays(2)),
        snnlib.SpikingConv2d(7, 3, 2, neuron=Integrator(3.0)),
    )
    x = (torch.rand(4, 2, 2, 18, 11) < 0.5) * torch.randint(1, largest + 1, (4, 2, 2, 18, 11)).float()
    small = snnlib.to_integers(net.eval(), x)
    with snnlib.use_path("reference"):
        expected = small.integers(x)
    assert expected.count_nonzero() > 0 and torch.equal(small.integers(x), expected)


def _assert_exact(net: nn.Module, raised: int) -> None:
    """With weights in sixteenths, that much above what they were, integers lose nothing."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "delays" not in name:
                parameter.copy_((parameter * 16 + raised).round().clamp(-60, 60) / 16)
    x = counts(40, 3, 2, 6, 6)
    small = snnlib.to_integers(net, x, scale="power-of-two")
    assert torch.equal(small(x), net(x)) and net(x).any()


@pytest.mark.parametrize("reset", ["zero", "subtract"])
def test_sums_of_binary_fractions_lose_nothing(reset: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, neuron=IF(reset=reset, threshold=1.25)),  # type: ignore[arg-type]
        snnlib.AvgPool2d(2),
        snnlib.SpikingLinear(16, 3, neuron=IF(reset=reset, compare=">")),  # type: ignore[arg-type]
    ).eval()
    _assert_exact(net, 2)


def test_delays_are_those_of_the_float_net() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, neuron=IF(threshold=1.25), delays=snnlib.Delays(5)),
        snnlib.SpikingConv2d(
            *(4, 4, 3), padding=1, neuron=IF(threshold=0.5), delays=snnlib.Delays(5, per="connection")
        ),
        nn.Flatten(2),
        snnlib.SpikingRNN(
            *(64, 6),
            neuron=IF(threshold=1.0, surrogate=LOW),
            delays=snnlib.Delays(7, per="connection"),
            recurrent_delays=snnlib.Delays(4, per="connection"),
        ),
        snnlib.SpikingLinear(6, 3, neuron=IF(threshold=0.5), delays=snnlib.Delays(3)),
    ).eval()
    _assert_exact(net, 1)


@pytest.mark.parametrize(("bits", "scale"), [(8, "channel"), (4, "channel"), (4, "power-of-two")])
def test_a_net_trained_on_the_grid_keeps_its_weights(bits: int, scale: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(snnlib.SRMLinear(30, 12), snnlib.SRMReadout(12, 4))
    quantise_weights_(net, bits=bits, scale=scale)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    x, labels = counts(20, 16, 30), torch.arange(16) % 4
    before = nn.functional.cross_entropy(net(x).mean(0), labels)
    for _ in range(8):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x).mean(0), labels)
        loss.backward()
        optimizer.step()
    assert loss < before
    layers = snnlib.to_integers(net.eval(), x, weight_bits=bits, scale=scale).layers  # type: ignore[arg-type]
    for layer, module in zip(layers, net, strict=True):
        weight = (layer.weight.double().flatten(1) * layer.scale[:, None]).float()
        expected = module.effective_weight / (4.0 if layer.threshold is None else 1.0)  # type: ignore[union-attr, operator]
        if layer.threshold is None:
            # A unit of the potential is that of the sums over tau_s.
            expected = module.effective_weight / module.tau_s  # type: ignore[union-attr, operator]
        torch.testing.assert_close(weight, expected.detach(), rtol=1e-5, atol=1e-7)


def test_the_gradient_passes_the_rounding() -> None:
    weight = torch.randn(3, 5, requires_grad=True)
    RoundedWeight(4)(weight).sum().backward()
    assert weight.grad is not None and torch.equal(weight.grad, torch.ones(3, 5))


def test_recurrent_weights_are_rounded_too() -> None:
    for layer in (snnlib.SpikingConvRNN1d(2, 6, 3), snnlib.SpikingRNN(2, 6).layers[0]):
        quantise_weights_(layer, bits=4, scale="layer")
        assert len(layer.recurrent_weight.unique()) <= 15


def test_states_saturate() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(4, 2, neuron=Integrator(tau=torch.inf, decay_input=False)))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0] * 4, [-1.0] * 4]))
    small = snnlib.to_integers(net.eval(), torch.ones(1, 1, 4))
    x = torch.full((20000, 1, 4), 255.0)
    out = small.integers(x)
    assert out[-1, 0].tolist() == [2**31 - 1, -(2**31)]


def test_what_is_lost_is_told_by_layer() -> None:
    net, x = built("SRM")
    small = snnlib.to_integers(net, x)
    report = compare_integers(net, small, x, net(x).mean(0).argmax(1))
    assert report.accuracy == 1.0 and [layer.name for layer in report.layers] == ["0", "2", "3"]
    first = report.layers[0].spikes
    assert first is not None and first.identical > 0.9 and first.matched > 100
    assert "in integers up to" in str(report)


@pytest.mark.parametrize(
    ("matched", "lost", "told"), [(395, 0.0, True), (395, 0.1, False), (990, 0.0, False), (0, -0.005, True)]
)
def test_few_identical_spikes_at_an_accuracy_that_stays_are_explained(
    matched: int, lost: float, told: bool
) -> None:
    spikes = SpikeCounts(matched, 500 - matched // 2, 500 - matched // 2)
    report = IntegerReport(0.9, [LayerLoss("0", spikes, 0.9 - lost), LayerLoss("1", None, 0.9 - lost)])
    assert ("a step earlier or later counts as one missing and one extra" in str(report)) == told


def test_wrong_input_is_named() -> None:
    net, x = built("recurrent")
    with pytest.raises(ValueError, match="weight_bits: expected 4 or 8, got 6"):
        snnlib.to_integers(net, x, weight_bits=6)
    with pytest.raises(
        ValueError, match=r"x: expected counts of events, whole numbers from 0 to 255, got others"
    ):
        snnlib.to_integers(net, x + 0.5)
    with pytest.raises(ValueError, match=r"x: expected \[T, N, 12, 1, 1\], got shape \(3, 1, 11\)"):
        snnlib.to_integers(net, x)(torch.zeros(3, 1, 11))
    odd = nn.Sequential(snnlib.SpikingLinear(12, 4, neuron=snnlib.neurons.ALIF()))
    with pytest.raises(
        ValueError,
        match=r"0 \(SpikingLinear\): expected leaky integrators, .* got ALIF",
    ):
        snnlib.to_integers(odd, x)
    late = nn.Sequential(snnlib.SpikingLinear(12, 4, delays=snnlib.Delays(300)))
    with pytest.raises(ValueError, match=r"0 \(SpikingLinear\): delays above 255 steps have no counterpart"):
        snnlib.to_integers(late, x)
    late = nn.Sequential(snnlib.SpikingConv1d(12, 4, 1, groups=2, delays=snnlib.Delays(3, per="connection")))
    with pytest.raises(
        ValueError, match=r'0 \(SpikingConv1d\): delays per="connection" of a convolution with groups'
    ):
        snnlib.to_integers(late, x[..., None])
    wide = nn.Sequential(snnlib.SpikingLinear(70_000, 2))
    with pytest.raises(ValueError, match="0: expected at most 65535 inputs in a column and neurons in a row"):
        snnlib.to_integers(wide, torch.zeros(2, 1, 70_000))
    branch = nn.Sequential(snnlib.nn.Residual(snnlib.SpikingLinear(12, 12)))
    with pytest.raises(
        ValueError, match=r"0 \(Residual\): a module that is no layer, neuron or pool of a chain"
    ):
        snnlib.to_integers(branch, x)


@pytest.mark.skipif(shutil.which("cc") is None, reason="compiles a C program; there is no cc")
@pytest.mark.parametrize(
    ("name", "options", "vectors"),
    [
        ("SRM", {}, True),
        ("convolutions", {"weight_bits": 4}, False),
        ("delays", {}, False),
        ("recurrent delays", {"state_bits": 32}, False),
        ("delays of connections", {"weight_bits": 4}, False),
    ],
)
def test_the_program_is_the_simulation(
    name: str, options: dict[str, int], vectors: bool, tmp_path: Path
) -> None:
    net, x = built(name)
    small = snnlib.to_integers(net, x, **options)  # type: ignore[arg-type]
    sizes = export_c(small, tmp_path, x, binary=False)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    if vectors:
        # With the processor's own instructions, as the Makefile has it.
        done = run("make", "check", "CFLAGS=-O1 -march=native -Werror")
    else:
        strict = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O0")
        built_object = run("cc", *strict, "-c", "net.c")
        assert built_object.returncode == 0, built_object.stderr
        done = run("cc", *strict, "-o", "check", "check.c", "net.o")
        assert done.returncode == 0, done.stderr
        done = run("./check", "vectors.bin")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 samples, outputs that differ: 0 by events, 0 by frames" in done.stdout
    # It tells a wrong output.
    wrong = bytearray((tmp_path / "vectors.bin").read_bytes())
    wrong[-4] ^= 1
    (tmp_path / "wrong.bin").write_bytes(wrong)
    done = run("./check", "wrong.bin")
    assert done.returncode == 1 and "1 by events, 1 by frames" in done.stdout
    # Its own count of memory is the compiler's, up to padding between arrays.
    if not vectors and shutil.which("size") is not None:
        bss = int(re.split(r"\s+", run("size", "net.o").stdout.splitlines()[1].strip())[2])
        aligned = len(re.findall(r"^static SNN_ALIGNED", (tmp_path / "net.c").read_text(), re.MULTILINE))
        assert sizes["ram"] <= bss <= sizes["ram"] + 512 + 64 * aligned


def test_an_input_that_the_net_does_not_take_is_named() -> None:
    net = nn.Sequential(snnlib.SRMConv2d(2, 3, 9)).eval()
    with pytest.raises(
        ValueError, match=r"x: expected an input that the net takes, got shape \(5, 2, 2, 8, 8\)"
    ):
        snnlib.to_integers(net, torch.ones(5, 2, 2, 8, 8))


class Around(nn.Module):
    """A forward of its own around a layer and a normalisation behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(12, 6), nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.inner(x))


def test_a_chain_may_hold_a_module_with_a_forward_of_its_own() -> None:
    torch.manual_seed(0)
    inside = Around().eval()
    neuron, last = snnlib.neurons.LIF(2.0), snnlib.SpikingLinear(6, 3)
    x = counts(20, 4, 12)
    small = snnlib.to_integers(nn.Sequential(snnlib.PerStep(inside), neuron, last), x)
    plain = nn.Sequential(snnlib.PerStep(inside.inner, inside.norm), neuron, last)
    assert torch.equal(small.integers(x), snnlib.to_integers(plain, x).integers(x))
    with pytest.raises(ValueError, match=r"0\.0 \(Tanh\): no layer, neuron or pool does what Tanh does"):
        snnlib.to_integers(nn.Sequential(snnlib.PerStep(nn.Tanh())), x)


def test_c_code_is_asked_of_a_net_in_integers(tmp_path: Path) -> None:
    net, x = nn.Sequential(snnlib.SpikingLinear(4, 3)), (torch.rand(5, 2, 4) < 0.5).float()
    with pytest.raises(
        TypeError, match=r"^net: expected the result of snnlib\.to_integers\(net, x\), got Seq"
    ):
        snnlib.exchange.export_c(net, tmp_path, x)  # type: ignore[arg-type]
    sizes = snnlib.exchange.export_c(snnlib.to_integers(net, x), tmp_path, x)
    said = f"{sizes['ram']} bytes of RAM, {sizes['flash']} of constants beside the code."
    assert any(said in file.read_text() for file in tmp_path.glob("net.[ch]"))
