"""Speech Commands and the MIT-BIH Arrhythmia Database: small copies in their layouts, damaged files, the real ones."""

import os
import pickle
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from small_sets import annotation, write_record, write_wav

from snnlib.data import MITBIH, EventFileError, SpeechCommands

COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")


def real(name: str) -> Path:
    path = Path(os.environ.get("SNNLIB_DATA", "")) / name
    if not os.environ.get("SNNLIB_DATA") or not path.exists():
        pytest.skip(f"SNNLIB_DATA holds no {name}")
    return path


def sizes(kind: type, *arguments: object, **options: object) -> list[int]:
    return [len(kind(*arguments, split=split, **options)) for split in ("train", "val", "test")]


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """The data set with two words beside the commands, speakers a0 to af and a minute of noise."""
    lists: dict[str, list[str]] = {"testing": [], "validation": []}
    for word in (*COMMANDS, "bird", "cat"):
        (tmp_path / word).mkdir()
        for speaker in range(0xA0, 0xB0):
            name = f"{word}/{speaker:08x}_nohash_0.wav"
            write_wav(tmp_path / name, [speaker, -32768], rate=16000)
            if speaker >= 0xAC:
                lists["testing" if speaker >= 0xAE else "validation"].append(name)
    for part, names in lists.items():
        (tmp_path / f"{part}_list.txt").write_text("\n".join(names) + "\n")
    (tmp_path / "_background_noise_").mkdir()
    (tmp_path / "_background_noise_" / "README.md").write_text("noise")
    write_wav(tmp_path / "_background_noise_" / "tap.wav", np.arange(1_000_000) // 40, rate=16000)
    return tmp_path


def test_words_in_the_published_sets(commands: Path) -> None:
    assert sizes(SpeechCommands, commands) == [12 * 12, 2 * 12, 2 * 12]
    test = SpeechCommands(commands, "test")
    assert test.classes == tuple(sorted((*COMMANDS, "bird", "cat"))) and set(test.speakers) == {
        "000000ae",
        "000000af",
    }
    sound, label = test[1]
    assert test.files[1] == "bird/000000af_nohash_0.wav" and test.classes[label] == "bird"
    assert sound.tolist() == [0xAF / 32768, -1.0]


def test_twelve_classes_have_a_tenth_of_unknown_words_and_of_silence(commands: Path) -> None:
    assert sizes(SpeechCommands, commands, num_classes=12) == [120 + 12 + 12, 20 + 2 + 2, 20 + 2 + 2]
    test = SpeechCommands(commands, "test", num_classes=12)
    assert test.classes == ("_silence_", "_unknown_", *COMMANDS)
    assert test.targets.bincount().tolist() == [2] * 12
    # From the beginning of the last tenth of the noise, and halfway from there to the last place with room.
    silence = [sound for sound, label in test if label == 0]
    assert [round(float(sound[0]) * 32768) for sound in silence] == [22_500, 23_550]
    assert {len(sound) for sound in silence} == {16_000}
    # No piece of one fold lies in another one's fifth.
    whole = SpeechCommands(commands, None, num_classes=12, fold=0)
    folds = [SpeechCommands(commands, "test", num_classes=12, fold=k) for k in range(5)]
    assert sum(map(len, folds)) == len(whole)
    for number, fold in enumerate(folds):
        starts = [round(float(sound[0]) * 32768) for sound, label in fold if label == 0]
        assert starts and {start // 5000 for start in starts} == {number}


def test_folds_are_speakers(commands: Path) -> None:
    folds = [SpeechCommands(commands, "test", fold=k) for k in range(5)]
    assert sum(map(len, folds)) == 12 * 16
    for number, fold in enumerate(folds):
        assert {int(speaker, 16) % 5 for speaker in fold.speakers} == {number}
    train, test = (set(SpeechCommands(commands, split, fold=1).speakers) for split in ("train", "test"))
    assert not train & test and len(train | test) == 16


def test_the_archive_of_test_files(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    write_wav(path, [1, 2], rate=16000)
    with zipfile.ZipFile(tmp_path / "test.zip", "w") as archive:
        for name in (
            "_silence_/12.wav",
            "_silence_/3.wav",
            "_unknown_/bird_0000000b_nohash_1.wav.wav",
            "LICENSE",
        ):
            archive.write(path, name)
        for word in COMMANDS:
            archive.write(path, f"{word}/0000000a_nohash_1.wav")
    archive_set = SpeechCommands(tmp_path / "test.zip", "test")
    assert archive_set.targets.bincount().tolist() == [2, *[1] * 11]
    assert pickle.loads(pickle.dumps(archive_set))[0][0].tolist() == [1 / 32768, 2 / 32768]
    fold = SpeechCommands(tmp_path / "test.zip", "test", fold=2)
    assert fold.files == ["_silence_/12.wav"] and fold.speakers == ["12"]
    assert SpeechCommands(tmp_path / "test.zip", "test", fold=1).files == [
        "_unknown_/bird_0000000b_nohash_1.wav.wav"
    ]
    with pytest.raises(ValueError, match="the archive of test files is a test set: fold=0 makes folds of it"):
        SpeechCommands(tmp_path / "test.zip")
    with pytest.raises(ValueError, match="num_classes: expected 12 for the archive of test files, got 35"):
        SpeechCommands(tmp_path / "test.zip", "test", num_classes=35)


def test_sound_that_is_not_as_published(commands: Path, tmp_path: Path) -> None:
    path = commands / "bird" / "000000af_nohash_0.wav"
    write_wav(path, [1], rate=8000)
    with pytest.raises(
        EventFileError, match=r"000000af_nohash_0.wav: expected 16000 samples a second, found 8000"
    ):
        SpeechCommands(commands, "test")[1]
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(8))
    with pytest.raises(EventFileError, match=r"000000af_nohash_0.wav: expected 1 channel, found 2"):
        SpeechCommands(commands, "test")[1]
    path.unlink()
    # A copy may lack files of its lists.
    assert len(SpeechCommands(commands, "test")) == 23
    (commands / "bird" / "notes.wav").write_bytes(b"")
    with pytest.raises(
        EventFileError, match=r"names like \{speaker\}_nohash_\{number\}\.wav, found bird/notes\.wav"
    ):
        SpeechCommands(commands, fold=0)
    (commands / "bird" / "notes.wav").unlink()
    (commands / "testing_list.txt").unlink()
    with pytest.raises(EventFileError, match=r"one file testing_list.txt, found 0; without it fold=0"):
        SpeechCommands(commands)
    with pytest.raises(
        FileNotFoundError,
        match=r"found none; download=True downloads the data set, or fetch speech_commands_v0\.02",
    ):
        SpeechCommands(tmp_path / "none")
    for options, message in (
        ({"fold": 1, "split": "val"}, "split: expected one of train, test, got 'val'"),
        ({"fold": 5}, r"fold: expected an integer in 0\.\.4, got 5"),
    ):
        with pytest.raises(ValueError, match=message):
            SpeechCommands(commands, **options)


def test_real_keywords() -> None:
    archive = real("keywords/speech_commands_test_v2_folds0123.zip")
    folds = [SpeechCommands(archive, "test", fold=k) for k in range(4)]
    assert [len(fold) for fold in folds] == [722, 1174, 889, 1133]
    whole = SpeechCommands(archive.parent, None, fold=0)
    counts = dict(zip(whole.classes, whole.targets.bincount().tolist(), strict=True))
    assert counts == {
        **{
            "_silence_": 328,
            "_unknown_": 319,
            "down": 331,
            "go": 327,
            "left": 328,
            "no": 320,
            "off": 317,
            "on": 324,
        },
        **{"right": 318, "stop": 328, "up": 333, "yes": 345},
    }
    assert whole[0][0].shape == (16000,) and 0 < float(folds[3][500][0].abs().max()) <= 1


def test_beats(tmp_path: Path) -> None:
    signal = write_record(
        tmp_path, "101", [(2, 1), (400, 8), (401, 14), (500, 5), (1700, 6), (1799, 12)], 1801
    )
    write_record(tmp_path, "100", [(100, 1)], seed=1)
    write_record(tmp_path, "102", [(100, 12)], seed=2)
    train = MITBIH(tmp_path, before=4, after=6)
    assert train.records == ["101"] * 5 and train.peaks.tolist() == [2, 400, 500, 1700, 1799]
    assert train.targets.tolist() == [0, 1, 2, 3, 4] and train.classes == ("N", "S", "V", "F", "Q")
    millivolts = torch.from_numpy((signal - [1024, 1025]) / 200).float()
    beat, label = train[1]
    assert label == 1 and torch.equal(beat, millivolts[396:406])
    assert torch.equal(train[0][0], torch.cat([millivolts[:1], millivolts[:1], millivolts[:8]]))
    assert torch.equal(train[4][0], torch.cat([millivolts[1795:], *[millivolts[-1:]] * 4]))
    again = pickle.loads(pickle.dumps(train))
    assert len(pickle.dumps(train)) < 4 * len(signal) and torch.equal(again[1][0], beat)
    assert MITBIH(tmp_path, labels="SVN").targets.tolist() == [2, 0, 1]
    assert MITBIH(tmp_path, None).records[0] == "100"
    with pytest.raises(
        FileNotFoundError,
        match=r"for split 'val', found 100, 101, 102; download=True downloads it, or fetch mit-bih",
    ):
        MITBIH(tmp_path, "val")


def test_a_whole_record_has_labels_where_beats_end(tmp_path: Path) -> None:
    signal = write_record(tmp_path, "106", [(0, 1), (400, 9), (500, 6), (895, 1)])
    records = MITBIH(tmp_path, unit="record", after=6, labels=("N", "S", "V"))
    sequence, labels = records[0]
    assert len(records) == 1 and torch.equal(
        sequence, torch.from_numpy((signal - [1024, 1025]) / 200).float()
    )
    # The last beat would end one sample after the record.
    assert labels.nonzero().flatten().tolist() and (labels >= 0).nonzero().flatten().tolist() == [5, 405]
    assert labels[[5, 405]].tolist() == [0, 1]
    # The window of a beat and the record up to its label end with the same sample.
    beats = MITBIH(tmp_path, before=4, after=6)
    assert torch.equal(beats[1][0], sequence[396:406])


def test_folds_are_patients(tmp_path: Path) -> None:
    for name in (101, 106, 108, 109, 112, 114, 100, 107):
        write_record(tmp_path, str(name), [(100, 1)], seed=name)
    tests = [MITBIH(tmp_path, "test", fold=k).records for k in range(5)]
    assert tests == [["101", "114"], ["106"], ["108"], ["109"], ["112"]]
    assert MITBIH(tmp_path, "test").records == ["100"]
    assert MITBIH(tmp_path, "train", fold=0).records == ["106", "108", "109", "112"]


@pytest.mark.parametrize(
    ("suffix", "old", "new", "message"),
    [
        (".hea", b"101.dat 212", b"101.dat 16", "byte offset 14: expected a signal of 101.dat in format 212"),
        (
            ".hea",
            b"101.dat 212",
            b"102.dat 212",
            "byte offset 14: expected a signal of 101.dat in format 212",
        ),
        (
            ".hea",
            b"2 360 900",
            b"2 360",
            "byte offset 0: expected a record of 2 signals at 360 and its number of",
        ),
        (".hea", b"2 360 900", b"3 360 900", "byte offset 0: expected a record of 2 signals at 360"),
        (".hea", b"2 360 900", b"2 250 900", "byte offset 0: expected a record of 2 signals at 360"),
        (".hea", b"101.dat 212 200 11 1024 ", b"# ", "byte offset 0: expected 2 lines of signals, found 1"),
        *(
            (
                ".hea",
                b" 200 ",
                b" %b " % gain,
                rf"byte offset 14: expected a gain of .* per mV, found {gain[:20].decode()}/",
            )
            for gain in (b"0", b"inf", b"nan", b"1e400", b"1e39", b"9" * 400, b"1e-50", b"two")
        ),
        *(
            (
                ".hea",
                b" 200 ",
                b" 200(1024)/%b " % unit,
                rf"byte offset 14: .* found the unit '{unit.decode()}'",
            )
            for unit in (b"mmHg", b"MV", b"NU", b"mV/bit")
        ),
        (
            ".hea",
            b" 200 ",
            b" 200(%b) " % (b"9" * 5000),
            "byte offset 14: expected a signal of 101.dat in format",
        ),
        (
            ".hea",
            b"2 360 900",
            b"2 360 " + b"9" * 5000,
            "byte offset 0: expected a record of 2 signals at 360",
        ),
        (
            ".dat",
            None,
            b"",
            "byte offset 2699: expected 900 samples of 2 signals, 2700 bytes, found 2699 bytes",
        ),
        (".dat", 1000, None, "byte offset 0: expected the sum .* as its header says, found another"),
        (".atr", None, b"", "byte offset 16: truncated: expected a word of 0 at the end of the annotations"),
        (
            ".atr",
            annotation(1, 100),
            annotation(55, 100),
            "byte offset 8: expected the code of an annotation, 0 to 49, found 55",
        ),
        (
            ".atr",
            annotation(1, 100),
            annotation(1, 1000),
            r"byte offset 8: expected a sample in 0\.\.899, found 1000",
        ),
        (
            ".atr",
            annotation(5, 200),
            annotation(59, 0) + b"\xff\xff" + (2**16 - 50).to_bytes(2, "little") + annotation(5, 0),
            r"byte offset 18: expected a sample in 100\.\.899, found 50",
        ),
        (".atr", annotation(63, 3), annotation(63, 999), "byte offset 2: truncated: expected a word of 0"),
    ],
)
def test_damaged_records(
    tmp_path: Path, suffix: str, old: bytes | int | None, new: bytes | None, message: str
) -> None:
    write_record(tmp_path, "101", [(100, 1), (300, 5)])
    path = tmp_path / f"101{suffix}"
    data = path.read_bytes()
    if old is None:
        data = data[:-1]
    elif isinstance(old, int):
        data = data[:old] + bytes((data[old] ^ 1,)) + data[old + 1 :]
    else:
        assert old in data
        data = data.replace(old, new or b"", 1)
    path.write_bytes(data)
    with pytest.raises(EventFileError, match=message) as error:
        MITBIH(tmp_path)[0]
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("gain", "per_millivolt"),
    [
        ("200", 200),
        ("200/mV", 200),
        ("2e2/mv", 200),
        ("-200/mV", -200),
        ("0.2/uV", 200),
        ("0.2/\u00b5V", 200),
        ("0.2/\u03bcV", 200),
        ("200000/V", 200),
        ("2e-4/nV", 200),
        ("12.5/uV", 12500),
    ],
)
@pytest.mark.parametrize("zero", ["", "(7)"])
def test_units_of_gains(tmp_path: Path, gain: str, per_millivolt: float, zero: str) -> None:
    signal = write_record(tmp_path, "101", [(100, 1)])
    path = tmp_path / "101.hea"
    number, _, unit = gain.partition("/")
    line = f" {number}{zero}{'/' * bool(unit)}{unit} "
    encoding = "latin-1" if "\u00b5" in line and zero else "utf-8"
    path.write_bytes(path.read_bytes().replace(b" 200 ", line.encode(encoding)))
    found = MITBIH(tmp_path, unit="record")[0][0]
    expected = (signal - (7 if zero else np.array([1024, 1025]))) / per_millivolt
    assert np.allclose(found.numpy(), expected, rtol=1e-6, atol=0)


def test_what_a_folder_of_records_lacks(tmp_path: Path) -> None:
    write_record(tmp_path, "101", [(100, 1)])
    (tmp_path / "101.atr").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"101.atr: expected a file of the record, found none; download=True"
    ):
        MITBIH(tmp_path)
    for options, message in (
        ({"labels": "NX"}, "labels: expected one of N, S, V, F, Q, got 'X'"),
        ({"labels": "NN"}, "labels: expected classes, each once"),
        ({"unit": "beats"}, "unit: expected one of"),
        ({"after": 0}, "after: expected an integer >= 1"),
    ):
        with pytest.raises(ValueError, match=message):
            MITBIH(tmp_path, **options)


def test_real_beats() -> None:
    root = real("mitbih")
    train = MITBIH(root)
    assert train.targets.bincount().tolist() == [45_866, 944, 3_788, 415, 8]
    assert len(set(train.records)) == 22
    in_209 = torch.tensor([record == "209" for record in train.records])
    assert train.targets[in_209].bincount()[1] == 383
    folds = [MITBIH(root, "test", fold=k) for k in range(5)]
    assert sum(map(len, folds)) == len(train) and "209" in folds[2].records
    signal, labels = MITBIH(root, "test", unit="record", fold=2)[3]
    # The last beat of the record ends after it.
    assert signal.shape == (650_000, 2) and int((labels >= 0).sum()) == int(in_209.sum()) - 1


def test_records_as_wfdb_reads_them() -> None:
    wfdb = pytest.importorskip("wfdb")
    root = real("mitbih")
    for record in ("101", "207"):
        ours = MITBIH(root, None, unit="record")
        number = ours.records.index(record)
        theirs = wfdb.rdrecord(str(root / record))
        assert np.allclose(ours[number][0].numpy(), theirs.p_signal, atol=1e-6)
        annotations = wfdb.rdann(str(root / record), "atr")
        beats = [
            s
            for s, symbol in zip(annotations.sample, annotations.symbol, strict=True)
            if symbol in "NLRejAaJSVEF/fQ"
        ]
        assert ours.peaks[number].tolist() == beats
