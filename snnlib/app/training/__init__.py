"""Training by Lightning: settings of a run here, `train_run` and `test_run` in `snnlib.app.training.run`.

The settings need no extra package; everything else needs `pip install 'snnlib[train]'`.
"""

from snnlib.app.errors import CheckpointError, ConfigError
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.run_folder import RunFolder

__all__ = ["CheckpointError", "ConfigError", "RunFolder", "TrainConfig"]
