"""What a task of a parallel loop throws arrives in Python, whatever the number of threads."""

import subprocess
import sys

import pytest

from snnlib.backends import native

pytestmark = pytest.mark.skipif(
    native._module is None or not sys.platform.startswith("linux"),
    reason="needs the compiled module, and Linux to limit memory",
)

# Two images, so two tasks; the sums of one take as much scratch as the result, for which there is no room left.
SHORT_OF_MEMORY = """
import resource, torch, snnlib
torch.set_num_threads(2)
image, segments = torch.rand(2, 1, 4, 4), torch.zeros(2, 16, dtype=torch.int64)
run = torch.ops.snnlib.superpixel_sum
# Threads and what they need beside the scratch are made before memory is short.
expected = run(image, segments, 3)
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (160 << 20),) * 2)
try:
    run(image, segments, 2**24)
except MemoryError:
    print("MemoryError")
# Nothing is left behind that would disturb the next call.
print(torch.equal(run(image, segments, 3), expected))
"""


def test_too_little_memory_is_an_exception() -> None:
    command = [sys.executable, "-c", SHORT_OF_MEMORY]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["MemoryError", "True"]
