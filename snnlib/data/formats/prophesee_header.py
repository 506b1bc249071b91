"""The `%` lines of Prophesee RAW files: version of the encoding, sensor size, camera."""

from __future__ import annotations

from snnlib.data.formats.checks import size_in_header
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import Header

# The number that a header writes, by the name of the format.
VERSIONS = {"evt2": "2.0", "evt21": "2.1", "evt3": "3.0"}


def detect_version(head: bytes) -> str:
    """Returns the encoding that the `%` lines name, such as `"evt3"` or `"evt40"`; "" where they name none."""
    for line in head.split(b"\n"):
        if not line.startswith(b"%"):
            break
        text = line[1:].strip().decode("utf-8", errors="replace").lower()
        if text.startswith(("evt ", "format ")):
            name = text.removeprefix("format ").split(";")[0].replace(".", "").replace(" ", "")
            return {"evt20": "evt2", "evt30": "evt3"}.get(name, name)
    return ""


def read_header(file: EventFile, name: str) -> Header:
    """Read the `%` lines; the position is then at the first word."""
    lines = file.text_header(b"%", lambda line: line.lower().replace(" ", "") == "%end")
    found = detect_version("\n".join(lines).encode())
    if found not in ("", name):
        raise file.error(f"expected EVT {VERSIONS[name]}, found a header of {found[:20]!r}", 0)
    fields = dict(line[1:].strip().partition(" ")[::2] for line in lines)
    for part in fields.get("format", "").split(";")[1:]:
        key, _, value = part.partition("=")
        fields[key.strip()] = value.strip()
    width, _, height = fields.get("geometry", "").partition("x")
    width, height = fields.get("width", width), fields.get("height", height)
    size = size_in_header(file, width, height)
    camera = fields.get(
        "plugin_name", fields.get("camera_integrator_name", fields.get("integrator_name", ""))
    )
    return Header(name, VERSIONS[name], size, camera=camera, fields=fields)


def header_bytes(header: Header, format_name: str) -> bytes:
    """The `%` lines of a file that is written."""
    size = header.sensor_size
    geometry = f";width={size[1]};height={size[0]}" if size else ""
    lines = [f"% evt {VERSIONS[header.format]}", f"% format {format_name}{geometry}"]
    lines += [f"% geometry {size[1]}x{size[0]}"] if size else []
    return ("\n".join([*lines, "% end"]) + "\n").encode()
