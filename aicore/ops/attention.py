"""Scaled dot-product attention in one kernel, with operands in whatever order of axes they were made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Namespace
from aicore.ir.op import Op, Sample
from aicore.ops._pointwise import floats
from aicore.ops.base import ensure

QUERIES, KEYS_TRANSPOSED, VALUES = "bhld", "bhdl", "bhld"
"""The layouts of the two products."""


@op_class
class DotProductAttention(Op):
    """softmax(scale * q @ transpose(k) + mask) @ v for each head, over the positions of k and v.

    A layout names the axes of an operand, in order: b batch, h head, l position, d feature. b, or b and h, may be
    missing from all four. An operand that holds several tensors side by side, such as the queries, keys and values of
    one product, has an axis p, and `parts` says which of them is meant. The mask broadcasts to (b, h, l of q, l of k).
    Raises InferenceError for layouts that do not fit each other or their operands. Source: Vaswani and others, 2017.
    """

    scale: float = 1.0
    q_layout: str = QUERIES
    k_layout: str = QUERIES
    v_layout: str = VALUES
    y_layout: str = QUERIES
    parts: tuple[int, ...] = (0, 0, 0)

    def decompose(self, op: Namespace, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        self._check(q, k, v)
        queries = _ordered(op, q, self.q_layout, QUERIES, self.parts[0])
        keys = _ordered(op, k, self.k_layout, KEYS_TRANSPOSED, self.parts[1])
        values = _ordered(op, v, self.v_layout, VALUES, self.parts[2])
        scores = op.Mul(op.MatMul(queries, keys), op.scalar(self.scale, q))
        if mask is not None:
            scores = op.Add(scores, mask)
        return _ordered(op, op.MatMul(op.Softmax(scores, axis=-1), values), _standard(self.y_layout), self.y_layout)

    def _check(self, *operands: Any) -> None:
        axes = set(self.y_layout)
        ensure(axes in (set("bhld"), set("hld"), set("ld")), f"y_layout is {self.y_layout!r}, which names no such axes")
        ensure(len(axes) == len(self.y_layout), f"y_layout {self.y_layout!r} names an axis twice")
        ensure(len(self.parts) == len(operands), f"parts are {self.parts}, wants one for each of q, k and v")
        layouts = (self.q_layout, self.k_layout, self.v_layout)
        for operand, layout in zip(operands, layouts, strict=True):
            fits = sorted(layout.replace("p", "")) == sorted(self.y_layout) and layout.count("p") <= 1
            ensure(fits, f"layout {layout!r} has not the axes of y, which are {self.y_layout!r}")
            ensure(operand.rank == len(layout), f"%{operand.name} is no tensor with the axes {layout!r}")

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        q, k, v = floats(rng, (2, 3, 5, 8)), floats(rng, (2, 3, 7, 8)), floats(rng, (2, 3, 7, 12))
        yield Sample(cls(0.5), (q, k, v), note="heads")
        yield Sample(cls(0.5), (q, k, v, floats(rng, (5, 7))), note="mask of positions")
        yield Sample(cls(), (q, k, v, floats(rng, (2, 1, 1, 7))), note="mask of keys")
        packed = floats(rng, (5, 2, 3, 3, 8))
        one = cls(0.3, "lbphd", "lbphd", "lbphd", "lbhd", (0, 1, 2))
        yield Sample(one, (packed, packed, packed), note="queries, keys and values side by side")
        moved = (q.transpose(0, 2, 1, 3).copy(), k.transpose(0, 1, 3, 2).copy(), v.transpose(2, 0, 1, 3).copy())
        yield Sample(cls(0.5, "blhd", "bhdl", "lbhd", "blhd"), moved, note="other orders of axes")
        yield Sample(cls(1.0, "hld", "hld", "hld", "hld"), (q[0], k[0], v[0]), note="no batch")
        yield Sample(cls(1.0, "ld", "ld", "ld", "ld"), (q[0, 0], k[0, 0], v[0, 0]), note="one head")
        yield Sample(cls(30.0), (q, k, v), note="large scores: exp must not overflow")
        long = floats(rng, (1, 2, 70, 20)), floats(rng, (1, 2, 150, 20)), floats(rng, (1, 2, 150, 20))
        yield Sample(cls(0.2), long, note="more keys and queries than one tile")
        causal = np.where(np.tri(70, 150, 3), 0.0, -np.inf).astype(np.float32)
        yield Sample(cls(0.2), (*long, causal), note="causal")
        wide = floats(rng, (1, 1, 3, 100)), floats(rng, (1, 1, 9, 100)), floats(rng, (1, 1, 9, 66))
        yield Sample(cls(0.1), wide, note="large heads of two sizes")
        hidden = np.array([[0, -np.inf, 1], [-np.inf, -np.inf, -np.inf]], np.float32)
        yield Sample(cls(), (q[0, 0, :2][None, None], *(x[:1, :1, :3] for x in (k, v)), hidden), note="nothing seen")
        special = q.copy()
        special[0, 0, 0, 0], special[0, 1, 2, 3], special[1, 1, 1, 1] = np.nan, np.inf, -np.inf
        yield Sample(cls(), (special, k, v), note="NaN, infinity")
        yield Sample(cls(), (q[:, :, :0], k, v), note="no queries")
        yield Sample(cls(k_layout="bhdl"), (q[:0], k[:0].transpose(0, 1, 3, 2), v[:0]), note="no batch entries")


def is_factor(number: float) -> bool:
    """Whether a kernel can have it as its scale: float32 neither overflows nor loses digits."""
    return number == 0 or 2.0**-126 <= abs(number) < 2.0**127


def _standard(layout: str) -> str:
    """The order of axes in which a product has them."""
    return "".join(axis for axis in QUERIES if axis in layout)


def _ordered(op: Namespace, x: Any, layout: str, wanted: str, part: int = 0) -> Any:
    """One part of x with its axes in the order wanted."""
    if "p" in layout:
        x = op.Gather(x, op.constant(np.asarray(part, np.int64)), axis=layout.index("p"))
        layout = layout.replace("p", "")
    perm = tuple(layout.index(axis) for axis in wanted if axis in layout)
    return x if perm == tuple(range(len(perm))) else op.Transpose(x, perm=perm)
