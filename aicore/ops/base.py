"""What the op families share: broadcasting, axes, sliding windows, checks, and the bases of pointwise ops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from aicore.errors import InferenceError
from aicore.ir.dims import Dim, DimExpr, Shape, is_unknown, unknown
from aicore.ir.op import Op, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value


class Simple(Op):
    """One floating-point operation for each element of the largest output, unless a subclass says otherwise."""

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        types = self.infer(*inputs)
        first = types[0] if isinstance(types, tuple) else types
        return first.size, moved_bytes(types, inputs)


class Pointwise(Simple):
    """Each output element depends on the operands' elements at the same place, after broadcasting."""

    inplace: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0),)


class Unary(Pointwise):
    """x -> y of the same type."""

    def infer(self, x: Value) -> Types:
        return x.type


class Binary(Pointwise):
    """(a, b) -> y of the broadcast shape and of the operands' common dtype."""

    inplace: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0), (0, 1))

    def infer(self, a: Value, b: Value) -> Types:
        same_dtype(a, b)
        return TensorType(a.dtype, broadcast(a.shape, b.shape))


class Comparison(Pointwise):
    """(a, b) -> bool of the broadcast shape."""

    inplace: ClassVar[tuple[tuple[int, int], ...]] = ()

    def infer(self, a: Value, b: Value) -> Types:
        same_dtype(a, b)
        return TensorType("bool", broadcast(a.shape, b.shape))


def ensure(condition: object, message: str) -> None:
    """Raise InferenceError(message) unless the condition holds; the builder adds op, node and origin."""
    if not condition:
        raise InferenceError(message)


def same_dtype(*values: Value | None) -> None:
    """Raise InferenceError unless all present values have one dtype."""
    dtypes = [v.type.dtype for v in values if v is not None]
    if len(set(dtypes)) > 1:
        raise InferenceError(f"operands have different dtypes: {', '.join(dtypes)}")


def need_dtype(value: Value, allowed: Collection[str]) -> None:
    """Raise InferenceError when the element type is none of `allowed`."""
    if value.dtype not in allowed:
        names = ", ".join(sorted(allowed))
        raise InferenceError(f"%{value.name} has element type {value.dtype}, wants one of {names}")


def need_rank(value: Value, *ranks: int) -> None:
    """Raise InferenceError when the rank is known and is none of `ranks`."""
    if value.rank is not None and value.rank not in ranks:
        raise InferenceError(f"%{value.name} has rank {value.rank}, wants {' or '.join(map(str, ranks))}")


def broadcast(*shapes: Shape | None) -> Shape | None:
    """The NumPy broadcast of the shapes; None when a rank is unknown.

    Two different symbols may turn out equal or 1, so their dim is a fresh unknown.
    Raises InferenceError when two numbers differ and neither is 1.
    """
    known = [s for s in shapes if s is not None]
    if len(known) != len(shapes):
        return None
    if all(s == known[0] for s in known):
        return known[0] if known else ()
    rank = max(map(len, known), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in known]
    return tuple(_broadcast_dim(dims, shapes) for dims in zip(*padded, strict=True))


def _broadcast_dim(dims: Sequence[Dim], shapes: Sequence[Shape | None]) -> Dim:
    distinct = {d for d in dims if d != 1}
    numbers = [d for d in distinct if isinstance(d, int)]
    if len(numbers) > 1:
        raise InferenceError(f"shapes do not broadcast: {', '.join(map(shape_text, shapes))}")
    if numbers:
        return numbers[0]  # a symbol beside a number other than 1 must equal it or be 1
    if not distinct:
        return 1
    return distinct.pop() if len(distinct) == 1 else unknown()


def shape_text(shape: Shape | None) -> str:
    return "(unknown rank)" if shape is None else f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether the dims may be equal: False only for two different numbers."""
    return a == b or isinstance(a, DimExpr) or isinstance(b, DimExpr)


def merge_dim(a: Dim, b: Dim) -> Dim:
    """The more telling of two dims that must be equal: a number, then a named symbol, then an unknown."""
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) or is_unknown(a) else a


def join_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    """What is known of a tensor that has one shape or the other."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(p if p == q else unknown() for p, q in zip(a, b, strict=True))


def normalize_axis(axis: int, rank: int) -> int:
    """The axis counted from the front; raises InferenceError when it is out of range."""
    ensure(-rank <= axis < rank, f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def normalize_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """The axes counted from the front, in the order given; raises InferenceError for a repeated or wrong one."""
    found = tuple(normalize_axis(a, rank) for a in axes)
    ensure(len(set(found)) == len(found), f"axes {tuple(axes)} name one axis twice")
    return found


def window_dims(
    spatial: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
) -> Shape:
    """Output dims of a sliding window; `pads` holds all begins, then all ends, as in ONNX.

    With `ceil_mode`, a last window that would start in the end padding is left out (ONNX since opset 19).
    """
    count = len(spatial)
    out: list[Dim] = []
    for i, dim in enumerate(spatial):
        extent = (kernel[i] - 1) * dilations[i] + 1
        room = dim + pads[i] + pads[count + i] - extent
        size = (room + strides[i] - 1 if ceil_mode else room) // strides[i] + 1
        if ceil_mode and isinstance(size, int) and isinstance(dim, int) and (size - 1) * strides[i] >= dim + pads[i]:
            size -= 1
        fits = not isinstance(size, int) or size >= 0
        ensure(fits, f"the window does not fit: dim {dim} with padding, kernel {kernel[i]}")
        out.append(size)
    return tuple(out)
