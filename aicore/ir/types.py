"""What is known of a tensor before it exists: element type and shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from aicore.errors import InferenceError
from aicore.ir.dims import Dim, Shape, is_unknown
from aicore.ir.dtypes import numpy_dtype

_NUMBERS = frozenset({int})


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type by name, and shape; `shape=None` when even the rank is unknown."""

    dtype: str
    shape: Shape | None = None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dim is an int."""
        return self.shape is not None and _NUMBERS.issuperset(map(type, self.shape))  # asked tens of times per node

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints; raises InferenceError when a dim is symbolic."""
        if self.shape is None or not self.is_static:
            raise InferenceError(f"the shape of {self} is not known in numbers")
        return cast(tuple[int, ...], self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements; raises InferenceError when the rank is unknown."""
        if self.shape is None:
            raise InferenceError("the rank is unknown, so the number of elements is too")
        total: Dim = 1
        for dim in self.shape:
            total = total * dim
        return total

    @property
    def nbytes(self) -> Dim:
        """Bytes of a dense tensor of this type."""
        return self.size * numpy_dtype(self.dtype).itemsize

    def agrees(self, other: TensorType) -> bool:
        """No contradiction: the same dtype, and equal dims wherever both are known."""
        if self.dtype != other.dtype:
            return False
        if self.shape is None or other.shape is None or self.shape == other.shape:
            return True
        if len(self.shape) != len(other.shape):
            return False
        return all(a == b or is_unknown(a) or is_unknown(b) for a, b in zip(self.shape, other.shape, strict=True))

    def refines(self, other: TensorType) -> bool:
        """Agrees with `other` and knows a dim (or the rank) that `other` leaves open."""
        if not self.agrees(other) or self.shape is None:
            return False
        if other.shape is None:
            return True
        return any(is_unknown(b) and not is_unknown(a) for a, b in zip(self.shape, other.shape, strict=True))

    def __str__(self) -> str:
        return f"{self.dtype}[*]" if self.shape is None else f"{self.dtype}[{','.join(map(str, self.shape))}]"


def static_bytes(tensor: TensorType) -> float:
    """Bytes as a number; infinity while a dim is symbolic, so that a comparison with a limit stays right."""
    return float(math.prod(tensor.static_shape) * numpy_dtype(tensor.dtype).itemsize) if tensor.is_static else math.inf
