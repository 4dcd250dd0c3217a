"""Windows far larger than what they slide over: nothing is enumerated or padded that no element meets."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.ops.pooling import AveragePool, LpPool
from aicore.ops.window import output_dims, resolve_window
from aicore_cpu_numpy.fast import _taps
from aicore_cpu_numpy.fast._taps import Geometry, taps
from aicore_cpu_numpy.reference.pooling import averaged_elements, lp_pool


def geometries() -> list[Geometry]:
    rng = random.Random(0)
    found = []
    for _ in range(200):
        kernel = (rng.randint(1, 7), rng.randint(1, 4))
        begins = (rng.randint(0, 6), rng.randint(0, 3))
        strides, dilations = (rng.randint(1, 3), rng.randint(1, 3)), (rng.randint(1, 3), rng.randint(1, 2))
        found.append(Geometry((rng.randint(1, 5), 3), (rng.randint(1, 4), 2), kernel, strides, dilations, begins))
    return found


def test_offsets_of_vast_kernels_are_those_of_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for geometry in geometries():
        ends = list(itertools.combinations(range(geometry.dims[0] + 1), 2))
        taps.cache_clear()
        wanted = [taps(geometry, start, stop) for start, stop in ends]
        with monkeypatch.context() as patch:
            patch.setattr(_taps, "_USUAL", 0)
            taps.cache_clear()
            assert [taps(geometry, start, stop) for start, stop in ends] == wanted
    taps.cache_clear()


def test_a_vast_kernel_has_few_offsets() -> None:
    geometry = Geometry((4,), (4,), (2**62,), (1,), (1,), (2**61,))
    assert len(taps(geometry, 0, 4)) == 7  # the four windows begin at four places


@pytest.mark.parametrize("include", [0, 1])
def test_elements_of_a_mean_are_those_that_one_counts(include: int) -> None:
    rng = random.Random(1)
    for _ in range(100):
        size, kernel, stride = rng.randint(4, 9), rng.randint(1, 4), rng.randint(1, 3)
        pads = (rng.randint(0, kernel - 1), rng.randint(0, kernel - 1))
        op = AveragePool(kernel_shape=(kernel,), count_include_pad=include, pads=pads, strides=(stride,))
        op = resolve_window(op, (size,), 1)
        (count,) = output_dims(op, (size,), op.kernel_shape, ceil_mode=True)
        assert isinstance(count, int)
        low, high = (-pads[0], size + pads[1]) if include else (0, size)
        places = [[w * stride - pads[0] + k for k in range(kernel)] for w in range(count)]
        wanted = [sum(low <= place < high for place in window) for window in places]
        np.testing.assert_array_equal(averaged_elements(op, (size,), (count,)), wanted)


def test_windows_that_fit_into_no_memory() -> None:
    op = resolve_window(LpPool(kernel_shape=(2**40,), auto_pad="SAME_UPPER"), (4,), 1)
    with pytest.raises(ExecutionError, match=r"windows of \(1099511627776,\) over \(4,\) with pads .* needs"):
        lp_pool.function(op, np.ones((1, 1, 4), np.float32))
