"""Einstein summation."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.dtypes import NUMBERS
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import floats, integers
from aicore.ops.base import broadcast, ensure, need_dtype, same_dtype
from aicore.ops.gradients import Given, Gradients, dim_of, sum_to

ELLIPSIS = "..."
_LETTERS = frozenset(string.ascii_letters)


@op_class
class Einsum(Op):
    """Products of the operands' elements, summed over the indices that the output does not have.

    `equation` names the dims of each operand by letters, `...` standing for any number of leading ones; what follows
    `->` names those of the output. Without it the output has the letters that occur once, in ASCII order, after `...`.
    Any number type; integers wrap. Raises InferenceError when the equation is malformed or does not fit the operands.
    Source: ONNX Einsum.
    """

    equation: str = ""

    def resolve(self, *operands: Value) -> Op:
        inputs, output = parse_equation(self.equation)
        return replace(self, equation=f"{','.join(inputs)}->{output}")

    def infer(self, *operands: Value) -> Types:
        inputs, output = parse_equation(self.equation)
        ensure(len(operands) == len(inputs), f"{self.equation!r} has {len(inputs)} terms, not {len(operands)}")
        need_dtype(operands[0], NUMBERS)
        same_dtype(*operands)
        if any(v.shape is None for v in operands):
            return TensorType(operands[0].dtype, None)
        dims = self._dims(inputs, operands)
        return TensorType(operands[0].dtype, tuple(dim for label in _labels(output) for dim in dims.get(label, ())))

    def _dims(self, inputs: list[str], operands: tuple[Value, ...]) -> dict[str, tuple[Dim, ...]]:
        """The dims of each letter (always one) and of the ellipsis."""
        dims: dict[str, tuple[Dim, ...]] = {}
        for term, value in zip(inputs, operands, strict=True):
            shape = value.shape or ()
            labels = _labels(term)
            spare = len(shape) - (len(labels) - labels.count(ELLIPSIS))
            ensure(spare == 0 or (spare > 0 and ELLIPSIS in labels), f"term {term!r} does not fit {value.type}")
            at = 0
            for label in labels:
                count = spare if label == ELLIPSIS else 1
                found = shape[at : at + count]
                dims[label] = broadcast(dims[label], found) or () if label in dims else found
                at += count
        return dims

    def cost(self, *operands: Value) -> tuple[Dim, Dim]:
        terms, _ = parse_equation(self.equation)
        total: Dim = len(operands)
        for found in self._dims(terms, operands).values():
            for dim in found:
                total = total * dim
        return total, moved_bytes(self.infer(*operands), operands)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return tuple(self._gradient(op, i, inputs, grads[0]) for i in range(len(inputs)))

    def _gradient(self, op: Builder, index: int, operands: Given, g: Value) -> Value:
        """The same products with the gradient in the operand's place; what is there alone takes part by ones.

        A letter that the operand has twice, as in `ii`, gets a second name, and a matrix of ones on the diagonal.
        """
        terms, output = parse_equation(self.equation)
        x = operands[index]
        if x.shape is None:
            raise UnsupportedError(f"the gradient of Einsum needs to know the rank of %{x.name}")
        others = [i for i in range(len(terms)) if i != index]
        factors: list[tuple[str, Value]] = [(output, g), *((terms[i], operands[i]) for i in others)]
        wanted: list[str] = []
        for axis, label in _axes_of(terms[index], len(x.shape)):
            dim = dim_of(op, x, axis)
            if label in wanted:
                spare = next(c for c in string.ascii_letters if not any(c in term for term in (*terms, *wanted)))
                zeros = op.Expand(op.scalar(0.0, g), op.Concat(dim, dim, axis=0))
                factors.append((label + spare, op.EyeLike(zeros)))
                label = spare
            elif not any(label in term for term, _ in factors):
                factors.append((label, op.Expand(op.scalar(1.0, g), dim)))
            wanted.append(label)
        dots = ELLIPSIS if any(ELLIPSIS in term for term in terms) else ""
        if terms[index].find(ELLIPSIS) > 0:
            raise UnsupportedError(f"the gradient of Einsum wants the ellipsis of {terms[index]!r} in front")
        equation = f"{','.join(term for term, _ in factors)}->{dots}{''.join(wanted)}"
        return sum_to(op, op.Einsum(*(value for _, value in factors), equation=equation), x)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls("ij,jk->ik"), (floats(rng, (3, 4)), floats(rng, (4, 5))), note="matrix product")
        yield Sample(cls("bhid,bhjd->bhij"), (floats(rng, (2, 3, 4, 5)), floats(rng, (2, 3, 6, 5))), note="attention")
        yield Sample(cls("... i j , ...jk"), (floats(rng, (2, 1, 3, 4)), floats(rng, (5, 4, 2))), note="implicit")
        yield Sample(cls("ij->ji"), (floats(rng, (3, 4)),), note="transpose")
        yield Sample(cls("...ii->...i"), (floats(rng, (2, 3, 3)),), note="diagonal")
        yield Sample(cls("ii"), (floats(rng, (4, 4)),), note="trace")
        yield Sample(cls("i,i->"), (floats(rng, (5,)), floats(rng, (5,))), note="inner product")
        yield Sample(cls("Ab,b,bc->cA"), (floats(rng, (2, 3)), floats(rng, (3,)), floats(rng, (3, 4))), note="three")
        yield Sample(cls("ij,jk->ik"), (floats(rng, (3, 0)), floats(rng, (0, 5))), note="nothing to sum")
        yield Sample(cls("ij,jk->ik"), (integers(rng, (3, 4)), integers(rng, (4, 5))), note="int64")


def parse_equation(equation: str) -> tuple[list[str], str]:
    """The operands' terms and the output's, without spaces; an output that is not written is worked out.

    Raises InferenceError for a stray character, a second ellipsis, or an output that has a label
    no operand has or lacks the operands' ellipsis.
    """
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    for term in (*inputs, *([output] if arrow else [])):
        letters = term.replace(ELLIPSIS, "", 1)
        if not set(letters) <= _LETTERS:  # the text is long when the terms are many: it is not made for each of them
            ensure(False, f"{equation!r} has a malformed term {term!r}")
    counts = Counter(label for term in inputs for label in _labels(term))
    if not arrow:
        once = sorted(label for label, count in counts.items() if count == 1 and label != ELLIPSIS)
        return inputs, (ELLIPSIS if ELLIPSIS in counts else "") + "".join(once)
    labels = _labels(output)
    ensure(len(set(labels)) == len(labels), f"{equation!r} has an output that repeats a label")
    stray = [label for label in labels if label not in counts and label != ELLIPSIS]
    ensure(not stray, f"{equation!r} has an output label that no term has")
    ensure(ELLIPSIS in labels or ELLIPSIS not in counts, f"{equation!r} has an output without the ellipsis")
    return inputs, output


def _labels(term: str) -> list[str]:
    before, dots, after = term.partition(ELLIPSIS)
    return [*before, *([ELLIPSIS] if dots else []), *after]


def _axes_of(term: str, rank: int) -> list[tuple[int, str]]:
    """The axes that letters name, counted from the front, where an ellipsis leads."""
    letters = term.replace(ELLIPSIS, "")
    return list(enumerate(letters, rank - len(letters)))
