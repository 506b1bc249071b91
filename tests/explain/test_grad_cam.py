"""Grad-CAM: worked vectors, the definition, CAM, finite differences, layouts, targets and types."""

from typing import Any

import pytest
import torch
import torch.nn.functional as torch_f
from cam_nets import DOUBLE, conv_net, events, maps_of, spiking_net
from compare import assert_bits
from torch import Tensor, nn

from snnlib.explain import GradCAM

# Worked vectors


def tokens() -> tuple[Tensor, Tensor]:
    output = torch.tensor([[[9.0, 9], [1, 0], [0, 2], [3, 1], [0, 0]]])
    return output, torch.tensor([[[7.0, 7], [1, -1], [1, 0], [0, -1], [2, 0]]])


def test_tokens_of_a_class_token_and_four_patches() -> None:
    assert maps_of(*tokens(), (2, 2)).tolist() == [[[1, 0], [2.5, 0]]]
    torch.testing.assert_close(
        maps_of(*tokens(), (2, 2), normalize=True), torch.tensor([[[0.4, 0], [1, 0]]]), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize(
    "options", [{"grid": (2, 2)}, {"prefix_tokens": 1}, {"prefix_tokens": 1, "grid": (2, 2)}]
)
def test_prefix_and_grid_may_be_given(options: dict[str, Any]) -> None:
    assert maps_of(*tokens(), (2, 2), **options).tolist() == [[[1, 0], [2.5, 0]]]


def train() -> tuple[Tensor, Tensor]:
    """T = 2, C = 2, W = 2 as [T, 1, C, 1, W]."""
    output = torch.tensor([[[1.0, 0], [0, 1]], [[1, 1], [1, 0]]])
    gradient = torch.tensor([[[2.0, 0], [-2, 0]], [[0, 2], [2, 0]]])
    return output[:, None, :, None], gradient[:, None, :, None]


@pytest.mark.parametrize(("alpha", "steps"), [("global", [[1, 0], [1, 1]]), ("per_step", [[1, 0], [2, 1]])])
def test_alpha_of_the_train_and_of_each_step(alpha: Any, steps: list[list[float]]) -> None:
    per_step = maps_of(*train(), (1, 2), alpha=alpha, time="per_step")
    assert per_step[:, 0, 0].tolist() == steps
    assert_bits(maps_of(*train(), (1, 2), alpha=alpha), per_step.mean(0))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_no_gradient_or_only_negative_gives_zeros(factor: float, normalize: bool) -> None:
    output = torch.ones(2, 3, 4, 4)
    maps = maps_of(output, torch.full_like(output, factor), (8, 8), normalize=normalize)
    assert_bits(maps, torch.zeros(2, 8, 8))


# Oracles


def test_equals_the_definition_in_loops(rng: torch.Generator) -> None:
    net, x = conv_net(), torch.rand(3, 2, 8, 8, generator=rng, **DOUBLE)
    targets = [2, 0, 3]
    with GradCAM(net, net[3], normalize=False) as cam:
        maps = cam(x, torch.tensor(targets))
    for sample, label in enumerate(targets):
        a = net[:4](x[sample : sample + 1]).detach().requires_grad_()
        net[4:](a)[0, label].backward()
        expected = torch.zeros(4, 4, **DOUBLE)
        for channel in range(6):
            alpha = sum(a.grad[0, channel, i, j] for i in range(4) for j in range(4)) / 16
            expected += alpha * a[0, channel].detach()
        expected = torch_f.interpolate(expected.clamp(min=0)[None, None], (8, 8), mode="bilinear")
        torch.testing.assert_close(maps[sample], expected[0, 0], rtol=1e-12, atol=1e-14)


def test_is_cam_over_hw_before_a_mean_and_a_linear_head(rng: torch.Generator) -> None:
    """There alpha is the head's own weight, divided by the number of cells."""
    head = nn.Linear(6, 4, **DOUBLE)
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, **DOUBLE), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head
    )
    x = torch.randn(5, 2, 6, 7, generator=rng, **DOUBLE)
    with torch.no_grad(), GradCAM(net, net[1], normalize=False) as cam:
        for label in range(4):
            class_activation = torch.einsum("c,nchw->nhw", head.weight[label], net[:2](x))
            torch.testing.assert_close(cam(x, label), class_activation.relu() / 42, rtol=1e-12, atol=1e-14)


def test_alpha_is_the_slope_by_a_channels_level(rng: torch.Generator) -> None:
    """Finite differences: adding h to all cells of channel c raises the score by `h H W alpha_c`."""
    net, x, h = conv_net(), torch.rand(1, 2, 8, 8, generator=rng, **DOUBLE), 1e-5
    a = net[:4](x).detach()

    def score(channel: int, change: float) -> Tensor:
        changed = a.clone()
        changed[0, channel] += change
        return net[4:](changed)[0, 1].detach()

    alpha = torch.stack([(score(c, h) - score(c, -h)) / (2 * h * 16) for c in range(6)])
    expected = torch.einsum("c,chw->hw", alpha, a[0]).relu()
    with GradCAM(net, net[3], normalize=False, stride=1) as cam:
        # Stride 1 puts the map unscaled into the middle of the input.
        torch.testing.assert_close(cam(x, 1)[0, 2:6, 2:6], expected, rtol=1e-8, atol=1e-10)


# Layouts, tokens and place


@pytest.mark.parametrize("layout", ["TNCHW", "NTCHW", "TNHWC", "NTHWC", "TNLC", "TNCL", "NTLC"])
def test_layouts_of_trains_agree(layout: str, rng: torch.Generator) -> None:
    output, gradient = torch.randn(2, 3, 2, 4, 4, 6, generator=rng, **DOUBLE)
    expected = maps_of(output, gradient, (4, 6), time="per_step")
    if "L" in layout:
        tensors = [tensor.flatten(3) for tensor in (output, gradient)]
        order = ["TNCL".index(letter) for letter in layout]
    else:
        tensors = [output, gradient]
        order = ["TNCHW".index(letter) for letter in layout]
    maps = maps_of(*(tensor.permute(order) for tensor in tensors), (4, 6), time="per_step", layout=layout)
    assert_bits(maps if layout[0] == "T" else maps.transpose(0, 1), expected)


def test_a_train_of_one_step_is_a_picture(rng: torch.Generator) -> None:
    output, gradient = torch.randn(2, 2, 3, 5, 5, generator=rng)
    assert_bits(maps_of(output[None], gradient[None], (5, 5)), maps_of(output, gradient, (5, 5)))


@pytest.mark.parametrize(
    ("tokens", "size", "grid"),
    [
        (196, (224, 224), (14, 14)),
        (197, (224, 224), (14, 14)),
        (280, (224, 320), (14, 20)),
        (9, (64, 32), (4, 2)),
    ],
)
def test_grid_has_the_inputs_shape(tokens: int, size: tuple[int, int], grid: tuple[int, int]) -> None:
    output = torch.zeros(1, tokens, 1)
    output[0, tokens - grid[1]] = 1
    maps = maps_of(output, torch.ones_like(output), size)
    # The first patch of the last row.
    assert maps[0].argmax() // size[1] >= size[0] * (grid[0] - 1) // grid[0]
    assert maps[0].argmax() % size[1] < size[1] // grid[1]


@pytest.mark.parametrize("row", [0, 5, 11])
def test_stride_puts_cells_where_they_look(row: int) -> None:
    """The second conv layer of the N-MNIST net: 12 cells of 2 pixels each, in the middle of 34."""
    output = torch.zeros(1, 1, 12, 12)
    output[0, 0, row, 5] = 1
    maps = maps_of(output, torch.ones_like(output), (34, 34), stride=2)
    # The mean place is a cell's centre but for the outermost cells, beyond which bilinear scaling repeats the edge.
    rows = torch.arange(34.0)[maps[0].sum(1) == maps[0].sum(1).max()]
    assert float(rows.mean()) == pytest.approx(5.5 + 2 * row, abs=0.51)
    outside = torch.ones(34, 34, dtype=torch.bool)
    outside[5:29, 5:29] = False
    assert float(maps[0][outside].abs().max()) == 0


def test_an_odd_rest_is_at_the_end() -> None:
    """As pooling leaves it: 3 x 3 cells of 2 pixels in 7 x 8."""
    output = torch.ones(1, 1, 3, 3)
    covered = torch.zeros(1, 7, 8)
    covered[:, :6, 1:7] = 1
    assert_bits(maps_of(output, output, (7, 8), stride=2).ceil(), covered)


def test_constant_maps_stay_constant() -> None:
    output = torch.full((2, 3, 4, 5), 0.7)
    maps = maps_of(output, torch.ones_like(output), (9, 13), normalize=True)
    torch.testing.assert_close(maps, torch.ones(2, 9, 13))


# Targets


def test_targets_per_sample_are_the_single_ones(rng: torch.Generator) -> None:
    net, x = conv_net(), torch.rand(3, 2, 8, 8, generator=rng, **DOUBLE)
    with GradCAM(net, net[3]) as cam:
        each = torch.stack([cam(x, label) for label in range(4)])
        labels = torch.tensor([3, 0, 1], dtype=torch.uint8)
        # torch sums each batch of gradients in an order of its own.
        rounded = {"rtol": 1e-12, "atol": 1e-14}
        torch.testing.assert_close(cam(x, labels), each[labels.long(), range(3)], **rounded)
        torch.testing.assert_close(cam(x), each[net(x).argmax(1), range(3)], **rounded)
        by_function = cam(x, lambda answer: answer[range(3), labels.long()])
        torch.testing.assert_close(by_function, cam(x, labels), **rounded)


def test_samples_do_not_mix(rng: torch.Generator) -> None:
    net, x = spiking_net(), events(rng, samples=4)
    with GradCAM(net, net[0]) as cam:
        together = cam(x)
        alone = torch.cat([cam(x[:, sample : sample + 1]) for sample in range(4)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-14)


def test_empty_batch() -> None:
    net = conv_net()
    with GradCAM(net, net[3]) as cam:
        assert cam(torch.zeros(0, 2, 8, 8, **DOUBLE)).shape == (0, 8, 8)


def test_any_answer_with_a_function() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(1, 2, 3, padding=1)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"mask": self.layer(x).tanh()}

    net = Pair()
    with GradCAM(net, net.layer) as cam:
        assert cam(torch.rand(2, 1, 6, 6), lambda answer: answer["mask"][:, 0]).shape == (2, 6, 6)


# Types


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_float_dtypes(dtype: torch.dtype, rng: torch.Generator) -> None:
    net, x = spiking_net().to(dtype), events(rng).to(dtype)
    with GradCAM(net, net[0]) as cam:
        maps = cam(x)
    assert maps.dtype == torch.promote_types(dtype, torch.float32)
    assert maps.amax((1, 2)).tolist() == [1, 1, 1]
    assert float(maps.amin()) >= 0


def test_half_adds_up_in_float32() -> None:
    output = torch.ones(1, 4096, 4, 4, dtype=torch.float16)
    gradient = torch.full_like(output, 1.0)
    assert maps_of(output, gradient, (4, 4)).unique().tolist() == [4096]


def test_output_may_be_no_block_of_memory(rng: torch.Generator) -> None:
    output, gradient = torch.randn(2, 2, 4, 10, 10, generator=rng)
    expected = maps_of(output[..., ::2, ::2].contiguous(), gradient[..., ::2, ::2], (5, 5))
    assert_bits(maps_of(output[..., ::2, ::2], gradient[..., ::2, ::2], (5, 5)), expected)


def test_labels_of_many_classes_in_small_integers() -> None:
    """256 as uint8 would be 0."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 256))
    labels = torch.tensor([3, 250], dtype=torch.uint8)
    x = torch.ones(2, 1, 5, 5)
    with GradCAM(net, net[0]) as cam:
        assert_bits(cam(x, labels), cam(x, labels.long()))
