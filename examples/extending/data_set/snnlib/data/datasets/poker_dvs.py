"""POKER-DVS: card symbols that are flicked past an event camera, 35 x 35 pixels."""

from __future__ import annotations

from snnlib.data.datasets.event_files import _Published

__all__ = ["POKERDVS"]


class POKERDVS(_Published):
    """POKER-DVS: the four suits of playing cards before a fast event camera, cut out around each symbol.

    Layout: `<suit>/*` with event files of any known format, suits cl, di, he and sp. No split is published: a fifth of
    each suit, by a hash of the file's name, is the test set, and a tenth the validation set.

    Arguments and attributes are those of `EventFolder`.

    Source: Serrano-Gotarredona and Linares-Barranco, "Poker-DVS and MNIST-DVS. Their History, How They Were Made, and
    Other Details", Frontiers in Neuroscience 9:481, 2015.
    """

    expected = frozenset(("cl", "di", "he", "sp"))
    fetch = "fetch POKER-DVS (www2.imse-cnm.csic.es/caviar/POKERDVS.html) and make a folder of each suit"
