"""One record as it is read: any object with the right attributes, or a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

from aicore.errors import AicoreError, ModelError

T = TypeVar("T")

MISSING = object()

CONDITIONALS = frozenset({"IF", "CONDITIONAL"})
BRANCHES = (("then", "then_records"), ("otherwise", "else", "else_records"))
"""Names of the branches of these among their extra parameters."""
MOST_NESTED = 32
"""Conditionals inside each other: more than anybody writes, and few enough for functions that call themselves."""


@dataclass(frozen=True)
class Record:
    """One operation: `op_type` of operands by name (`inputs`, then `params`) gives the tensor called `output_id`.

    extra_params: what else the operation needs, such as a kernel's size: a mapping, or an object with attributes.
    """

    op_type: str
    inputs: Sequence[str] = ()
    params: Sequence[str] = ()
    output_id: str = ""
    extra_params: Any = field(default_factory=dict)


class Extra:
    """Extra parameters under any of their names.

    A mapping or a SimpleNamespace has those that its writer meant, so one that is never asked for is an error. Another
    object may be a structure with fields for all operations, so that 0 stands for a size that is not given there.
    """

    def __init__(self, raw: Any, place: str) -> None:
        self.place = place
        self._raw = {} if raw is None else vars(raw) if isinstance(raw, SimpleNamespace) else raw
        self._is_mapping = isinstance(self._raw, Mapping)
        self._asked: dict[str, None] = {}

    def get(self, *names: str, default: Any = MISSING) -> Any:
        """What is given under the first of the names that there is. Raises ModelError when it is missing."""
        self._asked.update(dict.fromkeys(names))
        for name in names:
            found = self._raw.get(name) if self._is_mapping else getattr(self._raw, name, None)
            if found is not None:
                return found
        if default is MISSING:
            raise ModelError(f"{self.place}: the extra parameter {' or '.join(names)} is missing")
        return default

    def flag(self, *names: str, default: bool = False) -> bool:
        """A yes or no, as a bool or the integers 0 and 1."""
        found = self.get(*names, default=default)
        if not isinstance(found, int) or found not in (0, 1):
            raise ModelError(f"{self.place}: {names[0]} is {found!r}, wants True or False")
        return bool(found)

    def integer(self, *names: str, default: Any = MISSING) -> int:
        found = self.get(*names, default=default)
        if not _is_integer(found):
            raise ModelError(f"{self.place}: {names[0]} is {found!r}, wants an integer")
        return int(found)

    def number(self, *names: str, default: Any = MISSING) -> float:
        found = self.get(*names, default=default)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{self.place}: {names[0]} is {found!r}, wants a number") from error

    def integers(self, *names: str, default: Any = MISSING) -> tuple[int, ...]:
        """One integer, or several."""
        found = self.get(*names, default=default)
        listed = [found] if _is_integer(found) else found
        if isinstance(listed, str) or not isinstance(listed, Iterable):
            raise ModelError(f"{self.place}: {names[0]} is {found!r}, wants integers")
        listed = list(listed)
        if not all(map(_is_integer, listed)):
            raise ModelError(f"{self.place}: {names[0]} is {found!r}, wants integers")
        return tuple(map(int, listed))

    def pair(self, *names: str, least: int, default: tuple[int, int] | None = None) -> tuple[int, int] | None:
        """(height, width): under a name, as one integer or two, or under `NAME_h` and `NAME_w`."""
        alone = self.get(*names, default=None)
        if alone is not None and (self._is_mapping or alone != 0):
            found = self.integers(*names)
            both = found * 2 if len(found) == 1 else found
        else:
            both = tuple(n for n in (self._side(names, side, least) for side in ("h", "w")) if n is not None)
            if not both:
                return default
        if len(both) != 2 or min(both) < least:
            raise ModelError(f"{self.place}: {names[0]} is {both!r}, wants one or two integers, {least} or more")
        return both[0], both[1]

    def _side(self, names: Sequence[str], side: str, least: int) -> int | None:
        own = tuple(f"{name}_{side}" for name in names)
        if self.get(*own, default=None) is None:
            return None
        size = self.integer(*own)
        is_unset = not self._is_mapping and size == 0 and least > 0
        return None if is_unset else size

    def check_all_read(self) -> None:
        """Raise ModelError for a parameter in a mapping that nobody asked for: it would have no effect."""
        unread = [name for name in self._raw if name not in self._asked] if self._is_mapping else []
        if unread:
            known = ", ".join(self._asked) or "none"
            raise ModelError(f"{self.place}: there is no extra parameter {unread[0]!r}; known are {known}")


@dataclass(frozen=True)
class Read:
    """A record whose form is settled.

    place: how messages name it, such as `record 3 (CONV2D)`.
    raw: the record as it was given, after those that it is inside of.
    """

    kind: str
    inputs: tuple[str, ...]
    params: tuple[str, ...]
    output: str
    extra: Extra
    place: str
    raw: tuple[Any, ...]

    def branch(self, names: Sequence[str]) -> list[Read]:
        """The records of a branch of a conditional. Raises ModelError as `read_records`, and where there is no end."""
        return read_records(self.extra.get(*names), f"{self.place}, {names[0]}: ", self.raw)


def read_records(records: Iterable[Any], within: str = "", around: tuple[Any, ...] = ()) -> list[Read]:
    """Records in any of their forms. Raises ModelError naming the one that is malformed, or contains itself.

    around: what they are inside of, outermost first.
    """
    if isinstance(records, str | Mapping) or not isinstance(records, Iterable):
        raise ModelError(f"{within}records are {type(records).__name__}, wants a list of records")
    return [_read(record, f"{within}record {i}", around) for i, record in enumerate(records)]


def _read(record: Any, place: str, around: tuple[Any, ...]) -> Read:
    if any(record is outer for outer in around):
        raise ModelError(f"{place}: the record contains itself")
    if len(around) == MOST_NESTED:
        raise ModelError(f"{place}: conditionals are nested more than {MOST_NESTED} deep")
    kind = _attribute(record, "op_type")
    name = getattr(kind, "name", kind)  # an enumeration's member
    if not isinstance(name, str) or not name:
        raise ModelError(f"{place}: op_type is {kind!r}, wants a name such as MATMUL")
    place = f"{place} ({name.upper()})"
    output = _attribute(record, "output_id")
    if not isinstance(output, str) or not output:
        raise ModelError(f"{place}: output_id is {output!r}, wants a name")
    inputs, params = (_names(record, what, place) for what in ("inputs", "params"))
    extra = _attribute(record, "extra_params", _attribute(record, "extra", None))
    return Read(name.upper(), inputs, params, output, Extra(extra, place), place, (*around, record))


def _attribute(record: Any, name: str, default: Any = None) -> Any:
    return record.get(name, default) if isinstance(record, Mapping) else getattr(record, name, default)


def _names(record: Any, what: str, place: str) -> tuple[str, ...]:
    """Names in a list; one alone may be a text, and none may be empty or missing."""
    found = _attribute(record, what)
    if isinstance(found, str):
        return (found,) if found else ()
    listed = list(found) if isinstance(found, Iterable) else None if found is not None else []
    if listed is None or not all(isinstance(name, str) and name for name in listed):
        raise ModelError(f"{place}: {what} is {found!r}, wants a list of names")
    return tuple(listed)


def _is_integer(number: Any) -> bool:
    return hasattr(number, "__index__") and not isinstance(number, bool)


def placed(error: AicoreError, place: str) -> AicoreError:
    """The error with the record named, unless its text does so already."""
    return error if place in str(error) else type(error)(f"{place}: {error}")
