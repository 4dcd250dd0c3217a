"""Text and counts of tokens, by examples worked out from the ONNX text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.kernels import REFERENCE, KernelTable
from aicore.ops.ngrams import TfIdfVectorizer
from aicore.ops.strings import RegexFullMatch, StringConcat, StringNormalizer, StringSplit
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cpu_numpy.reference.strings import string_normalizer

EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def run(op: Any, *operands: Any) -> list[Any]:
    return [found.tolist() for found in EVALUATE(op, *operands)]


def texts(*found: Any) -> np.ndarray[Any, Any]:
    return np.array(found, object)


def test_stop_words_and_case() -> None:
    words = texts("Monday", "monday", "Été")
    assert run(StringNormalizer(stopwords=("monday",)), words) == [["Été"]]
    assert run(StringNormalizer(is_case_sensitive=1, stopwords=("monday",)), words) == [["Monday", "Été"]]
    assert run(StringNormalizer("LOWER"), words[None]) == [[["monday", "monday", "été"]]]
    assert run(StringNormalizer("UPPER", stopwords=("ÉTÉ",)), words) == [["MONDAY", "MONDAY"]]


def test_one_empty_text_stands_for_none() -> None:
    stop = StringNormalizer(stopwords=("a",))
    assert run(stop, texts("a", "A")) == [[""]]
    assert run(stop, texts(["a"])) == [[[""]]]
    with pytest.raises(ExecutionError, match="one row"):
        string_normalizer.function(stop, texts(["a"], ["b"]))


def test_concatenation_broadcasts() -> None:
    assert run(StringConcat(), texts(["a"], ["ü"]), texts("x", "")) == [[["ax", "a"], ["üx", "ü"]]]


def test_splits() -> None:
    x = texts("a.b.c", "", ".d")
    dots = [["a", "b", "c"], ["", "", ""], ["", "d", ""]]
    assert run(StringSplit("."), x) == [dots, [3, 1, 2]]
    assert run(StringSplit(".", 1), x) == [[["a", "b.c"], ["", ""], ["", "d"]], [2, 1, 2]]
    assert run(StringSplit(".", 0), x) == [[["a.b.c"], [""], [".d"]], [1, 1, 1]]
    spaces = texts("  a  b\tc ", "   ")
    assert run(StringSplit(), spaces) == [[["a", "b", "c"], ["", "", ""]], [3, 0]]
    assert run(StringSplit("", 1), texts(" a  b c")) == [[["a", "b c"]], [2]]
    assert run(StringSplit(), np.empty((0, 2), object)) == [[], []]


def test_regular_expressions_match_the_whole_text() -> None:
    x = texts("abc", "ab", "xabc", "")
    assert run(RegexFullMatch("ab.?"), x) == [[True, True, False, False]]
    assert run(RegexFullMatch("a|ab"), x) == [[False, True, False, False]]
    assert run(RegexFullMatch(""), x) == [[False, False, False, True]]


POOL = {"ngram_counts": (0, 2), "ngram_indexes": (0, 3, 1), "pool_int64s": (5, 6, 5, 6)}
"""The tokens 5 and 6, and the pair (5, 6)."""


def test_counts_of_n_grams() -> None:
    x = np.array([[5, 6, 5, 6, 6], [7, 5, 7, 6, 7]])
    assert run(TfIdfVectorizer(**POOL), x) == [[[2, 0, 0, 3], [1, 0, 0, 1]]]
    both = TfIdfVectorizer("TF", 1, 2, **POOL)
    assert run(both, x) == [[[2, 2, 0, 3], [1, 0, 0, 1]]]
    # at distances 1 and 2: (5, 6) at 0-1, 2-3, 2-4, and in the second row 1-3
    assert run(TfIdfVectorizer("TF", 2, 2, 1, **POOL), x) == [[[0, 3, 0, 0], [0, 1, 0, 0]]]
    assert run(both, x[0]) == [[2, 2, 0, 3]]
    assert run(both, x[:0].astype(np.int32)) == [[]]


def test_weights_of_n_grams() -> None:
    x, weights = np.array([5, 6, 5, 6, 6]), (0.5, 2.0, 10.0)
    assert run(TfIdfVectorizer("TF", 1, 2, weights=weights, **POOL), x) == [[2, 2, 0, 3]]
    assert run(TfIdfVectorizer("IDF", 1, 2, weights=weights, **POOL), x) == [[0.5, 10, 0, 2]]
    assert run(TfIdfVectorizer("TFIDF", 1, 2, weights=weights, **POOL), x) == [[1, 20, 0, 6]]
    assert run(TfIdfVectorizer("IDF", 1, 2, **POOL), x) == [[1, 1, 0, 1]]


def test_n_grams_of_text() -> None:
    pool = {"ngram_counts": (0, 0), "ngram_indexes": (0,), "pool_strings": ("a", "b")}
    assert run(TfIdfVectorizer("TF", 1, 2, **pool), texts("a", "b", "a", "b")) == [[2]]
