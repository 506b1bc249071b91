"""Bits of every op's results, which no change of the code may move: `stored/op_bits.json`.

    [SNNLIB_ISA=portable] python tests/helpers/op_bits.py [--write]

A number is a hash of what a case got and gave, in one dtype. They do not depend on the
instruction set of the kernels. Torch's random numbers and matrix products depend on torch's own instruction set, which
is stored beside them.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from opdb import DTYPES, OPS, OpCase
from torch import Tensor

from snnlib.backends import native

FILE = Path(__file__).parents[1] / "stored" / "op_bits.json"
# The kernels' sums do not depend on it, but torch's convolutions, which take part where rates are high, split theirs.
THREADS = 2
# Enough that two different results never meet by chance.
_DIGITS = 12


def torch_instructions() -> str:
    return torch.backends.cpu.get_cpu_capability()


def bits(case: OpCase, number: int, dtype: torch.dtype) -> str:
    """Returns the hash of the arguments and outputs of a case's sample, with their shapes."""
    digest = hashlib.sha256()
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        return _bits(digest, case, number, dtype)
    finally:
        torch.set_num_threads(threads)


def _bits(digest: Any, case: OpCase, number: int, dtype: torch.dtype) -> str:
    arguments = case.samples[number].arguments(dtype)
    parts: list[Any] = [*arguments, *case(*arguments)]
    for part in parts:
        if isinstance(part, Tensor):
            elements = torch.empty(part.numel(), dtype=part.dtype).copy_(part.detach().reshape(-1))
            digest.update(str(tuple(part.shape)).encode() + elements.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:_DIGITS]


def keys(case: OpCase) -> list[str]:
    """Returns the names of a case's samples; the second of one name has a number."""
    names = [sample.name for sample in case.samples]
    return [name if names.index(name) == i else f"{name} ({i})" for i, name in enumerate(names)]


def dtypes(case: OpCase) -> tuple[torch.dtype, ...]:
    """Returns those in which sums are the kernels'; float64 gradients are torch's, in an order of its own."""
    return DTYPES if case.bit_equal else DTYPES[1:]


def all_bits() -> dict[str, dict[str, list[str]]]:
    return {
        case.name: {
            key: [bits(case, number, dtype) for dtype in dtypes(case)]
            for number, key in enumerate(keys(case))
        }
        for case in OPS.values()
        if case.own_kernels
    }


def stored(instructions: str) -> dict[str, Any]:
    """Returns the bits by case and sample; those of other kernels than the first stand only where they differ."""
    found = json.loads(FILE.read_text(encoding="utf-8"))["bits"]
    first, *_ = found.values()
    own = found.get(instructions, {})
    return {name: {**samples, **own.get(name, {})} for name, samples in first.items()}


def differences(found: dict[str, dict[str, list[str]]], instructions: str) -> dict[str, dict[str, list[str]]]:
    before = stored(instructions)
    changed = {
        name: {
            sample: numbers
            for sample, numbers in samples.items()
            if before.get(name, {}).get(sample) != numbers
        }
        for name, samples in found.items()
    }
    return {name: samples for name, samples in changed.items() if samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store the bits of this state of the code")
    module = native._module
    assert module is not None
    instructions, found = module.isa(), all_bits()
    if not parser.parse_args().write:
        print(json.dumps(differences(found, instructions), indent=1))
        return
    whole: dict[str, Any] = {"torch": torch_instructions(), "bits": {}}
    if FILE.exists():
        whole = json.loads(FILE.read_text(encoding="utf-8"))
    first = not whole["bits"] or instructions == next(iter(whole["bits"]))
    whole["bits"][instructions] = found if first else differences(found, instructions)
    FILE.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
