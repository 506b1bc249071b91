"""Counts what makes the house easy or hard to read: structure is a gate, growth is one too.

    python release/house.py            # all counts with what they count, and lines of code by part and package
    python release/house.py --check    # counts above their bound or budget alone; exit status 1 if there is any
    python release/house.py --structure    # counts above their bound, without budgets: of a checkout with examples

`BOUNDS` holds the structure, `release/budgets.py` the sizes: a count above either fails (`make lint`).
"""

from __future__ import annotations

import ast
import gc
import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import ModuleType

from budgets import BUDGETS, budget
from english import LONGEST_SUBJECT, comment_openings, commit_subjects, docstring_openings, late_code
from import_graph import Import, circle_of, imported_by, imports_of, includes_of, modules_of, nodes_of, upward
from lines_of_code import NATIVE, PYTHON, C, lines_of_code
from private_names import used_elsewhere

ROOT = Path(__file__).resolve().parents[1]
# Folders of production code: Python packages, C++ and CUDA.
PACKAGES, NATIVE_FOLDERS = ("snnlib", "snnlib_command", "pytest_snnlib"), ("cpp", "cuda")
OTHER_FOLDERS = ("tests", "benchmarks", "release")
_KINDS = (
    dict.fromkeys(PYTHON, "Python") | dict.fromkeys(NATIVE, "C++ and CUDA") | dict.fromkeys(C - NATIVE, "C")
)

# Parts of the packages, from the bottom to the top: each part imports those before it. Modules that only pass
# names on stand right above what they pass on, as `snnlib` itself does.
_PARTS = (
    "checks files guesses backends reference ops sequences neurons surrogate vision functional nn structure encoding "
    "data distributed models inspect explain learning losses readout exchange compat"
)
ORDER = (
    *(f"snnlib.{part}" for part in _PARTS.split()),
    *("snnlib", "snnlib_command.extras", "snnlib.app", "snnlib.visual", "snnlib.recipes", "snnlib_command"),
    *("snnlib.testing", "pytest_snnlib"),
)

# A file holds one idea, and one idea needs no more lines than this.
LONGEST_FILE = 500
# A function of ops/ or backends/ with more parameters takes an object of them.
MOST_PARAMETERS = 8
# Folders where native sources find their headers.
INCLUDE_FOLDERS = ("cpp/include", "cpp/bindings", "cuda", ".")
# Sources that a call of SpikingConv2d runs: bindings and launchers of the fused layer.
CALL_SOURCES = (
    "cpp/bindings/layer.cpp",
    "cpp/cpu/layer_forward.cpp",
    "cpp/cpu/layer_backward.cpp",
)


@dataclass(frozen=True)
class Bound:
    """The most that a count may be, and the reason."""

    most: int
    reason: str


@dataclass(frozen=True)
class Part:
    """Share of the house that one person can hold: modules of `snnlib` and other folders.

    Attributes:
        imports: parts, patterns of modules of `snnlib`, and patterns of headers, that it may import beside itself.
        tested_with: other parts that its tests may import.
    """

    modules: str
    folders: str
    imports: str
    tested_with: str = "core events exchange train testing"


# Headers of core that bindings of other parts are made with.
_NATIVE = "cpp/bindings/bindings.h cpp/include/snnlib/core/*"
PARTS = {
    "core": Part(
        "checks files guesses backends reference ops sequences neurons surrogate vision functional nn structure "
        "encoding distributed models inspect learning losses readout compat",
        "cpp cuda",
        "",
        "",
    ),
    # Modules of core that it publishes for events.
    "events": Part(
        "data",
        "cpp/data",
        f"checks* files* guesses encoding backends.cpu_memory backends.native vision.segment {_NATIVE}",
        "core testing",
    ),
    # Packages of core by their public names, and what neuron models and reports are made with; the front end of sound.
    "exchange": Part(
        "exchange",
        "cpp/exchange",
        "checks* files* guesses structure* backends.native functional functional.quantize neurons neurons.base "
        "neurons.fields nn nn.fusion.fuse nn.layers.per_step nn.norm.batch_norm nn.recurrent.recurrent_layer "
        f"surrogate inspect.activity inspect.shown data {_NATIVE}",
        "core events testing",
    ),
    "train": Part("app explain visual recipes", "snnlib_command", "core events exchange"),
    "testing": Part("testing", "pytest_snnlib", "core"),
}
# Modules through the fence.
GATES = {
    "snnlib.models.trained": "cards of trained nets name the front ends of their data",
    "snnlib.compat.vision": "heat maps have a published name",
}
# Tests of core of the modules through the fence, which need the other parts.
GATE_TESTS = ("tests/models/test_models_trained.py",)
# Files of no part: the package's own, which passes names on.
PARTLESS = ("snnlib/__init__.py",)

BOUNDS = {
    "custom ops": Bound(
        14, "each is stated in a schema, a fake, a backward pass, bindings and cases of tests"
    ),
    "import circles": Bound(0, "modules of a circle are understood and tested only together"),
    "upward imports": Bound(0, "what is below is read without what is above"),
    "long files": Bound(0, f"a file of more than {LONGEST_FILE} lines holds more than one idea"),
    "long signatures": Bound(0, f"no reader keeps {MOST_PARAMETERS} arguments apart by their order"),
    "files of no part": Bound(0, "every file has a part, and a person who holds it"),
    "imports through the fence": Bound(0, "a part is understood with those that it may import"),
    "tests that import other parts": Bound(0, "`make test PART=core` runs without the other parts"),
    "packages without tests of their own": Bound(0, "the tests of a package are found by its name"),
    "private names used elsewhere": Bound(0, "who changes a private name reads its package alone"),
    "docstrings without a subject": Bound(0, "a docstring begins with a verb or the thing's name"),
    "comments without a subject": Bound(0, "a comment begins with a verb or the thing's name"),
    "pages with late code": Bound(0, "a page begins with what it is and lines that run"),
    "commit subjects": Bound(0, f"a stranger reads `area: imperative object`, {LONGEST_SUBJECT} characters"),
}


class House:
    """The counts of a checkout, each with the things that it counts."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def counts(self) -> dict[str, list[str]]:
        """Counts of things with names, gates and sizes."""
        return {
            "custom ops": self.custom_ops(),
            "import circles": self.circles(),
            "upward imports": list(map(str, upward(self.imports, ORDER))),
            "long files": self.long_files(),
            "long signatures": self.long_signatures(),
            "files of no part": self.of_no_part(),
            "imports through the fence": self.through_the_fence(),
            "tests that import other parts": self.tests_through_the_fence(),
            "packages without tests of their own": self.without_tests(),
            "private names used elsewhere": used_elsewhere(self.nodes),
            "commit subjects": list(commit_subjects(self.root)),
            "docstrings without a subject": self.docstrings(),
            "comments without a subject": self.comments(),
            "pages with late code": list(late_code(self.root)),
            "C++ files of a call": self.call_files(),
            "public members of Neuron": self.members_of_neuron(),
        }

    def sizes(self) -> dict[str, int]:
        """Counts of lines by part, and of folders beside production code."""
        parts = self.lines_by_part()
        others = {name: sum(map(lines_of_code, self._sources(name))) for name in OTHER_FOLDERS}
        return {
            f"lines of {name}": count
            for name, count in ({name: parts[name] for name in PARTS} | others).items()
        }

    def kinds(self) -> dict[str, int]:
        """Counts of lines of production code by language, and of all together."""
        of_packages = self.lines().items()
        kinds = {
            kind: sum(count for (_, own), count in of_packages if own == kind) for kind in _KINDS.values()
        }
        return {"all": sum(kinds.values())} | kinds

    @cached_property
    def files(self) -> list[Path]:
        """Production files: Python, C++ and CUDA."""
        found = chain(*map(self._sources, (*PACKAGES, *NATIVE_FOLDERS)))
        # Programs beside the sources of CUDA are of the build.
        return [file for file in found if self._shown(file).startswith(PACKAGES) or file.suffix not in PYTHON]

    @cached_property
    def nodes(self) -> dict[str, Sequence[ast.AST]]:
        """Syntax of the modules of `snnlib` by file."""
        return {
            self._shown(file): nodes_of(file)
            for file in self.files
            if file.suffix in PYTHON and (self.root / "snnlib") in file.parents
        }

    def custom_ops(self) -> list[str]:
        """Names of the ops, with the file of each."""
        return [
            f"{ast.unparse(node.args[0])} in {file}"
            for file, nodes in self.nodes.items()
            for node in nodes
            if isinstance(node, ast.Call) and _last_name(node) == "custom_op"
            if node.args and isinstance(node.args[0], ast.Constant)
        ]

    @cached_property
    def imports(self) -> list[Import]:
        """All imports among the modules of the packages."""
        return imports_of(self.root, PACKAGES)

    @cached_property
    def includes(self) -> list[Import]:
        """All includes among native sources."""
        native = (file for file in self.files if file.suffix not in PYTHON)
        return includes_of(self.root, native, INCLUDE_FOLDERS)

    def circles(self) -> list[str]:
        """The first circle of imports that is found, in functions too."""
        found = circle_of(self.imports)
        return [" -> ".join(found)] if found else []

    def long_files(self) -> list[str]:
        """Production files of too many lines."""
        lengths = {
            self._shown(file): len(file.read_text(encoding="utf-8").splitlines()) for file in self.files
        }
        return [f"{file}: {lines} lines" for file, lines in lengths.items() if lines > LONGEST_FILE]

    def long_signatures(self) -> list[str]:
        """Functions of ops/ and backends/ with too many parameters, but for an op's schema and its fake."""
        folders = ("snnlib/ops/", "snnlib/backends/")
        return [
            f"{file}:{node.lineno}: {node.name} has {len(parameters)}"
            for file, nodes in self.nodes.items()
            for node in nodes
            if file.startswith(folders)
            and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and len(parameters := _parameters(node)) > MOST_PARAMETERS
            and not {"custom_op", "register_fake"} & set(map(_last_name, node.decorator_list))
        ]

    def call_files(self) -> list[str]:
        """Sources that a call of SpikingConv2d runs, with all that they include."""
        found: set[str] = set()

        def add(file: str) -> None:
            if file not in found:
                found.add(file)
                for header in self.includes:
                    if header.importer == file:
                        add(header.imported)

        for source in CALL_SOURCES:
            add(source)
        return sorted(found)

    def members_of_neuron(self) -> list[str]:
        """Public methods and properties of the base class of neurons."""
        nodes = self.nodes.get("snnlib/neurons/base.py", ())
        classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "Neuron"]
        members = (node for found in classes for node in found.body if isinstance(node, ast.FunctionDef))
        return [member.name for member in members if not member.name.startswith("_")]

    def docstrings(self) -> list[str]:
        """Docstrings that open with a word which makes no subject, in tests and programs too."""
        return [
            found
            for file in self._written()
            if file.suffix in PYTHON
            for found in docstring_openings(self._shown(file), nodes_of(file))
        ]

    def comments(self) -> list[str]:
        """Comments that open with a word which makes no subject, in native sources too."""
        return [
            found
            for file in self._written()
            if file.suffix in PYTHON | NATIVE
            for found in comment_openings(self._shown(file), file.read_text(encoding="utf-8"))
        ]

    def _written(self) -> Iterator[Path]:
        folders = (*PACKAGES, *NATIVE_FOLDERS, *OTHER_FOLDERS, "docs", "examples")
        return chain.from_iterable(map(self._sources, folders))

    def of_no_part(self) -> list[str]:
        """Production files that belong to no part."""
        return [self._shown(file) for file in self.files if not self.part_of(file)]

    def through_the_fence(self) -> list[str]:
        """Imports and includes of another part that the table of parts does not have."""
        files = {name: self.part_of(file) for name, file in modules_of(self.root, PACKAGES).items()}
        files |= {self._shown(file): self.part_of(file) for file in self.files}
        return [
            str(found)
            for found in chain(imports_of(self.root, PACKAGES, unrun=True), self.includes)
            if found.importer not in GATES and not _may_import(files[found.importer], files, found.imported)
        ]

    def tests_through_the_fence(self) -> list[str]:
        """Imports by tests, and by helpers that they import, of a part that tests of their part do not know."""
        helpers = {file.stem: file for file in sorted((self.root / "tests/helpers").glob("*.py"))}
        modules = modules_of(self.root, PACKAGES) | helpers

        def imported(file: Path, seen: set[Path]) -> Iterator[str]:
            seen.add(file)
            for module in imported_by(file, modules):
                if module not in helpers:
                    yield module
                elif helpers[module] not in seen:
                    yield from imported(helpers[module], seen)

        return [
            f"{self._shown(file)}: {module}"
            for name, part in PARTS.items()
            for package in part.modules.split()
            for file in sorted((self.root / "tests" / package).rglob("*.py"))
            if self._shown(file) not in GATE_TESTS
            for module in imported(file, set())
            if self.part_of(modules[module]) not in ("none", name, *part.tested_with.split())
        ]

    def without_tests(self) -> list[str]:
        """Packages of `snnlib` without a folder in `tests`."""
        packages = {file.parent.name for file in (self.root / "snnlib").glob("*/__init__.py")}
        return sorted(name for name in packages if not (self.root / "tests" / name).is_dir())

    def lines_by_part(self) -> Counter[str]:
        """Lines of code by part, C counted."""
        found: Counter[str] = Counter()
        for file in self.files:
            found[self.part_of(file)] += lines_of_code(file)
        return found

    def part_of(self, file: Path) -> str:
        """Name of the part that a file belongs to, "none" for `PARTLESS` files, "" for a file without a place.

        The longest folder decides: `cpp/data` is of events, the rest of `cpp` of core.
        """
        shown = self._shown(file)
        if shown in PARTLESS:
            return "none"
        places = {
            place: name
            for name, part in PARTS.items()
            for module in part.modules.split()
            for place in (f"snnlib/{module}/", f"snnlib/{module}.py")
        }
        places |= {f"{folder}/": name for name, part in PARTS.items() for folder in part.folders.split()}
        found = [place for place in places if shown.startswith(place)]
        return places[max(found, key=len)] if found else ""

    def lines(self) -> Counter[tuple[str, str]]:
        """Lines of code by package and kind."""
        found: Counter[tuple[str, str]] = Counter()
        for file in self.files:
            folders = file.relative_to(self.root).parts[:-1]
            kind = "C" if folders[0] in PACKAGES and file.suffix in C else _KINDS[file.suffix]
            found["/".join(folders[:2]), kind] += lines_of_code(file)
        return found

    def _sources(self, folder: str) -> list[Path]:
        files = (self.root / folder).rglob("*")
        return sorted(file for file in files if file.suffix in _KINDS)

    def _shown(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()


def _may_import(part: str, parts: Mapping[str, str], module: str) -> bool:
    """Returns True if a part may import a module; a module of no part passes names on."""
    own = parts[module]
    if "none" in (part, own) or part == own:
        return True
    allowed = PARTS[part].imports.split() if part in PARTS else []
    names = (module, module.removeprefix("snnlib."))
    return own in allowed or any(fnmatchcase(name, pattern) for name in names for pattern in allowed)


def _last_name(node: ast.AST) -> str:
    """`custom_op` of `torch.library.custom_op("name")`."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument.arg for argument in named if argument.arg not in ("self", "cls")]


def installed() -> dict[str, int]:
    """Returns the counts that only the imported package knows.

    Raises:
        SystemExit: the package is not installed; says how to set it up.
    """
    try:
        import snnlib  # noqa: PLC0415
    except ImportError as error:
        raise SystemExit(
            f"release/house.py counts the names of the installed package, and {error.name} is missing: "
            "run `make env`, then `.venv/bin/python release/house.py`"
        ) from error

    shown = {name for name in dir(snnlib) if not name.startswith("_")}
    modules = [value for name in shown if isinstance(value := getattr(snnlib, name), ModuleType)]
    return {
        "arguments of LIF": len(inspect.signature(snnlib.neurons.LIF).parameters),
        "public names": len(shown.union(*map(_public, modules))),
        "public names of snnlib itself": len(snnlib.__all__),
    }


def _public(module: ModuleType) -> list[str]:
    names: Iterable[str] = getattr(module, "__all__", vars(module))
    return [name for name in names if not name.startswith("_")]


def check(counts: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> Iterator[str]:
    """Lines on every part of the structure above its bound, and on every size above its budget."""
    for name, bound in BOUNDS.items():
        found = counts.get(name, [])
        if len(found) > bound.most:
            yield f"{name}: expected at most {bound.most}, got {len(found)}: {bound.reason}"
            yield from (f"    {one}" for one in found)
    for name, size in sizes.items():
        if size > budget(name):
            yield (
                f"{name}: expected at most {budget(name)}, got {size}: take as many away elsewhere, or raise the "
                "number of your issue in ALLOWANCES of release/budgets.py"
            )


def report(house: House, counts: dict[str, list[str]], sizes: dict[str, int]) -> Iterator[str]:
    """Lines on every count, with what it counts, and lines of code by package, language and part."""
    for name, found in counts.items():
        most = f"at most {BOUNDS[name].most}" if name in BOUNDS else f"budget {budget(name)}"
        yield f"{len(found):6}  {name}, {most}"
        yield from (f"            {one}" for one in found)
    yield "\nlines of code without blanks, comments and docstrings"
    yield from (f"{count:6}  {package}, {kind}" for (package, kind), count in sorted(house.lines().items()))
    yield ""
    yield from (f"{count:6}  lines of production code, {kind}" for kind, count in house.kinds().items())
    yield from (f"{size:6}  {name}, budget {budget(name)}" for name, size in sizes.items())


def main(*asked: str) -> int:
    # The collector would look through a million nodes of syntax again and again, for two thirds of the time.
    gc.disable()
    house = House(ROOT)
    counts = house.counts()
    if "--structure" in asked:
        wrong = list(check(counts, {}))
    else:
        sizes = house.sizes() | installed()
        of_counts = {name: len(found) for name, found in counts.items() if name in BUDGETS}
        wrong = list(check(counts, of_counts | sizes))
    for line in wrong if asked else report(house, counts, sizes):
        print(line)
    return int(bool(asked and wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
