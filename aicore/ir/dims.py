"""Dimensions: an int, or a canonical expression of symbols, so that `==` means provably equal.

An expression is `constant + sum(coefficient * product of atoms)`. An atom is a symbol's name or a floor division that
does not come out even. A dim about which nothing is known is a fresh symbol, so it equals only itself.
"""

from __future__ import annotations

import ast
import itertools
import keyword
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from aicore.errors import GraphError

_UNKNOWN = "?"
_ANY_SIGN = "?any"
"""Begins the names of unknowns that stand for a result of arithmetic, which need not be a size."""
_fresh = itertools.count()
_LONGEST = 4096
"""Characters of an expression. A file may square a polynomial again and again; a longer one is unknown."""
_MOST_PRODUCTS = 4096
_LARGEST = 1 << 128


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """An atom: `numerator // denominator`, rounded towards minus infinity as in Python."""

    numerator: DimExpr
    denominator: DimExpr

    def __str__(self) -> str:
        return f"(({self.numerator})//({self.denominator}))"


Atom: TypeAlias = "str | FloorDiv"
Product: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True, slots=True)
class DimExpr:
    """A canonical integer polynomial over atoms; build it with `symbol` and arithmetic, never by hand."""

    terms: tuple[tuple[Product, int], ...]
    constant: int = 0
    # Nested divisions share their parts, and each type of a node is hashed: once for an expression, not for each use.
    _hash: int = field(init=False, repr=False, compare=False)
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = [_product_text(atoms, factor) for atoms, factor in self.terms]
        if self.constant:
            parts.append(str(self.constant))
        object.__setattr__(self, "_text", "+".join(parts).replace("+-", "-") if parts else "0")
        object.__setattr__(self, "_hash", hash((self.terms, self.constant)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return _bounded(self.terms, self.constant + other)
        other = as_expr(other)
        terms = Counter(dict(self.terms))
        for atoms, factor in other.terms:
            terms[atoms] += factor
        return _canonical(terms, self.constant + other.constant)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + as_expr(other) * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            scaled = tuple((atoms, factor * other) for atoms, factor in self.terms)
            return _bounded(scaled, self.constant * other) if other else 0
        other = as_expr(other)
        if len(self.terms) * len(other.terms) > _MOST_PRODUCTS:
            return _of_any_sign()
        terms: Counter[Product] = Counter()
        for (left, a), (right, b) in itertools.product(_all_terms(self), _all_terms(other)):
            terms[tuple(sorted(left + right, key=str))] += a * b
        constant = terms.pop((), 0)
        return _canonical(terms, constant)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Dim) -> Dim:
        if isinstance(divisor, DimExpr):
            exact = _exact_quotient(self, divisor)
            return _quotient(self, divisor) if exact is None else exact
        if divisor == 0:
            raise GraphError(f"dimension {self} is divided by zero")
        whole = _canonical(
            Counter({a: c // divisor for a, c in self.terms if c % divisor == 0}), self.constant // divisor
        )
        rest = _canonical(Counter({a: c for a, c in self.terms if c % divisor}), self.constant % divisor)
        if isinstance(rest, int):  # 0 <= rest < divisor: nothing is lost
            return whole
        return whole + _quotient(rest, as_expr(divisor))

    def __mod__(self, divisor: Dim) -> Dim:
        return self - (self // divisor) * divisor


Dim: TypeAlias = int | DimExpr
Shape: TypeAlias = tuple[Dim, ...]


def symbol(name: str) -> DimExpr:
    """The dim called `name`; two symbols of one name are equal."""
    return _atom(name)


def unknown() -> DimExpr:
    """A dim that nothing else equals."""
    return _atom(f"{_UNKNOWN}{next(_fresh)}")


def may_be_negative(name: str) -> bool:
    """Whether the symbol stands for a number rather than a size."""
    return name.startswith(_ANY_SIGN)


def as_expr(dim: Dim) -> DimExpr:
    """The dim as an expression, so that its terms can be read."""
    return dim if isinstance(dim, DimExpr) else DimExpr((), int(dim))


def symbols(dim: Dim) -> set[str]:
    """Names of all symbols in the dim, inside floor divisions too."""
    return set() if isinstance(dim, int) else set(_names(dim))


def is_unknown(dim: Dim) -> bool:
    """Whether the dim contains an unknown."""
    return isinstance(dim, DimExpr) and any(name.startswith(_UNKNOWN) for name in _names(dim))


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dim with symbols replaced; symbols that are not in `values` stay."""
    if isinstance(dim, int):
        return dim
    total: Dim = dim.constant
    for atoms, factor in dim.terms:
        product: Dim = factor
        for atom in atoms:
            product = product * _substitute_atom(atom, values)
        total = total + product
    return total


def parse_dim(text: str) -> Dim:
    """Read what `str(dim)` prints: integers, names, quoted names, `+ - * //` and parentheses.

    Raises GraphError for anything else.
    """
    source = text.replace(_UNKNOWN, "__unknown_")
    try:
        tree = ast.parse(source.strip(), mode="eval").body
        return _from_tree(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GraphError(f"not a dimension: {text!r}") from error


def _from_tree(tree: ast.expr) -> Dim:
    match tree:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Constant(value=str() as name):
            return symbol(name.replace("__unknown_", _UNKNOWN))
        case ast.Name(id=name):
            return symbol(name.replace("__unknown_", _UNKNOWN))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _from_tree(operand) * -1
        case ast.BinOp(left=left, op=operator, right=right):
            a, b = _from_tree(left), _from_tree(right)
            match operator:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return as_expr(a) // b
    raise ValueError("unexpected syntax")


def _of_any_sign() -> DimExpr:
    return _atom(f"{_ANY_SIGN}{next(_fresh)}")


def _atom(atom: Atom) -> DimExpr:
    return DimExpr((((atom,), 1),))


def _bounded(terms: tuple[tuple[Product, int], ...], constant: int) -> DimExpr:
    """The expression, or an unknown in place of one that is too long to go on with."""
    if max([abs(constant), *(abs(factor) for _, factor in terms)]) > _LARGEST:
        return _of_any_sign()
    expr = DimExpr(terms, constant)
    return expr if len(str(expr)) <= _LONGEST else _of_any_sign()


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, FloorDiv):
        return str(atom)
    # Python's parser, which reads the text back, folds letters outside of ASCII and keeps its keywords for itself.
    if atom.startswith(_UNKNOWN) or (atom.isidentifier() and atom.isascii() and not keyword.iskeyword(atom)):
        return atom
    return '"' + atom.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _quotient(numerator: DimExpr, denominator: DimExpr) -> DimExpr:
    return _bounded((((FloorDiv(numerator, denominator),), 1),), 0)


def _product_text(atoms: Product, factor: int) -> str:
    text = "*".join(map(_atom_text, atoms))
    return text if factor == 1 else f"{factor}*{text}"


def _all_terms(expr: DimExpr) -> list[tuple[Product, int]]:
    return [*expr.terms, ((), expr.constant)]


def _canonical(terms: Mapping[Product, int], constant: int) -> Dim:
    kept = sorted(((a, c) for a, c in terms.items() if c), key=lambda term: tuple(map(str, term[0])))
    return _bounded(tuple(kept), constant) if kept else constant


def _exact_quotient(numerator: DimExpr, denominator: DimExpr) -> Dim | None:
    """The quotient if `denominator` is one term that divides every term of `numerator` (8*B*S // 2*B*S)."""
    if numerator == denominator:
        return 1
    if len(denominator.terms) != 1 or denominator.constant or numerator.constant:
        return None
    divisor_atoms, divisor = denominator.terms[0]
    terms: Counter[Product] = Counter()
    for atoms, factor in numerator.terms:
        left = Counter(atoms)
        left.subtract(divisor_atoms)
        if factor % divisor or min(left.values()) < 0:
            return None
        terms[tuple(sorted(left.elements(), key=str))] += factor // divisor
    constant = terms.pop((), 0)
    return _canonical(terms, constant)


@lru_cache(maxsize=16_384)
def _names(expr: DimExpr) -> frozenset[str]:
    """Remembered, as each dim of each type is asked for it and nested divisions share their parts."""
    found: set[str] = set()
    for atoms, _ in expr.terms:
        for atom in atoms:
            found.update((atom,) if isinstance(atom, str) else _names(atom.numerator) | _names(atom.denominator))
    return frozenset(found)


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, str):
        return values.get(atom, symbol(atom))
    return as_expr(substitute(atom.numerator, values)) // substitute(atom.denominator, values)
