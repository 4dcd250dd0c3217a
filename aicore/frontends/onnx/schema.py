"""What the installed onnx package says of an operator: arity, attributes, element types, and its body as a function."""

from __future__ import annotations

from functools import cache
from typing import Any

from aicore.frontends.onnx.attributes import Attribute, decode
from aicore.frontends.onnx.protos import defs
from aicore.records import dataclass


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
    schema: Any

    def formal_input(self, index: int) -> Formal:
        """The formal input of the operand at `index`."""
        return self.inputs[min(index, len(self.inputs) - 1)]


@cache
def signature(kind: str, domain: str, opset: int) -> Signature | None:
    """The operator as of `opset`, or None when the domain has none of that name."""
    if not defs.has(kind, domain):
        return None
    try:
        schema = defs.get_schema(kind, opset, domain)
    except defs.SchemaError:  # younger than the opset
        return None
    return _signature(schema)


def is_known(kind: str, domain: str) -> bool:
    """Whether any version of the domain has the operator."""
    return bool(defs.has(kind, domain))


def _signature(schema: defs.OpSchema) -> Signature:
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
        schema=schema,
    )


def _type_name(attribute: defs.OpSchema.Attribute) -> str:
    return str(attribute.type).rsplit(".", 1)[-1]


def _formal(parameter: defs.OpSchema.FormalParameter) -> Formal:
    option = defs.OpSchema.FormalParameterOption
    return Formal(
        parameter.name,
        optional=parameter.option == option.Optional,
        variadic=parameter.option == option.Variadic,
        types=frozenset(parameter.types),
        type_text=parameter.type_str,
    )
