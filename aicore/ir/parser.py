"""Reads the text that aicore.ir.printer writes. Types of results may be left out: inference supplies them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from aicore.errors import AicoreError, GraphError
from aicore.ir.dims import Dim, parse_dim, substitute, unknown
from aicore.ir.dtypes import DTYPES, numpy_dtype
from aicore.ir.graph import Graph
from aicore.ir.op import Op, as_tuple
from aicore.ir.printer import unknown_names
from aicore.ir.tokens import Tokens
from aicore.ir.types import TensorType
from aicore.ir.value import Buffer, Node, Origin, Value
from aicore.ir.verify import verify

_NESTING_LIMIT = 64
_WORDS = {"True": True, "False": False, "None": None}


def parse_graph(
    text: str, ops: Mapping[str, type[Op]], constants: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> Graph:
    """The graph that the text describes.

    ops: op classes by name.
    constants: arrays by digest, for those that the text only names; `text_constants` gives them.
    Raises GraphError naming the line: syntax, unknown op, attribute, value or digest, operands that do not fit.
    """
    parser = _Parser(text, ops, constants or {})
    try:
        graph = parser.graph()
        parser.expect_end()
    except GraphError as error:
        raise GraphError(f"line {parser.line}: {error}") from error
    verify(graph)
    return graph


class _Digits(str):
    """A number as it is written; NumPy reads it, so that each dtype rounds once."""

    __slots__ = ()


class _Parser(Tokens):
    def __init__(self, text: str, ops: Mapping[str, type[Op]], constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super().__init__(text)
        self._ops, self._stored = ops, constants
        self._unknown: dict[str, Dim] = {}
        self._depth = 0

    def _string(self) -> str:
        return _unquote(self.take("string", "text in double quotes"))

    def _value_name(self) -> str:
        name = self.take("value", "a value such as %x")[1:]
        return _unquote(name) if name.startswith('"') else name

    def expect_end(self) -> None:
        if self.token:
            raise self.wanted("the end of the text")

    # ---- types and literals

    def _type(self) -> TensorType:
        dtype = self.take("word", "a dtype")
        if dtype not in DTYPES:
            raise GraphError(f"no element type is called {dtype!r}")
        self.eat("[")
        if self.maybe("*"):
            self.eat("]")
            return TensorType(dtype, None)
        return TensorType(dtype, tuple(self.listed("]", self._dim)))

    def _dim(self) -> Dim:
        """Everything up to a comma or bracket outside of parentheses is one expression."""
        start, depth = self.start, 0
        while self.token and (depth or self.token not in {",", "]", "}"}):
            depth += {"(": 1, ")": -1}.get(self.token, 0)
            end = self.end
            self.advance()
        dim = parse_dim(self.text[start:end] if self.start > start else "")
        for name in unknown_names(dim):
            self._unknown.setdefault(name, unknown())
        return substitute(dim, self._unknown)

    def _literal(self) -> Any:
        match self.kind, self.token:
            case "word", "graph":
                return self.graph()
            case "word", "const":
                self.advance()
                tensor = self._type()
                return Buffer(self._array(tensor))
            case "word", "dim":
                self.advance()
                return self._dim()
            case "word", ("True" | "False" | "None") as word:
                self.advance()
                return _WORDS[word]
            case "word", _:
                return self._op(self._op_class())
            case "string", _:
                return self._string()
            case "number", _:
                return self._number()
            case "mark", "[":
                self.advance()
                return tuple(self.listed("]", self._literal))
        raise self.wanted("an attribute's value")

    def _number(self) -> int | float:
        text = self.take("number", "a number")
        return int(text) if text.lstrip("-").isdigit() else float(text)

    def _op_class(self) -> type[Op]:
        name = self.take("word", "an op")
        if name not in self._ops:
            raise GraphError(f"unknown op {name!r}")
        return self._ops[name]

    def _op(self, cls: type[Op]) -> Op:
        """An op of class `cls` with the attributes in braces, if there are any."""
        pairs = self.listed("}", self._attribute) if self.maybe("{") else []
        attributes = dict(pairs)
        if len(attributes) < len(pairs):
            raise GraphError(f"{cls.__name__} has an attribute twice")
        try:
            op = cls(**attributes)
            hash(op)
        except (TypeError, ValueError) as error:
            raise GraphError(f"{cls.__name__}: {error}") from error
        return op

    def _attribute(self) -> tuple[str, Any]:
        name = self.take("word", "an attribute's name")
        self.eat("=")
        return name, self._literal()

    def _array(self, tensor: TensorType) -> np.ndarray[Any, Any]:
        if not tensor.is_static:
            raise GraphError(f"a constant needs a shape in numbers, not {tensor}")
        shape = tensor.static_shape
        if self.kind == "digest":
            return self._stored_array(tensor)
        dtype = numpy_dtype(tensor.dtype)
        if self.maybe("splat"):
            return np.broadcast_to(self._elements([self._element()], dtype).reshape(()), shape)
        self.eat("[")
        elements = self.listed("]", self._element)
        array = self._elements(elements, dtype)
        if array.size != np.prod(shape, dtype=int):
            raise GraphError(f"{array.size} elements do not fill {tensor}")
        return array.reshape(shape)

    def _stored_array(self, tensor: TensorType) -> np.ndarray[Any, Any]:
        digest = self.token[1:]
        if digest not in self._stored:
            raise GraphError(f"constant @{digest} is not among those given")
        array = np.asarray(self._stored[digest])
        if array.shape != tensor.shape or array.dtype != numpy_dtype(tensor.dtype):
            raise GraphError(f"constant @{digest} is {array.dtype}{list(array.shape)}, the text says {tensor}")
        self.advance()
        return array

    def _element(self) -> Any:
        if self.kind == "string":
            return self._string()
        if self.token in {"True", "False"}:
            return _WORDS[self.advance()]
        return _Digits(self.take("number", "an element"))

    def _elements(self, found: list[Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        array = np.empty(len(found), dtype)
        for i, element in enumerate(found):
            try:
                array[i] = _convert(element, dtype)
            except (ValueError, TypeError, OverflowError) as error:
                raise GraphError(f"{element!r} is not of dtype {dtype}") from error
        return array

    # ---- graphs

    def graph(self) -> Graph:
        if self._depth == _NESTING_LIMIT:
            raise GraphError(f"graphs are nested more than {_NESTING_LIMIT} deep")
        self._depth += 1
        env: dict[str, Value] = {}
        nodes: list[Node] = []
        self.eat("graph")
        self.eat("(")
        inputs = self.listed(")", lambda: self._define(Value(*self._typed(env)), env))
        self.eat("{")
        while not self.maybe("return"):
            if self.maybe("const"):
                self._constant(env)
            else:
                nodes.append(self._node(env))
        outputs, state = self._ends(env)
        self._depth -= 1
        return Graph(tuple(inputs), tuple(outputs), tuple(nodes), tuple(state))

    def _ends(self, env: dict[str, Value]) -> tuple[list[tuple[str, Value]], list[tuple[str, str]]]:
        outputs: list[tuple[str, Value]] = []
        state: list[tuple[str, str]] = []
        while self.kind == "string":
            name = self._string()
            self.eat("=")
            outputs.append((name, self._look_up(env)))
            if not self.maybe(","):
                break
        while self.maybe("state"):
            output = self._string()
            self.eat("->")
            state.append((output, self._string()))
        self.eat("}")
        return outputs, state

    def _new_name(self, env: dict[str, Value]) -> str:
        start = self.start
        name = self._value_name()
        if name in env:
            self.start = start  # the line to report
            raise GraphError(f"%{name} is defined twice")
        return name

    def _typed(self, env: dict[str, Value]) -> tuple[str, TensorType]:
        name = self._new_name(env)
        self.eat(":")
        return name, self._type()

    def _define(self, value: Value, env: dict[str, Value]) -> Value:
        env[value.name] = value
        return value

    def _look_up(self, env: dict[str, Value]) -> Value:
        if self.kind == "value":
            name = _unquote(self.token[1:]) if self.token[1] == '"' else self.token[1:]
            if name not in env:
                raise GraphError(f"%{name} is used before it is defined")
        return env[self._value_name()]

    def _operand(self, env: dict[str, Value]) -> Value | None:
        return None if self.maybe("_") else self._look_up(env)

    def _constant(self, env: dict[str, Value]) -> None:
        name, tensor = self._typed(env)
        self.eat("=")
        self._define(Value(name, tensor, Buffer(self._array(tensor)), fixed=True), env)

    def _node(self, env: dict[str, Value]) -> Node:
        start = self.start
        results = [self._result(env)]
        while self.maybe(","):
            results.append(self._result(env))
        self.eat("=")
        cls = self._op_class()
        self.eat("(")
        operands = tuple(self.listed(")", lambda: self._operand(env)))
        op = self._op(cls)
        origin = self._origin()
        try:
            values = _infer(op, operands, results)
        except AicoreError as error:
            self.start = start  # the line to report
            raise GraphError(f"{cls.__name__} {results[0][0]!r}: {error}") from error
        return Node(op, operands, tuple(self._define(value, env) for value in values), origin)

    def _result(self, env: dict[str, Value]) -> tuple[str, TensorType | None]:
        name = self._new_name(env)
        return name, self._type() if self.maybe(":") else None

    def _origin(self) -> Origin:
        parts: list[Origin] = []
        if self.maybe("from"):
            self.eat("[")
            parts += [Origin(name) for name in self.listed("]", self._string)]
        if self.maybe("by"):
            self.eat("[")
            parts += [_rule_origin(text) for text in self.listed("]", self._string)]
        return Origin(parts=tuple(parts))


def _infer(op: Op, operands: tuple[Value | None, ...], results: list[tuple[str, TensorType | None]]) -> list[Value]:
    """The values of a node, with the types in the text, which inference must not contradict."""
    try:
        types = as_tuple(op.infer(*operands))
        dims = op.content(*operands)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
        raise GraphError(f"does not fit its operands: {error}") from error
    if len(types) != len(results):
        raise GraphError(f"has {len(types)} outputs, the text names {len(results)}")
    if len({name for name, _ in results}) < len(results):
        raise GraphError("two of its outputs have the same name")
    fixed = op.pure and all(v is None or v.fixed for v in operands)
    values = []
    for i, ((name, given), inferred) in enumerate(zip(results, types, strict=True)):
        if given is not None and not given.agrees(inferred):
            raise GraphError(f"%{name} is recorded as {given}, inference gives {inferred}")
        values.append(Value(name, given or inferred, dims=dims if i == 0 else None, fixed=fixed))
    return values


def _unquote(text: str) -> str:
    try:
        found: str = json.loads(text)
    except ValueError as error:
        raise GraphError(f"{text} is not a JSON string") from error
    return found


def _convert(element: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject:
        if isinstance(element, bool | _Digits):
            raise TypeError("not text")
        return element
    if dtype.kind == "b":
        if not isinstance(element, bool):
            raise TypeError("not True or False")
        return element
    if dtype.kind == "c":
        return complex(str(element))
    if not isinstance(element, _Digits):
        raise TypeError("not a number")
    if dtype.kind in "iu":
        return int(element)
    return float(element) if dtype.itemsize < 4 else dtype.type(element)


def _rule_origin(text: str) -> Origin:
    rule, _, match = text.rpartition("#")
    if not rule or not match.isdigit():
        raise GraphError(f"{text!r} is not a rule and a match number, such as 'fuse-bias#3'")
    return Origin(rule=rule, match=int(match))
