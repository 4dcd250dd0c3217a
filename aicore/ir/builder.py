"""Building graphs: `op.Conv(x, w)` under a Builder makes a node; under a pattern namespace, a pattern."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from aicore.errors import AicoreError, InferenceError
from aicore.ir.dims import Dim, symbol
from aicore.ir.dtypes import numpy_dtype
from aicore.ir.graph import Graph
from aicore.ir.inference import infer_types
from aicore.ir.op import Op, as_tuple, may_hold_graph
from aicore.ir.types import TensorType
from aicore.ir.value import Node, Origin, Value, constant_value, describe

BAD_OPERANDS = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError)
"""What code that reads operands raises when they are not what it takes for granted."""


class Namespace:
    """`op.Add(x, y)` is `op.apply(Add(), x, y)`. Names find core ops only; a plugin's op is `op.apply(ItsOp(), x)`."""

    core_ops: ClassVar[Mapping[str, type[Op]]] = {}
    """Set by aicore.ops."""

    def apply(self, op: Any, *inputs: Any) -> Any:
        raise NotImplementedError

    def make(self, cls: type[Op], attributes: dict[str, Any]) -> Any:
        return cls(**attributes)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not self.core_ops:
            importlib.import_module("aicore.ops")  # sets core_ops; by name, since this layer does not know that one
        cls = self.core_ops.get(name)
        if cls is None:
            raise AttributeError(f"no core op is called {name!r}; write op.apply({name}(...), ...) for a plugin's op")
        return lambda *inputs, **attributes: self.apply(self.make(cls, attributes), *inputs)


class Builder(Namespace):
    """Collects nodes; `graph` closes them. Inference runs at once, so a wrong operand fails where it is written."""

    def __init__(self, origin: Origin | None = None) -> None:
        self.nodes: list[Node] = []
        self.origin = origin or Origin()

    def input(self, name: str, dtype: str, shape: Iterable[Dim | str] | None) -> Value:
        """An input; a dim given as text is a symbol."""
        dims = None if shape is None else tuple(symbol(d) if isinstance(d, str) else d for d in shape)
        return Value(name, TensorType(dtype, dims))

    def constant(self, array: Any, name: str = "constant") -> Value:
        return constant_value(array, name)

    def scalar(self, number: float, like: Value) -> Value:
        """A rank-0 constant of `like`'s dtype."""
        return constant_value(np.asarray(number, numpy_dtype(like.dtype)), "scalar")

    def apply(self, op: Op, *inputs: Value | None, names: Sequence[str] = (), origin: Origin | None = None) -> Any:
        """Append a node; returns its value, or a tuple of them.

        names: names of the outputs; an empty one gets the op's.
        Raises InferenceError naming the op, the node and where it came from.
        """
        origin = self.origin if origin is None else origin
        name = names[0] if names and names[0] else type(op).__name__.lower()
        try:
            op, operands = op.absorb(*inputs)
            if operands and operands[-1] is None:
                operands = _without_trailing_none(operands)
            op = op.resolve(*operands)
            types = infer_types(op, operands)
            dims = op.content(*operands)
        except AicoreError as error:
            raise type(error)(f"{describe(op, name, origin)}: {error}") from error
        except BAD_OPERANDS as error:
            shown = ", ".join("absent" if v is None else str(v.type) for v in inputs)
            raise InferenceError(f"{describe(op, name, origin)}: does not fit operands ({shown}): {error}") from error
        fixed = op.pure
        for operand in operands:
            fixed = fixed and (operand is None or operand.fixed)
        if len(types) == 1:
            first = Value(name, types[0], None, dims, fixed)
            self.nodes.append(Node(op, operands, (first,), origin))
            return first
        called = [*names[: len(types)], *[""] * (len(types) - len(names))]
        outputs = tuple(
            Value(called[i] or type(op).__name__.lower(), tensor, None, dims if i == 0 else None, fixed)
            for i, tensor in enumerate(types)
        )
        self.nodes.append(Node(op, operands, outputs, origin))
        return outputs

    def graph(
        self,
        inputs: Iterable[Value],
        outputs: Mapping[str, Value],
        state: Iterable[tuple[str, str]] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> Graph:
        return Graph(tuple(inputs), tuple(outputs.items()), tuple(self.nodes), tuple(state), metadata or {})


def inline(op: Namespace, graph: Graph, inputs: Sequence[Any]) -> Any:
    """Run the graph's nodes under a namespace; returns its output, or a tuple of them."""
    env: dict[Value | None, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        results = op.apply(node.op, *(env.get(v, v) for v in node.inputs))
        env.update(zip(node.outputs, as_tuple(results), strict=True))
    outputs = tuple(env.get(v, v) for _, v in graph.outputs)
    return outputs[0] if len(outputs) == 1 else outputs


def retype(graph: Graph, types: Iterable[TensorType]) -> Graph:
    """The graph inferred again for other input types; nodes about which nothing new is learnt are shared.

    Raises InferenceError, naming the node, when the new types contradict an op.
    """
    types = tuple(types)
    if types == tuple(v.type for v in graph.inputs) and _is_settled(graph):
        return graph
    builder = Builder()
    inputs = tuple(
        v if v.type == t else Value(v.name, t, None, v.dims) for v, t in zip(graph.inputs, types, strict=True)
    )
    env: dict[Value | None, Value] = {old: new for old, new in zip(graph.inputs, inputs, strict=True) if old is not new}
    for node in graph.nodes:
        operands = tuple(env.get(v, v) if v is not None else None for v in node.inputs)
        names = tuple(v.name for v in node.outputs)
        outputs = as_tuple(builder.apply(node.op, *operands, names=names, origin=node.origin))
        made = builder.nodes[-1]
        unchanged = made.inputs == node.inputs and made.op == node.op
        if unchanged and not any(_is_better(new, old) for new, old in zip(outputs, node.outputs, strict=True)):
            builder.nodes[-1] = node
        else:
            env.update(zip(node.outputs, outputs, strict=True))
    results = {name: env.get(v, v) for name, v in graph.outputs}
    return builder.graph(inputs, results, graph.state, graph.metadata)


def _is_settled(graph: Graph) -> bool:
    """Whether every size is a number already, so that the same inputs can teach nothing new."""
    return not any(map(may_hold_graph, graph.kinds)) and all(v.type.is_static for n in graph.nodes for v in n.outputs)


def _is_better(new: Value, old: Value) -> bool:
    if new.fixed != old.fixed or (new.dims is not None and new.dims != old.dims):
        return True
    if new.type.shape is None or new.type == old.type:
        return False
    return new.type.refines(old.type) or not _only_renames(new.type, old.type)


def _only_renames(new: TensorType, old: TensorType) -> bool:
    """Whether the two differ in unknown dims alone, so that `new` says no more than `old`."""
    from aicore.ir.dims import is_unknown

    if new.dtype != old.dtype or new.shape is None or old.shape is None or len(new.shape) != len(old.shape):
        return False
    return all(a == b or is_unknown(a) for a, b in zip(new.shape, old.shape, strict=True))


def _without_trailing_none(inputs: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
    end = len(inputs)
    while end and inputs[end - 1] is None:
        end -= 1
    return inputs[:end]
