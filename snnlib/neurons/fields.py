"""Arguments of neuron models, declared one line each.

A model declares its arguments as annotated class attributes::

    class LIF(SpikingNeuron):
        tau: Constant = constant(default=2.0, check=check_tau, kw_only=False)
        decay_input: bool = option(default=True)
        dialects = {"snntorch": {"decay_input": False}}

The signature of `__init__`, its checks, the attributes, `repr`, `config` and the names that a dialect may set follow
from these lines. `typing.dataclass_transform` lets type checkers and editors read the same lines, so each default is
written once. In a handwritten `__init__` all defaults would be None, because a dialect replaces the arguments that
were not given. The generated `__init__` knows which arguments were given, and its signature shows the defaults without
a dialect.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from snnlib.checks import check_choice, check_flag, check_options, hints_of
from snnlib.neurons.checks import check_numbers, finite_number

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron

    class Constant:
        """A constant: given as a number or one value per channel, kept as a tensor `[]` or `[C]`."""

        def __get__(self, neuron: Any, model: Any) -> Tensor: ...

        def __set__(self, neuron: Any, value: float | Tensor) -> None: ...
else:
    Constant = float | Tensor

# Takes an argument's name and value, and gives the value to keep or raises.
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Field:
    """Declaration of one argument; `depth` grows from base classes to subclasses."""

    default: Any
    check: Check | None = None
    constant: bool = False
    kw_only: bool = True
    # True for an argument; a model whose value is fixed has it as an attribute alone.
    init: bool = True
    repr: bool = True
    # Values that other options must have, unless this one has its default.
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The argument's name where the attribute has another one.
    alias: str | None = None
    annotation: Any = None
    depth: int = 0

    @property
    def kept(self) -> bool:
        """Returns whether the argument becomes an attribute of the neuron."""
        return not isinstance(self.annotation, InitVar)

    @property
    def type(self) -> Any:
        """The type of the argument."""
        return self.annotation.type if isinstance(self.annotation, InitVar) else self.annotation


def constant(
    *, default: Any, check: Check | None = None, kw_only: bool = True, alias: str | None = None
) -> Any:
    """Declares a constant: a number or one value per channel, in the `state_dict`, learnable; None switches it off."""
    return Field(default, check, constant=True, kw_only=kw_only, alias=alias)


def option(
    *,
    default: Any,
    check: Check | None = None,
    kw_only: bool = True,
    repr: bool = True,
    beside: Mapping[str, Any] | None = None,
) -> Any:
    """Declares an option, checked by its type if flag or number; a redeclared one keeps its check and position.

    `beside` gives the values that other options need whenever this one differs from its default: `{"levels": 1}`.
    """
    return Field(default, check, kw_only=kw_only, repr=repr, beside=beside or {})


def fixed(value: Any, *, constant: bool = False, init: Literal[False] = False) -> Any:
    """Declares an attribute with this or a derived value, which is an argument of other models only."""
    return Field(value, constant=constant, init=init)


@dataclass(frozen=True)
class OneOf:
    """Check that a value is one of several words."""

    choices: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> str:
        """Returns the value if it is one of the words."""
        return check_choice(name, value, *self.choices)


def one_of(*choices: str) -> OneOf:
    """Returns a check that a value is one of these words."""
    return OneOf(choices)


_BY_TYPE: dict[Any, Check] = {bool: check_flag, float: finite_number, float | None: finite_number}


def declare(model: type[Neuron]) -> None:
    """Collects the fields of a class, and generates its `__init__` unless it defines one."""
    # Mixins such as `ByEvent` come before the base that has the options.
    model.former = {
        name: meaning
        for base in reversed(model.__mro__)
        for name, meaning in vars(base).get("former", {}).items()
    }
    own = {name: field for name, field in vars(model).items() if isinstance(field, Field)}
    if not own:
        return
    annotations = inspect.get_annotations(model, eval_str=True)
    model.fields = _merged(model.fields, own, annotations, len(model.__mro__))
    for name in own:
        field = model.fields[name]
        # Constants are buffers or parameters, which no attribute of the class may hide.
        if field.kept and not field.constant:
            setattr(model, name, field.default)
        else:
            delattr(model, name)
    if "__init__" not in vars(model):
        model.__init__ = _constructor(model)  # type: ignore[method-assign]


def checked_values(model: type[Neuron], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of all fields, checked, from the arguments given and a dialect's defaults.

    Raises:
        ValueError: an unknown dialect, a value out of its range, or one that another option excludes.
    """
    dialect = given.get("dialect")
    if dialect is not None and dialect not in model.dialects:
        known = ", ".join(model.dialects)
        raise ValueError(f"dialect: expected one of {known}, got {dialect!r}")
    chosen = {**({} if dialect is None else model.dialects[dialect]), **given}
    values: dict[str, Any] = {}
    for name, field in model.fields.items():
        argument = field.alias or name
        value = chosen.get(argument, field.default)
        values[name] = value if value is None or field.check is None else field.check(argument, value)
    for name, field in model.fields.items():
        for other, needed in field.beside.items():
            if values[name] != field.default and values[other] != needed:
                given_so = f"{name}={values[name]!r}"
                raise ValueError(f"{other}: expected {needed!r} beside {given_so}, got {values[other]!r}")
    return values


def constant_fields(model: type[Neuron]) -> Sequence[str]:
    """Returns the constants, those of a model before those of its base classes."""
    names = [name for name, field in model.fields.items() if field.constant]
    return sorted(names, key=lambda name: -model.fields[name].depth)


def _merged(
    inherited: Mapping[str, Field], own: Mapping[str, Field], annotations: Mapping[str, Any], depth: int
) -> dict[str, Field]:
    """Returns the fields of a class, inherited ones first; a redeclared field keeps its position and check."""
    fields = dict(inherited)
    for name, field in own.items():
        annotation = annotations[name]
        before = fields.get(name)
        if before is not None and before.init >= field.init:
            check, beside = field.check or before.check, field.beside or before.beside
            kept = {"annotation": annotation, "depth": before.depth, "repr": before.repr}
            fields[name] = replace(field, check=check, beside=beside, **kept)
            continue
        # An argument that the classes below have fixed is the model's own.
        fields.pop(name, None)
        check = field.check or (check_numbers if field.constant else _BY_TYPE.get(annotation))
        fields[name] = replace(field, check=check, annotation=annotation, depth=depth)
    return fields


def _constructor(model: type[Neuron]) -> Callable[..., None]:
    """Returns an `__init__` with the signature of the model's fields."""
    signature = _signature(model)
    _, *names = signature.parameters
    first = [name for name in names if signature.parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY]

    def init(self: Neuron, *arguments: Any, **options: Any) -> None:
        # Not by `Signature.bind`, which the compiler does not know.
        check_options(model.__name__, options, names, hints_of(model, options))
        by_place = dict(zip(first, arguments, strict=False))
        for name in by_place.keys() & options.keys():
            raise TypeError(f"{model.__name__}: multiple values for argument {name!r}")
        if len(by_place) < len(arguments):
            expected = inspect.signature(model.__init__)
            raise TypeError(f"{model.__name__}: too many positional arguments, expected {expected}")
        self.build({**by_place, **options})

    init.__name__, init.__qualname__ = "__init__", f"{model.__qualname__}.__init__"
    init.__module__ = model.__module__
    init.__signature__ = signature  # type: ignore[attr-defined]
    return init


def _signature(model: type[Neuron]) -> inspect.Signature:
    """Returns the signature: constants before options, each time a model's own before those of its base classes."""
    # Who knows no other library's defaults has no option to choose them.
    absent = () if model.dialects else ("dialect",)
    fields = model.fields.items()
    given = [(field.alias or name, field) for name, field in fields if field.init and name not in absent]
    given.sort(key=lambda pair: (pair[1].kw_only, not pair[1].constant, -pair[1].depth))
    kinds = {True: inspect.Parameter.KEYWORD_ONLY, False: inspect.Parameter.POSITIONAL_OR_KEYWORD}
    parameters = [
        inspect.Parameter(name, kinds[field.kw_only], default=field.default, annotation=field.type)
        for name, field in given
    ]
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature([first, *parameters], return_annotation=None)
