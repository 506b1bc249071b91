"""Examples of docs/extending.md, applied to a copy of the sources: the copy is in form, and the tests of its part pass.

A failure names the examples that it may come from, which are mended in their `edits.toml` and the files beside it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from script import script

from snnlib import _C

ROOT = Path(__file__).parents[2]
examples = script("examples/extending/apply.py")

# Examples that the page counts together, with the most files that they may take, tests and pages included.
MOST_FILES = {
    ("neuron",): 4,
    ("option",): 4,
    ("layer",): 3,
    ("loss", "setting"): 6,
    ("event_format", "data_set"): 6,
    ("surrogate",): 5,
    ("flag",): 8,
    ("kernel",): 15,
}
# Examples that change the kernels, which are then built: `make test-slow`.
OF_KERNELS = ("surrogate", "flag", "kernel")
OF_PYTHON = tuple(name for names in MOST_FILES for name in names if name not in OF_KERNELS)
PACKAGES = ("snnlib", "snnlib_command", "pytest_snnlib")
FOLDERS = (*PACKAGES, "tests", "docs", "examples", "release", "cpp", "cmake", "cuda")
FILES = (".clang-format", "pyproject.toml", "mkdocs.yml", "CHANGELOG.md", "README.md", "CMakeLists.txt")

# Tests that read the lists of neurons, losses, settings, formats, data sets and names.
PARTS = (
    *("tests/neurons", "tests/testing/test_smoke_gradients.py", "snnlib/testing/smoke"),
    *("tests/nn/test_construction.py", "tests/nn/test_fuse_neurons.py", "tests/nn/test_launches.py"),
    *("tests/nn/test_recurrent.py", "tests/sequences/test_input_time.py", "tests/inspect/test_profile.py"),
    *("tests/backends/test_devices.py", "tests/data/formats", "tests/data/test_datasets.py"),
    *("tests/data/test_event_folder.py", "tests/app/test_fuzz_files.py", "tests/app/test_data_command.py"),
    *(file.relative_to(ROOT).as_posix() for file in (ROOT / "tests/learning").glob("test_losses*.py")),
    *("tests/app/test_settings.py", "tests/app/test_training_config.py", "tests/app/test_recipes.py"),
    *(
        "tests/app/test_training_objective.py",
        "tests/project/test_docs_site.py",
        "tests/project/test_names.py",
        "tests/project/test_stored.py",
    ),
)
# Tests that are slow together.
WHOLE = (
    *(*PARTS, "tests/data", "tests/learning", "tests/ops/test_compile.py"),
    *("tests/app/test_cli.py", "tests/app/test_cli_errors.py"),
)
OPS = ("tests/ops/test_ops.py", "tests/ops/test_invariance.py", "tests/neurons/test_surrogates.py")
# Words in names of tests and of their cases.
NEW = ("eif", "excitatory", "difference", "margin", "columns", "poker")
NEW_KERNELS = "through_floor or first_spike or surrogate"
# The sources of the copy, and not those that are installed to be edited. With words: cases of those names, and all
# tests that have no cases.
RUN = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "scikit_build" not in type(finder).__name__.lower()
                    and "editable" not in type(finder).__module__]
sys.path.insert(0, ".")
import pytest, snnlib
from snnlib import _C
tree, words, *arguments = sys.argv[1:]
assert snnlib.__file__.startswith(tree) and _C.__file__.startswith(tree), snnlib.__file__

class New:
    def pytest_collection_modifyitems(self, items):
        names = [item.nodeid.lower() for item in items]
        items[:] = [item for item, name in zip(items, names)
                    if "[" not in name or any(word in name for word in words.split())]

plugins = [New()] if words else []
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments], plugins=plugins))
"""


def sources(tree: Path) -> None:
    """A copy with the times of files, so that what is compiled stays good."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder)
    for file in FILES:
        shutil.copyfile(ROOT / file, tree / file)
    kernels = Path(_C.__file__)
    (tree / "snnlib" / kernels.name).unlink(missing_ok=True)
    (tree / "snnlib" / kernels.name).symlink_to(kernels)


def run_tests(tree: Path, words: str, *arguments: str) -> str:
    return run(tree, sys.executable, "-c", RUN, str(tree), words, *arguments, OMP_NUM_THREADS="1")


def run(tree: Path, *command: str, **environment: str) -> str:
    """Returns what a command prints that runs in a copy, and fails with it and the examples that it names."""
    done = subprocess.run(
        command, cwd=tree, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, blamed(done.stdout[-4000:] + done.stderr[-2000:])
    return done.stdout


def blamed(shown: str) -> str:
    """Returns an output behind the examples whose files it names."""
    names = [
        name for name in (*OF_PYTHON, *OF_KERNELS) if any(file in shown for file in examples.files(name))
    ]
    mend = "the example `{0}` fails: mend examples/extending/{0}/edits.toml and the files beside it\n"
    return "".join(map(mend.format, names)) + shown


@pytest.mark.parametrize(("names", "most"), MOST_FILES.items(), ids=map(" and ".join, MOST_FILES))
def test_takes_few_files(names: tuple[str, ...], most: int) -> None:
    taken = [examples.files(name) for name in names]
    assert len({file for files in taken for file in files}) <= most
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for name, files in zip(names, taken, strict=True):
        (section,) = re.findall(rf"^`{name}`, (\d+) files.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL) or [
            ""
        ]
        assert section == str(len(files)), f"docs/extending.md: expected `{name}`, {len(files)} files"
        for file in files:
            assert file in page, f"docs/extending.md says nothing of {file}"


def test_places_for_lines_are_there_once() -> None:
    edit = {"file": "a.py", "after": "b", "lines": "new\n"}
    assert examples.edited("a\nb c\nd\n", edit, "loss") == "a\nb c\nnew\nd\n"
    for text in ("a\n", "b\nb\n"):
        place = r"^examples/extending/loss/edits\.toml: expected 'b' once in a\.py, found it [02] times: "
        with pytest.raises(ValueError, match=place):
            examples.edited(text, edit, "loss")


def test_a_line_goes_to_its_place_among_others() -> None:
    edit = {"file": "a.py", "sorted": r"import \w", "lines": "import c\n"}
    text = "x\nimport b\nimport d\ny\n"
    assert examples.edited(text, edit, "loss") == "x\nimport b\nimport c\nimport d\ny\n"
    last = {**edit, "lines": "import e\n"}
    assert examples.edited(text, last, "loss") == "x\nimport b\nimport d\nimport e\ny\n"
    with pytest.raises(
        ValueError, match=r"^examples/extending/loss/edits\.toml: expected lines that begin with"
    ):
        examples.edited("x\n", edit, "loss")


def test_a_failing_example_is_named() -> None:
    shown = f"{examples.new_files('loss')[0]}:3:1: E501 Line too long"
    (line, rest) = blamed(shown).splitlines()
    assert line.startswith("the example `loss` fails: mend examples/extending/loss/edits.toml")
    assert rest == shown


def test_every_place_for_lines_is_there() -> None:
    """Also of those that change the kernels, which are built by the slow tests alone."""
    texts: dict[str, str] = {}
    for name in (*OF_PYTHON, *OF_KERNELS):
        for edit in examples.edits(name):
            text = texts.setdefault(edit["file"], (ROOT / edit["file"]).read_text(encoding="utf-8"))
            texts[edit["file"]] = examples.edited(text, edit, name)


def with_examples(tree: Path, names: tuple[str, ...]) -> list[str]:
    """Puts examples into a copy, and returns the tests that they bring."""
    sources(tree)
    for name in names:
        examples.apply(name, tree)
    return [
        file for name in names for file in examples.new_files(name) if Path(file).name.startswith("test_")
    ]


def test_changed_sources_are_in_form(tmp_path: Path) -> None:
    """`make lint` passes with the examples: style, types and the structure of the house."""
    with_examples(tmp_path, (*OF_PYTHON, *OF_KERNELS))
    run(tmp_path, sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", ".")
    run(tmp_path, sys.executable, "-m", "ruff", "format", "--check", "--no-cache", ".")
    native = {file for name in OF_KERNELS for file in examples.files(name) if file.endswith((".cpp", ".h"))}
    run(
        tmp_path,
        str(Path(sys.executable).with_name("clang-format")),
        "--dry-run",
        "--Werror",
        *sorted(native),
    )
    # Types of what the examples leave alone are in the cache of `make lint`, without which this takes half a minute.
    run(tmp_path, sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"))
    run(tmp_path, sys.executable, "release/house.py", "--structure")


def test_changed_sources_pass(tmp_path: Path) -> None:
    tests = with_examples(tmp_path, OF_PYTHON)
    # Half a minute of steps of training, which know no model by name.
    heavy = "--deselect=tests/neurons/test_training_watch.py"
    shown = run_tests(tmp_path, " ".join(NEW), "-m", "not slow", heavy, *tests, *PARTS)
    passed = re.search(r"(\d+) passed", shown)
    assert passed is not None and int(passed[1]) > 200, shown


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_tests_of_changed_parts_pass(tmp_path: Path) -> None:
    run_tests(tmp_path, "", *with_examples(tmp_path, OF_PYTHON), *WHOLE)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_changed_kernels_pass(tmp_path: Path) -> None:
    added = with_examples(tmp_path, OF_KERNELS)
    (tmp_path / "snnlib" / Path(_C.__file__).name).unlink()
    python = sys.executable
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    pybind11 = subprocess.check_output([python, "-m", "pybind11", "--cmakedir"], text=True).strip()
    options = [f"-DPython_EXECUTABLE={python}", f"-DPYTHON_EXECUTABLE={python}", f"-Dpybind11_DIR={pybind11}"]
    run(tmp_path, "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DSNNLIB_CUDA=OFF", *options, PATH=path)
    run(tmp_path, "cmake", "--build", "build", "--target", "_C", PATH=path)
    (module,) = (tmp_path / "build").glob("_C.*")
    shutil.copyfile(module, tmp_path / "snnlib" / module.name)
    shown = run_tests(tmp_path, "", "-k", NEW_KERNELS, *added, *OPS)
    passed = re.search(r"(\d+) passed", shown)
    assert passed is not None and int(passed[1]) > 15, shown
