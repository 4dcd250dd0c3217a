"""erf against the C library's."""

from __future__ import annotations

import math

import numpy as np

from aicore_cpu_numpy.erf import erf


def test_erf_is_the_c_librarys() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-300, 1.5, 2000), -np.logspace(-300, 1.5, 2000)])
    wanted = np.array([math.erf(v) for v in x])
    error = np.abs(erf(x) - wanted)
    assert np.max(error) <= 1e-15
    assert np.max(error / np.spacing(np.abs(wanted))) <= 4  # units in the last place


def test_erf_at_the_ends() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    y = erf(x)
    np.testing.assert_array_equal(y, [0.0, -0.0, 1.0, -1.0, np.nan])
    assert np.signbit(y[1])
    assert erf(np.array(0.5)).shape == ()
    assert erf(np.zeros((2, 0))).shape == (2, 0)
