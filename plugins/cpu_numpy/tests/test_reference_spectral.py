"""Fourier transforms by their definition, and mel weights worked out from the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.kernels import REFERENCE, KernelTable
from aicore.ops.spectral import DFT, STFT, MelWeightMatrix
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def run(op: Any, *operands: Array | None) -> Array:
    (found,) = EVALUATE(op, *operands)
    return found


def by_definition(x: Array, length: int, sign: int = -1) -> Array:
    """Sums of products with exp(sign * 2 pi i k n / N) along the last axis, which is cut or filled up to the length."""
    signal = np.zeros((*x.shape[:-1], length), complex)
    signal[..., : min(length, x.shape[-1])] = x[..., :length]
    k, n = np.mgrid[:length, :length]
    return signal @ np.exp(sign * 2j * np.pi * k * n / length).T


def pairs(numbers: Array) -> Array:
    return np.stack((numbers.real, numbers.imag), axis=-1)


def test_by_hand() -> None:
    """Of (1, 2): 1 + 2 and 1 - 2. Of (0, 1, 0, 0): the powers of -i."""
    assert run(DFT(), np.array([[1.0], [2.0]])).tolist() == [[3, 0], [-1, 0]]
    np.testing.assert_allclose(run(DFT(), np.eye(4)[1][:, None]), [[1, 0], [0, -1], [-1, 0], [0, 1]], atol=1e-15)


@pytest.mark.parametrize("length", [None, 5, 7, 9])
@pytest.mark.parametrize("parts", [1, 2])
def test_definition(parts: int, length: int | None) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 7, parts))
    signal = x[..., 0] if parts == 1 else x[..., 0] + 1j * x[..., 1]
    count = length or 7
    wanted = by_definition(signal, count)
    np.testing.assert_allclose(run(DFT(dft_length=length), x), pairs(wanted), atol=1e-12)
    inverse = by_definition(signal, count, sign=1) / count
    np.testing.assert_allclose(run(DFT(dft_length=length, inverse=1), x), pairs(inverse), atol=1e-12)
    if parts == 1:
        half = run(DFT(dft_length=length, onesided=1), x)
        np.testing.assert_allclose(half, pairs(wanted[:, : count // 2 + 1]), atol=1e-12)
        back = run(DFT(dft_length=count, onesided=1, inverse=1), half)
        filled = np.zeros((2, count, 1))
        filled[:, : min(count, 7)] = x[:, :count]
        np.testing.assert_allclose(back, filled, atol=1e-12)


def test_axes_and_run_time_operands() -> None:
    x = np.random.default_rng(1).normal(size=(3, 4, 5, 1))
    wanted = pairs(np.moveaxis(by_definition(np.moveaxis(x[..., 0], 0, -1), 6), -1, 0))
    np.testing.assert_allclose(run(DFT(axis=0, dft_length=6), x), wanted, atol=1e-12)
    np.testing.assert_allclose(run(DFT(axis=-4, dft_length=6), x), wanted, atol=1e-12)
    np.testing.assert_allclose(run(DFT(), x, np.array(6), np.array(0)), wanted, atol=1e-12)


def test_a_spectrum_of_unknown_length_becomes_an_even_signal() -> None:
    """4 results are those of 2 * 3 elements."""
    assert run(DFT(onesided=1, inverse=1), np.ones((1, 4, 2), np.float32)).shape == (1, 6, 1)


def test_narrow_types_are_rounded_once() -> None:
    x = np.full((2049, 1), 1, np.float16)
    assert run(DFT(), x)[0, 0] == 2048  # 2049 is a tie
    assert run(DFT(), x[:1]).dtype == np.float16


def test_frames_of_a_signal() -> None:
    """Frames of 4 every 2: the last one starts at 6. A window that ends a frame early, and none at all."""
    x, window = np.arange(10.0), np.array([1, 0.5, 0.25, 0])
    frames = np.stack([x[start : start + 4] for start in (0, 2, 4, 6)])
    signal = x.reshape(1, 10, 1)
    wanted = by_definition(frames * window, 4)
    found = run(STFT(frame_step=2), signal, None, window)
    np.testing.assert_allclose(found[0], pairs(wanted[:, :3]), atol=1e-12)
    found = run(STFT(onesided=0), signal, np.array(2), window)
    np.testing.assert_allclose(found[0], pairs(wanted), atol=1e-12)
    plain = pairs(by_definition(frames, 4)[:, :3])
    np.testing.assert_allclose(run(STFT(frame_step=2, frame_length=4), signal)[0], plain, atol=1e-12)
    np.testing.assert_allclose(run(STFT(frame_step=2), signal, None, None, np.array(4))[0], plain, atol=1e-12)
    one = pairs(by_definition(x[None], 10)[:, :6])
    np.testing.assert_allclose(run(STFT(frame_step=2), signal)[0], one, atol=1e-12)


def test_frames_of_a_complex_signal() -> None:
    x = np.random.default_rng(2).normal(size=(2, 9, 2))
    numbers = x[..., 0] + 1j * x[..., 1]
    wanted = np.stack([by_definition(numbers[:, start : start + 3], 3) for start in (0, 3, 6)], axis=1)
    np.testing.assert_allclose(run(STFT(0, 3, 3), x), pairs(wanted), atol=1e-12)


@pytest.mark.parametrize(("step", "length"), [(0, 4), (-1, 4), (2, 0), (2, 11)])
def test_frames_that_do_not_fit(step: int, length: int) -> None:
    with pytest.raises(ExecutionError, match="do not fit a signal of 10"):
        run(STFT(), np.zeros((1, 10, 1)), np.array(step), None, np.array(length))


def test_a_length_of_the_run_below_1() -> None:
    with pytest.raises(ExecutionError, match="the transform has length 0"):
        run(DFT(), np.zeros((1, 10, 1)), np.array(0))


def test_mel_weights_by_hand() -> None:
    """Edges at 0, 1/4, 1/2 and 3/4 of mel(700 * (10^4 - 1)) = 2595 * 4: at 0, 9, 99 and 999 times 700 Hz.

    With 17 * f / rate and the rate 700 * 17 * 9 those are the bins 0, 1, 11 and 111, of which there are 9.
    """
    found = run(MelWeightMatrix("float64", 2, 16, 700 * 17 * 9, 0.0, 700.0 * (10**4 - 1)))
    rising = [(bin - 1) / 10 for bin in range(9)]
    np.testing.assert_allclose(found[:, 0], [0, 1, *(1 - r for r in rising[2:])], atol=1e-12)
    np.testing.assert_allclose(found[:, 1], [0, *rising[1:]], atol=1e-12)


def test_mel_weights_of_other_types() -> None:
    numbers = (np.array(8), np.array(16), np.array(8192), np.array(0.0), np.array(4096.0))
    ints, floats = (run(MelWeightMatrix(dtype), *numbers) for dtype in ("int32", "float32"))
    assert floats.shape == (9, 8)
    assert ints.dtype == np.int32
    np.testing.assert_array_equal(ints, np.trunc(floats))
