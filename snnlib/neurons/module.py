"""Contents of neurons and layers besides tensors: checked names, and numbers in the `state_dict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from snnlib.checks import FOREIGN_NAMES, checks_options, warn_caller

# An option that changes spikes and is no number: it is in the metadata of a `state_dict`, which `torch.save` keeps.
_RESET = "reset"
# A key of modules that `snnlib.prepare_` has prepared.
_PREPARED = "prepared"

Kind = TypeVar("Kind", bound=type[nn.Module])


def checks_names(kind: Kind) -> Kind:
    """Class decorator: adds hints to the errors for unknown names, in the class and in its subclasses.

    Unknown keyword arguments raise TypeError with a hint of `kind.option_hints`, before `__init__` runs. Attributes of
    other libraries' modules raise torch's AttributeError with their counterpart here.
    """

    def find(self: nn.Module, name: str) -> Any:
        try:
            return nn.Module.__getattr__(self, name)
        except AttributeError as error:
            if "_parameters" not in vars(self):
                kind = type(self).__name__
                text = f"{kind}: expected super().__init__() at the beginning of {kind}.__init__, got no call of it"
                raise AttributeError(text) from None
            if name in FOREIGN_NAMES:
                raise AttributeError(f"{error}; {FOREIGN_NAMES[name]}", name=name, obj=self) from None
            raise

    checks_options(kind)
    made: Any = kind
    made.__getattr__ = find
    return kind


def in_present_options(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments or attributes from files with the options of `Neuron.former` replaced by present ones.

    Raises:
        ValueError: a removed option with another value than the one that the model has now.
    """
    present = {name: value for name, value in given.items() if name not in model.former}
    for name in given.keys() & model.former.keys():
        meaning = model.former[name]
        if callable(meaning):
            present |= meaning(given[name])
        elif given[name] != meaning:
            raise ValueError(
                f"{name}: expected {meaning!r}, which {model.__name__} always has now, got {given[name]!r}"
            )
    return present


def store_numbers(module: Any, stored: Any, prefix: str) -> None:
    """Adds to a `state_dict` what is no tensor: the numbers `stored_numbers`, the kind of reset, and `prepared`."""
    own, reset = getattr(stored, "_metadata", {}).get(prefix[:-1]), getattr(module, _RESET, None)
    if own is not None and isinstance(reset, str):
        own[_RESET] = reset
    for key, name in module.stored_numbers.items():
        value = getattr(module, name)
        stored[prefix + key] = torch.tensor(torch.inf if value is None else value, dtype=torch.float64)
    if module.prepared is not None:
        stored[prefix + _PREPARED] = torch.tensor(module.prepared)


def load_numbers(
    module: Any, state_dict: Any, prefix: str, metadata: Any, missing: list[str], errors: list[str]
) -> None:
    """Takes from a `state_dict` what `store_numbers` added, and warns of another kind of reset."""
    own = getattr(module, _RESET, None)
    stored = metadata.get(_RESET, own)
    if stored != own:
        warn_caller(
            f"load_state_dict: {prefix}{_RESET}: the weights are of neurons that are reset in another way, "
            f"{stored!r}, and the net keeps its own, {own!r}"
        )
    prepared = state_dict.pop(prefix + _PREPARED, None)
    module.prepared = None if prepared is None or prepared.is_meta else int(prepared)
    numbers = {key: state_dict.pop(prefix + key, None) for key in module.stored_numbers}
    missing += [prefix + key for key, one in numbers.items() if one is None]
    found = {key: float(one) for key, one in numbers.items() if one is not None and not one.is_meta}
    if found:
        try:
            module.load_numbers(found)
        except ValueError as error:
            errors.append(f"{prefix}{error}")


def move_keys(stored: Any, names: Iterable[str], old: str, new: str) -> None:
    """Gives keys of a `state_dict`, as far as it has them, another prefix."""
    for name in names:
        if old + name in stored:
            stored[new + name] = stored.pop(old + name)


def modules_within(module: nn.Module) -> list[nn.Module]:
    """Returns a module and all modules inside it, in a tenth of the time of `modules()`; a shared one comes twice."""
    found: list[nn.Module] = []
    waiting: list[nn.Module | None] = [module]
    while waiting:
        one = waiting.pop()
        if one is not None:
            found.append(one)
            waiting += reversed(one._modules.values())
    return found
