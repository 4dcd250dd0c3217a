"""Laws of dims: arithmetic agrees with integers under every substitution, and equal means provably equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.errors import GraphError
from aicore.ir import Dim, DimExpr, is_unknown, parse_dim, substitute, symbol, symbols, unknown
from aicore.ir.dims import as_expr

NAMES = ("N", "H", "W", "odd name", 'quo"te\\', "class", "None", "ü")
VALUES = st.fixed_dictionaries({name: st.integers(0, 50) for name in NAMES})

Evaluated = tuple[Dim, Callable[[dict[str, int]], int]]


def _leaf(draw: st.DrawFn) -> Evaluated:
    if draw(st.booleans()):
        number = draw(st.integers(-9, 9))
        return number, lambda values: number
    name = draw(st.sampled_from(NAMES))
    return symbol(name), lambda values: values[name]


@st.composite
def evaluated(draw: st.DrawFn, depth: int = 3) -> Evaluated:
    """A dim, and the same arithmetic on integers."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return _leaf(draw)
    left, left_value = draw(evaluated(depth - 1))
    kind = draw(st.sampled_from("+-*/%"))
    if kind in "/%":
        divisor = draw(st.integers(1, 9))
        if kind == "/":
            return as_expr(left) // divisor, lambda values: left_value(values) // divisor
        return as_expr(left) % divisor, lambda values: left_value(values) % divisor
    right, right_value = draw(evaluated(depth - 1))
    if kind == "+":
        return left + right, lambda values: left_value(values) + right_value(values)
    if kind == "-":
        return left - right, lambda values: left_value(values) - right_value(values)
    return left * right, lambda values: left_value(values) * right_value(values)


@settings(deadline=None, max_examples=200)
@given(evaluated(), VALUES)
def test_arithmetic_is_that_of_integers(pair: Evaluated, values: dict[str, int]) -> None:
    dim, expected = pair
    assert substitute(dim, values) == expected(values)


@settings(deadline=None, max_examples=200)
@given(evaluated())
def test_text_reads_back(pair: Evaluated) -> None:
    dim, _ = pair
    assert parse_dim(str(dim)) == dim


@settings(deadline=None, max_examples=100)
@given(evaluated(2), evaluated(2), evaluated(2))
def test_ring_laws(first: Evaluated, second: Evaluated, third: Evaluated) -> None:
    a, b, c = first[0], second[0], third[0]
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == 0
    assert a + 0 == a
    assert a * 1 == a
    assert a * 0 == 0
    assert hash(a + b) == hash(b + a)


@settings(deadline=None, max_examples=100)
@given(evaluated(2), st.integers(1, 9))
def test_division_undoes_multiplication(pair: Evaluated, divisor: int) -> None:
    dim, _ = pair
    assert as_expr(dim * divisor) // divisor == dim


@settings(deadline=None, max_examples=100)
@given(evaluated(2), st.sampled_from(NAMES), evaluated(1))
def test_substitution_removes_the_symbol(pair: Evaluated, name: str, other: Evaluated) -> None:
    replaced = substitute(pair[0], {name: other[0]})
    assert name not in symbols(replaced) or name in symbols(other[0])


def test_convolution_dims_are_equal_however_they_are_written() -> None:
    height = symbol("H")
    assert (height + 2 - 3) // 2 + 1 == (height - 1) // 2 + 1 == (height + 1) // 2
    assert str((height + 1) // 2 - 1) == str(parse_dim("(H+1)//2-1"))


def test_quotients_of_products_cancel() -> None:
    batch, steps = symbol("B"), symbol("S")
    assert (batch * steps * 8) // (batch * steps * 2) == 4
    assert (batch * steps * 8) // steps == batch * 8
    assert as_expr(12) // as_expr(5) == 2 or isinstance(as_expr(12) // as_expr(5), DimExpr)


def test_unknown_dims_equal_only_themselves() -> None:
    a, b = unknown(), unknown()
    assert a == a
    assert a != b
    assert a - a == 0
    assert is_unknown(a * 2 + symbol("N"))
    assert not is_unknown(symbol("N"))
    assert not is_unknown(3)
    assert is_unknown((a + 1) // 2)


def test_division_by_zero() -> None:
    with pytest.raises(GraphError, match="divided by zero"):
        symbol("N") // 0


@pytest.mark.parametrize(
    "text", ["", "N-", "N**2", "f(N)", "1.5", "N if N else 1", "N; M", "[N]", "N/2", "(" * 300, "True"]
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match="not a dimension"):
        parse_dim(text)
