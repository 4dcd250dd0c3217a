"""Observers: ranges that depend on the numbers seen and on nothing else, and scales that are finite and come back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aicore_int8_quant.affine import Format, QParams, qparams_of
from aicore_int8_quant.errors import CalibrationError
from aicore_int8_quant.observers import (
    BINS,
    OBSERVERS,
    Entropy,
    MinMax,
    MovingAverage,
    Percentile,
    SquaredError,
    from_json,
)
from aicore_int8_quant.observers.base import Observer

Array = np.ndarray[Any, Any]
INVARIANT = [cls for cls in OBSERVERS.values() if cls is not MovingAverage]
EVERY = list(OBSERVERS.values())
NUMBERS = hnp.arrays(
    np.float32,
    hnp.array_shapes(max_dims=1, max_side=40),
    elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True),
)


def observed(cls: type[Observer], *batches: Any, **options: Any) -> Observer:
    observer = cls("t", **options)
    for batch in batches:
        observer.update(np.asarray(batch, np.float32))
    return observer


def state(observer: Observer) -> str:
    return json.dumps(observer.to_json(), sort_keys=True)


@pytest.mark.parametrize("cls", INVARIANT)
@given(numbers=NUMBERS, seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 40), max_size=4))
@settings(deadline=None, max_examples=40)
def test_neither_order_nor_batches_matter(cls: type[Observer], numbers: Array, seed: int, cuts: list[int]) -> None:
    whole = observed(cls, numbers)
    shuffled = np.random.default_rng(seed).permutation(numbers)
    parts = np.split(shuffled, sorted(min(c, len(numbers)) for c in cuts))
    assert state(observed(cls, *parts)) == state(whole)
    merged = cls("t")
    for part in parts:
        merged.merge(observed(cls, part))
    assert state(merged) == state(whole)


@pytest.mark.parametrize("cls", INVARIANT)
def test_channels_are_observed_each_by_itself(cls: type[Observer]) -> None:
    x = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32) * np.float32([1, 100, 1e-3])[:, None]
    both = observed(cls, x[:2], x[2:], axis=1)
    for channel in range(3):
        low, high = observed(cls, x[:, channel]).range()
        assert both.range()[0][channel] == low[0]
        assert both.range()[1][channel] == high[0]
    params = both.qparams(Format("int8", True, axis=1))
    assert params.scale.shape == (3,)
    assert params.axis == 1


def test_minmax_is_the_range_widened_to_zero() -> None:
    params = observed(MinMax, [[1.0, 2.0], [5.1, 3.0]], [4.0]).qparams()
    assert params.scale == np.float32(5.1 / 255)
    assert params.zero_point == -128
    params = observed(MinMax, [-1.0, 3.0]).qparams()
    assert params.scale == np.float32(4 / 255)
    assert params.zero_point == -64  # round(-128 + 1 / (4 / 255)) = round(-64.25)
    symmetric = observed(MinMax, [-1.0, 3.0]).qparams(Format("int8", symmetric=True))
    assert (symmetric.scale, symmetric.zero_point) == (np.float32(3 / 127), 0)


def test_the_moving_average_follows_the_batches() -> None:
    observer = observed(MovingAverage, [-1.0, 1.0], [-3.0, 2.0], decay=0.75)
    low, high = observer.range()
    assert low[0] == -1.5  # -1 + 0.25 * (-3 + 1)
    assert high[0] == 1.25
    other = observed(MovingAverage, [-6.0, 4.0], decay=0.75)
    observer.merge(other)  # two batches against one
    assert observer.range()[0][0] == pytest.approx(-3.0)
    assert observed(MovingAverage, [-3.0, 2.0], [-1.0, 1.0], decay=0.75).range()[0][0] == -2.5


def test_a_percentile_leaves_out_as_many_on_each_side() -> None:
    numbers = np.linspace(-1, 1, 2001, dtype=np.float32)
    low, high = observed(Percentile, numbers, percentile=90.0).range()
    assert low[0] == pytest.approx(-0.9, abs=2 / BINS)
    assert high[0] == pytest.approx(0.9, abs=2 / BINS)
    assert observed(Percentile, numbers, percentile=100.0).range()[1][0] == 1.0


def test_squared_error_and_entropy_cut_off_one_outlier() -> None:
    numbers = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    numbers[0] = 100.0
    for cls, most in ((SquaredError, 90), (Entropy, 60)):
        low, high = observed(cls, numbers).range()
        assert 3 < high[0] < most
        assert numbers.min() <= low[0] < -3


def test_squared_error_is_the_best_of_all_thresholds() -> None:
    numbers = np.random.default_rng(1).laplace(size=50_000).astype(np.float32)
    chosen = squared_error(observed(SquaredError, numbers).qparams(), numbers)
    ends = numbers.min(), numbers.max()
    for share in np.linspace(0.3, 1.0, 30):
        threshold = share * max(abs(ends[0]), ends[1])
        low, high = max(ends[0], -threshold), min(ends[1], threshold)
        assert chosen < 1.02 * squared_error(qparams_of(np.array(low), np.array(high), Format()), numbers)
    assert chosen < 0.95 * squared_error(observed(MinMax, numbers).qparams(), numbers)


def squared_error(params: QParams, numbers: Array) -> float:
    return float(((params.round_trip(numbers) - numbers).astype(np.float64) ** 2).mean())


@pytest.mark.parametrize("cls", EVERY)
@given(value=st.floats(-3.4028234663852886e38, 3.4028234663852886e38, width=32, allow_subnormal=True))
@settings(deadline=None, max_examples=60)
def test_constants_come_back(cls: type[Observer], value: float) -> None:
    """Zero, subnormal and huge ones too: the scale is finite and above 0, and the code stands for the constant."""
    x = np.full(3, value, np.float32)
    params = observed(cls, x).qparams()
    assert np.isfinite(params.scale)
    assert params.scale > 0
    np.testing.assert_allclose(params.round_trip(x), x, rtol=2e-3, atol=0)


@pytest.mark.parametrize("cls", EVERY)
def test_small_tensors_keep_all_of_their_codes(cls: type[Observer]) -> None:
    """A floor of the scale in absolute terms, such as 1e-8, would make zeros of them."""
    x = np.linspace(-1, 1, 512, dtype=np.float32)
    small = observed(cls, x * np.float32(1e-30)).qparams()
    assert len(np.unique(small.quantize(x * np.float32(1e-30)))) > 200


@pytest.mark.parametrize("cls", EVERY)
def test_zero_has_a_code(cls: type[Observer]) -> None:
    for numbers in ([2.0, 3.0], [-3.0, -2.0], [-1.0, 4.0]):
        params = observed(cls, numbers).qparams()
        assert params.round_trip(np.zeros(1, np.float32))[0] == 0


@pytest.mark.parametrize("cls", EVERY)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_names_the_tensor(cls: type[Observer], bad: float) -> None:
    with pytest.raises(CalibrationError, match="conv1: 1 of 3 numbers are not finite"):
        cls("conv1").update(np.array([1, bad, 2], np.float32))
    observer = cls("conv1", non_finite="ignore")
    observer.update(np.array([1, bad, 2], np.float32))
    assert observer.ignored == 1
    assert observer.range()[1][0] == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("cls", EVERY)
def test_state_goes_through_json(cls: type[Observer]) -> None:
    observer = observed(cls, np.random.default_rng(0).normal(size=(9, 2)), axis=1)
    copy = from_json(json.loads(json.dumps(observer.to_json())))
    assert copy.qparams().same_as(observer.qparams())
    copy.update(np.full((1, 2), 9, np.float32))
    observer.update(np.full((1, 2), 9, np.float32))
    assert state(copy) == state(observer)


@pytest.mark.parametrize("cls", EVERY)
def test_nothing_seen_has_no_range(cls: type[Observer]) -> None:
    for observer in (cls("t"), from_json(cls("t").to_json()), observed(cls, np.zeros(0))):
        with pytest.raises(CalibrationError, match="t: nothing was observed"):
            observer.qparams()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(CalibrationError, match="3 channels, where 2 were seen"):
        observed(MinMax, np.zeros((4, 2)), np.zeros((4, 3)), axis=1)
    with pytest.raises(CalibrationError, match="has no axis 2"):
        observed(MinMax, np.zeros((4, 2)), axis=2)
    with pytest.raises(CalibrationError, match="cannot merge percentile"):
        MinMax("t").merge(Percentile("t"))  # type: ignore[arg-type]
    with pytest.raises(CalibrationError, match="percentile is 40"):
        Percentile(percentile=40.0)
    with pytest.raises(CalibrationError, match="decay is 1"):
        MovingAverage(decay=1.0)
    with pytest.raises(CalibrationError, match="non_finite is 'drop'"):
        MinMax(non_finite="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", INVARIANT)
def test_memory_does_not_grow(cls: type[Observer]) -> None:
    """Ragged batches whose range grows by 2 ** 60: as much state as after the first."""
    rng = np.random.default_rng(0)
    observer = cls("t")
    for step in range(60):
        observer.update(rng.normal(size=rng.integers(1, 50)) * 2.0**step)
    assert len(json.dumps(observer.to_json())) < 2 * BINS * 16
