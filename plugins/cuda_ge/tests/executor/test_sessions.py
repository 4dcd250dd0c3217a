"""Steps whose state stays on the device: two graphs that take turns, and share what lives during a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import nn
from aicore.ir import Builder, Graph

Array = np.ndarray[Any, Any]
Host = Any
"""The fixture `host`: conftest.HostMachine."""


def step() -> Graph:
    """y = -(x + w), and the next w is w + x; inputs are not read in the order of the graph."""
    b = Builder()
    w, x = b.input("w", "float32", (4,)), b.input("x", "float32", (4,))
    y = b.Neg(b.Add(x, w))
    return b.graph([w, x], {"y": y, "next.w": b.Add(w, x)}, [("next.w", "w")])


def test_a_step_is_one_graph_for_each_way_between_the_arrays_of_the_state(host: Host) -> None:
    plugin = host.plugin()
    session = host.compiled(plugin, step()).session({"w": np.zeros(4, np.float32)})
    x = np.array([1, 2, 3, 4], np.float32)
    for number in range(4):
        assert session.run({"x": x})["y"].tolist() == (-(number + 1) * x).tolist()
        assert session.state.read()["w"].tolist() == ((number + 1) * x).tolist()
    assert [one.replays for one in host.lists] == [2, 2]
    (executable,) = plugin.launched
    assert executable.plan.memory.arena > 0
    assert executable.statistics().bytes == executable.plan.memory.arena


@pytest.mark.gpu
def test_steps_that_are_queued_in_a_row_are_those_that_were_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_TUNE", "off")
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((16, 3, 12, 12), np.float32), rng.integers(0, 5, 16)) for _ in range(12)]
    layers = nn.Sequential(
        nn.Conv2D(8, 3, use_bias=False), nn.BatchNormalization(), nn.ReLU(), nn.Flatten(), nn.Dense(5)
    )

    def trained(waits: bool) -> dict[str, Array]:
        model = nn.Model(layers, (3, 12, 12), target="cuda:0", seed=1)
        model.compile(nn.Adam(1e-2), "sparse_categorical_crossentropy").build()
        model.train_step(model.samples_of(batches[0]))
        session = model._trained().session
        for batch in batches[1:]:
            feeds = model._feeds(model.samples_of(batch), session)
            session.run(feeds, fetch=None if waits else [])
        explained: Any = model.program.explain()
        (executable,) = explained.specialised.executables
        found = executable.statistics()
        assert (found.captures, found.replays) == (2, len(batches))
        assert found.bytes < 2 * executable.plan.memory.arena, "each graph has memory of its own"
        return model.state_dict()

    waited, queued = trained(True), trained(False)
    for name, array in waited.items():
        np.testing.assert_array_equal(array, queued[name], err_msg=name)
