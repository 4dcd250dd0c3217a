"""Patterns: what a pattern function builds when it runs under this namespace instead of a Builder.

A parameter of the pattern function stands for an operand, as in `op.Relu(x)`, or for an attribute, as in
`op.ReduceMean(x, axes=a)`. An attribute that is not written has its default. A constant operand that an op holds in a
field is written as that field: `op.Reshape(x, shape=s)` meets a constant shape, `op.Reshape(x, s)` a computed one.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, NoReturn

import numpy as np

from aicore.errors import AicoreError, RuleError
from aicore.ir import Namespace, Op, as_tuple, constant_value
from aicore.ir.op import field_content
from aicore.records import dataclass


class OperandPattern:
    """What stands where a Value would. It has no type, so code that asks for one cannot run as a pattern."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuleError(f"an operand of a pattern has no {name!r}; code that reads types cannot be run as a pattern")


@dataclass(frozen=True, eq=False)
class Variable(OperandPattern):
    """Binds an operand, whatever it is; twice the same name must be the same value."""

    name: str


@dataclass(frozen=True, eq=False)
class Rest(OperandPattern):
    """Binds all operands from here on, as a tuple."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant(OperandPattern):
    """A constant with these numbers, in whatever dtype; an AttributeVariable binds the number of a constant."""

    numbers: Any


@dataclass(frozen=True, eq=False)
class Result(OperandPattern):
    """An output of a call."""

    call: Call
    index: int


@dataclass(frozen=True, eq=False)
class Call:
    """An op on operands. `None` operands must be absent."""

    op: OpPattern
    operands: tuple[OperandPattern | None, ...]


class AttributeVariable:
    """Binds an attribute. It has no value yet, so neither comparison nor arithmetic: a branch would fix one side of the
    pattern without a word.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def _compare(self, *_: object) -> NoReturn:
        raise RuleError(f"it branches on {self.name!r}")

    def _compute(self, *_: object) -> NoReturn:
        raise RuleError(f"it computes with {self.name!r}; hold the result as a field of its own")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _compare
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _compute
    __iter__ = __len__ = __getitem__ = _compute
    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class OpPattern:
    """An op of one of `classes`.

    name: what it is bound to, or "".
    attributes: what the attributes must be, each a literal or an AttributeVariable; None when any op will do.
    """

    classes: tuple[type[Op], ...]
    name: str = ""
    attributes: Mapping[str, Any] | None = None

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuleError(f"it reads {self.name}.{name}; hold it as a field of its own")

    @property
    def commutative(self) -> bool:
        return all(cls.commutative for cls in self.classes)

    def outputs(self) -> int:
        """How many outputs the op has with the attributes that are known; 1 where that does not say."""
        cls = self.classes[0]
        if cls.n_outputs is Op.n_outputs:  # as of most, and making an op takes longer than all else here
            return 1
        known = {k: v for k, v in (self.attributes or {}).items() if not isinstance(v, AttributeVariable)}
        try:
            return cls(**known).n_outputs()
        except (TypeError, ValueError, AttributeError, AicoreError):
            return 1

    def __str__(self) -> str:
        return " or ".join(cls.__name__ for cls in self.classes)


Outputs = tuple[Result, ...]


class PatternNamespace(Namespace):
    """`op.Conv(x, w)` makes a pattern."""

    def make(self, cls: type[Op], attributes: dict[str, Any]) -> OpPattern:
        known = cls.__dataclass_fields__ if attributes else {}  # type: ignore[attr-defined]  # ops are dataclasses
        if unknown := sorted(attributes.keys() - known):
            raise RuleError(f"{cls.__name__} has no attribute {', '.join(unknown)}")
        return OpPattern((cls,), "", {name: _attribute(name, value) for name, value in attributes.items()})

    def apply(self, op: Any, *inputs: Any) -> Any:
        if isinstance(op, Op):
            op = OpPattern((type(op),), "", {f.name: getattr(op, f.name) for f in fields(op)})  # type: ignore[arg-type]
        if not isinstance(op, OpPattern):
            raise RuleError(f"{op!r} is no op; a parameter that is one needs an op class as annotation in the body")
        wrong = [x for x in inputs if x is not None and not isinstance(x, OperandPattern)]
        if wrong:
            raise RuleError(f"{op}: operand {wrong[0]!r} is neither a parameter nor the result of an op")
        op, operands = _absorb(op, inputs)
        call = Call(op, operands)
        results = tuple(Result(call, i) for i in range(op.outputs()))
        return results[0] if len(results) == 1 else results

    def scalar(self, number: Any, like: Any) -> Constant:
        return Constant(number)

    def constant(self, array: Any, name: str = "constant") -> Constant:
        return Constant(array)


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, Variable):
        return AttributeVariable(value.name)
    if isinstance(value, OperandPattern) or (isinstance(value, tuple) and any(map(_is_pattern, value))):
        raise RuleError(f"attribute {name} is {value!r}; it must be a literal or a parameter by itself")
    return value


def _is_pattern(item: object) -> bool:
    return isinstance(item, OperandPattern | AttributeVariable)


def _absorb(op: OpPattern, inputs: tuple[Any, ...]) -> tuple[OpPattern, tuple[OperandPattern | None, ...]]:
    """Constants move into fields, as the Builder moves them."""
    operands = list(inputs)
    moved = {}
    for index, name in op.classes[0].operand_fields.items():
        operand = operands[index] if index < len(operands) else None
        if isinstance(operand, Constant) and op.attributes is not None:
            moved[name] = _field(operand.numbers)
            operands[index] = None
    while operands and operands[-1] is None:
        operands.pop()
    return (OpPattern(op.classes, op.name, {**(op.attributes or {}), **moved}) if moved else op), tuple(operands)


def _field(numbers: Any) -> Any:
    return numbers if isinstance(numbers, AttributeVariable) else field_content(constant_value(np.asarray(numbers)))


def expand_pattern(function: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[Outputs]:
    """The pattern function's results, once for each choice of its optional operands.

    given: what to pass for parameters that are no operands.
    Raises RuleError when the function cannot be run as a pattern.
    """
    parameters = list(inspect.signature(function).parameters.values())[1:]
    optional = [p.name for p in parameters if p.default is None]
    choices = (itertools.combinations(optional, size) for size in range(len(optional) + 1))
    for absent in itertools.chain.from_iterable(choices):
        arguments = [None if p.name in absent else given.get(p.name, _stand_in(p)) for p in parameters]
        yield _run(function, arguments)


def _stand_in(parameter: inspect.Parameter) -> OperandPattern:
    if parameter.kind is parameter.KEYWORD_ONLY or parameter.kind is parameter.VAR_KEYWORD:
        raise RuleError(f"parameter {parameter.name!r} is given by keyword; operands have an order")
    if parameter.default not in (parameter.empty, None):
        raise RuleError(f"parameter {parameter.name!r} has default {parameter.default!r}; only None makes it optional")
    return Rest(parameter.name) if parameter.kind is parameter.VAR_POSITIONAL else Variable(parameter.name)


def _run(function: Callable[..., Any], arguments: list[Any]) -> Outputs:
    try:
        found = as_tuple(function(PatternNamespace(), *arguments))
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise RuleError(str(error)) from error
    if not found or not all(isinstance(item, Result) for item in found):
        raise RuleError("a pattern must return results of ops")
    return found


def calls_of(outputs: Outputs) -> Iterator[Call]:
    """Every call of the pattern, each once."""
    todo, seen = [output.call for output in outputs], set[Call]()
    while todo:
        call = todo.pop()
        if call in seen:
            continue
        seen.add(call)
        yield call
        todo.extend(operand.call for operand in call.operands if isinstance(operand, Result))


def bound_names(outputs: Outputs) -> set[str]:
    """Every name that a match of the pattern binds."""
    names: set[str] = set()
    for call in calls_of(outputs):
        names.add(call.op.name)
        names.update(v.name for v in (call.op.attributes or {}).values() if isinstance(v, AttributeVariable))
        for operand in call.operands:
            if isinstance(operand, Variable | Rest):
                names.add(operand.name)
            elif isinstance(operand, Constant) and isinstance(operand.numbers, AttributeVariable):
                names.add(operand.numbers.name)
    return names - {""}


def pattern_text(outputs: Outputs, marked: object = None) -> str:
    """`Relu(Conv(x, w))`: the pattern as its author wrote it, one part of it between arrows."""
    return ", ".join(_part_text(output, marked) for output in outputs)


def _part_text(part: object, marked: object) -> str:
    """Of a part and all below it; patterns are a few ops deep."""
    text = ""
    match part:
        case Result():
            found = _part_text(part.call, marked)
            text = f"{found}[{part.index}]" if part.index else found
        case Call():
            operands = [_part_text(operand, marked) for operand in part.operands]
            attributes = [f"{name}={_literal(value)}" for name, value in (part.op.attributes or {}).items()]
            text = f"{part.op}({', '.join([*operands, *attributes])})"
        case Variable():
            text = part.name
        case Rest():
            text = f"*{part.name}"
        case Constant():
            text = _literal(part.numbers)
        case None:
            text = "_"
    return f"»{text}«" if part is not None and part is marked else text


def _literal(value: object) -> str:
    return value.name if isinstance(value, AttributeVariable) else str(value)
