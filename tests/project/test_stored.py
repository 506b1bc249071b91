"""Stored files are read as data: nothing in the package unpickles code."""

import ast
from pathlib import Path

import snnlib


def test_no_file_runs_code() -> None:
    """Every torch.load of the package says weights_only=True, and nothing unpickles by itself."""
    loads = 0
    for file in Path(snnlib.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            options = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if called in ("torch.load", "load_state_dict_from_url"):
                loads += 1
                assert options.get("weights_only") == "True", f"{file}:{node.lineno}"
            if called in ("np.load", "numpy.load"):
                assert options.get("allow_pickle", "False") == "False", f"{file}:{node.lineno}"
            assert not called.startswith(("pickle.load", "marshal.", "exec")), f"{file}:{node.lineno}"
            assert called not in ("eval", "exec", "pickle.Unpickler", "joblib.load"), f"{file}:{node.lineno}"
    assert loads >= 2
