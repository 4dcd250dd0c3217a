"""TfIdfVectorizer: every n-gram of a row is looked up in the pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.ngrams import TfIdfVectorizer
from aicore_cpu_numpy.reference._precision import Array


@kernel(TfIdfVectorizer, device="cpu")
def tf_idf_vectorizer(op: TfIdfVectorizer, x: Array) -> Any:
    number_of = {gram: i for i, gram in enumerate(op.grams())}
    rows = x.reshape(-1, x.shape[-1])
    counts = np.zeros((len(rows), len(op.ngram_indexes)))
    for row, tokens in zip(counts, rows.tolist(), strict=True):
        for gram in _grams_of(tokens, op):
            if gram in number_of:
                row[number_of[gram]] += 1
    if op.mode == "IDF":
        counts = np.minimum(counts, 1)
    if op.mode != "TF" and op.weights:
        counts *= op.weights
    found = np.zeros((len(rows), max(op.ngram_indexes) + 1), np.float32)
    found[:, list(op.ngram_indexes)] = counts
    return found.reshape(*x.shape[:-1], -1) if x.size else np.zeros((*x.shape[:-1], found.shape[1]), np.float32)


def _grams_of(tokens: list[Any], op: TfIdfVectorizer) -> Iterator[tuple[Any, ...]]:
    """Of all lengths and distances; single tokens have no distance."""
    for size in range(op.min_gram_length, op.max_gram_length + 1):
        for step in range(1, op.max_skip_count + 2 if size > 1 else 2):
            for start in range(len(tokens) - (size - 1) * step):
                yield tuple(tokens[start : start + (size - 1) * step + 1 : step])


KERNELS: tuple[Kernel, ...] = (tf_idf_vectorizer,)
