"""SpikeDoctor: absurd nets are described in words, healthy ones are not, and no hook stays behind."""

from contextlib import nullcontext

import pytest
import torch
from rates import set_rates_
from torch import Tensor, nn

import snnlib
from snnlib import SpikeDoctor
from snnlib.learning.decoding import spike_count
from snnlib.learning.losses import spike_count_loss


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return snnlib.models.from_notation("8C3p1-P2-16C3-20-3", (2, 8, 8), tau_m=8.0, tau_s=4.0)


def _task(samples: int = 12) -> tuple[Tensor, Tensor]:
    """Three classes of events: each fills its own third of the frame."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(samples) % 3
    row = torch.arange(8).view(1, 1, 8, 1) // 3
    rate = torch.where(row == labels.view(-1, 1, 1, 1), 0.4, 0.05)
    return (torch.rand(20, samples, 2, 8, 8, generator=generator) < rate).float(), labels


def _step(net: nn.Module) -> Tensor:
    x, labels = _task()
    loss = spike_count_loss(spike_count(net(x)), labels, desired=6, undesired=1)
    loss.backward()
    return loss


def _scaled(factor: float) -> nn.Sequential:
    net = _net()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(factor)
    return net


def _findings(net: nn.Module) -> list[str]:
    with SpikeDoctor(net) as doctor:
        _step(net)
    return doctor.findings()


def _hooks(net: nn.Module) -> int:
    modules = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules())
    return modules + sum(len(weight._post_accumulate_grad_hooks or ()) for weight in net.parameters())


def test_a_fused_net_has_the_same_rates_and_dead_channels() -> None:
    net = _net()
    with torch.no_grad():
        net.conv1.weight[3] = 0
    seen = []
    for _ in range(2):
        with SpikeDoctor(net) as doctor:
            _step(net)
        seen.append([(layer.name, layer.rate, layer.dead, layer.channels) for layer in doctor.layers()])
        snnlib.fuse_(net)
    assert seen[0] == seen[1]
    assert seen[0][0][2] == 1


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (0.01, "conv1: no neuron fired in 12 samples"),
        (100.0, "of the neurons fired in more than half of all steps of 12 samples"),
    ],
)
def test_absurd_scales_are_named_and_healed_by_calibration(factor: float, expected: str) -> None:
    net, (x, _) = _scaled(factor), _task()
    findings = _findings(net)
    assert any(expected in finding for finding in findings), findings
    assert all("snnlib.prepare_" in finding for finding in findings if "no neuron fired" in finding)
    set_rates_(net, x, {"conv1": 0.05, "conv2": 0.05, "fc1": 0.05, "fc2": 0.1})
    net.zero_grad()
    assert _findings(net) == []


@pytest.mark.parametrize("weight", [0.0, 100.0])
def test_a_prepared_layer_is_not_to_be_prepared_again(weight: float) -> None:
    net = nn.Sequential(snnlib.SpikingLinear(6, 5), snnlib.SpikingLinear(5, 3))
    x = (torch.rand(20, 4, 6, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    advice = []
    for prepare in (False, True):
        if prepare:
            net[0].reset_parameters()
            snnlib.prepare_(net, x)
        torch.nn.init.constant_(net[0].weight, weight)
        with SpikeDoctor(net) as doctor:
            net(x)
        advice.append(doctor.findings()[0].rpartition("; ")[2])
    assert "snnlib.prepare_" in advice[0] and advice[1].startswith("lower the learning rate")


def test_a_silent_layer_is_named_once() -> None:
    net = _net()
    set_rates_(net, _task()[0], 0.1)
    with torch.no_grad():
        net.conv2.weight.zero_()
    (finding,) = _findings(net)
    assert finding.startswith(
        "conv2: no neuron fired in 12 samples, so neither this layer nor those before it"
    )


def test_the_report_shows_the_course_of_training_and_when_a_layer_died() -> None:
    net = _net()
    set_rates_(net, _task()[0], 0.1)
    doctor = SpikeDoctor(net)
    assert "up to training batch" not in doctor.report()
    for batch in range(301):
        if batch == 150:
            nn.init.constant_(net.conv2.threshold, 1e9)
        with pytest.warns(UserWarning) if batch == 299 else nullcontext():
            _step(net)
    course = doctor.course()
    windows = [(window.first, window.last) for window in course["conv2"]]
    assert windows == [(1, 3), (4, 100), (101, 200), (201, 300)]
    assert [window.silent for window in course["conv2"]] == [0, 0, 0, 1]
    assert all(0.03 < window.rate < 0.3 for window in course["conv1"])
    lines = doctor.report().splitlines()
    at = lines.index("spikes/step (silent channels) up to training batch:")
    assert lines[at + 2].startswith("conv2  3: ") and lines[at + 2].endswith("  300: 0.00% (100%)")


def test_dead_channels_and_silent_outputs() -> None:
    net = _net()
    set_rates_(net, _task()[0], 0.1)
    with torch.no_grad():
        net.conv1.weight[:3] = -1
        net.fc2.weight[0] = -1
    x, _ = _task()
    x[:, ::2] = 0
    with SpikeDoctor(net) as doctor:
        net(x)
    findings = doctor.findings()
    assert findings[0].startswith("conv1: 3 of 8 channels did not fire in 12 samples and cannot learn")
    assert any(finding.startswith("fc2: 1 of 3 channels did not fire") for finding in findings)
    assert any(finding.startswith("fc2: no neuron fired in 50% of 12 samples") for finding in findings)


def test_a_dead_channel_before_a_readout_is_no_dead_output() -> None:
    net = nn.Sequential(snnlib.SRMLinear(20, 12), snnlib.SRMReadout(12, 3))
    torch.nn.init.constant_(net[0].weight, 0.1)
    with torch.no_grad():
        net[0].weight[0] = -1
    x = torch.ones(10, 4, 20)
    with SpikeDoctor(net) as doctor:
        net(x)
    assert not any("did not fire" in finding for finding in doctor.findings())
    with SpikeDoctor(net[:1]) as doctor:
        net(x)
    assert any("1 of 12 channels did not fire" in finding for finding in doctor.findings())


@pytest.mark.parametrize(
    ("scale", "word"),
    [(1e6, "exploding"), (1e-6, "vanishing"), (0.0, "the gradient of the weight was exactly 0")],
)
def test_gradients(scale: float, word: str) -> None:
    net = _net()
    set_rates_(net, _task()[0], 0.1)
    net.conv2.input_grad_scale = scale
    (finding,) = _findings(net)
    assert finding.startswith("conv1: ")
    assert word in finding


def test_nan_weights_and_gradients() -> None:
    net = _net()
    with torch.no_grad():
        net.conv2.weight[0] = torch.nan
    assert "conv2: NaN is among its spikes; look at its weights and its input" in _findings(net)
    net = _net()
    set_rates_(net, _task()[0], 0.1)
    with SpikeDoctor(net) as doctor:
        (net(_task()[0]).sum() * torch.inf).backward()
    assert "conv1: NaN or infinity is in its gradient" in doctor.findings()


@pytest.mark.parametrize("batch_first", [False, True])
def test_numbers(batch_first: bool) -> None:
    layer = snnlib.SRMLinear(1, 3, batch_first=batch_first)
    net = nn.Sequential(layer)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[100.0], [0.9], [-1.0]]))
    x = torch.ones(10, 4, 1)
    x[:, 3] = 0
    x = x.transpose(0, 1) if batch_first else x
    with SpikeDoctor(net) as doctor:
        for weight in (1.0, 3.0):
            layer.weight.grad = None
            (weight * net(x)).sum().backward()
            gradient = layer.weight.grad
    rates = net(x).flatten(0, 1).mean(0)
    (health,) = doctor.layers()
    assert (health.name, health.channels, health.dead) == ("0", 3, 1)
    assert health.rate == pytest.approx(float(rates.detach().mean()))
    assert health.busy == pytest.approx(1 / 3)
    # Root mean square of 1 and 3 times the gradient, which was 3 times at last.
    expected = (gradient / 3).norm() * 5**0.5 / layer.weight.norm()
    assert health.gradient == pytest.approx(float(expected.detach()), rel=1e-5)
    assert "0: no neuron fired in 25% of 8 samples" in doctor.report()
    doctor.reset()
    assert doctor.layers() == []


def test_report_is_a_table() -> None:
    net = _net()
    doctor = SpikeDoctor(net)
    assert str(doctor) == doctor.report() and str(doctor).endswith("nothing seen yet")
    set_rates_(net, _task()[0], {"conv1": 0.05, "conv2": 0.05, "fc1": 0.05, "fc2": 0.1})
    with doctor, torch.no_grad():
        net(_task()[0])
    lines = doctor.report().splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["layer", "conv1", "conv2", "fc1", "fc2"]
    assert lines[4].split()[1:4] == ["3", "10.00%", "0"] or float(lines[4].split()[2].rstrip("%")) > 8
    assert lines[1].endswith("none yet")
    assert lines[-1] == "nothing wrong"


def test_no_hook_stays_and_training_is_the_same() -> None:
    net, watched = _net(), _net()
    doctor = SpikeDoctor(watched)
    before = _hooks(watched)
    assert doctor.attach() is doctor
    attached = _hooks(watched)
    doctor.attach()
    assert _hooks(watched) == attached > before
    _step(net)
    _step(watched)
    doctor.detach()
    doctor.detach()
    assert _hooks(watched) == before
    for plain, other in zip(net.parameters(), watched.parameters(), strict=True):
        assert torch.equal(plain.grad, other.grad)
    with pytest.raises(ZeroDivisionError), doctor:
        raise ZeroDivisionError
    assert _hooks(watched) == before


def test_behind_a_potential_read_out_and_parametrized() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(snnlib.SRMLinear(6, 8), snnlib.SRMReadout(8, 3))
    snnlib.nn.standardize_weights_(net)
    x = (torch.rand(20, 5, 6) < 0.3).float()
    set_rates_(net, x, 0.1)
    with SpikeDoctor(net) as doctor:
        snnlib.losses.tet_loss(net(x), torch.tensor([0, 1, 2, 0, 1])).backward()
    (health,) = doctor.layers()
    assert health.gradient > 0
    assert doctor.findings() == []


def test_a_layer_of_integrators_does_not_fire() -> None:
    """Its potentials, above 1 at most steps, are no spikes of a saturated layer."""
    torch.manual_seed(0)
    readout = snnlib.SpikingLinear(40, 4, neuron=snnlib.neurons.Integrator(tau=8.0))
    net = nn.Sequential(snnlib.SRMLinear(30, 40), readout)
    x = (torch.rand(20, 8, 30) < 0.2).float()
    set_rates_(net[0], x, 0.1)
    nn.init.constant_(readout.weight, 3.0)
    with SpikeDoctor(net) as doctor:
        net(x).sum().backward()
    assert [layer.name for layer in doctor.layers()] == ["0"]
    assert doctor.findings() == []
    report = snnlib.memory_report(net, x)
    assert (report["1"].neuron_steps, report["1"].spikes) == (0, 0)
    assert 0 < report.total.rate < 0.2
    assert snnlib.explain_dispatch(net, x)["1"].rate == 0
    assert snnlib.profile(net, x)["1"].outputs == 0


@pytest.mark.parametrize(("steps", "spikes", "busy"), [(2, 8.0, 0.0), (10, 2.0, 0.0), (10, 6.0, 1.0)])
def test_busy_graded_neurons_fire_at_most_of_their_levels(steps: int, spikes: float, busy: float) -> None:
    net = snnlib.SpikingLinear(1, 4, neuron=snnlib.neurons.IF(levels=8))
    nn.init.ones_(net.weight)
    x = torch.zeros(10, 3, 1)
    x[:steps] = spikes
    with SpikeDoctor(net) as doctor:
        net(x).sum().backward()
    (health,) = doctor.layers()
    assert (health.rate, health.busy) == (pytest.approx(steps * spikes / 10), busy)
    assert [text.partition(" of ")[0] for text in doctor.findings()] == [": 100%"] * int(busy)
    assert snnlib.explain_dispatch(net, x).rate == steps / 10
    net.zero_grad()
    nn.init.constant_(net.weight, 100.0)
    with SpikeDoctor(net) as doctor:
        net(x).sum().backward()
    assert "where the surrogate gradient is 0" in doctor.findings()[-1]


def test_a_net_without_spikes_is_refused() -> None:
    with pytest.raises(
        ValueError, match="net: expected a module with spiking layers, got Linear without any"
    ):
        SpikeDoctor(nn.Linear(2, 2))


def test_streams_are_watched_like_whole_trains() -> None:
    layer = snnlib.SRMLinear(5, 4)
    x = torch.ones(6, 2, 5)
    with snnlib.SpikeDoctor(layer) as whole:
        layer(x)
    with snnlib.SpikeDoctor(layer) as chunks:
        stream = snnlib.Stream(layer)
        stream(x[:2])
        stream(x[2:])
    assert chunks.layers() == whole.layers()


class _OutputFirst(nn.Module):
    """Layers are registered in another order than they are called."""

    def __init__(self) -> None:
        super().__init__()
        self.output, self.hidden = snnlib.SRMLinear(1, 1), snnlib.SRMLinear(1, 1)
        for layer, weight in ((self.hidden, 4.0), (self.output, 1.5)):
            nn.init.constant_(layer.weight, weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.hidden(x))


def test_the_last_layer_is_the_one_called_last() -> None:
    x = torch.ones(10, 4, 1)
    # A single spike of the hidden layer is too little for the output.
    x[1:, :2] = 0
    net = _OutputFirst()
    with SpikeDoctor(net) as doctor:
        net(x)
        net(x)
    assert [layer.name for layer in doctor.layers()] == ["hidden", "output"]
    assert any("output: no neuron fired in 50% of 8 samples" in finding for finding in doctor.findings())


def test_repr_tells_layers_and_samples() -> None:
    net = nn.Sequential(snnlib.SRMLinear(4, 3), snnlib.SRMLinear(3, 2))
    doctor = SpikeDoctor(net)
    assert repr(doctor) == "SpikeDoctor(not watching 0, 1; 0 samples seen)"
    with doctor:
        net(torch.zeros(5, 7, 4))
        assert repr(doctor) == "SpikeDoctor(watching 0, 1; 7 samples seen)"
