"""Pointers of Git LFS and git-annex are named by each function that opens a file."""

import io
import zipfile

import pytest
from typer.testing import CliRunner

import snnlib
from snnlib import data
from snnlib.app.cli import app
from snnlib.app.training.checkpoint_io import SafeCheckpointIO, find_intact
from snnlib.app.training.config import TrainConfig
from snnlib.data.datasets.mitbih import Record
from snnlib.data.formats.idx import read_idx
from snnlib.data.formats.registry import FORMATS
from snnlib.data.packed_events import PackedEvents
from snnlib.testing.golden import read_potentials

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0a" * 32 + b"\nsize 8366716\n"
POINTERS = {
    "git lfs pull": LFS,
    "git annex get": b"/annex/objects/SHA256E-s8366716--" + b"0a" * 32 + b".raw\n",
}
# Functions that open a file, by the file's name.
READERS = {
    **{f"a{suffix}": data.read for item in FORMATS.values() for suffix in item.suffixes},
    "b.raw": lambda path: data.iter_events(path, 1000, format="evt3"),
    "a.wav": data.read_wav,
    "a.png": data.read_image,
    "a-idx1-ubyte": lambda path: read_idx(path, 1),
    "a.packed": PackedEvents,
    "QTDB_train.mat": data.ECG,
    "shd_train.h5": lambda path: data.SHD(path.parent),
    "n-tidigits.hdf5": lambda path: data.NTIDIGITS(path.parent),
    "train-images-idx3-ubyte": lambda path: data.MNIST(path.parent),
    "100.hea": lambda path: Record(path.with_suffix("")),
    "trials_to_train.txt": lambda path: data.DVSGesture(path.parent),
    "labels.csv": lambda path: data.EventFolder(path.parent),
    "Train.zip": lambda path: data.NMNIST(path.parent),
    "digits.zip": data.SpokenDigits,
    "a.nir": snnlib.from_nir,
    "network.net": snnlib.exchange.from_lava,
    "a.ckpt": lambda path: SafeCheckpointIO().load_checkpoint(path),
    "last.ckpt": find_intact,
    "config.json": TrainConfig.load,
    "golden.npz": read_potentials,
}


@pytest.mark.parametrize("command", POINTERS)
@pytest.mark.parametrize("name", READERS)
def test_a_pointer_in_place_of_the_data(tmp_path, name, command):
    path = tmp_path / name
    path.write_bytes(POINTERS[command])
    if name == "train-images-idx3-ubyte":
        (tmp_path / "train-labels-idx1-ubyte").write_bytes(POINTERS[command])
    with pytest.raises(ValueError, match=command) as found:
        READERS[name](path)
    assert name in str(found.value)


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_and_open_files(name):
    for source in (LFS, io.BytesIO(LFS)):
        with pytest.raises(data.EventFileError, match="git lfs pull"):
            data.read(source, format=name)


def test_a_member_of_an_archive(tmp_path):
    """A repository that was downloaded as an archive has pointers as members."""
    with zipfile.ZipFile(tmp_path / "Train.zip", "w") as archive:
        archive.writestr("Train/3/00042.bin", LFS)
    with pytest.raises(data.EventFileError, match=r"00042.bin.*git lfs pull"):
        data.NMNIST(tmp_path)[0]


def test_commands(tmp_path):
    """A command prints the sentence in place of a traceback."""
    for name, command in {
        "a.raw": ["data", "info"],
        "a.nir": ["nir", "show"],
        "x.npy": ["nir", "verify", str(tmp_path / "a.nir"), "--target", "norse", "--input"],
    }.items():
        (tmp_path / name).write_bytes(LFS)
        result = CliRunner().invoke(app, [*command, str(tmp_path / name)])
        assert result.exit_code != 0 and "git lfs pull" in result.output + str(result.exception)
