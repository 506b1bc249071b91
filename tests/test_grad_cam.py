"""Grad-CAM: worked vectors, the definition, CAM, finite differences, layouts, spikes, and what a call leaves behind."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as torch_f
from compare import assert_bits
from torch import Tensor, nn

import snnlib
from snnlib.explain import GradCAM

DOUBLE = {"dtype": torch.float64}


class Given(nn.Module):
    """A net whose layer puts out a given tensor whatever the net sees."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output, self.layer = output, nn.Identity()

    def forward(self, _x: Tensor) -> Tensor:
        return self.layer(self.output)


def maps_of(
    output: Tensor, gradient: Tensor, size: tuple[int, int], *, normalize: bool = False, **options: Any
) -> Tensor:
    """Maps from a layer's output and the gradient there, both given."""
    net = Given(output)
    with GradCAM(net, net.layer, normalize=normalize, **options) as cam:
        return cam(torch.zeros(1, 1, *size), lambda answer: (answer * gradient).sum())


def conv_net() -> nn.Sequential:
    """A smooth net with random weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1, **DOUBLE),
        nn.Tanh(),
        nn.Conv2d(5, 6, 3, stride=2, padding=1, **DOUBLE),
        nn.Softplus(),
        nn.Flatten(),
        nn.Linear(6 * 16, 4, **DOUBLE),
    )


def spiking_net(batch_first: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    options = {"tau_m": 8.0, "tau_s": 4.0, "batch_first": batch_first, **DOUBLE}
    return nn.Sequential(
        snnlib.SRMConv2d(2, 6, 3, padding=1, **options),
        snnlib.SpikeAvgPool2d(2),
        nn.Flatten(2),
        snnlib.SRMLinear(6 * 16, 5, **options),
    )


def events(rng: torch.Generator, samples: int = 3) -> Tensor:
    return (torch.rand(12, samples, 2, 8, 8, generator=rng) < 0.3).double()


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


# Spikes


def test_credit_of_one_channel_is_the_answers_spike_count(rng: torch.Generator) -> None:
    """Layers keep sums of gradients, so alpha is the class's spike count over the cells of the train."""
    torch.manual_seed(1)
    options = {"tau_m": 8.0, "tau_s": 4.0, **DOUBLE}
    conv = snnlib.SRMConv2d(2, 1, 3, padding=1, **options)
    net = nn.Sequential(conv, nn.Flatten(2), snnlib.SRMLinear(64, 3, **options))
    with torch.no_grad():
        conv.weight.abs_()
        net[2].weight.abs_()
    x = events(rng)
    counts = net(x).sum(0)
    assert bool((counts > 0).all())
    with GradCAM(net, conv, normalize=False, time="per_step") as cam:
        maps = cam(x, 2)
    expected = counts[:, 2, None, None] / (12 * 64) * conv(x)[:, :, 0]
    torch.testing.assert_close(maps, expected, rtol=1e-10, atol=1e-12)


def test_batch_first_nets_give_the_same_maps(rng: torch.Generator) -> None:
    net, other, x = spiking_net(), spiking_net(batch_first=True), events(rng)
    with GradCAM(net, net[0], time="per_step") as cam:
        maps = cam(x)
    with GradCAM(other, other[0], time="per_step", layout="NTCHW") as cam:
        swapped = cam(x.transpose(0, 1))
    assert float(maps.amax()) == 1
    torch.testing.assert_close(swapped.transpose(0, 1), maps, rtol=1e-12, atol=1e-14)


def test_a_silent_answer_has_no_map(rng: torch.Generator) -> None:
    net = spiking_net()
    net[3].weight.data.neg_().clamp_(max=0)
    with GradCAM(net, net[0]) as cam:
        assert_bits(cam(events(rng)), torch.zeros(3, 8, 8, **DOUBLE))


class TimeGradients(nn.Module):
    """A spiking net whose score goes through a reversal of sign, as nets with gradients dL/dt do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = spiking_net()

    def forward(self, x: Tensor) -> Tensor:
        spikes = self.net(x)
        return 2 * spikes.detach() - spikes


def test_time_gradients_negate_alpha(rng: torch.Generator) -> None:
    reversed_net, x = TimeGradients(), events(rng)
    with GradCAM(reversed_net.net, reversed_net.net[0]) as cam:
        expected = cam(x)
    with GradCAM(reversed_net, reversed_net.net[0], time_gradients=True) as cam:
        assert_bits(cam(x), expected)
    with GradCAM(reversed_net, reversed_net.net[0]) as cam:
        assert not torch.equal(cam(x), expected)


def test_layers_of_the_papers_code_need_no_reversal_under_a_plain_score(rng: torch.Generator) -> None:
    """Input gradients are linear in the answer's, whatever its sign means; only a `LossReverse` turns alpha over."""
    options = {"tau_m": 5.0, "tau_s": 3.0, "tau_grad": 2.5, "batch_first": True}
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 6, 3, padding=1, **options), nn.Flatten(2), snnlib.SRMLinear(384, 5, **options)
    )
    papers = nn.Sequential(
        snnlib.compat.srmConv2d(2, 6, 3, padding=1),
        nn.Flatten(2),
        snnlib.compat.srmLinear(384, 5, weight_norm=False),
    )
    for layer in (0, 2):
        papers[layer].weight = net[layer].weight
    x = events(rng).float().transpose(0, 1)
    labels = net(x).sum(1).argmax(1)
    with GradCAM(net, net[0], layout="NTCHW") as cam:
        expected = cam(x, labels)
    assert float(expected.amax()) == 1
    with GradCAM(papers, papers[0], layout="NTCHW") as cam:
        torch.testing.assert_close(cam(x, labels), expected)
    with GradCAM(papers, papers[0], layout="NTCHW", time_gradients=True) as cam:
        each = range(len(x))
        maps = cam(x, lambda spikes: snnlib.compat.LossReverse.apply(spikes).sum(1)[each, labels])
        torch.testing.assert_close(maps, expected)


# Targets


def test_targets_per_sample_are_the_single_ones(rng: torch.Generator) -> None:
    net, x = conv_net(), torch.rand(3, 2, 8, 8, generator=rng, **DOUBLE)
    with GradCAM(net, net[3]) as cam:
        each = torch.stack([cam(x, label) for label in range(4)])
        labels = torch.tensor([3, 0, 1], dtype=torch.uint8)
        assert_bits(cam(x, labels), each[labels.long(), range(3)])
        assert_bits(cam(x), each[net(x).argmax(1), range(3)])
        assert_bits(cam(x, lambda answer: answer[range(3), labels.long()]), cam(x, labels))


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


# What a call leaves behind


def hooks(net: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._backward_hooks) for module in net.modules())


def test_hooks_are_there_within_the_block_only() -> None:
    net = conv_net()
    cam = GradCAM(net, net[3])
    with pytest.raises(KeyError), cam:
        assert hooks(net) == 1
        raise KeyError
    assert hooks(net) == 0
    with cam, cam:
        assert hooks(net) == 1
    assert hooks(net) == 0
    with pytest.raises(RuntimeError, match="expected a call within `with GradCAM"):
        cam(torch.zeros(1, 2, 8, 8, **DOUBLE))


def test_no_grad_is_touched_and_flags_come_back(rng: torch.Generator) -> None:
    net = conv_net().train()
    net[2].eval()
    x = torch.rand(2, 2, 8, 8, generator=rng, **DOUBLE, requires_grad=True)
    first = net[0].weight
    first.grad = torch.ones_like(first)
    with GradCAM(net, net[3]) as cam:
        maps = cam(x)
        with pytest.raises(ValueError, match="target: expected classes"):
            cam(x, 4)
    assert not maps.requires_grad
    assert x.grad is None
    assert_bits(first.grad, torch.ones_like(first))
    assert all(parameter.grad is None for parameter in net.parameters() if parameter is not first)
    assert [module.training for module in net] == [True, True, False, True, True, True]


def test_runs_in_evaluation_mode(rng: torch.Generator) -> None:
    """Dropout is off and batch statistics stay."""
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 3)
    )
    x = torch.rand(2, 1, 6, 6, generator=rng)
    with GradCAM(net, net[0]) as cam:
        assert_bits(cam(x, 0), cam(x, 0))
    assert int(net[1].num_batches_tracked) == 0
    assert net.training


def test_works_without_grad_mode_and_with_frozen_weights(rng: torch.Generator) -> None:
    net, x = spiking_net(), events(rng)
    with GradCAM(net, net[0]) as cam:
        expected = cam(x)
        with torch.no_grad():
            assert_bits(cam(x), expected)
        with torch.inference_mode():
            assert_bits(cam(x.clone()), expected)
        net.requires_grad_(False)
        assert_bits(cam(x), expected)


def test_in_place_operations_after_the_layer_do_not_count(rng: torch.Generator) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(75, 2)]
    net, other = nn.Sequential(*layers), nn.Sequential(layers[0], nn.ReLU(inplace=True), *layers[2:])
    x = torch.randn(2, 1, 5, 5, generator=rng)
    with GradCAM(net, net[0]) as cam, GradCAM(other, other[0]) as in_place:
        assert_bits(in_place(x), cam(x))


def test_the_models_own_calls_are_left_alone(rng: torch.Generator) -> None:
    """A training step within the block is one as any other."""
    net, x = conv_net(), torch.rand(2, 2, 8, 8, generator=rng, **DOUBLE)
    with GradCAM(net, net[3]):
        net(x).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_keeps_no_tensor(rng: torch.Generator) -> None:
    net, x = conv_net(), torch.rand(2, 2, 8, 8, generator=rng, **DOUBLE)
    seen: list[weakref.ref[Tensor]] = []
    for module in net:
        module.register_forward_hook(lambda _module, _inputs, output: seen.append(weakref.ref(output)))
    with GradCAM(net, net[3]) as cam:
        seen.append(weakref.ref(cam(x)))
        gc.collect()
        # One per layer, the map, and none of them alive.
        assert [reference() for reference in seen] == [None] * 7


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


# Transformers


class Attention(nn.Module):
    """A block of a vision transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class ViT(nn.Module):
    def __init__(self, class_token: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8)) if class_token else None
        self.places = nn.Parameter(torch.randn(1, 16 + class_token, 8))
        self.blocks = nn.Sequential(Attention(8), Attention(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            tokens = torch.cat([self.token.expand(len(x), 1, 8), tokens], 1)
        tokens = self.blocks(tokens + self.places)
        return self.head(tokens.mean(1) if self.token is None else tokens[:, 0])


def test_transformer_with_mean_pooled_tokens(rng: torch.Generator) -> None:
    net, x = ViT(class_token=False), torch.rand(3, 3, 16, 16, generator=rng)
    with GradCAM(net, net.blocks[-1]) as cam:
        maps = cam(x)
    assert maps.shape == (3, 16, 16)
    assert maps.amax((1, 2)).tolist() == [1, 1, 1]


def test_transformer_whose_head_reads_the_class_token(rng: torch.Generator) -> None:
    net, x = ViT(class_token=True), torch.rand(3, 3, 16, 16, generator=rng)
    with (
        GradCAM(net, net.blocks[-1]) as cam,
        pytest.raises(ValueError, match=r"all patch gradients are 0; choose .* blocks\[-1\]\.norm1"),
    ):
        cam(x)
    with GradCAM(net, net.blocks[-1].norm1) as cam:
        assert cam(x).amax((1, 2)).tolist() == [1, 1, 1]


# Errors


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
        (lambda net, x: net.other(x), r"expected one call of it per forward pass, got 0"),
        (lambda net, x: net.layer(x) + net.layer(x), r"expected one call of it per forward pass, got 2"),
        (lambda net, x: net.layer(x).detach(), r"expected a layer that the score depends on, got a Conv2d that"),
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


def test_labels_of_many_classes_in_small_integers() -> None:
    """256 as uint8 would be 0."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 256))
    labels = torch.tensor([3, 250], dtype=torch.uint8)
    x = torch.ones(2, 1, 5, 5)
    with GradCAM(net, net[0]) as cam:
        assert_bits(cam(x, labels), cam(x, labels.long()))
