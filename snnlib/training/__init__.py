"""Training by Lightning: settings of a run here, `train` and `evaluate` in `snnlib.training.run`.

The settings need no extra package; everything else needs `pip install 'snnlib[train]'`.
"""

from snnlib.training.config import ConfigError, TrainConfig
from snnlib.training.run_folder import RunFolder

__all__ = ["ConfigError", "RunFolder", "TrainConfig"]
