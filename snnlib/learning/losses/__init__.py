"""Losses for spiking classifiers. Any torch loss works on `readout.spike_count`, scaled to logits, as well.

On counts: `spike_count_loss` and `spike_count_plus_loss` ask for a few spikes of every neuron, so that all neurons can
go on learning; `count_cross_entropy` and `count_cross_entropy_plus` let neurons fall silent. On times:
`first_spike_loss` and `spike_time_loss`. On whole sequences: `van_rossum_loss`. On potentials of an `SRMReadout`,
which always have a gradient: `tet_loss`. On energy: `SynapticOperationsLoss`, in addition to another loss.
`docs/measurements/training.md` has accuracies.

Before training call `report = snnlib.prepare_(net, x)`, and use Adam at `report.learning_rate`.
`count_cross_entropy(counts, labels, scale=report.logit_scale)` and `tet_loss` train from its default rates. For losses
with target counts or target spike trains, start from rates near the targets (`target_rate={"name of the output layer":
0.1}`) and use `nn.supervised_spikes`.

A silent neuron has no gradient in event-driven learning, whatever the loss: see `snnlib.nn.supervised_spikes`.
"""

from snnlib import guesses
from snnlib.learning.losses.count import spike_count_loss as spike_count_loss
from snnlib.learning.losses.count import spike_count_plus_loss as spike_count_plus_loss
from snnlib.learning.losses.cross_entropy import count_cross_entropy as count_cross_entropy
from snnlib.learning.losses.cross_entropy import count_cross_entropy_plus as count_cross_entropy_plus
from snnlib.learning.losses.cross_entropy import first_spike_loss as first_spike_loss
from snnlib.learning.losses.sequences import spike_time_loss as spike_time_loss
from snnlib.learning.losses.sequences import target_spike_train as target_spike_train
from snnlib.learning.losses.sequences import van_rossum_loss as van_rossum_loss
from snnlib.learning.losses.synaptic_operations import SynapticOperationsLoss as SynapticOperationsLoss
from snnlib.learning.losses.tet import tet_loss as tet_loss

guesses.publish(__name__)
