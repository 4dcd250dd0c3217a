"""Steps whose state stays on the device: two graphs that take turns, or one that writes over what it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import nn
from aicore.errors import InputError
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


def test_state_that_is_written_over_needs_one_graph(host: Host) -> None:
    plugin = host.plugin()
    session = host.compiled(plugin, step()).session({"w": np.zeros(4, np.float32)}, keep_previous=False)
    x = np.array([1, 2, 3, 4], np.float32)
    for number in range(4):
        assert session.run({"x": x})["y"].tolist() == (-(number + 1) * x).tolist()
        assert session.state.read()["w"].tolist() == ((number + 1) * x).tolist()
    assert [one.replays for one in host.lists] == [4]
    assert session.state.nbytes == 16
    (executable,) = plugin.launched
    assert executable.statistics().bytes == executable.plan.memory.arena, "state is bound, not copied"


def test_what_is_read_later_takes_turns_beside_what_is_written_over(host: Host) -> None:
    """The next v is v + x, and is made before v is read once more; the next w is w + v."""
    b = Builder()
    v, w, x = (b.input(name, "float32", (4,)) for name in "vwx")
    graph = b.graph([v, w, x], {"next.v": b.Add(v, x), "next.w": b.Add(w, v)}, [("next.v", "v"), ("next.w", "w")])
    first = {"v": np.zeros(4, np.float32), "w": np.zeros(4, np.float32)}
    session = host.compiled(host.plugin(), graph).session(first, keep_previous=False)
    for _ in range(4):
        session.run({"x": np.ones(4, np.float32)})
    assert session.state.read(["v", "w"])["v"].tolist() == [4] * 4
    assert session.state.read(["v", "w"])["w"].tolist() == [0 + 1 + 2 + 3] * 4
    assert [one.replays for one in host.lists] == [2, 2]
    assert session.state.nbytes == 3 * 16


def test_feeds_of_the_device_are_checked_before_they_are_copied(host: Host) -> None:
    plugin = host.plugin()
    session = host.compiled(plugin, step()).session({"w": np.zeros(4, np.float32)})
    for _ in range(2):
        session.run({"x": plugin.device.upload(np.ones(4, np.float32))})
    assert len({binding.feeds["x"].address for binding in session._bindings.values()}) == 1, "both turns read one array"
    with pytest.raises(InputError, match=r"input 'x': expected float32\[4\], got float64\[4\]: wrong dtype"):
        session.run({"x": plugin.device.upload(np.ones(4))})
    assert session.state.read()["w"].tolist() == [2] * 4


SHAPE = (3, 12, 12)
NETWORKS: dict[str, nn.Layer] = {
    "dense": nn.Sequential(nn.Flatten(), nn.Dense(300, activation="relu"), nn.Dense(5)),
    "convolutions": nn.Sequential(
        nn.Conv2D(32, 3, padding=1, use_bias=False),
        nn.BatchNormalization(),
        nn.ReLU(),
        nn.Residual(nn.Conv2D(32, 3, padding=1)),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Dense(5),
    ),
    "recurrent": nn.Sequential(nn.Flatten(), nn.Reshape((9, 48)), nn.LSTM(64), nn.Dense(5)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop", "adagrad", "adam", "adamw", "lamb", "lion"])
@pytest.mark.parametrize("network", list(NETWORKS))
def test_state_that_is_kept_once_has_the_same_bits(
    network: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AICORE_TUNE", "off")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, *SHAPE), np.float32), rng.integers(0, 5, 16)

    def trained(keep: bool) -> tuple[dict[str, Array], int]:
        model = nn.Model(NETWORKS[network], SHAPE, target="cuda:0", seed=1)
        model.compile(optimizer, "sparse_categorical_crossentropy", learning_rate=1e-3, keep_previous=keep)
        for step in range(5):
            count = 16 - 4 * (step == 3)
            model.train_on_batch(x[:count], y[:count])
        state = model._programs.needs_training().state
        return state.read(), state.nbytes

    (twice, bytes_twice), (once, bytes_once) = trained(True), trained(False)
    for name, array in twice.items():
        np.testing.assert_array_equal(once[name], array, err_msg=name)
    assert bytes_once < 0.52 * bytes_twice


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
        session = model._programs.needs_training().session
        for batch in batches[1:]:
            feeds = model._programs.feeds(model.samples_of(batch), session)
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
