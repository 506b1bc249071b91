"""Exported nets get inputs of other dtypes, samples without events, and read-outs with random feedback."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import exchange, neurons

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def _net(*end: nn.Module) -> nn.Sequential:
    """A net whose layers fire on inputs of `_events`."""
    torch.manual_seed(0)
    first = snnlib.SpikingLinear(20, 8, neuron=neurons.IF(levels=4))
    with torch.no_grad():
        first.weight.copy_(torch.rand(8, 20) * 0.5)
    return nn.Sequential(first, *end).eval()


def _readout() -> nn.Linear:
    return nn.Linear(8, 3)


def _events(most: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, most + 1, (10, 3, 20), generator=generator).float()


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.complex64, torch.float16, torch.bfloat16, torch.float64])
def test_unrolled_nets_take_the_dtype_of_the_net(dtype: torch.dtype) -> None:
    net, x = _net(_readout(), neurons.Integrator()), _events()
    unrolled = exchange.unroll_spikes(net, x)
    assert unrolled(x).any()
    for made in (net, unrolled):
        with torch.no_grad(), pytest.raises(TypeError, match=r"^x.*expected .*convert .*with"):
            made(x.to(dtype))
    assert exchange.unroll_spikes(net.double(), x.double())(x.double()).dtype == torch.float64


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("potentials", [True, False])
def test_integer_nets_take_counts_of_any_dtype(
    potentials: bool, dtype: torch.dtype, tmp_path: Path, path: str
) -> None:
    end = (_readout(), neurons.Integrator()) if potentials else ()
    net, x = _net(*end), _events(1 if dtype == torch.bool else 100)
    integer = exchange.to_integers(net, x)
    expected, given = integer(x), x.to(dtype)
    assert expected.any()
    assert torch.equal(integer.integers(given), integer.integers(x))
    assert torch.equal(integer.reference(given), integer.reference(x))
    result = integer(given)
    # Potentials are no integers.
    assert result.dtype == (dtype if dtype.is_floating_point else torch.float32)
    torch.testing.assert_close(result, expected.to(result.dtype))
    # Counts for calibration, and for the check of the program, as well.
    calibrated = exchange.to_integers(net, given)
    assert torch.equal(calibrated.integers(x), integer.integers(x))
    for name, samples in (("a", x), ("b", given)):
        exchange.export_c(integer, tmp_path / name, samples)
    files = [{file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]


def test_integer_nets_refuse_what_counts_nothing() -> None:
    integer = exchange.to_integers(_net(), _events())
    assert integer(_events(255)).any()
    for bad in (
        _events() - 2,
        _events().to(torch.int8) - 2,
        _events(256),
        _events() / 3,
        _events() * torch.nan,
    ):
        with pytest.raises(ValueError, match="x: expected counts of events, whole numbers from 0 to 255"):
            integer(bad)
    with pytest.raises(TypeError, match=r"x: expected counts of events, got torch\.complex64"):
        integer(_events().to(torch.complex64))
    with pytest.raises(TypeError, match="x: expected a"):
        integer(_events().tolist())


def test_silent_samples_calibrate_nothing() -> None:
    net = _net(snnlib.SpikingLinear(8, 3, neuron=neurons.IF()))
    message = "x: expected inputs with events, to calibrate the states on, got zeros only"
    for silent in (torch.zeros(10, 3, 20), torch.zeros(10, 3, 20, dtype=torch.uint8), torch.zeros(0, 3, 20)):
        with pytest.raises(ValueError, match=message):
            exchange.to_integers(net, silent)
        with pytest.raises(ValueError, match=message):
            exchange.to_integers(exchange.unroll_spikes(net, _events()), silent)


def _written(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _onnx(net: nn.Module, x: Tensor, folder: Path) -> Any:
    pytest.importorskip("onnx")
    exchange.export_onnx(net, folder / "net.onnx", x)
    return _written(folder)


def _nir(net: nn.Module, x: Tensor, _: Path) -> Tensor:
    pytest.importorskip("nir")
    result: Tensor = exchange.from_nir(exchange.to_nir(net, 1e-3, approximate=True), 1e-3)(x)
    return result


def _c(net: nn.Module, x: Tensor, folder: Path) -> dict[str, bytes]:
    exchange.export_c(exchange.to_integers(net, x), folder / "c", x)
    return _written(folder)


EXPORTS: dict[str, Callable[[nn.Module, Tensor, Path], Any]] = {
    "integers": lambda net, x, _: exchange.to_integers(net, x)(x),
    "unrolled": lambda net, x, _: exchange.unroll_spikes(net, x)(x),
    "nir": _nir,
    "c": _c,
    "onnx": _onnx,
    "fused": lambda net, x, _: snnlib.fuse_(copy.deepcopy(net))(x),
    "lava": lambda net, x, folder: (exchange.to_lava(net, folder / "net.net"), _written(folder)),
}


@pytest.mark.parametrize("export", EXPORTS)
@torch.no_grad()
def test_a_readout_with_random_feedback_leaves_as_its_readout(export: str, tmp_path: Path) -> None:
    readout, x = _readout(), _events()
    results: list[Any] = []
    for number, last in enumerate((readout, snnlib.nn.RandomFeedback(readout))):
        folder = tmp_path / str(number)
        folder.mkdir()
        net = _net(last, neurons.Integrator())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results.append(EXPORTS[export](net, x, folder))
            except ValueError as reason:
                # A format without such a net refuses it for its neurons, with either read-out.
                assert export == "lava"
                results.append(str(reason).replace("RandomFeedback", "Linear"))
    plain, fed_back = results
    if isinstance(plain, Tensor):
        assert plain.any()
        assert torch.equal(plain, fed_back)
    else:
        assert plain == fed_back
