"""What layers check of their fields and inputs, in words that say what is wrong and what is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from aicore.errors import ConfigError
from aicore.ir import FLOATS, Value

Size: TypeAlias = "int | tuple[int, ...]"
"""One number for all spatial dims, or one for each."""
Padding: TypeAlias = "str | int | tuple[int, ...]"
"""`valid`: none. `same`: as much as makes the output ceil(dim / stride) long, the odd element at the end. Numbers: so
many elements at both ends of each spatial dim."""


def require(condition: object, message: str) -> None:
    """Raise ConfigError(message) unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def positive(what: str, number: Any) -> None:
    """Raise ConfigError unless the number is an int of 1 or more."""
    require(is_int(number) and number > 0, f"{what} is {number!r}, wants an integer of 1 or more")


def fraction(what: str, number: Any) -> None:
    """Raise ConfigError unless 0 <= number < 1."""
    fits = isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < 1
    require(fits, f"{what} is {number!r}, wants a number from 0 to below 1")


def above_zero(what: str, number: Any) -> None:
    """Raise ConfigError unless number > 0."""
    fits = isinstance(number, int | float) and not isinstance(number, bool) and number > 0
    require(fits, f"{what} is {number!r}, wants a number above 0")


def one_of(what: str, found: Any, choices: Sequence[Any]) -> None:
    """Raise ConfigError naming the choices unless `found` is among them."""
    require(found in choices, f"{what} is {found!r}, wants one of {', '.join(map(repr, choices))}")


def is_int(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def sizes(what: str, size: Any, count: int, least: int = 1) -> tuple[int, ...]:
    """One number for each of `count` spatial dims. Raises ConfigError for another number of them, or a smaller one."""
    found = (size,) * count if is_int(size) else size
    fits = isinstance(found, tuple) and len(found) == count and all(is_int(n) and n >= least for n in found)
    wanted = "an integer" if count == 1 else f"an integer or a tuple of {count}"
    require(fits, f"{what} is {size!r}, wants {wanted}, {least} or more")
    return tuple(found)


def window_padding(padding: Any, count: int) -> dict[str, Any]:
    """The attributes of an ONNX op for a layer's padding."""
    if padding == "valid":
        return {"pads": (0,) * 2 * count}
    if padding == "same":
        return {"auto_pad": "SAME_UPPER"}
    require(not isinstance(padding, str), f"padding is {padding!r}, wants 'valid', 'same' or numbers")
    return {"pads": sizes("padding", padding, count, 0) * 2}


def need_rank(x: Value, rank: int, axes: str) -> None:
    """Raise ConfigError unless x has that rank; `axes` says which they are."""
    require(x.rank == rank, f"the input is {x.type}, wants rank {rank}: {axes}")


def need_floats(x: Value) -> None:
    """Raise ConfigError unless x is floating point."""
    require(x.dtype in FLOATS, f"the input is {x.type}, wants floating point")


def known_dim(x: Value, axis: int, what: str) -> int:
    """A dim of x as a number. Raises ConfigError where it is none, since parameters depend on it."""
    shape = x.shape
    inside = shape is not None and -len(shape) <= axis < len(shape)
    require(inside, f"the input is {x.type}, which has no axis {axis} of {what}")
    dim = shape[axis] if shape is not None and inside else None
    require(isinstance(dim, int), f"the input is {x.type}: the number of {what} (axis {axis}) must be known")
    return int(dim)  # type: ignore[arg-type]


def channels_of(x: Value, count: int) -> int:
    """The number of channels of (batch, channels, spatial...) with so many spatial dims."""
    need_floats(x)
    axes = "batch, channels, " + ("length" if count == 1 else "height, width")
    need_rank(x, 2 + count, axes)
    return known_dim(x, 1, "channels")
