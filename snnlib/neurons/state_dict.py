"""What modules have in files beside parameters and buffers: constants that are numbers, their reset, and a mark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from snnlib.checks import warn_caller

# An option that changes spikes and is no number: it is in the metadata of a `state_dict`, which `torch.save` keeps.
_RESET = "reset"
# A key of modules that `snnlib.prepare_` has prepared.
_PREPARED = "prepared"


class StoredConstants(nn.Module):
    """A module whose `state_dict` holds Python numbers as float64 scalars, beside its parameters and buffers.

    Constants of a file overwrite the module's.

    Attributes:
        prepared: what `snnlib.prepare_` left in the module; None in a new one, and in files without the word.
    """

    prepared: int | None = None

    def stored_numbers(self) -> dict[str, float]:
        """Constants that are Python numbers, by their key in the `state_dict`."""
        return {}

    def load_numbers(self, numbers: Mapping[str, float]) -> None:
        """Take over numbers by the same keys.

        Raises:
            ValueError: a number out of its range.
        """
        raise NotImplementedError

    def resizable(self) -> dict[str, int | None]:
        """Buffers that are one number or one per channel, with the number of channels where it is known.

        They take the shape that a file has: both mean the same where all channels agree, and keep every bit.
        """
        return {}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        own = getattr(destination, "_metadata", {}).get(prefix[:-1])
        if own is not None and isinstance(getattr(self, _RESET, None), str):
            own[_RESET] = getattr(self, _RESET)
        for name, value in self.stored_numbers().items():
            destination[prefix + name] = torch.tensor(value, dtype=torch.float64)
        if self.prepared is not None:
            destination[prefix + _PREPARED] = torch.tensor(self.prepared)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        stored = local_metadata.get(_RESET, getattr(self, _RESET, None))
        if stored != getattr(self, _RESET, None):
            warn_caller(
                f"load_state_dict: {prefix}{_RESET}: the weights are of neurons that are reset in another way, "
                f"{stored!r}, and the net keeps its own, {getattr(self, _RESET, None)!r}"
            )
        prepared = state_dict.pop(prefix + _PREPARED, None)
        self.prepared = None if prepared is None or prepared.is_meta else int(prepared)
        numbers = {name: state_dict.pop(prefix + name, None) for name in self.stored_numbers()}
        missing_keys += [prefix + name for name, one in numbers.items() if one is None]
        found = {name: float(one) for name, one in numbers.items() if one is not None and not one.is_meta}
        if found:
            try:
                self.load_numbers(found)
            except ValueError as error:
                error_msgs.append(f"{prefix}{error}")
        for name, channels in self.resizable().items():
            if prefix + name in state_dict:
                self._take_shape(name, state_dict[prefix + name].shape, channels)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _take_shape(self, name: str, shape: torch.Size, channels: int | None) -> None:
        own = getattr(self, name)
        both = {len(shape), own.dim()} == {0, 1}
        if both and (channels is None or not shape or shape[0] == channels):
            setattr(self, name, own.new_empty(shape))
