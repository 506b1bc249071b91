"""Nets of snnTorch, SpikingJelly and Norse, converted, where installed: spikes, gradients, 20 training losses.

The nets are those of benchmarks/convert.py, in the manner of the libraries' tutorials.
"""

import importlib.util
from pathlib import Path
from typing import Any

import pairs
import pytest
import torch

import snnlib
from snnlib.exchange.leaves import clear_states

_FILE = Path(__file__).parent.parent / "benchmarks" / "convert.py"
_SPEC = importlib.util.spec_from_file_location("convert_benchmark", _FILE)
assert _SPEC is not None and _SPEC.loader is not None
benchmark: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(benchmark)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", benchmark.CASES)
def test_converted_net_is_the_original(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = benchmark.CASES[name]
    library = case.library.partition(".")[0]
    pytest.importorskip(case.library, reason=f"compares with {library}, which is not installed")
    monkeypatch.setattr(benchmark, "STEPS", 8)
    monkeypatch.setattr(benchmark, "BATCH", 4)
    net, other = (benchmark.twin(case) for _ in range(2))
    x, labels = 3 * case.x(), torch.randint(10, (4,))
    loop = "outside" if case.outside else "inside"
    converted = snnlib.convert(other, x, loop=loop, unsupported="raise", quiet=True)
    found = snnlib.verify_conversion(other, converted, x, loop=loop)
    assert found.ok, str(found)
    assert sum(counts[0] for counts in found.spikes.values()) > 0
    # `found.ok` says that all of them are equal.
    pairs.record(library, "snnlib", "`convert`", name.partition(" ")[2], 1.0)

    def original(x: torch.Tensor) -> Any:
        clear_states(net)
        return benchmark.run_original(net, x, case.outside)

    net.train(), converted.train()
    trainers = benchmark.Trainer(net, original), benchmark.Trainer(converted, converted)
    losses = [[trainer.step(x, labels) for _ in range(20)] for trainer in trainers]
    torch.testing.assert_close(*(torch.tensor(row) for row in losses), rtol=1e-4, atol=1e-4)
