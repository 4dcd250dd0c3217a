"""Values, nodes, and where they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aicore.ir.dims import Shape
from aicore.ir.dtypes import dtype_name
from aicore.ir.types import TensorType

if TYPE_CHECKING:
    from aicore.ir.op import Op

KNOWN_LIMIT = 64
"""Constants of at most this many elements may be read by inference."""

RECOMPUTED = "recompute"
"""The rule in the origin of a node that repeats another one on purpose: what merges equal nodes leaves it alone."""


class Buffer:
    """An array that never changes. Equality is identity; the digest is computed on demand."""

    __slots__ = ("_digest", "array")

    def __init__(self, array: Any) -> None:
        view = np.asarray(array).view()
        view.flags.writeable = False  # a kernel that writes into a constant would corrupt every later run
        self.array: np.ndarray[Any, Any] = view
        self._digest = ""

    @property
    def is_splat(self) -> bool:
        """One element broadcast over the whole shape, held once in memory."""
        return self.array.size > 1 and not any(self.array.strides)

    @property
    def digest(self) -> str:
        """16 hex digits of a hash of bytes, dtype and shape."""
        if not self._digest:
            array = self.array.ravel()[:1] if self.is_splat else np.ascontiguousarray(self.array)
            state = hashlib.blake2b(digest_size=8)
            state.update(f"{self.array.dtype.str}{self.array.dtype.name}{self.array.shape}{self.is_splat}".encode())
            state.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
            self._digest = state.hexdigest()
        return self._digest

    def __repr__(self) -> str:
        return f"Buffer({self.array.dtype}{list(self.array.shape)})"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One tensor; it denotes the same numbers in every version of a graph.

    constant: the numbers, for a constant.
    dims: the content of an integer tensor of rank 0 or 1 as dims, where it is known before the run (a shape, say).
    fixed: computed from constants alone, so folding will turn it into one.
    """

    name: str
    type: TensorType
    constant: Buffer | None = None
    dims: Shape | None = None
    fixed: bool = False

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> Shape | None:
        return self.type.shape

    @property
    def rank(self) -> int | None:
        shape = self.type.shape
        return None if shape is None else len(shape)

    @property
    def known(self) -> np.ndarray[Any, Any] | None:
        """The numbers of a constant that is small enough for inference to read."""
        if self.constant is None or self.constant.array.size > KNOWN_LIMIT:
            return None
        return self.constant.array

    @property
    def content(self) -> Shape | None:
        """The content of an integer tensor as dims, flattened: from `dims`, or from a small constant."""
        if self.dims is not None:
            return self.dims
        array = self.known
        if array is None or array.dtype.kind not in "iu":
            return None
        return tuple(array.ravel().tolist())

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


def constant_value(array: Any, name: str = "constant") -> Value:
    """A constant holding `array`, which must not be changed afterwards."""
    buffer = Buffer(array)
    return Value(name, TensorType(dtype_name(buffer.array.dtype), buffer.array.shape), buffer, fixed=True)


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Which source nodes a node stands for, and which rules, with match index, made it. Origins form a shared DAG."""

    name: str = ""
    parts: tuple[Origin, ...] = ()
    rule: str = ""
    match: int = 0

    def walk(self) -> Iterator[Origin]:
        """This origin and everything it was made from, each once."""
        todo, seen = [self], set()
        while todo:
            origin = todo.pop()
            if origin not in seen:
                seen.add(origin)
                yield origin
                todo.extend(origin.parts)

    def names(self) -> list[str]:
        """Names of source nodes, sorted."""
        return sorted({origin.name for origin in self.walk() if origin.name})

    def rules(self) -> list[str]:
        """`rule#match` of every rewrite, sorted."""
        return sorted({f"{origin.rule}#{origin.match}" for origin in self.walk() if origin.rule})


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One application of an op. Absent optional operands are None; trailing ones are left off."""

    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    origin: Origin = field(default_factory=Origin)

    def __str__(self) -> str:
        return describe(self.op, self.outputs[0].name if self.outputs else "", self.origin)


def describe(op: Op, name: str, origin: Origin) -> str:
    """`MatMul 'fc1' (from /fc1/MatMul)`: how errors name a node."""
    sources = [source for source in origin.names() if source != name]
    source_text = f" (from {', '.join(sources[:3])}{', ...' if len(sources) > 3 else ''})" if sources else ""
    return f"{type(op).__name__} {name!r}{source_text}"
