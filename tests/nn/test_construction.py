"""Layers that are made or called inside `torch.device`, `torch.inference_mode` and `torch.func`."""

import pytest
import torch

import snnlib
from snnlib import neurons


@pytest.mark.parametrize("model", list(neurons.MODELS.values()))
def test_neurons_under_a_meta_device_get_their_values_from_a_file(model: type[neurons.Neuron]) -> None:
    x = torch.rand(5, 2, 3)
    stored = model()
    with torch.device("meta"):
        empty = model()
    empty.load_state_dict(stored.state_dict(), assign=True)
    assert torch.equal(empty(x), stored(x))


def test_a_constant_that_is_no_number_is_named() -> None:
    with pytest.raises(TypeError, match="tau: expected a number or a tensor, got 'long'"):
        neurons.LIF(tau="long")  # type: ignore[arg-type]


def test_layer_made_in_inference_mode() -> None:
    with torch.inference_mode():
        assert snnlib.SpikingLinear(6, 5)(torch.rand(3, 2, 6)).shape == (3, 2, 5)


def test_stream_learns_behind_a_chunk_in_inference_mode() -> None:
    layer = snnlib.SpikingLinear(6, 5)
    x = torch.rand(8, 2, 6)
    stream = snnlib.Stream(layer)
    with torch.inference_mode():
        stream(x[:4])
    later = stream(x[4:])
    later.sum().backward()
    assert torch.equal(later, layer(x)[4:])
    assert layer.weight.grad is not None


# An op without a batching rule runs sample by sample, which torch 2.13 says on stderr and 2.15 as a warning.
@pytest.mark.filterwarnings(
    "ignore:There is a performance drop because we have not yet implemented the batching rule for snnlib:UserWarning"
)
def test_vmap_of_a_recurrent_layer_in_training() -> None:
    layer = snnlib.SpikingRNN(6, 4)
    x = 3 * torch.rand(3, 5, 2, 6)
    assert torch.equal(torch.func.vmap(layer)(x), torch.stack([layer(part) for part in x]))


APART = {
    "LIF": neurons.LIF(),
    "Izhikevich": neurons.Izhikevich(),
    "SRM": neurons.SRM(),
    "SpikingRNN": snnlib.SpikingRNN(6, 4),
    "SRMReadout": snnlib.SRMReadout(6, 4),
}
# Their gradients are functions of autograd that know no transform at all.
TOGETHER = {
    "own surrogate": neurons.LIF(surrogate=torch.ones_like),
    "CubaLIF": neurons.CubaLIF(gradient="event"),
    "PSN": neurons.PSN(5),
    "recurrent delays": snnlib.SpikingRNN(6, 4, recurrent_delays=snnlib.Delays(3)),
    "Delays": snnlib.SpikingLinear(6, 4, neuron=neurons.LIF(), delays=snnlib.Delays(3)),
}


# `jvp` brings the old compiler of torch.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is", "ignore:There is a performance drop")
@pytest.mark.parametrize("name", [*APART, *TOGETHER])
def test_transforms_that_differentiate_are_refused_by_name(name: str) -> None:
    module, x = (APART | TOGETHER)[name], torch.rand(5, 2, 6)
    transforms = [
        lambda: torch.func.grad(lambda part: module(part).sum())(x),
        lambda: torch.func.vmap(torch.func.grad(lambda part: module(part[:, None]).sum()), 1)(x),
        lambda: torch.func.jvp(module, (x,), (x,)),
    ]
    if name in TOGETHER:
        transforms.append(lambda: torch.func.vmap(module)(torch.stack((x, x))))
    for transform in transforms:
        with pytest.raises(
            RuntimeError, match=r"expected a call outside torch\.func.*loss\.backward\(\) gives"
        ):
            transform()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", APART)
def test_a_batch_of_batches_has_the_gradients_of_each(name: str) -> None:
    module, gradients = APART[name], []
    with torch.random.fork_rng():
        # Weights that fire: else layers say that they get no gradient.
        torch.manual_seed(0)
        x = 3 * torch.rand(3, 5, 2, 6)
        if isinstance(module, snnlib.SpikingRNN):
            module = snnlib.SpikingRNN(6, 4)
    for run in (torch.func.vmap(module), lambda parts: torch.stack([module(part) for part in parts])):
        leaf = x.clone().requires_grad_()
        run(leaf).square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


def test_vmap_over_weights_is_refused_by_name() -> None:
    layers = [snnlib.SpikingLinear(6, 4) for _ in range(2)]
    values = torch.func.stack_module_state(layers)  # type: ignore[arg-type]
    x = torch.rand(5, 2, 6)
    with pytest.raises(RuntimeError, match=r"expected a call outside torch.func.vmap"):
        torch.func.vmap(lambda *own: torch.func.functional_call(layers[0], own, (x,)))(*values)


def test_sizes_are_checked_before_thresholds() -> None:
    """Found by the fuzzer: a threshold per channel was compared with a tensor of sizes."""
    with pytest.raises(ValueError, match=r"^out_features: expected an integer >= 1"):
        snnlib.SRMLinear(15, torch.tensor([1, 1, 1]), threshold=torch.ones(3))  # type: ignore[arg-type]
