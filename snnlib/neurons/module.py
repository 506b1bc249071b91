"""Base of neurons and layers: checks names of options, and stores numbers in the `state_dict`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn

from snnlib.checks import FOREIGN_NAMES, check_options, warn_caller

# An option that changes spikes and is no number: it is in the metadata of a `state_dict`, which `torch.save` keeps.
_RESET = "reset"
# A key of modules that `snnlib.prepare_` has prepared.
_PREPARED = "prepared"


class CheckedModule(nn.Module):
    """A module whose unknown keyword arguments raise a TypeError with a hint, in all subclasses.

    Attributes of other libraries' layers raise torch's AttributeError with a hint. The `state_dict` holds Python
    numbers as float64 scalars, beside parameters and buffers; constants of a file overwrite the module's.

    Attributes:
        prepared: mark that `snnlib.prepare_` sets; None in a new module and in files without the mark.
    """

    option_hints: ClassVar[Mapping[str, str]] = {}
    prepared: int | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Returns the attribute; adds snnlib's counterpart to torch's error for names of other libraries."""
            try:
                return super().__getattr__(name)
            except AttributeError as error:
                if name in FOREIGN_NAMES:
                    raise AttributeError(f"{error}; {FOREIGN_NAMES[name]}", name=name, obj=self) from None
                raise

    def __new__(cls, *_args: Any, **options: Any) -> Self:
        """Checks names of options before `__init__` runs."""
        known = inspect.signature(cls.__init__).parameters
        if options and not any(option.kind is option.VAR_KEYWORD for option in known.values()):
            check_options(cls.__name__, options, [name for name in known if name != "self"], cls.option_hints)
        return super().__new__(cls)

    def stored_numbers(self) -> dict[str, float]:
        """Constants that are Python numbers, by their key in the `state_dict`."""
        return {}

    def load_numbers(self, numbers: Mapping[str, float]) -> None:
        """Sets numbers from the same keys of a `state_dict`.

        Raises:
            ValueError: a number out of its range.
        """
        raise NotImplementedError

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        own, reset = getattr(destination, "_metadata", {}).get(prefix[:-1]), getattr(self, _RESET, None)
        if own is not None and isinstance(reset, str):
            own[_RESET] = reset
        for name, value in self.stored_numbers().items():
            destination[prefix + name] = torch.tensor(value, dtype=torch.float64)
        if self.prepared is not None:
            destination[prefix + _PREPARED] = torch.tensor(self.prepared)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        _, missing_keys, _, error_msgs = rest
        own = getattr(self, _RESET, None)
        stored = local_metadata.get(_RESET, own)
        if stored != own:
            warn_caller(
                f"load_state_dict: {prefix}{_RESET}: the weights are of neurons that are reset in another way, "
                f"{stored!r}, and the net keeps its own, {own!r}"
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
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)
