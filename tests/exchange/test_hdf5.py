"""HDF5 in every reader of the library: data that lie elsewhere, missing filters, tables, and files of MATLAB."""

import importlib
import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from event_files import EVENTS

import snnlib
from snnlib.data import NTIDIGITS, SHD, EventFileError, read
from snnlib.files.hdf5 import _PLUGINS
from snnlib.neurons import LoihiCubaLIF

h5py = pytest.importorskip("h5py")


def write_events(path):
    with h5py.File(path, "w") as file:
        for name in "txyp":
            file[f"events/{name}"] = EVENTS[name][:4].astype("i8")
        file["t_offset"] = 7


def read_events(path):
    return read(path, origin=0)


def read_open_file(path):
    with path.open("rb") as file:
        return read(file, origin=0)


def write_shd(path):
    with h5py.File(path, "w") as file:
        file["labels"], file["extra/speaker"] = np.array([0, 1]), np.array([3, 4])
        for name, kind in (("times", "f2"), ("units", "u2")):
            data = file.create_dataset(f"spikes/{name}", (2,), h5py.vlen_dtype(np.dtype(kind)))
            data[0], data[1] = [0, 1], [0, 1]


def write_tidigits(path):
    with h5py.File(path, "w") as file:
        for name in ("train", "test"):
            file[f"{name}_timestamps/man-{name}-1-a"] = np.array([0.0, 1.0])
            file[f"{name}_addresses/man-{name}-1-a"] = np.array([0, 1])


def write_lava(path):
    neuron = LoihiCubaLIF(50.0, 20.0, threshold=60.0)
    snnlib.exchange.to_lava(torch.nn.Sequential(snnlib.SpikingLinear(3, 2, neuron=neuron)), path)


def write_nir(path):
    nir = pytest.importorskip("nir")
    nodes = {"input": nir.Input({"input": np.array([3])}), "output": nir.Output({"output": np.array([2])})}
    nodes["fc"] = nir.Affine(np.ones((2, 3), np.float32), np.zeros(2, np.float32))
    one = np.ones(2, np.float32)
    nodes["lif"] = nir.LIF(tau=one, r=one, v_leak=one * 0, v_threshold=one)
    nir.write(path, nir.NIRGraph(nodes, [("input", "fc"), ("fc", "lif"), ("lif", "output")]))


def read_nir(path):
    return snnlib.exchange.from_nir(path, dt=1e-3)


# Name of the file: (writes it, reads it, a data set that is read).
READERS = {
    "a.h5": (write_events, read_events, "events/x"),
    "b.hdf5": (write_events, read_open_file, "events/p"),
    "shd_test.h5": (write_shd, lambda path: SHD(path.parent, "test")[0], "labels"),
    "ssc_test.h5": (write_shd, lambda path: snnlib.data.SSC(path.parent, "test")[0], "extra/speaker"),
    "n-tidigits.hdf5": (
        write_tidigits,
        lambda path: NTIDIGITS(path, "test")[0],
        "test_addresses/man-test-1-a",
    ),
    "c.net": (write_lava, snnlib.exchange.from_lava, "layer/0/weight"),
    "d.nir": (write_nir, read_nir, "node/nodes/fc/weight"),
}


def external(file, name, shape, kind):
    place = Path(file.filename).with_name("secret.bin")
    place.write_bytes(bytes(4096))
    file.create_dataset(name, shape, kind, external=[(str(place), 0, h5py.h5f.UNLIMITED)])


def virtual(file, name, shape, kind):
    layout = h5py.VirtualLayout(shape, kind)
    layout[...] = h5py.VirtualSource("other.h5", "data", shape)
    file.create_virtual_dataset(name, layout)


def link(file, name, shape, kind):
    with h5py.File(Path(file.filename).with_name("other.h5"), "w") as other:
        other.create_dataset("data", shape, kind)
    file[name] = h5py.ExternalLink("other.h5", "data")


def link_behind_a_soft_one(file, name, shape, kind):
    link(file, "elsewhere", shape, kind)
    file[name] = h5py.SoftLink("/elsewhere")


@pytest.mark.parametrize(
    ("put", "found"),
    [
        (external, "expected data within the file, found external storage"),
        (virtual, "expected data within the file, found virtual storage"),
        (link, "expected data within the file, found a link to the file 'other.h5'"),
        (link_behind_a_soft_one, "expected data within the file, found a link to the file 'other.h5'"),
    ],
)
@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_data_of_other_files(tmp_path, name, put, found):
    write, read_file, place = READERS[name]
    path = tmp_path / name
    write(path)
    read_file(path)
    with h5py.File(path, "a") as file:
        shape, kind = file[place].shape, file[place].dtype
        del file[place]
        put(file, place, shape, kind)
    with pytest.raises(ValueError, match=found) as error:
        read_file(path)
    assert str(path) in str(error.value)


def test_readers_of_the_library_open_files_in_one_place():
    """`h5py.File` follows links; where it stands in the sources, `open_file` should."""
    root = Path(snnlib.__file__).parent
    found = [
        path.name for path in root.rglob("*.py") if ".File(" in (text := path.read_text()) and "h5py" in text
    ]
    # The second writes.
    assert sorted(found) == ["hdf5.py", "net_file.py"]
    assert (root / "exchange/lava/net_file.py").read_text().count('.File(buffer, "w")') == 1


def pack(file, name, number, label=b""):
    """A chunk of other bytes that says it was packed by a filter."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((4,))
    properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, ())
    space = h5py.h5s.create_simple((4,))
    data = h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_INT64, space, properties)
    data.write_direct_chunk((0,), np.arange(4, dtype="<i8").tobytes(), filter_mask=label == b"left out")


def packed_events(path, number, label=b""):
    with h5py.File(path, "w") as file:
        pack(file, "t", number, label)
        for name in "xyp":
            file[name] = np.zeros(4, int)


def forget_plugins():
    for module in [name for name in sys.modules if name.partition(".")[0] == "hdf5plugin"]:
        del sys.modules[module]
    for number in _PLUGINS:
        if h5py.h5z.filter_avail(number):
            h5py.h5z.unregister_filter(number)


@pytest.fixture
def fresh():
    """A process as it begins: no filter of the package hdf5plugin has been registered."""
    forget_plugins()


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (
            32001,
            "filter 32001 (blosc), by which the data are packed, is not installed: pip install hdf5plugin",
        ),
        (
            32015,
            "filter 32015 (zstd), by which the data are packed, is not installed: pip install hdf5plugin",
        ),
        (
            0x8ECF,
            "36559 (ECF), by which the data are packed, is not installed: get it from github.com/prophesee-ai",
        ),
        (
            400,
            "filter 400 (unknown), by which the data are packed, is not installed: get it from whoever wrote",
        ),
    ],
)
def test_a_missing_filter_is_named_with_what_has_it(tmp_path, fresh, monkeypatch, number, message):
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    packed_events(tmp_path / "a.h5", number)
    with pytest.raises(ImportError, match=re.escape(message)) as error:
        read(tmp_path / "a.h5")
    assert str(error.value).startswith(f"{tmp_path / 'a.h5'}: /t: the HDF5 filter ")


@pytest.mark.parametrize("name", READERS)
def test_every_reader_names_a_missing_filter(tmp_path, name):
    write, read_file, place = READERS[name]
    write(tmp_path / name)
    with h5py.File(tmp_path / name, "a") as file:
        del file[place]
        pack(file, place, 400)
    with pytest.raises(ImportError, match=f"{name}: /{place}: the HDF5 filter 400 "):
        read_file(tmp_path / name)


def test_a_filter_that_was_left_out_is_not_needed(tmp_path):
    packed_events(tmp_path / "a.h5", 400, b"left out")
    assert read(tmp_path / "a.h5").events["t"].tolist() == [0, 1, 2, 3]


def test_data_of_the_advised_package(tmp_path, fresh):
    """The reader imports it by itself."""
    paths = [tmp_path / f"{number}.h5" for number in range(5)]
    plugin = pytest.importorskip("hdf5plugin")
    filters = (plugin.Blosc(), plugin.Zstd(), plugin.LZ4(), plugin.Bitshuffle(), plugin.Blosc2())
    for path, options in zip(paths, filters, strict=True):
        with h5py.File(path, "w") as file:
            for name in "txyp":
                file.create_dataset(f"events/{name}", data=EVENTS[name], **options)
        forget_plugins()
        assert np.array_equal(read(path, origin=0).events, EVENTS)
        importlib.import_module("hdf5plugin")


def table(order, kind):
    return np.stack([EVENTS[name] for name in order], 1).astype(kind)


def test_tables_of_four_columns(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("events", data=table("txyp", "u4"), maxshape=(None, 4), compression="gzip")
        file["frame_idx"] = np.zeros((3, 2), int)
    assert np.array_equal(read(path, origin=0).events, EVENTS)
    assert np.array_equal(read(path, origin=0, columns="txyp").events, EVENTS)
    with h5py.File(path, "w") as file:
        file["events"] = table("xytp", "u4")
    assert np.array_equal(read(path, origin=0, columns="xytp").events, EVENTS)
    with h5py.File(path, "w") as file:
        file["davis/left"] = table("xytp", "i8")
        file["notes"] = 3
    with pytest.raises(
        EventFileError, match=r"found davis, notes; give columns= .* and group= \(davis/left\)"
    ):
        read(path)
    with pytest.raises(EventFileError, match=r"found davis, notes; give group= \(davis, davis/left\)"):
        read(path, columns="xytp")
    for group in ("davis", "davis/left"):
        assert np.array_equal(read(path, origin=0, columns="xytp", group=group).events, EVENTS)
    with pytest.raises(EventFileError, match=r"expected data sets t, x, y, p, found davis, notes$"):
        read(path, columns="xytp__", group="davis")
    with pytest.raises(ValueError, match="columns: expected the columns in their order"):
        read(path, columns="xyt", group="davis")
    with h5py.File(path, "w") as file:
        file["notes"] = 3
    for options in ({}, {"group": "notes"}, {"columns": "xytp"}):
        with pytest.raises(EventFileError, match=r"expected data sets t, x, y, p, found notes$"):
            read(path, **options)


def test_groups_that_lie_elsewhere_are_listed(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in "txyp":
            file[f"cameras/left/{name}"] = EVENTS[name]
    with pytest.raises(EventFileError, match=r"found cameras; give group= \(cameras/left\)"):
        read(tmp_path / "a.h5")
    assert np.array_equal(read(tmp_path / "a.h5", group="cameras/left", origin=0).events, EVENTS)
    with pytest.raises(EventFileError, match=r"expected data sets t, x, y, p, found cameras; give group="):
        read(tmp_path / "a.h5", group="cameras")
    with pytest.raises(EventFileError, match=r"expected a group 'other', found cameras"):
        read(tmp_path / "a.h5", group="other")


@pytest.mark.parametrize("shape", [(1, -1), (-1, 1)])
def test_matlab_7_3_files_are_hdf5_behind_a_head(tmp_path, shape):
    content = io.BytesIO()
    with h5py.File(content, "w", userblock_size=512) as file:
        for name, of in (("ts", "t"), ("x", "x"), ("y", "y"), ("pol", "p")):
            file[name] = EVENTS[of].astype(float).reshape(shape)
    data = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512) + content.getvalue()[512:]
    (tmp_path / "a.mat").write_bytes(data)
    events, header = read(tmp_path / "a.mat", unit="us", origin=0)
    assert np.array_equal(events, EVENTS) and header.format == "hdf5"
