"""`prepare_` makes any net fire and learn, changes nothing else, and names what it cannot mend."""

import copy
import html
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.prune import random_unstructured

import snnlib
from snnlib import prepare_


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        snnlib.SRMConv2d(2, 8, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        nn.Dropout(0.5),
        snnlib.SRMConv2d(8, 8, 3, threshold=torch.linspace(0.5, 2, 8)),
        snnlib.SRMLinear(8 * 4 * 4, 5),
    )


class _Branches(nn.Module):
    """A forward pass of its own: two hidden layers in parallel, one of them called twice, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = snnlib.SRMLinear(288, 12), snnlib.SRMLinear(288, 12)
        self.again = snnlib.SRMLinear(12, 12)
        self.first, self.second = snnlib.SRMLinear(12, 3), snnlib.SRMLinear(24, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        left, right = self.left(x), self.right(x)
        return {
            "a": self.first(self.again(self.again(left))),
            "b": self.second(torch.cat((left, right), 2)).sum(0),
        }


class _Normalised(nn.Module):
    """torch's own layers between: batch norm in front, a linear readout on spikes at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.hidden, self.out = (
            nn.BatchNorm2d(2),
            snnlib.SRMConv2d(2, 4, 3),
            nn.Linear(4 * 10 * 10, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x.flatten(0, 1)).view(x.shape)
        return self.out(self.hidden(x).flatten(2))


def _readout() -> nn.Sequential:
    return nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SRMReadout(8 * 10 * 10, 5))


def _lif() -> nn.Sequential:
    neurons = (snnlib.neurons.LIF(), snnlib.neurons.LIF(tau=4.0, reset="subtract"), snnlib.neurons.LIF())
    return nn.Sequential(
        snnlib.SpikingConv2d(2, 8, 3, neuron=neurons[0]),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SpikingLinear(8 * 5 * 5, 40, neuron=neurons[1]),
        snnlib.SpikingLinear(40, 5, neuron=neurons[2]),
    )


NETS = {
    "lif": _lif,
    "sequential": _net,
    "fused": lambda: snnlib.fuse_(_net()),
    "standardised": lambda: snnlib.nn.standardize_weights_(_net()),
    "readout": _readout,
    "branches": _Branches,
    "batch norm": _Normalised,
    "model": lambda: snnlib.models.from_notation("4C3p1-P2-6C3-10-3", (2, 12, 12), tau_m=8.0, tau_s=4.0),
    "layer": lambda: snnlib.SRMLinear(288, 4),
    "double": lambda: _net().double(),
    "bfloat16": lambda: _net().bfloat16(),
}


def _make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return NETS[name]()


def _batch(dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.rand(20, 8, 2, 12, 12, generator=torch.Generator().manual_seed(1)) < 0.1).to(dtype)


def _x(net: nn.Module) -> Tensor:
    return _batch(next(net.parameters()).dtype)


@pytest.mark.parametrize("name", NETS)
def test_every_kind_of_net_is_ready_to_learn(name: str) -> None:
    net = _make(name)
    report = prepare_(net, _x(net))
    assert report.findings() == []
    for layer in report.layers:
        if layer.rate is None:
            assert layer.potential == pytest.approx(1, rel=0.05)
        else:
            # bfloat16 rounds weights to 3 digits.
            # A few hidden neurons do not fire in every step, so that their outputs cannot.
            assert 0.6 * layer.target < layer.rate < 1.15 * layer.target, layer


@pytest.mark.parametrize("name", NETS)
def test_nothing_but_weights_and_gains_changes_and_again_changes_nothing(name: str) -> None:
    net = _make(name)
    net.eval()
    next(net.children(), net).train()
    parameters, modes = list(net.parameters()), [module.training for module in net.modules()]
    before, random_state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    twin = copy.deepcopy(net)
    prepare_(net, _x(net))
    assert torch.equal(torch.get_rng_state(), random_state)
    assert [module.training for module in net.modules()] == modes
    assert all(now is then for now, then in zip(net.parameters(), parameters, strict=True))
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in net.modules() if m is not net)
    after = copy.deepcopy(net.state_dict())
    assert {key for key in after if not key.endswith("prepared")} == before.keys()
    for key, value in after.items():
        if "running" in key or "tracked" in key or "threshold" in key:
            assert torch.equal(value, before[key]), key
    torch.rand(7)
    for report in (prepare_(net, _x(net), again=True), prepare_(twin, _x(twin))):
        assert report.findings() == []
    for other in (net, twin):
        assert all(torch.equal(value, after[key]) for key, value in other.state_dict().items())


def test_weights_are_stored_near_the_usual_scale() -> None:
    net = _net()
    prepare_(net, _batch())
    for layer in (net[0], net[3], net[4]):
        usual = 1 / (3 * layer.weight[0].numel()) ** 0.5
        # A step of 1e-3 is a small part of it.
        assert 0.15 < float(layer.weight.detach().std()) / usual < 3
        assert float(layer.gain).hex().startswith("0x1.0000000000000p")
    assert net[0].gain > 1


def test_output_layers_fire_at_one_half_wherever_they_are() -> None:
    report = prepare_(_make("branches"), _batch())
    targets = {layer.name: layer.target for layer in report.layers}
    assert targets == {"left": 0.1, "right": 0.1, "again": 0.1, "first": 0.5, "second": 0.5}
    # Spikes that a torch layer or a readout takes on are hidden.
    for name in ("batch norm", "readout"):
        assert prepare_(_make(name), _batch()).layers[0].target == 0.03


def test_small_hidden_layers_fire_more_often() -> None:
    net = nn.Sequential(*(snnlib.SRMLinear(a, b) for a, b in ((288, 200), (200, 50), (50, 10), (10, 3))))
    targets = [layer.target for layer in prepare_(net, _batch()).layers]
    assert targets == pytest.approx([0.03, 0.06, 0.1, 0.5])


def test_target_rate() -> None:
    rates = {layer.name: layer.rate for layer in prepare_(_net(), _batch(), 0.1).layers}
    assert rates == pytest.approx({"0": 0.1, "3": 0.1, "4": 0.5}, rel=0.1)
    rates = {layer.name: layer.rate for layer in prepare_(_net(), _batch(), {"3": 0.2, "4": 0.25}).layers}
    assert rates == pytest.approx({"0": 0.03, "3": 0.2, "4": 0.25}, rel=0.1)
    for name in ("net", ""):
        (layer,) = prepare_(snnlib.SRMLinear(288, 4), _batch().flatten(2), {name: 0.2}).layers
        assert (layer.name, layer.rate) == ("net", pytest.approx(0.2, rel=0.1))


def test_frozen_layers_keep_their_weights_and_gradients_their_values() -> None:
    net = _net()
    prepare_(net, _batch())
    net(_batch()).sum().backward()
    net[0].weight.requires_grad_(False)
    kept, gradient = copy.deepcopy(net[0].state_dict()), net[4].weight.grad.clone()
    report = prepare_(net, _batch(), {"0": 0.2}, again=True)
    assert all(
        torch.equal(value, kept[key]) for key, value in net[0].state_dict().items() if key != "prepared"
    )
    assert not net[0].weight.requires_grad
    assert report.layers[0].rate == pytest.approx(0.03, rel=0.1)
    assert torch.equal(net[4].weight.grad, gradient)


def test_quantised_weights() -> None:
    torch.manual_seed(0)
    net = snnlib.SRMLinear(288, 4)
    nn.utils.parametrize.register_parametrization(net, "weight", snnlib.Quantizer(8, rounding="nearest"))
    report = prepare_(net, _batch())
    assert report.findings() == []
    assert net.eval()(_batch()).mean().item() == pytest.approx(0.5, rel=0.1)


class _Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight / 2


class _UnitRows(nn.Module):
    """Throws the scale away."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / weight.flatten(1).norm(dim=1)[:, None]


@pytest.mark.parametrize("kind", ["inverse", "weight norm"])
def test_parametrized_weights(kind: str) -> None:
    net = snnlib.SRMLinear(288, 4)
    if kind == "weight norm":
        weight_norm(net)
    else:
        nn.utils.parametrize.register_parametrization(net, "weight", _Doubled())
    assert prepare_(net, _batch(), 0.1).layers[0].rate == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("step", [_UnitRows(), snnlib.WeightStandardization(4)])
def test_parametrization_that_loses_the_weight(step: nn.Module) -> None:
    net = snnlib.SRMLinear(288, 4)
    nn.utils.parametrize.register_parametrization(net, "weight", step)
    with pytest.raises(ValueError, match="expected a parametrization that keeps the weight it is given"):
        prepare_(net, _batch())


def test_weight_that_a_hook_computes() -> None:
    net = random_unstructured(snnlib.SRMLinear(288, 4), "weight", 0.5)
    with pytest.raises(ValueError, match="net: expected a parameter, got a weight that a hook computes"):
        prepare_(net, _batch())


def test_what_it_cannot_mend_is_named() -> None:
    net = _make("branches")
    net.unused = nn.Linear(3, 3)
    assert any("unused.weight gets no gradient" in finding for finding in prepare_(net, _batch()).findings())

    class Detached(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[1](self[0](x).detach())

    report = prepare_(Detached(snnlib.SRMLinear(288, 12), snnlib.SRMLinear(12, 3)), _batch())
    assert report.without_gradient == ["0.weight"]
    assert "0.weight gets no gradient" in str(report)

    class Silenced(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[0](x) * 0

    report = prepare_(Silenced(snnlib.SRMLinear(288, 12)), _batch())
    assert any("no spike arrives at the output" in finding for finding in report.findings())


def test_dead_and_starved_layers_are_named() -> None:
    x = torch.zeros(20, 4, 3, 6, 6)
    x[0, :, 0, 0, 0] = 1
    net = nn.Sequential(snnlib.SRMConv2d(3, 6, 3, groups=3))
    findings = prepare_(net, x, {"0": 0.4}).findings()
    assert any("0 has dead channels: 4 of 6" in finding for finding in findings)
    assert any("0 fires at" in finding and "40.0% is wanted" in finding for finding in findings)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([[1.0]], TypeError, "x: expected a spike tensor .*, got list"),
        (torch.ones(4, 288), ValueError, r"x: expected a spike tensor \[T, N, ...\].*got shape \(4, 288\)"),
        (torch.zeros(4, 2, 288), ValueError, "x: expected a spike tensor with spikes, got zeros only"),
        (torch.full((4, 2, 288), torch.nan), ValueError, "x: expected finite numbers"),
        (torch.zeros(0, 2, 288), ValueError, "x: expected a spike tensor with spikes"),
    ],
)
def test_inputs_that_are_none(x: object, error: type[Exception], message: str) -> None:
    net = snnlib.SRMLinear(288, 4)
    before = net.weight.clone()
    with pytest.raises(error, match=f"^{message}"):
        prepare_(net, x)
    assert torch.equal(net.weight, before)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (0.0, r"target_rate: expected a rate in \(0, 1\), got 0.0"),
        ({"0": 1.5}, r"target_rate: expected a rate in \(0, 1\), got 1.5"),
        ({"conv9": 0.1}, "target_rate: expected names among 0, 3, 4, got 'conv9'"),
    ],
)
def test_target_rates_that_are_none(target: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        prepare_(_net(), _batch(), target)


def test_nets_that_cannot_be_prepared() -> None:
    with pytest.raises(
        ValueError, match=r"^net: expected a module with spiking layers, got Sequential without any"
    ):
        prepare_(nn.Sequential(nn.Linear(3, 4)), torch.ones(4, 2, 3))
    net = _net()
    nn.init.constant_(net[3].weight, 0.1)
    with pytest.raises(
        ValueError, match=r"^3: expected a weight drawn at random, got one whose channels are constant"
    ):
        prepare_(net, _batch())
    assert not any(module._forward_pre_hooks for module in net.modules())

    class Gap(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[1](0 * self[0](x))

    with pytest.raises(
        ValueError, match=r"^1: expected input with spikes, got zeros: nothing before it fires"
    ):
        prepare_(Gap(snnlib.SRMLinear(288, 12), snnlib.SRMLinear(12, 3)), _batch())


def test_the_shortest_synapse() -> None:
    """The search for rates passes tau_grad on, which tau_s = 1 requires."""
    net = nn.Sequential(snnlib.SRMLinear(20, 6, tau_s=1.0, tau_grad=8.0))
    x = (torch.rand(9, 8, 20, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    assert "50.0%" in str(snnlib.prepare_(net, x))
    assert snnlib.prepare_(net, x, 0.1, again=True).layers[0].rate == pytest.approx(0.1, abs=0.03)


def test_it_looks_for_gradients_where_the_caller_wants_none() -> None:
    net = torch.nn.Sequential(snnlib.SRMLinear(20, 30), snnlib.SRMLinear(30, 5))
    with torch.no_grad():
        found = snnlib.prepare_(net, (torch.rand(10, 4, 20) < 0.2).float())
    assert not found.without_gradient


def test_a_notebook_shows_reports_as_they_are_printed() -> None:
    net = torch.nn.Sequential(snnlib.SRMLinear(20, 30), snnlib.SRMLinear(30, 5))
    x = (torch.rand(10, 4, 20, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    for report in (snnlib.prepare_(net, x), snnlib.memory_report(net, x), snnlib.explain_dispatch(net, x)):
        assert report._repr_html_() == f"<pre>{html.escape(str(report))}</pre>"


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_batch_with_its_labels_is_answered_by_its_input(kind: type) -> None:
    net, x = nn.Sequential(snnlib.SpikingLinear(4, 3)), (torch.rand(5, 2, 4) < 0.5).float()
    with pytest.raises(
        TypeError, match=rf"^x: expected a spike tensor .*, got {kind.__name__}; give its input alone"
    ):
        prepare_(net, kind((x, torch.zeros(2))))  # type: ignore[arg-type]
    prepare_(net, x)


def _in_order(*orders: bool) -> nn.Sequential:
    sizes = (6, 5, 4, 3)
    layers = [snnlib.SpikingLinear(*sizes[i : i + 2], batch_first=order) for i, order in enumerate(orders)]
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("orders", "pairs"), [((False, True), ["0.0 and 0.1"]), ((True, True, False), ["0.1 and 0.2"])]
)
def test_neighbours_of_different_order_are_named(orders: tuple[bool, ...], pairs: list[str]) -> None:
    x = (torch.rand(8, 8, 6, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepare_(nn.Sequential(_in_order(*orders)), x)
    said = [str(warning.message) for warning in caught if "batch_first" in str(warning.message)]
    assert said == [
        f"net: layers {pair} follow each other with batch_first={orders[int(pair[2])]} and "
        f"{orders[int(pair[-1])]}, so that one reads samples as steps; give both the same"
        for pair in pairs
    ]


class _Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1)


def test_a_turn_between_layers_of_different_order_is_quiet() -> None:
    first, second = _in_order(False, True)
    x = (torch.rand(8, 8, 6, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepare_(nn.Sequential(first, _Turned(), second), x)
    assert not any("follow each other" in str(warning.message) for warning in caught)
