"""Generated kernels on a GPU: what compiling them for the CPU cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Op, as_tuple, dtype_name, numpy_dtype
from aicore.numerics import expect
from aicore.ops.activation import Clip, Gelu, Relu
from aicore.ops.arithmetic import Add, Max, Mod, Mul, Pow
from aicore.ops.cast import Cast
from aicore.ops.elementwise import Erf, Exp, Sin, Tan
from aicore.ops.logic import Equal
from aicore.runtime import ReferenceEvaluator

Array = np.ndarray[Any, Any]
Run = Callable[[Op, Sequence[Array]], list[Array]]
pytestmark = pytest.mark.gpu


@pytest.fixture
def run() -> Run:
    """`(op, operands) -> results` on the first GPU."""

    def on_gpu(op: Op, operands: Sequence[Array]) -> list[Array]:
        builder = Builder()
        inputs = [builder.input(f"x{i}", dtype_name(a.dtype), a.shape) for i, a in enumerate(operands)]
        outputs = as_tuple(builder.apply(op, *inputs))
        graph = builder.graph(inputs, {f"y{i}": value for i, value in enumerate(outputs)})
        program = aicore.compile(graph, "cuda:0", fallback="error", optimize=False)
        return list(program.run({f"x{i}": a for i, a in enumerate(operands)}).values())

    return on_gpu


def test_subnormal_numbers_are_no_zeros(run: Run) -> None:
    x = np.array([1e-40, -1e-45, 0.0, 1e-38], np.float32)
    assert run(Equal(), [x, np.zeros((), np.float32)])[0].tolist() == [False, False, True, False]
    assert run(Cast("bool"), [x])[0].tolist() == [True, True, False, True]
    assert run(Mul(), [x, np.ones((), np.float32)])[0].tobytes() == x.tobytes()


def widened(x: Array) -> Array:
    """As float32, which has every number of 16 bits; by their bits, whatever the host's library does."""
    if x.dtype == np.float16:
        return x.astype(np.float32)
    return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def narrowed(x: Array, dtype: str) -> Array:
    """float32 numbers rounded to 16 bits, to nearest and halves to even; as float32 again."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isnan(x), np.float32(np.nan), rounded.astype(np.uint32).view(np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_16_bits(dtype: str, run: Run, evaluate: ReferenceEvaluator) -> None:
    """The hardware's conversions against arithmetic in float32."""
    x = np.arange(2**16, dtype=np.uint16).view(numpy_dtype(dtype))
    factor = np.array([1.0, 0.4995, 3.3], numpy_dtype(dtype))[:, None]
    wide = widened(x)
    with np.errstate(over="ignore", invalid="ignore"):
        product = narrowed(wide * widened(factor), dtype)
    np.testing.assert_array_equal(widened(run(Mul(), [x, factor])[0]), product)
    np.testing.assert_array_equal(run(Cast("float32"), [x])[0], wide)
    np.testing.assert_array_equal(widened(run(Relu(), [x])[0]), np.where(wide < 0, np.float32(0), wide))
    np.testing.assert_array_equal(run(Cast("int8"), [x])[0], evaluate(Cast("int8"), wide)[0])


def test_float64_is_rounded_once_to_float16(run: Run) -> None:
    x = np.array([1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 65519.99, 65520.0, 2.0**-25 + 2.0**-60, np.nan])
    with np.errstate(over="ignore"):  # 65520 is infinite in float16
        wanted = x.astype(np.float16)
    np.testing.assert_array_equal(run(Cast("float16"), [x])[0], wanted)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("op", [Exp(), Sin(), Tan(), Erf(), Gelu(), Gelu("tanh"), Clip(-0.5, 0.25)])
def test_functions_far_from_zero(op: Op, run: Run, evaluate: ReferenceEvaluator, rng: np.random.Generator) -> None:
    """Angles of any size are reduced with all their digits, which fast functions do not do."""
    x = (rng.standard_normal(4099) * 10.0 ** rng.integers(-8, 6, 4099)).astype(np.float32)
    fault = expect(evaluate, op, [x], ["float32"]).fault(run(op, [x]))
    assert not fault, fault


@pytest.mark.parametrize(
    ("left", "right"),
    [((64, 3, 112, 112), (3, 1, 1)), ((513, 1001), (1001,)), ((7, 1, 333, 5), (6, 1, 5)), ((5_000_011,), ())],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_large_broadcasts(
    left: tuple[int, ...],
    right: tuple[int, ...],
    dtype: str,
    run: Run,
    evaluate: ReferenceEvaluator,
    rng: np.random.Generator,
) -> None:
    operands = [rng.integers(-9, 9, shape).astype(dtype) for shape in (left, right)]
    for op in (Add(), Max()):
        np.testing.assert_array_equal(run(op, operands)[0], evaluate(op, *operands)[0])


def test_integers_divide_by_zero_and_overflow(run: Run, evaluate: ReferenceEvaluator) -> None:
    few = np.array([-(2**63), 2**63 - 1, -1, 0, 1, 2, -3], np.int64)
    for op in (Mod(), Mod(fmod=1), Pow()):
        operands = [few[:, None], few]
        np.testing.assert_array_equal(run(op, operands)[0], evaluate(op, *operands)[0])
