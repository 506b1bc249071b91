"""What a net has to know of a run's data: classes and size of the input."""

from __future__ import annotations

from dataclasses import dataclass

from snnlib.app.read_options import folder_options
from snnlib.app.training.choices import IMAGES, SEQUENCES
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.errors import ConfigError
from snnlib.app.training.images import image_classes, image_shape, input_shape_of
from snnlib.app.training.sequences import channels_of, classes_of
from snnlib.data import NMNIST, CropPool, EventFolder


@dataclass(frozen=True)
class DataFacts:
    """What a net has to know of its data.

    Args:
        classes: names of the classes; the label is the index.
        input_shape: polarities or colours, height and width of a frame `[C, H, W]`; channels, 1 and 1 of sequences
            without frames.
    """

    classes: tuple[str, ...]
    input_shape: tuple[int, int, int]


def data_facts(config: TrainConfig) -> DataFacts:
    """Classes and frame size of the data that the settings name.

    Reads no recording, but those of a folder whose settings give no crop.

    Raises:
        ConfigError: the folder is missing or holds no recordings.
    """
    if config.data in SEQUENCES:
        try:
            return DataFacts(classes_of(config), (channels_of(config), 1, 1))
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError("root", str(error)) from error
    if config.data in IMAGES:
        try:
            return DataFacts(image_classes(config), input_shape_of(config, image_shape(config)))
        except ConfigError:
            raise
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError("root", str(error)) from error
    # The embedded digits and simulated events share N-MNIST's.
    classes, sensor_size = tuple(NMNIST.classes), NMNIST.sensor_size
    if config.data != "folder":
        _check_crop(config, sensor_size)
    else:
        classes = tuple(config.classes or ())
        if not classes or config.crop is None:
            try:
                samples = EventFolder(config.root or "", None, **folder_options(config.read))
                classes = classes or tuple(samples.classes)
                sensor_size = samples.sensor_size if config.crop is None else sensor_size
            except TypeError as error:
                raise ConfigError("read", str(error)) from error
            except (OSError, ValueError) as error:
                raise ConfigError("root", str(error)) from error
    size = CropPool(config.crop_box or (0, 0, *sensor_size), config.pool).output_size
    return DataFacts(classes, (2, *size))


def _check_crop(config: TrainConfig, sensor_size: tuple[int, int]) -> None:
    if config.crop_box is None:
        return
    top, left, height, width = config.crop_box
    if top + height > sensor_size[0] or left + width > sensor_size[1]:
        raise ConfigError(
            "crop",
            f"expected a part of the sensor of {sensor_size[1]}x{sensor_size[0]} pixels, got {config.crop}",
        )
