"""`dataclass` as the standard library has it, for classes that are made in a tenth of the time.

The standard one compiles up to six functions for each class, which takes longer than all else that importing a module
does, and a process makes 350 of them before it has run its first model. Here all classes share their methods.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError
from dataclasses import field as new_field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True
    ) -> Callable[[type], type] | type:
        """As `dataclasses.dataclass`, whose functions take what this makes. There are no slots and no `__post_init__`.

        frozen: fields cannot be set; eq: equal fields make equal objects, hashable ones if frozen. Fields may have
        `default`, `default_factory`, `repr` and `compare`.
        """
        wrap = partial(_make, frozen=frozen, eq=eq)
        return wrap if cls is None else wrap(cls)


def _standard(**options: Any) -> Any:
    from dataclasses import dataclass as standard

    class Template:
        """Without a docstring it would get one with its signature, which takes longer than all else here."""

        field: int

    return standard(init=False, repr=False, eq=False, **options)(Template)


_TEMPLATE = _standard()
_KIND = _TEMPLATE.__dataclass_fields__["field"]._field_type
"""Marks a field of objects, not of the class; the standard library's own mark, which `fields` looks for."""
_LOOSE = _TEMPLATE.__dataclass_params__
_FROZEN = copy(_LOOSE)
_FROZEN.frozen = True


def declare_fields(cls: Any, frozen: bool) -> dict[str, Field[Any]]:
    """Make `dataclasses.fields` and its like find the fields that a class and its bases annotate; returns them.

    `field_defaults` gets what stands for a field that is not given, or MISSING, and `required_fields` those.
    """
    found: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        found.update(getattr(base, "__dataclass_fields__", {}))
    for name, annotation in inspect.get_annotations(cls).items():
        if not str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            found[name] = _field(name, annotation, cls.__dict__.get(name, MISSING))
    for name, item in found.items():
        if isinstance(cls.__dict__.get(name), Field):
            _replace_default(cls, name, item)
    cls.__dataclass_fields__ = found
    cls.__dataclass_params__ = _FROZEN if frozen else _LOOSE
    cls.__match_args__ = tuple(found)  # type: ignore[misc]  # the type checker knows it from the decorator
    factory = {name: _Factory(f.default_factory) for name, f in found.items() if f.default_factory is not MISSING}
    cls.field_defaults = {name: factory.get(name, item.default) for name, item in found.items()}
    cls.required_fields = frozenset(name for name, default in cls.field_defaults.items() if default is MISSING)
    return found


def _field(name: str, annotation: Any, default: Any) -> Any:
    made: Any = new_field(kw_only=False)
    made.name, made.type, made._field_type = name, annotation, _KIND
    if not isinstance(default, Field):
        made.default = default
        return made
    made.default, made.default_factory = default.default, default.default_factory
    made.repr, made.compare = default.repr, default.compare
    return made


def _replace_default(cls: type, name: str, item: Field[Any]) -> None:
    if item.default is MISSING:
        delattr(cls, name)
    else:
        setattr(cls, name, item.default)


class _Factory:
    """Stands in `field_defaults` for a default that is made anew for each object."""

    def __init__(self, make: Any) -> None:
        self.make = make


def _make(cls: Any, frozen: bool, eq: bool) -> Any:
    if hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__name__}: __post_init__ is never called; use dataclasses.dataclass")
    found = declare_fields(cls, frozen)
    cls.field_factories = {name: d for name, d in cls.field_defaults.items() if isinstance(d, _Factory)}
    methods: dict[str, Any] = {"__init__": _init_with_factories if cls.field_factories else _init, "__repr__": _repr}
    if eq:
        compared = [name for name, item in found.items() if item.compare]
        cls.compared_fields = operator.attrgetter(*compared) if compared else _nothing
        methods.update(__eq__=_eq, __hash__=_hash if frozen else None)
    if frozen:
        methods.update(__setattr__=_refuse_set, __delattr__=_refuse_delete)
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cls


def _nothing(_: object) -> tuple[()]:
    return ()


def _values(self: Any, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> dict[str, Any]:
    defaults = self.field_defaults
    if not attributes and len(arguments) == len(defaults):
        return dict(zip(defaults, arguments, strict=True))
    given = {**dict(zip(defaults, arguments, strict=False)), **attributes} if arguments else attributes
    values = {**defaults, **given}
    twice = len(given) < len(arguments) + len(attributes)
    if twice or len(values) > len(defaults) or not self.required_fields <= given.keys():
        refuse(type(self), arguments, attributes)
    return values


def _init(self: Any, *arguments: Any, **attributes: Any) -> None:
    defaults = self.field_defaults
    if not attributes and len(arguments) == len(defaults):  # the usual call, in a third of the time of the general one
        self.__dict__.update(zip(defaults, arguments))  # noqa: B905  # they are as many
    else:
        self.__dict__.update(_values(self, arguments, attributes))


def _init_with_factories(self: Any, *arguments: Any, **attributes: Any) -> None:
    defaults = self.field_defaults
    if not attributes and len(arguments) == len(defaults):
        self.__dict__.update(zip(defaults, arguments))  # noqa: B905  # they are as many
        return
    values = _values(self, arguments, attributes)
    for name, factory in self.field_factories.items():
        if values[name] is factory:
            values[name] = factory.make()
    self.__dict__.update(values)


def _eq(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return type(self).compared_fields(self) == type(self).compared_fields(other)


def _hash(self: Any) -> int:
    return hash(type(self).compared_fields(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.__dataclass_fields__.values() if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_set(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def refuse(cls: Any, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> NoReturn:
    """Raise TypeError in the words that Python has for a call that does not fit."""
    empty = inspect.Parameter.empty
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [
            inspect.Parameter(name, kind, default=empty if default is MISSING else default)
            for name, default in cls.field_defaults.items()
        ]
    )
    try:
        signature.bind(*arguments, **attributes)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}{signature}: {error}") from None
    raise TypeError(f"{cls.__name__}{signature} does not take {arguments} and {attributes}")
