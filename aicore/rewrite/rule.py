"""Rules: a pattern, a body that builds the replacement, and the guards between them."""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from types import FunctionType, UnionType
from typing import Any

from aicore.errors import RuleError
from aicore.ir import Op, Value
from aicore.records import dataclass
from aicore.rewrite.pattern import AttributeVariable, OpPattern, Outputs, bound_names, expand_pattern


class NoMatch(Exception):  # noqa: N818  # it says that a guard failed, which is no error
    """A guard of a rule does not hold here. kind: one of `aicore.rewrite.matcher.KINDS`."""

    def __init__(self, text: str = "", kind: str = "guard") -> None:
        super().__init__(text)
        self.kind = kind


def require(condition: object, reason: str, *values: object, kind: str = "guard") -> None:
    """Stop this match unless the condition holds; `reason` and the values appear in the near-miss report."""
    if not condition:
        raise NoMatch(reason + "".join(f" ({value})" for value in values), kind)


@dataclass(frozen=True, eq=False)
class Rule:
    """One rewrite.

    patterns: outputs to look for, one tuple for each way to write them and each choice of optional operands.
    body: `(op, bindings) -> value or tuple of values` that replace the outputs; it may raise NoMatch.
    shared: interior values may have other users; the nodes that they need then stay.
    text: what the rule states, from the body's docstring.
    """

    name: str
    patterns: tuple[Outputs, ...]
    body: Callable[[Any, Mapping[str, Any]], Any]
    shared: bool = False
    text: str = ""

    def __repr__(self) -> str:
        return f"<rule {self.name}>"


def rule(*patterns: Callable[..., Any], shared: bool = False) -> Callable[[Callable[..., Any]], Rule]:
    """Make a rule of a function; its first parameter is the namespace to build under, the others name what matched.

    patterns: functions of `op` and of operands; several are tried in turn. A parameter with default None is an operand
        that may be absent. A parameter whose namesake in the body is annotated with an op class binds an op.
    Raises RuleError for a pattern that cannot be run, or a parameter that no pattern has.
    """

    def wrap(body: Callable[..., Any]) -> Rule:
        name = body.__name__.strip("_").replace("_", "-")
        try:
            return _rule(name, patterns, body, shared)
        except RuleError as error:
            raise RuleError(f"rule {name}: {error}") from error

    return wrap


def _rule(name: str, patterns: tuple[Callable[..., Any], ...], body: Callable[..., Any], shared: bool) -> Rule:
    if not patterns:
        raise RuleError("it has no pattern")
    ops = {key: OpPattern(classes, key) for key, hint in _hints(body).items() if (classes := _op_classes(hint))}
    wanted = _parameters(body)
    known = {name for pattern in patterns for name in _parameters(pattern)}
    if missing := sorted(set(wanted) - known):
        raise RuleError(f"its body wants {', '.join(missing)}, which no pattern has as a parameter")

    def run(op: Any, bindings: Mapping[str, Any]) -> Any:
        return body(op, *(bindings.get(key) for key in wanted))

    found = tuple(outputs for pattern in patterns for outputs in expand_pattern(pattern, ops))
    return Rule(name, found, run, shared, inspect.getdoc(body) or "")


def fuse(cls: type[Op]) -> Rule:
    """The rule that the `decompose` of a fused op implies; it applies where the target has a kernel for the op.

    Raises RuleError when no pattern follows: `decompose` reads types, branches on a field, or leaves a field unused.
    """
    try:
        return _fuse(cls)
    except RuleError as error:
        raise RuleError(f"no pattern follows from {cls.__name__}.decompose: {error}") from error


def _fuse(cls: type[Op]) -> Rule:
    if cls.decompose is Op.decompose:
        raise RuleError("there is none")
    hints = _hints(cls)
    stand_ins = {f.name: _stand_in(f.name, hints.get(f.name)) for f in fields(cls)}  # type: ignore[arg-type]
    blank = object.__new__(cls)
    for name, stand_in in stand_ins.items():
        object.__setattr__(blank, name, stand_in)
    patterns = tuple(expand_pattern(blank.decompose, {}))
    bound = {name for outputs in patterns for name in bound_names(outputs)}
    if unused := sorted(set(stand_ins) - bound):
        raise RuleError(f"its fields {', '.join(unused)} reach no op")
    parameters = list(inspect.signature(cls.decompose).parameters.values())[2:]

    def body(op: Any, bindings: Mapping[str, Any]) -> Any:
        fused = cls(**{name: bindings[name] for name in stand_ins})
        operands: list[Value | None] = []
        for parameter in parameters:
            many = parameter.kind is parameter.VAR_POSITIONAL
            operands.extend(bindings.get(parameter.name, ()) if many else (bindings.get(parameter.name),))
        reason = op.supports(fused, *operands)
        require(reason is None, f"no kernel for {cls.__name__}: {reason}", kind="kernel")
        return op.apply(fused, *operands)

    return Rule(f"fuse-{cls.__name__}", patterns, body, text=inspect.getdoc(cls) or "")


def _stand_in(name: str, hint: Any) -> OpPattern | AttributeVariable:
    classes = _op_classes(hint)
    return OpPattern(classes, name) if classes else AttributeVariable(name)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters after the first; a plain function is spared the general answer, which takes 0.1 ms."""
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return list(inspect.signature(function).parameters)[1:]
    code = function.__code__
    extra = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return list(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount + extra])


def _hints(item: Any) -> dict[str, Any]:
    try:
        return _plain_hints(item) or typing.get_type_hints(item)
    except (NameError, AttributeError, TypeError) as error:
        raise RuleError(f"an annotation cannot be read ({error}); op classes must be names of the module") from error


def _plain_hints(item: Any) -> dict[str, Any]:
    """What annotations mean that are names of the module, joined by `|`; nothing where there are others.

    The general answer compiles each of them, and takes as long as all else that makes a rule.
    """
    found: dict[str, Any] = {}
    for holder in reversed(item.__mro__) if isinstance(item, type) else (item,):
        spaces = (_names_of(holder), vars(builtins), {"None": None})
        for key, text in inspect.get_annotations(holder).items():
            if str(text).startswith(("ClassVar", "typing.ClassVar")):
                continue
            meant = [_meaning(part.strip(), spaces) for part in str(text).split("|")]
            if _NOTHING in meant:
                return {}
            found[key] = functools.reduce(operator.or_, meant)
    return found


_NOTHING = object()


def _names_of(item: Any) -> Mapping[str, Any]:
    return vars(sys.modules[item.__module__]) if isinstance(item, type) else getattr(item, "__globals__", {})


def _meaning(name: str, spaces: Iterable[Mapping[str, Any]]) -> Any:
    return next((space[name] for space in spaces if name in space), _NOTHING)


def _op_classes(hint: Any) -> tuple[type[Op], ...]:
    """The op classes that an annotation names: `Conv`, or `Relu | Tanh`."""
    choices = typing.get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return choices if all(isinstance(c, type) and issubclass(c, Op) for c in choices) else ()
