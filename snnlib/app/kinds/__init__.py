"""The kinds of data that `snnlib train` knows, by the words of `--data`. A kind is a file and a line here."""

from collections.abc import Mapping
from types import MappingProxyType

from snnlib.app.kinds.base import Kind
from snnlib.app.kinds.beats import BEATS
from snnlib.app.kinds.events import EVENTS
from snnlib.app.kinds.folders import EVENT_FOLDER, IMAGE_FOLDER
from snnlib.app.kinds.images import IMAGES
from snnlib.app.kinds.points import POINTS
from snnlib.app.kinds.sequences import SEQUENCES
from snnlib.app.kinds.words import WORDS

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (*EVENTS, EVENT_FOLDER, *IMAGES, IMAGE_FOLDER, *SEQUENCES, *WORDS, *BEATS, *POINTS)
    }
)
