"""Types of Conv and ConvTranspose: attributes resolved, dims known and symbolic, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, DimExpr, Op, TensorType, Value, symbol
from aicore.ops.convolution import Conv, ConvTranspose


def build(op: Op, *operands: tuple[Any, ...] | Value | None) -> tuple[Op, Value]:
    """The resolved op and its result; an operand given as a shape is a float32 input."""
    builder = Builder()
    values = [
        builder.input(f"x{i}", "float32", operand) if isinstance(operand, tuple) else operand
        for i, operand in enumerate(operands)
    ]
    result = builder.apply(op, *values)
    return builder.nodes[-1].op, result


def shape(op: Op, *operands: tuple[Any, ...] | Value | None) -> Any:
    return build(op, *operands)[1].shape


def test_defaults_follow_the_rank() -> None:
    assert build(Conv(), (1, 3, 8, 8), (4, 3, 3, 2))[0] == Conv(
        dilations=(1, 1), kernel_shape=(3, 2), pads=(0, 0, 0, 0), strides=(1, 1)
    )


@pytest.mark.parametrize(
    ("op", "x", "w", "expected"),
    [
        (Conv(), (2, 3, 7, 9), (4, 3, 3, 2), (2, 4, 5, 8)),
        (Conv(pads=(1, 2, 3, 4), strides=(2, 3)), (1, 3, 7, 9), (4, 3, 3, 2), (1, 4, 5, 5)),
        (Conv(dilations=(2,), pads=(2, 2)), (1, 3, 7), (4, 3, 3), (1, 4, 7)),
        (Conv(group=3), (1, 6, 5, 5, 5), (9, 2, 2, 2, 2), (1, 9, 4, 4, 4)),
        (Conv(), (1, 3, 2, 5), (4, 3, 3, 3), (1, 4, 0, 3)),
        (Conv(strides=(2,)), ("N", 3, "L"), (4, 3, 3), (symbol("N"), 4, (symbol("L") - 1) // 2)),
    ],
)
def test_conv_dims(op: Op, x: tuple[Any, ...], w: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    assert shape(op, x, w) == expected


def test_same_padding_becomes_pads_once_the_dims_are_numbers() -> None:
    # 5 rows, stride 2: 3 outputs reach 4 + 2 = 6 rows, 1 more than there are. 7 columns: 4 outputs reach 10, 3 more.
    upper, y = build(Conv(auto_pad="SAME_UPPER", strides=(2, 2)), (1, 3, 5, 7), (4, 3, 2, 4))
    assert isinstance(upper, Conv)
    assert (upper.auto_pad, upper.pads, y.shape) == ("NOTSET", (0, 1, 1, 2), (1, 4, 3, 4))
    lower, _ = build(Conv(auto_pad="SAME_LOWER", strides=(2, 2)), (1, 3, 5, 7), (4, 3, 2, 4))
    assert isinstance(lower, Conv)
    assert lower.pads == (1, 2, 0, 1)


def test_same_padding_waits_for_symbolic_dims_but_the_output_does_not() -> None:
    op, y = build(Conv(auto_pad="SAME_UPPER", strides=(2, 1)), (1, 3, "H", 7), (4, 3, 3, 3))
    assert isinstance(op, Conv)
    assert (op.auto_pad, op.pads) == ("SAME_UPPER", ())
    assert y.shape == (1, 4, (symbol("H") + 1) // 2, 7)


def test_valid_padding_is_no_padding() -> None:
    op, y = build(Conv(auto_pad="VALID"), (1, 3, "H", 7), (4, 3, 3, 3))
    assert isinstance(op, Conv)
    assert (op.auto_pad, op.pads) == ("NOTSET", (0, 0, 0, 0))
    assert y.shape == (1, 4, symbol("H") - 2, 5)


def test_unknown_rank_and_channels_do_not_stop_inference() -> None:
    builder = Builder()
    unranked = Value("x", TensorType("float32", None))
    assert builder.apply(Conv(), unranked, builder.input("w", "float32", (4, 3, 3, 3))).shape is None
    y = builder.apply(
        Conv(), builder.input("x", "float32", (1, "C", 8, 8)), builder.input("w", "float32", (4, 3, 3, 3))
    )
    assert y.shape == (1, 4, 6, 6)


def test_cost_counts_multiplications_and_additions() -> None:
    builder = Builder()
    x, w = builder.input("x", "float32", (2, 3, 8, 8)), builder.input("w", "float32", (4, 3, 3, 3))
    flops, moved = Conv().cost(x, w)
    assert flops == 2 * (2 * 4 * 6 * 6) * (3 * 3 * 3)
    assert moved == 4 * (2 * 3 * 8 * 8 + 4 * 3 * 3 * 3 + 2 * 4 * 6 * 6)
    wt = builder.input("wt", "float32", (3, 4, 3, 3))
    assert ConvTranspose().cost(x, wt)[0] == 2 * (2 * 3 * 8 * 8) * (4 * 3 * 3)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Conv(), ((1, 3, 8, 8), (4, 2, 3, 3)), "3 channels, weight and group want 2"),
        (Conv(group=2), ((1, 4, 8, 8), (3, 2, 3, 3)), "3 output channels do not divide into 2 groups"),
        (Conv(group=0), ((1, 4, 8, 8), (3, 2, 3, 3)), "group 0 is below 1"),
        (Conv(), ((1, 3, 8, 8), (4, 3, 3, 3), (5,)), "the bias has not 4 entries"),
        (Conv(), ((1, 3, 8, 8), (4, 3, 3, 3), (4, 1)), "has rank 2, wants 1"),
        (Conv(), ((1, 3), (4, 3)), "has rank 2, wants 3 or more"),
        (Conv(), ((1, 3, 8, 8), (4, 3, 3)), "different ranks: 4 and 3"),
        (Conv(kernel_shape=(2, 2)), ((1, 3, 8, 8), (4, 3, 3, 3)), "kernel_shape (2, 2) is not that of the weight"),
        (Conv(strides=(2,)), ((1, 3, 8, 8), (4, 3, 3, 3)), "strides (2,) has 1 entries, wants 2"),
        (Conv(strides=(2, 0)), ((1, 3, 8, 8), (4, 3, 3, 3)), "strides (2, 0) has an entry below 1"),
        (Conv(pads=(1, 1)), ((1, 3, 8, 8), (4, 3, 3, 3)), "pads (1, 1) has 2 entries, wants 4"),
        (Conv(pads=(1, 1, 1, -1)), ((1, 3, 8, 8), (4, 3, 3, 3)), "an entry below 0"),
        (Conv(auto_pad="SAME"), ((1, 3, 8, 8), (4, 3, 3, 3)), "auto_pad 'SAME' is none of"),
        (Conv(auto_pad="VALID", pads=(1, 1, 1, 1)), ((1, 3, 8, 8), (4, 3, 3, 3)), "contradict auto_pad VALID"),
        (Conv(strides=(1, 1)), ((1, 3, 1, 8), (4, 3, 3, 3)), "the window does not fit"),
        (ConvTranspose(), ((1, 3, 8, 8), (4, 3, 3, 3)), "3 channels, the weight wants 4"),
        (ConvTranspose(group=2), ((1, 3, 8, 8), (3, 2, 3, 3)), "3 channels do not divide into 2 groups"),
        (ConvTranspose(), ((1, 3, 8, 8), (3, 2, 3, 3), (3,)), "the bias has not 2 entries"),
        (ConvTranspose(output_padding=(1, 0)), ((1, 3, 8, 8), (3, 2, 3, 3)), "output_padding 1 is not below"),
        (ConvTranspose(output_padding=(-1, 0)), ((1, 3, 8, 8), (3, 2, 3, 3)), "output_padding (-1, 0) has an entry"),
        (ConvTranspose(output_shape=(9,)), ((1, 3, 8, 8), (3, 2, 3, 3)), "output_shape (9,) has 1 entries, wants 2"),
        (ConvTranspose(pads=(9, 9, 9, 9)), ((1, 3, 8, 8), (3, 2, 3, 3)), "cut off more than there is"),
    ],
)
def test_refusals(op: Op, operands: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        build(op, *operands)
    assert message in str(caught.value)
    assert type(op).__name__ in str(caught.value)


def test_integers_are_refused() -> None:
    builder = Builder()
    x, w = builder.input("x", "int32", (1, 3, 8, 8)), builder.input("w", "int32", (4, 3, 3, 3))
    with pytest.raises(InferenceError, match="takes floating point, not int32"):
        builder.apply(Conv(), x, w)
    with pytest.raises(InferenceError, match="different dtypes"):
        builder.apply(Conv(), builder.input("x", "float32", (1, 3, 8, 8)), w)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        # (5 - 1) * 2 + (3 - 1) + 1 = 11 rows, (7 - 1) * 3 + 3 = 21 columns
        (ConvTranspose(strides=(2, 3)), (11, 21)),
        (ConvTranspose(strides=(2, 3), pads=(1, 2, 3, 4)), (7, 15)),
        (ConvTranspose(strides=(2, 3), output_padding=(1, 2)), (12, 23)),
        (ConvTranspose(strides=(2, 3), dilations=(2, 1)), (13, 21)),
        (ConvTranspose(strides=(2, 3), output_shape=(10, 30)), (10, 30)),
        (ConvTranspose(strides=(2, 3), auto_pad="SAME_UPPER"), (10, 21)),
        (ConvTranspose(strides=(2, 3), auto_pad="VALID"), (11, 21)),
    ],
)
def test_transpose_dims(op: Op, expected: tuple[int, int]) -> None:
    assert shape(op, (1, 3, 5, 7), (3, 2, 3, 3)) == (1, 2, *expected)


def test_transpose_dims_stay_symbolic() -> None:
    height = symbol("H")
    assert isinstance(height, DimExpr)
    found = shape(ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1)), (1, 3, "H", 4), (3, 2, 3, 3))
    assert found == (1, 2, height * 2, 8)
    same = shape(ConvTranspose(strides=(3, 3), auto_pad="SAME_LOWER"), (1, 3, "H", 4), (3, 2, 3, 3))
    assert same == (1, 2, height * 3, 12)


@pytest.mark.parametrize("cls", [Conv, ConvTranspose])
def test_samples_infer(cls: type[Op]) -> None:
    for sample in cls.samples(np.random.default_rng(0)):
        assert build(sample.op, *(a.shape for a in sample.inputs if a is not None))[1].type.is_static
