"""Tests a heat map by occlusion: removes the hottest events and measures the fall of the net's score."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from snnlib.explain.score import Target, class_scores, scores_of
from snnlib.structure.layers import evaluating


@dataclass(frozen=True)
class Occlusion:
    """Occlusion maps: how much a score falls when events are removed.

    Args:
        hottest: fall of the score without the hottest events `[N]`.
        random: fall without as many events chosen at random, mean over the draws `[N]`.
        fraction: share of each sample's events that was removed.
    """

    hottest: Tensor
    random: Tensor
    fraction: float

    def difference(self) -> tuple[float, float]:
        """Mean of `hottest - random` over the samples and its standard error (NaN for one sample)."""
        gap = (self.hottest - self.random).double()
        error = float(gap.std() / len(gap) ** 0.5) if len(gap) > 1 else math.nan
        return float(gap.mean()), error

    def __str__(self) -> str:
        (gap, error), count = self.difference(), len(self.hottest)
        spread = f"means over {count} samples; difference {gap:.3g} +- {error:.2g}"
        return (
            f"without the hottest {self.fraction:.0%} of the events the score falls by "
            f"{float(self.hottest.mean()):.3g}, without as many random events by {float(self.random.mean()):.3g} "
            f"({spread if count > 1 else 'one sample'})"
        )


@torch.no_grad()
def occlusion_test(
    model: nn.Module,
    x: Tensor,
    maps: Tensor,
    target: Target = None,
    *,
    fraction: float = 0.1,
    draws: int = 5,
    batch_first: bool = False,
    seed: int = 0,
) -> Occlusion:
    """Compares the fall of the score without the hottest events with the fall without random events.

    If a heat map shows what the net uses, removing the hottest events lowers the score much more than removing random
    ones. An event is a nonzero input value, with the heat of its step and pixel. Ties are broken at random. The model
    runs in evaluation mode.

    Args:
        model: the net; its output is as in `GradCAM`.
        x: input `[T, N, C, H, W]`.
        maps: heat `[T, N, H, W]`, as `GradCAM(..., time="per_step")` gives it.
        target: the score to watch, as in `GradCAM`: a class, one class per sample `[N]`, a function of the model's
            output that gives `[N]`, or None for the class with the highest score of the whole input.
        fraction: share of the events of each sample to remove, in (0, 1). Default a tenth.
        draws: random choices to average over.
        batch_first: whether `x` and `maps` are `[N, T, ...]`.
        seed: of the random choices.

    Raises:
        ValueError: shapes that do not fit, or a fraction outside (0, 1).

    >>> import torch, snnlib
    >>> net = snnlib.SRMReadout(16, 2)
    >>> with torch.no_grad():
    ...     _ = net.weight.copy_(torch.arange(16.0) / 16)
    >>> x = (torch.rand(20, 4, 1, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    >>> heat = net.weight[0].detach().view(4, 4).expand(20, 4, 4, 4)
    >>> result = snnlib.explain.occlusion_test(net, x, heat, target=0)
    >>> bool((result.hottest > result.random).all())
    True
    """
    if x.dim() != 5 or maps.shape != (*x.shape[:2], *x.shape[3:]):
        raise ValueError(
            f"maps: expected [T, N, H, W] for x [T, N, C, H, W] = {tuple(x.shape)}, got {tuple(maps.shape)}"
        )
    if not 0 < fraction < 1:
        raise ValueError(f"fraction: expected a share above 0 and below 1, got {fraction}")
    layout = "NTCHW" if batch_first else "TNCHW"
    samples = x.shape[0 if batch_first else 1]
    with evaluating(model):
        whole = model(x)
        if target is None:
            # The class that wins with all events is watched, whatever wins without some of them.
            target = class_scores(whole, layout).argmax(1)
        before = scores_of(whole, target, layout, samples).flatten()
        heat = maps.unsqueeze(2).expand_as(x)
        generator = torch.Generator(x.device).manual_seed(seed)

        def fall(order: Tensor) -> Tensor:
            kept = _without_first(x, order, fraction, batch_first, generator)
            return before - scores_of(model(kept), target, layout, samples).flatten()

        hottest = fall(heat)
        noise = [fall(torch.zeros_like(heat)) for _ in range(draws)]
    return Occlusion(hottest.cpu(), torch.stack(noise).mean(0).cpu(), fraction)


def _without_first(
    x: Tensor, order: Tensor, fraction: float, batch_first: bool, generator: torch.Generator
) -> Tensor:
    """`x` without the events of each sample that come first in falling `order`, ties at random."""
    time_last = x if batch_first else x.transpose(0, 1)
    events = time_last.reshape(time_last.shape[0], -1)
    rank_by = (order if batch_first else order.transpose(0, 1)).reshape(events.shape).float()
    # A random order first, which the stable sort by heat keeps among equals.
    shuffled = torch.rand(events.shape, generator=generator, device=x.device).argsort(1)
    hot_first = rank_by.masked_fill(events == 0, -torch.inf).gather(1, shuffled)
    places = shuffled.gather(1, hot_first.argsort(dim=1, descending=True, stable=True))
    removed = ((events != 0).sum(1) * fraction).round().long()
    rank = torch.empty_like(places).scatter_(
        1, places, torch.arange(events.shape[1], device=x.device).expand_as(places)
    )
    kept = (events * (rank >= removed.unsqueeze(1))).view_as(time_last)
    return kept if batch_first else kept.transpose(0, 1)
