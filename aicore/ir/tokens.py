"""Splits the text of a graph into tokens, and keeps the place for error messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from aicore.errors import GraphError

T = TypeVar("T")

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<value> %[\w.~/-]+ | %{_STRING})
    | (?P<string> {_STRING})
    | (?P<digest> @[0-9a-f]+)
    | (?P<number> -?(?:inf|nan)\b | -?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)
    | (?P<word> [^\W\d]\w*)
    | (?P<mark> -> | //| \S)
    )""",
    re.VERBOSE,
)


class Tokens:
    """The current token, its kind (a group of the expression above), and steps to the next ones.

    `token` is empty at the end of the text. `start` is where the token begins; a caller that finds fault with an
    earlier one sets it back, since `line` is computed from it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0
        self.kind = self.token = ""
        self.advance()

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.start) + 1

    def advance(self) -> str:
        """Step to the next token; returns the one left behind."""
        left = self.token
        found = _TOKEN.match(self.text, self.end)
        if found is None:
            self.kind = self.token = ""
            self.start = self.end = len(self.text)
        else:
            self.kind = found.lastgroup or ""
            self.token = found[self.kind]
            self.start, self.end = found.start(self.kind), found.end()
        return left

    def wanted(self, what: str) -> GraphError:
        return GraphError(f"wanted {what}, found {self.token!r}" if self.token else f"wanted {what}, the text ends")

    def take(self, kind: str, what: str) -> str:
        if self.kind != kind:
            raise self.wanted(what)
        return self.advance()

    def eat(self, token: str) -> None:
        if self.token != token:
            raise self.wanted(repr(token))
        self.advance()

    def maybe(self, token: str) -> bool:
        found = self.token == token
        if found:
            self.advance()
        return found

    def listed(self, close: str, item: Callable[[], T]) -> list[T]:
        """Items separated by commas, up to and including `close`."""
        found: list[T] = []
        while not self.maybe(close):
            if found:
                self.eat(",")
            found.append(item())
        return found
