"""What ONNX says of an operator: arity, attributes and element types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from aicore.frontends.onnx.attributes import Attribute, decode
from aicore.frontends.onnx.published import Published, published
from aicore.records import dataclass

if TYPE_CHECKING:
    from onnx import defs

Row: TypeAlias = "list[Any]"
"""A signature as JSON, without name and domain; formals have numbers of sets of types."""


@dataclass(frozen=True)
class Formal:
    """One formal input or output; a variadic one stands for all that follow."""

    name: str
    optional: bool
    variadic: bool
    types: frozenset[str]
    """Type texts such as `tensor(float)`."""
    type_text: str
    """The name of its type variable, such as `T`, or one type text."""


@dataclass(frozen=True)
class Signature:
    """One operator in one version.

    attributes: (type name, whether it is required) by name. defaults: values of those that may be left out.
    has_function: ONNX defines the operator by others.
    """

    kind: str
    domain: str
    since: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    attributes: dict[str, tuple[str, bool]]
    defaults: dict[str, Attribute]
    has_function: bool

    def formal_input(self, index: int) -> Formal:
        """The formal input of the operand at `index`."""
        return self.inputs[min(index, len(self.inputs) - 1)]


@cache
def signature(kind: str, domain: str, opset: int) -> Signature | None:
    """The operator as of `opset`, or None when the domain has none of that name."""
    copy = published()
    rows = copy.operators.get(domain, {}).get(kind)
    if rows is None or opset > copy.opsets[domain]:
        return _asked(kind, domain, opset)
    row = next((row for row in reversed(rows) if row[0] <= opset), None)
    return None if row is None else from_row(kind, domain, row, copy)


def is_known(kind: str, domain: str) -> bool:
    """Whether any version of the domain has the operator."""
    if kind in published().operators.get(domain, ()):
        return True
    from onnx import defs

    return bool(defs.has(kind, domain))


def _asked(kind: str, domain: str, opset: int) -> Signature | None:
    """What the installed package says, whose import takes a while."""
    from onnx import defs

    if not defs.has(kind, domain):
        return None
    try:
        return of_schema(defs.get_schema(kind, opset, domain))
    except defs.SchemaError:  # younger than the opset
        return None


def of_schema(schema: defs.OpSchema) -> Signature:
    """From what the onnx package gives."""
    return Signature(
        kind=schema.name,
        domain=schema.domain,
        since=schema.since_version,
        inputs=tuple(map(_formal, schema.inputs)),
        outputs=tuple(map(_formal, schema.outputs)),
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        min_outputs=schema.min_output,
        max_outputs=schema.max_output,
        attributes={name: (_type_name(a), a.required) for name, a in schema.attributes.items()},
        defaults={n: decode(a.default_value, n) for n, a in schema.attributes.items() if a.default_value.type},
        has_function=bool(schema.has_function),  # type: ignore[attr-defined]  # the stub lacks it
    )


def to_row(found: Signature, types: list[frozenset[str]]) -> Row:
    """The signature as JSON; `types` gets the sets of types that are not in it yet."""
    attributes = [
        [name, kind, required, *([found.defaults[name].value] if name in found.defaults else [])]
        for name, (kind, required) in sorted(found.attributes.items())
    ]
    counts = [found.min_inputs, found.max_inputs, found.min_outputs, found.max_outputs]
    formals = [[_formal_row(formal, types) for formal in several] for several in (found.inputs, found.outputs)]
    return [found.since, *counts, *formals, attributes, found.has_function]


def from_row(kind: str, domain: str, row: Row, copy: Published) -> Signature:
    """The reverse."""
    since, min_inputs, max_inputs, min_outputs, max_outputs, inputs, outputs, attributes, has_function = row
    return Signature(
        kind,
        domain,
        since,
        tuple(_read_formal(formal, copy.types) for formal in inputs),
        tuple(_read_formal(formal, copy.types) for formal in outputs),
        min_inputs,
        max_inputs,
        min_outputs,
        max_outputs,
        {name: (of, required) for name, of, required, *_ in attributes},
        {name: Attribute(of, _frozen(default[0])) for name, of, _, *default in attributes if default},
        has_function,
    )


def _formal_row(formal: Formal, types: list[frozenset[str]]) -> Row:
    if formal.types not in types:
        types.append(formal.types)
    return [formal.name, formal.optional, formal.variadic, types.index(formal.types), formal.type_text]


def _read_formal(row: Row, types: Sequence[frozenset[str]]) -> Formal:
    name, optional, variadic, number, type_text = row
    return Formal(name, optional, variadic, types[number], type_text)


def _frozen(value: Any) -> Any:
    """JSON has lists where attributes have tuples."""
    return tuple(value) if isinstance(value, list) else value


def _type_name(attribute: defs.OpSchema.Attribute) -> str:
    return str(attribute.type).rsplit(".", 1)[-1]


def _formal(parameter: defs.OpSchema.FormalParameter) -> Formal:
    option = parameter.option.name  # type: ignore[attr-defined]  # as above
    return Formal(
        parameter.name,
        optional=option == "Optional",
        variadic=option == "Variadic",
        types=frozenset(parameter.types),
        type_text=parameter.type_str,
    )
