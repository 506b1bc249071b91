"""Columns as other programs name them, by one list for all formats of columns."""

import io

import numpy as np
import pytest
from event_files import EVENTS, struct_file

from snnlib.data import EventFileError, read
from snnlib.data.formats.columns import NAMES

FIELDS = {name: EVENTS[name] for name in "txyp"}


def csv_of(columns):
    lines = [",".join(columns)]
    lines += [
        ",".join(map(str, row)) for row in zip(*(column.tolist() for column in columns.values()), strict=True)
    ]
    return "\n".join(lines).encode()


def npy_of(columns):
    array = np.empty(len(EVENTS), [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        array[name] = column
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz_of(columns):
    buffer = io.BytesIO()
    np.savez(buffer, **columns)
    return buffer.getvalue()


def mat_of(columns):
    buffer = io.BytesIO()
    pytest.importorskip("scipy.io").savemat(buffer, columns)
    return buffer.getvalue()


def hdf5_of(columns):
    buffer = io.BytesIO()
    with pytest.importorskip("h5py").File(buffer, "w") as file:
        for name, column in columns.items():
            file[f"events/{name}"] = column
    return buffer.getvalue()


FORMATS = {"csv": csv_of, "npy": npy_of, "npz": npz_of, "mat": mat_of, "hdf5": hdf5_of}


def check(found):
    events, header = found
    events["t"] += header.start_us
    assert np.array_equal(events, EVENTS)


@pytest.mark.parametrize("format", FORMATS)
def test_each_name_in_each_format(format):
    for field, names in NAMES.items():
        for name in names:
            columns = {name if own == field else own: column for own, column in FIELDS.items()}
            check(read(FORMATS[format](columns), format=format))


@pytest.mark.parametrize("format", FORMATS)
def test_booleans_in_each_format(format):
    check(read(FORMATS[format](FIELDS | {"p": EVENTS["p"] == 1}), format=format))


@pytest.mark.parametrize("words", [("False", "True"), ("false", "TRUE"), ("0", "True"), (" False", "True ")])
def test_booleans_as_texts(words):
    check(read(csv_of(FIELDS | {"p": np.array(words)[EVENTS["p"]]}), format="csv"))


def test_booleans_without_a_line_of_names():
    """Such a first line is no line of names."""
    data = b"10,1,2,True\n20,3,4,False\n"
    assert read(data, format="csv", columns="txyp").events.tolist() == [(10, 1, 2, 1), (20, 3, 4, 0)]
    with pytest.raises(EventFileError, match="expected a line of names, found '10,1,2,True'; give columns="):
        read(data, format="csv")


@pytest.mark.parametrize("words", ["Truex", "Falsehood", "yes", "nan"])
def test_other_texts_are_no_booleans(words):
    with pytest.raises(EventFileError, match=f"numbers.*{words}"):
        read(f"t,x,y,p\n10,1,2,{words}\n".encode(), format="csv")


def test_a_structured_array_with_titles():
    """As event_stream and faery have them."""
    array = np.zeros(2, [("t", "<u8"), ("x", "<u2"), ("y", "<u2"), (("p", "on"), "?")])
    array["on"] = [True, False]
    buffer = io.BytesIO()
    np.save(buffer, array)
    assert read(buffer.getvalue()).events["p"].tolist() == [1, 0]


@pytest.mark.parametrize("compressed", [True, False])
def test_fields_of_a_matlab_struct(compressed):
    scipy_io = pytest.importorskip("scipy.io")
    given = {"one_based": True, "polarity": "signed"}
    check(read(struct_file(EVENTS), **given))
    td = {"x": [[2], [4]], "y": [[3], [5]], "p": [[1], [-1]], "ts": [[10], [20]]}
    expected = [(10, 1, 2, 1), (20, 3, 4, 0)]

    def saved(**variables):
        buffer = io.BytesIO()
        scipy_io.savemat(buffer, variables, do_compression=compressed)
        return buffer.getvalue()

    assert read(saved(rec={"TD": td, "size": [3, 4], "none": []}), **given).events.tolist() == expected
    several = saved(TD=td, EM=td, name="abc")
    assert read(several, group="EM", **given).events.tolist() == expected
    for options in ({}, {"group": "XX"}):
        with pytest.raises(
            EventFileError, match=r"found TD.x, .*EM.ts, name \(not real numbers\); give group= \(TD, EM\)"
        ):
            read(several, **options, **given)
    # Variables beside a struct.
    assert read(saved(TD=td, **{"t": [5], "x": [1], "y": [1], "p": [1]})).events.tolist() == [(5, 1, 1, 1)]
    with pytest.raises(EventFileError, match=r"found TD \(not real numbers\), a"):
        read(saved(TD=np.zeros(2, [("x", "O"), ("y", "O")]), a=[1]))
