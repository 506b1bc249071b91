"""Pictures of data, spikes and training as matplotlib figures; needs `pip install 'snnlib[train]'`."""

from snnlib.visual.animation import heat_animation, save_gif
from snnlib.visual.canvas import save_png
from snnlib.visual.confusion import confusion_matrix
from snnlib.visual.curves import curves
from snnlib.visual.events import accumulated_events
from snnlib.visual.heat import heat_strips
from snnlib.visual.raster import raster

__all__ = [
    "accumulated_events",
    "confusion_matrix",
    "curves",
    "heat_animation",
    "heat_strips",
    "raster",
    "save_gif",
    "save_png",
]
