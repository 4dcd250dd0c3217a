"""Types of the pools: attributes resolved, dims known and symbolic, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, Op, TensorType, Value, as_tuple, symbol
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool

WINDOWED = [MaxPool, AveragePool, LpPool]
GLOBAL = [GlobalAveragePool, GlobalMaxPool, GlobalLpPool]


def build(op: Op, shape: tuple[Any, ...], dtype: str = "float32") -> tuple[Op, tuple[Value, ...]]:
    builder = Builder()
    results = as_tuple(builder.apply(op, builder.input("x", dtype, shape)))
    return builder.nodes[-1].op, results


@pytest.mark.parametrize("cls", WINDOWED)
@pytest.mark.parametrize(
    ("fields", "shape", "expected"),
    [
        ({"kernel_shape": (2, 3)}, (2, 3, 7, 9), (2, 3, 6, 7)),
        ({"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}, (1, 3, 8, 7), (1, 3, 4, 4)),
        ({"kernel_shape": (2,), "strides": (2,), "ceil_mode": 1}, (1, 3, 7), (1, 3, 4)),
        # ceil((2 + 2 - 3) / 3) + 1 = 2, but the second window would start at 3 - 1 = 2, in the padding at the end
        ({"kernel_shape": (3,), "strides": (3,), "pads": (1, 1), "ceil_mode": 1}, (1, 3, 2), (1, 3, 1)),
        ({"kernel_shape": (2, 2), "dilations": (2, 3)}, (1, 3, 8, 8), (1, 3, 6, 5)),
        ({"kernel_shape": (2, 2, 2)}, (1, 3, 4, 4, 4), (1, 3, 3, 3, 3)),
        ({"kernel_shape": (3,), "strides": (2,), "auto_pad": "SAME_UPPER"}, (1, 3, 7), (1, 3, 4)),
        (
            {"kernel_shape": (3,), "strides": (2,), "auto_pad": "SAME_LOWER"},
            (1, 3, "L"),
            (1, 3, (symbol("L") + 1) // 2),
        ),
        ({"kernel_shape": (3,), "strides": (2,), "auto_pad": "VALID", "ceil_mode": 1}, (1, 3, 8), (1, 3, 3)),
        ({"kernel_shape": (2,), "strides": (2,)}, ("N", 3, "L"), (symbol("N"), 3, symbol("L") // 2)),
    ],
)
def test_dims(cls: type[Op], fields: dict[str, Any], shape: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    assert build(cls(**fields), shape)[1][0].shape == expected


@pytest.mark.parametrize("cls", WINDOWED)
def test_resolved_fields(cls: type[Any]) -> None:
    assert build(cls(kernel_shape=(2, 3)), (1, 3, 8, 8))[0] == cls(
        kernel_shape=(2, 3), strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0)
    )
    same = build(cls(kernel_shape=(2, 3), auto_pad="SAME_UPPER", ceil_mode=1), (1, 3, 8, 8))[0]
    assert same == cls(kernel_shape=(2, 3), strides=(1, 1), dilations=(1, 1), pads=(0, 1, 1, 1))


def test_unknown_rank_follows_from_the_kernel() -> None:
    y = Builder().apply(MaxPool(kernel_shape=(2, 2)), Value("x", TensorType("float32", None)))
    assert y.rank == 4


def test_indices_are_a_second_output() -> None:
    _, (y, indices) = build(MaxPool(kernel_shape=(2,), indices=True), (1, 3, 8), "int8")
    assert (y.type, indices.type) == (TensorType("int8", (1, 3, 7)), TensorType("int64", (1, 3, 7)))


@pytest.mark.parametrize("cls", GLOBAL)
def test_global_dims(cls: type[Op]) -> None:
    assert build(cls(), ("N", 3, 8, "W"))[1][0].shape == (symbol("N"), 3, 1, 1)
    assert Builder().apply(cls(), Value("x", TensorType("float32", None))).shape is None


def test_cost_counts_the_elements_of_all_windows() -> None:
    x = Builder().input("x", "float32", (1, 3, 8, 8))
    assert MaxPool(kernel_shape=(2, 3)).cost(x)[0] == 3 * 7 * 6 * 6
    assert GlobalMaxPool().cost(x) == (3 * 64, 4 * (3 * 64 + 3))


@pytest.mark.parametrize(
    ("op", "shape", "message"),
    [
        (MaxPool(), (1, 3, 8, 8), "kernel_shape is missing"),
        (MaxPool(kernel_shape=(2,)), (1, 3, 8, 8), "has rank 4, kernel_shape (2,) wants 3"),
        (MaxPool(kernel_shape=(2, 0)), (1, 3, 8, 8), "an entry below 1"),
        (MaxPool(kernel_shape=(2, 2), pads=(0, 2, 0, 0)), (1, 3, 8, 8), "not below the extent of the window, 2"),
        (MaxPool(kernel_shape=(2, 2), storage_order=2), (1, 3, 8, 8), "storage_order 2 is neither 0 nor 1"),
        (MaxPool(kernel_shape=(9, 2), strides=(1, 1)), (1, 3, 7, 8), "the window does not fit"),
        (LpPool(kernel_shape=(2, 2), p=0), (1, 3, 8, 8), "p 0 is below 1"),
        (GlobalLpPool(p=0), (1, 3, 8, 8), "p 0 is below 1"),
        (GlobalAveragePool(), (1, 3), "has rank 2, wants 3 or more"),
    ],
)
def test_refusals(op: Op, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        build(op, shape)
    assert message in str(caught.value)


def test_dtypes() -> None:
    with pytest.raises(InferenceError, match="does not take int8"):
        build(AveragePool(kernel_shape=(2,)), (1, 3, 8), "int8")
    with pytest.raises(InferenceError, match="does not take bool"):
        build(MaxPool(kernel_shape=(2,)), (1, 3, 8), "bool")
    with pytest.raises(InferenceError, match="takes floating point, not int8"):
        build(GlobalMaxPool(), (1, 3, 8), "int8")


@pytest.mark.parametrize("cls", [*WINDOWED, *GLOBAL])
def test_samples_infer(cls: type[Op]) -> None:
    for sample in cls.samples(np.random.default_rng(0)):
        (x,) = sample.inputs
        assert x is not None
        assert build(sample.op, x.shape, x.dtype.name)[1][0].type.is_static
