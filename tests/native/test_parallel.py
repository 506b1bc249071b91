"""Tasks of a parallel loop: what they throw arrives in Python; denormal numbers are the same on all threads."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

import snnlib
from snnlib.backends import native

pytestmark = pytest.mark.skipif(
    native._module is None or not sys.platform.startswith("linux"),
    reason="needs the compiled module, and Linux to limit memory",
)

# Two samples, so two tasks; the sums of a convolution take scratch beside the result, for which there is no room left.
SHORT_OF_MEMORY = """
import resource, torch, snnlib
torch.set_num_threads(2)
x, weight = torch.ones(2, 2, 1, 4, 4), torch.ones(3, 1, 1, 1)
def run(weight):
    return torch.ops.snnlib.currents_forward(x, weight, None, None, None, 0, [1, 1], [0, 0], [1, 1], 1, True)
# Threads and what they need beside the scratch are made before memory is short.
expected = run(weight)
large = torch.ones(500_000, 1, 1, 1)
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
# The result takes 122 MiB.
resource.setrlimit(resource.RLIMIT_AS, (now + (150 << 20),) * 2)
try:
    run(large)
except MemoryError:
    print("MemoryError")
# Nothing is left behind that would disturb the next call.
print(torch.equal(run(weight), expected))
"""


def test_too_little_memory_is_an_exception() -> None:
    command = [sys.executable, "-c", SHORT_OF_MEMORY]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["MemoryError", "True"]


def _denormal(x: torch.Tensor) -> torch.Tensor:
    """Returns where numbers are denormal, also where this thread counts them as zero."""
    bits = x.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])
    mantissa = {torch.float64: 52, torch.float32: 23, torch.bfloat16: 7}[x.dtype]
    magnitude = bits & torch.iinfo(bits.dtype).max
    return (magnitude != 0) & (magnitude < 1 << mantissa)


def _recurrent(current: torch.Tensor) -> list[torch.Tensor]:
    neuron, weight = snnlib.neurons.LIF(2.0), torch.zeros(current.shape[2], current.shape[2])
    return list(snnlib.functional.spiking_recurrent(current, weight.to(current.dtype), neuron).state)


def _sparse(current: torch.Tensor) -> list[torch.Tensor]:
    layer = snnlib.SpikingLinear(current.shape[2], 8, connections=snnlib.Sparse(density=0.5)).to(
        current.dtype
    )
    return list(layer.run(current).state)


def _layer(current: torch.Tensor) -> list[torch.Tensor]:
    layer = snnlib.SpikingConv2d(current.shape[2], 8, 1).to(current.dtype)
    return list(layer.run(current[..., None, None]).state)


def _gradient(current: torch.Tensor, neuron: snnlib.neurons.Neuron) -> list[torch.Tensor]:
    """A gradient that decays from the last step on."""
    x = torch.full_like(current, 0.01).requires_grad_()
    potential = neuron.free_potential(x)
    return list(torch.autograd.grad(potential[-1].sum() * _least(x.dtype), x))


def _least(dtype: torch.dtype) -> float:
    return 8.0 * torch.finfo(dtype).tiny


# States and gradients that decay through denormal numbers, of every kernel that has some.
DECAYING: dict[str, Callable[[torch.Tensor], list[torch.Tensor]]] = {
    "LIF": lambda x: list(snnlib.neurons.LIF(2.0).run(x).state),
    "LIF, potential": lambda x: [snnlib.neurons.LIF(2.0).potential(x)],
    "LIF, gradient": lambda x: _gradient(x, snnlib.neurons.LIF(2.0)),
    "CubaLIF": lambda x: list(snnlib.neurons.CubaLIF(4.0, 2.0).run(x).state),
    "exact times": lambda x: list(snnlib.neurons.CubaLIF(4.0, 2.0, gradient="event").run(x).state[:1]),
    "SRM": lambda x: list(snnlib.neurons.SRM(5.0, 3.0).run(x).state),
    "recurrence": _recurrent,
    "sparse layer": _sparse,
    "convolution": _layer,
}


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="the processor cannot flush denormal numbers")
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in DECAYING
        for dtype in (torch.float32, torch.bfloat16, torch.float64)
        # Whose currents torch adds.
        if dtype != torch.float64 or name not in ("sparse layer", "convolution")
    ],
)
def test_denormal_numbers(name: str, dtype: torch.dtype, flush: bool) -> None:
    """Kernels of float32 and half types have none, those of float64 have the caller's mode, on every thread.

    The caller's mode comes back.
    """
    current = torch.zeros(20, 2, 512, dtype=dtype)
    current[0] = _least(dtype)
    torch.set_num_threads(2)
    torch.set_flush_denormal(flush)
    try:
        torch.manual_seed(0)
        found = torch.cat([part.flatten() for part in DECAYING[name](current)])
        small = torch.tensor([2.0**-1000, 2.0**-60], dtype=torch.float64).prod()
    finally:
        torch.set_flush_denormal(False)
    assert bool(_denormal(found).any()) == (dtype == torch.float64 and not flush)
    assert bool(_denormal(small)) != flush
