"""Constants of neurons in files: they are part of the `state_dict`, and loading other ones says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.checks import warn_caller

# Of a list of differences, those that are named one by one.
_NAMED = 8
# An option that changes spikes and is no number: it is in the metadata of a `state_dict`, which `torch.save` keeps.
_RESET = "reset"
# A key of modules that `snnlib.prepare_` has prepared.
_PREPARED = "prepared"
# The call of `load_state_dict` that was compared last, by the list that it gathers errors in.
_compared: list[str] | None = None


class StoredConstants(nn.Module):
    """A module with constants in the `state_dict`: Python numbers, as float64 scalars, and buffers.

    A file with other constants overwrites the module's and one warning per `load_state_dict` lists them. Files of
    version 0.1 have no numbers: the module keeps its own, and one warning says so.

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

    def stored_constants(self) -> dict[str, Tensor]:
        """All constants that are not learned, by key."""
        return {
            name: torch.tensor(value, dtype=torch.float64) for name, value in self.stored_numbers().items()
        }

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
        compare_once(self, state_dict, prefix, error_msgs)
        prepared = state_dict.pop(prefix + _PREPARED, None)
        self.prepared = None if prepared is None or prepared.is_meta else int(prepared)
        found: dict[str, float] = {}
        for name in self.stored_numbers():
            tensor = state_dict.pop(prefix + name, None)
            if tensor is not None and not tensor.is_meta:
                found[name] = float(tensor)
        if found:
            try:
                self.load_numbers(found)
            except ValueError as error:
                error_msgs.append(f"{prefix}{error}")
        for name, channels in self.resizable().items():
            stored = state_dict.get(prefix + name)
            if stored is not None:
                _take_shape(self, name, stored.shape, channels)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def _take_shape(module: nn.Module, name: str, shape: torch.Size, channels: int | None) -> None:
    own = getattr(module, name)
    both = {len(shape), own.dim()} == {0, 1}
    if both and (channels is None or not shape or shape[0] == channels):
        setattr(module, name, own.new_empty(shape))


def compare_once(module: StoredConstants, state_dict: Any, prefix: str, call: list[str]) -> None:
    """Compare all constants of the net that is being loaded, at the first of its modules, and warn of differences."""
    global _compared  # noqa: PLW0603
    if _compared is call:
        return
    _compared = call
    root, state = _loading() or (module, {key.removeprefix(prefix): state_dict[key] for key in state_dict})
    metadata = getattr(state, "_metadata", {})
    without: list[str] = []
    changed: list[str] = []
    resets: list[str] = []
    for name, part in root.named_modules():
        if isinstance(part, StoredConstants):
            start = f"{name}." if name else ""
            if _is_older(part, state, start):
                without.append(name or "net")
            changed += _differences(part, state, start)
            own, stored = getattr(part, _RESET, None), metadata.get(name, {}).get(_RESET)
            if stored is not None and own != stored:
                resets.append(f"{start}reset {stored!r} (the net has {own!r})")
    if without:
        warn_caller(
            "load_state_dict: expected constants of neurons beside the weights, got a file without them, as version "
            f"0.1 wrote them; the net keeps its own in {_list(without)}"
        )
    if resets:
        warn_caller(
            "load_state_dict: the weights are of neurons that are reset in another way, and the net keeps its own: "
            + _list(resets)
        )
    if changed:
        warn_caller(
            "load_state_dict: the file has other constants of neurons than the net, which takes them over: "
            + _list(changed)
        )


def _loading() -> tuple[nn.Module, Mapping[str, Tensor]] | None:
    """Net and state of the call of `load_state_dict` that is running; None where modules are loaded otherwise."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is nn.Module.load_state_dict.__code__:
            return frame.f_locals["self"], frame.f_locals["state_dict"]
        frame = frame.f_back
    return None


def _is_older(part: StoredConstants, state: Mapping[str, Tensor], start: str) -> bool:
    """Returns whether the file has a weight of the module, but none of its numbers."""
    numbers = part.stored_numbers()
    stored = any(key.startswith(start) and tensor.dim() > 1 for key, tensor in state.items())
    return bool(numbers) and stored and not any(start + name in state for name in numbers)


def _differences(part: StoredConstants, state: Mapping[str, Tensor], start: str) -> Iterator[str]:
    for name, own in part.stored_constants().items():
        stored = state.get(start + name)
        if stored is None or stored.is_meta or own.is_meta:
            continue
        ours, theirs = own.detach().double().cpu(), stored.detach().double().cpu()
        fits = ours.shape == theirs.shape or 0 in (ours.dim(), theirs.dim())
        if fits and not bool((ours == theirs).all()):
            yield f"{start}{name} {_shown(theirs)} (was {_shown(ours)})"


def _shown(value: Tensor) -> str:
    return f"{float(value):g}" if value.numel() == 1 else f"[{value.numel()} values]"


def _list(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
