"""What a converter sees of one ONNX node, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from aicore.errors import AicoreError, ModelError, UnsupportedError
from aicore.frontends.onnx._elements import NAME_OF, type_text
from aicore.frontends.onnx.attributes import Attribute, Attributes
from aicore.frontends.onnx.external import ExternalData
from aicore.frontends.onnx.protos import SparseTensorProto, TensorProto, is_message
from aicore.frontends.onnx.tensors import sparse_array, tensor_array
from aicore.ir import Buffer, Builder, Op, Value
from aicore.records import dataclass

if TYPE_CHECKING:
    from aicore.frontends.onnx.importer import Importer
    from aicore.frontends.onnx.scope import Scope
    from aicore.frontends.onnx.validate import CheckedNode

Results: TypeAlias = "Value | tuple[Value | None, ...]"
Converter: TypeAlias = "Callable[[SourceNode], Results]"

NEWEST = 1 << 30


@dataclass(frozen=True)
class Conversion:
    """A converter for one operator, from opset `since` to opset `until`, both included."""

    since: int
    until: int
    function: Converter


CONVERSIONS: dict[tuple[str, str], list[Conversion]] = {}
"""By domain and operator. An operator that is not here, or not in that version, is taken as it is."""


def converts(*kinds: str, since: int = 1, until: int = NEWEST, domain: str = "") -> Callable[[Converter], Converter]:
    """Put a function into the table: it makes the named operators of these opsets from ops of the newest semantics."""

    def enter(function: Converter) -> Converter:
        for kind in kinds:
            CONVERSIONS.setdefault((domain, kind), []).append(Conversion(since, until, function))
        return function

    return enter


def conversion_of(kind: str, opset: int, domain: str = "") -> Converter | None:
    """The converter for an operator as of an opset, or None when its op means the same."""
    for conversion in CONVERSIONS.get((domain, kind), ()):
        if conversion.since <= opset <= conversion.until:
            return conversion.function
    return None


class SourceNode:
    """One ONNX node under conversion.

    inputs: its operands, None where absent. op: the builder that collects what the node becomes.
    """

    def __init__(
        self, checked: CheckedNode, inputs: Sequence[Value | None], builder: Builder, scope: Scope, importer: Importer
    ) -> None:
        self.kind = checked.kind
        self.opset = checked.opset
        self.where = checked.where
        self.checked = checked
        self.inputs = tuple(inputs)
        self.op = builder
        self.scope = scope
        self.importer = importer
        self.attributes = Attributes(checked.attributes)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, empty where nobody wants one."""
        return self.checked.outputs

    def input(self, index: int) -> Value | None:
        """The operand at `index`, None when it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def operand(self, index: int = 0) -> Value:
        """The operand at `index`; raises ModelError when it is absent."""
        value = self.input(index)
        if value is None:
            raise ModelError(f"{self.where}: operand {index} is missing")
        return value

    def wants(self, index: int) -> bool:
        """Whether the output at `index` has a name."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def read(self, name: str) -> Any:
        """An attribute: number, text, or a tuple of them; what the schema says when it is absent, or None."""
        return self._or_default(name, self.attributes.read(name))

    def peek(self, name: str) -> Any:
        """The same, without counting it as read: `build` still makes it a field."""
        return self._or_default(name, self.attributes.peek(name))

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """A tensor attribute."""
        return self._array(self.attributes.read(name), name)

    def _or_default(self, name: str, value: Any) -> Any:
        schema = self.checked.signature
        if value is not None or schema is None or name not in schema.defaults:
            return value
        return schema.defaults[name].value

    def _array(self, proto: TensorProto | SparseTensorProto, name: str) -> np.ndarray[Any, Any]:
        try:
            return to_array(proto, self.importer.external, f"attribute {name!r}")
        except AicoreError as error:
            raise type(error)(f"{self.where}: {error}") from error

    def constant(self, numbers: Any, dtype: str = "int64") -> Value:
        """A small constant, int64 unless another NumPy type is asked for."""
        return self.op.constant(np.asarray(numbers, dtype))

    def build(self, *inputs: Value | None, kind: str | None = None, **given: Any) -> Any:
        """The op called `kind` (by default the node's own), with `given` fields and every attribute not read so far.

        Raises UnsupportedError when the op has no such field, or when aicore has no such op.
        """
        kind = kind or self.kind
        cls = self.importer.op_class(self.checked.domain, kind)
        if cls is None:
            raise UnsupportedError(f"{self.where}: aicore has no op {kind!r}")
        known = _field_types(cls)
        for name, attribute in self.attributes.unread().items():
            if name not in known:
                raise UnsupportedError(f"{self.where}: attribute {name!r} is not supported")
            if name not in given:
                given[name] = self._field(name, attribute, known[name])
            self.attributes.ignore(name)
        return self.op.apply(cls(**given), *inputs, names=self.outputs)  # errors name the output

    def as_is(self) -> Results:
        """The op of the same name on the same operands."""
        results: Results = self.build(*self.inputs)
        return results

    def fail(self, message: str) -> UnsupportedError:
        """The error to raise for what is well-formed but cannot be converted."""
        return UnsupportedError(f"{self.where}: {message}")

    def _field(self, name: str, attribute: Attribute, annotation: str) -> Any:
        if attribute.type == "INT":
            return self._integer(name, attribute.value, annotation)
        if attribute.type in ("TENSOR", "SPARSE_TENSOR"):
            return Buffer(self._array(attribute.value, name))
        if attribute.type in ("FLOAT", "STRING", "FLOATS", "INTS", "STRINGS"):
            return attribute.value
        raise self.fail(f"attribute {name!r} is a {attribute.type}")

    def _integer(self, name: str, number: int, annotation: str) -> Any:
        """A dtype by name where the op's field wants text, a bool where it wants one."""
        if "str" in annotation:
            return self.dtype(number, name)
        return bool(number) if annotation == "bool" else number

    def dtype(self, number: int, name: str) -> str:
        """The element type that an attribute names by number; raises UnsupportedError for one that aicore lacks."""
        if number not in NAME_OF:
            raise self.fail(f"attribute {name!r}: element type {type_text(number)} is not supported")
        return NAME_OF[number]


def to_array(
    proto: TensorProto | SparseTensorProto,
    external: ExternalData,
    what: str = "",
    raw_data: memoryview | None = None,
) -> np.ndarray[Any, Any]:
    """A dense or sparse tensor as an array; arguments as in `tensor_array`."""
    if is_message(proto, "SparseTensorProto"):
        return sparse_array(cast("SparseTensorProto", proto), external)
    return tensor_array(cast("TensorProto", proto), external, what, raw_data)


def _field_types(cls: type[Op]) -> dict[str, str]:
    """Annotations of the op's fields, as text."""
    if cls not in _FIELD_TYPES:
        _FIELD_TYPES[cls] = {f.name: str(f.type) for f in fields(cls)}  # type: ignore[arg-type]
    return _FIELD_TYPES[cls]


_FIELD_TYPES: dict[type[Op], dict[str, str]] = {}
