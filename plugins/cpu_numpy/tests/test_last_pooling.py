"""Pools of channels-last images against the reference in float64: all geometries, many rows, several workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aicore.errors import InferenceError
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import _parallel, last_pooling

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

KERNELS = {kernel.wraps: kernel for kernel in last_pooling.KERNELS}


@pytest.fixture(params=["one thread", "three threads, one row at a time"])
def sharing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "one thread":
        yield
        return
    monkeypatch.setattr(_parallel, "PARALLEL", 0.0)
    monkeypatch.setattr(last_pooling, "BLOCK_BYTES", 1)
    last_pooling.pooling.cache_clear()
    with using_threads(3):
        yield
    last_pooling.pooling.cache_clear()


@pytest.mark.parametrize("wraps", KERNELS, ids=lambda cls: cls.__name__)
@pytest.mark.usefixtures("sharing")
def test_samples(wraps: Any, run_kernel: Run, reference: Run) -> None:
    compared = 0
    for sample in ChannelsLast.samples(np.random.default_rng(1)):
        if type(sample.op.inner) is not wraps:  # type: ignore[attr-defined]
            continue
        got = run_kernel(KERNELS[wraps], sample.op, sample.inputs)
        if not isinstance(got, str):
            with np.errstate(all="ignore"):
                (wanted,) = reference(sample.op, sample.inputs)
            np.testing.assert_allclose(got[0], wanted, rtol=1e-5, atol=1e-6, err_msg=sample.note)
            compared += 1
    assert compared >= 2, "no sample reaches the kernel"


@st.composite
def pools(draw: Any) -> tuple[ChannelsLast, Array]:
    count = draw(st.integers(1, 3))
    axes = st.tuples(*[st.integers(1, 3)] * count)
    kernel = draw(axes)
    spatial = tuple(draw(st.integers(0 if count == 1 else 1, 7)) for _ in range(count))
    pads = tuple(draw(st.integers(0, k - 1)) for k in kernel * 2)
    options = {
        "kernel_shape": kernel,
        "strides": draw(axes),
        "dilations": draw(st.sampled_from([(1,) * count, (2,) * count])),
        "pads": pads,
        "ceil_mode": draw(st.integers(0, 1)),
    }
    if draw(st.booleans()):
        inner: Any = MaxPool(**options)
    else:
        inner = AveragePool(**options, count_include_pad=draw(st.integers(0, 1)))
    shape = (draw(st.integers(0, 3)), *spatial, draw(st.integers(1, 4)))
    x = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape)
    return ChannelsLast(inner, count + 2), x


@pytest.mark.usefixtures("sharing")
def test_any_geometry(run_kernel: Run, reference: Run) -> None:
    @settings(max_examples=150, deadline=None)
    @given(pools())
    def check(case: tuple[ChannelsLast, Array]) -> None:
        op, x = case
        try:
            (got,) = run_kernel(KERNELS[type(op.inner)], op, [x])
        except InferenceError:
            assume(False)
        with np.errstate(all="ignore"):
            (wanted,) = reference(op, [x])
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)

    check()


@pytest.mark.usefixtures("sharing")
def test_a_window_that_moves_by_one_goes_axis_by_axis(run_kernel: Run, reference: Run) -> None:
    x = np.random.default_rng(3).standard_normal((2, 9, 8, 3))
    x[0, 4, 4, 1] = np.nan
    for inner in (MaxPool(kernel_shape=(5, 5), pads=(2,) * 4), AveragePool(kernel_shape=(3, 4), pads=(1, 0, 1, 3))):
        op = ChannelsLast(inner)
        shape = last_pooling.TensorType("float64", x.shape)
        (got,) = run_kernel(KERNELS[type(inner)], op, [x])
        assert last_pooling.BLOCK_BYTES == 1 or last_pooling.pooling(op, shape).by_axis
        np.testing.assert_allclose(got, reference(op, [x])[0], rtol=1e-12)
    assert np.isnan(got).sum() == 12  # each of 3 x 4 windows meets the NaN


@pytest.mark.usefixtures("sharing")
def test_a_window_that_moves_by_two_goes_axis_by_axis(run_kernel: Run, reference: Run) -> None:
    x = np.random.default_rng(3).standard_normal((2, 11, 9, 3))
    x[0, 5, 4, 1] = np.nan
    options: Any = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 0, 0, 1)}
    for inner in (MaxPool(**options), AveragePool(**options), MaxPool(**options, dilations=(2, 1))):
        op = ChannelsLast(inner)
        shape = last_pooling.TensorType("float64", x.shape)
        (got,) = run_kernel(KERNELS[type(inner)], op, [x])
        assert last_pooling.pooling(op, shape).by_axis
        np.testing.assert_allclose(got, reference(op, [x])[0], rtol=1e-12)
        assert np.isnan(got).any()


def test_mean_of_many_pixels_is_as_exact_as_in_the_other_order(run_kernel: Run) -> None:
    x = np.random.default_rng(2).uniform(0.5, 1.5, (1, 300, 301, 2)).astype(np.float32)
    (got,) = run_kernel(KERNELS[GlobalAveragePool], ChannelsLast(GlobalAveragePool()), [x])
    np.testing.assert_allclose(got, x.mean((1, 2), dtype=np.float64, keepdims=True), rtol=2e-6)


def test_nothing_to_pool(run_kernel: Run) -> None:
    x = np.zeros((2, 0, 4, 3), np.float32)
    (mean,) = run_kernel(KERNELS[GlobalAveragePool], ChannelsLast(GlobalAveragePool()), [x])
    (largest,) = run_kernel(KERNELS[GlobalMaxPool], ChannelsLast(GlobalMaxPool()), [x])
    assert np.isnan(mean).all()
    assert np.isneginf(largest).all()


def test_indices_are_left_to_others(run_kernel: Run) -> None:
    kernel = KERNELS[MaxPool]
    op = ChannelsLast(MaxPool(kernel_shape=(2, 2), indices=True))
    assert kernel.reason_against(op, last_pooling.TensorType("float32", (1, 4, 4, 2))) == "does not find indices"
