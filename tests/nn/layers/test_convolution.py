"""Convolutions and their transposes against loops over every output, or input, element."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn.layers import Conv1D, Conv2D, ConvTranspose1D, ConvTranspose2D
from tests.nn.built import built

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def convolved(x: Array, w: Array, strides: Any, pads: Any, dilation: Any, groups: int) -> Array:
    """The definition, one output element at a time; pads as ((begin, end), ...) by spatial dim."""
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    out = [(n - span) // s + 1 for n, span, s in zip(x.shape[2:], spans, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    inner, outer = w.shape[1], w.shape[0] // groups
    for place in itertools.product(*map(range, out)):
        window = tuple(
            slice(p * s, p * s + span, d) for p, s, span, d in zip(place, strides, spans, dilation, strict=True)
        )
        for m in range(w.shape[0]):
            first = m // outer * inner
            y[(slice(None), m, *place)] = (
                (x[(slice(None), slice(first, first + inner), *window)] * w[m]).reshape(x.shape[0], -1).sum(1)
            )
    return y


def transposed(x: Array, w: Array, strides: Any, pads: Any, dilation: Any, groups: int, extra: Any) -> Array:
    """The definition: each input element adds its multiple of the kernel."""
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    full = [(n - 1) * s + span + e for n, s, span, e in zip(x.shape[2:], strides, spans, extra, strict=True)]
    inner, outer = x.shape[1] // groups, w.shape[1]
    y = np.zeros((x.shape[0], outer * groups, *full))
    for place in itertools.product(*map(range, x.shape[2:])):
        window = tuple(
            slice(p * s, p * s + span, d) for p, s, span, d in zip(place, strides, spans, dilation, strict=True)
        )
        for c in range(x.shape[1]):
            first = c // inner * outer
            amount = x[(slice(None), c, *place)].reshape(-1, *[1] * (w.ndim - 1))
            y[(slice(None), slice(first, first + outer), *window)] += amount * w[c]
    cut = tuple(slice(a, n - b) for (a, b), n in zip(pads, full, strict=True))
    return y[(slice(None), slice(None), *cut)]


CASES: list[tuple[Any, tuple[int, ...], tuple[Any, ...]]] = [
    # layer, shape of x, then (strides, pads, dilation, groups) as `convolved` takes them
    (Conv2D(4, 3), (2, 3, 6, 7), ((1, 1), ((0, 0), (0, 0)), (1, 1), 1)),
    (Conv2D(4, (3, 2), strides=(2, 1), padding=(1, 2)), (2, 3, 6, 7), ((2, 1), ((1, 1), (2, 2)), (1, 1), 1)),
    (Conv2D(4, 3, padding="same"), (2, 3, 5, 6), ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)),
    # ceil(7 / 2) = 4 outputs need 3 * 2 + 4 - 7 = 3 elements of padding: 1 and 2
    (Conv2D(4, 4, 2, "same"), (1, 3, 7, 7), ((2, 2), ((1, 2), (1, 2)), (1, 1), 1)),
    (Conv2D(6, 3, groups=2, dilation=(1, 2), padding=1), (2, 4, 6, 8), ((1, 1), ((1, 1), (1, 1)), (1, 2), 2)),
    (Conv2D(6, 3, groups=3), (2, 3, 5, 5), ((1, 1), ((0, 0), (0, 0)), (1, 1), 3)),
    (Conv1D(4, 3, 2, padding=1), (2, 3, 8), ((2,), ((1, 1),), (1,), 1)),
    (Conv1D(4, (3,), padding="same", dilation=2), (2, 3, 8), ((1,), ((2, 2),), (2,), 1)),
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("layer", "shape", "window"), CASES)
def test_convolution(layer: Any, shape: tuple[int, ...], window: tuple[Any, ...], training: bool) -> None:
    x = RNG.standard_normal(shape)
    found = built(layer, x, training=training, dtype="float64")
    weights = {name: RNG.standard_normal(size) for name, size in found.shapes.items()}
    bias = weights["bias"].reshape(-1, *[1] * (len(shape) - 2))
    expected = convolved(x, weights["weight"], *window) + bias
    np.testing.assert_allclose(found.run(weights)["output"], expected, rtol=1e-10, atol=1e-12)


TRANSPOSED: list[tuple[Any, tuple[int, ...], tuple[Any, ...]]] = [
    (ConvTranspose2D(4, 3), (2, 3, 4, 5), ((1, 1), ((0, 0), (0, 0)), (1, 1), 1, (0, 0))),
    (
        ConvTranspose2D(4, 3, strides=2, padding=1, output_padding=1),
        (2, 3, 4, 5),
        ((2, 2), ((1, 1), (1, 1)), (1, 1), 1, (1, 1)),
    ),
    # 5 * 2 = 10 of (5 - 1) * 2 + 3 = 11: one is cut, at the end
    (ConvTranspose2D(4, 3, 2, "same"), (1, 3, 5, 5), ((2, 2), ((0, 1), (0, 1)), (1, 1), 1, (0, 0))),
    (
        ConvTranspose2D(4, (2, 3), groups=2, dilation=(2, 1)),
        (2, 4, 3, 3),
        ((1, 1), ((0, 0), (0, 0)), (2, 1), 2, (0, 0)),
    ),
    (ConvTranspose1D(4, 3, 2), (2, 3, 4), ((2,), ((0, 0),), (1,), 1, (0,))),
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("layer", "shape", "window"), TRANSPOSED)
def test_transposed(layer: Any, shape: tuple[int, ...], window: tuple[Any, ...], training: bool) -> None:
    x = RNG.standard_normal(shape)
    found = built(layer, x, training=training, dtype="float64")
    weights = {name: RNG.standard_normal(size) for name, size in found.shapes.items()}
    bias = weights["bias"].reshape(-1, *[1] * (len(shape) - 2))
    expected = transposed(x, weights["weight"], *window) + bias
    np.testing.assert_allclose(found.run(weights)["output"], expected, rtol=1e-10, atol=1e-12)


def test_parameters() -> None:
    x = RNG.standard_normal((1, 4, 8, 8))
    assert built(Conv2D(6, (3, 5), groups=2), x).shapes == {"weight": (6, 2, 3, 5), "bias": (6,)}
    assert built(Conv2D(6, 3), x).count == 6 * 4 * 3 * 3 + 6
    assert built(Conv2D(6, 3, use_bias=False), x).shapes == {"weight": (6, 4, 3, 3)}
    assert built(ConvTranspose2D(6, 3, groups=2), x).shapes == {"weight": (4, 3, 3, 3), "bias": (6,)}
    assert built(ConvTranspose2D(6, 3, use_bias=False), x).count == 4 * 6 * 3 * 3


def test_activation_comes_last() -> None:
    x = RNG.standard_normal((1, 3, 5, 5))
    plain, bent = (built(layer, x).run()["output"] for layer in (Conv2D(4, 3), Conv2D(4, 3, activation="relu")))
    np.testing.assert_allclose(bent, np.maximum(plain, 0), rtol=1e-6)
    plain, bent = (
        built(layer, x).run()["output"] for layer in (ConvTranspose2D(4, 3), ConvTranspose2D(4, 3, activation="relu"))
    )
    np.testing.assert_allclose(bent, np.maximum(plain, 0), rtol=1e-6)


@pytest.mark.parametrize("kind", [Conv2D, ConvTranspose2D])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"filters": 0, "kernel_size": 3}, "filters is 0"),
        ({"filters": 4, "kernel_size": 0}, "kernel_size is 0, wants an integer or a tuple of 2, 1 or more"),
        ({"filters": 4, "kernel_size": (3, 3, 3)}, r"kernel_size is \(3, 3, 3\)"),
        ({"filters": 4, "kernel_size": [3, 3]}, r"kernel_size is \[3, 3\]"),
        ({"filters": 4, "kernel_size": 3, "strides": 0}, "strides is 0"),
        ({"filters": 4, "kernel_size": 3, "dilation": (1, 0)}, r"dilation is \(1, 0\)"),
        ({"filters": 4, "kernel_size": 3, "padding": "full"}, "padding is 'full', wants 'valid', 'same' or numbers"),
        ({"filters": 4, "kernel_size": 3, "padding": -1}, "padding is -1"),
        ({"filters": 4, "kernel_size": 3, "groups": 3}, "4 filters do not divide into 3 groups"),
        ({"filters": 4, "kernel_size": 3, "groups": 0}, "groups is 0"),
        ({"filters": 4, "kernel_size": 3, "activation": "relo"}, "'relo' is none of"),
        ({"filters": 4, "kernel_size": 3, "initializer": "hee"}, "'hee' is none of"),
        ({"filters": 4, "kernel_size": 3, "bias_initializer": "hee"}, "'hee' is none of"),
    ],
)
def test_refused_fields(kind: Any, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kind(**fields)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ConvTranspose2D(4, 3, output_padding=-1), "output_padding is -1"),
        (lambda: ConvTranspose2D(4, 3, 2, "same", output_padding=1), "leaves no output_padding"),
        (lambda: built(Conv2D(4, 3), np.zeros((2, 3, 5))), "wants rank 4: batch, channels, height, width"),
        (lambda: built(Conv1D(4, 3), np.zeros((2, 3, 5, 5))), "wants rank 3: batch, channels, length"),
        (lambda: built(Conv2D(4, 3, groups=2), np.zeros((2, 3, 5, 5))), "3 channels do not divide into 2 groups"),
        (lambda: built(ConvTranspose2D(4, 3, groups=2), np.zeros((2, 3, 5, 5))), "3 channels do not divide"),
        (lambda: built(Conv2D(4, 3), np.zeros((2, 3, 5, 5), np.int64)), "wants floating point"),
    ],
)
def test_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
