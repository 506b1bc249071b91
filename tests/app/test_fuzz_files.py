"""Damaged files of every kind that the library keeps: read in part, or the documented error."""

from pathlib import Path

import fuzz_files


def test_damaged_files(tmp_path: Path) -> None:
    """A hundred; `make fuzz` goes on, and the readers' own tests cut and change event files at every place."""
    cases = [fuzz_files.file_case(seed) for seed in range(100)]
    read = [fuzz_files.check(case, tmp_path) for case in cases]
    assert {case.kind for case in cases} == set(fuzz_files.KINDS)
    assert 0 < sum(read) < len(read)
