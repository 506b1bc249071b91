"""Convolutions tap by tap: currents of the events' order bit for bit, and the weight gradient of any geometry."""

import op_calls
import pytest
import torch
from compare import assert_bits, assert_same_bits
from torch import Tensor

import snnlib
from snnlib.backends import algorithm, native
from snnlib.backends.arguments import LayerArgs
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.ops import conv_layout, currents

pytestmark = pytest.mark.skipif(native._module is None, reason="needs the compiled module")

# name: (C, O, (H, W), (kh, kw), stride, padding, dilation); channels that fill vectors and pieces, and that do not.
GEOMETRIES = {
    "pieces": (40, 192, (6, 6), (3, 3), (1, 1), (1, 1), (1, 1)),
    "odd": (19, 21, (7, 5), (2, 3), (1, 1), (1, 2), (1, 1)),
    "strides": (16, 32, (11, 9), (3, 4), (2, 3), (2, 0), (1, 1)),
    "dilated": (16, 48, (9, 10), (3, 2), (1, 2), (3, 1), (3, 2)),
    "wide padding": (5, 16, (3, 2), (2, 2), (1, 1), (4, 4), (1, 1)),
    "a row": (7, 16, (1, 30), (1, 5), (1, 2), (0, 2), (1, 1)),
    "a matrix": (70, 33, (1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    # More image rows than a block of currents holds.
    "blocks": (3, 160, (40, 30), (3, 3), (1, 1), (1, 1), (1, 1)),
}


def _case(name: str) -> tuple[Tensor, Tensor, ConvOptions]:
    inputs, outputs, size, kernel, *options = GEOMETRIES[name]
    generator = torch.Generator().manual_seed(1)
    # Graded and negative events.
    x = torch.randint(-1, 3, (4, 3, inputs, *size), generator=generator).float()
    x *= torch.rand(x.shape, generator=generator) < 0.2
    return x, torch.randn(outputs, inputs, *kernel, generator=generator), ConvOptions(*options, 1)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_currents_have_the_bits_of_the_events_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, options = _case(name)
    with snnlib.use_convolution("events"):
        monkeypatch.setattr(algorithm, "by_taps", lambda _: False)
        expected = op_calls.currents_forward(x, weight, *options, 0)
        monkeypatch.setattr(algorithm, "by_taps", lambda _: True)
        assert_bits(op_calls.currents_forward(x, weight, *options, 0), expected)
        batch_first = op_calls.currents_forward(x.transpose(0, 1).contiguous(), weight, *options, 1)
    assert_bits(batch_first.transpose(0, 1).contiguous(), expected.contiguous())


@pytest.mark.parametrize("name", GEOMETRIES)
def test_weight_gradient_is_the_adjoint_of_the_currents(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, options = _case(name)
    g = geometry(x, weight, options)
    signal = conv_layout.empty_sequence(x, g.channels, g.space, torch.float32).normal_()
    monkeypatch.setattr(algorithm, "decide_for_signal", lambda *_: "taps")
    gradient = currents.plan_of(LayerArgs(x, weight, options, (1, 1))).weight_gradient(signal, x, weight)
    wide = weight.double().requires_grad_()
    frames = torch.nn.functional.conv2d(x.flatten(0, 1).double(), wide, None, *options)
    frames.backward(signal.flatten(0, 1).double())
    assert gradient.shape == weight.shape and gradient.is_contiguous()
    assert (gradient - wide.grad).abs().max() <= 1e-5 * wide.grad.abs().max()


@pytest.mark.parametrize("threads", [1, 3])
def test_bits_do_not_depend_on_threads_or_vectors(
    threads: int, isas: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, options = _case("pieces")
    signal = torch.randn(4, 3, 192, 6, 6, generator=torch.Generator().manual_seed(2))
    monkeypatch.setattr(algorithm, "by_taps", lambda _: True)
    monkeypatch.setattr(algorithm, "decide_for_signal", lambda *_: "taps")

    def run() -> tuple[Tensor, Tensor]:
        with snnlib.use_convolution("events"):
            forward = op_calls.currents_forward(x, weight, *options, 0)
        return forward, currents.plan_of(LayerArgs(x, weight, options, (1, 1))).weight_gradient(
            signal, x, weight
        )

    expected = run()
    torch.set_num_threads(threads)
    for name in isas:
        native._module.select_isa(name)
        assert_same_bits(run(), expected)


def test_choice_follows_the_size_of_the_weights() -> None:
    def chosen(channels: int, size: int) -> tuple[bool, str]:
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(20, 2, channels, size, size, generator=generator).lt(0.05).float()
        options = ConvOptions((1, 1), (1, 1), (1, 1), 1)
        g = geometry(x, torch.empty(channels, channels, 3, 3), options)
        return algorithm.by_taps(g), algorithm.decide_for_signal(x, g)

    assert chosen(512, 6) == (True, "taps")
    assert chosen(256, 24) == (True, "inputs")
    assert chosen(64, 16) == (False, "inputs")
