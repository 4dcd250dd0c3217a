"""Counting sequences of tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, ensure, need_dtype, need_rank

MODES = ("TF", "IDF", "TFIDF")


@op_class
class TfIdfVectorizer(Simple):
    """How often each known n-gram occurs in a vector (C,) or in each row of (N, C); float32.

    The n-grams of length n lie one behind the other in the pool, from element ngram_counts[n - 1] on; the i-th of all
    is counted in element ngram_indexes[i] of a result of length max(ngram_indexes) + 1. Lengths from min_gram_length to
    max_gram_length count, of tokens that follow each other at distances of 1 to max_skip_count + 1, equal within one.
    mode: TF gives counts, IDF the weight where the count is not 0, TFIDF counts times weights; weights are 1 if absent.
    Source: ONNX TfIdfVectorizer-9.
    """

    mode: str = "TF"
    min_gram_length: int = 1
    max_gram_length: int = 1
    max_skip_count: int = 0
    ngram_counts: tuple[int, ...] = ()
    ngram_indexes: tuple[int, ...] = ()
    pool_int64s: tuple[int, ...] = ()
    pool_strings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def infer(self, x: Value) -> Types:
        if self.mode not in MODES:
            raise UnsupportedError(f"mode is {self.mode!r}, wants one of {', '.join(MODES)}")
        ensure(not (self.pool_int64s and self.pool_strings), "has both pool_int64s and pool_strings")
        need_dtype(x, {"string"} if self.pool_strings else {"int32", "int64"})
        need_rank(x, 1, 2)
        ensure(1 <= self.min_gram_length <= self.max_gram_length, "wants 1 <= min_gram_length <= max_gram_length")
        ensure(self.max_skip_count >= 0, f"max_skip_count is {self.max_skip_count}, wants 0 or more")
        ensure(self.ngram_indexes and min(self.ngram_indexes) >= 0, "ngram_indexes are empty or below 0")
        ensure(len(self.grams()) == len(self.ngram_indexes), "the pool has not one n-gram for each of ngram_indexes")
        fits = len(self.weights) in (0, len(self.ngram_indexes))
        ensure(fits, f"{len(self.weights)} weights for {len(self.ngram_indexes)} n-grams")
        length = max(self.ngram_indexes) + 1
        return TensorType("float32", None if x.shape is None else (*x.shape[:-1], length))

    def grams(self) -> list[tuple[int | str, ...]]:
        """All n-grams of the pool, in order. Raises InferenceError when ngram_counts do not cut it into whole ones."""
        pool: tuple[int | str, ...] = self.pool_strings or self.pool_int64s
        ends, found = (*self.ngram_counts[1:], len(pool)), list[tuple[int | str, ...]]()
        for size, (start, end) in enumerate(zip(self.ngram_counts, ends, strict=True), 1):
            whole = 0 <= start <= end <= len(pool) and (end - start) % size == 0
            ensure(whole, f"elements {start} to {end} of the pool are no {size}-grams")
            found += [pool[i : i + size] for i in range(start, end, size)]
        return found

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        pool = {
            "ngram_counts": (0, 4),
            "ngram_indexes": (0, 1, 2, 3, 4, 5, 6),
            "pool_int64s": (2, 3, 5, 4, 5, 6, 7, 8, 6, 7),
        }
        tokens = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]])
        yield Sample(cls("TF", 1, 2, 0, **pool), (tokens,), note="both lengths")  # type: ignore[arg-type]
        yield Sample(cls("TF", 2, 2, 5, **pool), (tokens,), note="skips")  # type: ignore[arg-type]
        weights = (0.5, 1.5, 2.0, 1.0, 3.0, 0.25, 4.0)
        for mode in ("IDF", "TFIDF"):
            yield Sample(cls(mode, 1, 2, 1, weights=weights, **pool), (tokens[1],), note=mode)  # type: ignore[arg-type]
        words = {"ngram_counts": (0, 2), "ngram_indexes": (1, 0, 3), "pool_strings": ("a", "b", "a", "b")}
        yield Sample(cls("TF", 1, 2, 0, **words), (np.array(["a", "b", "a"], object),), note="text")  # type: ignore[arg-type]
