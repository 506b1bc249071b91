"""The main job: train a run from its settings, go on with one, test one."""

from __future__ import annotations

import math
import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_only
from tqdm import tqdm

from snnlib.app.errors import CheckpointError, ConfigError
from snnlib.app.training.checkup import Checkup
from snnlib.app.training.classifier import SpikingClassifier, TestResult
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.divergence import StopWhenDiverged
from snnlib.app.training.history import History, Row
from snnlib.app.training.load import Checkpoint, checkpoint_path, load_init, load_weights, newest_checkpoint
from snnlib.app.training.objective import LOSSES
from snnlib.app.training.run_folder import RunFolder
from snnlib.app.training.trainer import build_trainer, quiet_lightning
from snnlib.backends.cpu_memory import keep_freed_memory
from snnlib.data.datasets.splits import some_names
from snnlib.learning.preparing import prepare_
from snnlib.nn import SpikingRNN, fuse_, unfuse_

# Bytes of a batch's frames above which a word on memory and time comes before the first step.
_LARGE_BATCH = 10**9


@dataclass(frozen=True)
class TrainResult:
    """A finished run.

    Args:
        module: the trained net with its settings, in evaluation mode.
        data: the data it was trained and tested on.
        test: what the last pass over the test set found.
        history: the rows of `metrics.csv`.
        peak_memory: largest memory of the process so far in bytes, by name of the memory.
    """

    module: SpikingClassifier
    data: EventData
    test: TestResult
    history: list[Row]
    peak_memory: dict[str, int]

    @property
    def diverged(self) -> bool:
        """Returns whether training stopped because its loss became NaN or infinite."""
        return not math.isfinite(self.history[-1]["train_loss"])


def train_run(
    config: TrainConfig, run: RunFolder, *, resume: bool = False, progress: bool = True
) -> TrainResult:
    """Train a net; after every epoch the run folder holds a checkpoint and the numbers so far.

    Training stops after an epoch whose loss is NaN or infinite; the checkpoints are then of the epoch before.

    The order of samples and every random number follow from the seed and the epoch, so a run that was stopped at any
    moment and resumed ends with the same weights, bit for bit, as one that never stopped (on one machine with one
    number of threads).

    Args:
        config: the settings.
        run: the run's folder, from `RunFolder.create` or, with `resume`, `RunFolder.open`.
        resume: go on from the newest intact checkpoint of the run; from the start where none was written yet, as in a
            run that was killed within its first epoch.
        progress: show bars while data is prepared.

    Raises:
        ConfigError: settings that cannot be used on this machine or with these data, or another process trains in the
            folder. A new folder is removed again.
        CheckpointError: the run's checkpoints are damaged.
        KeyboardInterrupt: stopped by the user; what was finished is in the run folder.
    """
    keep_freed_memory()
    # Further processes of the run, which Lightning starts, work in the folder that the first one holds.
    with run.lock() if is_first_process() else nullcontext(), quiet_lightning():
        try:
            checkpoint = newest_checkpoint(run) if resume else None
            module, data = _prepare(config, progress)
            checkup = Checkup(module.net, tqdm.write)
            history = History(run.metrics, tqdm.write, checkup)
            trainer = build_trainer(config, run, history, checkup, StopWhenDiverged(tqdm.write))
            _say(f"reading {data.kind.say(data.kind.place, config, data.facts)}")
            data.setup("fit")
            _say_of_data(config, data)
            if checkpoint is None and config.net.init_from is not None:
                scale, new = load_init(module, Path(config.net.init_from))
                but = f", but a new last layer for {len(data.facts.classes)} classes" if new else ""
                _say(f"weights of the run in {config.net.init_from}{but}")
                _scale_logits(module, run, scale if new is None else _calibrate(module, data, new))
            elif checkpoint is None:
                _say("scaling weights so that neurons fire at the wanted rates (calibration)")
                _scale_logits(module, run, _calibrate(module, data))
            else:
                load_weights(module, checkpoint)
        except Exception:
            if is_first_process():
                run.remove_if_unused()
            raise
        # Lightning's own, saved in the middle of an epoch at a signal of Slurm's; it would be preferred to a new start.
        for left in run.path.glob("hpc_ckpt_*.ckpt"):
            left.unlink(missing_ok=True)
        try:
            fuse_(module.net)
            trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if checkpoint is None or history.started or isinstance(error, ConfigError):
                raise
            # Lightning restores this before it starts: the optimiser, the schedule, the state of its callbacks.
            raise CheckpointError(
                f"{checkpoint}: expected a checkpoint to resume from, got other content: "
                f"{type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        except SystemExit as stop:
            # Lightning turns Ctrl-C and a polite kill into the end of the process; that is for the caller to say.
            raise KeyboardInterrupt from stop
        finally:
            # Pictures show spikes before pooling.
            unfuse_(module.net)
        if module.test_result is None:
            # The run had all its epochs already.
            trainer.validate(module, data, verbose=False)
    assert module.test_result is not None
    return TrainResult(module.eval(), data, module.test_result, history.rows, peak_memory())


def test_run(
    config: TrainConfig, run: RunFolder, *, checkpoint: Checkpoint = "last", progress: bool = True
) -> TestResult:
    """Test a run's net on the test set; writes nothing.

    Args:
        config: the run's settings, perhaps with other `data` and `root`.
        run: the run's folder.
        checkpoint: `"last"`, the net after the last epoch, or `"best"`, the one with the highest accuracy on the
            validation set, in a run with `val_split`.
        progress: show bars.

    Raises:
        ConfigError, CheckpointError: as in `train_run`.
    """
    source = checkpoint_path(config, run, checkpoint)
    with quiet_lightning():
        module, data = _prepare(config, progress)
        load_weights(module, source)
        build_trainer(config).validate(module, data, verbose=False)
    assert module.test_result is not None
    return module.test_result


def peak_memory() -> dict[str, int]:
    """Largest memory of this process so far in bytes: `"process"`, and `"GPU"` where one was used."""
    peaks = {}
    try:
        import resource  # noqa: PLC0415 - absent on Windows
    except ImportError:
        pass
    else:
        unit = 1 if os.uname().sysname == "Darwin" else 1024
        peaks["process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        peaks["GPU"] = torch.cuda.max_memory_allocated()
    return peaks


def is_first_process() -> bool:
    """Returns whether this process writes the run's files; others help with training."""
    return not getattr(rank_zero_only, "rank", 0)


def _prepare(config: TrainConfig, progress: bool) -> tuple[SpikingClassifier, EventData]:
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)
    torch.manual_seed(config.learning.seed)
    data = EventData(config, progress and is_first_process())
    return SpikingClassifier(config, data.facts), data


def _say(text: str) -> None:
    if is_first_process():
        tqdm.write(text)


def _say_of_data(config: TrainConfig, data: EventData) -> None:
    """Words on what may surprise: large batches, and classes that cannot be learned."""
    size = data.batch_bytes(config.learning.copies)
    if size > _LARGE_BATCH:
        _say(
            f"a batch has {config.data.time_steps} steps and {size / 1e9:.1f} GB of frames; a step of training takes "
            "several times as much memory, and time in proportion"
        )
    if missing := data.untrained_classes():
        _say(
            f"no training sample of {some_names(missing)}, which the test set has: all of them will be wrong"
        )


def _scale_logits(module: SpikingClassifier, run: RunFolder, scale: float | None) -> None:
    """Sets the scale of logits where the loss has one and the settings have none, and keeps it in the run."""
    config = module.config
    if LOSSES[config.learning.loss].scale is None or scale is None or config.learning.logit_scale is not None:
        return
    module.take_settings(config.changed(logit_scale=scale))
    _say(f"logit scale {scale:g}")
    if is_first_process():
        module.config.save(run.config)


def _calibrate(module: SpikingClassifier, data: EventData, new: str | None = None) -> float | None:
    """Prepares the net on the first batch, and returns the scale of logits that was measured there.

    With `new` that layer alone is prepared.
    """
    net, rates = module.net, module.target_rates()
    rates = {name: rate for name, rate in rates.items() if new in (None, name)}
    if not rates:
        return None
    # Gains give all weights of recurrent nets one pace. Elsewhere layers behind batch norm and read-outs begin as they
    # are drawn: from the larger weights that `prepare_` gives read-outs the embedded digits lost half a point.
    recurrent = any(isinstance(layer, SpikingRNN) for layer in net.modules())
    with_rate = {id(weight) for name in rates for weight in net.get_submodule(name).parameters()}
    own_pace = recurrent and new is None
    frozen = [weight for weight in net.parameters() if not own_pace and id(weight) not in with_rate]
    batch = data.first_batch().to(next(net.parameters()).dtype)
    try:
        for weight in frozen:
            weight.requires_grad_(False)
        standardize = module.config.net.weight_scheme == "standardized"
        report = prepare_(net, batch, rates, gain=recurrent, standardize=standardize, again=new is not None)
    except ValueError as error:
        raise ConfigError("target_rate", str(error).removeprefix("target_rate: ")) from error
    finally:
        for weight in frozen:
            weight.requires_grad_(True)
    for finding in report.findings():
        _say(finding)
    scale = LOSSES[module.config.learning.loss].scale
    return None if scale is None else float(getattr(report, scale))
