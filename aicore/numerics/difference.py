"""How far results are from what they should be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aicore.ir import FLOATS, dtype_name, numpy_dtype
from aicore.records import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Precision:
    """Of a floating-point type: the unit roundoff, the smallest normal and the largest finite number."""

    roundoff: float
    smallest: float
    largest: float

    def spacing(self, numbers: Array) -> Array:
        """The distance from each float64 number to the next one of this type."""
        _, exponents = np.frexp(np.maximum(np.abs(numbers), self.smallest))
        result: Array = np.ldexp(2 * self.roundoff, exponents - 1)
        return result


def precision(dtype: str) -> Precision:
    """What is known of float16, bfloat16, float32 or float64."""
    digits, lowest, highest = {
        "float16": (11, -14, 16),
        "bfloat16": (8, -126, 128),
        "float32": (24, -126, 128),
        "float64": (53, -1022, 1024),
    }[dtype]
    roundoff = 2.0**-digits
    return Precision(roundoff, 2.0**lowest, math.ldexp(1 - roundoff, highest))


@dataclass(frozen=True)
class Difference:
    """Results beside what they should be.

    max_relative, mean_relative: |got - want| / |want|, over elements where that is a number.
    max_absolute: largest |got - want|.
    max_ulps: the same in units in the last place of `want`; 0 for what is not floating point.
    wrong: elements beyond what is allowed; `elements` of all.
    share: the largest error as a share of what is allowed; above 1 is wrong, infinite where nothing is allowed.
    text: what is wrong, naming the worst element; empty when nothing is.
    """

    max_relative: float = 0.0
    mean_relative: float = 0.0
    max_absolute: float = 0.0
    max_ulps: float = 0.0
    wrong: int = 0
    elements: int = 0
    share: float = 0.0
    text: str = ""

    @property
    def is_right(self) -> bool:
        return not self.text

    def worse(self, other: Difference) -> Difference:
        """Both together: the larger errors, the mean over all elements, and the text of the first wrong one."""
        elements = self.elements + other.elements
        weighted = self.mean_relative * self.elements + other.mean_relative * other.elements
        return Difference(
            max(self.max_relative, other.max_relative),
            weighted / elements if elements else 0.0,
            max(self.max_absolute, other.max_absolute),
            max(self.max_ulps, other.max_ulps),
            self.wrong + other.wrong,
            elements,
            max(self.share, other.share),
            self.text or other.text,
        )


def measure(got: Array, want: Array, allowed: Array | float = 0.0) -> Difference:
    """How far `got` is from `want`.

    want: of the same shape; floats may be in float64, anything else is compared for equality.
    allowed: largest |got - want| of each element, or of all. NaN and infinities must be where those of `want` are after
        rounding to the type of `got`; signs of zeros and payloads of NaN say nothing.
    """
    if got.shape != want.shape:
        return Difference(text=f"the shape is {list(got.shape)}, should be {list(want.shape)}", share=math.inf)
    dtype = dtype_name(got.dtype)
    if dtype in FLOATS and dtype_name(want.dtype) in FLOATS:
        return _floats(got, want.astype(np.float64), precision(dtype), allowed)
    if got.dtype != want.dtype:
        return Difference(text=f"the dtype is {dtype}, should be {dtype_name(want.dtype)}", share=math.inf)
    return _exact(got, want)


def _floats(got: Array, want: Array, kind: Precision, allowed: Array | float) -> Difference:
    if not got.size:
        return Difference()
    numbers = got.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(want)
        # Rounding may overflow: an infinity where the limit is near is the next number after the largest one.
        reached = np.where(np.isinf(numbers) & finite, np.copysign(kind.largest + _step(kind), numbers), numbers)
        over = finite & (np.abs(want) > kind.largest) & np.isinf(numbers) & (np.sign(numbers) == np.sign(want))
        error = np.where(over | ~finite, 0.0, np.abs(reached - want))
        broken = np.where(finite, np.isnan(numbers), ~_same(numbers, want))
        error[broken] = np.inf
        limit = np.broadcast_to(np.asarray(allowed, np.float64), want.shape)
        share = np.where(error == 0, 0.0, np.where(limit > 0, error / limit, np.inf))
        share[broken] = np.inf  # also where anything finite would do
        known = finite & ~broken & ~over
        relative = np.where(known & (want != 0), error / np.abs(want), 0.0)
        ulps = np.where(known, error / kind.spacing(want), 0.0)
    wrong = int(np.sum(share > 1))
    return Difference(
        max_relative=float(relative.max()),
        mean_relative=float(relative.mean()),
        max_absolute=float(error[known].max(initial=0.0)),
        max_ulps=float(ulps.max()),
        wrong=wrong,
        elements=got.size,
        share=float(share.max()),
        text=_describe(got, want, share, limit, wrong) if wrong else "",
    )


def _step(kind: Precision) -> float:
    return float(kind.spacing(np.asarray(kind.largest)))


def _same(got: Array, want: Array) -> Array:
    result: Array = (got == want) | (np.isnan(got) & np.isnan(want))
    return result


def _exact(got: Array, want: Array) -> Difference:
    if not got.size:
        return Difference()
    wide = numpy_dtype("float64") if dtype_name(got.dtype) not in ("string", "complex64", "complex128") else None
    with np.errstate(all="ignore"):
        unequal = got != want
        if wide is not None:
            a, b = got.astype(wide), want.astype(wide)
            unequal &= ~(np.isnan(a) & np.isnan(b))
            gap = np.where(unequal, np.abs(a - b), 0.0)
            relative = np.where(unequal, gap / np.maximum(np.abs(b), 1), 0.0)
        else:
            gap = relative = unequal.astype(np.float64)
    share = np.where(unequal, np.inf, 0.0)
    wrong = int(unequal.sum())
    return Difference(
        max_relative=float(relative.max()),
        mean_relative=float(relative.mean()),
        max_absolute=float(gap.max()),
        wrong=wrong,
        elements=got.size,
        share=float(share.max()),
        text=_describe(got, want, share, np.zeros(got.shape), wrong) if wrong else "",
    )


def _describe(got: Array, want: Array, share: Array, limit: Array, wrong: int) -> str:
    worst = np.unravel_index(int(share.argmax()), share.shape)
    place = f"[{', '.join(map(str, worst))}]"
    is_float = dtype_name(got.dtype) in FLOATS
    form = (lambda x: f"{float(x):.9g}") if is_float else str
    bound = f", at most {limit[worst]:.3g} apart" if is_float and limit[worst] > 0 else ""
    return (
        f"{wrong} of {got.size} elements are wrong; {place} is {form(got[worst])}, should be {form(want[worst])}{bound}"
    )
