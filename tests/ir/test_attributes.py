"""`@op_class` behaves as `@dataclass(frozen=True)`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any, ClassVar

import pytest

from aicore.ir import Op
from aicore.ir.attributes import op_class


@op_class
class Window(Op):
    """An op with one field that must be given."""

    commutative: ClassVar[bool] = True
    size: int
    pads: tuple[int, ...] = ()


@op_class
class Wider(Window):
    """Adds a field to those of its base."""

    ceil: int = 0


@dataclass(frozen=True)
class PluginWindow(Window):
    """As a plugin may derive it."""

    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plain:
    """The standard decorator, to compare with."""

    size: int
    pads: tuple[int, ...] = ()


def test_fields_are_given_by_place_or_name_and_have_defaults() -> None:
    assert (Window(3).size, Window(3).pads) == (3, ())
    assert Window(3, (1, 1)) == Window(pads=(1, 1), size=3)
    assert [f.name for f in fields(Wider)] == ["size", "pads", "ceil"]
    assert Wider(2, (1,), 1) == Wider(2, (1,), ceil=1)
    assert replace(Wider(2), ceil=1) == Wider(2, ceil=1)
    assert copy.copy(Wider(2)) == Wider(2)


def test_equality_and_hash_follow_class_and_fields() -> None:
    assert Window(3) == Window(3)
    assert hash(Window(3)) == hash(Window(3))
    assert Window(3) != Window(4)
    assert Window(3) != Wider(3)
    assert Window(3) != 3
    assert len({Window(3), Window(3, ()), Wider(3)}) == 2


def test_text_is_that_of_a_dataclass() -> None:
    assert repr(Window(3)) == repr(Plain(3)).replace("Plain", "Window")


def test_the_standard_decorator_may_derive_from_it() -> None:
    made = PluginWindow(3, strides=(2,))
    assert (made.size, made.pads, made.strides) == (3, (), (2,))
    assert made == PluginWindow(3, (), (2,))
    with pytest.raises(FrozenInstanceError):
        made.strides = ()  # type: ignore[misc]


def test_fields_cannot_be_changed() -> None:
    op = Window(3)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'size'"):
        op.size = 4  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'size'"):
        del op.size
    assert op.size == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Window(), r"Window\(size, pads=\(\)\): missing a required argument: 'size'"),  # type: ignore[call-arg]
        (lambda: Window(pads=()), "missing a required argument: 'size'"),  # type: ignore[call-arg]
        (lambda: Window(1, (), 2), "too many positional arguments"),  # type: ignore[call-arg]
        (lambda: Window(1, size=1), "multiple values for argument 'size'"),  # type: ignore[misc]
        (lambda: Window(1, colour=1), "got an unexpected keyword argument 'colour'"),  # type: ignore[call-arg]
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()
