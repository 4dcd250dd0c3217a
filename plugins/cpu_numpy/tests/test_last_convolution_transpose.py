"""Transposed convolutions of channels-last images against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aicore.errors import InferenceError
from aicore.ir import TensorType
from aicore.ops.convolution import ConvTranspose
from aicore.ops.layout import ChannelsLast
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import _parallel
from aicore_cpu_numpy.fast import last_convolution_transpose as last

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

(KERNEL,) = last.KERNELS


@pytest.fixture(params=["one thread", "three threads, one row at a time"])
def sharing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "one thread":
        yield
        return
    monkeypatch.setattr(_parallel, "PARALLEL", -1.0)
    monkeypatch.setattr(last, "BLOCK_BYTES", 1)
    with using_threads(3):
        yield


def with_constants(op: ChannelsLast, arrays: list[Array]) -> Array:
    """The result with weights and bias packed before the run."""
    types = [TensorType(a.dtype.name, a.shape) for a in arrays]
    bound = last._bind(op, types, [None, *arrays[1:]])
    out = np.full(op.infer(*map(_value, types)).static_shape, np.nan)  # type: ignore[union-attr]
    bound(*arrays, out=out, workspace=np.full(last._workspace(op, *types), 255, np.uint8))
    return out


def _value(tensor: TensorType) -> Any:
    from aicore.ir import Value

    return Value("x", tensor)


@pytest.mark.usefixtures("sharing")
def test_samples(run_kernel: Run, reference: Run) -> None:
    compared = 0
    for sample in ChannelsLast.samples(np.random.default_rng(1)):
        if not isinstance(sample.op.inner, ConvTranspose):  # type: ignore[attr-defined]
            continue
        (got,) = run_kernel(KERNEL, sample.op, sample.inputs)
        (wanted,) = reference(sample.op, [None if a is None else a.astype(np.float64) for a in sample.inputs])
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=sample.note)
        compared += 1
    assert compared >= 3


@st.composite
def cases(draw: Any) -> tuple[ChannelsLast, list[Array]]:
    count = draw(st.integers(1, 3))
    axes = st.tuples(*[st.integers(1, 3)] * count)
    kernel, group = draw(axes), draw(st.integers(1, 2))
    strides = kernel if draw(st.booleans()) else draw(axes)
    options: dict[str, Any] = {"strides": strides, "group": group}
    if draw(st.booleans()):
        options["pads"] = tuple(draw(st.integers(0, 1)) for _ in range(2 * count))
        options["dilations"] = draw(axes)
    channels, maps = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    spatial = tuple(draw(st.integers(1, 4)) for _ in range(count))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = [
        rng.standard_normal((draw(st.integers(0, 2)), *spatial, channels * group)),
        rng.standard_normal((channels * group, maps, *kernel)),
    ]
    if draw(st.booleans()):
        arrays.append(rng.standard_normal(maps * group))
    return ChannelsLast(ConvTranspose(**options), count + 2), arrays


@pytest.mark.usefixtures("sharing")
def test_any_geometry(run_kernel: Run, reference: Run) -> None:
    @settings(max_examples=150, deadline=None)
    @given(cases())
    def check(case: tuple[ChannelsLast, list[Array]]) -> None:
        op, arrays = case
        try:
            (got,) = run_kernel(KERNEL, op, arrays)
        except InferenceError:
            assume(False)
        (wanted,) = reference(op, arrays)
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(with_constants(op, arrays), wanted, rtol=1e-11, atol=1e-11)

    check()


@pytest.mark.parametrize(
    ("options", "tiles"),
    [
        ({"strides": (2, 2)}, True),
        ({"strides": (2, 2), "pads": (0, 1, 0, 0)}, False),
        ({"strides": (2, 2), "output_padding": (1, 0)}, False),
        ({"strides": (2, 1)}, False),
        ({"strides": (2, 2), "dilations": (1, 2)}, False),
        ({"strides": (2, 2), "group": 2}, False),
    ],
    ids=str,
)
def test_which_windows_tile_the_output(options: dict[str, Any], tiles: bool) -> None:
    assert last.problem(ConvTranspose(**options), (1, 5, 6, 4), (4, 3, 2, 2), 4).tiles is tiles
