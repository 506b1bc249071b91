"""Pictures of data, spikes and training as matplotlib figures; needs `pip install 'snnlib[train]'`."""

from snnlib.app.visual.canvas import save_gif, save_png
from snnlib.app.visual.confusion import confusion_matrix, recall_precision
from snnlib.app.visual.curves import curves
from snnlib.app.visual.events import accumulated_events
from snnlib.app.visual.heat import heat_animation, heat_strips
from snnlib.app.visual.lab import current_clamp, f_i_curve
from snnlib.app.visual.labels import labels_over_time
from snnlib.app.visual.operations import operations
from snnlib.app.visual.potentials import membrane_potentials
from snnlib.app.visual.raster import raster
from snnlib.app.visual.rates import rate_histograms, rates_over_time
from snnlib.app.visual.recording import recording_animation, recording_overview
from snnlib.app.visual.scatter import predictions

__all__ = [
    "accumulated_events",
    "confusion_matrix",
    "current_clamp",
    "curves",
    "f_i_curve",
    "heat_animation",
    "heat_strips",
    "labels_over_time",
    "membrane_potentials",
    "operations",
    "predictions",
    "raster",
    "rate_histograms",
    "rates_over_time",
    "recall_precision",
    "recording_animation",
    "recording_overview",
    "save_gif",
    "save_png",
]
