"""Where scales come from: plain, fixed, shared, derived."""

from __future__ import annotations

import numpy as np
import pytest

from aicore.ir import TensorType, Value
from aicore_int8_quant import CalibrationError, QuantizationError
from aicore_int8_quant.observers import MinMax
from aicore_int8_quant.specs import Derived, Fixed, Plain, QSpec, Shared, fixed_range, resolve, settle


def tensor(name: str) -> Value:
    return Value(name, TensorType("float32", (2,)))


A, B, C, D = map(tensor, "abcd")
UNIT, SIGNED = fixed_range(0, 1), fixed_range(-1, 1)


def saw(*numbers: float) -> MinMax:
    observer = MinMax("t")
    observer.update(np.array(numbers, np.float32))
    return observer


def scales(specs: dict[Value, QSpec], observers: dict[Value, MinMax]) -> list[float]:
    return [float(params.scale) for params in resolve(specs, observers).values()]


def test_fixed_ranges_are_powers_of_two() -> None:
    assert (UNIT.params.scale, UNIT.params.zero_point) == (np.float32(1 / 256), -128)
    assert (SIGNED.params.scale, SIGNED.params.zero_point) == (np.float32(1 / 128), 0)


def test_a_group_covers_all_of_its_tensors() -> None:
    specs: dict[Value, QSpec] = {A: Plain(), B: Plain(), C: Shared((A, B)), D: Shared((C,))}
    kept, broken = settle(specs)
    assert broken == {}
    assert scales(kept, {A: saw(-1, 2), B: saw(0, 9)}) == [float(np.float32(10 / 255))] * 4


def test_a_fixed_range_is_passed_on() -> None:
    kept, broken = settle({A: UNIT, B: Shared((A,))})
    assert broken == {}
    assert scales(kept, {}) == [1 / 256, 1 / 256]


def test_equal_fixed_ranges_join_and_others_do_not() -> None:
    kept, broken = settle({A: UNIT, B: UNIT, C: Shared((A, B))})
    assert broken == {}
    kept, broken = settle({A: UNIT, B: SIGNED, C: Shared((A, B))})
    assert "different fixed ranges" in broken[C]
    assert isinstance(kept[C], Plain)
    assert scales(kept, {C: saw(-1, 1)}) == [1 / 256, 1 / 128, float(np.float32(2 / 255))]


def test_what_is_observed_does_not_join_what_is_fixed() -> None:
    kept, broken = settle({A: UNIT, B: Plain(), C: Shared((A, B)), D: Shared((C,))})
    assert "fixed and observed ranges" in broken[C]
    assert C in broken
    assert D not in broken
    found = scales(kept, {B: saw(0, 5), C: saw(0, 6)})
    assert found == [1 / 256, float(np.float32(5 / 255)), float(np.float32(6 / 255)), float(np.float32(6 / 255))]


def test_a_bias_has_the_product_of_two_scales() -> None:
    specs: dict[Value, QSpec] = {A: UNIT, B: SIGNED, C: Derived(A, B)}
    params = resolve(specs, {})[C]
    assert params.dtype == "int32"
    assert params.scale == np.float32(2.0**-15)
    assert params.zero_point == 0


def test_what_has_no_range_is_refused() -> None:
    with pytest.raises(QuantizationError, match="%b is to share the scale of %a, which has none"):
        settle({B: Shared((A,))})
    with pytest.raises(CalibrationError, match="%a: nothing was observed"):
        resolve({A: Plain()}, {})
    assert isinstance(UNIT, Fixed)
