"""What a file says of its values, held against what is inferred."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence

from aicore.errors import ModelError
from aicore.frontends.onnx._elements import CONSTRAINT_OF
from aicore.frontends.onnx.protos import ValueInfoProto
from aicore.frontends.onnx.schema import Signature
from aicore.frontends.onnx.typing import declared_type
from aicore.frontends.onnx.validate import CheckedNode
from aicore.ir import Value

_log = logging.getLogger("aicore.frontends.onnx")


def check_operand_types(node: CheckedNode, schema: Signature, inputs: Sequence[Value | None]) -> None:
    """Hold the operands' element types against those that the operator takes.

    Raises ModelError naming node and operand.
    """
    for index, value in enumerate(inputs):
        if value is None:
            continue
        formal = schema.formal_input(index)
        if CONSTRAINT_OF[value.dtype] not in formal.types:
            raise ModelError(
                f"{node.where}: operand {value.name!r} ({formal.name}) is {value.type}; {node.kind} of opset "
                f"{schema.since} takes {', '.join(sorted(formal.types))}"
            )


def check_declared(declared: ValueInfoProto, value: Value, what: str) -> None:
    """Hold what the file says of a value against what was inferred; a stale shape is told, not believed.

    Raises ModelError when the element type differs.
    """
    wanted = declared_type(declared)
    if wanted is None or wanted.agrees(value.type):
        return
    message = f"{what} {declared.name!r} is declared as {wanted}, but it is {value.type}"
    if wanted.dtype != value.type.dtype:
        raise ModelError(message)
    numbers = itertools.zip_longest(wanted.shape or (), value.type.shape or (), fillvalue=-1)
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in numbers):
        _log.warning("%s; the declared shape is ignored", message)
