"""The papers' SRM names: vectors in their dL/dt convention, and agreement with the library's layers."""

import subprocess
import sys

import pytest
import torch
from oracles import gradient_table, kernel_table
from srm_vectors import NAN, VECTORS, Vector
from torch import Tensor

import snnlib
from snnlib import compat

TAUS = (5.0, 3.0, 2.5)


def _train(values: list[float]) -> Tensor:
    """`[N, T, 1]`."""
    return torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1)


def _tables(steps: int, taus: tuple[float, float, float] = TAUS) -> tuple[Tensor, Tensor]:
    epsw = torch.from_numpy(kernel_table(taus[0], taus[1], steps))
    return epsw, -torch.from_numpy(gradient_table(taus[2], steps))


@pytest.mark.parametrize("vector", VECTORS.values(), ids=list(VECTORS))
def test_neuron_vectors_with_the_papers_signs(vector: Vector) -> None:
    tau_m, tau_s, tau_grad = vector.taus
    current = _train(vector.current)
    spikes, delta_ut, delta_u = compat.srmNeuronFunc.forward(current, tau_m, tau_s, 1 - 1 / tau_grad, 1.0)
    assert spikes.flatten().nonzero().flatten().tolist() == vector.spike_steps
    grad_w, grad_t = compat.srmNeuronFunc.backward(
        _train(vector.gradient), delta_ut, delta_u, spikes, *_tables(current.shape[1], vector.taus)
    )
    for actual, expected in (
        (delta_ut, vector.delta_ut),
        (grad_w, [-a for a in vector.a]),
        (grad_t, vector.b),
    ):
        torch.testing.assert_close(
            actual.flatten(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-6
        )


def test_a_neuron_silent_over_the_whole_train_reads_no_table_entry() -> None:
    spikes, delta_ut, delta_u = compat.srmNeuronFunc.forward(_train([0.1] * 4), 5.0, 3.0, 0.6, 1.0)
    nan_tables = torch.full((4,), NAN), torch.full((4,), NAN)
    for signal in compat.srmNeuronFunc.backward(torch.ones(1, 4, 1), delta_ut, delta_u, spikes, *nan_tables):
        assert (signal == 0).all()


def _events(rng: torch.Generator, *shape: int) -> Tensor:
    return (torch.rand(*shape, generator=rng, dtype=torch.float64) < 0.3).double()


CONVOLUTIONS = [
    {},
    {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2},
    {"padding": "same"},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=["plain", "all options", "same"])
def test_function_module_and_library_layer_agree(options: dict[str, object], rng: torch.Generator) -> None:
    module = compat.srmConv(4, 6, 3, **options).double()
    module.weight.data.mul_(2)
    geometry = module.stride, module.padding, module.dilation, module.groups
    x = _events(rng, 2, 12, 4, 7, 8)
    results = []
    for layer in (
        module,
        lambda events: compat.srmConvFunc.apply(
            events, module.weight, 5.0, 3.0, 0.6, 1.0, *_tables(12), *geometry
        ),
    ):
        events = x.clone().requires_grad_()
        spikes = layer(events)
        assert spikes.sum() > 50
        g = torch.linspace(-1, 1, spikes.numel(), dtype=torch.float64).reshape(spikes.shape)
        results.append((spikes, *torch.autograd.grad(spikes, (events, module.weight), g)))
    for ours, table in zip(*results, strict=True):
        torch.testing.assert_close(ours, table, rtol=1e-10, atol=1e-12)

    published = {"tau_m": 5, "tau_s": 3, "tau_grad": 2.5, "input_grad_scale": 0.85, "batch_first": True}
    own = snnlib.SRMConv2d(4, 6, 3, **options, **published, dtype=torch.float64)
    own.load_state_dict(own.state_dict() | {"weight": module.weight.detach()})
    events = x.clone().requires_grad_()
    spikes = own(events)
    # dL/ds is minus dL/dt: at the output, and again at the input.
    grad_x, grad_weight = torch.autograd.grad(spikes, (events, own.weight), -g)
    for ours, theirs in zip(results[0], (spikes, -grad_x, grad_weight), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_linear_gradient_holds_only_at_events(rng: torch.Generator) -> None:
    layer = compat.srmLinear(20, 6).double()
    x = _events(rng, 3, 10, 20).requires_grad_()
    spikes = layer(x)
    assert spikes.sum() > 0
    spikes.sum().backward()
    assert (x.grad[x == 0] == 0).all()
    for parameter in layer.parameters():
        assert parameter.grad.abs().sum() > 0


def test_linear_normalisation_is_that_of_standardize_weights(rng: torch.Generator) -> None:
    layer = compat.srmLinear(20, 6)
    x = _events(rng, 3, 10, 20).float()
    standardize = snnlib.WeightStandardization(6)
    expected = snnlib.functional.srm_linear(
        x, standardize(layer.weight), tau_m=5.0, tau_s=3.0, tau_grad=2.5, batch_first=True
    )
    assert torch.equal(layer(x), expected)
    assert not hasattr(compat.srmLinear(20, 6, weight_norm=False).bn_weight, "grad")


def test_state_dict_has_the_published_names() -> None:
    assert sorted(compat.srmLinear(4, 2).state_dict()) == ["bn_bias", "bn_weight", "eps", "weight"]
    assert sorted(compat.srmConv(4, 2, 3).state_dict()) == ["weight"]


def test_function_accepts_tables_of_another_kernel() -> None:
    """Twice the tables, twice the gradients: the tables given are the ones used."""
    events = torch.ones(1, 6, 1, 1, 1, dtype=torch.float64)
    weight = torch.full((1, 1, 1, 1), 2.0, dtype=torch.float64)
    sums = []
    for factor in (1, 2):
        epsw, epst = (factor * table for table in _tables(7))
        x, w = events.clone().requires_grad_(), weight.clone().requires_grad_()
        compat.srmConvFunc.apply(x, w, 5.0, 3.0, 0.6, 1.0, epsw, epst).sum().backward()
        sums.append((x.grad.sum().item(), w.grad.sum().item()))
    assert sums[1] == pytest.approx([2 * value for value in sums[0]])
    assert sums[0][1] < 0


def test_errors_name_the_argument() -> None:
    x, w = torch.ones(1, 6, 1, 3, 3), torch.ones(1, 1, 3, 3)
    with pytest.raises(ValueError, match=r"epst: expected a table of at least 6 entries, got shape \(5,\)"):
        compat.srmConvFunc.apply(x, w, 5.0, 3.0, 0.6, 1.0, torch.ones(6), torch.ones(5))
    with pytest.raises(ValueError, match="tau_m"):
        compat.srmConv(1, 1, 3, taum=0.5)(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_module_and_function_in_every_dtype(dtype: torch.dtype, rng: torch.Generator) -> None:
    layer, table = compat.srmConv(2, 4, 3).to(dtype), torch.linspace(1, 0.1, 8)
    layer.weight.data.abs_()
    constants = 5.0, 3.0, 0.6, 1.0
    for call in (layer, lambda x: compat.srmConvFunc.apply(x, layer.weight, *constants, table, -table)):
        layer.zero_grad()
        x = _events(rng, 2, 8, 2, 6, 6).to(dtype).requires_grad_()
        spikes = call(x)
        assert spikes.dtype is dtype and spikes.any()
        spikes.sum().backward()
        for gradient in (x.grad, layer.weight.grad):
            assert gradient.dtype == dtype
            assert gradient.isfinite().all() and gradient.any()


def test_one_input_has_no_variance() -> None:
    with pytest.raises(ValueError, match=r"^in_features: expected an integer >= 2 with weight_norm, got 1"):
        compat.srmLinear(1, 3)
    assert compat.srmLinear(1, 3, weight_norm=False).weight.shape == (3, 1)


def test_top_level_names_warn_each_once_of_their_sign() -> None:
    """Names of `snnlib.compat` never do, nor does what has no sign."""
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import snnlib
    from snnlib import Quantizer, LossReverse, Bicubic
    from snnlib.compat import srmConv2d
    snnlib.compat.srmConv(1, 2, 3)
    print(len(caught))
    snnlib.srmConv(1, 2, 3)
    from snnlib import srmConv2d as again, srmLinear, srmNeuronFunc
    snnlib.srmConv(1, 2, 3)
    print(len(caught), again is srmConv2d, caught[0].filename, caught[0].message)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = run.stdout.splitlines()
    assert first == "0"
    assert second.startswith(
        "4 True <string> snnlib.srmConv has the papers' gradients dL/dt, of the opposite sign"
    )
