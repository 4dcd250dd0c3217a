"""`aicore.records.dataclass` behaves as the standard one."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import pytest

from aicore.records import dataclass


@dataclass(frozen=True)
class Point:
    """Frozen, with a default and a ClassVar."""

    kinds: ClassVar[tuple[str, ...]] = ("plane",)
    x: int
    y: int = 0

    @cached_property
    def total(self) -> int:
        return self.x + self.y


@dataclass(frozen=True)
class Named(Point):
    """Adds a field, and one that takes no part in comparison or text."""

    name: str = ""
    seen: list[int] = field(default_factory=list, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Derived(Point):
    """As a plugin may derive it."""

    z: int = 0


@dataclass
class Loose:
    """Fields may be set, so it has no hash."""

    number: int = 1


@dataclass(frozen=True, eq=False)
class Same:
    """Equal to itself alone."""

    number: int = 1


@dataclasses.dataclass(frozen=True)
class Standard:
    """To compare with."""

    x: int
    y: int = 0


def test_fields_are_given_by_place_or_name_and_have_defaults() -> None:
    assert (Point(3).x, Point(3).y, Point(3, y=4).y) == (3, 0, 4)
    assert [f.name for f in fields(Named)] == ["x", "y", "name", "seen"]
    assert Named(1, 2, "a") == Named(name="a", y=2, x=1)
    assert Point.y == Standard.y == 0
    assert Point.kinds == ("plane",)


def test_functions_of_the_standard_library_take_it() -> None:
    assert is_dataclass(Point)
    assert asdict(Named(1)) == {"x": 1, "y": 0, "name": "", "seen": []}
    assert replace(Point(1), y=2) == Point(1, 2)
    assert copy.copy(Point(1, 2)) == Point(1, 2)
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_a_default_factory_makes_a_new_object_each_time() -> None:
    first, second = Named(1), Named(1)
    first.seen.append(3)
    assert second.seen == []
    assert not hasattr(Named, "seen")


def test_equality_hash_and_text() -> None:
    assert Point(1) == Point(1)
    assert hash(Point(1)) == hash(Point(1))
    assert Point(1) != Point(2)
    assert Point(1) != Named(1)
    assert Point(1) != 1
    assert Named(1, seen=[1]) == Named(1, seen=[2])
    assert repr(Named(1, seen=[1])) == "Named(x=1, y=0, name='')"
    assert repr(Point(1)) == repr(Standard(1)).replace("Standard", "Point")


def test_what_is_cached_takes_no_part_in_equality() -> None:
    point = Point(1, 2)
    assert point.total == 3
    assert point == Point(1, 2)


def test_identity_where_equality_is_not_wanted() -> None:
    one = Same()
    assert one == one
    assert one != Same()
    assert len({one, Same()}) == 2


def test_frozen_fields_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x  # type: ignore[misc]
    assert point.x == 1


def test_loose_fields_can_be_changed_and_have_no_hash() -> None:
    loose = Loose()
    loose.number = 2
    assert loose == Loose(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(loose)


def test_the_standard_decorator_may_derive_from_it() -> None:
    made = Derived(1, z=2)
    assert (made.x, made.y, made.z) == (1, 0, 2)
    assert made == Derived(1, 0, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Point(), r"Point\(x, y=0\): missing a required argument: 'x'"),  # type: ignore[call-arg]
        (lambda: Point(1, 2, 3), "too many positional arguments"),  # type: ignore[call-arg]
        (lambda: Point(1, x=1), "multiple values for argument 'x'"),  # type: ignore[misc]
        (lambda: Point(1, colour=1), "unexpected keyword argument 'colour'"),  # type: ignore[call-arg]
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_a_method_that_would_never_run_is_refused() -> None:
    def post_init(self: object) -> None: ...

    with pytest.raises(TypeError, match="__post_init__ is never called"):
        dataclass(type("Checked", (), {"__post_init__": post_init}))
