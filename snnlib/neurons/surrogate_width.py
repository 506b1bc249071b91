"""Widths of surrogates that keep to a share of active steps: a neuron measures the share, and its width follows."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from snnlib.neurons.base import Neuron, Output, Params
from snnlib.neurons.surrogate import SurrogateLike, Triangle

# Of the ratio of target and share: it holds 2, 5 and 10 % within a few tenths after some tens of batches.
_EXPONENT = 0.2
_MOST_CHANGE = 1.25
_NARROWEST, _WIDEST = 1e-3, 10.0


class OwnWidth(Neuron):
    """Neurons whose surrogate may have a target share: its width is then a constant of the neuron, which moves."""

    surrogate: SurrogateLike
    target_share: float | None
    # Shares of active steps while they are measured, and that of the last batch.
    _active: list[Tensor] | None = None
    last_share: Tensor | None = None

    def surrogate_of(self, params: Params) -> SurrogateLike:
        """The surrogate, with the neuron's own width where it has a target share."""
        if self.target_share is None:
            return self.surrogate
        return cast(Triangle, self.surrogate).at_width(params["surrogate_width"])

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """See `Neuron.run`; in training the share of active steps is measured where it has a target."""
        if lengths is None and self.wants_share and torch.is_grad_enabled():
            self.measure_share(x.detach())
        return super().run(x, state, lengths)

    def stored_constants(self) -> dict[str, Tensor]:
        """As in `Neuron`, without the width that follows the share: files bring another one without a note."""
        constants = super().stored_constants()
        constants.pop("surrogate_width", None)
        return constants

    @property
    def wants_share(self) -> bool:
        """Returns whether the share of active steps of a forward pass is to be noted."""
        return self.target_share is not None and self.training and not torch.compiler.is_compiling()

    def note_share(self, share: Tensor) -> None:
        """Keep the share of active steps of the last batch for `surrogate.update_widths_`."""
        self.last_share = share.double()

    @torch.no_grad()
    def measure_share(self, x: Tensor) -> None:
        """By `step` on the first sample: the scan's kernel gives no potentials."""
        batch_dim = 0 if self.batch_first else 1
        if not x.numel():
            return
        self._active = []
        try:
            self.reference(x.narrow(batch_dim, 0, 1))
            self.note_share(torch.stack(self._active).mean())
        finally:
            self._active = None

    def note_active(self, distance: Tensor, unit: Tensor, params: Params) -> None:
        """Takes down the share of active steps by the distance from the threshold, while shares are measured."""
        if self._active is not None:
            width = params["surrogate_width"] * unit.detach()
            self._active.append((distance.detach().abs() < width).double().mean())


@torch.no_grad()
def update_widths_(net: nn.Module) -> dict[str, float]:
    """Move the widths of surrogates with a target share, once after each step of the optimiser; in place.

    A step of a neuron is active where its surrogate is not zero. With the share of the last batch in training mode,
    averaged over the processes of `torch.distributed`::

        width <- width (target / share)^0.2          by a factor of 1.25 at most

    Nets with such surrogates give other gradients for a sequence in chunks or a batch in parts, as their widths follow
    what they have seen. In eval mode nothing is measured and nothing moves.

    Args:
        net: any module.

    Returns:
        The share of each neuron that was measured since the last call, by its name in the net.

    Source: widths and controller as measured for N-MNIST: shares of 5 to 10 % cost no accuracy that 300 samples show.

    >>> import torch, snnlib
    >>> lif = snnlib.neurons.LIF(surrogate=snnlib.surrogate.Triangle(share=0.05))
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(20, 30, neuron=lif))
    >>> optimizer = torch.optim.Adam(net.parameters())
    >>> hook = optimizer.register_step_post_hook(lambda *_: snnlib.surrogate.update_widths_(net))
    >>> for _ in range(3):
    ...     net((torch.rand(10, 4, 20) < 0.3).float()).sum().backward()
    ...     optimizer.step()
    >>> bool(lif.surrogate_width != 0.5)
    True
    """
    found: dict[str, float] = {}
    for name, module in net.named_modules():
        if not isinstance(module, OwnWidth) or module.target_share is None or module.last_share is None:
            continue
        width = module.get_buffer("surrogate_width")
        share = module.last_share.to(width.device)
        module.last_share = None
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(share)
            share = share / torch.distributed.get_world_size()
        # A batch without active steps widens it as far as one step may.
        ratio = module.target_share / share.clamp(min=1e-12)
        change = (ratio**_EXPONENT).clamp(1 / _MOST_CHANGE, _MOST_CHANGE)
        width.copy_((width * change).clamp(_NARROWEST, _WIDEST))
        found[name] = float(share)
    return found
