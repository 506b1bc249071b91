"""The report of a run: `snnlib.report` of its net on its test set, and the figures as files beside it."""

from __future__ import annotations

from torch.utils.data import DataLoader

from snnlib.app.report import Report, report
from snnlib.app.training.run import TrainResult
from snnlib.app.training.run_folder import RunFolder
from snnlib.app.training.summary import run_facts
from snnlib.files.atomic import write_bytes_atomically


def write_report(result: TrainResult, run: RunFolder) -> Report:
    """Write `report.html` and its figures into the run's folder.

    Raises:
        OSError: the folder cannot be written to.
    """
    module, config = result.module, result.module.config
    facts = {name: value for name, value in run_facts(result).items() if name != "test accuracy"}
    page = report(
        module.net,
        DataLoader(
            result.data.test_set,
            batch_size=config.learning.batch_size,
            collate_fn=config.data.kind.collate(config),
        ),
        classes=module.facts.classes,
        out=run.report,
        history=result.history,
        scores=module.objective.scores,
        step_ms=config.data.step_ms,
        title=f"Training run {run.path.resolve().name}",
        seed=config.learning.seed,
        facts=facts,
        settings=config.settings(),
    )
    for file, image in page.images.items():
        write_bytes_atomically(run.path / file, image)
    return page
