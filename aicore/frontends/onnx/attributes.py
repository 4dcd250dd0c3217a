"""AttributeProto to plain values, with the record of what was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aicore.errors import ModelError
from aicore.frontends.onnx.protos import AttributeProto
from aicore.frontends.onnx.texts import text
from aicore.records import dataclass

FIELD_OF = {
    "FLOAT": "f",
    "INT": "i",
    "STRING": "s",
    "TENSOR": "t",
    "GRAPH": "g",
    "SPARSE_TENSOR": "sparse_tensor",
    "TYPE_PROTO": "tp",
    "FLOATS": "floats",
    "INTS": "ints",
    "STRINGS": "strings",
    "TENSORS": "tensors",
    "GRAPHS": "graphs",
    "SPARSE_TENSORS": "sparse_tensors",
    "TYPE_PROTOS": "type_protos",
}
"""The field of an AttributeProto that holds the value, by the name of its type."""
REPEATED = frozenset(name for name in FIELD_OF if name.endswith("S"))
"""The types with several values."""


@dataclass(frozen=True)
class Reference:
    """Inside a function body: the value of the caller's attribute `name`, if the caller gives it."""

    name: str


@dataclass(frozen=True)
class Attribute:
    """type: the name of an AttributeProto.AttributeType. value: numbers, texts and tuples of them, or protos.

    A reference may leave its type open (the empty text).
    """

    type: str
    value: Any


def decode(proto: AttributeProto, what: str) -> Attribute:
    """The attribute's value; bytes become text.

    Raises ModelError when the type is missing, unknown, or not that of the value.
    """
    what = f"{what}: attribute {proto.name!r}"
    if proto.ref_attr_name:
        kind = "" if proto.type == AttributeProto.UNDEFINED else _type_name(proto, what)
        return Attribute(kind, Reference(text(proto.ref_attr_name)))
    kind = _type_name(proto, what)
    field = FIELD_OF[kind]
    if kind in REPEATED:
        items = tuple(getattr(proto, field))
        return Attribute(kind, tuple(_text(item, what) for item in items) if kind == "STRINGS" else items)
    if not proto.HasField(field):
        raise ModelError(f"{what}: is declared as {kind} but holds no such value")
    value = getattr(proto, field)
    return Attribute(kind, _text(value, what) if kind == "STRING" else value)


class Attributes:
    """A node's attributes, and which of them somebody read: one that nobody reads is an error, never ignored."""

    def __init__(self, values: Mapping[str, Attribute]) -> None:
        self._values = values
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def read(self, name: str, default: Any = None) -> Any:
        """The value of the attribute `name`, or `default` when the node does not give it."""
        self._read.add(name)
        found = self._values.get(name)
        return default if found is None else found.value

    def peek(self, name: str, default: Any = None) -> Any:
        """The same, without counting it as read: it still goes into a field."""
        found = self._values.get(name)
        return default if found is None else found.value

    def ignore(self, *names: str) -> None:
        """Count the attributes as read: the converter has seen to it that they change nothing."""
        self._read.update(names)

    def unread(self) -> dict[str, Attribute]:
        """The attributes that nobody has read yet."""
        return {name: attribute for name, attribute in self._values.items() if name not in self._read}


def _type_name(proto: AttributeProto, what: str) -> str:
    if proto.type == AttributeProto.UNDEFINED:
        return _guessed_type(proto, what)
    try:
        name = str(AttributeProto.AttributeType.Name(proto.type))
    except ValueError:
        name = ""
    if name not in FIELD_OF:
        raise ModelError(f"{what}: has the unknown type {proto.type}")
    return name


def _guessed_type(proto: AttributeProto, what: str) -> str:
    """Old writers left the type out; the only field that is set tells it."""
    given = [
        kind
        for kind, field in FIELD_OF.items()
        if (len(getattr(proto, field)) if kind in REPEATED else proto.HasField(field))
    ]
    if len(given) != 1:
        raise ModelError(f"{what}: has no type")
    return given[0]


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{what}: is not UTF-8 text: {value[:20]!r}") from error
