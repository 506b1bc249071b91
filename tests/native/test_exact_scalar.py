"""The header of neurons with exact spike times in scalars, as CUDA would run it: it compiles there and gives the CPU's
bits."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from snnlib.backends import native
from snnlib.backends.arguments import SpikeTimeKernel
from snnlib.neurons import CubaLIF
from snnlib.ops import scan

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "native" / "exact_scalar.cpp"
OPTIONS = ["-std=c++17", "-DSNNLIB_ISA=cuda", f"-I{ROOT / 'cpp' / 'include'}"]


@pytest.mark.skipif(native._module is None, reason="needs the compiled module")
def test_scalars_give_the_bits_of_vectors(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    program = tmp_path / "program"
    subprocess.run([compiler, "-O1", "-ffp-contract=off", *OPTIONS, SOURCE, "-o", program], check=True)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 300, 1, generator=generator) + 0.3
    q = torch.randn(40, 300, 1, generator=generator)
    for options in (
        {},
        {"reset_states": "all", "compare": ">"},
        {"refractory": 3},
        {"refractory": torch.inf},
    ):
        neuron = CubaLIF(gradient="event", threshold=0.6, **options)
        kernel = neuron.kernel(x)
        assert isinstance(kernel, SpikeTimeKernel)
        rows = kernel.constants
        spikes, _ = scan.scan_forward(x, rows, None, kernel.flags, (), (1, 1), False)
        calls = q, None, x, rows, None, kernel.flags, (), (1, 1), True, False, False
        grad = scan.scan_backward(*calls)[0]
        numbers = torch.cat([x.flatten(), q.flatten(), rows.flatten(), torch.tensor(kernel.flags).float()])
        (tmp_path / "in").write_bytes(numbers.numpy().tobytes())
        subprocess.run([program, tmp_path / "in", tmp_path / "out"], check=True)
        found = torch.frombuffer(bytearray((tmp_path / "out").read_bytes()), dtype=torch.float32)
        assert spikes.mean() > 0.02
        assert torch.equal(found, torch.cat([spikes.flatten(), grad.flatten()]))


def test_it_compiles_for_cuda(tmp_path: Path) -> None:
    compiler = shutil.which("nvcc")
    if compiler is None:
        pytest.skip("needs nvcc")
    kernel = ["-x", "cu", "-rdc=true", "-ptx", "-arch=compute_75", "-Werror", "all-warnings"]
    subprocess.run([compiler, *kernel, *OPTIONS, SOURCE, "-o", tmp_path / "ptx"], check=True)
    assert "walk" in (tmp_path / "ptx").read_text()
