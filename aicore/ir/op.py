"""The base of every op. A frozen dataclass whose fields are its attributes, so equality and hashing come free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from aicore.errors import GraphError, UnsupportedError
from aicore.ir.attributes import Attributes
from aicore.ir.dims import Dim, Shape
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.records import dataclass

if TYPE_CHECKING:
    from aicore.ir.builder import Builder, Namespace
    from aicore.ir.graph import Graph

T = TypeVar("T")
Types: TypeAlias = "TensorType | tuple[TensorType, ...]"


@dataclass(frozen=True)
class Sample:
    """One conformance case: an op and operands.

    inputs: arrays, or None for an absent operand.
    constant: which operands are constants of the graph instead of inputs (by index).
    note: what is special about it, such as `negative axis`.
    """

    op: Op
    inputs: tuple[np.ndarray[Any, Any] | None, ...]
    constant: tuple[int, ...] = ()
    note: str = ""


class Op(Attributes):
    """What is computed. Subclasses are `@op_class` or `@dataclass(frozen=True)`, and override what differs.

    A primitive op defines `infer` and `cost`. A fused op defines `decompose` alone: inference, cost, reference and
    gradient are folds over the graph that it builds.
    """

    domain: ClassVar[str] = ""
    """ONNX domain; empty for the standard one."""
    commutative: ClassVar[bool] = False
    """Two operands that may be swapped."""
    pure: ClassVar[bool] = True
    """The same operands always give the same results."""
    alias: ClassVar[tuple[tuple[int, int], ...]] = ()
    """(output, input) pairs: the output is the input's bytes under another dense shape, so no kernel need run."""
    inplace: ClassVar[tuple[tuple[int, int], ...]] = ()
    """(output, input) pairs that may share memory, given equal types and a kernel that allows it."""
    operand_fields: ClassVar[Mapping[int, str]] = {}
    """Operand index to the field that holds it once it is constant."""

    def n_outputs(self) -> int:
        return 1

    def resolve(self, *inputs: Value | None) -> Op:
        """This op with rank-dependent defaults filled in and sub-graphs typed by the operands."""
        return self

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        """This op with constant operands moved into the fields that `operand_fields` names."""
        if not self.operand_fields:
            return self, inputs
        found = {
            name: content
            for index, name in self.operand_fields.items()
            if index < len(inputs) and (content := field_content(inputs[index])) is not None
        }
        if not found:
            return self, inputs
        moved = {index for index, name in self.operand_fields.items() if name in found}
        rest = tuple(None if i in moved else value for i, value in enumerate(inputs))
        return replace(self, **found), rest  # type: ignore[type-var]

    def infer(self, *inputs: Value | None) -> Types:
        """Types of the outputs: one, or a tuple for several. Raises InferenceError when operands contradict the op."""
        return _types_of(self._expand(inputs)[1])

    def content(self, *inputs: Value | None) -> Shape | None:
        """The first output's content as dims, for ops of shape arithmetic."""
        return None

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        """(floating-point operations, bytes read and written).

        For a fused op the operations add up, but only outer operands move: interior traffic is what fusion saves.
        """
        nodes, outputs = self._expand(inputs)
        flops: Dim = sum((node.op.cost(*node.inputs)[0] for node in nodes), start=0)
        return flops, moved_bytes(_types_of(outputs), inputs)

    def decompose(self, op: Namespace, *inputs: Any) -> Any:
        """The same computation by simpler ops, built under the namespace `op`."""
        raise UnsupportedError(f"{type(self).__name__} has no decomposition")

    def with_residuals(self, *inputs: Value | None) -> Op:
        """This op with further outputs, after those that it has, which its gradient reads; itself if it needs none."""
        return self

    def grad(
        self, op: Builder, inputs: Sequence[Value | None], outputs: Sequence[Value], grads: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        """Gradients of the operands, of the operands' types, given those of the outputs.

        None where there is none: for integers, for what the outputs do not depend on, and for an output that nothing
        reads (one of `grads` at least is there). Trailing ones may be left off. The op is one that `with_residuals`
        gave, so `outputs` has what that adds. Derivatives are those of the ONNX formula; at a kink, what each op says.
        """
        raise UnsupportedError(f"{type(self).__name__} has no gradient")

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        """Conformance cases, edge cases included; each backend must agree with the reference on them."""
        return ()

    def _expand(self, inputs: Sequence[Value | None]) -> tuple[list[Any], Any]:
        from aicore.ir.builder import Builder  # the builder types nodes through ops: the one knot in this layer

        if not is_fused(self):
            raise UnsupportedError(f"{type(self).__name__} defines neither decompose nor what is asked of it")
        builder = Builder()
        outputs = self.decompose(builder, *inputs)
        return builder.nodes, outputs


def field_content(value: Value | None) -> Any:
    """A small constant as a field holds it: a scalar for rank 0, a tuple for rank 1, else None."""
    if value is None:
        return None
    if value.dims is not None and value.rank == 1 and all(isinstance(d, int) for d in value.dims):
        return value.dims
    array = value.known
    if array is None or array.ndim > 1:
        return None
    return array.item() if array.ndim == 0 else tuple(array.tolist())


def moved_bytes(types: Types, inputs: Iterable[Value | None]) -> Dim:
    """Bytes of all operands and results."""
    outputs = types if isinstance(types, tuple) else (types,)
    total: Dim = 0
    for tensor in (*(v.type for v in inputs if v is not None), *outputs):
        total = total + tensor.nbytes
    return total


def as_tuple(x: T | tuple[T, ...]) -> tuple[T, ...]:
    """`x` itself if it is a tuple, else a tuple of it alone."""
    return x if isinstance(x, tuple) else (x,)


def is_fused(op: Op) -> bool:
    """Whether the op has a decomposition."""
    return type(op).decompose is not Op.decompose


def has_gradient(op: Op) -> bool:
    """Whether the op defines its own gradient."""
    return type(op).grad is not Op.grad


def subgraphs(op: Op) -> dict[str, Graph]:
    """The graphs that the op's fields hold, by field name."""
    if not may_hold_graph(type(op)):
        return {}
    from aicore.ir.graph import Graph

    return {f.name: held for f in fields(op) if isinstance(held := getattr(op, f.name), Graph)}  # type: ignore[arg-type]


_holders: dict[type[Op], bool] = {}


def may_hold_graph(cls: type[Op]) -> bool:
    """By the field's declared type, so that the question costs a dictionary look-up for almost every node."""
    found = _holders.get(cls)
    if found is None:
        found = _holders[cls] = any("Graph" in str(f.type) for f in fields(cls))  # type: ignore[arg-type]
    return found


def _types_of(outputs: Any) -> Types:
    if isinstance(outputs, tuple):
        return tuple(value.type for value in outputs)
    if not isinstance(outputs, Value):
        raise GraphError(f"a decomposition returned {outputs!r} instead of a value")
    return outputs.type
