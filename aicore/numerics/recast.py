"""An op, its operands and its sub-graphs in other element types: for the dtypes of a sample, and for float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from aicore.ir import Buffer, Builder, Graph, Op, TensorType, Value, as_tuple, dtype_name, numpy_dtype
from aicore.records import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Recast:
    """Changes element types wherever they occur; what is in none of the given types stays.

    dtypes: from the name of a dtype to that which takes its place.
    kept: names of fields of ops that stay.
    """

    dtypes: Mapping[str, str]
    kept: frozenset[str] = frozenset()

    def array(self, array: Array) -> Array:
        """The numbers in the new type, rounded where it is narrower; the array itself where its type stays."""
        name = dtype_name(array.dtype)
        if name not in self.dtypes:
            return array
        with np.errstate(all="ignore"):
            return array.astype(numpy_dtype(self.dtypes[name]))

    def op(self, op: Op) -> Op:
        """The op with the dtypes, constants, ops and graphs of its fields recast."""
        changed: dict[str, Any] = {}
        for field in fields(op):  # type: ignore[arg-type]  # every op is a dataclass
            held = getattr(op, field.name)
            new = held if field.name in self.kept else self._field(held)
            if new is not held:
                changed[field.name] = new
        return replace(op, **changed) if changed else op  # type: ignore[type-var]

    def graph(self, graph: Graph) -> Graph:
        """The graph inferred again. Raises InferenceError where an op does not take the new types."""
        builder = Builder()
        env: dict[Value | None, Value] = {}
        for value in graph.inputs:
            env[value] = Value(value.name, self._type(value.type), None, value.dims)
        for node in graph.nodes:
            operands = [self._operand(value, env) for value in node.inputs]
            names = [value.name for value in node.outputs]
            results = builder.apply(self.op(node.op), *operands, names=names, origin=node.origin)
            env.update(zip(node.outputs, as_tuple(results), strict=True))
        outputs = {name: env[value] if value in env else self._constant(value) for name, value in graph.outputs}
        return builder.graph([env[value] for value in graph.inputs], outputs, graph.state, graph.metadata)

    def _field(self, held: Any) -> Any:
        """A text that is the name of a dtype is one: no attribute has such a value for another reason."""
        match held:
            case str():
                return self.dtypes.get(held, held)
            case Op():
                return self.op(held)
            case Graph():
                return self.graph(held)
            case Buffer():
                array = self.array(held.array)
                return held if array is held.array else Buffer(array)
        return held

    def _type(self, tensor: TensorType) -> TensorType:
        return TensorType(self.dtypes.get(tensor.dtype, tensor.dtype), tensor.shape)

    def _operand(self, value: Value | None, env: Mapping[Value | None, Value]) -> Value | None:
        if value is None:
            return None
        return env[value] if value in env else self._constant(value)

    def _constant(self, value: Value) -> Value:
        if value.constant is None or value.dtype not in self.dtypes:
            return value
        return Builder().constant(self.array(value.constant.array), value.name)


WIDE = Recast(dict.fromkeys(("float16", "bfloat16", "float32"), "float64"))
"""Everything of floating point in float64; types below 16 bits stay, because casts to them are what is asked."""
