"""Pictures of data, spikes and training as matplotlib figures; needs `pip install 'snnlib[train]'`."""

from snnlib.visual.animation import heat_animation, save_gif
from snnlib.visual.canvas import save_png
from snnlib.visual.confusion import confusion_matrix, recall_precision
from snnlib.visual.curves import curves
from snnlib.visual.events import accumulated_events
from snnlib.visual.heat import heat_strips
from snnlib.visual.potentials import membrane_potentials
from snnlib.visual.raster import raster
from snnlib.visual.rates import rate_histograms, rates_over_time
from snnlib.visual.recording import recording_animation, recording_overview

__all__ = [
    "accumulated_events",
    "confusion_matrix",
    "curves",
    "heat_animation",
    "heat_strips",
    "membrane_potentials",
    "raster",
    "rate_histograms",
    "rates_over_time",
    "recall_precision",
    "recording_animation",
    "recording_overview",
    "save_gif",
    "save_png",
]
