"""Surrogate gradients, which replace the derivative of the spike in the backward pass.

A spike is a step function of `u = h - threshold`, whose derivative is zero almost everywhere. In the backward pass
`ds/du` is replaced by a bump around the threshold::

    ds/du = height * f(scale * u),    f(0) = 1

`width` is in units of the threshold (the half width of a compact surrogate); `alpha` and `slope`, the names of other
libraries, are in units of the membrane potential. All formulas use `+ - * /` only, so that every instruction set, CUDA
and this file give the same bits.

Compact surrogates (`Triangle`, `Rectangle`) are exactly zero away from the threshold, so the backward pass of an
event-driven layer costs what its active steps cost: with half widths of 0.25 to 0.5 thresholds 2.5 to 15 % of them, at
no measurable loss of accuracy. Widths of 1 and above make silent neurons (potential 0) active.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from snnlib.backends.surrogate import SHAPES, exp_minus
from snnlib.checks import check_positive_number
from snnlib.neurons.trace import Traced

__all__ = [
    "ATan",
    "Erf",
    "EveryThreshold",
    "Exponential",
    "FastSigmoid",
    "Gaussian",
    "MultiGaussian",
    "PiecewiseQuadratic",
    "Rect",
    "Rectangle",
    "Sigmoid",
    "SoftSign",
    "StraightThrough",
    "SuperSpike",
    "Surrogate",
    "Triangle",
]

# Half width of compact surrogates in thresholds: 6 to 15 % of neuron-steps active.
_WIDTH = 0.5


class Surrogate:
    """Base of surrogates `height * f(scale * u)` with a shape f that runs natively."""

    kind: ClassVar[str]
    # Place of the bump for neurons with several levels: at the first threshold alone, at every one, or spread from the
    # first to the last.
    spread: ClassVar[Literal["first", "every", "flat"]] = "first"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(height, scale)` for a neuron's threshold, in units of the membrane potential."""
        raise NotImplementedError

    @property
    def has_shape(self) -> bool:
        """Returns whether the kernels know the shape for these arguments; else neurons run as a program of `step`."""
        return True

    def derivative(self, u: Tensor, threshold: Tensor) -> Tensor:
        """`ds/du` at `u = h - threshold`, for neurons with several levels the distance that `spread` asks for."""
        height, scale = self.coefficients(threshold)
        if isinstance(u, Traced):
            return u.bump(self.kind, scale, height)
        return height * SHAPES[self.kind]((u * scale).abs())


# A surrogate of `snnlib.surrogate`, or a user's own function from `u = h - threshold` to `ds/du`.
SurrogateLike = Surrogate | Callable[[Tensor], Tensor]


class _Positive(Surrogate):
    """Surrogate whose arguments are finite numbers above 0."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None:
                check_positive_number(name, value)


@dataclass(frozen=True)
class _ByWidth(Surrogate):
    width: float = _WIDTH
    height: float = 1.0

    def __post_init__(self) -> None:
        check_positive_number("width", self.width)
        if self.height != 0:
            check_positive_number("height", self.height)

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full_like(threshold, self.height), 1 / (self.width * threshold)


class Triangle(_ByWidth):
    """`height * max(0, 1 - |u| / w)` with the half width `w = width * threshold`.

    Args:
        width: half width in thresholds. Default 0.5.
        height: peak. Default 1; recurrent nets need less than 1 (0.4 trains where 1 gave NaN). With 0 no gradient
            passes through spikes, as with snnTorch's `surrogate_disable`; gradients through potentials stay.

    >>> import torch
    >>> from snnlib.surrogate import Triangle
    >>> Triangle().derivative(torch.tensor([-0.5, -0.25, 0.0, 0.25]), torch.tensor(1.0)).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """

    kind: ClassVar[str] = "triangle"


class Rectangle(_ByWidth):
    """`height` where `|u| < width * threshold`, else 0. Defaults as in `Triangle`."""

    kind: ClassVar[str] = "rectangle"


@dataclass(frozen=True)
class PiecewiseQuadratic(_Positive):
    """`max(0, alpha - alpha^2 |u|)`: SpikingJelly's name for a triangle of half width and inverse height `1/alpha`."""

    alpha: float = 1.0
    kind: ClassVar[str] = "triangle"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(alpha, alpha)`."""
        return _pair(threshold, self.alpha, self.alpha)


def _pair(like: Tensor, height: float, scale: float) -> tuple[Tensor, Tensor]:
    return torch.full_like(like, height), torch.full_like(like, scale)


@dataclass(frozen=True)
class Rect(_Positive):
    """`alpha` where `|u| < 0.5 / alpha`, else 0: SpikingJelly's rectangle."""

    alpha: float = 1.0
    kind: ClassVar[str] = "rectangle"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(alpha, 2 alpha)`."""
        return _pair(threshold, self.alpha, 2 * self.alpha)


@dataclass(frozen=True)
class ATan(_Positive):
    """`(alpha / 2) / (1 + (pi alpha u / 2)^2)`. Default 2, as in snnTorch and SpikingJelly.

    >>> import torch
    >>> from snnlib.surrogate import ATan
    >>> ATan().derivative(torch.zeros(1), torch.ones(())).tolist()
    [1.0]
    """

    alpha: float = 2.0
    kind: ClassVar[str] = "atan"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(alpha / 2, pi alpha / 2)`."""
        return _pair(threshold, self.alpha / 2, torch.pi * self.alpha / 2)


@dataclass(frozen=True)
class FastSigmoid(_Positive):
    """`1 / (1 + slope |u|)^2`. Default 25, as in snnTorch."""

    slope: float = 25.0
    kind: ClassVar[str] = "fast_sigmoid"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(1, slope)`."""
        return _pair(threshold, 1.0, self.slope)


@dataclass(frozen=True)
class SoftSign(_Positive):
    """`(alpha / 2) / (1 + alpha |u|)^2`: SpikingJelly's SoftSign. Default 2."""

    alpha: float = 2.0
    kind: ClassVar[str] = "fast_sigmoid"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(alpha / 2, alpha)`."""
        return _pair(threshold, self.alpha / 2, self.alpha)


@dataclass(frozen=True)
class SuperSpike(_Positive):
    """`alpha / (1 + |u|)^2`: the SuperSpike of SpikingJelly and Norse, whose width ignores alpha. Default 1."""

    alpha: float = 1.0
    kind: ClassVar[str] = "fast_sigmoid"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(alpha, 1)`."""
        return _pair(threshold, self.alpha, 1.0)


@dataclass(frozen=True)
class Sigmoid(_Positive):
    """Derivative of `sigmoid(alpha u)`: `alpha e / (1 + e)^2`, `e = exp(-alpha |u|)`. Default 4, SpikingJelly's."""

    alpha: float = 4.0
    kind: ClassVar[str] = "sigmoid"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(alpha / 4, alpha)`."""
        return _pair(threshold, self.alpha / 4, self.alpha)


@dataclass(frozen=True)
class Exponential(_Positive):
    """`height exp(-|u| / (width * threshold))`; `height` None is `1 / (width * threshold)`, sinabs' default.

    SLAYER's `(a c / 2) exp(-a |u|)` is `Exponential(width=1 / a, height=a * c / 2)` for a threshold of 1.
    """

    width: float = 0.5
    height: float | None = None
    kind: ClassVar[str] = "exponential"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Height and `1 / (width * threshold)`."""
        scale = 1 / (self.width * threshold)
        return (scale if self.height is None else torch.full_like(threshold, self.height)), scale


@dataclass(frozen=True)
class Erf(_Positive):
    """`(alpha / sqrt(pi)) exp(-(alpha u)^2)`. Default 2, SpikingJelly's."""

    alpha: float = 2.0
    kind: ClassVar[str] = "gaussian"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(alpha / sqrt(pi), alpha)`."""
        return _pair(threshold, self.alpha / torch.pi**0.5, self.alpha)


@dataclass(frozen=True)
class Gaussian(_Positive):
    """Normal density of standard deviation `sigma`, in units of the membrane potential. Default 0.5."""

    sigma: float = 0.5
    kind: ClassVar[str] = "gaussian"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`(1 / (sigma sqrt(2 pi)), 1 / (sigma sqrt 2))`."""
        return _pair(threshold, 1 / (self.sigma * (2 * torch.pi) ** 0.5), 1 / (self.sigma * 2**0.5))


@dataclass(frozen=True)
class MultiGaussian(Surrogate):
    """`gain [1.15 N(u; 0, .5) - .15 N(u; shift, 3) - .15 N(u; -shift, 3)]`, a bump with negative sides.

    N is the normal density. `shift` is 0.5 in Yin et al. 2021 (default) and 0 in Higuchi et al. 2024. With a nonzero
    shift neurons run as a program of `step`: the kernels know single bumps only.
    """

    gain: float = 0.5
    shift: float = 0.5
    kind: ClassVar[str] = "multi_gaussian"

    def __post_init__(self) -> None:
        check_positive_number("gain", self.gain)

    @property
    def has_shape(self) -> bool:
        """Returns whether the wide bumps coincide."""
        return self.shift == 0

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """The slope at u = 0, and `sqrt(2)`: the inverse width of the narrow bump."""
        narrow = 1.15 / 0.5
        wide = 0.3 / 3 * math.exp(-((self.shift / 3) ** 2) / 2)
        return _pair(threshold, self.gain * (narrow - wide) / math.sqrt(2 * math.pi), math.sqrt(2))

    def derivative(self, u: Tensor, threshold: Tensor) -> Tensor:
        """See `Surrogate.derivative`."""
        return super().derivative(u, threshold) if self.has_shape else self(u)

    def __call__(self, u: Tensor) -> Tensor:
        """`ds/du`."""

        def normal(center: float, sigma: float) -> Tensor:
            z = (u - center) / sigma
            density: Tensor = exp_minus(z * z / 2) / (sigma * (2 * torch.pi) ** 0.5)
            return density

        sides = normal(self.shift, 3) + normal(-self.shift, 3)
        return self.gain * (1.15 * normal(0, 0.5) - 0.15 * sides)


@dataclass(frozen=True)
class _Spread(Surrogate):
    bump: Surrogate

    def __post_init__(self) -> None:
        if not isinstance(self.bump, Surrogate) or isinstance(self.bump, _Spread) or not self.bump.has_shape:
            raise TypeError(
                f"bump: expected a single bump of snnlib.surrogate, such as Triangle(), got {self.bump!r}"
            )

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The shape of the bump."""
        return self.bump.kind

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """See `Surrogate.coefficients`."""
        return self.bump.coefficients(threshold)


_UP_TO_THE_NEXT = Rectangle(0.5)


@dataclass(frozen=True)
class EveryThreshold(_Spread):
    """`bump(h - k threshold)` with the threshold `k = 1, ..., levels` nearest to h, of neurons with several levels.

    With `level_rounding="round"` the thresholds stand half a threshold lower. At one level it is the bump itself.

    Args:
        bump: a surrogate of one threshold. Bumps wider than half a threshold are cut off halfway between two.

    >>> import torch, snnlib
    >>> from snnlib.surrogate import EveryThreshold, Triangle
    >>> neuron = snnlib.neurons.IF(levels=2, level_rounding="floor", surrogate=EveryThreshold(Triangle(0.5)))
    >>> h = torch.tensor([0.25, 0.75, 1.0, 1.5, 1.75, 2.0]).reshape(1, 6, 1).requires_grad_()
    >>> neuron(h).sum().backward()
    >>> h.grad.flatten().tolist()
    [0.0, 0.5, 1.0, 0.0, 0.5, 1.0]
    """

    spread = "every"


@dataclass(frozen=True)
class StraightThrough(_Spread):
    """`1 / threshold` from the first to the last level, and a bump of that height outside, of neurons with levels.

    ::

        ds/dh = f(scale d) / threshold,    d = h - threshold clamp(h / threshold, 1, levels)

    The default bump makes it `1 / threshold` where `1/2 < h / threshold < levels + 1/2`, and 0 elsewhere, so silent
    steps cost nothing in the backward pass. At one level it is the bump, as high as `1 / threshold`.

    Args:
        bump: the shape beyond the levels; `Exponential(0.5)` gives tails that wake silent neurons. Its own height is
            not used. Default `Rectangle(0.5)`.

    Source: Bengio et al., "Estimating or propagating gradients through stochastic neurons for conditional
    computation", 2013; with levels Luo et al., "Integer-valued training and spike-driven inference", ECCV 2024.

    >>> import torch, snnlib
    >>> h = torch.tensor([0.25, 0.75, 2.5, 4.25, 4.75]).reshape(1, 5, 1).requires_grad_()
    >>> s = snnlib.neurons.IF(levels=4)(h)
    >>> s.sum().backward()
    >>> s.flatten().tolist(), h.grad.flatten().tolist()
    ([0.0, 1.0, 3.0, 4.0, 4.0], [0.0, 1.0, 1.0, 1.0, 0.0])
    """

    bump: Surrogate = _UP_TO_THE_NEXT
    spread = "flat"

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """`1 / threshold` and the scale of the bump."""
        return 1 / threshold, self.bump.coefficients(threshold)[1]
