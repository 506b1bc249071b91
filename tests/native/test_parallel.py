"""Tasks of a parallel loop: what they throw arrives in Python; threads treat denormal numbers as the caller does."""

import subprocess
import sys

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
    return torch.ops.snnlib.currents_forward(x, weight, None, None, None, 0, [1, 1], [0, 0], [1, 1], 1, True, 0)
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


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="the processor cannot flush denormal numbers")
@pytest.mark.parametrize("flush", [False, True])
def test_denormal_numbers_on_every_thread(flush: bool) -> None:
    """A potential that decays below 2^-126 is 0 where the caller asked for it, else denormal, on all threads."""
    current = torch.zeros(20, 2, 2**16)
    current[0] = 1e-37
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.set_flush_denormal(flush)
    try:
        _, (potential,) = snnlib.neurons.LIF(2.0).run(current)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    assert (potential.view(torch.int32) == 0).float().mean() == float(flush)
