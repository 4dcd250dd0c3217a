"""Ops as frozen dataclasses that take a tenth of the time to make: no method is generated, all are inherited.

A process makes about two hundred op classes before it runs its first model, and `dataclass(frozen=True)` compiles six
functions for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, TypeVar, dataclass_transform

from aicore.records import declare_fields, refuse

Class = TypeVar("Class", bound="type[Attributes]")


@dataclass_transform(frozen_default=True)
def op_class(cls: Class) -> Class:
    """As `@dataclass(frozen=True)`, for ops; what derives from the op may use either of the two.

    Fields may have a default, and no other setting of `dataclasses.field`.
    """
    declare_fields(cls, frozen=True)
    return cls


class Attributes:
    """The methods of a frozen dataclass, for fields that `field_defaults` names."""

    field_defaults: ClassVar[Mapping[str, Any]] = {}
    """Default by name of a field, in the order of the fields; MISSING for one that must be given."""
    required_fields: ClassVar[frozenset[str]] = frozenset()
    __slots__ = ("_hash",)
    _hash: int

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        defaults = self.field_defaults
        if not arguments and not attributes and not self.required_fields:
            self.__dict__.update(defaults)
            return
        given = {**dict(zip(defaults, arguments, strict=False)), **attributes} if arguments else attributes
        values = {**defaults, **given}
        twice = len(given) < len(arguments) + len(attributes)
        if twice or len(values) > len(defaults) or not self.required_fields <= given.keys():
            refuse(type(self), arguments, attributes)
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        try:
            return self._hash  # the keys of what is remembered by op ask for it again and again
        except AttributeError:
            object.__setattr__(self, "_hash", hash((type(self), *self.__dict__.values())))
            return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes over: the fields alone, since that of texts is another hash in another process."""
        return self.__dict__

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__qualname__}({shown})"
