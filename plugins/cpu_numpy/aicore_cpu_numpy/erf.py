"""The Gauss error function, which NumPy lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# Lowest power first. Within 0.46875, erf(x) = x * A(x * x) / B(x * x); from there to 4, erfc(y) = exp(-y * y) *
# C(y) / D(y); beyond, erfc(y) = exp(-y * y) / y * (1 / sqrt(pi) - z * P(z) / Q(z)) with z = 1 / (y * y).
_A = (3.20937758913846947e3, 3.77485237685302021e2, 1.13864154151050156e2, 3.16112374387056560e0,
      1.85777706184603153e-1)  # fmt: skip
_B = (2.84423683343917062e3, 1.28261652607737228e3, 2.44024637934444173e2, 2.36012909523441209e1, 1.0)
_C = (1.23033935479799725e3, 2.05107837782607147e3, 1.71204761263407058e3, 8.81952221241769090e2,
      2.98635138197400131e2, 6.61191906371416295e1, 8.88314979438837594e0, 5.64188496988670089e-1,
      2.15311535474403846e-8)  # fmt: skip
_D = (1.23033935480374942e3, 3.43936767414372164e3, 4.36261909014324716e3, 3.29079923573345963e3,
      1.62138957456669019e3, 5.37181101862009858e2, 1.17693950891312499e2, 1.57449261107098347e1, 1.0)  # fmt: skip
_P = (6.58749161529837803e-4, 1.60837851487422766e-2, 1.25781726111229246e-1, 3.60344899949804439e-1,
      3.05326634961232344e-1, 1.63153871373020978e-2)  # fmt: skip
_Q = (2.33520497626869185e-3, 6.05183413124413191e-2, 5.27905102951428412e-1, 1.87295284992346725e0,
      2.56852019228982242e0, 1.0)  # fmt: skip
_SQRT_PI = 1.7724538509055160273


def erf(x: Any) -> Any:
    """erf(x) in float64, within 1e-15; NaN gives NaN. Takes an array, or the symbol of one.

    Source: W. J. Cody, Rational Chebyshev approximations for the error function, Mathematics of Computation 23, 1969.
    """
    x = x.astype(np.float64, copy=False)
    size = np.minimum(np.abs(x), 27.0)  # erfc(27) is 0 in float64; the bound keeps every power in range
    square = size * size
    near = size * polynomial(_A, square) / polynomial(_B, square)
    middle = 1.0 - np.exp(-square) * polynomial(_C, size) / polynomial(_D, size)
    inverse = 1.0 / np.maximum(square, 1.0)  # only read where the square is above 16
    tail = inverse * polynomial(_P, inverse) / polynomial(_Q, inverse)
    far = 1.0 - np.exp(-square) / np.maximum(size, 1.0) * (1.0 / _SQRT_PI - tail)
    return np.copysign(np.where(size <= 0.46875, near, np.where(size <= 4.0, middle, far)), x)


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """The polynomial with the constant coefficient first, by Horner's rule."""
    *rest, last = coefficients
    value = last * x + rest.pop()
    while rest:
        value = value * x + rest.pop()
    return value
