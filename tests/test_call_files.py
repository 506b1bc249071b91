"""How many files a reader opens to follow one call of a layer: bounds that should fall, to 20 files in all."""

import pytest
from call_files import executed, included, layer_call

from snnlib.backends import native

# 25 and 39 when this was written. The 27th keeps tables of coefficients for GPUs, the 28th counts spikes for warnings.
PYTHON_FILES, CPP_FILES = 30, 35


def test_a_layer_call_spans_no_more_files_than_it_did() -> None:
    if native.explain_path()[0] != "native":
        pytest.skip("the reference path executes other files")
    python = executed(layer_call())
    assert {"snnlib/nn/spiking.py", "snnlib/ops/layer.py", "snnlib/neurons/lif.py"} <= python
    assert len(python) <= PYTHON_FILES, sorted(python)
    cpp = included()
    assert "cpp/include/snnlib/neurons/linear.h" in cpp
    assert len(cpp) <= CPP_FILES, sorted(cpp)
