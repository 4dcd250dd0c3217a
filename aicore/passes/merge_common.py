"""Common subexpressions: the same op on the same operands is computed once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from aicore.ir import RECOMPUTED, Graph, Node, Op, Value
from aicore.passes.base import Pass, is_random
from aicore.passes.substitution import Substitution
from aicore.records import dataclass
from aicore.rewrite import Context


@dataclass(frozen=True)
class MergeCommon(Pass):
    """Equal nodes become one. Constants of at most `max_bytes` are compared by content, larger ones by identity.

    Ops that draw random numbers are never merged, nor is control flow that holds one, nor what is computed again on
    purpose so that it need not be kept.
    """

    name: ClassVar[str] = "merge-common"
    after: ClassVar[tuple[str, ...]] = ("fold-constants", "fold-shapes", "remove-identities", "cancel-transposes")
    max_bytes: int = 1024

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        first: dict[Hashable, Node] = {}
        merged = Substitution()
        kept: list[Node] = []
        for node in graph.nodes:
            node = merged.node(node)
            apart = node.origin.rule == RECOMPUTED or is_random(node.op)
            original = node if apart else first.setdefault(self._key(node), node)
            if original is node or not ctx.change():
                kept.append(node)
                continue
            for value, same in zip(node.outputs, original.outputs, strict=True):
                merged.put(value, same)
        return merged.graph(graph, kept) if merged else graph

    def _key(self, node: Node) -> Hashable:
        return node.op, _exact(node.op), tuple(map(self._operand_key, node.inputs))

    def _operand_key(self, value: Value | None) -> Hashable:
        if value is None or value.constant is None:
            return value
        if value.constant.array.nbytes > self.max_bytes:
            return value.constant
        return value.constant.digest, value.type


def _exact(op: Op) -> tuple[Any, ...]:
    """What equality of ops does not see: 0.0 equals -0.0, and 1 equals True and 1.0."""
    found: list[Any] = []
    for value in vars(op).values():
        if isinstance(value, Op):
            found.append(_exact(value))
        elif isinstance(value, float):
            found.append(repr(value))
    return tuple(found)
