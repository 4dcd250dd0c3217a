"""A pointwise op, or a Region of them, as a list of steps from operands to results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aicore.ir import Node, Op, TensorType, Value, as_tuple
from aicore.ops.base import Pointwise
from aicore.ops.bits import BitCast
from aicore.ops.cast import Cast, CastLike
from aicore.ops.fused_pointwise import Region
from aicore.ops.logic import Where
from aicore_cuda_ge.codegen.elements import COMPUTED, ELEMENTS, literal
from aicore_cuda_ge.codegen.formulas import FORMULAS


@dataclass(frozen=True, slots=True)
class Step:
    """One op: `result = op(arguments)`.

    arguments: names of operands, of results of earlier steps, or of constants; None for an absent one.
    """

    op: Op
    arguments: tuple[str | None, ...]
    result: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Chain:
    """What one kernel computes.

    operands: (name, type), None for an absent one. constants: (dtype, literal) by name. results: (name, type).
    read: names of the operands whose elements are read.
    """

    operands: tuple[tuple[str, TensorType] | None, ...]
    constants: Mapping[str, tuple[str, str]]
    steps: tuple[Step, ...]
    results: tuple[tuple[str, TensorType], ...]
    read: frozenset[str]

    @property
    def title(self) -> str:
        """The ops in order, in lower case, as a part of the kernel's name."""
        return "_".join(type(step.op).__name__.lower() for step in self.steps)[:60].rstrip("_") or "copy"


def chain_of(op: Op, types: Sequence[TensorType | None]) -> Chain:
    """The op on operands of these types, which `reason_against` has accepted."""
    values = [None if t is None else Value(f"x{i}", t) for i, t in enumerate(types)]
    if isinstance(op, Region):
        names = dict(zip(op.body.inputs, [v.name for v in values if v is not None], strict=True))
        return _chain(values, names, op.body.nodes, [value for _, value in op.body.outputs])
    outputs = tuple(Value(f"y{i}", t) for i, t in enumerate(as_tuple(op.infer(*values))))
    names = {value: value.name for value in values if value is not None}
    return _chain(values, names, (Node(op, tuple(values), outputs),), outputs)


def reason_against(op: Op, types: Sequence[TensorType | None]) -> str | None:
    """Why no kernel can be generated, or None."""
    dynamic = next((t for t in types if t is not None and not t.is_static), None)
    if dynamic is not None:
        return f"the shape of {dynamic} depends on data"
    if not isinstance(op, Region):
        values = [None if t is None else Value("x", t) for t in types]
        return _reason_against_node(op, types, as_tuple(op.infer(*values)))
    return next(_reasons_against_region(op), None)


def _reasons_against_region(op: Region) -> Iterator[str]:
    for node in op.body.nodes:
        if not isinstance(node.op, Pointwise | Cast | CastLike):
            yield f"{type(node.op).__name__} in it is not pointwise"
            continue
        inner = [None if value is None else value.type for value in node.inputs]
        reason = _reason_against_node(node.op, inner, [value.type for value in node.outputs])
        if reason is not None:
            yield f"{type(node.op).__name__} in it {reason}"
    held = [
        value for node in op.body.nodes for value in node.inputs if value is not None and value.constant is not None
    ]
    if any(value.constant.array.size != 1 for value in held if value.constant is not None):
        yield "a constant in it has several numbers"
    shapes = {value.shape for _, value in op.body.outputs}
    if len(shapes) > 1:
        yield "its results have different shapes"


def _reason_against_node(op: Op, types: Sequence[TensorType | None], results: Sequence[TensorType]) -> str | None:
    if type(op) not in FORMULAS:
        return f"has no formula for {type(op).__name__}"
    allowed = frozenset(ELEMENTS) if isinstance(op, Where | BitCast) else COMPUTED
    dtypes = [t.dtype for t in types if t is not None]
    read = dtypes[:1] if isinstance(op, CastLike) else dtypes
    wrong = sorted({*read, *(t.dtype for t in results)} - allowed)
    if wrong:
        return f"does not take {', '.join(wrong)}"
    return _reason_against_bounds(op, dtypes[0])


def _reason_against_bounds(op: Op, dtype: str) -> str | None:
    """A bound of Clip that the element type does not hold is an error wherever it is met."""
    for bound in (getattr(op, "min", None), getattr(op, "max", None)):
        if bound is None:
            continue
        try:
            literal(bound, dtype)
        except (OverflowError, ValueError) as error:
            return f"its bound {bound} is no {dtype}: {error}"
    return None


def _chain(
    values: Sequence[Value | None], names: dict[Value, str], nodes: Sequence[Node], outputs: Sequence[Value]
) -> Chain:
    constants: dict[str, tuple[str, str]] = {}
    steps: list[Step] = []

    def name_of(value: Value) -> str:
        if value.constant is None:
            return names[value]
        name = f"c{len(constants)}"
        constants[name] = (value.dtype, literal(value.constant.array.reshape(())[()], value.dtype))
        return name

    for node in nodes:
        arguments = tuple(None if value is None else name_of(value) for value in node.inputs)
        arguments = arguments[:1] if isinstance(node.op, CastLike) else arguments
        names[node.outputs[0]] = f"v{len(steps)}"
        steps.append(Step(node.op, arguments, f"v{len(steps)}", node.outputs[0].dtype))
    results = tuple((name_of(value), value.type) for value in outputs)
    used = {name for step in steps for name in step.arguments} | {name for name, _ in results}
    operands = tuple(None if value is None else (value.name, value.type) for value in values)
    return Chain(
        operands,
        constants,
        tuple(steps),
        results,
        frozenset(name for name in used if name is not None and name.startswith("x")),
    )
