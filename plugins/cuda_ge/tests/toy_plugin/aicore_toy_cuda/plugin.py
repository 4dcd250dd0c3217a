"""The hooks: an op, and a kernel for the device of another plugin, which is not imported."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.ir import Namespace, Op, Sample, TensorType
from aicore.kernels import Kernel, kernel
from aicore.plugins import hookimpl
from aicore_toy_cuda import _kernels
from aicore_toy_cuda.info import INFO

__all__ = ["INFO", "register_kernels", "register_ops"]
_CAPSULES = _kernels.kernels()


@dataclass(frozen=True)
class ToyAxpy(Op):
    """alpha * x + y, of two tensors of one shape."""

    alpha: float = 1.0

    def decompose(self, op: Namespace, x: Any, y: Any) -> Any:
        return op.Add(op.Mul(x, op.scalar(self.alpha, x)), y)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for shape in ((3, 5), (1000,), (0, 4), ()):
            x, y = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
            yield Sample(ToyAxpy(alpha=-1.5), (x, y))


@dataclass(frozen=True)
class Launch:
    """What the CUDA launcher asks of a launch: a capsule, and the bytes that the kernel takes for its params."""

    kernel: Any
    params: bytes


def bind(op: ToyAxpy, types: Sequence[TensorType | None], constants: Sequence[Any]) -> Launch:
    x = types[0]
    assert x is not None  # it is required
    return Launch(_CAPSULES["toy_axpy"], struct.pack("<qff", math.prod(x.static_shape), op.alpha, 0.0))


def supports(op: ToyAxpy, x: TensorType, y: TensorType) -> str | None:
    return None if x == y else "needs operands of one shape"


@kernel(ToyAxpy, device="cuda", variant="toy", dtypes={"float32"}, supports=supports, bind=bind)
def axpy(op: ToyAxpy, x: Any, y: Any, *, out: Any) -> None:
    raise NotImplementedError("plans launch it")


@hookimpl
def register_ops() -> list[type[Op]]:
    return [ToyAxpy]


@hookimpl
def register_kernels() -> list[Kernel]:
    return [axpy]
