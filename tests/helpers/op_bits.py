"""Bits of every op's results, which no change of the code may move: `stored/op_bits.json`.

    [SNNLIB_ISA=portable] python tests/helpers/op_bits.py [--write]

A number is a hash of what a case got and gave, in one dtype. They depend neither on the instruction set of the kernels
nor on that of torch: its convolutions and products, which take part where there is no event-driven kernel, and its sums
of the gradients of constants add in an order that depends on the processor, so here they add in float64 and round once.
Torch's random numbers, of which the samples are made, are its own on some processors; a hash of them is stored as well.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from opdb import DTYPES, OPS, OpCase
from torch import Tensor

from snnlib.backends import native
from snnlib.ops import element_products, recurrent_call, scan_linear, torch_conv

FILE = Path(__file__).parents[1] / "stored" / "op_bits.json"
# Functions of torch that take part in results.
_TORCH_PRODUCTS = ("_product", "_convolve", "_convolution_backward")
_ELEMENT_PRODUCTS = ("currents", "input_gradient", "weight_gradient")
# Enough that two different results never meet by chance.
_DIGITS = 12


def _in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        found = function(*(part.double() if isinstance(part, Tensor) else part for part in arguments))
        if isinstance(found, Tensor):
            return found.float()
        return [None if part is None else part.float() for part in found]

    return run


@contextmanager
def products_in_double() -> Iterator[None]:
    """Let torch's convolutions, matrix products and gradients of constants add in float64."""
    wide = {name: _in_double(getattr(torch_conv, name)) for name in _TORCH_PRODUCTS}
    by_element = {name: _in_double(getattr(element_products, name)) for name in _ELEMENT_PRODUCTS}
    neurons = {"sum_neurons": _in_double(scan_linear.sum_neurons)}
    with (
        patch.multiple(torch_conv, **wide),
        patch.multiple(element_products, **by_element),
        patch.multiple(scan_linear, **neurons),
        patch.multiple(recurrent_call, **neurons),
    ):
        yield


def bits(case: OpCase, number: int, dtype: torch.dtype) -> str:
    """Returns the hash of the arguments and outputs of a case's sample, with their shapes."""
    digest = hashlib.sha256()
    arguments = case.samples[number].arguments(dtype)
    with products_in_double():
        parts: list[Any] = [*arguments, *case(*arguments)]
    for part in parts:
        if isinstance(part, Tensor):
            elements = torch.empty(part.numel(), dtype=part.dtype).copy_(part.detach().reshape(-1))
            digest.update(str(tuple(part.shape)).encode() + elements.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:_DIGITS]


def keys(case: OpCase) -> list[str]:
    """Returns the names of a case's samples, which differ, so that a new sample leaves the bits of others alone."""
    names = [sample.name for sample in case.samples]
    same = {name for name in names if names.count(name) > 1}
    assert not same, (
        f"{case.name}: expected one sample of each name, got several of {', '.join(sorted(same))}"
    )
    return names


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


def random_numbers() -> str:
    """Returns the hash of what torch draws for samples."""
    drawn = torch.randn(100, generator=torch.Generator().manual_seed(0))
    return hashlib.sha256(drawn.numpy().tobytes()).hexdigest()[:_DIGITS]


def stored() -> dict[str, Any]:
    """Returns the bits by case and sample, and those of `random_numbers`."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def differences(found: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    before = stored()["bits"]
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
    assert native._module is not None
    found = all_bits()
    if parser.parse_args().write:
        whole = {"random numbers": random_numbers(), "bits": found}
        FILE.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    else:
        print(json.dumps(differences(found), indent=1))


if __name__ == "__main__":
    main()
