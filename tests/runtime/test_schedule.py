"""Where nodes go, why, and how often data changes device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import UnsupportedError
from aicore.ir import Builder, Graph, Value
from aicore.kernels import KernelTable, Selector
from aicore.plugins import PluginRegistry
from aicore.runtime import Backend, Constants
from aicore.runtime.schedule import CORE, make_segments, place_nodes


def backend(registry: PluginRegistry, name: str, *without: str) -> Backend:
    """The device without the kernels of some ops."""
    device = registry.device(name)
    table = KernelTable(k for k in registry.kernels if k.op.__name__ not in without)
    return Backend(device, registry.launcher(name), Selector(table, device.kind), Constants(device))


def pairs(count: int) -> Graph:
    """Independent chains Sin -> Cos, all written one after the other."""
    b = Builder()
    x = b.input("x", "float32", (4,))
    results: dict[str, Value] = {f"y{i}": b.Cos(b.Sin(x)) for i in range(count)}
    return b.graph((x,), results)


def test_everything_on_the_target(registry: PluginRegistry) -> None:
    graph = pairs(3)
    placement = place_nodes(graph, backend(registry, "fake"), [backend(registry, "cpu")])
    assert str(placement) == "fake 6/6 nodes"
    (segment,) = make_segments(graph, placement)
    assert segment.nodes == graph.nodes
    assert segment.inputs == graph.inputs
    assert [value for _, value in graph.outputs] == list(segment.outputs)


def test_results_of_a_segment_are_in_the_order_of_the_graph(registry: PluginRegistry) -> None:
    """A value that is made first may be asked for last; then what only another segment reads comes behind."""
    b = Builder()
    x = b.input("x", "float32", (4,))
    early = b.Sin(x)
    late = b.Sin(b.Sin(early))
    between = b.Sin(early)
    graph = b.graph((x,), {"late": late, "early": early, "far": b.Cos(between)})
    placement = place_nodes(graph, backend(registry, "fake", "Cos"), [backend(registry, "cpu")])
    first, second = make_segments(graph, placement)
    assert first.outputs == (late, early, between)
    assert second.outputs == (graph.outputs[2][1],)


def test_what_the_target_lacks_goes_elsewhere_with_the_reason(registry: PluginRegistry) -> None:
    graph = pairs(3)
    placement = place_nodes(graph, backend(registry, "fake", "Cos"), [backend(registry, "cpu")])
    assert str(placement) == "fake 3/6 nodes; 3 -> cpu [Cos: no kernel]"


def test_the_order_changes_device_as_rarely_as_it_can(registry: PluginRegistry) -> None:
    graph = pairs(5)
    placement = place_nodes(graph, backend(registry, "fake", "Cos"), [backend(registry, "cpu")])
    segments = make_segments(graph, placement)
    assert [(s.device, len(s.nodes)) for s in segments] == [("fake", 5), ("cpu", 5)]
    assert segments[1].inputs == segments[0].outputs
    done: set[Any] = set(graph.inputs)
    for node in (node for segment in segments for node in segment.nodes):
        assert done.issuperset(node.inputs)
        done.update(node.outputs)


def test_back_and_forth(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    graph = b.graph((x,), {"y": b.Sin(b.Cos(b.Sin(x)))})
    placement = place_nodes(graph, backend(registry, "fake", "Cos"), [backend(registry, "cpu")])
    assert [s.device for s in make_segments(graph, placement)] == ["fake", "cpu", "fake"]


def test_without_a_fallback_the_error_names_node_and_reason(registry: PluginRegistry) -> None:
    with pytest.raises(UnsupportedError, match="Cos 'cos': no kernel for Cos on fake"):
        place_nodes(pairs(1), backend(registry, "fake", "Cos"), [])


def test_when_nobody_can_every_reason_is_told(registry: PluginRegistry) -> None:
    message = "Cos 'cos': no kernel for Cos on fake; no kernel for Cos on cpu"
    with pytest.raises(UnsupportedError, match=message):
        place_nodes(pairs(1), backend(registry, "fake", "Cos"), [backend(registry, "cpu", "Cos")])


def test_a_reshape_stays_where_its_operand_is(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    flat = b.Reshape(b.Cos(x), b.constant(np.array([2, 2])))
    graph = b.graph((x,), {"y": flat})
    placement = place_nodes(graph, backend(registry, "fake", "Cos"), [backend(registry, "cpu")])
    assert set(placement.devices.values()) == {"cpu"}


def test_sizes_that_depend_on_data_leave_a_device_that_cannot_have_them(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    graph = b.graph((x,), {"y": b.NonZero(b.Sin(x))})
    placement = place_nodes(graph, backend(registry, "fake"), [backend(registry, "cpu")])
    assert str(placement) == "fake 1/2 nodes; 1 -> cpu [NonZero: the size of %nonzero depends on data]"


def test_strings_leave_a_device_that_cannot_have_them(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "string", (4,))
    graph = b.graph((x,), {"y": b.Concat(x, x, axis=0)})
    placement = place_nodes(graph, backend(registry, "fake"), [backend(registry, "cpu")])
    assert str(placement) == "fake 0/1 nodes; 1 -> cpu [Concat: %x holds strings]"


def test_control_flow_belongs_to_the_core(registry: PluginRegistry) -> None:
    inner = Builder()
    captured = inner.input("x", "float32", (4,))
    branch = inner.graph((captured,), {"y": inner.Sin(captured)})
    b = Builder()
    condition, x = b.input("condition", "bool", ()), b.input("x", "float32", (4,))
    graph = b.graph((condition, x), {"y": b.Cos(b.If(condition, x, then_branch=branch, else_branch=branch))})
    placement = place_nodes(graph, backend(registry, "fake"), [])
    assert [s.device for s in make_segments(graph, placement)] == [CORE, "fake"]
