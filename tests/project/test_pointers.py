"""Files that comments, messages and pages name are there, and so is a name beside a file, in that file."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?<![\w/.<*-])((?:[\w-]+/)+[\w-]+\.(?:py|cpp|h|cu|md|ipynb|toml))\b")
# Folders in which a shorter name is looked for, beside that of the file that has it.
BASES = (
    *("", "snnlib", "cpp", "cpp/include", "cpp/include/snnlib", "cuda"),
    *("docs", "tests", "tests/native", "examples", "benchmarks", "snnlib/backends"),
)
# A name beside a file: `name` in `file`, `name` of file, `name` (`file`), `file` (`name`).
_FILE, _NAME = (
    r"`?((?:[\w-]+/)*[\w-]+\.(?:py|cpp|h|cu|toml))`?",
    r"`(?!\S+\.(?:py|cpp|h|cu)`)([A-Za-z_][\w.]*)(?:\([^`]*\))?`",
)
BESIDE = [
    re.compile(rf"(?P<name>{_NAME})\s+(?:in|of|from)\s+(?P<file>{_FILE})"),
    re.compile(rf"(?P<name>{_NAME})\s+\((?P<file>{_FILE})\)"),
    re.compile(rf"(?P<file>{_FILE})\s+\((?P<name>{_NAME})\)"),
]
SUFFIXES = {".py", ".md", ".cpp", ".h", ".cu", ".toml", ".yml", ".txt", ""}
# Texts about what once was, what a reader is to write, and a made-up tree.
LEFT_OUT = ("CHANGELOG", "docs/upgrading", "docs/extending", "examples/extending", "tests/project/test_house")


def tracked() -> list[str]:
    """Returns the files of the repository."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def test_files_and_folders_of_the_map_exist() -> None:
    """Names without a folder, too, and folders."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = {Path(file).name for file in tracked()}
    assert not [name for name in re.findall(r"\b[\w-]+\.(?:py|h|cpp|cu)\b", text) if name not in files]
    folders = re.findall(r"`((?:\w+/)+)`", text)
    assert "data/formats/" in folders
    assert not [name for name in folders if not any((ROOT / base / name).is_dir() for base in BASES)]


def test_files_that_are_named_exist() -> None:
    lost = [
        f"{file}: {name}"
        for file in tracked()
        if not file.startswith(LEFT_OUT) and Path(file).suffix in SUFFIXES and (ROOT / file).is_file()
        for name in NAME.findall((ROOT / file).read_text(encoding="utf-8", errors="replace"))
        # Capitals stand for any name.
        if not Path(name).stem.isupper()
        and not any((ROOT / base / name).exists() for base in (*BASES, Path(file).parent))
    ]
    assert lost == []


def lost_names(text: str, folder: Path) -> list[str]:
    """Returns the names beside files in a text which the files do not have."""
    # Lines of comments go on behind their marks.
    whole = re.sub(r"\n\s*(?:#|//)?\s*", " ", text)
    lost = []
    for found in (match for pattern in BESIDE for match in pattern.finditer(whole)):
        file, name = found["file"].strip("`"), re.sub(r"\(.*", "", found["name"].strip("`")).split(".")[-1]
        places = [ROOT / base / file for base in (*BASES, folder) if (ROOT / base / file).is_file()]
        if places and not any(
            re.search(rf"\b{name}\b", place.read_text(encoding="utf-8")) for place in places
        ):
            lost.append(found[0])
    return lost


def test_names_beside_files_are_in_them() -> None:
    stale = "`House.files` (`release/house.py`), `release/house.py` (`Hut`); `gone()` of\n# release/house.py"
    assert [found.split("`")[1] for found in lost_names(stale, ROOT)] == ["gone()", "release/house.py"]
    lost = [
        f"{file}: {name}"
        for file in tracked()
        if not file.startswith(("CHANGELOG", "docs/upgrading", "tests/project/"))
        and Path(file).suffix in SUFFIXES
        and (ROOT / file).is_file()
        for name in lost_names((ROOT / file).read_text(encoding="utf-8", errors="replace"), Path(file).parent)
    ]
    assert lost == []
