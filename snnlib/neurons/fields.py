"""Arguments of neuron models, declared one line each.

A model writes down what it can be given as annotated class attributes::

    class LIF(SpikingNeuron):
        tau: Constant = constant(default=2.0, check=check_tau, kw_only=False)
        decay_input: bool = option(default=True)
        dialects = {"snntorch": {"decay_input": False}}

The signature of `__init__`, its checks, the attributes, `repr`, `config` and the names that a dialect may set follow
from these lines. `typing.dataclass_transform` makes type checkers and editors read the same lines, so that no default
stands twice. An explicit `__init__` could not show the defaults: where a dialect may set another one, it needs to know
what was not given, and its defaults would all be None. The `__init__` made here sees the arguments themselves, so the
defaults shown are those of a neuron without a dialect.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

from torch import Tensor

from snnlib.checks import check_choice, check_flag, check_options
from snnlib.neurons.base import Neuron
from snnlib.neurons.checks import check_numbers, finite_number

if TYPE_CHECKING:

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
    """The declaration of one argument; fields of classes that build on others have a greater depth."""

    default: Any
    check: Check | None = None
    constant: bool = False
    kw_only: bool = True
    # Whether it is an argument; a model whose value is fixed has it as an attribute alone.
    init: bool = True
    repr: bool = True
    # The argument's name where the attribute has another one.
    alias: str | None = None
    annotation: Any = None
    depth: int = 0

    @property
    def kept(self) -> bool:
        """Returns whether the neuron has it as an attribute."""
        return not isinstance(self.annotation, InitVar)

    @property
    def type(self) -> Any:
        """The type of what may be given."""
        return self.annotation.type if isinstance(self.annotation, InitVar) else self.annotation


def constant(
    *, default: Any, check: Check | None = None, kw_only: bool = True, alias: str | None = None
) -> Any:
    """A number or one value per channel, in the `state_dict`, that may be learned; None where the model has none."""
    return Field(default, check, constant=True, kw_only=kw_only, alias=alias)


def option(*, default: Any, check: Check | None = None, kw_only: bool = True, repr: bool = True) -> Any:
    """An option. Flags and numbers are checked by their type; one declared anew keeps its check and its place."""
    return Field(default, check, kw_only=kw_only, repr=repr)


def fixed(value: Any, *, constant: bool = False, init: Literal[False] = False) -> Any:
    """Declares what is no argument, though it may be one of other models: an attribute with this value, or derived."""
    return Field(value, constant=constant, init=init)


@dataclass(frozen=True)
class OneOf:
    """The check of a value that is one of some words."""

    choices: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> str:
        """The value."""
        return check_choice(name, value, *self.choices)


def one_of(*choices: str) -> OneOf:
    """The check of a value that is one of these words."""
    return OneOf(choices)


_BY_TYPE: dict[Any, Check] = {bool: check_flag, float: finite_number, float | None: finite_number}


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(constant, option, fixed))
class Declared(Neuron):
    """A neuron model whose arguments are its fields, those of the classes that it builds on included."""

    fields: ClassVar[Mapping[str, Field]] = {}
    # Defaults of other libraries, by argument.
    dialects: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: field for name, field in vars(cls).items() if isinstance(field, Field)}
        if not own:
            return
        annotations = inspect.get_annotations(cls, eval_str=True)
        cls.fields = _merged(cls.fields, own, annotations, len(cls.__mro__))
        for name in own:
            field = cls.fields[name]
            # Constants are buffers or parameters, which no attribute of the class may hide.
            if field.kept and not field.constant:
                setattr(cls, name, field.default)
            else:
                delattr(cls, name)
        if "__init__" not in vars(cls):
            cls.__init__ = _constructor(cls)  # type: ignore[method-assign]

    def build(self, given: Mapping[str, Any]) -> None:
        """Does the work of `__init__` with the arguments given, by name; None is as good as not given.

        Raises:
            ValueError: an unknown dialect, or a value out of its range.
        """
        given = {name: value for name, value in given.items() if value is not None}
        dialect = given.get("dialect")
        if dialect is not None and dialect not in self.dialects:
            known = ", ".join(self.dialects)
            raise ValueError(f"dialect: expected one of {known}, got {dialect!r}")
        chosen = {**({} if dialect is None else self.dialects[dialect]), **given}
        values: dict[str, Any] = {}
        for name, field in self.fields.items():
            argument = field.alias or name
            value = chosen.get(argument, field.default)
            values[name] = value if value is None or field.check is None else field.check(argument, value)
        self.derive(values, given, dialect)
        constants = {name: values.pop(name) for name in self._constant_fields()}
        super().__init__(
            {name: value for name, value in constants.items() if value is not None},
            learnable=values.pop("learnable"),
            channels=values.pop("channels"),
            batch_first=values.pop("batch_first"),
        )
        for name, value in values.items():
            if name not in self.fields or self.fields[name].kept:
                setattr(self, name, value)

    @classmethod
    def _constant_fields(cls) -> Sequence[str]:
        """Constants, a model's own before those of the classes that it builds on."""
        names = [name for name, field in cls.fields.items() if field.constant]
        return sorted(names, key=lambda name: -cls.fields[name].depth)

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets what follows from several options together, and checks it; before the neuron has its attributes.

        Args:
            values: of all fields, checked each by itself; those added become attributes.
            given: names of the arguments that were given.
            dialect: the dialect, if one was chosen.
        """

    def options(self) -> dict[str, Any]:
        """Options that differ from their defaults, for `print`."""
        shown = {name: field for name, field in self.fields.items() if field.repr and field.kept}
        values = {name: getattr(self, name) for name, field in shown.items() if not field.constant}
        return {name: value for name, value in values.items() if value != shown[name].default}


def _merged(
    inherited: Mapping[str, Field], own: Mapping[str, Field], annotations: Mapping[str, Any], depth: int
) -> dict[str, Field]:
    """The fields of a class, those it inherits first; one that is declared anew keeps its place and its check."""
    fields = dict(inherited)
    for name, field in own.items():
        annotation = annotations[name]
        before = fields.get(name)
        if before is not None and before.init >= field.init:
            check = field.check or before.check
            kept = {"annotation": annotation, "depth": before.depth, "repr": before.repr}
            fields[name] = replace(field, check=check, **kept)
            continue
        # An argument that the classes below have fixed is the model's own.
        fields.pop(name, None)
        check = field.check or (check_numbers if field.constant else _BY_TYPE.get(annotation))
        fields[name] = replace(field, check=check, annotation=annotation, depth=depth)
    return fields


def _constructor(model: type[Declared]) -> Callable[..., None]:
    """`__init__` with the signature of the model's fields."""
    signature = _signature(model)
    _, *names = signature.parameters
    first = [name for name in names if signature.parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY]

    def init(self: Declared, *arguments: Any, **options: Any) -> None:
        # Not by `Signature.bind`, which the compiler does not know.
        check_options(model.__name__, options, names, self.option_hints)
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


def _signature(model: type[Declared]) -> inspect.Signature:
    """Constants before options, a model's own before those of the classes that it builds on."""
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


class Model(Declared):
    """A model of the library: what all of them can be given."""

    dialect: InitVar[str | None] = option(default=None)
    learnable: Sequence[str] = option(default=(), repr=False)
    channels: InitVar[int | None] = option(default=None)
    batch_first: bool = option(default=False, repr=False)
