"""Conv and ConvTranspose by the sums of their definition, and by numbers worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ops.convolution import Conv, ConvTranspose

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]


def conv_by_definition(op: Any, x: Array, w: Array, pads: tuple[int, ...], dims: tuple[int, ...]) -> Array:
    """y[n, m, o] = sum of x[n, c, o * stride - pad + k * dilation] * w[m, c, k] over c of m's group and k."""
    y = np.zeros((x.shape[0], w.shape[0], *dims))
    maps_of_group = w.shape[0] // op.group
    for n, m, *o in np.ndindex(*y.shape):
        for c, *k in np.ndindex(*w.shape[1:]):
            at = [o[i] * op.strides[i] - pads[i] + k[i] * op.dilations[i] for i in range(len(dims))]
            if all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True)):
                channel = m // maps_of_group * w.shape[1] + c
                y[(n, m, *o)] += x[(n, channel, *at)] * w[(m, c, *k)]
    return y


def transpose_by_definition(op: Any, x: Array, w: Array, pads: tuple[int, ...], dims: tuple[int, ...]) -> Array:
    """Each x[n, c, i] adds x * w[c, m, k] to y[n, m, i * stride - pad + k * dilation]."""
    y = np.zeros((x.shape[0], w.shape[1] * op.group, *dims))
    channels_of_group = x.shape[1] // op.group
    for n, c, *i in np.ndindex(*x.shape):
        for m, *k in np.ndindex(*w.shape[1:]):
            at = [i[a] * op.strides[a] - pads[a] + k[a] * op.dilations[a] for a in range(len(dims))]
            if all(0 <= a < size for a, size in zip(at, dims, strict=True)):
                target = (n, c // channels_of_group * w.shape[1] + m, *at)
                y[target] += x[(n, c, *i)] * w[(c, m, *k)]
    return y


def integers(rng: np.random.Generator, *shape: int) -> Array:
    """Whole numbers, whose sums are exact in any order."""
    return rng.integers(-9, 10, shape).astype(np.float64)


FIELDS = [
    {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1},
    {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 2, 3), "group": 1},
    {"strides": (3, 2), "dilations": (2, 1), "pads": (2, 1, 0, 1), "group": 2},
    {"strides": (1, 2), "dilations": (1, 1), "pads": (0, 1, 1, 0), "group": 4},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_conv_is_its_definition(fields: dict[str, Any], reference: Run) -> None:
    rng = np.random.default_rng(0)
    op = Conv(**fields)
    x, w, b = integers(rng, 2, 4, 7, 6), integers(rng, 8, 4 // op.group, 3, 2), integers(rng, 8)
    (y,) = reference(op, [x, w, b])
    expected = conv_by_definition(op, x, w, op.pads[:2], y.shape[2:]) + b[:, None, None]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("output_padding", [(), (1, 1)])
def test_conv_transpose_is_its_definition(
    fields: dict[str, Any], output_padding: tuple[int, ...], reference: Run
) -> None:
    if output_padding and max(fields["strides"][0], fields["dilations"][0]) == 1:
        output_padding = (0, 0)
    rng = np.random.default_rng(0)
    op = ConvTranspose(output_padding=output_padding, **fields)
    x, w, b = integers(rng, 2, 4, 4, 5), integers(rng, 4, 2, 3, 2), integers(rng, 2 * op.group)
    (y,) = reference(op, [x, w, b])
    expected = transpose_by_definition(op, x, w, op.pads[:2], y.shape[2:]) + b[:, None, None]
    np.testing.assert_array_equal(y, expected)


def line(*numbers: float) -> Array:
    """A tensor (1, 1, L)."""
    return np.array([[numbers]], np.float64)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        # x = 1 2 3 4 under the kernel 1 10 100
        (Conv(), [321, 432]),
        (Conv(pads=(1, 2)), [210, 321, 432, 43, 4]),
        (Conv(strides=(2,)), [321]),
        (Conv(dilations=(2,), pads=(1, 1)), [420, 31]),
        (Conv(auto_pad="VALID"), [321, 432]),
        (Conv(auto_pad="SAME_UPPER"), [210, 321, 432, 43]),
        # ceil(4 / 2) = 2 windows reach 2 + 3 = 5 elements: one of padding, at the end or at the begin
        (Conv(auto_pad="SAME_UPPER", strides=(2,)), [321, 43]),
        (Conv(auto_pad="SAME_LOWER", strides=(2,)), [210, 432]),
    ],
)
def test_conv_by_hand(op: Conv, expected: list[float], reference: Run) -> None:
    (y,) = reference(op, [line(1, 2, 3, 4), line(1, 10, 100)])
    np.testing.assert_array_equal(y, line(*expected))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        # x = 1 2 under the kernel 1 10 100; with stride 2: 1 10 (100 + 2) 20 200, with stride 3: 1 10 100 2 20 200
        (ConvTranspose(), [1, 12, 120, 200]),
        (ConvTranspose(strides=(2,)), [1, 10, 102, 20, 200]),
        (ConvTranspose(strides=(2,), pads=(1, 2)), [10, 102]),
        (ConvTranspose(strides=(2,), output_padding=(1,)), [1, 10, 102, 20, 200, 0]),
        (ConvTranspose(strides=(2,), pads=(1, 1), output_padding=(1,)), [10, 102, 20, 200]),
        (ConvTranspose(dilations=(2,)), [1, 2, 10, 20, 100, 200]),
        (ConvTranspose(strides=(2,), auto_pad="VALID"), [1, 10, 102, 20, 200]),
        # SAME gives 2 * 2 elements, one less than 5: the end loses it, or the begin
        (ConvTranspose(strides=(2,), auto_pad="SAME_UPPER"), [1, 10, 102, 20]),
        (ConvTranspose(strides=(2,), auto_pad="SAME_LOWER"), [10, 102, 20, 200]),
        # of the 6 elements with output_padding two are cut, one at each side
        (ConvTranspose(strides=(2,), auto_pad="SAME_LOWER", output_padding=(1,)), [10, 102, 20, 200]),
        # a kernel shorter than its stride leaves a gap, which SAME fills up to 2 * 4
        (ConvTranspose(strides=(4,), auto_pad="SAME_UPPER"), [1, 10, 100, 0, 2, 20, 200, 0]),
        # output_shape 4: one to cut, at the begin unless SAME_UPPER
        (ConvTranspose(strides=(2,), output_shape=(4,)), [10, 102, 20, 200]),
        (ConvTranspose(strides=(2,), output_shape=(4,), auto_pad="SAME_LOWER"), [10, 102, 20, 200]),
        (ConvTranspose(strides=(2,), output_shape=(4,), auto_pad="SAME_UPPER"), [1, 10, 102, 20]),
        (ConvTranspose(strides=(2,), output_shape=(4,), pads=(2, 2)), [10, 102, 20, 200]),
        (ConvTranspose(strides=(2,), output_shape=(7,)), [1, 10, 102, 20, 200, 0, 0]),
        (ConvTranspose(strides=(2,), output_shape=(4,), output_padding=(1,)), [10, 102, 20, 200]),
    ],
)
def test_conv_transpose_by_hand(op: ConvTranspose, expected: list[float], reference: Run) -> None:
    (y,) = reference(op, [line(1, 2), line(1, 10, 100)])
    np.testing.assert_array_equal(y, line(*expected))


def test_conv_transpose_is_the_adjoint_of_conv(reference: Run) -> None:
    """<conv(x), y> = <x, conv_transpose(y)> where no input element is left over."""
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {"strides": (2, 1), "pads": (1, 0, 1, 1), "dilations": (1, 2), "group": 2}
    x, w = rng.standard_normal((2, 4, 7, 6)), rng.standard_normal((6, 2, 3, 2))
    (y,) = reference(Conv(**fields), [x, w])
    g = rng.standard_normal(y.shape)
    (back,) = reference(ConvTranspose(**fields), [g, w])
    assert back.shape == x.shape
    np.testing.assert_allclose((y * g).sum(), (x * back).sum(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_narrow_floats_are_rounded_once(dtype: str, reference: Run) -> None:
    ones = np.ones((1, 1, 4096), dtype)
    (y,) = reference(Conv(), [ones, ones])  # in float16, adding 1 to 2048 changes nothing
    assert (y.dtype, y.item()) == (np.dtype(dtype), 4096)


def test_every_offset_of_a_three_dimensional_kernel_counts(reference: Run) -> None:
    x = np.arange(2 * 3 * 4, dtype=np.float64).reshape(1, 1, 2, 3, 4)
    for offset in itertools.product(range(2), range(3), range(2)):
        w = np.zeros((1, 1, 2, 3, 2))
        w[(0, 0, *offset)] = 1
        (y,) = reference(Conv(), [x, w])
        a, b, c = offset
        np.testing.assert_array_equal(y, x[:, :, a : a + 1, b : b + 1, c : c + 3])
