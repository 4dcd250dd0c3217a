"""Which outputs may be bound to the memory of an input. Kernels: Add and Neg may write in place, Mul may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Graph, Value
from aicore.ops.optimizers import SGDUpdate
from aicore.plugins import PluginRegistry
from aicore.runtime import OutputPlan, Plan
from aicore.runtime.in_place import computed_in_place
from tests.runtime.conftest import SIDE
from tests.runtime.test_planner import plan_of


def graph_of(outputs: Any) -> Graph:
    """Of inputs w and x; outputs: made of a builder and both."""
    b = Builder()
    w, x = b.input("w", "float32", (SIDE, SIDE)), b.input("x", "float32", (SIDE, SIDE))
    return b.graph([w, x], outputs(b, w, x))


def places(plan: Plan) -> dict[str, int]:
    return {plan.buffers[index].name: place for place, index in enumerate(plan.inputs)}


def flat(b: Builder, x: Value) -> Value:
    return b.Reshape(x, b.constant(np.array([-1])))  # type: ignore[no-any-return]


def read_later(b: Builder, w: Value, x: Value) -> dict[str, Value]:
    following = b.Add(w, x)
    return {"next": following, "y": b.Mul(b.Neg(following), w)}


def alias_read_later(b: Builder, w: Value, x: Value) -> dict[str, Value]:
    following = b.Add(w, x)
    return {"next": following, "y": b.Neg(b.Mul(flat(b, following), flat(b, w)))}


def given_back(b: Builder, w: Value, x: Value) -> dict[str, Value]:
    return {"next": b.Add(w, x), "before": w}


def alias_given_back(b: Builder, w: Value, x: Value) -> dict[str, Value]:
    return {"next": b.Add(w, x), "before": flat(b, w)}


def two_results(b: Builder, w: Value, x: Value) -> dict[str, Value]:
    following = b.Add(w, x)
    return {"other": following, "next": following}


def over_a_temporary(b: Builder, w: Value, x: Value) -> dict[str, Value]:
    """The result has the bytes of what was made before w was read."""
    return {"next": b.Add(b.Mul(x, x), w)}


def through_another_shape(b: Builder, w: Value, x: Value) -> dict[str, Value]:
    return {"next": b.Reshape(b.Add(flat(b, w), flat(b, x)), b.constant(np.array([SIDE, SIDE])))}


@pytest.mark.parametrize(
    "outputs",
    [
        lambda b, w, x: {"next": b.Mul(w, x)},
        lambda b, w, x: {"next": b.Add(w, w)},
        lambda b, w, x: {"next": b.Neg(x)},
        lambda b, w, x: {"next": b.Neg(b.Mul(w, x))},
        lambda b, w, x: {"next": w},
        read_later,
        alias_read_later,
        given_back,
        alias_given_back,
        two_results,
        over_a_temporary,
        through_another_shape,
    ],
    ids=[
        "kernel not in place",
        "read twice by the kernel",
        "another operand",
        "read before, not by the kernel",
        "copied",
        "read later",
        "an alias read later",
        "given back",
        "an alias given back",
        "copied from another output",
        "bytes of a temporary",
        "an alias",
    ],
)
def test_what_is_not_safe(outputs: Any, tiny: PluginRegistry) -> None:
    graph = graph_of(outputs)
    plan = plan_of(graph, tiny)
    number = [name for name, _ in graph.outputs].index("next")
    assert computed_in_place(plan, [(number, places(plan)["w"])]) == []


def test_the_last_reader_may_write_over_it(tiny: PluginRegistry) -> None:
    plan = plan_of(graph_of(lambda b, w, x: {"y": b.Mul(w, x), "next": b.Add(b.Mul(w, w), x)}), tiny)
    at = places(plan)
    assert computed_in_place(plan, [(1, at["x"])]) == []  # the sum has the bytes of the product
    plan = plan_of(graph_of(lambda b, w, x: {"y": b.Mul(w, x), "next": b.Neg(w)}), tiny)
    at = places(plan)
    assert computed_in_place(plan, [(1, at["w"])]) == [(1, at["w"])]
    assert computed_in_place(plan, [(1, at["x"]), (0, at["w"])]) == []


@pytest.mark.parametrize("name", ["w", "x"])
def test_either_operand_where_the_op_says_so(name: str, tiny: PluginRegistry) -> None:
    plan = plan_of(graph_of(lambda b, w, x: {"next": b.Add(w, x)}), tiny)
    assert computed_in_place(plan, [(0, places(plan)[name])]) == [(0, places(plan)[name])]


def test_later_steps_may_read_the_result(tiny: PluginRegistry) -> None:
    def outputs(b: Builder, w: Value, x: Value) -> dict[str, Value]:
        following = b.Add(w, x)
        return {"next": following, "y": b.Mul(following, x)}

    plan = plan_of(graph_of(outputs), tiny)
    at = places(plan)
    assert computed_in_place(plan, [(0, at["w"])]) == [(0, at["w"])]
    assert computed_in_place(plan, [(0, at["x"])]) == []


def test_each_input_and_each_output_once(tiny: PluginRegistry) -> None:
    plan = plan_of(graph_of(lambda b, w, x: {"a": b.Neg(w), "c": b.Neg(x)}), tiny)
    w, x = places(plan)["w"], places(plan)["x"]
    assert computed_in_place(plan, [(0, w), (1, x)]) == [(0, w), (1, x)]
    plan = plan_of(graph_of(lambda b, w, x: {"next": b.Add(w, x)}), tiny)
    w, x = places(plan)["w"], places(plan)["x"]
    assert computed_in_place(plan, [(0, w), (0, x)]) == [(0, w)]
    assert computed_in_place(plan, [(0, x), (0, x)]) == [(0, x)]


def momentum() -> Plan:
    """One update: parameter and slot, both float32[4], from the operands 3 and 5 of one step."""
    b = Builder()
    w, gradient, slot = (b.input(name, "float32", (4,)) for name in ("w", "gradient", "slot"))
    rate, step = b.input("rate", "float32", ()), b.input("step", "int64", ())
    updated, kept = b.SGDUpdate(rate, step, None, w, gradient, slot, count=1, momentum=0.9)
    graph = b.graph([w, gradient, slot, rate, step], {"w.next": updated, "slot.next": kept})
    (plan,) = aicore.compile(graph, "cpu", tune="off").plan
    return plan


def test_an_output_has_the_operand_that_the_op_pairs_it_with(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = momentum()
    w, slot = places(plan)["w"], places(plan)["slot"]
    assert plan.steps[0].kernel.inplace
    assert computed_in_place(plan, [(0, w), (1, slot)]) == [(0, w), (1, slot)]
    assert computed_in_place(plan, [(0, slot), (1, w), (1, places(plan)["gradient"])]) == []
    monkeypatch.setattr(SGDUpdate, "inplace", ((0, 3), (1, 3)))
    assert computed_in_place(plan, [(0, w), (1, w)]) == [(0, w)], "two outputs cannot have one place"


def test_what_is_copied_or_of_another_type_has_no_memory_to_give(tiny: PluginRegistry) -> None:
    plan = plan_of(graph_of(lambda b, w, x: {"next": b.Neg(w), "y": b.Neg(x)}), tiny)
    w = places(plan)["w"]
    copied = replace(plan, outputs=(OutputPlan(plan.outputs[0].buffer, copied=True), plan.outputs[1]))
    assert computed_in_place(copied, [(0, w)]) == []
    buffers = list(plan.buffers)
    made = plan.outputs[0].buffer
    buffers[made] = replace(buffers[made], type=replace(buffers[made].type, dtype="int32"))
    assert computed_in_place(replace(plan, buffers=tuple(buffers)), [(0, w)]) == []
    assert computed_in_place(plan, [(0, w)]) == [(0, w)]
