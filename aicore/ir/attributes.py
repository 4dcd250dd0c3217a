"""Ops as frozen dataclasses that take a tenth of the time to make: no method is generated, all are inherited.

A process makes about two hundred op classes before it runs its first model, and `dataclass(frozen=True)` compiles six
functions for each.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

Class = TypeVar("Class", bound="type[Attributes]")


@dataclass_transform(frozen_default=True)
def op_class(cls: Class) -> Class:
    """As `@dataclass(frozen=True)`, for ops; what derives from the op may use either of the two.

    Fields may have a default, and no other setting of `dataclasses.field`.
    """
    derived = hasattr(cls, "__dataclass_fields__")  # dataclass wants it frozen then, which costs two functions
    made: Any = dataclass(init=False, repr=False, eq=False, frozen=derived)(cls)
    made.__dataclass_params__.frozen = True
    made.field_defaults = {f.name: f.default for f in fields(made)}
    made.required_fields = frozenset(name for name, default in made.field_defaults.items() if default is MISSING)
    return cls


class Attributes:
    """The methods of a frozen dataclass, for fields that `field_defaults` names."""

    field_defaults: ClassVar[Mapping[str, Any]] = {}
    """Default by name of a field, in the order of the fields; MISSING for one that must be given."""
    required_fields: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        defaults = self.field_defaults
        given = {**dict(zip(defaults, arguments, strict=False)), **attributes} if arguments else attributes
        values = {**defaults, **given}
        twice = len(given) < len(arguments) + len(attributes)
        if twice or len(values) > len(defaults) or not self.required_fields <= given.keys():
            _refuse(type(self), arguments, attributes)
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__qualname__}({shown})"


def _refuse(cls: type[Attributes], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> NoReturn:
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
