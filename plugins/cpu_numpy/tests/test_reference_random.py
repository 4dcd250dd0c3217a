"""Random draws: the words of the generator, turned into numbers by hand, and what the numbers look like in bulk."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.kernels import REFERENCE, KernelTable
from aicore.ops.random import DrawKey, DrawNormal, DrawUniform
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cpu_numpy.reference.random import draw_normal, philox

EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
KEY = np.array([7, 9], np.uint32)
WORDS = [int(word) >> 8 for word in philox(KEY, 2, 6)]


def run(op: Any, *operands: Any) -> np.ndarray[Any, Any]:
    (found,) = EVALUATE(op, *operands)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers_are_the_upper_bits_of_the_words(dtype: str) -> None:
    found = run(DrawUniform(dtype, 3.0, -1.0, (2, 3), 2), KEY)
    wanted = [-1 + word / 2**24 * 4 for word in WORDS]
    np.testing.assert_allclose(found.reshape(-1), wanted, rtol=1e-6)
    assert found.dtype == dtype


def test_normal_numbers_come_in_pairs() -> None:
    found = run(DrawNormal("float64", 10.0, 2.0, (5,), 2), KEY)
    wanted = []
    for u, v in zip(WORDS[::2], WORDS[1::2], strict=True):
        radius, angle = math.sqrt(-2 * math.log(1 - u / 2**24)), 2 * math.pi * v / 2**24
        wanted += [10 + 2 * radius * math.cos(angle), 10 + 2 * radius * math.sin(angle)]
    np.testing.assert_allclose(found, wanted[:5], rtol=1e-12)


def test_normal_numbers_have_the_moments_and_the_tails_of_the_distribution() -> None:
    x = run(DrawNormal("float64", shape=(200_000,)), KEY)
    assert np.isfinite(x).all()
    moments = [x.mean(), x.var(), (x**3).mean(), (x**4).mean()]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.06)  # five deviations: sqrt(96 / 200,000) is 0.022
    shares = [(abs(x) > limit).mean() for limit in (1, 2, 3)]
    np.testing.assert_allclose(shares, [0.3173, 0.0455, 0.0027], atol=0.005)


def test_streams_keys_and_shapes() -> None:
    base = run(DrawUniform(shape=(4, 2)), KEY)
    np.testing.assert_array_equal(run(DrawUniform(), KEY, np.array([4, 2])), base)
    np.testing.assert_array_equal(run(DrawUniform(shape=(8,)), KEY), base.reshape(-1))
    for other in (run(DrawUniform(shape=(4, 2), stream=1), KEY), run(DrawUniform(shape=(4, 2)), KEY + np.uint32(1))):
        assert not np.array_equal(base, other)
    assert run(DrawNormal(shape=(2, 0)), KEY).shape == (2, 0)


def test_keys_differ() -> None:
    keys = [tuple(run(DrawKey()).tolist()) for _ in range(4)]
    assert len(set(keys)) == 4


def test_a_negative_dim_of_the_run() -> None:
    with pytest.raises(ExecutionError, match="negative dim"):
        draw_normal.function(DrawNormal(), KEY, np.array([2, -1]))
