"""The picture of README.md: a training step's time and memory, here and in other libraries.

    python benchmarks/cpu/readme_picture.py FOLDER [--picture docs/images/speed.png]

FOLDER holds the `training_step.json` that `make bench-peers` wrote, which draws this picture at its end. Of each
library the faster layout is drawn.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from charts import bars
from nmnist_nets import SHORT_LIST

from snnlib.app.visual.canvas import INK, save_png

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "speed.png"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    figures = json.loads((arguments.folder / "training_step.json").read_text(encoding="utf-8"))
    ((_, table),) = figures["tables"].items()
    missing = [name for name in SHORT_LIST if name not in table]
    if missing:
        raise SystemExit(
            f"folder: expected rows of {', '.join(SHORT_LIST)}, got none of {', '.join(missing)}"
        )
    facts = figures["facts"]
    figure = bars(
        {"milliseconds": {name: table[name] for name in SHORT_LIST}},
        title="One training step of a spiking convolutional net on N-MNIST, on a CPU",
        keys=["median_ms", "peak_mb"],
    )
    where = f"{facts['processor']}, {facts['threads']} threads, torch {facts['torch']}, {facts['date']}"
    figure.supxlabel(
        f"12C5-P2-64C5-P2-10, 30 steps, batch 50, forward + backward + Adam. {where}\n"
        "Times and factors are medians over turns, each by itself.",
        color=INK,
        fontsize=8,
    )
    save_png(figure, arguments.picture)
    print(f"picture: {arguments.picture}")


if __name__ == "__main__":
    main()
