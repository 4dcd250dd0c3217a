"""Reverse accumulation: from the gradients of some values to those of the values that they were computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aicore.autodiff.branches import gradient_of_if
from aicore.errors import AicoreError, UnsupportedError
from aicore.ir import FLOATS, Builder, Node, Origin, Value, describe
from aicore.ops.base import same_dim
from aicore.ops.control import If


def backward(
    op: Builder, nodes: Sequence[Node], seeds: Mapping[Value, Value], wrt: Iterable[Value]
) -> list[Value | None]:
    """Append the nodes of the backward pass to `op`; returns the gradient of each value of `wrt`, None for zero.

    nodes: those between `wrt` and the values of `seeds`, in order, as `ready_for_gradient` leaves them.
    seeds: gradients, of the same types, by value; several add up where values depend on each other.
    Raises UnsupportedError naming a node whose op has no gradient.
    """
    wanted = list(wrt)
    needed = set(wanted)
    for node in nodes:
        if any(value in needed for value in node.inputs):
            needed.update(value for value in node.outputs if value.dtype in FLOATS)
    sums = _Sums(op, {value: [gradient] for value, gradient in seeds.items()})
    for node in reversed(nodes):
        grads = [sums.total(value) for value in node.outputs]
        if all(gradient is None for gradient in grads):
            continue
        op.origin = Origin(parts=(node.origin,), rule="grad")
        found = _gradients_of(op, node, grads)
        for value, gradient in zip(node.inputs, found, strict=False):
            if gradient is not None and value in needed and value is not None:
                sums.add(node, value, gradient)
    return [sums.total(value) for value in wanted]


class _Sums:
    """The gradients of each value so far: one for each use, added up when they are all there."""

    def __init__(self, op: Builder, found: dict[Value, list[Value]]) -> None:
        self._op, self._found = op, found

    def add(self, node: Node, value: Value, gradient: Value) -> None:
        if not gradient.type.agrees(value.type):
            gradient = self._same_by_name(node, value, gradient)
        self._found.setdefault(value, []).append(gradient)

    def _same_by_name(self, node: Node, value: Value, gradient: Value) -> Value:
        """The gradient with the value's own dims, where both have other names for the same sizes, as at a MatMul.

        Raises AicoreError where they cannot be the same.
        """
        wanted, got = value.shape, gradient.shape
        may_be = gradient.dtype == value.dtype and wanted is not None and got is not None and len(wanted) == len(got)
        if not may_be or not all(map(same_dim, wanted or (), got or ())):
            raise AicoreError(f"{node}: the gradient of %{value.name} is {gradient.type}, wants {value.type}")
        return self._op.Reshape(gradient, self._op.Shape(value), allowzero=1)  # type: ignore[no-any-return]

    def total(self, value: Value) -> Value | None:
        terms = self._found.get(value)
        if not terms:
            return None
        while len(terms) > 1:
            first, second, *rest = terms
            terms[:] = [self._op.Add(first, second), *rest]
        return terms[0]


def _gradients_of(op: Builder, node: Node, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    if isinstance(node.op, If):
        return gradient_of_if(op, node, grads)
    try:
        return node.op.grad(op, node.inputs, node.outputs, grads)
    except UnsupportedError as error:
        name = describe(node.op, node.outputs[0].name, node.origin)
        raise UnsupportedError(f"{name}: {error}") from error
