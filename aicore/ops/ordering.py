"""Where the largest or smallest elements are: ArgMax, ArgMin, TopK."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, unknown
from aicore.ir.dtypes import NUMBERS
from aicore.ir.op import Op, Sample, Types, field_content, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import SPECIAL, floats, integers
from aicore.ops.base import Simple, ensure, need_dtype, normalize_axis
from aicore.ops.gradients import Given, Gradients, zeros_like


@op_class
class _ArgExtreme(Simple):
    axis: int = 0
    keepdims: int = 1
    select_last_index: int = 0

    def resolve(self, data: Value) -> Op:
        return self if data.rank is None else replace(self, axis=normalize_axis(self.axis, data.rank))

    def infer(self, data: Value) -> Types:
        need_dtype(data, NUMBERS)
        if data.shape is None:
            return TensorType("int64", None)
        axis = normalize_axis(self.axis, len(data.shape))
        ensure(data.shape[axis] != 0, f"axis {axis} has no elements to choose from")
        kept = (1,) if self.keepdims else ()
        return TensorType("int64", data.shape[:axis] + kept + data.shape[axis + 1 :])

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x, ties = floats(rng, (3, 4, 5)), integers(rng, (4, 9), 0, 3)
        yield Sample(cls(), (x,))
        yield Sample(cls(-1, 0), (x,), note="negative axis")
        for last in (0, 1):
            yield Sample(cls(1, 1, last), (ties,), note=f"ties, select_last_index={last}")
            yield Sample(cls(0, 0, last), (SPECIAL,), note=f"NaN, select_last_index={last}")
        yield Sample(cls(1), (floats(rng, (0, 3)),), note="zero size")
        yield Sample(cls(0), (integers(rng, (6,), 0, 256, "uint8"),), note="uint8")


@op_class
class ArgMax(_ArgExtreme):
    """int64 index of the largest element along the axis, the first or the last of equals; of NaN if there is one.

    Raises InferenceError when the axis has no elements. Source: ONNX ArgMax.
    """


@op_class
class ArgMin(_ArgExtreme):
    """int64 index of the smallest element along the axis, the first or the last of equals; of NaN if there is one.

    Raises InferenceError when the axis has no elements. Source: ONNX ArgMin.
    """


@op_class
class TopK(Op):
    """The k largest (or smallest) elements along an axis, and their int64 indices; of equals the lower index first.

    Operands x and k, a tensor of one int64, which becomes the field `k` when constant. NaN counts as the largest
    number, for `largest` 0 too. With `sorted` 0 any order is right; aicore's kernels sort all the same.
    Raises InferenceError when k exceeds the axis. Source: ONNX TopK.
    """

    axis: int = -1
    largest: int = 1
    sorted: int = 1
    k: int | None = None
    operand_fields: ClassVar[Mapping[int, str]] = {1: "k"}

    def n_outputs(self) -> int:
        return 2

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        found = field_content(inputs[1]) if len(inputs) > 1 else None
        if not isinstance(found, tuple) or len(found) != 1:
            return self, inputs
        return replace(self, k=int(found[0])), (inputs[0], None)

    def resolve(self, x: Value, k: Value | None = None) -> Op:
        return self if x.rank is None else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, k: Value | None = None) -> Types:
        need_dtype(x, NUMBERS)
        ensure((k is None) != (self.k is None), "wants k, once")
        if k is not None:
            need_dtype(k, ("int64",))
            ensure(k.shape is None or k.type.size == 1 or not k.type.is_static, f"k is {k.type}, wants one number")
        if x.shape is None:
            return x.type, TensorType("int64", None)
        axis = normalize_axis(self.axis, len(x.shape))
        count = self._count(k)
        if isinstance(count, int):
            ensure(count >= 0, f"k is {count}")
            dim = x.shape[axis]
            ensure(not isinstance(dim, int) or count <= dim, f"k is {count}, axis {axis} has {dim} elements")
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return TensorType(x.dtype, shape), TensorType("int64", shape)

    def _count(self, k: Value | None) -> Dim:
        if self.k is not None:
            return self.k
        content = k.content if k is not None else None
        return content[0] if content else unknown()

    def cost(self, x: Value, k: Value | None = None) -> tuple[Dim, Dim]:
        return x.type.size, moved_bytes(self.infer(x, k), (x, k))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """To the elements that were chosen."""
        x, g = inputs[0], grads[0]
        if g is None:
            return ()
        return (op.ScatterElements(zeros_like(op, x), outputs[1], g, axis=self.axis, reduction="add"),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x, ties = floats(rng, (3, 7)), integers(rng, (4, 9), 0, 3)
        yield Sample(cls(k=3), (x,))
        yield Sample(cls(), (x, np.array([2])), constant=(1,), note="constant k")
        yield Sample(cls(), (x, np.array([2])), note="computed k")
        yield Sample(cls(0, 0, k=2), (x,), note="smallest, axis 0")
        yield Sample(cls(k=9), (ties,), note="ties: lower index first")
        yield Sample(cls(-2, 0, k=4), (ties,), note="ties, smallest, negative axis")
        yield Sample(cls(k=7), (SPECIAL,), note="NaN is the largest")
        yield Sample(cls(largest=0, k=7), (SPECIAL,), note="NaN comes last")
        yield Sample(cls(k=0), (x,), note="k is 0")
        yield Sample(cls(k=3), (integers(rng, (5,), 0, 256, "uint8"),), note="uint8")
