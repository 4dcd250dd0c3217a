"""What results should be, how far they may be off, and why."""

from aicore.numerics.difference import Difference, measure, precision
from aicore.numerics.expected import Expected, Wide, expect, widest
from aicore.numerics.recast import WIDE, Recast
from aicore.numerics.tolerances import Magnitude, Tolerance, tolerance_of

__all__ = [
    "WIDE",
    "Difference",
    "Expected",
    "Magnitude",
    "Recast",
    "Tolerance",
    "Wide",
    "expect",
    "measure",
    "precision",
    "tolerance_of",
    "widest",
]
