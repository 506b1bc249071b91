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


def test_vmap_of_a_recurrent_layer_in_training() -> None:
    layer = snnlib.SpikingRNN(6, 4)
    x = 3 * torch.rand(3, 5, 2, 6)
    assert torch.equal(torch.func.vmap(layer)(x), torch.stack([layer(part) for part in x]))


def test_vmap_over_weights_is_refused_by_name() -> None:
    layers = [snnlib.SpikingLinear(6, 4) for _ in range(2)]
    values = torch.func.stack_module_state(layers)  # type: ignore[arg-type]
    x = torch.rand(5, 2, 6)
    with pytest.raises(RuntimeError, match=r"expected a call outside torch.func.vmap"):
        torch.func.vmap(lambda *own: torch.func.functional_call(layers[0], own, (x,)))(*values)
