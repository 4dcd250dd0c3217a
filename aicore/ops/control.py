"""Control flow. Sub-graphs are closed: what they use from outside comes in through trailing operands.

These ops have no kernels; the runtime walks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aicore.errors import InferenceError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder, retype
from aicore.ir.dims import Dim, DimExpr, Shape, unknown
from aicore.ir.graph import Graph
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, join_shapes, merge_dim, normalize_axis, same_dim
from aicore.ops.sizes import exported, operand_symbols


@op_class
class If(Op):
    """The outputs of `then_branch` when `cond` is true, else those of `else_branch`.

    Operands: cond (one bool), then the values that the branches use from outside; both branches take exactly these as
    inputs. An output's shape says what its two sources have in common. Source: ONNX If.

    A branch that contradicts the sizes of what it captures keeps the types that it had: it cannot run on them, so that
    the other branch alone says what the outputs are, and taking it is an error of the run.
    """

    then_branch: Graph
    else_branch: Graph

    def n_outputs(self) -> int:
        return len(self.then_branch.outputs)

    def resolve(self, cond: Value, *captured: Value) -> Op:
        self._check(cond, len(captured))
        branches = (self.then_branch, self.else_branch)
        if all(_fits(branch, captured) for branch in branches):
            return self
        types = [v.type for v in captured]
        first, second = (_retyped(branch, types) for branch in branches)
        if isinstance(first, InferenceError) and isinstance(second, InferenceError):
            raise first
        return If(*(b if isinstance(a, InferenceError) else a for a, b in zip((first, second), branches, strict=True)))

    def infer(self, cond: Value, *captured: Value) -> Types:
        self._check(cond, len(captured))
        outer = operand_symbols(captured)
        first, second = self._possible(captured)
        joined = []
        for (name, a), (_, b) in zip(first.outputs, second.outputs, strict=True):
            ensure(a.dtype == b.dtype, f"output {name!r} is {a.dtype} in one branch and {b.dtype} in the other")
            joined.append(TensorType(a.dtype, exported(join_shapes(a.shape, b.shape), outer)))
        return tuple(joined)

    def cost(self, cond: Value, *captured: Value) -> tuple[Dim, Dim]:
        """Of the branch with more operations; of both, where that is not known."""
        first, second = map(_flops, self._possible(captured))
        both = isinstance(first, int) and isinstance(second, int)
        flops = max(first, second) if both else first + second  # type: ignore[type-var]
        return flops, moved_bytes(self.infer(cond, *captured), captured)

    def _possible(self, captured: Sequence[Value]) -> tuple[Graph, Graph]:
        """Both branches; twice the same one where the other contradicts what it captures."""
        first, second = self.then_branch, self.else_branch
        match _fits(first, captured), _fits(second, captured):
            case True, False:
                return first, first
            case False, True:
                return second, second
        return first, second

    def _check(self, cond: Value, captured: int) -> None:
        _need_condition(cond)
        counts = {len(self.then_branch.outputs), len(self.else_branch.outputs)}
        ensure(len(counts) == 1, f"the branches have different numbers of outputs: {sorted(counts)}")
        for name, branch in (("then_branch", self.then_branch), ("else_branch", self.else_branch)):
            fits = len(branch.inputs) == captured
            ensure(fits, f"{name} takes {len(branch.inputs)} inputs, and {captured} values are captured")

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3)).astype(np.float32)
        branches = []
        for name in ("Neg", "Abs"):
            op = Builder()
            captured = op.input("x", "float32", (2, 3))
            branches.append(op.graph([captured], {"y": getattr(op, name)(captured)}))
        for cond in (True, False):
            yield Sample(If(*branches), (np.array(cond), x), note=f"cond {cond}")


@op_class
class Loop(Op):
    """Runs `body` up to `trip_count` times and while the condition holds, handing `carried` values on.

    Operands: trip_count (one int64, or absent: no limit), cond (one bool, or absent: true), the first carried values,
    then what the body uses from outside. The body takes (iteration, cond, *carried, *captured) and gives
    (cond, *carried, *scanned). Results: the last carried values, and each scanned output stacked along a new axis 0.
    Source: ONNX Loop.
    """

    body: Graph
    carried: int = 0

    def n_outputs(self) -> int:
        return len(self.body.outputs) - 1

    def resolve(self, trip_count: Value | None = None, cond: Value | None = None, *values: Value) -> Op:
        self._check(trip_count, cond, values)
        first, captured = values[: self.carried], values[self.carried :]
        counters = [_one(self.body.inputs[0], "int64"), _one(self.body.inputs[1], "bool")]
        body = _settle(self.body, counters, first, [v.type for v in captured], 1)
        return self if body is self.body else replace(self, body=body)

    def infer(self, trip_count: Value | None = None, cond: Value | None = None, *values: Value) -> Types:
        self._check(trip_count, cond, values)
        ends = [v.type for _, v in self.body.outputs[1 + self.carried :]]
        outer, length = operand_symbols(values), self._length(trip_count, cond)
        scanned = [TensorType(t.dtype, _stacked(exported(t.shape, outer), length, 0)) for t in ends]
        return (*_carried_types(values[: self.carried], self.body.inputs[2:]), *scanned)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        trip_count = inputs[0] if inputs else None
        content = None if trip_count is None else trip_count.content
        return _flops(self.body) * (content[0] if content else unknown()), moved_bytes(self.infer(*inputs), inputs)  # type: ignore[arg-type]

    def _length(self, trip_count: Value | None, cond: Value | None) -> Dim:
        """The number of iterations where nothing can stop the loop early."""
        content = None if trip_count is None else trip_count.content
        goes_on = cond is None or (cond.known is not None and bool(cond.known.all()))
        if not content or not goes_on or not keeps_condition(self.body):
            return unknown()
        return max(content[0], 0) if isinstance(content[0], int) else content[0]

    def _check(self, trip_count: Value | None, cond: Value | None, values: Sequence[Value]) -> None:
        if trip_count is not None:
            fits = trip_count.dtype == "int64" and (trip_count.rank in (None, 0) or trip_count.shape == (1,))
            ensure(fits, f"trip count %{trip_count.name} is {trip_count.type}, wants one int64")
        if cond is not None:
            _need_condition(cond)
        _check_body(self.body, 2, self.carried, len(values), 1)
        ensure(self.body.outputs[0][1].dtype == "bool", "the body's first output, its condition, is not bool")

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        op = Builder()
        iteration, cond = op.input("iteration", "int64", ()), op.input("cond", "bool", ())
        total, step = op.input("total", "float32", (2,)), op.input("step", "float32", (2,))
        result = op.Add(total, step)
        body = op.graph(
            [iteration, cond, total, step], {"go_on": op.Identity(cond), "sum": result, "each": op.Mul(result, result)}
        )
        first, by = rng.normal(size=2).astype(np.float32), rng.normal(size=2).astype(np.float32)
        yield Sample(Loop(body, 1), (np.array(3, np.int64), np.array(True), first, by), note="three times")
        yield Sample(Loop(body, 1), (np.array(0, np.int64), None, first, by), note="never: no trips")
        yield Sample(Loop(body, 1), (np.array(9, np.int64), np.array(False), first, by), note="never: condition")


@op_class
class Scan(Op):
    """Runs `body` once for each slice of the scan inputs, handing `carried` states on.

    Operands: the first states, the scan inputs, then what the body uses from outside. The body takes
    (*states, *slices, *captured) and gives (*states, *scanned). Results: the last states, and each scanned output
    stacked along a new axis. Axes and directions (1: from the end) are given one for each scan input or output.
    Source: ONNX Scan.
    """

    body: Graph
    num_scan_inputs: int
    carried: int = 0
    scan_input_axes: tuple[int, ...] | None = None
    scan_input_directions: tuple[int, ...] | None = None
    scan_output_axes: tuple[int, ...] | None = None
    scan_output_directions: tuple[int, ...] | None = None

    def n_outputs(self) -> int:
        return len(self.body.outputs)

    def resolve(self, *values: Value) -> Op:
        op = self._with_defaults(len(values))
        states, scanned, captured = op._parts(values)
        slices = [_slice_type(v, axis) for v, axis in zip(scanned, op.scan_input_axes or (), strict=True)]
        body = _settle(self.body, [], states, [*slices, *(v.type for v in captured)], 0)
        return replace(op, body=body)

    def infer(self, *values: Value) -> Types:
        op = self._with_defaults(len(values))
        states, scanned, _ = op._parts(values)
        length = _common_length(scanned, op.scan_input_axes or ())
        outer = operand_symbols(values)
        ends = [v.type for _, v in op.body.outputs[op.carried :]]
        stacked = [
            TensorType(t.dtype, _stacked(exported(t.shape, outer), length, axis))
            for t, axis in zip(ends, op.scan_output_axes or (), strict=True)
        ]
        return (*_carried_types(states, op.body.inputs), *stacked)

    def cost(self, *values: Value) -> tuple[Dim, Dim]:
        _, scanned, _ = self._parts(values)
        times = _common_length(scanned, self.scan_input_axes or (0,) * self.num_scan_inputs)
        return _flops(self.body) * times, moved_bytes(self.infer(*values), values)

    def _parts(self, values: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value], Sequence[Value]]:
        end = self.carried + self.num_scan_inputs
        return values[: self.carried], values[self.carried : end], values[end:]

    def _with_defaults(self, count: int) -> Scan:
        """This op with axis 0 and direction 0 (forward) where nothing is given."""
        ensure(self.num_scan_inputs > 0, f"num_scan_inputs is {self.num_scan_inputs}, wants at least 1")
        _check_body(self.body, 0, self.carried, count, 0)
        ensure(count >= self.carried + self.num_scan_inputs, f"{count} operands are not enough")
        outputs = len(self.body.outputs) - self.carried
        found: dict[str, Any] = {}
        for side, number in (("input", self.num_scan_inputs), ("output", outputs)):
            for what in ("axes", "directions"):
                name = f"scan_{side}_{what}"
                given = getattr(self, name) or (0,) * number
                ensure(len(given) == number, f"{name} has {len(given)} numbers for {number} scan {side}s")
                found[name] = tuple(given)
        for name in ("scan_input_directions", "scan_output_directions"):
            ensure(set(found[name]) <= {0, 1}, f"{name} is {found[name]}, wants 0 or 1 each")
        return replace(self, **found)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        op = Builder()
        total, x = op.input("total", "float32", (2,)), op.input("x", "float32", (2,))
        result = op.Add(total, x)
        body = op.graph([total, x], {"sum": result, "each": op.Identity(result)})
        first, rows = np.zeros(2, np.float32), rng.normal(size=(3, 2)).astype(np.float32)
        yield Sample(Scan(body, 1, 1), (first, rows))
        yield Sample(Scan(body, 1, 1, (-1,), (1,), (1,), (1,)), (first, rows.T.copy()), note="backwards, along axis 1")
        yield Sample(Scan(body, 1, 1), (first, rows[:0]), note="no slices")


def _fits(branch: Graph, captured: Sequence[Value]) -> bool:
    """Whether the branch is typed for these values."""
    return [v.type for v in branch.inputs] == [v.type for v in captured]


def _retyped(branch: Graph, types: Sequence[TensorType]) -> Graph | InferenceError:
    """The branch for operands of these types, or why it cannot take them."""
    try:
        return retype(branch, types)
    except InferenceError as error:
        return error


def _settle(
    body: Graph, before: Sequence[TensorType], first: Sequence[Value], after: Sequence[TensorType], skip: int
) -> Graph:
    """The body retyped so that its carried inputs hold the first values as well as those that it hands on itself.

    A dim that an iteration may change becomes unknown, and a rank likewise, until nothing changes any more; each round
    gives up at least one dim or rank, so there are at most as many rounds as these.
    """
    carried = [v.type for v in first]
    open_dims: set[DimExpr] = set()
    while True:
        wanted = [*before, *carried, *after]
        typed = body if _same_types(body, wanted, open_dims) else retype(body, wanted)
        produced = [v.type for _, v in typed.outputs[skip : skip + len(carried)]]
        wider = [_widened(a, b, v, open_dims) for a, b, v in zip(carried, produced, first, strict=True)]
        if wider == carried:
            return typed
        carried = wider


def _widened(current: TensorType, produced: TensorType, first: Value, open_dims: set[DimExpr]) -> TensorType:
    same = current.dtype == produced.dtype
    ensure(same, f"carried value %{first.name} is {current.dtype} at first and {produced.dtype} afterwards")
    a, b = current.shape, produced.shape
    if a is None or b is None or len(a) != len(b):
        return TensorType(current.dtype, None)
    dims: list[Dim] = []
    for p, q in zip(a, b, strict=True):
        if p == q or p in open_dims:
            dims.append(p)
            continue
        fresh = unknown()
        open_dims.add(fresh)
        dims.append(fresh)
    return TensorType(current.dtype, tuple(dims))


def _same_types(body: Graph, wanted: Sequence[TensorType], open_dims: set[DimExpr]) -> bool:
    """Whether the body has these input types already, up to the names of the dims that were given up."""
    names: dict[Dim, Dim] = {}
    for value, tensor in zip(body.inputs, wanted, strict=True):
        old, new = value.type.shape, tensor.shape
        if value.dtype != tensor.dtype or (old is None) != (new is None) or len(old or ()) != len(new or ()):
            return False
        for p, q in zip(old or (), new or (), strict=True):
            known_as = names.setdefault(q, p) if q in open_dims and isinstance(p, DimExpr) else q
            if known_as != p:
                return False
    return len(set(names.values())) == len(names)


def _carried_types(first: Sequence[Value], inputs: Sequence[Value]) -> list[TensorType]:
    """What is known of carried values after the last iteration: the dims that none changes."""
    pairs = zip(first, inputs, strict=False)
    return [TensorType(v.dtype, join_shapes(v.shape, held.shape)) for v, held in pairs]


def _one(held: Value, dtype: str) -> TensorType:
    """One number as the body takes it: a scalar, or a vector of one where the file says so."""
    return TensorType(dtype, (1,) if held.shape == (1,) else ())


def keeps_condition(body: Graph) -> bool:
    """Whether the body hands on its condition as it came in, or a constant true."""
    value = body.outputs[0][1]
    while (node := body.producer.get(value)) is not None and type(node.op).__name__ == "Identity":
        operand = node.inputs[0]
        if operand is None:
            return False
        value = operand
    return value is body.inputs[1] or (value.known is not None and bool(value.known.all()))


def _slice_type(value: Value, axis: int) -> TensorType:
    if value.shape is None:
        return value.type
    along = normalize_axis(axis, len(value.shape))
    return TensorType(value.dtype, value.shape[:along] + value.shape[along + 1 :])


def _common_length(values: Sequence[Value], axes: Sequence[int]) -> Dim:
    """The number of slices, on which all scan inputs agree."""
    length: Dim | None = None
    for value, axis in zip(values, axes, strict=True):
        if value.shape is None:
            continue
        dim = value.shape[normalize_axis(axis, len(value.shape))]
        length = dim if length is None else length
        ensure(same_dim(length, dim), f"scan inputs have different numbers of slices: {length} and {dim}")
        length = merge_dim(length, dim)
    return unknown() if length is None else length


def _stacked(shape: Shape | None, length: Dim, axis: int) -> Shape | None:
    if shape is None:
        return None
    along = normalize_axis(axis, len(shape) + 1)
    return (*shape[:along], length, *shape[along:])


def _need_condition(cond: Value) -> None:
    fits = cond.dtype == "bool" and (cond.rank in (None, 0) or all(same_dim(d, 1) for d in cond.shape or ()))
    ensure(fits, f"condition %{cond.name} is {cond.type}, wants one bool")


def _check_body(body: Graph, before: int, carried: int, operands: int, skip: int) -> None:
    ensure(0 <= carried <= operands, f"{carried} carried values, and {operands} operands")
    wanted = before + operands
    ensure(len(body.inputs) == wanted, f"the body takes {len(body.inputs)} inputs, wants {wanted}")
    least = skip + carried
    ensure(len(body.outputs) >= least, f"the body has {len(body.outputs)} outputs, wants at least {least}")


def _flops(graph: Graph) -> Dim:
    total: Dim = 0
    for node in graph.nodes:
        total = total + node.op.cost(*node.inputs)[0]
    return total
