"""`report.html`: one page that shows a run and explains it; pictures are inside the file."""

from __future__ import annotations

import base64
import dataclasses
from importlib import resources

import jinja2

from snnlib.data.atomic import write_bytes_atomically
from snnlib.training.pictures import PICTURES, draw_pictures
from snnlib.training.run import TrainResult
from snnlib.training.run_folder import RunFolder
from snnlib.training.summary import LAYER_COLUMNS, LAYER_NOTE, layer_rows, run_facts


def write_report(result: TrainResult, run: RunFolder) -> None:
    """Draw the run's pictures into its folder and write the page around them.

    Raises:
        OSError: the folder cannot be written to.
    """
    files = draw_pictures(result, run.path)
    template = resources.files("snnlib.training").joinpath("report.html.j2").read_text(encoding="utf-8")
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(template)
    html = page.render(
        name=run.path.resolve().name,
        facts=run_facts(result),
        layer_columns=LAYER_COLUMNS,
        layer_rows=layer_rows(result.test),
        layer_note=LAYER_NOTE,
        pictures=PICTURES,
        # Embedded, so that the page still shows them when it is mailed or moved.
        images={file: base64.b64encode((run.path / file).read_bytes()).decode() for file in files},
        net=str(result.module.net),
        config=dataclasses.asdict(result.module.config),
        rows=result.history,
    )
    write_bytes_atomically(run.report, html.encode())
