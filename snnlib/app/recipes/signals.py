"""Recipes of signals: sound and heart beats."""

from __future__ import annotations

from typing import Any

from snnlib.app.recipes.recipe import STILL, Recipe

_ECG = Recipe(
    name="ecg",
    source="neurons of Baronig et al., 2025; data and task of Yin et al., Nature Machine Intelligence 3, 2021",
    note="a label at every step, causal; as examples/ecg.py, measured in docs/measurements/time.md; --data shd and ssc "
    "take its neurons and steps, with which they were not measured",
    measured="QT database in blocks, 494 sequences to train and 124 to test, 3 seeds: test accuracy 81.2 +- 0.3 % "
    "after the last epoch, 81.6 at the best epoch (snnlib train --recipe ecg --threads 1 --seed 0, 1, 2)",
    settings={
        **STILL,
        "data": "ecg",
        "net": "128R-6",
        "neuron": "adlif",
        "tau": 5.0,
        "tau_m": 5.0,
        "tau_s": 1.0,
        "step_ms": 4.0,
        "epochs": 24,
        "batch_size": 16,
        "lr": 1e-2,
        "warmup_epochs": 3.6,
        "weight_decay": 0.0,
        "clip_norm": 1.0,
        "target_rate": 0.08,
    },
)
_NORMALISED: dict[str, Any] = {
    **STILL,
    "neuron": "lif",
    "tau": 2.0,
    "surrogate": "atan",
    "batch_norm": True,
    "dropout": 0.1,
    "loss": "mean-potential",
    # A read-out without memory: the mean over time has it.
    "tau_m": 1.0,
    "tau_s": 1.0,
    "lr": 7e-3,
    "weight_decay": 1e-2,
    "clip_norm": 1.0,
}
# Whole numbers of spikes in steps of half a deviation of what batch norm gives. Delays have the memory of the nets.
_WORDS: dict[str, Any] = {
    **_NORMALISED,
    "tau": 1.0,
    "levels": 8,
    "threshold": 0.5,
    "surrogate": "straight-through",
    "time_steps": 25,
    "step_ms": 40.0,
    "channels": 40,
    "vary": 0.1,
    "epochs": 20,
    "batch_size": 32,
    "warmup_epochs": 4.0,
    "test_after": "training",
}
_WIDE = "24C5s2p2-T1-32C5s2p2-T1-64-64M2-64M2"
_KEYWORDS = Recipe(
    name="keywords",
    source="task of Warden, 2018",
    note="frames of 10 ms in whole numbers, four to a step; graded spikes, batch norm, blocks that see three steps",
    measured="Speech Commands' test archive, each of four folds of speakers to test (3918 words) and the others to "
    "train, seeds 0 to 2; fold 3 chose the net: test accuracy 90.4 +- 0.5 % after the last epoch (python "
    "benchmarks/learning/keywords.py --root ARCHIVE --nets snnlib)",
    settings={**_WORDS, "data": "keywords", "net": f"{_WIDE}-12"},
)
_KEYWORDS_CHIP = Recipe(
    name="keywords-chip",
    source="task of Warden, 2018; axonal delays of Shrestha and Orchard, NeurIPS 2018",
    note="keywords by a chain of half the weights with delays by channel, for integer nets (docs/leave.md)",
    measured="Speech Commands' test archive, each of four folds of speakers to test (3918 words) and the others to "
    "train, seeds 0 to 2; fold 3 chose the net: test accuracy 89.2 +- 0.6 % after the last epoch (python "
    "benchmarks/learning/keywords.py --root ARCHIVE --nets 'snnlib, chip')",
    settings={**_WORDS, "data": "keywords", "net": "24C5s2p2-A1-32C5s2p2-A2-96-12"},
)
_SPOKEN_DIGITS = Recipe(
    name="spoken-digits",
    source="net and settings of keywords",
    note="stronger changes of tempo and voice, as there are three or four speakers; --init-from a run of keywords with "
    "--high-hz 3800, and --epochs 12, begins with a net that knows words and has 72.6 % (docs/tables.md)",
    measured="free spoken digits, each of four speakers (500 recordings) to test and the other three to train, seeds "
    "0 to 2: test accuracy 71.2 +- 2.4 % after the last epoch (python benchmarks/learning/keywords.py --digits "
    "--root DIR --nets snnlib)",
    settings={**_WORDS, "data": "spoken-digits", "net": f"{_WIDE}-10", "vary": 0.15, "epochs": 25},
)
_BEATS = Recipe(
    name="beats",
    source="task of de Chazal, O'Dwyer and Reilly, 2004; axonal delays of Shrestha and Orchard, NeurIPS 2018",
    note="beats N, S and V of patients who were never seen, beside the beats before and their intervals; an epoch has "
    "19,200 beats, rare ones as often as need be, and some of records that are joined from each patient's beats",
    measured="DS1 of the MIT-BIH Arrhythmia Database, 50,587 beats N, S and V in eleven folds by patient, 3 seeds, "
    "counts of all folds: macro F1 75.6 +- 1.0 and test accuracy 94.7 +- 0.2 % after the last epoch; 52.7 +- 0.6 on "
    "records of many beats S, which are joined from unseen patients (python "
    "benchmarks/learning/beats.py --root MITDB --nets snnlib)",
    settings={
        **_NORMALISED,
        "data": "beats",
        "net": "80-A4-64-3",
        "dropout": 0.2,
        "lr": 5e-3,
        "time_steps": 31,
        "step_ms": 22.2,
        "epochs": 2,
        "batch_size": 96,
        "warmup_epochs": 0.4,
        "test_after": "training",
    },
)

SIGNALS = (_ECG, _KEYWORDS, _KEYWORDS_CHIP, _SPOKEN_DIGITS, _BEATS)
