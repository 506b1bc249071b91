"""The plugin in real pytest runs inside a test: what passes, what fails and with which words, what is written where."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import snnlib.testing.picture
from pytest_snnlib import file_name
from snnlib.testing import GoldenError, read_spikes
from snnlib.testing.golden import encode

ROOT = Path(__file__).parents[2]
# Two spikes of one neuron [N=0, C=1] at steps 2 and 6, one of [N=1, C=0] at step 3.
HEAD = """
import pytest, torch
def train(*spikes, shape=(8, 2, 3)):
    x = torch.zeros(shape)
    for index in spikes:
        x[index] = 1
    return x
GOLDEN = (2, 0, 1), (6, 0, 1), (3, 1, 0)
"""


class Session:
    """A test file in a folder of its own, run by pytest in this process."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester, self.folder = pytester, pytester.path / "test_net"

    def run(self, body: str, *options: str) -> pytest.RunResult:
        self.pytester.makepyfile(test_net=HEAD + body)
        plugin = ("-ppytest_snnlib", "-pno:cacheprovider", "--basetemp=tmp", "-Werror")
        # This repository's finder of an editable install, and what importing it again would say.
        ignored = "-Wignore:Module already imported so cannot be rewritten"
        return self.pytester.runpytest_inprocess(*plugin, ignored, *options)

    def golden(self, body: str) -> None:
        """Write golden files by a run."""
        self.run(body, "--update-spikes").assert_outcomes(passed=1)

    def failure(self, body: str, *options: str) -> list[str]:
        """The message of the only test, which fails, without the golden and obtained paths' folders."""
        result = self.run(body, *options)
        result.assert_outcomes(failed=1)
        text = [line[4:] for line in result.outlines if line.startswith("E  ")]
        return [re.sub(r"\S+/(test_net/)?(?=\w)", "", line).strip() for line in text]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.rglob("*"))


@pytest.fixture
def session(pytester: pytest.Pytester) -> Session:
    return Session(pytester)


def checks(spikes: str, arguments: str = "") -> str:
    return f"\ndef test_net(spike_regression):\n    spike_regression.check({spikes}{arguments})\n"


def test_equal_spikes_pass_and_write_nothing(session: Session) -> None:
    session.golden(checks("train(*GOLDEN)"))
    before = (session.folder / "test_net.npz").read_bytes()
    session.run(checks("train(*GOLDEN)")).assert_outcomes(passed=1)
    assert session.files() == ["test_net.npz"]
    assert (session.folder / "test_net.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("spikes", "summary", "changes"),
    [
        (
            "train((2, 0, 1), (5, 0, 1), (3, 1, 0))",
            "3 spikes, expected 3: 1 moved by 1 step (1 earlier, 0 later), 0 appeared, 0 vanished",
            ["[T=6, N=0, C=1] moved to T=5"],
        ),
        (
            "train(*GOLDEN, (7, 1, 2))",
            "4 spikes, expected 3: 0 moved, 1 appeared, 0 vanished",
            ["[T=7, N=1, C=2] appeared"],
        ),
        (
            "train(*GOLDEN[1:])",
            "2 spikes, expected 3: 0 moved, 0 appeared, 1 vanished",
            ["[T=2, N=0, C=1] vanished"],
        ),
        (
            "train((4, 0, 1), (6, 0, 1), (0, 1, 0), (0, 0, 0))",
            "4 spikes, expected 3: 2 moved by 2 to 3 steps (1 earlier, 1 later), 1 appeared, 0 vanished",
            ["[T=0, N=0, C=0] appeared", "[T=2, N=0, C=1] moved to T=4", "[T=3, N=1, C=0] moved to T=0"],
        ),
    ],
    ids=["moved", "appeared", "vanished", "all kinds"],
)
def test_a_change_is_told_neuron_by_neuron(
    session: Session, spikes: str, summary: str, changes: list[str]
) -> None:
    session.golden(checks("train(*GOLDEN)"))
    message = session.failure(checks(spikes))
    assert message == [
        "AssertionError: spikes differ from the golden ones",
        f"spikes: {summary}",
        *changes,
        "golden:   test_net.npz",
        "obtained: test_net.obtained.npz",
        "picture:  test_net.png",
        "If the change is intended: pytest test_net.py::test_net --update-spikes",
    ]
    assert session.files() == ["test_net.npz"]


def test_failure_leaves_a_picture_and_the_trains(session: Session) -> None:
    session.golden(checks("train(*GOLDEN)"))
    session.failure(checks("{'spikes': train((1, 1, 1))}"))
    folder = session.pytester.path / "tmp" / "test_net0"
    assert (folder / "test_net.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert read_spikes(folder / "test_net.obtained.npz")["spikes"].nonzero() == ([1], [1], [1])


def test_no_picture_without_matplotlib(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.golden(checks("train(*GOLDEN)"))
    monkeypatch.delitem(sys.modules, "snnlib.testing.picture")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = session.failure(checks("train()"))
    assert message[-2].startswith("picture:  none (import of matplotlib.figure")
    assert message[-2].endswith("pip install matplotlib)")


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "bool", "uint8", "int64"])
def test_dtype_does_not_matter(session: Session, dtype: str) -> None:
    session.golden(checks("train(*GOLDEN)"))
    session.run(
        checks(f"train(*GOLDEN).to(torch.{dtype}).requires_grad_({'float' in dtype})")
    ).assert_outcomes(passed=1)
    assert "1 vanished" in session.failure(checks(f"train(*GOLDEN[1:]).to(torch.{dtype})"))[1]


def test_shape_change(session: Session) -> None:
    session.golden(checks("train(*GOLDEN)"))
    message = session.failure(checks("train(*GOLDEN, shape=(9, 2, 3))", ", max_changed=100"))
    assert message[1] == "spikes: shape (9, 2, 3), expected (8, 2, 3)"
    assert not any("picture" in line for line in message)


def test_several_trains(session: Session) -> None:
    session.golden(checks("{'conv.1': train(*GOLDEN), 'fc': train(*GOLDEN), 'old': train(shape=(0, 2))}"))
    message = session.failure(
        checks("{'conv.1': train(*GOLDEN), 'fc': train(*GOLDEN[1:]), 'new': train((1, 1))}")
    )
    assert message[1:5] == [
        "fc: 2 spikes, expected 3: 0 moved, 0 appeared, 1 vanished",
        "[T=2, N=0, C=1] vanished",
        "new: not in the golden file",
        "old: in the golden file, but not checked",
    ]


def test_long_reports_are_cut_and_know_space(session: Session) -> None:
    session.golden(checks("train(shape=(2, 1, 2, 3, 4))"))
    message = session.failure(checks("1 - train(shape=(2, 1, 2, 3, 4))"))
    assert message[2] == "[T=0, N=0, C=0, H=0, W=0] appeared"
    assert message[10] == "and 40 more"


def test_missing_golden_file_fails_with_the_command_and_writes_nothing(session: Session) -> None:
    assert session.failure(checks("train(*GOLDEN)")) == [
        "AssertionError: test_net.npz: no such golden file",
        "To create it: pytest test_net.py::test_net --update-spikes",
    ]
    assert not session.folder.exists()


def test_update_writes_what_differs(session: Session) -> None:
    session.golden(checks("train(*GOLDEN)"))
    golden = session.folder / "test_net.npz"
    session.golden(checks("train(*GOLDEN[1:])", ", max_changed=1"))
    assert read_spikes(golden)["spikes"].sum() == 2
    written = golden.stat().st_mtime_ns
    session.golden(checks("train(*GOLDEN[1:])"))
    assert golden.stat().st_mtime_ns == written
    assert session.files() == ["test_net.npz"]


def test_damaged_golden_file(session: Session) -> None:
    session.golden(checks("train(*GOLDEN)"))
    (session.folder / "test_net.npz").write_text("<<<<<<< HEAD")
    assert session.failure(checks("train(*GOLDEN)")) == [
        "snnlib.testing.golden.GoldenError: test_net.npz: no golden spike trains: not a zip file",
        "Restore the file, or write it anew: pytest test_net.py::test_net --update-spikes",
    ]
    session.golden(checks("train(*GOLDEN)"))
    session.run(checks("train(*GOLDEN)")).assert_outcomes(passed=1)


def test_every_parameter_has_its_file(session: Session) -> None:
    body = "\n@pytest.mark.parametrize('kind', ['a/b', 'LIF', 'a b'])" + checks("train(*GOLDEN)")
    session.run(body.replace("(spike", "(kind, spike"), "--update-spikes").assert_outcomes(passed=3)
    first, *files = session.files()
    assert first == "test_net-LIF.npz"
    assert all(re.fullmatch(r"test_net-a_b-[0-9a-f]{8}\.npz", name) for name in files)
    assert len(files) == 2


def test_parameters_share_a_named_file_and_must_agree(session: Session) -> None:
    body = """
@pytest.mark.parametrize('count', [0, 0, 1])
def test_net(spike_regression, count):
    spike_regression.check(train(*GOLDEN[count:]), "shared")
"""
    result = session.run(body, "--update-spikes")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*Another test of this run wrote the golden file: give each a name of its own."]
    )
    assert session.files() == ["shared.npz"]


def test_methods_are_named_after_their_class(session: Session) -> None:
    session.golden(
        "\nclass TestA:\n    def test_net(self, spike_regression): spike_regression.check(train(*GOLDEN))\n"
    )
    assert session.files() == ["TestA.test_net.npz"]


@pytest.mark.parametrize("allowed", ["1", "0.34"])
def test_tolerated_changes_pass(session: Session, allowed: str) -> None:
    session.golden(checks("train(*GOLDEN)"))
    session.run(checks("train(*GOLDEN[1:])", f", max_changed={allowed}")).assert_outcomes(passed=1)
    message = session.failure(checks("train(*GOLDEN[2:])", f", max_changed={allowed}"))
    assert message[1].endswith("2 vanished")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("[1, 0]", "TypeError: spikes: expected a torch.Tensor, got list"),
        ("{}", "ValueError: spikes: expected at least one spike tensor, got none"),
        ("{'fc': train()[:, 0, 0]}", "ValueError: spikes['fc']: expected [T, N, ...], got shape (8,)"),
        ("train(*GOLDEN) / 2", "ValueError: spikes: expected zeros and ones, got 0.5 at [2, 0, 1]"),
        ("train() * torch.nan", "ValueError: spikes: expected zeros and ones, got nan at [0, 0, 0]"),
        ("train(), 'a b'", "ValueError: name: expected letters, digits and _ . - only, got 'a b'"),
        (
            "train(), max_changed=1.0",
            "ValueError: max_changed: expected an integer >= 0 or a fraction in [0, 1), got 1.0",
        ),
        (
            "train(), max_changed=-1",
            "ValueError: max_changed: expected an integer >= 0 or a fraction in [0, 1), got -1",
        ),
    ],
)
def test_argument_errors(session: Session, call: str, message: str) -> None:
    assert session.failure(checks(call), "--update-spikes") == [message]
    assert not session.folder.exists()


def test_a_second_check_needs_a_name(session: Session) -> None:
    second = "\n    spike_regression.check(train()"
    assert session.failure(checks("train()") + second + ")\n", "--update-spikes") == [
        "ValueError: name: expected one of its own for every check in a test, got 'test_net' again"
    ]
    session.golden(checks("train()") + second + ", 'second')\n")
    assert session.files() == ["second.npz", "test_net.npz"]


def test_golden_bytes_are_fixed_and_small() -> None:
    spikes = (torch.rand(50, 4, 100, generator=torch.Generator().manual_seed(1)) < 0.05).numpy()
    assert encode({"fc": spikes}) == encode({"fc": spikes.copy(order="F")})
    assert len(encode({"fc": spikes})) < spikes.size / 8 + 700


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    """Each byte flipped, and the file cut: the sequences are right or the error is ours."""
    spikes = (torch.rand(5, 3, 7, generator=torch.Generator().manual_seed(1)) < 0.3).numpy()
    data, file = encode({"fc": spikes}), tmp_path / "golden.npz"
    flipped = [data[:i] + bytes([data[i] ^ 0xFF]) + data[i + 1 :] for i in range(len(data))]
    found = 0
    for damaged in flipped + [data[:i] for i in range(0, len(data), 7)]:
        file.write_bytes(damaged)
        try:
            assert (read_spikes(file)["fc"] == spikes).all()
        except GoldenError as error:
            assert str(error).startswith(f"{file}: no golden spike trains: ")
            found += 1
    assert found > len(data) / 2


def test_a_member_that_is_no_array_is_named(tmp_path: Path) -> None:
    file = tmp_path / "golden.npz"
    file.write_bytes(encode({"fc": np.ones((2, 1, 3), bool)}))
    with zipfile.ZipFile(file) as sound:
        members = {name: sound.read(name) for name in sound.namelist()}
    with zipfile.ZipFile(file, "w") as damaged:
        for name, content in members.items():
            damaged.writestr(name, b"?" + content[1:] if "shape" in name else content)
    with pytest.raises(GoldenError, match=r"no golden spike trains: fc\.shape: expected an array, got bytes"):
        read_spikes(file)


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "other.npz"
    for content, message in (
        ({"spikes": np.zeros(3)}, "no array 'format'"),
        ({"format": np.array(1)}, "no golden spike trains"),
    ):
        np.savez(file, **content)
        with pytest.raises(GoldenError, match=message):
            read_spikes(file)
    monkeypatch.setattr("snnlib.testing.golden._SPIKES", 2)
    file.write_bytes(encode({}))
    monkeypatch.undo()
    with pytest.raises(GoldenError, match="version: expected 1, got 2"):
        read_spikes(file)


def test_file_names_are_safe_and_never_shared() -> None:
    assert file_name("test_a", None) == "test_a"
    assert file_name("test_a[x-1.5]", None) == "test_a-x-1.5"
    odd = [
        "test_a[a/b]",
        "test_a[a:b]",
        "test_a[ä]",
        "test_a[[]",
        "test_a[" + "x" * 200 + "]",
        "test_a[" + "x" * 201 + "]",
    ]
    names = [file_name(name, None) for name in odd]
    assert len(set(names)) == len(odd)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,120}", name) for name in names)


def test_start_of_pytest_imports_neither_torch_nor_snnlib() -> None:
    code = "import sys, pytest_snnlib; sys.exit(bool({'torch', 'numpy', 'snnlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_plugin_is_declared_and_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"pytest_snnlib": "pytest_snnlib"}
    assert "pytest_snnlib" in project["tool"]["scikit-build"]["wheel"]["packages"]


def test_example_of_the_documentation(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    pytester.makepyfile("\n\n".join(examples))
    # A process of its own: torch cannot import some modules twice, which a run in this process would make it do.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = pytester.runpytest_subprocess("-ppytest_snnlib", "-pno:cacheprovider", "--update-spikes")
    result.assert_outcomes(passed=3)


def test_picture_of_many_neurons() -> None:
    """The first of them are drawn, which the title tells."""
    before = np.zeros((4, 1, 600), bool)
    (axes,) = snnlib.testing.picture.difference_raster({"fc": (before, ~before)}, "net").axes
    assert axes.get_title(loc="left") == "fc: 20 of 600 neurons that changed"


POTENTIALS = """
def potentials(*changes, shape=(8, 2, 3), dtype=torch.float32):
    x = torch.linspace(-1, 1, 48, dtype=torch.float64).reshape(shape)
    for index, value in changes:
        x[index] += value
    return x.to(dtype)
"""


def potential_checks(expression: str, options: str = "tolerance=1e-4") -> str:
    call = f"spike_regression.check_potentials({expression}, {options})"
    return f"{POTENTIALS}\ndef test_net(spike_regression):\n    {call}\n"


def test_potentials_within_the_tolerance_pass(session: Session) -> None:
    session.golden(potential_checks("potentials()"))
    assert session.files() == ["test_net.potentials.npz"]
    stored = snnlib.testing.read_potentials(session.folder / "test_net.potentials.npz")
    assert stored["potentials"].dtype == np.float32 and stored["potentials"].shape == (8, 2, 3)
    for changed in ("potentials(((2, 1, 0), 9e-5))", "potentials(dtype=torch.float64).requires_grad_()"):
        session.run(potential_checks(changed)).assert_outcomes(passed=1)
    session.run(potential_checks("potentials(dtype=torch.bfloat16)", "tolerance=4e-3")).assert_outcomes(
        passed=1
    )


def test_potentials_out_of_tolerance_are_told(session: Session) -> None:
    session.golden(potential_checks("potentials()"))
    message = session.failure(
        potential_checks("potentials(((2, 1, 0), 0.5), ((5, 0, 0), -0.25), ((7, 1, 0), torch.nan))")
    )
    assert message == [
        "AssertionError: potentials differ from the golden ones by more than 0.0001",
        "potentials: 3 of 48 values differ by more than 0.0001, by at most inf at [T=7, N=1, C=0]",
        "[T=2, N=1, C=0] 0.138298, expected -0.361702",
        "[T=5, N=0, C=0] 0.0265957, expected 0.276596",
        "[T=7, N=1, C=0] nan, expected 0.914894",
        "golden:   test_net.potentials.npz",
        "obtained: test_net.potentials.obtained.npz",
        "If the change is intended: pytest test_net.py::test_net --update-spikes",
    ]
    message = session.failure(potential_checks("{'fc': potentials()}"))
    assert message[1:3] == [
        "fc: not in the golden file",
        "potentials: in the golden file, but not checked",
    ]
    session.run(potential_checks("potentials(((0, 0, 0), 1))"), "--update-spikes").assert_outcomes(passed=1)
    session.run(potential_checks("potentials(((0, 0, 0), 1))")).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("expression", "options", "message"),
    [
        ("potentials()", "tolerance=-1", "tolerance: expected a number >= 0, got -1"),
        ("potentials().long()", "tolerance=0", "potentials: expected a floating"),
        ("{}", "tolerance=0", "potentials: expected at least one tensor, got none"),
        ("[1.0]", "tolerance=0", "potentials: expected a torch.Tensor, got list"),
        ("potentials()[0, 0]", "tolerance=0", "potentials: expected "),
    ],
)
def test_potential_arguments(session: Session, expression: str, options: str, message: str) -> None:
    assert message in session.failure(potential_checks(expression, options))[0]


def test_spikes_and_potentials_are_told_apart(session: Session) -> None:
    session.golden(checks("train(*GOLDEN)"))
    message = session.failure(potential_checks("potentials()", "name='test_net', tolerance=1"))
    assert "no golden potentials: version: expected 2, got 1" in message[0]
