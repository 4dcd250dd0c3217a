"""What each pointwise op computes, as a C expression over the functions of prelude.cuh.

Every formula follows the reference kernel of its op: what is computed in which type, and where NaN goes. float16 and
bfloat16 are computed in float32 and rounded once, at the op's end, as if each op stored its result. So a chain of ops
gives the same bits in one kernel as in several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from types import ModuleType
from typing import Any, TypeAlias

from aicore.ir import FLOATS, INTEGERS, Op
from aicore.ops import activation, arithmetic, elementwise, logic
from aicore.ops.bits import BitCast
from aicore.ops.cast import Cast, CastLike
from aicore_cuda_ge.codegen.elements import ELEMENTS, float_literal, literal


@dataclass(frozen=True, slots=True)
class Argument:
    """An operand as C expressions: of the type in memory, and of the type to compute with."""

    dtype: str
    stored: str
    wide: str

    @classmethod
    def variable(cls, name: str, dtype: str) -> Argument:
        """What a variable of the type in memory holds."""
        return cls(dtype, name, ELEMENTS[dtype].wide(name))

    @classmethod
    def constant(cls, number: str, dtype: str) -> Argument:
        """A literal."""
        return cls(dtype, ELEMENTS[dtype].narrow(number), number)


Formula: TypeAlias = Callable[[Any, str, "Sequence[Argument | None]"], str]
"""`(op, dtype of the result, operands) -> expression`, of the type in memory of the result."""


def expression(op: Op, dtype: str, arguments: Sequence[Argument | None]) -> str:
    """The op on these operands. Raises KeyError for an op without a formula."""
    return FORMULAS[type(op)](op, dtype, arguments)


def _call(function: str, *fields: str) -> Formula:
    """`function(x, y, ..., field, ...)`, with fields of the op as literals of the type to compute with."""

    def formula(op: Any, dtype: str, arguments: Sequence[Argument | None]) -> str:
        element = ELEMENTS[dtype]
        numbers = [float_literal(float(getattr(op, name)), element.computed) for name in fields]
        return element.narrow(f"{function}({', '.join([*_wide(arguments), *numbers])})")

    return formula


def _infix(sign: str) -> Formula:
    def formula(op: Any, dtype: str, arguments: Sequence[Argument | None]) -> str:
        return ELEMENTS[dtype].narrow(f" {sign} ".join(_wide(arguments)))

    return formula


def _fold(function: str) -> Formula:
    """The function over all operands, from left to right."""

    def formula(op: Any, dtype: str, arguments: Sequence[Argument | None]) -> str:
        return ELEMENTS[dtype].narrow(reduce(lambda a, b: f"{function}({a}, {b})", _wide(arguments)))

    return formula


def _present(arguments: Sequence[Argument | None]) -> list[Argument]:
    return [argument for argument in arguments if argument is not None]


def _wide(arguments: Sequence[Argument | None]) -> list[str]:
    return [argument.wide for argument in _present(arguments)]


def _mean(op: arithmetic.Mean, dtype: str, arguments: Sequence[Argument | None]) -> str:
    element = ELEMENTS[dtype]
    total = reduce(lambda a, b: f"add({a}, {b})", _wide(arguments))
    return element.narrow(f"{total} / {float_literal(len(arguments), element.computed)}")


def _pow(op: arithmetic.Pow, dtype: str, arguments: Sequence[Argument | None]) -> str:
    """In the type that NumPy finds for both operands: float32 holds exponents of up to 16 bits, float64 all others."""
    x, y = _present(arguments)
    if x.dtype in INTEGERS and y.dtype in INTEGERS:
        return ELEMENTS[dtype].narrow(f"power({_as('i64', x)}, {_as('i64', y)})")
    if x.dtype in INTEGERS:
        power = f"whole_if_close(power({_as('f64', x)}, {_as('f64', y)}))"
        return f"converted<{ELEMENTS[dtype].computed}>({power})"
    narrow = x.dtype != "float64" and y.dtype in _FIT_FLOAT32
    computed = "f32" if narrow else "f64"
    power = f"power({_as(computed, x)}, {_as(computed, y)})"
    return ELEMENTS[dtype].narrow(f"{ELEMENTS[dtype].computed}({power})")


_FIT_FLOAT32 = frozenset({"float16", "bfloat16", "float32", "int8", "uint8", "int16", "uint16"})


def _as(computed: str, argument: Argument) -> str:
    return argument.wide if ELEMENTS[argument.dtype].computed == computed else f"{computed}({argument.wide})"


def _clip(op: activation.Clip, dtype: str, arguments: Sequence[Argument | None]) -> str:
    found = _wide(arguments)[0]
    bounds = (*arguments[1:], None, None)
    for function, field, operand in (("larger", op.min, bounds[0]), ("smaller", op.max, bounds[1])):
        if field is not None:
            found = f"{function}({found}, {literal(field, dtype)})"
        elif operand is not None:
            found = f"{function}({found}, {operand.wide})"
    return ELEMENTS[dtype].narrow(found)


def _gelu(op: activation.Gelu, dtype: str, arguments: Sequence[Argument | None]) -> str:
    element = ELEMENTS[dtype]
    numbers = (math.sqrt(2 / math.pi), 0.044715) if op.approximate == "tanh" else (math.sqrt(2),)
    function = "gelu_tanh" if op.approximate == "tanh" else "gelu"
    literals = [float_literal(number, element.computed) for number in numbers]
    return element.narrow(f"{function}({', '.join([*_wide(arguments), *literals])})")


def _shrink(op: activation.Shrink, dtype: str, arguments: Sequence[Argument | None]) -> str:
    """Integers by way of float64, whose result saturates."""
    (x,) = _wide(arguments)
    computed = ELEMENTS[dtype].computed if dtype in FLOATS else "f64"
    numbers = f"{float_literal(op.lambd, computed)}, {float_literal(op.bias, computed)}"
    if dtype in FLOATS:
        return ELEMENTS[dtype].narrow(f"shrink({x}, {numbers})")
    return f"converted<{ELEMENTS[dtype].computed}>(shrink(f64({x}), {numbers}))"


def _shift(op: logic.BitShift, dtype: str, arguments: Sequence[Argument | None]) -> str:
    function = "shift_left" if op.direction == "LEFT" else "shift_right"
    return f"{function}({', '.join(_wide(arguments))})"


def _where(op: logic.Where, dtype: str, arguments: Sequence[Argument | None]) -> str:
    """Chosen as memory has them, so that bits of NaN and of types without arithmetic stay."""
    condition, x, y = _present(arguments)
    return f"{condition.wide} ? {x.stored} : {y.stored}"


def _is_nan(op: logic.IsNaN, dtype: str, arguments: Sequence[Argument | None]) -> str:
    (x,) = _wide(arguments)
    return f"to_b8({x} != {x})"


def _is_inf(op: logic.IsInf, dtype: str, arguments: Sequence[Argument | None]) -> str:
    (x,) = _wide(arguments)
    signs = [sign for sign, counts in (("", op.detect_positive), ("-", op.detect_negative)) if counts]
    return f"to_b8({' || '.join(f'{x} == {sign}infinity()' for sign in signs) or 'false'})"


def _cast(op: Any, dtype: str, arguments: Sequence[Argument | None]) -> str:
    """bfloat16 of any number is that of its float32, as the references have it."""
    (x,) = _present(arguments)
    if x.dtype == dtype:
        return x.stored
    if dtype == "float16" and x.dtype == "float64":
        return f"to_f16({x.wide})"  # rounded once, not by way of float32
    return ELEMENTS[dtype].narrow(f"converted<{ELEMENTS[dtype].computed}>({x.wide})")


def _bit_cast(op: BitCast, dtype: str, arguments: Sequence[Argument | None]) -> str:
    (x,) = _present(arguments)
    if dtype == "bool":
        return f"to_b8(same_bits<u8>({x.stored}) != 0)"
    return f"same_bits<{ELEMENTS[dtype].stored}>({x.stored})"


def _by_name(module: ModuleType, names: str) -> dict[type[Op], Formula]:
    """Ops whose functions have their name in lower case."""
    return {getattr(module, name): _call(name.lower()) for name in names.split()}


FORMULAS: dict[type[Op], Formula] = {
    **_by_name(elementwise, "Abs Sign Neg Reciprocal Sqrt Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh"),
    **_by_name(elementwise, "Asinh Acosh Atanh Ceil Floor"),
    **_by_name(activation, "Relu Sigmoid Softplus Softsign Mish Tanh"),
    **_by_name(arithmetic, "Add Sub Mul Div"),
    elementwise.Round: _call("rint"),
    activation.LeakyRelu: _call("prelu", "alpha"),
    activation.PRelu: _call("prelu"),
    activation.Elu: _call("elu", "alpha"),
    activation.Selu: _call("selu", "alpha", "gamma"),
    activation.Celu: _call("celu", "alpha"),
    activation.Gelu: _gelu,
    activation.HardSigmoid: _call("hard_sigmoid", "alpha", "beta"),
    activation.HardSwish: _call("hard_swish"),
    activation.Swish: _call("swish", "alpha"),
    activation.ThresholdedRelu: _call("thresholded_relu", "alpha"),
    activation.Shrink: _shrink,
    activation.Clip: _clip,
    arithmetic.Mod: lambda op, dtype, arguments: _call("fmod" if op.fmod else "mod")(op, dtype, arguments),
    arithmetic.Pow: _pow,
    arithmetic.Max: _fold("larger"),
    arithmetic.Min: _fold("smaller"),
    arithmetic.Sum: _fold("add"),
    arithmetic.Mean: _mean,
    logic.Equal: _infix("=="),
    logic.Less: _infix("<"),
    logic.LessOrEqual: _infix("<="),
    logic.Greater: _infix(">"),
    logic.GreaterOrEqual: _infix(">="),
    logic.And: _infix("&&"),
    logic.Or: _infix("||"),
    logic.Xor: _infix("!="),
    logic.Not: lambda op, dtype, arguments: f"to_b8(!{_wide(arguments)[0]})",
    logic.BitwiseAnd: _infix("&"),
    logic.BitwiseOr: _infix("|"),
    logic.BitwiseXor: _infix("^"),
    logic.BitwiseNot: lambda op, dtype, arguments: ELEMENTS[dtype].narrow(f"~{_wide(arguments)[0]}"),
    logic.BitShift: _shift,
    logic.Where: _where,
    logic.IsNaN: _is_nan,
    logic.IsInf: _is_inf,
    Cast: _cast,
    CastLike: _cast,
    BitCast: _bit_cast,
}
"""The formula of every op that generated kernels compute."""
