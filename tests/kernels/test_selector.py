"""The order of choice, and the reason against every kernel that is not taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import AicoreError, UnsupportedError
from aicore.ir import Op, TensorType
from aicore.kernels import Candidate, Choose, Kernel, KernelTable, Selector, kernel

MATRIX = TensorType("float32", (4, 4))
SYMBOLIC = TensorType("float32", None)


def add(variant: str, **options: Any) -> Kernel:
    def function(op: ops.Add, a: Any, b: Any, *, out: Any) -> None:
        np.add(a, b, out=out)

    return kernel(ops.Add, device="cpu", variant=variant, **options)(function)


def selector(*kernels: Kernel, **options: Any) -> Selector:
    return Selector(KernelTable(kernels), "cpu", **options)


def chosen(some: Selector, **options: Any) -> str:
    return some.select(ops.Add(), MATRIX, MATRIX, **options).kernel.variant


REFERENCE = add("reference")
PLAIN = add("plain")
SLOW = add("slow", estimate=lambda op, *types: 2e-6)
FAST = add("fast", estimate=lambda op, *types: 1e-6)
TUNED = {"slow": 1e-7, "plain": 5e-7}


class Looked:
    """A look-up by a function of the candidates; notes which operands were said to be constant."""

    def __init__(self, choose: Callable[[Sequence[Candidate]], tuple[str, Mapping[str, float]] | None]) -> None:
        self.choose = choose
        self.hits = 0
        self.misses: Counter[str] = Counter()
        self.constant: list[int] = []

    def __call__(
        self, op: Op, types: Sequence[TensorType | None], constant: Collection[int], candidates: Sequence[Candidate]
    ) -> tuple[str, Mapping[str, float]] | None:
        self.constant = list(constant)
        return self.choose(candidates)


def measured(times: Mapping[str, float]) -> Choose:
    """A look-up that has times by variant."""

    def choose(candidates: Sequence[Candidate]) -> tuple[str, Mapping[str, float]] | None:
        assert all(candidate.usable for candidate in candidates)
        known = {c.name: times[c.kernel.variant] for c in candidates if c.kernel.variant in times}
        return (min(known, key=lambda name: known[name]), known) if known else None

    return Looked(choose)


tuned = measured(TUNED)


def test_the_lowest_estimate_wins() -> None:
    assert chosen(selector(REFERENCE, PLAIN, SLOW, FAST)) == "fast"


def test_without_estimates_the_first_that_is_no_reference_wins() -> None:
    assert chosen(selector(REFERENCE, PLAIN)) == "plain"


def test_the_reference_is_the_last_choice() -> None:
    assert chosen(selector(REFERENCE)) == "reference"


def test_a_tuned_time_beats_every_estimate() -> None:
    assert chosen(selector(REFERENCE, FAST, SLOW, PLAIN, tuned=tuned)) == "slow"


def test_a_reference_that_was_measured_fastest_is_taken() -> None:
    assert chosen(selector(REFERENCE, FAST, tuned=measured({"reference": 1e-8, "fast": 1e-6}))) == "reference"


def test_an_override_beats_a_tuned_time() -> None:
    assert chosen(selector(REFERENCE, FAST, SLOW, overrides={"Add": "reference"}, tuned=tuned)) == "reference"


def test_an_override_of_a_node_beats_that_of_its_op() -> None:
    some = selector(REFERENCE, FAST, SLOW, overrides={"Add": "slow", "sum": "fast"})
    assert chosen(some, node="sum") == "fast"
    assert chosen(some, node="other") == "slow"


def test_an_override_that_does_not_exist_lists_what_does() -> None:
    with pytest.raises(UnsupportedError, match="no kernel 'winograd' for Add on cpu; there are: plain, reference"):
        chosen(selector(REFERENCE, PLAIN, overrides={"Add": "winograd"}))


def test_an_override_that_cannot_run_is_never_replaced() -> None:
    only_ints = add("ints", dtypes={"int32"})
    with pytest.raises(UnsupportedError, match="add_ints was asked for, but: does not take float32"):
        chosen(selector(REFERENCE, only_ints, overrides={"Add": "ints"}))


def test_every_candidate_is_listed_with_score_or_reason() -> None:
    picky = add("picky", supports=lambda op, *types: "wants odd sizes")
    selection = selector(REFERENCE, picky, SLOW, FAST, PLAIN).select(ops.Add(), MATRIX, MATRIX)
    assert [str(candidate) for candidate in selection.candidates] == [
        "add_fast: 1.0 us estimate",
        "add_slow: 2.0 us estimate",
        "add_plain: no estimate",
        "add_reference: reference",
        "add_picky: wants odd sizes",
    ]
    assert selection.reason == "estimate"


def test_no_kernel_at_all() -> None:
    assert selector(REFERENCE).reason_against(ops.Sub(), MATRIX, MATRIX) == "no kernel for Sub on cpu"
    with pytest.raises(UnsupportedError, match="no kernel for Sub on cpu"):
        selector(REFERENCE).select(ops.Sub(), MATRIX, MATRIX)


def test_the_reasons_against_all_candidates_are_joined() -> None:
    some = selector(add("ints", dtypes={"int32"}), add("picky", supports=lambda op, *types: "wants odd sizes"))
    reason = some.reason_against(ops.Add(), MATRIX, MATRIX)
    assert reason == "no kernel for this Add on cpu: add_ints: does not take float32; add_picky: wants odd sizes"


def test_one_that_can_run_it_is_no_reason() -> None:
    assert selector(add("ints", dtypes={"int32"}), REFERENCE).reason_against(ops.Add(), MATRIX, SYMBOLIC) is None


def test_estimates_are_not_asked_while_sizes_are_open() -> None:
    def estimate(op: ops.Add, *types: TensorType) -> float:
        return float(np.prod(types[0].static_shape))  # raises for an open size

    some = selector(REFERENCE, add("fast", estimate=estimate))
    assert some.select(ops.Add(), SYMBOLIC, SYMBOLIC).kernel.variant == "fast"


def test_the_table_keeps_devices_apart() -> None:
    table = KernelTable([REFERENCE, FAST])
    assert table.find(ops.Add, "cpu") == (REFERENCE, FAST)
    assert table.find(ops.Add, "cuda") == ()
    assert table.reference(ops.Add, "cpu") is REFERENCE
    assert table.reference(ops.Sub, "cpu") is None
    assert list(table) == [REFERENCE, FAST]
    assert len(table) == 2


def blocked(variant: str, **options: Any) -> Kernel:
    """A kernel with settings: 6, 5 and 4 microseconds for blocks of 8, 16 and 32."""

    def bind(op: ops.Add, types: Any, constants: Any, block: int = 8) -> Any:
        return lambda *operands, out: np.add(*operands, out=out)

    times = {8: 6e-6, 16: 5e-6, 32: 4e-6}
    return add(
        variant, bind=bind, tune={"block": (8, 16, 32)}, estimate=lambda op, *types, block: times[block], **options
    )


def test_each_choice_of_settings_is_a_candidate() -> None:
    selection = selector(REFERENCE, blocked("rows")).select(ops.Add(), MATRIX, MATRIX)
    assert selection.settings == {"block": 32}
    assert [str(candidate) for candidate in selection.candidates] == [
        "add_rows[block=32]: 4.0 us estimate",
        "add_rows[block=16]: 5.0 us estimate",
        "add_rows[block=8]: 6.0 us estimate",
        "add_reference: reference",
    ]


def test_a_measured_choice_of_settings_beats_estimated_ones() -> None:
    looked = Looked(lambda candidates: ("add_rows[block=16]", {"add_rows[block=8]": 1e-4, "add_rows[block=16]": 1e-3}))
    selection = selector(blocked("rows"), tuned=looked).select(ops.Add(), MATRIX, MATRIX, constant=[1])
    assert looked.constant == [1]
    assert selection.settings == {"block": 16}
    assert [str(candidate) for candidate in selection.candidates] == [
        "add_rows[block=16]: 1000.0 us timed",
        "add_rows[block=8]: 100.0 us timed",
        "add_rows[block=32]: not timed",
    ]


def test_settings_are_combined_the_default_first() -> None:
    both = add("both", bind=lambda *args, **settings: None, tune={"rows": (1, 2), "columns": (3, 4)})
    assert both.settings == (
        {"rows": 1, "columns": 3},
        {"rows": 1, "columns": 4},
        {"rows": 2, "columns": 3},
        {"rows": 2, "columns": 4},
    )
    assert REFERENCE.settings == ({},)


def test_settings_need_a_bind_to_receive_them() -> None:
    with pytest.raises(AicoreError, match="declares settings, which only `bind` could receive"):
        add("rows", tune={"block": (1, 2)})


def test_a_kernel_for_what_an_op_holds_serves_no_other() -> None:
    def last(held: type[Op]) -> Kernel:
        return kernel(ops.ChannelsLast, device="cpu", variant="last", wraps=held)(lambda op, x, *, out: None)

    some = selector(last(ops.MaxPool), last(ops.AveragePool))
    image = TensorType("float32", (1, 4, 4, 3))
    chosen_kernel = some.select(ops.ChannelsLast(ops.AveragePool(kernel_shape=(2, 2))), image).kernel
    assert chosen_kernel.wraps is ops.AveragePool
    assert chosen_kernel.name == "averagepool_last"
    assert some.reason_against(ops.ChannelsLast(ops.Relu()), image) == "no kernel for ChannelsLast of Relu on cpu"
