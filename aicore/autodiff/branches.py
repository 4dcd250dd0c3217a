"""The gradient of a conditional: a conditional of the gradients of its branches."""

from __future__ import annotations

from collections.abc import Sequence

from aicore.autodiff.forward import path, ready_for_gradient
from aicore.ir import FLOATS, Builder, Graph, Node, Value, as_tuple
from aicore.ops.control import If
from aicore.ops.gradients import zeros_like


def gradient_of_if(op: Builder, node: Node, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Gradients of the operands of an If.

    The branch that ran is computed again, since what is inside it is not seen from outside.
    """
    condition, *captured = node.inputs
    differentiable = [value for value in captured if value is not None and value.dtype in FLOATS]
    if not differentiable:
        return (None,) * len(node.inputs)
    branches = [_gradient_of_branch(branch, grads) for branch in (node.op.then_branch, node.op.else_branch)]  # type: ignore[attr-defined]
    given = [gradient for gradient in grads if gradient is not None]
    found = iter(as_tuple(op.apply(If(*branches), condition, *captured, *given)))
    return None, *(next(found) if value in differentiable else None for value in captured)


def _gradient_of_branch(graph: Graph, grads: Sequence[Value | None]) -> Graph:
    """(captured, gradients of outputs that have one) -> gradients of the captured floating-point values."""
    from aicore.autodiff.backward import backward  # which comes back here for an If in a branch

    sources = [value for value in graph.inputs if value.dtype in FLOATS]
    outputs = [value for _, value in graph.outputs]
    active = path(graph.nodes, sources, outputs)
    op = Builder()
    op.nodes.extend(ready_for_gradient(graph.nodes, active))
    given = [
        None if g is None else Value(f"grad.{value.name}", g.type) for value, g in zip(outputs, grads, strict=True)
    ]
    seeds: dict[Value, Value] = {}
    for value, gradient in zip(outputs, given, strict=True):
        if gradient is not None:
            seeds[value] = op.Add(seeds[value], gradient) if value in seeds else gradient
    found = backward(op, list(op.nodes), seeds, sources)
    results = [zeros_like(op, v) if g is None else g for v, g in zip(sources, found, strict=True)]
    inputs = (*graph.inputs, *(value for value in given if value is not None))
    return op.graph(inputs, {f"grad.{i}": value for i, value in enumerate(results)})
