"""The pytest plugin of snnlib: fixture `spike_regression`, option `--update-spikes`.

pytest imports this module at the start of every run in the environment. It therefore lies beside snnlib, whose import
brings torch, and imports nothing but pytest; the fixture imports the rest when a test first asks for it.
"""

from __future__ import annotations

import re
import shlex
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from snnlib.testing import SpikeRegression

_WRITTEN = pytest.StashKey[set[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-spikes`."""
    parser.getgroup("snnlib").addoption(
        "--update-spikes", action="store_true", help="write the golden spike trains of spike_regression anew"
    )


@pytest.fixture
def spike_regression(request: pytest.FixtureRequest, tmp_path: Path) -> SpikeRegression:
    """Compares spike trains with golden ones stored beside the test: `spike_regression.check(spikes)`."""
    from snnlib.testing import SpikeRegression  # noqa: PLC0415

    config = request.config
    return SpikeRegression(
        golden_folder=request.path.with_suffix(""),
        test_name=file_name(request.node.name, request.cls),
        obtained_folder=tmp_path,
        update=config.getoption("--update-spikes"),
        written=config.stash.setdefault(_WRITTEN, set()),
        command=f"pytest {shlex.quote(str(config.cwd_relative_nodeid(request.node.nodeid)))} --update-spikes",
    )


def file_name(test: str, cls: type | None) -> str:
    """A file name for a test, the same on every platform: `test_net[LIF]` of class `TestA` gives `TestA.test_net-LIF`.

    Names that need more than that are cut and end in a checksum, which keeps tests apart.
    """
    function, _, parameters = test.partition("[")
    name = f"{cls.__qualname__}." if cls else ""
    name += function + (f"-{parameters.removesuffix(']')}" if parameters else "")
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:100]
    return safe if safe == name else f"{safe}-{zlib.crc32(name.encode()):08x}"
