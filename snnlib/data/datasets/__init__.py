"""Data sets from a copy on disk; nothing is downloaded."""

from snnlib.data.datasets.event_folder import EventFolder

__all__ = ["EventFolder"]
