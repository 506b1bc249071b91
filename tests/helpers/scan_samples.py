"""Sample arguments of the scan ops from the registry of neurons: the coefficients of every model as it is built."""

import torch
from op_samples import Arguments, Sample

from snnlib.neurons import MODELS, Neuron, SpikingNeuron
from snnlib.surrogate import ATan


def _build(name: str) -> Neuron:
    neuron = MODELS[name]()
    if isinstance(neuron, SpikingNeuron):
        # The kernels' exp is an approximation, with a test of its own.
        neuron.surrogate = ATan()
    return neuron


# Models without coefficients run by `step` only.
# Fixed point, which half precision cannot hold, has tests of its own (tests/neurons/test_fixed_point.py).
LINEAR = [
    name
    for name, model in MODELS.items()
    if not model.fixed_point and _build(name).dynamics(_build(name).constants()) is not None
]


def _arguments(name: str, generator: torch.Generator) -> Arguments:
    neuron = _build(name)
    dynamics = neuron.dynamics(neuron.constants())
    assert dynamics is not None
    # Inputs that reach the threshold in a few steps, whatever the leak and the gain.
    current = torch.randn(7, 2, 3, generator=generator, dtype=torch.float64) * 2 + 1.5
    state = torch.rand(len(neuron.state_names), 2, 3, generator=generator, dtype=torch.float64) * 0.4
    # Rounded to float32: the last bit of torch's `exp` of float64 depends on the processor.
    kernel = dynamics.kernel(torch.float32, torch.device("cpu"))
    coefficients = kernel.constants.detach().double()
    return (current, coefficients, state, kernel.flags, 0)


def sample_name(model: str) -> str:
    """Returns the name of a model's sample, by which its bits are stored."""
    return f"{model} as built"


def forward_sample(name: str) -> Sample:
    return Sample(sample_name(name), lambda generator: _arguments(name, generator))


def backward_sample(name: str) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        arguments = _arguments(name, generator)
        grads = (torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in arguments[:3:2])
        return (*grads, *arguments, True)

    return Sample(sample_name(name), make)
