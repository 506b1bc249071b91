"""Training by Lightning: settings of a run here, `train_run` and `test_run` in `snnlib.training.run`.

The settings need no extra package; everything else needs `pip install 'snnlib[train]'`.
"""

from snnlib.training.config import TrainConfig
from snnlib.training.errors import CheckpointError, ConfigError
from snnlib.training.run_folder import RunFolder

__all__ = ["CheckpointError", "ConfigError", "RunFolder", "TrainConfig"]
