"""Import path of version 0.1; the format's module is `snnlib.data.formats.nmnist_bin`."""

from snnlib.data.formats.event_file import EventFileError
from snnlib.data.formats.nmnist_bin import (
    EVENT_BYTES,
    FIELD_MAX_US,
    LARGEST_SENSOR,
    NMNIST_SENSOR_SIZE,
    OVERFLOW_US,
    OVERFLOW_Y,
    WRITE_LIMIT_US,
    encode_nmnist,
    read_nmnist,
    write_nmnist,
)

__all__ = [
    "EVENT_BYTES",
    "FIELD_MAX_US",
    "LARGEST_SENSOR",
    "NMNIST_SENSOR_SIZE",
    "OVERFLOW_US",
    "OVERFLOW_Y",
    "WRITE_LIMIT_US",
    "EventFileError",
    "encode_nmnist",
    "read_nmnist",
    "write_nmnist",
]
