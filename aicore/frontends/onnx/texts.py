"""Names out of a protobuf, which hands out bytes for what is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterable

from aicore.errors import ModelError


def text(value: str | bytes) -> str:
    """The name; raises ModelError showing the bytes of one that is not UTF-8."""
    if isinstance(value, bytes):
        raise ModelError(f"a name in the model is not UTF-8 text: {value[:40]!r}")
    return value


def texts(values: Iterable[str | bytes]) -> tuple[str, ...]:
    """Several names."""
    found = tuple(values)
    for value in found:
        if type(value) is bytes:
            text(value)  # which says what is wrong
    return found  # type: ignore[return-value]  # there is no bytes in it
