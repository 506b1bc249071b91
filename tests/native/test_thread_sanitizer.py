"""`make sanitize-threads` reports a race where there is one, and none where threads share nothing."""

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if "SNNLIB_TEST_THREADS" not in os.environ:
    pytest.skip("a part of make sanitize-threads", allow_module_level=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("race") / "race"
    include = HERE.parents[1] / "cpp" / "include"
    sources = [HERE / "race.cpp", HERE.parents[1] / "cpp" / "cpu" / "threads.cpp"]
    flags = ["-std=c++17", "-O1", "-g1", "-fsanitize=thread", "-DSNNLIB_STD_THREADS", f"-I{include}"]
    # The compiler is not what the sanitizer watches.
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(["c++", *flags, *sources, "-o", made], check=True, env=clean)
    return made


def test_a_race_is_reported(program: Path) -> None:
    apart = subprocess.run([program], capture_output=True, text=True, check=False)
    assert apart.returncode == 0 and apart.stdout == f"{64 * 49995000}\n", apart.stderr
    shared = subprocess.run([program, "shared"], capture_output=True, text=True, check=False)
    assert shared.returncode != 0 and "data race" in shared.stderr
