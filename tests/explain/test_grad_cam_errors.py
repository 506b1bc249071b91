"""Wrong arguments of Grad-CAM, and layers and nets that it cannot look into."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cam_nets import DOUBLE, conv_net, maps_of
from torch import Tensor, nn

import snnlib
from snnlib.explain import GradCAM


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "TNC"}, r"layout: expected N, C and either L or H, W, .* got 'TNC'"),
        ({"layout": "NNCHW"}, r"layout: expected .* got 'NNCHW'"),
        ({"prefix_tokens": -1}, r"prefix_tokens: expected an integer >= 0, got -1"),
        ({"grid": (0, 4)}, r"grid: expected an integer >= 1 or 2 of them, got \(0, 4\)"),
        ({"stride": 0}, r"stride: expected an integer >= 1 or 2 of them, got 0"),
        ({"time": "sum"}, r"time: expected 'mean' or 'per_step', got 'sum'"),
        ({"alpha": "mean"}, r"alpha: expected 'global' or 'per_step', got 'mean'"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    net = conv_net()
    with pytest.raises(ValueError, match=message):
        GradCAM(net, net[3], **options)


class Paths(nn.Module):
    """Two layers, and a function that says how they are used."""

    def __init__(self, path: Callable[["Paths", Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.other, self.path = nn.Conv2d(2, 4, 8), nn.Conv2d(2, 4, 8), path

    def forward(self, x: Tensor) -> Tensor:
        return self.path(self, x).flatten(1)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (lambda net, x: net.other(x), r"expected one call of the layer per forward pass, got 0"),
        (lambda net, x: net.layer(x) + net.layer(x), r"expected one call of the layer per forward pass, got 2"),
        (lambda net, x: net.layer(x).detach(), r"expected a layer that the score depends on, got a Conv2d without"),
        (lambda net, x: (net.layer(x), net.other(x))[1], r"expected a layer that the score depends on, got a"),
    ],
)  # fmt: skip
def test_layers_that_cannot_be_looked_at(path: Callable[[Paths, Tensor], Tensor], message: str) -> None:
    net = Paths(path)
    with GradCAM(net, net.layer) as cam, pytest.raises(ValueError, match=f"target_layer: {message}"):
        cam(torch.rand(3, 2, 8, 8))


def test_layer_of_another_net() -> None:
    with pytest.raises(ValueError, match=r"target_layer: expected a module of the model, got a ReLU outside"):
        GradCAM(conv_net(), nn.ReLU())


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (5, ValueError, r"target: expected classes from 0 to 3, got 5"),
        (torch.tensor([0, -1]), ValueError, r"target: expected classes from 0 to 3, got -1"),
        (torch.tensor([0, 1, 2]), ValueError, r"target: expected one class or 2, got shape \(3,\)"),
        (torch.tensor([0.0, 1.0]), TypeError, r"target: expected integers, got torch\.float32"),
        (lambda answer: 3.0, TypeError, r"target: its score: expected a torch\.Tensor, got float"),
    ],
)
def test_targets_that_are_none(target: Any, error: type[Exception], message: str) -> None:
    net = conv_net()
    with GradCAM(net, net[3]) as cam, pytest.raises(error, match=message):
        cam(torch.rand(2, 2, 8, 8, **DOUBLE), target)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((2, 3), {}, r"target_layer: expected an output of 3 to 5 dimensions, got shape \(2, 3\); name"),
        ((2, 3, 4, 4), {"layout": "TNCHW"}, r"target_layer: expected an output of layout 'TNCHW', got shape"),
        ((2, 0, 4, 4), {}, r"target_layer: expected an output with cells, got shape \(2, 0, 4, 4\)"),
        ((2, 3, 4, 4), {"time": "per_step"}, r"time: expected 'mean' for a layer of layout 'NCHW', got 'per_step'"),
        ((2, 7, 4), {}, r"grid: expected rows and columns, as 7 tokens with 0 or 1 prefix tokens are no grid of"),
        ((2, 9, 4), {"prefix_tokens": 2}, r"grid: .* as 9 tokens with 2 prefix tokens are no grid"),
        ((2, 9, 4), {"grid": (4, 4)}, r"grid: expected 9 tokens less 0 prefix tokens, got 4 x 4"),
        ((2, 9, 4), {"grid": (2, 4), "prefix_tokens": 2}, r"grid: expected 9 tokens less 2 prefix tokens, got 2 x 4"),
    ],
)  # fmt: skip
def test_outputs_that_do_not_fit(shape: tuple[int, ...], options: dict[str, Any], message: str) -> None:
    output = torch.ones(shape)
    with pytest.raises(ValueError, match=message):
        maps_of(output, output, (8, 8), **options)


def test_models_whose_answer_does_not_fit() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1))
    with GradCAM(net, net[0]) as cam, pytest.raises(ValueError, match=r"model: expected an output \[N, K\]"):
        cam(torch.rand(2, 1, 4, 4))
    folded = nn.Sequential(nn.Flatten(0, 1), nn.Conv2d(1, 2, 4), nn.Flatten(), nn.Unflatten(0, (5, 3)))
    with (
        GradCAM(folded, folded[1]) as cam,
        pytest.raises(ValueError, match=r"model: expected an output \[N, K\].* got shape \(5, 3, 2\)"),
    ):
        cam(torch.rand(5, 3, 1, 4, 4))
    counted = nn.Sequential(*folded, snnlib.nn.GradScale(1.0))
    counted.append(type("Count", (nn.Module,), {"forward": lambda _, x: x.sum(0)})())
    with (
        GradCAM(counted, counted[1]) as cam,
        pytest.raises(
            ValueError, match=r"layout: expected 3 samples as in the model's output, got 15 in dimension 0"
        ),
    ):
        cam(torch.rand(5, 3, 1, 4, 4))


def test_layers_with_other_outputs() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    net = nn.Sequential(Two())
    with (
        GradCAM(net, net[0]) as cam,
        pytest.raises(TypeError, match=r"target_layer: its output: expected a torch\.Tensor, got tuple"),
    ):
        cam(torch.rand(2, 1, 4, 4))


def test_a_name_in_other_letters_has_its_counterpart() -> None:
    with pytest.raises(AttributeError, match=r"did you mean snnlib\.explain\.GradCAM\?"):
        snnlib.explain.gradcam  # noqa: B018
