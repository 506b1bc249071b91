"""Headers of WAV files: PCM and floats, plain and extensible, streams, and codings that are refused by name."""

import struct

import numpy as np
import pytest
import torch

from snnlib.data import EventFileError, SpokenDigits, read_wav

GUID = bytes.fromhex("000000001000800000aa00389b71")
LIST = b"LIST" + struct.pack("<I", 6) + b"INFO\0\0"
# Coding and bits: (type of the stored samples, stored samples of -1, 0 and a half).
SAMPLES = {
    (1, 8): (np.uint8, [0, 128, 192]),
    (1, 16): ("<i2", [-(2**15), 0, 2**14]),
    (1, 24): ("<i4", [-(2**31), 0, 2**30]),
    (1, 32): ("<i4", [-(2**31), 0, 2**30]),
    (3, 32): ("<f4", [-1, 0, 0.5]),
    (3, 64): ("<f8", [-1, 0, 0.5]),
}


def stored(coding, bits, channels=1):
    kind, values = SAMPLES[coding, bits]
    data = np.repeat(np.array(values, kind), channels)
    # 24 bits are the upper three bytes of 32.
    return data.view(np.uint8).reshape(-1, 4)[:, 1:].tobytes() if bits == 24 else data.tobytes()


def fmt(coding, bits, channels=1, rate=8000, extensible=False, guid=GUID, frame=None):
    frame = channels * ((bits + 7) // 8) if frame is None else frame
    head = (0xFFFE if extensible else coding, channels, rate, rate * frame, frame, bits)
    chunk = struct.pack("<HHIIHH", *head)
    if extensible:
        chunk += struct.pack("<HHIH", 22, bits, 0, coding) + guid
    return b"fmt " + struct.pack("<I", len(chunk)) + chunk


def riff(form, data, length=None, riff_length=None, between=b"", behind=b""):
    size = len(data) if length is None else length
    body = (
        b"WAVE" + form + between + b"data" + struct.pack("<I", size) + data + b"\0" * (len(data) % 2) + behind
    )
    return b"RIFF" + struct.pack("<I", len(body) if riff_length is None else riff_length) + body


def read_bytes(tmp_path, content):
    (tmp_path / "a.wav").write_bytes(content)
    return read_wav(tmp_path / "a.wav")


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize(("coding", "bits"), SAMPLES)
@pytest.mark.parametrize("between", [b"", LIST])
def test_every_coding(tmp_path, coding, bits, channels, extensible, between):
    form = fmt(coding, bits, channels, 44_100, extensible)
    found, rate = read_bytes(
        tmp_path, riff(form, stored(coding, bits, channels), between=between, behind=LIST)
    )
    assert found.dtype == torch.float32 and (found.tolist(), rate) == ([-1.0, 0.0, 0.5], 44_100)


@pytest.mark.parametrize("bits", [12, 20])
def test_bits_that_fill_no_byte_are_the_upper_ones(tmp_path, bits):
    data = stored(1, 16 if bits == 12 else 24)
    assert read_bytes(tmp_path, riff(fmt(1, bits), data))[0].tolist() == [-1.0, 0.0, 0.5]


@pytest.mark.parametrize("behind", [b"", b"\x07"])
@pytest.mark.parametrize("riff_length", [0, 36, 0xFFFFFFFF, None])
@pytest.mark.parametrize("length", [0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
@pytest.mark.parametrize("samples", [1, 3, 1000])
def test_streams_have_the_samples_that_are_there(tmp_path, length, riff_length, behind, samples):
    for value in (0, 2**14):
        data = np.full(samples, value, "<i2").tobytes()
        found = read_bytes(tmp_path, riff(fmt(1, 16), data, length, riff_length, behind=behind))[0]
        assert found.tolist() == [value / 2**15] * samples


def test_an_empty_file_is_no_stream(tmp_path):
    for behind in (b"", LIST, LIST + LIST):
        with pytest.raises(EventFileError, match="byte offset 44: expected sound, found no samples"):
            read_bytes(tmp_path, riff(fmt(1, 16), b"", behind=behind))


def test_floats_stay_as_they_are_and_are_finite(tmp_path):
    values = np.array([1.5, -3, 1e-3], "<f4")
    assert read_bytes(tmp_path, riff(fmt(3, 32), values.tobytes()))[0].tolist() == values.tolist()
    for kind, bad in (("<f4", np.nan), ("<f4", np.inf), ("<f8", 1e300)):
        data, bits = np.array([0, 0, bad], kind), 8 * np.dtype(kind).itemsize
        with pytest.raises(
            EventFileError, match=f"byte offset {44 + 2 * bits // 8}: expected finite samples"
        ):
            read_bytes(tmp_path, riff(fmt(3, bits), data.tobytes()))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (fmt(7, 8), r"expected PCM or floats, found coding 7 \(mu-law\)"),
        (fmt(6, 8, extensible=True), r"expected PCM or floats, found coding 6 \(A-law\)"),
        (fmt(85, 16), r"found coding 85 \(MP3\)"),
        (fmt(1234, 16), r"found coding 1234 \(unknown\)"),
        (
            fmt(1, 16, extensible=True, guid=bytes(14)),
            "expected an extensible header of PCM or floats, found '0100",
        ),
        (fmt(1, 0), "expected PCM of 1 to 32 bits or floats of 32 or 64, found 0 bits"),
        (fmt(1, 64), "expected PCM of 1 to 32 bits or floats of 32 or 64, found 64 bits"),
        (fmt(3, 16), "expected PCM of 1 to 32 bits or floats of 32 or 64, found 16 bits"),
        (fmt(1, 16, channels=0), "found 0 bytes for 0 channels at 8000"),
        (fmt(1, 16, rate=0), "found 2 bytes for 1 channels at 0"),
        (fmt(1, 16, frame=4), "expected frames of 2 bytes for each channel at some rate, found 4 bytes"),
        (b"fmt " + struct.pack("<I", 4) + b"\1\0\1\0", "with 16 bytes of format, found 4"),
    ],
)
def test_other_codings_are_named(tmp_path, form, message):
    with pytest.raises(EventFileError, match=f"a.wav: byte offset 20: .*{message}"):
        read_bytes(tmp_path, riff(form, bytes(64)))


@pytest.mark.parametrize("magic", [b"RIFX", b"RF64", b"fLaC", b"OggS"])
def test_other_files_are_named(tmp_path, magic):
    with pytest.raises(
        EventFileError, match=f"byte offset 0: expected a WAV file, .* found b'{magic.decode()}"
    ):
        read_bytes(tmp_path, magic + riff(fmt(1, 16), bytes(64))[4:])


def test_data_before_its_format(tmp_path):
    content = riff(b"", b"\0\0", behind=fmt(1, 16))
    with pytest.raises(
        EventFileError, match="expected a WAV file with a chunk fmt and then data, found its end"
    ):
        read_bytes(tmp_path, content)


def test_channels_become_their_mean(tmp_path):
    content = riff(fmt(1, 16, channels=2), np.array([-(2**15), -(2**15), 0, 2**14], "<i2").tobytes())
    assert read_bytes(tmp_path, content)[0].tolist() == [-1.0, 0.25]


WHOLE = riff(fmt(1, 16), bytes(200))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (riff(fmt(1, 16, rate=16_000), bytes(200)), "expected 8000 samples a second, found 16000"),
        (WHOLE[:-20], "offset 224: expected 100 samples, found 90: the file is truncated"),
        (WHOLE[:30], "offset 20: expected a WAV file with 16 bytes of format, found 10"),
        (WHOLE[:40], "offset 40: expected a WAV file with a chunk fmt and then data, found its"),
        (b"", "offset 0: expected a WAV file, which begins with RIFF and WAVE, found b''"),
        (b"RIFF" + bytes(60), "expected a WAV file, which begins with RIFF and WAVE, found b'RIFF"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, message):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(EventFileError, match=f"a.wav: .*{message}"):
        read_wav(tmp_path / "a.wav", sample_rate=8000)


def test_a_truncated_recording_of_a_data_set_is_named(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}_anna_0.wav").write_bytes(WHOLE[: -20 * number or None])
    digits = SpokenDigits(tmp_path, "test")
    assert len(digits) == 2 and digits[0][0].shape == (100,)
    with pytest.raises(
        EventFileError, match=r"1_anna_0\.wav: byte offset 224: expected 100 samples, found 90"
    ):
        digits[1]
