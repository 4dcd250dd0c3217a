"""Text: Unicode, with the rules of Python's `str`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.dims import unknown
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, broadcast, ensure, need_dtype, need_rank, shape_text

TEXT = frozenset({"string"})
CASE_ACTIONS = ("NONE", "LOWER", "UPPER")
PLAIN_LOCALES = ("", "C", "C.UTF-8", "POSIX", "en_US", "en-US", "en_US.UTF-8")
"""Locales whose upper and lower case are those of Unicode."""


@op_class
class StringNormalizer(Simple):
    """The texts of a vector, or of a row (1, C), without stop words, then in lower or upper case.

    Where nothing is left, one empty text. is_case_sensitive: whether case matters for stop words.
    locale: only those whose case rules are Unicode's own. Source: ONNX StringNormalizer-10.
    """

    case_change_action: str = "NONE"
    is_case_sensitive: int = 0
    locale: str = ""
    stopwords: tuple[str, ...] = ()

    def infer(self, x: Value) -> Types:
        need_dtype(x, TEXT)
        need_rank(x, 1, 2)
        row = x.shape is None or len(x.shape) == 1 or not isinstance(x.shape[0], int) or x.shape[0] == 1
        ensure(row, f"%{x.name} has shape {shape_text(x.shape)}, wants (C,) or (1, C)")
        if self.case_change_action not in CASE_ACTIONS:
            choices = ", ".join(CASE_ACTIONS)
            raise UnsupportedError(f"case_change_action is {self.case_change_action!r}, wants one of {choices}")
        if self.locale not in PLAIN_LOCALES:
            raise UnsupportedError(f"locale {self.locale!r} is not supported")
        if x.shape is None:
            return TensorType("string", None)
        return TensorType("string", (unknown(),) if len(x.shape) == 1 else (1, unknown()))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        words = _texts(["Monday", "monday", "Tuesday", "été"])
        yield Sample(cls("LOWER", 1, stopwords=("monday",)), (words,), note="case-sensitive")
        yield Sample(cls("UPPER", 0, stopwords=("monday",)), (words[None],), note="row, any case")
        yield Sample(cls(stopwords=("monday", "tuesday", "ÉTÉ")), (words,), note="nothing is left")
        yield Sample(cls(), (words,), note="unchanged")


@op_class
class StringConcat(Simple):
    """(a, b) -> the texts of a followed by those of b, with broadcasting. Source: ONNX StringConcat-20."""

    def infer(self, a: Value, b: Value) -> Types:
        need_dtype(a, TEXT)
        need_dtype(b, TEXT)
        return TensorType("string", broadcast(a.shape, b.shape))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (_texts(["a", "", "ü"]), _texts(["x", "y", ""])))
        yield Sample(cls(), (_texts([["a"], ["b"]]), _texts(["x", "y", "z"])), note="broadcast both ways")
        yield Sample(cls(), (_texts(["a", "b"]), _texts("!")), note="rank 0 on the right")


@op_class
class StringSplit(Simple):
    """x -> (parts, counts): the parts of each text along a new last axis, filled up with empty texts, and how many.

    delimiter: the text between parts; if empty, any white space, none at the ends.
    maxsplit: the most splits for each text, from the left; the rest is the last part. None means no limit.
    Source: ONNX StringSplit-20.
    """

    delimiter: str = ""
    maxsplit: int | None = None

    def n_outputs(self) -> int:
        return 2

    def infer(self, x: Value) -> Types:
        need_dtype(x, TEXT)
        ensure(self.maxsplit is None or self.maxsplit >= 0, f"maxsplit is {self.maxsplit}, wants 0 or more")
        parts = None if x.shape is None else (*x.shape, unknown())
        return TensorType("string", parts), TensorType("int64", x.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        texts = _texts([["a b  c", " d"], ["", "e f"]])
        yield Sample(cls(), (texts,), note="white space")
        yield Sample(cls(" "), (texts,), note="delimiter")
        yield Sample(cls("", 1), (texts,), note="maxsplit")
        yield Sample(cls(), (texts[:0],), note="zero size")


@op_class
class RegexFullMatch(Simple):
    """Whether the whole of each text matches a regular expression; bool.

    pattern: in the syntax of RE2, as Python's `re` reads it. What RE2 leaves out (references back, looking ahead or
    behind) is refused. Source: ONNX RegexFullMatch-20.
    """

    pattern: str = ""

    def infer(self, x: Value) -> Types:
        need_dtype(x, TEXT)
        compiled(self.pattern)
        return TensorType("bool", x.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        texts = _texts([["www.google.com", "www.facebook.com"], ["www.bbc.co.uk", ""]])
        yield Sample(cls(r"www\.[\w.-]+\.\bcom\b"), (texts,))
        yield Sample(cls(".*"), (texts[:0],), note="zero size")


_BEYOND_RE2 = re.compile(r"(?<!\\)(?:\\\\)*(?:\\[1-9]|\(\?(?:=|!|<=|<!|P=|\())")


def compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression. Raises UnsupportedError for one that is not of RE2, or that Python does not read."""
    if _BEYOND_RE2.search(pattern):
        raise UnsupportedError(f"pattern {pattern!r} is not of RE2: it refers back or looks around")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UnsupportedError(f"pattern {pattern!r} cannot be read: {error}") from error


def _texts(found: object) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    return np.array(found, object)
