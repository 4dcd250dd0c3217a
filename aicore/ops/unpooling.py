"""What MaxPool took, put back where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Shape, as_expr
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import floats
from aicore.ops._pooling_gradients import of_max_unpool
from aicore.ops.base import ensure, need_dtype, same_dim, shape_text
from aicore.ops.gradients import Given, Gradients
from aicore.ops.sizes import Movement, given, need_indices, need_vector, unknown_shape


@op_class
class MaxUnpool(Movement):
    """(x, indices, output_shape?) -> a tensor of zeros, but for x at the places that the indices tell.

    x and indices are the outputs of a MaxPool with the same fields; each index counts elements of the result, row by
    row, batch and channels included, as the ONNX text says. (The example of the official suite that has an output_shape
    counts in another shape than that.) Without output_shape, a spatial dim is (d - 1) * stride - padding + kernel; with
    it, pads are ignored. An index that is out of range is an error of the run. Of equal indices the last one counts,
    but each element gets the gradient of its place, as in PyTorch.
    Floating point. Source: ONNX MaxUnpool-22.
    """

    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    output_shape: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {2: "output_shape"}

    def resolve(self, x: Value, indices: Value, output_shape: Value | None = None) -> MaxUnpool:
        count = len(self.kernel_shape)
        strides, pads = self.strides or (1,) * count, self.pads or (0,) * 2 * count
        return replace(self, strides=strides, pads=pads)

    def infer(self, x: Value, indices: Value, output_shape: Value | None = None) -> Types:
        op = self.resolve(x, indices)
        need_dtype(x, FLOATS)
        need_indices(indices)
        need_vector(output_shape, "output_shape")
        self._check_fields(op)
        rank = len(self.kernel_shape) + 2
        for value in (x, indices):
            ensure(value.rank in (None, rank), f"%{value.name} has rank {value.rank}, the kernel wants {rank}")
        if x.shape is not None and indices.shape is not None:
            same = all(map(same_dim, x.shape, indices.shape))
            ensure(same, f"x {shape_text(x.shape)} and its indices {shape_text(indices.shape)} have different shapes")
        if self.output_shape is not None or output_shape is not None:
            wanted = given(self.output_shape, output_shape)
            ensure(wanted is None or len(wanted) == rank, f"output_shape {wanted} has not {rank} entries")
            return TensorType(x.dtype, wanted or unknown_shape(rank))
        return TensorType(x.dtype, None if x.shape is None else (*x.shape[:2], *op.dims(x.shape[2:])))

    def dims(self, spatial: Shape) -> Shape:
        """Spatial dims of the result of a resolved op without output_shape."""
        count = len(spatial)
        return tuple(
            (as_expr(dim) - 1) * self.strides[i] + self.kernel_shape[i] - self.pads[i] - self.pads[count + i]
            for i, dim in enumerate(spatial)
        )

    def _check_fields(self, op: MaxUnpool) -> None:
        count = len(self.kernel_shape)
        ensure(count, "kernel_shape is empty")
        for name, wanted, least in (("kernel_shape", count, 1), ("strides", count, 1), ("pads", 2 * count, 0)):
            found = getattr(op, name)
            ensure(len(found) == wanted, f"{name} {found} has {len(found)} entries, wants {wanted}")
            ensure(all(n >= least for n in found), f"{name} {found} has an entry below {least}")

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (of_max_unpool(op, inputs[1], grads[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        places = np.array([5, 7, 13, 15, 18, 16, 31, 24]).reshape(1, 2, 2, 2)
        x = floats(rng, (1, 2, 2, 2))
        yield Sample(cls((2, 2), strides=(2, 2)), (x, places))
        yield Sample(cls((2, 2), strides=(2, 2)), (x, places, np.array([1, 2, 5, 4])), (2,), "output_shape")
        yield Sample(cls((2, 2), strides=(2, 2)), (x, places, np.array([1, 2, 4, 5])), note="known at run time only")
        yield Sample(cls((3,), (1, 0), (2,)), (floats(rng, (1, 1, 3)), np.array([[[0, 2, 5]]])), note="pads")
        yield Sample(cls((2,)), (floats(rng, (0, 1, 3)), np.zeros((0, 1, 3), np.int64)), note="zero size")
