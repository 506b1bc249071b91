"""A weight stored at torch's usual scale, and multiplied by a gain for the scale that spikes need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from snnlib.neurons.module import checks_names, load_numbers, store_numbers
from snnlib.nn.weights.stored_weight import load_weight, standardization_of, steps_of, store_weight


@checks_names
class WeightWithGain(nn.Module):
    """A layer that computes with `effective_weight = weight * gain`.

    Weights that make neurons fire at low rates are 4 to 64 times larger than torch's usual weights, and a step of Adam
    at its usual rate of 1e-3 hardly changes them. `snnlib.prepare_` stores the weights at the usual scale and sets the
    buffer `gain` to a power of two: products with it are exact, and a step moves the effective weight `gain` times as
    far. The gain is 1 before `prepare_`, and one per output channel, `[C]`, after `snnlib.nn.fold_standardization_`.
    The `state_dict` contains `weight` even if it is standardised.
    """

    option_hints: ClassVar[Mapping[str, str]] = {}
    # As of `Neuron`.
    stored_numbers: ClassVar[Mapping[str, str]] = {}
    prepared: int | None = None
    weight: Tensor
    gain: Tensor
    # Modules that `extra_repr` speaks of, so that they are not printed apart.
    hidden_parts: ClassVar[tuple[str, ...]] = ()

    def register_gain(self) -> None:
        """Adds the buffer to a layer that has its `weight`."""
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        self.register_buffer("gain", torch.ones((), device=self.weight.device, dtype=dtype))

    @property
    def effective_weight(self) -> Tensor:
        """The weight that acts on the input, `weight * gain`, after `rounded`."""
        weight, gain = self.weight, self.gain
        if torch.compiler.is_compiling() or type(gain) is not Tensor or gain.dim() or not gain.is_cpu:
            return self.rounded(weight * self.weight_gain())
        # Read in every call, as a copy of the layer may be given another gain; on a GPU that would wait for the device.
        if torch._C._functorch.peek_interpreter_stack() is not None or gain.item() != 1:
            weight = weight * gain
        return self.rounded(weight)

    def rounded(self, weight: Tensor) -> Tensor:
        """Returns the weight that the layer computes with: the same, unless its neurons round weights."""
        return weight

    def weight_gain(self) -> Tensor:
        """Returns the gain in a shape that broadcasts with the weight."""
        return self.gain.reshape(-1, *[1] * (self.weight.dim() - 1)) if self.gain.dim() else self.gain

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Returns the `state_dict`, with `weight` and `standardization.*` in place of `parametrizations.*`."""
        stored = super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        store_weight(self, stored, prefix)
        return stored

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        store_numbers(self, destination, prefix)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        metadata, _, missing, _, errors = rest
        load_numbers(self, state_dict, prefix, metadata, missing, errors)
        load_weight(self, state_dict, prefix, errors)
        shape = state_dict.get(f"{prefix}gain", self.gain).shape
        # Shared or one per channel, as in the file.
        if shape != self.gain.shape and shape in ((), self.weight.shape[:1]):
            self.gain = self.gain.new_empty(shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __repr__(self) -> str:
        """Returns the repr of a plain layer, with a note if its weight is standardised."""
        step = standardization_of(self)
        if is_parametrized(self, "weight") and (step is None or len(steps_of(self)) > 1):
            return super().__repr__()
        text = self.extra_repr()
        if step is not None:
            learned = [name for name in ("gain", "bias") if getattr(step, name) is not None]
            text += ", standardised" + (f" with {' and '.join(learned)}" if learned else "")
        hidden = {"parametrizations", *self.hidden_parts}
        modules = {name: module for name, module in self._modules.items() if name not in hidden}
        shown: nn.Module = object.__new__(type_before_parametrizations(self))
        vars(shown).update(_modules=modules, extra_repr=lambda: text)
        return nn.Module.__repr__(shown)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles: the class that torch generates for a parametrized layer cannot be found by name."""
        if is_parametrized(self, "weight"):
            raise TypeError(
                "net: expected layers with plain weights, got one with a parametrization, which cannot be pickled; "
                "take torch.save(net.state_dict(), file), which loads into a plain net too"
            )
        return super().__reduce_ex__(protocol)
