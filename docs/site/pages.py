"""Gathers the pages of the documentation site in `build/docs`: `python docs/site/pages.py`.

The pages of `docs/` are taken as they are. Made from the code are a page per neuron with its response drawn, the
reference of all public names, and the examples. `mkdocs build --strict` then writes the site; `make docs` does both.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import snnlib

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "docs"
# Pages of the reference: title, and modules whose public names they document, each where it comes first.
REFERENCE = {
    "layers": ("Layers", ["snnlib.nn"]),
    "surrogates": ("Surrogate gradients", ["snnlib.surrogate"]),
    "learning": (
        "Learning",
        [
            "snnlib.learning.preparing.prepare",
            "snnlib.learning.health",
            "snnlib.learning.rewiring",
        ],
    ),
    "losses": ("Losses", ["snnlib.learning.losses"]),
    "readout": ("Reading outputs", ["snnlib.learning.decoding"]),
    "inspect": (
        "Looking inside",
        [
            "snnlib.inspect.operations",
            "snnlib.inspect.memory",
            "snnlib.inspect.kernels",
            "snnlib.explain",
            "snnlib.app.report",
            "snnlib.app.visual",
        ],
    ),
    "data": ("Data", ["snnlib.data"]),
    "distributed": ("Several processes", ["snnlib.distributed"]),
    "encoding": ("Encoding ordinary data", ["snnlib.encoding"]),
    "functional": ("Functions", ["snnlib.functional"]),
    "models": ("Models", ["snnlib.models", "snnlib.app.training.load"]),
    "backends": (
        "Backends and algorithms",
        ["snnlib.backends.native", "snnlib.backends.cpu_memory", "snnlib.backends.algorithm"],
    ),
    "exchange": ("Nets of other libraries", ["snnlib.exchange"]),
    "testing": ("Testing", ["snnlib.testing"]),
    "compat": ("Published names", ["snnlib.compat"]),
}
# Where users find what a module defines, if not under the module's own name.
PUBLIC = {
    "snnlib.learning.losses": "snnlib.losses",
    "snnlib.learning.decoding": "snnlib.readout",
    "snnlib.explain": "snnlib.explain",
    "snnlib.app.visual": "snnlib.visual",
}
# Groups of the long pages, in their order: title, and the packages whose names belong to it, unless a longer name of a
# package does. Names of a page without groups stand one after the other.
GROUPS = {
    "Convolutions, linear layers, pools and attention": ["snnlib.nn.layers"],
    "Recurrence and state spaces": ["snnlib.nn.recurrent"],
    "Normalisation": ["snnlib.nn.norm"],
    "Chunks and sequences of different lengths": ["snnlib.nn.time"],
    "Weights": ["snnlib.nn.weights"],
    "Speed and memory": ["snnlib.nn.fusion", "snnlib.nn.memory"],
    "Regions and resizing": ["snnlib.vision"],
    "Data sets": ["snnlib.data.datasets"],
    "Event files": [
        "snnlib.data.formats",
        "snnlib.data.reading",
        "snnlib.data.writing",
        "snnlib.data.camera",
    ],
    "Transforms": ["snnlib.data.transforms"],
    "Sound and heart beats": ["snnlib.data.wav", "snnlib.data.log_mel", "snnlib.data.beat_frames"],
    "Events, frames and caches": ["snnlib.data", "snnlib.files", "numpy"],
    "Operations, memory and kernels": ["snnlib.inspect"],
    "Heat maps": ["snnlib.explain"],
    "Reports": ["snnlib.app.report"],
    "Pictures": ["snnlib.app.visual"],
}


def main() -> None:
    """Write all pages anew."""
    write_guides()
    write_examples()
    write_neurons()
    write_reference()


def write_guides() -> None:
    """The pages of `docs/` with the stored pictures of their notebooks, and the changelog."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("site", "conftest.py", "__pycache__"))
    sys.path.insert(0, str(ROOT / "release"))
    with_pictures = importlib.import_module("notebooks").with_pictures
    for page in PAGES.glob("*.md"):
        pictured = with_pictures(page.read_text(encoding="utf-8"), page.name, PAGES / "images")
        page.write_text(linked(pictured), encoding="utf-8")
    shutil.copy(ROOT / "docs" / "site" / "copy.css", PAGES)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    # The changelog lies beside the pages that it links to.
    (PAGES / "changelog.md").write_text(changelog.replace("](docs/", "]("), encoding="utf-8")


def linked(text: str) -> str:
    """Links to examples as links to their pages, those to other files as plain text, and sessions with their prompts.

    Of a block marked as a session the site's button copies what was typed, without prompts and results (copy.css).
    """
    text = text.replace("```python\n>>> ", "```pycon\n>>> ")
    text = re.sub(r"\(\.\./examples/(\w+)\.py\)", r"(examples/\1.md)", text)
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"`\1`", text)


def write_examples() -> None:
    """A page for each example: what it shows, and its code."""
    for file in sorted((ROOT / "examples").glob("*.py")):
        source = file.read_text(encoding="utf-8")
        title = file.stem.replace("_", " ").capitalize()
        page = f"# {title}\n\nRun it: `python examples/{file.name}`\n\n```python\n{source}```\n"
        target = PAGES / "examples" / f"{file.stem}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(page, encoding="utf-8")


def write_neurons() -> None:
    """A page for each neuron: its response to a constant current and to pulses, and its reference."""
    sys.path.insert(0, str(Path(__file__).parent))
    draw = importlib.import_module("responses").draw
    folder = PAGES / "neurons"
    folder.mkdir()
    for name, model in snnlib.neurons.MODELS.items():
        file = f"{name.lower()}.svg"
        draw(model(), folder / file)
        page = (
            f"# {name}\n\n![Response of {name} to pulses and to a constant current]({file})\n\n"
            f"Input current, states and output spikes (dots) of `snnlib.neurons.{name}()` with its defaults, the "
            "potential before its reset; time in steps. [All neurons and their dialects](../neurons.md)\n\n"
            f"{directive(model, f'snnlib.neurons.{name}')}\n{shared_options(model)}"
        )
        (folder / f"{name.lower()}.md").write_text(page, encoding="utf-8")
    for name, model in snnlib.neurons.FIXED_LENGTH_MODELS.items():
        reference = directive(model, f"snnlib.neurons.{name}")
        page = f"# {name}\n\n[All neurons and their dialects](../neurons.md)\n\n{reference}\n{shared_options(model)}"
        (folder / f"{name.lower()}.md").write_text(page, encoding="utf-8")


def shared_options(model: type[snnlib.neurons.Neuron]) -> str:
    """The options that a neuron's docstring leaves to another class, as `SpikingNeuron`, described in a section."""
    left = [name for name, text in arguments_of(model).items() if text.startswith("as in `")]
    lines = [f"- **`{name}`**: {described(model, name)}" for name in left]
    title = "## Options that models share\n\n"
    return "\n" + title + "\n".join(lines) + "\n" if lines else ""


def described(model: type, name: str) -> str:
    """Description of an argument by the class to which docstrings lead."""
    text = arguments_of(model)[name]
    other = re.match(r"as in `(\w+)`", text)
    return described(getattr(snnlib.neurons, other[1]), name) if other else text


def arguments_of(kind: type) -> dict[str, str]:
    """Descriptions of the arguments in a class's own docstring, by name."""
    listed = re.search(r"^Args[^\n]*:\n(.*?)(\n\S|\Z)", inspect.cleandoc(kind.__doc__ or ""), re.S | re.M)
    # An entry begins at the least indentation; its names may take several lines.
    entries = re.split(r"\n    (?=\S)", "\n" + listed[1].rstrip()) if listed else []
    pairs = (" ".join(entry.split()).partition(": ") for entry in entries if entry.strip())
    return {name: text for names, _, text in pairs for name in names.split(", ")}


def write_reference() -> None:
    """The reference, and an error for a public name that no page documents."""
    folder, documented = PAGES / "api", set(snnlib.neurons.MODELS)
    folder.mkdir()
    for stem, (title, modules) in REFERENCE.items():
        parts, groups = [f"# {title}"], dict[str, list[tuple[Any, str]]]()
        for module in map(importlib.import_module, modules):
            for name in public_names(module):
                target = getattr(module, name)
                if name in documented or not callable(target) or not hasattr(target, "__qualname__"):
                    continue
                documented.add(name)
                entry = target, f"{public_module(module, name)}.{name}"
                groups.setdefault(group_of(target), []).append(entry)
        for group in sorted(groups, key=["", *GROUPS].index):
            parts += [f"## {group}"] if group else []
            parts += [directive(*entry, level=3 if group else 2) for entry in groups[group]]
        (folder / f"{stem}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    functions = {name for name in snnlib.__all__ if not inspect.ismodule(getattr(snnlib, name))}
    if missing := sorted(functions - documented):
        raise SystemExit(f"docs/site/pages.py: no page of the reference documents {', '.join(missing)}")


def group_of(target: Any) -> str:
    """The group of `GROUPS` whose package is the longest that holds a class or function; empty for none."""
    module = f"{target.__module__}."
    pairs = ((package, title) for title, packages in GROUPS.items() for package in packages)
    holding = [(len(package), title) for package, title in pairs if module.startswith(f"{package}.")]
    return max(holding, default=(0, ""))[1]


def public_names(module: Any) -> list[str]:
    """The module's `__all__`, else what it defines of the names at the top level of snnlib."""
    names = getattr(module, "__all__", None)
    return list(names) if names else [name for name in vars(module) if name in dir(snnlib)]


def public_module(module: Any, name: str) -> str:
    """The module in which a user finds a name."""
    return "snnlib" if name in dir(snnlib) else PUBLIC.get(module.__name__, module.__name__)


def directive(target: Any, heading: str, level: int = 2) -> str:
    """Asks mkdocstrings for the signature and docstring of a class or function."""
    path = f"{target.__module__}.{target.__qualname__}"
    label = heading.rpartition(".")[2]
    options = f"heading: {heading}\n      toc_label: {label}\n      heading_level: {level}"
    return f"::: {path}\n    options:\n      {options}"


if __name__ == "__main__":
    main()
