"""What is wrong with a rule is said where the rule is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from aicore.errors import RuleError
from aicore.ir import Graph, Namespace, Op, Value, inline
from aicore.ops.activation import Activation, LeakyRelu, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAddAct, GemmAct, MatMulAdd
from aicore.ops.fused_pointwise import Region
from aicore.rewrite import fuse, rule


def body(op: Any, x: Any) -> Any:
    return x


def refuses(pattern: Any, message: str, function: Any = body) -> None:
    with pytest.raises(RuleError, match=message):
        rule(pattern)(function)


def test_unknown_attribute() -> None:
    refuses(lambda op, x: op.Relu(x, slope=1), "rule body: Relu has no attribute slope")


def test_unknown_op() -> None:
    refuses(lambda op, x: op.Quadratic(x), "no core op is called 'Quadratic'")


def test_pattern_that_reads_types() -> None:
    refuses(lambda op, x: op.Relu(x) if x.rank == 2 else op.Tanh(x), "an operand of a pattern has no 'rank'")


def test_pattern_without_an_op() -> None:
    refuses(lambda op, x: x, "a pattern must return results of ops")
    refuses(lambda op, x: (), "a pattern must return results of ops")


def test_operand_that_is_a_number() -> None:
    refuses(lambda op, x: op.Add(x, 1.0), "operand 1.0 is neither a parameter nor the result of an op")


def test_body_wants_what_no_pattern_has() -> None:
    def wants(op: Any, x: Any, y: Any) -> Any:
        return y

    refuses(lambda op, x: op.Relu(x), "rule wants: its body wants y, which no pattern has", wants)


def test_rule_without_a_pattern() -> None:
    with pytest.raises(RuleError, match="it has no pattern"):
        rule()(body)


def test_parameter_with_another_default() -> None:
    refuses(lambda op, x=1: op.Relu(x), "parameter 'x' has default 1; only None makes it optional")


def test_keyword_parameter() -> None:
    refuses(lambda op, *, x: op.Relu(x), "parameter 'x' is given by keyword")


def test_op_parameter_without_annotation() -> None:
    refuses(lambda op, x: op.apply(x, x), "is no op; a parameter that is one needs an op class as annotation")


def test_variable_inside_a_tuple_attribute() -> None:
    refuses(lambda op, x, a: op.Transpose(x, perm=(a, 0)), "attribute perm is .*; it must be a literal or a parameter")


def test_result_as_an_attribute() -> None:
    refuses(lambda op, x: op.Transpose(x, perm=op.Relu(x)), "attribute perm is")


def test_annotation_that_cannot_be_read() -> None:
    def wants(op: Any, x: Nowhere) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return x

    refuses(lambda op, x: op.Relu(x), "an annotation cannot be read", wants)


@dataclass(frozen=True)
class ReadsRank(Op):
    def decompose(self, op: Namespace, x: Any) -> Any:
        return op.Relu(x) if x.rank else op.Tanh(x)


@dataclass(frozen=True)
class BranchesOnField(Op):
    alpha: float = 1.0

    def decompose(self, op: Namespace, x: Any) -> Any:
        return op.Relu(x) if self.alpha == 1 else op.LeakyRelu(x, alpha=self.alpha)


@dataclass(frozen=True)
class CountsWithField(Op):
    alpha: float = 1.0

    def decompose(self, op: Namespace, x: Any) -> Any:
        return op.LeakyRelu(x, alpha=self.alpha * 2)


@dataclass(frozen=True)
class ReadsFieldOfField(Op):
    conv: Conv

    def decompose(self, op: Namespace, x: Any, w: Any) -> Any:
        return op.Concat(op.apply(self.conv, x, w), axis=self.conv.group)


@dataclass(frozen=True)
class LeavesFieldUnused(Op):
    alpha: float = 1.0
    beta: float = 0.5

    def decompose(self, op: Namespace, x: Any) -> Any:
        return op.LeakyRelu(x, alpha=self.alpha)


@dataclass(frozen=True)
class HoldsGraph(Op):
    body: Graph

    def decompose(self, op: Namespace, *inputs: Any) -> Any:
        return inline(op, self.body, inputs)


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (Relu, "there is none"),
        (ReadsRank, "has no 'rank'"),
        (BranchesOnField, "it branches on 'alpha'"),
        (CountsWithField, "it computes with 'alpha'"),
        (ReadsFieldOfField, "it reads conv.group; hold it as a field of its own"),
        (LeavesFieldUnused, "its fields beta reach no op"),
        (HoldsGraph, ""),
        (Region, ""),
    ],
)
def test_no_pattern_follows(cls: type[Op], why: str) -> None:
    with pytest.raises(RuleError, match=f"no pattern follows from {cls.__name__}.decompose: .*{why}"):
        fuse(cls)


@pytest.mark.parametrize(("cls", "variants"), [(ConvAct, 2), (ConvAddAct, 2), (GemmAct, 2), (MatMulAdd, 1)])
def test_one_pattern_for_each_choice_of_optional_operands(cls: type[Op], variants: int) -> None:
    found = fuse(cls)
    assert found.name == f"fuse-{cls.__name__}"
    assert len(found.patterns) == variants
    assert found.text == cls.__doc__


def test_rule_carries_its_docstring_and_name() -> None:
    @rule(lambda op, x: op.Relu(op.Relu(x)))
    def relu_twice(op: Any, x: Value) -> Any:
        """relu(relu(x)) -> relu(x)"""
        return op.Relu(x)

    assert relu_twice.name == "relu-twice"
    assert relu_twice.text == "relu(relu(x)) -> relu(x)"
    assert repr(relu_twice) == "<rule relu-twice>"


def test_annotations_may_be_unions_of_op_classes() -> None:
    def union(op: Any, x: Value, act: LeakyRelu | Relu) -> Any:
        return op.apply(act, x)

    found = rule(lambda op, x, act: op.apply(act, op.Neg(x)))(union)
    assert found.patterns[0][0].call.op.classes == (LeakyRelu, Relu)
    assert issubclass(LeakyRelu, Activation)
