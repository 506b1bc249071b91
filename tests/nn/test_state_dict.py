"""State travels between all forms of a net: plain, standardised, folded, fused; with its neurons' constants."""

import copy
import functools
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.nn import fold_standardization_, standardize_weights_

Net = nn.Sequential


def _srm() -> Net:
    return nn.Sequential(
        snnlib.SRMConv2d(2, 5, 3, tau_m=8.0),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMLinear(5 * 9, 4, threshold=torch.tensor([0.5, 1.0, 1.5, 2.0])),
    )


def _lif() -> Net:
    return nn.Sequential(
        snnlib.SpikingConv2d(2, 5, 3, neuron=neurons.LIF(learnable=("tau",))),
        snnlib.AvgPool2d(2),
        snnlib.SpikingLinear(5 * 9, 4, neuron=neurons.CubaLIF()),
    )


NETS: dict[str, Callable[[], Net]] = {"srm": _srm, "lif": _lif}


def _events() -> Tensor:
    return (torch.rand(15, 3, 2, 8, 8, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def _learn(net: Net, seed: int) -> Net:
    """As training leaves a net: no scale, gain, bias or time constant is like another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(torch.rand(parameter.shape, generator=generator) + 0.5)
    return net


def _plain(net: Net) -> Net:
    return _learn(net, 1)


def _standardised(net: Net) -> Net:
    return _learn(standardize_weights_(net), 2)


def _folded(net: Net) -> Net:
    return fold_standardization_(_standardised(net))


FORMS: dict[str, Callable[[Net], Net]] = {"plain": _plain, "standardised": _standardised, "folded": _folded}


@functools.cache
def _prepared(kind: str, seed: int) -> Net:
    torch.manual_seed(seed)
    net = NETS[kind]()
    snnlib.prepare_(net, _events(), target_rate=0.15)
    return net


def _net(kind: str, seed: int = 0) -> Net:
    return copy.deepcopy(_prepared(kind, seed))


def _spikes(net: Net) -> list[Tensor]:
    """Returns the spikes of every layer without fusion, and of the net itself."""
    x, out = _events(), []
    with torch.no_grad():
        whole = net(x)
        for layer in net:
            x = layer(x)
            out.append(x)
    assert torch.equal(whole, x)
    assert 0 < whole.mean() < 1
    return out


def _assert_same(one: Net, other: Net) -> None:
    for got, expected in zip(_spikes(one), _spikes(other), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize(("stored", "loading"), list(itertools.product(FORMS, FORMS)))
def test_every_form_loads_into_every_other(stored: str, loading: str, kind: str) -> None:
    source, target = FORMS[stored](_net(kind)), FORMS[loading](_net(kind, seed=1))
    keys = list(target.state_dict())
    snnlib.fuse_(source)
    snnlib.fuse_(target)
    assert list(target.state_dict()) == keys
    assert {"0.weight", "2.weight"} <= source.state_dict().keys()
    target.load_state_dict(copy.deepcopy(source.state_dict()))
    if loading != "standardised" or stored == "standardised":
        _assert_same(target, source)
        return
    # Standardised from a weight alone.
    for layer in (0, 2):
        weight = source[layer].effective_weight.detach()
        error = (target[layer].effective_weight.detach() - weight).abs().max() / weight.abs().max()
        assert float(error) < 1e-6
    flips = sum(int((a != b).sum()) for a, b in zip(_spikes(target), _spikes(source), strict=True))
    assert flips <= 2


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("order", list(itertools.permutations(("load", "fuse", "fold"))), ids="-".join)
def test_any_order_of_load_fuse_and_fold_keeps_every_bit(order: tuple[str, ...], kind: str) -> None:
    net = _standardised(_net(kind))
    expected = _spikes(net)

    def load(net: Net) -> Net:
        """Into a net that knows nothing of how this one was trained."""
        fresh = NETS[kind]()
        fresh.load_state_dict(net.state_dict())
        return fresh

    steps: dict[str, Callable[[Net], Net]] = {
        "load": load,
        "fuse": snnlib.fuse_,
        "fold": fold_standardization_,
    }
    for step in order:
        net = steps[step](net)
        for got, spikes in zip(_spikes(net), expected, strict=True):
            assert torch.equal(got, spikes)


@pytest.mark.parametrize("kind", NETS)
def test_a_folded_net_is_standardised_again(kind: str) -> None:
    net = _folded(_net(kind))
    expected, weights = _spikes(net), [net[layer].effective_weight.detach().clone() for layer in (0, 2)]
    standardize_weights_(net)
    for layer, weight in zip((0, 2), weights, strict=True):
        error = (net[layer].effective_weight.detach() - weight).abs().max() / weight.abs().max()
        assert float(error) < 1e-6
    assert sum(int((a != b).sum()) for a, b in zip(_spikes(net), expected, strict=True)) <= 2
    # A second time nothing happens.
    steps = list(standardize_weights_(net).modules())
    assert sum(isinstance(step, snnlib.WeightStandardization) for step in steps) == 2


def test_training_goes_on_where_it_was() -> None:
    """V, gain, bias and optimiser state travel together."""
    nets = [_standardised(_net("lif")) for _ in range(2)]
    nets[1].load_state_dict(_learn(nets[0], 5).state_dict())
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_standardisation_without_bias_refuses_what_it_would_lose() -> None:
    net = standardize_weights_(nn.Sequential(snnlib.SRMLinear(6, 2)), bias=False)
    file = snnlib.SRMLinear(6, 2).state_dict(prefix="0.")
    file["0.weight"] = torch.arange(1.0, 13.0).view(2, 6)
    with pytest.raises(
        RuntimeError, match=r"0.weight: expected the mean of every channel to be 0.*bias=True"
    ):
        net.load_state_dict(file)


# Constants


def test_constants_are_float64_and_casts_skip_them() -> None:
    for net in (_srm().half(), _lif().bfloat16()):
        state = net.state_dict()
        constants = {key for key in state if ".neuron." in key}
        dtypes = {key: state[key].dtype for key in constants}
        learned = {"0.neuron.tau"} & constants
        assert all(dtypes[key] == (torch.float32 if key in learned else torch.float64) for key in constants)
    assert float(_srm().state_dict()["0.neuron.tau_m"]) == 8.0
    assert "neuron.tau_m" in snnlib.SRMReadout(3, 2).state_dict()


@pytest.mark.parametrize(
    ("stored", "loading"),
    [
        (lambda: snnlib.SRMLinear(3, 2, tau_m=8.0), lambda: snnlib.SRMLinear(3, 2)),
        (lambda: snnlib.SRMLinear(3, 2, grad_clamp=None), lambda: snnlib.SRMLinear(3, 2)),
        (lambda: snnlib.SRMLinear(3, 2, input_grad_scale=0.85), lambda: snnlib.SRMLinear(3, 2)),
        (lambda: snnlib.SRMReadout(3, 2, tau_s=2.0), lambda: snnlib.SRMReadout(3, 2)),
        (lambda: neurons.SRM(tau_m=8.0), neurons.SRM),
        (lambda: snnlib.SpikingLinear(3, 2, neuron=neurons.LIF(tau=3.0)), lambda: snnlib.SpikingLinear(3, 2)),
        (lambda: neurons.LIF(tau=torch.tensor([2.0, 3.0])), neurons.LIF),
    ],
)
def test_other_constants_are_taken_over(
    stored: Callable[[], nn.Module], loading: Callable[[], nn.Module]
) -> None:
    source, target = stored(), loading()
    target.load_state_dict(source.state_dict())
    assert repr(target) == repr(source)
    x = torch.rand(12, 2, 3 if hasattr(source, "weight") else 2, generator=torch.Generator().manual_seed(2))
    assert torch.equal(target(x), source(x))


def test_another_reset_is_said() -> None:
    stored = nn.Sequential(snnlib.SpikingLinear(3, 2, neuron=neurons.LIF(reset="subtract"))).state_dict()
    net = nn.Sequential(snnlib.SpikingLinear(3, 2))
    with pytest.warns(
        UserWarning, match=r"0.neuron.reset: .* another way, 'subtract', .* own, 'zero'"
    ) as said:
        net.load_state_dict(stored)
    assert said[0].filename == __file__


def test_a_constant_out_of_its_range_is_an_error_that_names_it() -> None:
    layer = snnlib.SRMLinear(3, 2)
    state = layer.state_dict() | {"neuron.tau_s": torch.tensor(0.5)}
    with pytest.raises(RuntimeError, match="tau_s: expected a finite number of time steps"):
        layer.load_state_dict(state)


@pytest.mark.parametrize(
    "values", [torch.tensor(2.0), torch.tensor([2.0, 2.0]), torch.tensor([1.0, 3.0])], ids=str
)
@pytest.mark.parametrize("own", [2.0, torch.tensor([1.0, 2.0])], ids=str)
def test_thresholds_shared_or_per_channel(values: Tensor, own: float | Tensor) -> None:
    x = torch.rand(12, 2, 3, generator=torch.Generator().manual_seed(2))
    layers = [snnlib.SRMLinear(3, 2, threshold=threshold) for threshold in (values, own)]
    layers[1].load_state_dict(layers[0].state_dict())
    assert torch.equal(layers[1].threshold, values)
    assert torch.equal(layers[1](x), layers[0](x))


def test_learned_thresholds_keep_their_shape() -> None:
    """An optimiser holds them; where channels differ there is no exact scalar."""
    shared = neurons.LIF(threshold=1.0, learnable=("threshold",))
    own = neurons.LIF(threshold=1.0, learnable=("threshold",), channels=2)
    with torch.no_grad():
        shared.threshold.fill_(1.5)
    own.load_state_dict(shared.state_dict())
    assert own.threshold.tolist() == [1.5, 1.5]
    with torch.no_grad():
        own.threshold.fill_(0.75)
    shared.load_state_dict(own.state_dict())
    assert shared.threshold.item() == 0.75
    with torch.no_grad():
        own.threshold[0] = 0.5
    with pytest.raises(RuntimeError, match="size mismatch for threshold"):
        shared.load_state_dict(own.state_dict())


def test_a_file_without_constants_is_refused_by_their_names() -> None:
    for layer in (snnlib.SRMReadout(3, 2), snnlib.SRMLinear(3, 2)):
        file = {"weight": layer.weight, "gain": layer.gain}
        with pytest.raises(RuntimeError, match=r'Missing key.*"neuron\.tau_m"'):
            layer.load_state_dict(file)
        assert "neuron.tau_m" in layer.load_state_dict(file, strict=False).missing_keys


# Whole nets


@pytest.mark.parametrize("form", ["plain", "folded"])
def test_whole_nets_are_stored(form: str, tmp_path: Path) -> None:
    net = snnlib.fuse_(FORMS[form](_net("srm")))
    torch.save(net, tmp_path / "net.pt")
    _assert_same(torch.load(tmp_path / "net.pt", weights_only=False), net)


def test_a_standardised_net_says_what_to_store_instead() -> None:
    with pytest.raises(
        TypeError, match=r"torch.save\(net.state_dict\(\), file\), which loads into a plain net too"
    ):
        pickle.dumps(_standardised(_net("srm")))
