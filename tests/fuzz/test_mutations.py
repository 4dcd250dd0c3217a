"""Damaged models, all the way to a run: a typed error or a result comes out, soon and in little memory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import onnx
import pytest

from tests.fuzz.corpus import small_models
from tests.fuzz.mutations import mutated, mutated_array, with_constants
from tests.fuzz.runner import Result, run_cases
from tools.models import model_path

pytest.importorskip("resource", reason="limits on memory need POSIX")

Case = tuple[str, Any, dict[str, Any]]
FAST = 600
SLOW = 3000
REAL = 150


def small_cases(first: str, last: str) -> Iterator[Case]:
    """Mutations of the small models, one for each seed."""
    models = small_models()
    for seed in range(int(first), int(last)):
        yield f"seed {seed}", mutated(models[seed % len(models)], random.Random(seed)), {}


def suite_cases(first: str, last: str) -> Iterator[Case]:
    """Mutations of the onnx package's own tests, with their inputs, some of those mutated or made constants."""
    from onnx.backend.test.case.node import collect_testcases  # makes the data of all tests: takes seconds

    tests = [test for test in collect_testcases(None) if test.model is not None]
    for seed in range(int(first), int(last)):
        rng = random.Random(seed)
        test = rng.choice(tests)
        arrays = test.data_sets[0][0]
        pairs = zip(test.model.graph.input, arrays, strict=False)
        feeds = {value.name: array for value, array in pairs if hasattr(array, "dtype") and hasattr(array, "reshape")}
        copy = onnx.ModelProto()
        copy.CopyFrom(test.model)
        model = mutated(with_constants(copy, feeds, rng), rng)
        given = {n: mutated_array(a, rng) if rng.random() < 0.3 else a for n, a in feeds.items()}
        yield f"{test.name} seed {seed}", model, given


def real_cases(first: str, last: str) -> Iterator[Case]:
    """Mutations of real networks."""
    names = ("ppocr_cls", "magika", "light_squeezenet", "light_shufflenet", "light_inception_v1", "light_zfnet512")
    models = {name: onnx.load(model_path(name)) for name in names}
    for seed in range(int(first), int(last)):
        rng = random.Random(seed)
        name = rng.choice(names)
        yield f"{name} seed {seed}", mutated(models[name], rng), {}


def check(results: list[Result], most_grown: int) -> None:
    faults = [result for result in results if result.is_fault or result.grown > most_grown]
    assert not faults, faults[:5]
    outcomes = Counter(result.outcome for result in results)
    assert min(outcomes["ran"], outcomes["refused"]) > len(results) // 20, outcomes  # else nothing is put to the test


def test_mutations_of_small_models() -> None:
    check(run_cases("tests.fuzz.test_mutations:small_cases", 0, FAST), most_grown=1 << 30)


@pytest.mark.slow
def test_many_mutations_of_small_models() -> None:
    check(run_cases("tests.fuzz.test_mutations:small_cases", FAST, FAST + SLOW), most_grown=1 << 31)


@pytest.mark.slow
def test_mutations_of_the_suite() -> None:
    check(run_cases("tests.fuzz.test_mutations:suite_cases", 0, SLOW), most_grown=1 << 31)


@pytest.mark.slow
def test_mutations_of_real_networks() -> None:
    check(run_cases("tests.fuzz.test_mutations:real_cases", 0, REAL), most_grown=1 << 31)
