"""Tables of docs/moving-nets.md that tests beside other libraries fill: pairs of libraries, and classes that convert.

`make test-peers` sets SNNLIB_PAIRS to a file, to which tests append a line per result. `python
tests/helpers/peer_tables.py FILE` stores the results for the test that the page holds these tables, and writes them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "moving-nets.md"
_STORED = Path(__file__).parents[1] / "stored"
_PAIRS, _CLASSES = _STORED / "pairs.jsonl", _STORED / "convert_classes.json"
_LIBRARIES = {
    "snnlib": "snnlib",
    "snntorch": "snnTorch",
    "spikingjelly": "SpikingJelly",
    "norse": "Norse",
    "sinabs": "sinabs",
}
_CLASSES_OF = {
    "neuron": "SpikingJelly's `neuron`",
    "layer": "SpikingJelly's `layer`",
    "snntorch": "snnTorch",
    "norse": "Norse",
}
_FORMS = ("chain", "class", "loop")
# Outcome of each step mode and form, by library and class.
Outcomes = dict[str, dict[str, dict[str, str]]]


def record_pair(source: str, target: str, how: str, net: str, identical: float) -> None:
    """Note the share of spikes that are identical in a net and in what became of it in another library."""
    _record("pairs", {"from": source, "to": target, "by": how, "net": net, "identical": identical})


def record_class(library: str, name: str, outcomes: dict[str, str]) -> None:
    """Note what became of a class in each step mode and form."""
    _record("classes", [library, name, outcomes])


def _record(table: str, result: Any) -> None:
    if path := os.environ.get("SNNLIB_PAIRS"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps([table, result]) + "\n")


def stored_classes() -> Outcomes:
    """The outcomes that the page's table was made of."""
    found: Outcomes = json.loads(_CLASSES.read_text(encoding="utf-8"))
    return found


def sections() -> dict[str, str]:
    """The stored tables as they stand in the page, by the name in their markers."""
    pairs = [json.loads(line) for line in _PAIRS.read_text(encoding="utf-8").splitlines()]
    tables = {"pairs": _pairs_table(pairs), "classes": _classes_table(stored_classes())}
    return {name: f"{_begin(name)}{table}{_end(name)}" for name, table in tables.items()}


def _begin(name: str) -> str:
    return f"<!-- {name}: written by tests/helpers/peer_tables.py -->\n"


def _end(name: str) -> str:
    return f"<!-- end of {name} -->\n"


def _pairs_table(lines: list[dict[str, Any]]) -> str:
    """A row for each pair, by the libraries' order."""
    order = list(_LIBRARIES)
    groups: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for line in lines:
        groups.setdefault((line["from"], line["to"], line["by"]), []).append((line["net"], line["identical"]))
    rows = ["| from | to | by | nets | identical spikes |", "| --- | --- | --- | --- | --- |"]
    for source, target, how in sorted(
        groups, key=lambda key: (order.index(key[0]), order.index(key[1]), key[2])
    ):
        found = groups[source, target, how]
        least = min(share for _, share in found)
        names = ", ".join(sorted({name for name, _ in found}))
        share = "all" if least == 1 else f"{least:.3%} or more"
        rows.append(f"| {_LIBRARIES[source]} | {_LIBRARIES[target]} | {how} | {names} | {share} |")
    return "\n".join(rows) + "\n"


def _classes_table(found: Outcomes) -> str:
    """A row for each class that runs in some form."""
    rows = ["| library | class | step by step | whole sequences |", "| --- | --- | --- | --- |"]
    for library, classes in found.items():
        for name, outcome in sorted(classes.items()):
            if {*outcome.values()} <= {"-", "steps", "sequences"}:
                continue
            if library in ("neuron", "layer"):
                cells = [_cell(outcome, "s"), _cell(outcome, "m")]
            else:
                one = _cell(outcome, "")
                cells = ["-", one] if outcome["takes"] == "sequences" else [one, "-"]
            rows.append(f"| {_CLASSES_OF[library]} | `{name}` | {cells[0]} | {cells[1]} |")
    return "\n".join(rows) + "\n"


def _cell(outcome: dict[str, str], mode: str) -> str:
    """Outcomes of a step mode: one word if all forms that run have the same."""
    words = {form: outcome.get(f"{mode} {form}".strip(), "-") for form in _FORMS}
    ran = {form: word for form, word in words.items() if word != "-"}
    if len({*ran.values()}) == 1:
        return next(iter(ran.values()))
    return ", ".join(f"{form} {word}" for form, word in ran.items()) or "-"


def main() -> None:
    """Store the results of a file, and put their tables into the page."""
    results: dict[str, list[Any]] = {"pairs": [], "classes": []}
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        table, result = json.loads(line)
        results[table].append(result)
    pairs = sorted({json.dumps(pair) for pair in results["pairs"]})
    _PAIRS.write_text("\n".join(pairs) + "\n", encoding="utf-8")
    classes: Outcomes = {library: {} for library in _CLASSES_OF}
    for library, name, outcomes in sorted(results["classes"]):
        classes[library][name] = outcomes
    _CLASSES.write_text(json.dumps(classes, indent=1) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    for name, section in sections().items():
        before, rest = text.split(_begin(name))
        text = before + section + rest.split(_end(name))[1]
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
