"""Exported programs of every kind: without a warning as C and as C++ of several years, with equal answers in both."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from integer_nets import NETS, built
from loihi_nets import random_net
from torch import nn

import snnlib
from snnlib.data import BeatFrames, LogMel, StackFrames
from snnlib.exchange import export_c

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
C, CPP = ("c99", "c11", "c17"), ("c++11", "c++14", "c++17", "c++20")
# Text that would end a comment or a string, or be another character, where it is not written as itself.
ODD = ("Käse", "\U0001f600", 'a "quote"', "a/*b*/c", "back\\", "what??/", "bell\a", "two\nlines", "%d")


def _net(name: str, **options: Any) -> Callable[[Path], object]:
    def export(folder: Path) -> object:
        net, x = built(name)
        return export_c(snnlib.to_integers(net, x, **options), folder, x, binary=False)

    return export


def _loihi(seed: int) -> Callable[[Path], object]:
    def export(folder: Path) -> object:
        net, x = random_net(seed)
        return export_c(snnlib.to_integers(net, x), folder, x, binary=False)

    return export


def _sound(folder: Path, rate: int = 16_000) -> object:
    front, stack = LogMel(8, sample_rate=rate), StackFrames(2, 3)
    generator = torch.Generator().manual_seed(0)
    sound = (torch.randn(rate // 4, 2, generator=generator) * 8000).clamp(-(2**15), 2**15 - 1).short()
    x = torch.stack([stack(front(each)) for each in sound.unbind(1)], 1).unsqueeze(-2).float()
    torch.manual_seed(0)
    net = snnlib.models.from_notation("6C3-A1-4", x.shape[2:], neuron=snnlib.neurons.LIF(tau=2.0)).eval()
    small = snnlib.to_integers(net, x, state_bits=32)
    return export_c(small, folder, sound, binary=False, front_end=front, stack=stack)


def _beats(folder: Path) -> object:
    signal = torch.randn(1200, 2, generator=torch.Generator().manual_seed(0))
    x = BeatFrames()(signal, torch.arange(300, 1100, 300)).transpose(0, 1).float()
    net = nn.Sequential(
        snnlib.SpikingLinear(x.shape[2], 6, neuron=snnlib.neurons.LIF(tau=2.0)), snnlib.SRMReadout(6, 5)
    )
    return export_c(snnlib.to_integers(net.eval(), x, state_bits=32), folder, x, binary=False)


KINDS: dict[str, Callable[[Path], object]] = {
    **{name: _net(name) for name in NETS},
    "convolutions": _net("convolutions", weight_bits=4),
    "recurrent": _net("recurrent", weight_bits=4),
    "recurrent delays": _net("recurrent delays", state_bits=32),
    **{f"fixed point {seed}": _loihi(seed) for seed in range(2)},
    "sound": _sound,
    "sound at 48,000": lambda folder: _sound(folder, 48_000),
    "beats": _beats,
}
# Kernels are the same text in all programs: between the first and the last standard these have all of it.
WHOLE = ("delays of connections", "recurrent delays", "fixed point 0", "sound")


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module", params=[("gcc", "g++"), ("clang", "clang++"), ("cc", "c++")], ids=" ".join)
def compilers(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A compiler of C and one of C++; `cc` where it is neither of the others."""
    for name in request.param:
        if not shutil.which(name):
            pytest.skip(f"there is no {name}")
    if request.param == ("cc", "c++") and (shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("cc is tried by its own name")
    return request.param


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each kind."""
    root = tmp_path_factory.mktemp("programs")
    folders = {name: root / name.replace(" ", "-") for name in KINDS}
    for name, folder in folders.items():
        KINDS[name](folder)
    return folders


def test_programs_compile_in_every_standard(programs: dict[str, Path], compilers: tuple[str, str]) -> None:
    root = programs["sound"].parent
    for compiler, language, standards in ((compilers[0], "c", C), (compilers[1], "c++", CPP)):
        for standard in standards:
            kinds = KINDS if standard == standards[-1] else WHOLE
            files = [f"{programs[kind].name}/{file}" for kind in kinds for file in ("net.c", "check.c")]
            run(compiler, "-x", language, f"-std={standard}", *STRICT, "-fsyntax-only", *files, folder=root)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_equal_in_c_and_c_plus_plus(
    kind: str, programs: dict[str, Path], compilers: tuple[str, str]
) -> None:
    folder = programs[kind]
    for compiler, language, standard in ((compilers[0], "c", C[0]), (compilers[1], "c++", CPP[0])):
        for file in ("net", "check"):
            options = ("-x", language, f"-std={standard}", *STRICT, "-O0", "-c", "-o", f"{file}-{language}.o")
            run(compiler, *options, f"{file}.c", folder=folder)
    # Each with a caller in the other language.
    for program, caller in (("c", "c++"), ("c++", "c")):
        run(compilers[1], "-o", "both", f"net-{program}.o", f"check-{caller}.o", folder=folder)
        said = run("./both", "vectors.bin", folder=folder)
        assert "differ: 0 by events, 0 by frames" in said and ("by sound: 0" in said) == ("sound" in kind)


def test_text_of_any_kind_stays_what_it_is(tmp_path: Path, compilers: tuple[str, str]) -> None:
    net = nn.Sequential(snnlib.SpikingLinear(3, len(ODD))).eval()
    x = torch.ones(2, 1, 3)
    export_c(snnlib.to_integers(net, x), tmp_path, x, names=ODD, notes=[*ODD, "/*/", "??/", "*/ /*"])
    (tmp_path / "names.c").write_text(
        '#include <stdio.h>\n#include "net.h"\nstatic const char* const names[NET_OUTPUTS] = {NET_NAMES};\n'
        'int main(void) {\n  int k;\n  for (k = 0; k < NET_OUTPUTS; ++k) printf("%s%c", names[k], 0);\n'
        "  return 0;\n}\n"
    )
    for compiler, language, standards in ((compilers[0], "c", C), (compilers[1], "c++", CPP)):
        for standard in standards:
            command = (compiler, "-x", language, f"-std={standard}", *STRICT)
            run(*command, "-o", "names", "names.c", folder=tmp_path)
            assert tuple(run("./names", folder=tmp_path).split("\0")[:-1]) == ODD
