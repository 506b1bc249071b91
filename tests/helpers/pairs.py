"""What tests beside other libraries found of each pair, and the table of it in docs/moving-nets.md.

`make test-peers` sets SNNLIB_PAIRS to a file: tests append a line per net there. `python tests/helpers/pairs.py FILE`
makes the table of it, and stores the lines for the test that the page holds this table.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

STORED = Path(__file__).parents[1] / "stored" / "pairs.jsonl"
PAGE = Path(__file__).parents[2] / "docs" / "moving-nets.md"
BEGIN, END = "<!-- pairs: written by tests/helpers/pairs.py -->\n", "<!-- end of pairs -->\n"
LIBRARIES = {
    "snnlib": "snnlib",
    "snntorch": "snnTorch",
    "spikingjelly": "SpikingJelly",
    "norse": "Norse",
    "sinabs": "sinabs",
}


def record(source: str, target: str, how: str, net: str, identical: float) -> None:
    """Note the share of spikes that are identical in a net and in what became of it in another library."""
    if path := os.environ.get("SNNLIB_PAIRS"):
        line = {"from": source, "to": target, "by": how, "net": net, "identical": identical}
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def table(lines: list[dict[str, str | float]]) -> str:
    """Markdown of the pairs, by the libraries' order."""
    order = list(LIBRARIES)
    groups: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for line in lines:
        key = str(line["from"]), str(line["to"]), str(line["by"])
        groups.setdefault(key, []).append((str(line["net"]), float(line["identical"])))
    rows = ["| from | to | by | nets | identical spikes |", "| --- | --- | --- | --- | --- |"]
    for source, target, how in sorted(
        groups, key=lambda key: (order.index(key[0]), order.index(key[1]), key[2])
    ):
        found = groups[source, target, how]
        least = min(share for _, share in found)
        names = ", ".join(sorted({name for name, _ in found}))
        share = "all" if least == 1 else f"{least:.3%} or more"
        rows.append(f"| {LIBRARIES[source]} | {LIBRARIES[target]} | {how} | {names} | {share} |")
    return "\n".join(rows) + "\n"


def stored() -> list[dict[str, str | float]]:
    """The lines that the page's table was made of."""
    return [json.loads(line) for line in STORED.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Store the lines of a file, and put their table into the page."""
    lines = sorted(set(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()))
    STORED.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + table(stored()) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
