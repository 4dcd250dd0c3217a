"""Sliding windows: what convolutions and pools share. Defaults, checks, and `auto_pad` turned into `pads`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from aicore.errors import InferenceError
from aicore.ir.dims import Dim, Shape, as_expr
from aicore.ops.base import ensure, window_dims

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


class Windowed(Protocol):
    """The fields that every op with a sliding window has, under their ONNX names."""

    @property
    def auto_pad(self) -> str: ...
    @property
    def dilations(self) -> tuple[int, ...]: ...
    @property
    def kernel_shape(self) -> tuple[int, ...]: ...
    @property
    def pads(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...


W = TypeVar("W", bound=Windowed)


def resolve_window(op: W, spatial: Sequence[Dim] | None, count: int) -> W:
    """The op with strides, dilations and pads for `count` spatial dims, and SAME padding in numbers where it is known.

    While a spatial dim is symbolic, SAME_UPPER and SAME_LOWER stay: their pads depend on it, their output does not.
    Raises InferenceError for fields of the wrong length or out of range.
    """
    strides, dilations = op.strides or (1,) * count, op.dilations or (1,) * count
    pads = op.pads or (0,) * 2 * count
    if op.auto_pad == "NOTSET" and (strides, dilations, pads) == (op.strides, op.dilations, op.pads):
        check_window(op, count)
        return op  # it was resolved before
    given = op.pads if op.auto_pad != "NOTSET" else pads
    op = replace(op, strides=strides, dilations=dilations, pads=given)  # type: ignore[type-var]
    check_window(op, count)
    if op.auto_pad == "NOTSET":
        return op
    if op.auto_pad == "VALID":
        return replace(op, auto_pad="NOTSET", pads=(0,) * 2 * count)  # type: ignore[type-var]
    dims = None if spatial is None else [d for d in spatial if isinstance(d, int)]
    if dims is None or len(dims) != count or len(op.kernel_shape) != count:
        return replace(op, pads=())  # type: ignore[type-var]
    pads = same_pads(dims, op.kernel_shape, strides, dilations, op.auto_pad)
    return replace(op, auto_pad="NOTSET", pads=pads)  # type: ignore[type-var]


def output_dims(op: Windowed, spatial: Sequence[Dim], kernel: Sequence[Dim], ceil_mode: bool = False) -> Shape:
    """Spatial dims of a resolved op's output: ceil(dim / stride) for SAME, else what the padding leaves room for."""
    if op.auto_pad.startswith("SAME"):
        return tuple((as_expr(d) + s - 1) // s for d, s in zip(spatial, op.strides, strict=True))
    return window_dims(spatial, kernel, op.strides, op.pads, op.dilations, ceil_mode)


def numbers(dims: Sequence[Dim]) -> tuple[int, ...]:
    """The dims as numbers. Raises InferenceError when one is symbolic."""
    found = tuple(d for d in dims if isinstance(d, int))
    ensure(len(found) == len(dims), f"dims {tuple(dims)} are not known in numbers")
    return found


def same_pads(
    spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], auto_pad: str
) -> tuple[int, ...]:
    """Pads that make each output dim ceil(dim / stride); an odd one goes to the end for SAME_UPPER, else the start.

    None is negative: a kernel that is shorter than its stride skips elements at the end.
    """
    totals = [
        max((-(-d // s) - 1) * s + (k - 1) * step + 1 - d, 0)
        for d, k, s, step in zip(spatial, kernel, strides, dilations, strict=True)
    ]
    return split_padding(totals, upper=auto_pad == "SAME_UPPER")


def split_padding(totals: Sequence[int], upper: bool) -> tuple[int, ...]:
    """All begins, then all ends; the odd element goes to the end if `upper`."""
    smaller, larger = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (*smaller, *larger) if upper else (*larger, *smaller)


def check_window(op: Windowed, count: int) -> None:
    """Raise InferenceError unless the fields fit `count` spatial dims and each other."""
    ensure(count >= 1, "there is no spatial dimension: operands need rank 3 or more")
    if op.auto_pad not in AUTO_PADS:
        raise InferenceError(f"auto_pad {op.auto_pad!r} is none of {', '.join(AUTO_PADS)}")
    for name, found, wanted in (
        ("kernel_shape", op.kernel_shape, count),
        ("strides", op.strides, count),
        ("dilations", op.dilations, count),
        ("pads", op.pads, 2 * count),
    ):
        least = 0 if name == "pads" else 1
        if found and len(found) != wanted:
            raise InferenceError(f"{name} {found} has {len(found)} entries, wants {wanted} for {count} spatial dims")
        if found and min(found) < least:
            raise InferenceError(f"{name} {found} has an entry below {least}")
    if op.auto_pad != "NOTSET" and any(op.pads):
        raise InferenceError(f"pads {op.pads} contradict auto_pad {op.auto_pad}: give one of them")
