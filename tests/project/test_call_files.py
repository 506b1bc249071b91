"""How many Python files a reader opens to follow one call of a layer: a bound that only falls."""

import pytest
from call_files import executed, layer_call

from snnlib.backends import native

# `docs/design-decisions.md` says why it does not fall much further.
PYTHON_FILES = 29


def test_a_layer_call_spans_no_more_files_than_it_did() -> None:
    if native.explain_path()[0] != "native":
        pytest.skip("the reference path executes other files")
    python = executed(layer_call())
    assert {
        "snnlib/nn/layers/spiking_layer.py",
        "snnlib/ops/layer_forward.py",
        "snnlib/neurons/models/lif.py",
    } <= python
    assert len(python) <= PYTHON_FILES, sorted(python)
