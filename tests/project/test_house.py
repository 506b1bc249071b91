"""Counts of release/house.py on a small made-up tree, and the structure of this checkout."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

FILES = {
    "snnlib/__init__.py": "from snnlib.nn import Layer\n",
    "snnlib/checks/__init__.py": '"""Checks."""\n',
    # Upward, and in a circle with ops.
    "snnlib/backends/__init__.py": "from snnlib.ops.pool import fast\n",
    "snnlib/ops/__init__.py": "",
    "snnlib/ops/pool.py": '''"""Pools."""
from typing import TYPE_CHECKING
import torch
import snnlib.backends
from . import scan
if TYPE_CHECKING:
    from snnlib.nn import Layer

@torch.library.custom_op("snnlib::pool_forward", mutates_args=())
def pool(a, b, c, d, e, f, g, h, i): ...

@pool.register_fake
def _(a, b, c, d, e, f, g, h, i): ...

def fast(self, a, b, c, d, e, f, g, h): ...

def slow(a, b, c, d, e, f, g, *, h, i): ...
''',
    "snnlib/ops/scan.py": """
def scan():
    from snnlib.ops.pool import pool
    return torch.library.custom_op("snnlib::scan", pool)

torch.library.custom_op("snnlib::pool_backward", scan)
""",
    "snnlib/compat/__init__.py": "",
    "snnlib/compat/conv.py": 'custom_op("snnlib::conv2d_input_backward", 1)\n',
    "snnlib/nn/__init__.py": """class Layer:
    def __init__(self, neuron):
        self._fields = neuron._own(self._fields), getattr(neuron, "_own")
        neuron._mark = 1
""",
    "snnlib/nn/long.py": "x = 1\n" * 501,
    # Past the fence to nn, for a type checker too, and by the door of checks.
    "snnlib/data/__init__.py": "import snnlib.nn\nimport snnlib.checks\n",
    "snnlib/data/read.py": "if TYPE_CHECKING:\n    from snnlib.nn.long import x\n",
    # Imports by the names that a package publishes, and past them.
    "snnlib/exchange/__init__.py": "from snnlib.nn import Layer\nfrom snnlib.nn.long import x\n",
    "tests/nn/test_layer.py": "from snnlib import data\nfrom snnlib.nn import Layer\n",
    # A door of core, and a command that is used by way of a helper.
    "tests/models/test_models_trained.py": "import snnlib.data\n",
    "tests/helpers/command.py": 'import command\ncli = pytest.importorskip("snnlib.app.cli")\n',
    "tests/exchange/test_net.py": "import snnlib.data\nfrom command import cli\n",
    "snnlib/app/cli.py": "",
    "snnlib_command/__init__.py": "def main():\n    import snnlib\n",
    "pytest_snnlib/__init__.py": "",
    "cpp/bindings/layer.cpp": '#include "snnlib/a.h"\n#include <vector>\nint x;  // 1\n',
    "cpp/cpu/layer_forward.cpp": '#include "own.h"\n',
    "cpp/cpu/layer_backward.cpp": "/* nothing\n * here */\n",
    "cpp/cpu/own.h": '#include "snnlib/a.h"\n',
    "cpp/include/snnlib/a.h": '#include "snnlib/b.h"\n#include "absent.h"\n',
    "cpp/include/snnlib/b.h": '#include "snnlib/a.h"\n',
    "cpp/include/snnlib/unused.h": "",
    "cuda/check.py": "x = 1\n",
    "snnlib/engine/net.h": "int x;\n",
    "snnlib/neurons/base.py": '"""One neuron."""\nclass Neuron:\n    def run(self): ...\n    def _own(self): ...\n',
    # A comment goes on in the next line, up to an empty one; behind code, and in C++.
    "tests/test_pool.py": "# Sizes\n# of pools.\n# What\nx = 1  # Of a pool.\n\n# One pool.\n#\n# By steps.\n",
    # Includes by the door of core, and past it.
    "cpp/data/read.cpp": '#include "snnlib/core/door.h"\n#include "snnlib/b.h"\nint x;\n',
    "cpp/include/snnlib/core/door.h": "",
    "cuda/scan.cu": 'const char* text = "// no comment";\n\n// Whether it runs.\n// By steps: http://of\n',
    "tests/test_hot.py": '"""One-hot codes."""\ndef test():\n    """Of a code."""\nx = 1\n"""None for\nall."""\n',
    "docs/late.md": "\n" * 25 + "```python\n",
    "docs/early.md": "\n" * 24 + "    ```python\n",
    "docs/words.md": "words\n",
    "docs/glossary.md": "words\n",
}


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "release")
    return importlib.import_module("house")


@pytest.fixture
def counts(house: ModuleType, tmp_path: Path) -> Iterator[Any]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return house.House(tmp_path).counts()


COUNTS = """
custom ops: 'snnlib::conv2d_input_backward' in snnlib/compat/conv.py
custom ops: 'snnlib::pool_forward' in snnlib/ops/pool.py
custom ops: 'snnlib::pool_backward' in snnlib/ops/scan.py
custom ops: 'snnlib::scan' in snnlib/ops/scan.py
import circles: snnlib.ops.pool -> snnlib.backends -> snnlib.ops.pool
upward imports: snnlib/backends/__init__.py:1: snnlib.backends -> snnlib.ops.pool
long files: snnlib/nn/long.py: 501 lines
long signatures: snnlib/ops/pool.py:17: slow has 9
files of no part: snnlib/engine/net.h
imports through the fence: snnlib/data/__init__.py:1: snnlib.data -> snnlib.nn
imports through the fence: snnlib/data/read.py:2: snnlib.data.read -> snnlib.nn.long
imports through the fence: cpp/data/read.cpp:2: cpp/data/read.cpp -> cpp/include/snnlib/b.h
imports through the fence: snnlib/exchange/__init__.py:2: snnlib.exchange -> snnlib.nn.long
tests that import other parts: tests/nn/test_layer.py: snnlib.data
tests that import other parts: tests/exchange/test_net.py: snnlib.app.cli
packages without tests of their own: backends
packages without tests of their own: checks
packages without tests of their own: compat
packages without tests of their own: data
packages without tests of their own: ops
private names used elsewhere: snnlib/nn/__init__.py:3: _own of snnlib.neurons
private names used elsewhere: snnlib/nn/__init__.py:3: _own of snnlib.neurons
docstrings without a subject: snnlib/neurons/base.py:1: One neuron.
docstrings without a subject: tests/test_hot.py:3: Of a code.
docstrings without a subject: tests/test_hot.py:5: None for
comments without a subject: tests/test_pool.py:4: Of a pool.
comments without a subject: tests/test_pool.py:6: One pool.
comments without a subject: tests/test_pool.py:8: By steps.
comments without a subject: cuda/scan.cu:3: Whether it runs.
pages with late code: docs/late.md: first code in line 26
pages with late code: docs/words.md: no code
public members of Neuron: run
C++ files of a call: cpp/bindings/layer.cpp
C++ files of a call: cpp/cpu/layer_backward.cpp
C++ files of a call: cpp/cpu/layer_forward.cpp
C++ files of a call: cpp/cpu/own.h
C++ files of a call: cpp/include/snnlib/a.h
C++ files of a call: cpp/include/snnlib/b.h
"""


def test_counts(counts: dict[str, list[str]]) -> None:
    found = [f"{name}: {' '.join(thing.split())}" for name, things in counts.items() for thing in things]
    assert sorted(found) == sorted(COUNTS.strip().splitlines())


def test_every_count_has_a_bound_or_a_budget(
    house: ModuleType, counts: dict[str, list[str]], tmp_path: Path
) -> None:
    sizes = house.House(tmp_path).sizes()
    assert {*counts, *sizes, *house.installed()} == {*house.BOUNDS, *house.BUDGETS}
    # The program beside the sources of CUDA is no part of the package.
    assert {name: size for name, size in sizes.items() if size} == {
        "lines of core": 535,
        "lines of events": 7,
        "lines of exchange": 2,
        "lines of train": 2,
        "lines of tests": 10,
    }
    kinds = house.House(tmp_path).kinds()
    assert kinds == {"all": 548, "Python": 535, "C++ and CUDA": 12, "C": 1}


def test_lines_by_part(house: ModuleType, counts: dict[str, list[str]], tmp_path: Path) -> None:
    # The longest folder decides: cpp/data is of events, the rest of cpp of core.
    parts = house.House(tmp_path).lines_by_part()
    assert parts == {"core": 535, "events": 7, "exchange": 2, "train": 2, "testing": 0, "none": 1, "": 1}, (
        parts
    )
    report = "\n".join(house.report(house.House(tmp_path), counts, {"lines of core": 535}))
    assert f"535  lines of core, budget {house.budget('lines of core')}" in report


def test_structure_above_its_bound_is_named(
    house: ModuleType, counts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(house.BOUNDS, "long files", house.Bound(1, "as they are long"))
    assert not [line for line in house.check(counts, {}) if line.startswith("long files")]
    monkeypatch.setitem(house.BOUNDS, "long files", house.Bound(0, "as they are long"))
    (first, second) = house.check({"long files": counts["long files"]}, {})
    assert first == "long files: expected at most 0, got 1: as they are long"
    assert second.strip() == "snnlib/nn/long.py: 501 lines"


@pytest.mark.parametrize(
    "name", ["lines of core", "lines of tests", "public names", "public members of Neuron"]
)
def test_growth_is_named(house: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    budgets = importlib.import_module("budgets")
    monkeypatch.setitem(budgets.BUDGETS, name, 5)
    monkeypatch.setattr(budgets, "ALLOWANCES", {"One issue": {name: 2}, "Another": {"lines of C": 9}})
    assert not list(house.check({}, {name: 7}))
    (line,) = house.check({}, {name: 8})
    assert line.startswith(f"{name}: expected at most 7, got 8: ")
    assert "ALLOWANCES" in line


def test_allowances_are_of_sizes(house: ModuleType) -> None:
    allowances = importlib.import_module("budgets").ALLOWANCES
    assert {name for added in allowances.values() for name in added} <= {*house.BUDGETS}


def test_subjects_of_commits(house: ModuleType, tmp_path: Path) -> None:
    english = importlib.import_module("english")

    def git(*arguments: str) -> str:
        own = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", *own, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert not list(english.commit_subjects(tmp_path))
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "What stands before the first is not looked at.")
    first = git("rev-parse", "HEAD")
    good = (
        "sparse: check indices per row",
        'Revert "Remove the cochleagram"',
        "BeatFrames, docs: say `None`",
    )
    bad = ("Bounds hold what stands", "house: update bounds.", "house: " + "a" * 66, "docs: LIF is new")
    for subject in (*good, *bad):
        git("commit", "-q", "--allow-empty", "-m", subject)
    found = [line.partition(" ")[2] for line in english.commit_subjects(tmp_path, first)]
    assert found == [*reversed(bad)]
    # The newest commits alone, as a copy for a check of a change has them.
    assert not list(english.commit_subjects(tmp_path, "4" * 40))


def test_without_the_package_the_report_says_what_to_do(
    house: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "snnlib", None)
    with pytest.raises(SystemExit, match=r"snnlib is missing: run `make env`"):
        house.installed()


def test_lines_of_python(house: ModuleType) -> None:
    text = '''
class A:  # a class
    """Its docstring,

    of lines."""

    x = 1
    """Of a field."""
    text = """one

three"""  # a value

    def f(self): "Short."; return 1
'''
    lines = importlib.import_module("lines_of_code")
    assert lines.python_lines(text) == 1 + 1 + 3 + 1
    assert lines.native_lines('a; /* b\n c */ d;\n// e \\\n f\n\'"\'; // g\nR"x(// h\n\n)x";\n') == 2 + 1 + 2


def test_a_part_without_a_place_is_named(house: ModuleType, counts: object, tmp_path: Path) -> None:
    (tmp_path / "snnlib/attic.py").write_text("import snnlib.nn\n")
    with pytest.raises(ValueError, match=r"expected a place for every part, got none for snnlib\.attic"):
        house.House(tmp_path).counts()


def test_this_checkout_keeps_its_structure() -> None:
    command = [sys.executable, ROOT / "release" / "house.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
