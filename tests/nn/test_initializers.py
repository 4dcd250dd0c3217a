"""Initialisers: fans derived by hand, variances within bounds of their own sampling error, orthogonality exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn.initializers import (
    CUT_DEVIATION,
    INITIALIZERS,
    Constant,
    Initializer,
    Normal,
    Orthogonal,
    Stacked,
    TruncatedNormal,
    Uniform,
    VarianceScaling,
    fans,
    initializer,
)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((), (1, 1)),
        ((7,), (7, 7)),
        ((20, 30), (30, 20)),  # Dense of 20 units on 30 features
        ((16, 3, 5, 5), (75, 400)),  # 16 filters of 3 channels, 5 by 5: 3 * 25 seen, 16 * 25 reached
        ((16, 1, 3), (3, 48)),  # depthwise, one spatial dim
        ((4, 2, 3, 1, 2), (12, 24)),
    ],
)
def test_fans(shape: tuple[int, ...], expected: tuple[int, int]) -> None:
    assert fans(shape) == expected


SHAPE = (200, 300)  # fan_in 300, fan_out 200, mean 250
VARIANCES = {
    "uniform": 0.1**2 / 12,
    "normal": 0.05**2,
    "truncated_normal": (0.05 * CUT_DEVIATION) ** 2,
    "glorot_uniform": 1 / 250,
    "glorot_normal": 1 / 250,
    "xavier_uniform": 1 / 250,
    "xavier_normal": 1 / 250,
    "xavier": 1 / 250,
    "he_uniform": 2 / 300,
    "he_normal": 2 / 300,
    "kaiming_uniform": 2 / 300,
    "kaiming_normal": 2 / 300,
    "he": 2 / 300,
    "lecun_uniform": 1 / 300,
    "lecun_normal": 1 / 300,
    "orthogonal": 1 / 300,  # 200 orthonormal rows: 200 ones, spread over 200 * 300 elements
}


@pytest.mark.parametrize("name", VARIANCES)
def test_mean_and_variance(name: str) -> None:
    drawn = initializer(name)(SHAPE, np.random.default_rng(0)).astype(np.float64)
    count, variance = drawn.size, VARIANCES[name]
    # Five deviations of either estimate; that of the variance is at most variance * sqrt(2 / n), the normal one's.
    assert abs(drawn.mean()) < 5 * math.sqrt(variance / count)
    assert abs(drawn.var() / variance - 1) < 5 * math.sqrt(2 / count)


def test_every_name_is_tested() -> None:
    assert set(INITIALIZERS) == {*VARIANCES, "zeros", "ones"}


def test_fan_out_and_truncated_scaling() -> None:
    drawn = VarianceScaling(3.0, "fan_out", "truncated_normal")(SHAPE, np.random.default_rng(1))
    assert abs(drawn.astype(np.float64).var() / (3 / 200) - 1) < 5 * math.sqrt(2 / drawn.size)
    assert np.abs(drawn).max() <= 2 * math.sqrt(3 / 200) / CUT_DEVIATION * (1 + 1e-6)


def test_deviation_of_the_cut_normal_distribution() -> None:
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    assert math.isclose(CUT_DEVIATION, math.sqrt(1 - 4 * density / math.erf(math.sqrt(2))), rel_tol=1e-12)


def test_bounds() -> None:
    rng = np.random.default_rng(0)
    limit = math.sqrt(6 / (300 + 200))  # Glorot and Bengio's
    drawn = initializer("glorot_uniform")(SHAPE, rng)
    assert 0.999 * limit < np.abs(drawn).max() <= np.float32(limit)
    cut = TruncatedNormal(1.0, 0.5)((10_000,), rng)
    assert 0.0 <= cut.min() < 0.01
    assert 1.99 < cut.max() <= 2.0
    uniform = Uniform(2.0, 3.0)((10_000,), rng)
    assert 2.0 <= uniform.min() < 2.01
    assert 2.99 < uniform.max() <= 3.0


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (4, 2, 3, 3), (20, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    drawn = Orthogonal(2.0)(shape, np.random.default_rng(0)).astype(np.float64)
    matrix = drawn.reshape(shape[0], -1) / 2
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-6)  # float32 elements, of size 1 at most


def test_orthogonal_matrices_have_no_preferred_sign() -> None:
    # Plain QR makes the diagonal of R negative, and so that of Q lopsided.
    rng = np.random.default_rng(0)
    signs = [np.sign(Orthogonal()((3, 3), rng)[0, 0]) for _ in range(400)]
    assert abs(np.mean(signs)) < 5 / math.sqrt(400)


def test_stacked_draws_each_gate_by_itself() -> None:
    drawn = Stacked(Orthogonal(), 3)((2, 12, 4), np.random.default_rng(0)).astype(np.float64)
    for matrix in drawn.reshape(6, 4, 4):
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(4), atol=1e-6)


def test_constants() -> None:
    rng = np.random.default_rng(0)
    assert (initializer("zeros")((2, 3), rng) == np.zeros((2, 3))).all()
    assert (initializer("ones")((2,), rng) == 1).all()
    assert (Constant(2.5)((2, 2), rng) == 2.5).all()


@pytest.mark.parametrize("name", INITIALIZERS)
@pytest.mark.parametrize("shape", [(4, 6), (3, 2, 2, 2), (0, 3)])
def test_shape_dtype_and_seed(name: str, shape: tuple[int, ...]) -> None:
    found = initializer(name)
    drawn = found(shape, np.random.default_rng(3))
    assert (drawn.shape, drawn.dtype) == (shape, np.float32)
    np.testing.assert_array_equal(drawn, found(shape, np.random.default_rng(3)))


@pytest.mark.parametrize("name", sorted(set(INITIALIZERS) - {"orthogonal"}))
def test_scalars_are_arrays(name: str) -> None:
    drawn = initializer(name)((), np.random.default_rng(3))
    assert isinstance(drawn, np.ndarray)
    assert (drawn.shape, drawn.dtype) == ((), np.float32)


def test_they_compare_and_print() -> None:
    assert initializer("he_normal") == VarianceScaling(2.0, "fan_in", "normal")
    assert len({Normal(), Normal(0.0, 0.05), Normal(1.0)}) == 2
    assert repr(Constant(2.0)) == "Constant(value=2.0)"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: initializer("hee"), "'hee' is none of zeros, ones"),
        (lambda: initializer(3), "3 is none of"),  # type: ignore[arg-type]
        (lambda: Uniform(1.0, 0.0), "low 1.0 is above high 0.0"),
        (lambda: Normal(0.0, -1.0), "stddev -1.0 is negative"),
        (lambda: TruncatedNormal(0.0, -1.0), "stddev -1.0 is negative"),
        (lambda: VarianceScaling(0.0), "scale 0.0 is not above 0"),
        (lambda: VarianceScaling(1.0, "fan"), "mode 'fan' is none of"),  # type: ignore[arg-type]
        (lambda: VarianceScaling(1.0, "fan_in", "beta"), "distribution 'beta' is none of"),  # type: ignore[arg-type]
        (lambda: Orthogonal()((3,), np.random.default_rng(0)), "no matrix"),
        (lambda: Stacked(Orthogonal())((3, 3), np.random.default_rng(0)), "no stack"),
        (lambda: Stacked(Orthogonal(), 2)((1, 3, 3), np.random.default_rng(0)), "not 2 equal parts"),
    ],
)
def test_refused(make: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()  # type: ignore[operator]


def test_the_base_draws_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Initializer()((2,), np.random.default_rng(0))
