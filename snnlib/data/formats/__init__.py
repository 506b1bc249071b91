"""Event file formats, one module each: `decode` and, where the format can be written, `encode`.

A module ends with its `FORMAT`; `registry` lists them all. Users call `snnlib.data.read`, `iter_events` and `write`.
"""
