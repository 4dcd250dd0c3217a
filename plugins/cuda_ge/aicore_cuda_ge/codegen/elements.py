"""Element types as generated code has them: in memory, and to compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.ir import numpy_dtype


@dataclass(frozen=True, slots=True)
class Element:
    """An element type.

    stored: the C type in memory, of `size` bytes. computed: the C type in registers; empty for bytes that are only
    moved. Both are declared in prelude.cuh.
    """

    dtype: str
    stored: str
    size: int
    computed: str

    @property
    def is_wide(self) -> bool:
        """Whether memory and registers hold the same."""
        return self.stored == self.computed

    def wide(self, expression: str) -> str:
        """What is stored, as a number to compute with."""
        return expression if self.is_wide else f"wide({expression})"

    def narrow(self, expression: str) -> str:
        """A number that was computed, rounded as a store rounds it."""
        return f"{self.stored}({expression})" if self.is_wide else f"to_{self.stored}({expression})"


def _table() -> dict[str, Element]:
    found = {
        "float16": Element("float16", "f16", 2, "f32"),
        "bfloat16": Element("bfloat16", "bf16", 2, "f32"),
        "float32": Element("float32", "f32", 4, "f32"),
        "float64": Element("float64", "f64", 8, "f64"),
        "bool": Element("bool", "b8", 1, "bool"),
        "complex64": Element("complex64", "w64", 8, ""),
        "complex128": Element("complex128", "w128", 16, ""),
    }
    for bits in (8, 16, 32, 64):
        for prefix, name in (("i", "int"), ("u", "uint")):
            found[f"{name}{bits}"] = Element(f"{name}{bits}", f"{prefix}{bits}", bits // 8, f"{prefix}{bits}")
    return found


ELEMENTS = _table()
"""Those that kernels can move; numbers that they can compute with have a `computed`."""
COMPUTED = frozenset(dtype for dtype, element in ELEMENTS.items() if element.computed)
"""Element types that generated code computes with."""


def literal(number: Any, dtype: str) -> str:
    """A number of the element type, as C has it in the type to compute with.

    Raises OverflowError for an integer that the type does not hold.
    """
    computed = ELEMENTS[dtype].computed
    value = np.asarray(number, numpy_dtype(dtype))
    if computed in ("f32", "f64"):
        return float_literal(float(value), computed)
    if computed == "bool":
        return "true" if value else "false"
    return _integer_literal(int(value), computed)


def float_literal(number: float, computed: str) -> str:
    """A number as `f32` or `f64`, rounded to it once."""
    with np.errstate(over="ignore"):
        value = float(np.float32(number)) if computed == "f32" else float(number)
    if np.isnan(value):
        return f"{computed}(not_a_number())"
    if np.isinf(value):
        return f"{computed}({'-' if value < 0 else ''}infinity())"
    # All digits of the number in float64, so that a compiler that reads a literal by way of it rounds to the same.
    return f"{value!r}f" if computed == "f32" else repr(value)


def _integer_literal(value: int, computed: str) -> str:
    if computed == "u64":
        return f"{value}ull"
    if computed == "i64":  # C has no negative literals, and the smallest number's opposite does not fit
        return f"{value}ll" if value >= 0 else f"({value + 1}ll - 1)"
    if computed == "u32":
        return f"{value}u"
    return f"{computed}({value})" if value != -(2**31) else "i32(-2147483647 - 1)"
